"""Which of several processes this one is, by the variables that torchrun and the like set."""

from __future__ import annotations

import os

from spade.errors import InputError

RANK, SIZE = "RANK", "WORLD_SIZE"


def world() -> tuple[int, int]:
    """(rank, number of processes) of this process; (0, 1) when it was started alone.

    Raises InputError when the variables RANK and WORLD_SIZE contradict each other.
    """
    rank, size = (os.environ.get(name, default) for name, default in ((RANK, "0"), (SIZE, "1")))
    if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise InputError(
            f"this process was started with {RANK}={rank} {SIZE}={size}, which no launcher does; unset both, "
            "or start with spade train --launch N or torchrun"
        )
    return int(rank), int(size)
