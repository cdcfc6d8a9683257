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


@dataclass(frozen=True)
class HeldoutProgram:
    """One held-out program. `family` is its mechanic; `half` says which level it was drawn from."""

    name: str
    family: str
    half: Literal["easy", "hard"]
    code: str


def heldout_programs() -> list[HeldoutProgram]:
    """All of part (a): `PER_HALF` easy (level 0) and hard (level 2) programs per mechanic, all distinct."""
    halves: tuple[tuple[Literal["easy", "hard"], int], ...] = (("easy", 0), ("hard", 2))
    found: list[HeldoutProgram] = []
    for mechanic in registry().values():
        for half, level in halves:
            rng = random.Random(f"{SEED}/{mechanic.name}/{half}")
            codes: list[str] = []
            while len(codes) < PER_HALF:
                code = mechanic.code(draw_params(mechanic, rng, level, heldout=True))
                if code not in codes:
                    codes.append(code)
            found += [
                HeldoutProgram(f"{mechanic.name}-{half}-{i}", mechanic.name, half, c)
                for i, c in enumerate(codes)
            ]
    return found
