"""The open-loop floor: what the best fixed sequence of actions earns when it is played blind; and the gate.

A game of luck looks like a game of the right difficulty: its mean return is a half, too. But nothing an Agent
sees helps there, so a winning sequence replayed on fresh seeds does as well as play with open eyes. The
difference between the two is skill. Replays are counted as plays are (`play.returns`): progress that blind
play makes as well is no skill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spade.envs.wire import Op, PlayTrace
from spade.errors import FaultKind, ProgramFault
from spade.learn.gate import best_arm, mean_and_error, skill_gate
from spade.play.episode import SOLVED, episode_return
from spade.train.groups import play_seed
from spade.train.source import World
from spade.types import EnvProgram, Episode, Group, Outcome, Scored

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox

SEQUENCES = 4
"""Distinct winning action sequences tried."""
SEEDS = 20
"""Fresh seeds each of them is replayed on."""


def winning_sequences(episodes: Sequence[Episode]) -> list[tuple[str, ...]]:
    """Distinct action sequences of the best-scoring plays with a positive return, in playing order."""
    won = [e for e in episodes if isinstance(e.outcome, Scored) and e.outcome.value > 0]
    won.sort(key=lambda e: -e.outcome.value if isinstance(e.outcome, Scored) else 0.0)
    return list(dict.fromkeys(e.actions for e in won))[:SEQUENCES]


async def blind_floor(
    program: EnvProgram,
    episodes: Sequence[Episode],
    sandbox: Sandbox,
    seeds: Sequence[int],
    rule: str = "outcome",
) -> tuple[float, float]:
    """Best mean return of a blind replay and its standard error; (0, 0) when nothing was ever won.

    `rule` is `play.returns`. Raises ProgramFault when the program breaks during a replay.
    """
    sequences = winning_sequences(episodes)
    if not sequences:
        return 0.0, 0.0
    ops = [Op.play(0, seed, list(actions), brief=True) for actions in sequences for seed in seeds]
    worker = await sandbox.open(program.code)
    try:
        traces = [_value(result, rule) for result in await worker.batch(ops)]
    finally:
        await worker.close()
    rows = [traces[i : i + len(seeds)] for i in range(0, len(traces), len(seeds))]
    return max((mean_and_error(outcomes) for outcomes in rows), key=lambda m: m[0])


def _value(result: object, rule: str) -> Outcome:
    if isinstance(result, ProgramFault):
        raise result
    assert isinstance(result, PlayTrace)
    value = episode_return(result.rewards, result.terminated, rule)
    return Scored(value, value >= SOLVED)


async def skill_gates(world: World, step: int, groups: Sequence[Group]) -> list[tuple[float, float]]:
    """Skill gate and open-loop floor of each program, from its plays at `step` (formula: `spade.learn.gate`).

    A program that breaks in a replay has a gate of 0; where the machinery fails nothing is measured: 1.
    """
    return list(await asyncio.gather(*(_gate(world, step, group) for group in groups)))


async def _gate(world: World, step: int, group: Group) -> tuple[float, float]:
    cfg, program = world.cfg.reward, group.program
    seeds = [play_seed(world.cfg.seed, "floor", program.id, step, j) for j in range(SEEDS)]
    plays = [*group.plain, *group.hinted]
    try:
        floor, floor_se = await blind_floor(program, plays, world.sandbox, seeds, world.cfg.play.returns)
    except ProgramFault as error:
        # a program that breaks in a replay shows no skill; a worker lost otherwise measures nothing
        return float(error.kind is FaultKind.INFRASTRUCTURE), 0.0
    arms = [[e.outcome for e in arm] for arm in (group.plain, group.hinted) if arm]
    best, best_se = best_arm(arms, cfg.gate_z)
    gate = skill_gate(best, best_se, floor, floor_se, cfg.gate_margin, cfg.gate_width, cfg.gate_z)
    return gate, floor
