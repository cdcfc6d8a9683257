"""What a generator of tasks looks like to the `procedural` source."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from spade.types import EnvProgram


@dataclass(frozen=True, slots=True)
class Family:
    """Tasks of one kind. `make(level, rng)` writes one program; levels go from 0 to `top`."""

    name: str
    top: int
    make: Callable[[int, random.Random], EnvProgram]
