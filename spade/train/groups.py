"""Playing the programs of one step in both arms, on the same seeds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from spade.design.hints import solution_hints
from spade.errors import FaultKind, SandboxError
from spade.play.schedule import play
from spade.rng import child_seed
from spade.train.source import World, faults
from spade.types import EnvProgram, Group, Instance


def play_seed(root: int, *names: str | int) -> int:
    """A 31-bit seed for a program's `reset`: programs may do arithmetic with it."""
    return child_seed(root, *names) % 2**31


async def play_groups(world: World, programs: Sequence[tuple[EnvProgram, bool]], step: int) -> list[Group]:
    """`play.plays` plain plays of every program, and hinted ones on the first of the same seeds if asked."""
    cfg = world.cfg
    by_id = {p.id: p for p, _ in programs}
    plain: list[Instance] = []
    asked: list[tuple[EnvProgram, list[int]]] = []
    for program, wants_hinted in programs:
        seeds = [play_seed(cfg.seed, "play", program.id, step, j) for j in range(cfg.play.plays)]
        plain += [Instance(program.id, seed) for seed in seeds]
        if wants_hinted:
            asked.append((program, seeds[: cfg.play.hinted_plays]))
    hinted = [i for many in await asyncio.gather(*(_hinted(world, *one) for one in asked)) for i in many]
    episodes = await play(
        [*plain, *hinted],
        by_id,
        world.chat,
        world.sandbox,
        cfg.play,
        seed=cfg.seed,
        template=cfg.design.template,
    )
    arms = {"plain": episodes[: len(plain)], "hinted": episodes[len(plain) :]}
    world.ledger.played(arms["plain"], arms["hinted"])
    return [
        Group(
            program,
            *(tuple(e for e in arm if e.instance.program_id == program.id) for arm in arms.values()),
        )
        for program, _ in programs
    ]


async def _hinted(world: World, program: EnvProgram, seeds: Sequence[int]) -> list[Instance]:
    """The hinted arm of one program; none where solutions are shown and the program gives none."""
    if world.cfg.hints.source != "solution":
        return [Instance(program.id, seed, program.hint) for seed in seeds]
    hints = await solution_hints(program, seeds, world.sandbox)
    return [Instance(program.id, seed, hint) for seed, hint in zip(seeds, hints, strict=False)]


def check_faults(groups: Sequence[Group], max_share: float, step: int) -> None:
    """Raise SandboxError when too many plays of a step were lost to the machinery."""
    plays = [e for g in groups for e in (*g.plain, *g.hinted)]
    lost = [f for f in faults(plays) if f.kind is FaultKind.INFRASTRUCTURE]
    if plays and len(lost) / len(plays) > max_share:
        raise SandboxError(
            f"step {step}: {len(lost)} of {len(plays)} plays were lost to infrastructure faults "
            f"(first: {lost[0].where}: {lost[0].detail}); check memory and load, then run the command again"
        )
