"""Part (a) of the held-out suite: known mechanics, parameter tuples no corpus program ever had.

Two easier and two harder programs per mechanic, drawn once from the held-out side of the hash split with a
fixed seed. They are the same for everybody: training pools and self-play refuse their twins.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from spade.embedded.mechanics import draw_params, registry

SEED = 7
PER_HALF = 2
DRAWS = 300
"""Draws per half before a mechanic is taken to have no more programs."""


@dataclass(frozen=True)
class HeldoutProgram:
    """One held-out program. `family` is its mechanic; `half` says which level it was drawn from."""

    name: str
    family: str
    half: Literal["easy", "hard"]
    code: str


def heldout_programs() -> list[HeldoutProgram]:
    """All of part (a): `PER_HALF` easy (level 0) and hard (level 2) programs per mechanic, all distinct."""
    return _draw(SEED, frozenset())


def validation_programs() -> list[HeldoutProgram]:
    """Other programs of the held-out side, for choosing settings and checkpoints; disjoint from the test set.

    A mechanic with few parameter tuples may give fewer than `PER_HALF` a half.
    """
    return _draw(SEED + 1, frozenset(p.code for p in heldout_programs()))


def _draw(seed: int, exclude: frozenset[str]) -> list[HeldoutProgram]:
    halves: tuple[tuple[Literal["easy", "hard"], int], ...] = (("easy", 0), ("hard", 2))
    found: list[HeldoutProgram] = []
    for mechanic in registry().values():
        for half, level in halves:
            rng = random.Random(f"{seed}/{mechanic.name}/{half}")
            codes: list[str] = []
            for _ in range(DRAWS):
                code = mechanic.code(draw_params(mechanic, rng, level, heldout=True))
                if code not in codes and code not in exclude:
                    codes.append(code)
                if len(codes) == PER_HALF:
                    break
            name = f"{mechanic.name}-{half}"
            found += [HeldoutProgram(f"{name}-{i}", mechanic.name, half, c) for i, c in enumerate(codes)]
    return found
