"""The open-loop floor: what the best fixed sequence of actions wins when it is played blind.

A game of luck looks like a game of the right difficulty: its mean return is a half, too. But nothing an Agent
sees helps there, so a winning sequence replayed on fresh seeds does as well as play with open eyes. The
difference between the two is skill.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spade.envs.contract import FULL_RETURN
from spade.envs.wire import Op, PlayTrace
from spade.errors import ProgramFault
from spade.learn.gate import mean_and_error
from spade.types import EnvProgram, Episode, Outcome, Scored

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
    program: EnvProgram, episodes: Sequence[Episode], sandbox: Sandbox, seeds: Sequence[int]
) -> tuple[float, float]:
    """Best mean return of a blind replay and its standard error; (0, 0) when nothing was ever won.

    Raises ProgramFault when the program breaks during a replay.
    """
    sequences = winning_sequences(episodes)
    if not sequences:
        return 0.0, 0.0
    ops = [Op.play(0, seed, list(actions), brief=True) for actions in sequences for seed in seeds]
    worker = await sandbox.open(program.code)
    try:
        traces = [_value(result) for result in await worker.batch(ops)]
    finally:
        await worker.close()
    rows = [traces[i : i + len(seeds)] for i in range(0, len(traces), len(seeds))]
    return max((mean_and_error(outcomes) for outcomes in rows), key=lambda m: m[0])


def _value(result: object) -> Outcome:
    if isinstance(result, ProgramFault):
        raise result
    assert isinstance(result, PlayTrace)
    value = min(1.0, max(-1.0, result.value))
    return Scored(value, value >= FULL_RETURN)
