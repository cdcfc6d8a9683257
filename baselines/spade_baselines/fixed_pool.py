"""The fixed-pool baseline: the same loop and learner on programs that never change.

`train.pool` names the pool (`spade_baselines.pool_refs`); null samples one from the start model on the first
step (as `make_pool` does). Its programs are judged before the first step unless `train.pool_validate` is off,
and those accepted are written into the run, which from then on reads its own copy. They are played without
replacement, epoch by epoch, or by `train.pool_order` with the replay of self-play, so that a pool can be
compared with it at equal replay. What the pool cost counts against the run's token budget.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spade.config import Config
from spade.config_load import config_digest
from spade.design.designer import Designer, accepted
from spade.envs.pool import MANIFEST, Pool, Provenance, brief_note, read_pool, write_pool
from spade.errors import FaultKind, InputError
from spade.rng import child_rng
from spade.train.archive import Archive
from spade.train.heldout import heldout_programs
from spade.train.replay import open_archive
from spade.train.source import World, agent_credits, faults, returns, running_baselines
from spade.types import Credit, EnvProgram, Group
from spade_baselines.pool_refs import check_ref, judged_pool, pool_of

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.chat import ChatPolicy

MAX_ROUNDS_PER_PROGRAM = 4
"""Design rounds per wanted program before making a pool is given up: the model repeats itself."""
BARREN_ROUNDS = 10
"""Design rounds in a row without a new program after which a pool is given up."""
NO_LIMIT = 10**9
DEFAULT_PROGRAMS = 64
"""Size of a pool made by itself."""


class FixedPoolSource:
    """Programs of a pool in shuffled epochs. See `spade.train.source.EnvSource` for the protocol."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cfg = world.cfg
        self.pool: Pool | None = None
        self.retired: set[str] = set()
        self.baselines = running_baselines(world.cfg)
        self.archive = _archive(world.cfg)
        self._epoch = 0
        self._position = 0
        self._metrics: dict[str, float] = {}

    @staticmethod
    def check(cfg: Config) -> None:
        """Raise InputError for a pool that cannot be read."""
        if cfg.train.pool is not None:
            check_ref(cfg.train.pool)

    async def begin_step(self, step: int) -> list[tuple[EnvProgram, bool]]:
        """The next `play.programs` programs, without hints."""
        self._metrics = {}
        programs = (await self._open()).programs
        wanted = min(self.cfg.play.programs, len(programs) - len(self.retired))
        if wanted <= 0:
            raise InputError(f"no program of the pool {self._folder()} works any more; make another pool")
        if self.archive is None:
            chosen = self._next(programs, wanted)
        else:
            chosen = self._replayed(self.archive, programs, wanted, step)
        self._metrics["pool_epoch"] = float(self._epoch)
        return [(program, False) for program in chosen]

    def _next(self, programs: Sequence[EnvProgram], wanted: int) -> list[EnvProgram]:
        """The next programs of the epoch."""
        chosen: dict[str, EnvProgram] = {}
        while len(chosen) < wanted:
            order = self._order(len(programs))
            if self._position >= len(order):
                self._epoch, self._position = self._epoch + 1, 0
                continue
            program = programs[order[self._position]]
            self._position += 1
            if program.id not in self.retired:
                chosen.setdefault(program.id, program)
        return list(chosen.values())

    def _replayed(
        self, archive: Archive, programs: Sequence[EnvProgram], wanted: int, step: int
    ) -> list[EnvProgram]:
        """Half of the step from what was never played, the rest by the archive's weights."""
        new = [programs[i] for i in self._order(len(programs))]
        new = [p for p in new if p.id not in archive.levels and p.id not in self.retired]
        known = sum(level.plays > 0 for level in archive.levels.values())
        fresh = new[: max((wanted + 1) // 2, wanted - known)]
        for program in fresh:
            archive.add(program)
        rng, taken = child_rng(self.cfg.seed, "pool-replay", step), {p.id for p in fresh}
        self._metrics |= {"replay/share": 1 - len(fresh) / wanted, **archive.metrics(step)}
        return [*fresh, *archive.draw(wanted - len(fresh), rng, taken, step=step)]

    async def observe(self, step: int, groups: Sequence[Group]) -> list[Credit]:
        """Agent credits only; a program that breaks is not played again."""
        for group in groups:
            if self.archive is not None:
                self.archive.update(group.program.id, returns(group.plain), step=step)
            if any(f.kind is FaultKind.PROGRAM for f in faults(group.plain)):
                self.retired.add(group.program.id)
                if self.archive is not None:
                    self.archive.retire(group.program.id)
        means = [float(np.mean(r)) for g in groups if (r := returns(g.plain))]
        if means:
            self._metrics["programs_mastered"] = float(np.mean([m > 0.9 for m in means]))
        return agent_credits(step, groups, self.cfg, self.baselines)

    def flush(self) -> list[Credit]:
        """Nothing ever waits."""
        return []

    @property
    def owes_play(self) -> bool:
        """Never."""
        return False

    def metrics(self) -> dict[str, float]:
        """Numbers of the latest step."""
        size = len(self.pool.programs) if self.pool is not None else 0
        return {**self._metrics, "pool_programs": float(size - len(self.retired))}

    def state_dict(self) -> dict[str, Any]:
        """Position in the pool, and which pool it is."""
        return {
            "epoch": self._epoch,
            "position": self._position,
            "retired": sorted(self.retired),
            "pool": self.pool.digest if self.pool is not None else None,
            "baselines": self.baselines.state_dict(),
            "archive": self.archive.state_dict() if self.archive is not None else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`. Raises InputError when the pool is another one."""
        if state["pool"] is not None:
            self.pool = read_pool(self._folder())
            if self.pool.digest != state["pool"]:
                raise InputError(
                    f"{self._folder()} is not the pool that this run was started with; restore it"
                )
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self.retired = set(state["retired"])
        self.baselines.load_state_dict(state["baselines"])
        if self.archive is not None:
            self.archive.load_state_dict(state["archive"])

    def _folder(self) -> Path:
        return self.world.folder.path_of("pool")

    def _order(self, size: int) -> list[int]:
        order = list(range(size))
        child_rng(self.cfg.seed, "pool", self._epoch).shuffle(order)
        return order

    async def _open(self) -> Pool:
        """The pool; on first use its token cost goes into the ledger."""
        if self.pool is None:
            folder, world = self._folder(), self.world
            if not (folder / MANIFEST).is_file():
                with world.ledger.phase("design"):
                    found = await self._found()
                write_pool(folder, found)
            self.pool = read_pool(folder)
            world.ledger.sampled("pool_design", self.pool.tokens)
            world.folder.update_record(data={**world.folder.record.data, "pool": self.pool.digest})
        return self.pool

    async def _found(self) -> Pool:
        """The pool that `train.pool` names, judged; or one sampled from the start model."""
        train, world = self.cfg.train, self.world
        if train.pool is None:
            return await sample_pool(self.cfg, world.chat, world.sandbox, train.pool_size)
        if not train.pool_validate:
            return pool_of(train.pool)
        return await judged_pool(train.pool, world.sandbox, self.cfg.validator)


def _archive(cfg: Config) -> Archive | None:
    """What chooses programs, unless they come in epochs. It holds a whole pool: nothing is pushed out."""
    if cfg.train.pool_order == "epochs":
        return None
    play = cfg.play.model_copy(update={"replay": cfg.train.pool_order, "replay_capacity": NO_LIMIT})
    archive = open_archive(cfg.model_copy(update={"play": play}))
    archive.capacity = NO_LIMIT
    return archive


async def sample_pool(cfg: Config, chat: ChatPolicy, sandbox: Sandbox, n: int) -> Pool:
    """Design and validate `n` distinct programs with the model as it is.

    Raises InputError when the model does not manage within `MAX_ROUNDS_PER_PROGRAM * n` design rounds, or
    none of many rounds brings a new program.
    """
    designer = Designer(cfg, chat, sandbox, heldout_programs())
    programs: list[EnvProgram] = []
    tokens, attempts, barren = 0, 0, 0
    codes: Counter[str] = Counter()
    known: dict[str, Provenance] = {}
    for number in range(MAX_ROUNDS_PER_PROGRAM * n):
        step, slots = number * cfg.design.every, cfg.design.designs
        designs = await designer.round(step, slots, needed=n - len(programs))
        new = [d.program for d in designs if accepted(d) and d.program is not None]
        programs.extend(new)
        known |= {d.program.id: Provenance(brief_note(d.brief), d.verdict) for d in designs if d.program}
        tokens += designer.tokens
        attempts += len(designs)
        codes.update(d.verdict.code for d in designs if d.verdict is not None)
        barren = 0 if new else barren + 1
        if len(programs) >= n or barren >= BARREN_ROUNDS:
            break
    if len(programs) < n:
        common = ", ".join(f"{code} {count}" for code, count in codes.most_common(4))
        raise InputError(
            f"the model wrote only {len(programs)} of {n} distinct valid programs in {attempts} attempts "
            f"({common}); ask for fewer programs or use a stronger model"
        )
    origin = {
        "model": cfg.model,
        "seed": cfg.seed,
        "config": config_digest(cfg),
        "attempts": attempts,
        "codes": dict(sorted(codes.items())),
    }
    return Pool(tuple(programs[:n]), tokens, origin, {p.id: known[p.id] for p in programs[:n]})


def make_pool(cfg: Config, out: Path, *, size: int = DEFAULT_PROGRAMS) -> Pool:
    """Make a pool of `size` distinct validated programs with the model of `cfg`, and write it to `out`.

    Raises InputError when `out` already holds a pool or the model does not manage.
    """
    if (out / MANIFEST).exists():
        raise InputError(f"{out} already holds a pool; choose another folder")
    pool = asyncio.run(_make(cfg, size))
    write_pool(out, pool)
    return pool


async def _make(cfg: Config, n: int) -> Pool:
    from spade.envs.sandbox import Sandbox
    from spade.serving.launch import open_chat

    chat = await open_chat(cfg.model, cfg.serving)
    try:
        async with await Sandbox.start(cfg.sandbox) as sandbox:
            return await sample_pool(cfg, chat, sandbox, n)
    finally:
        await chat.close()
