"""Named child seeds from one root seed.

Every random decision of a run draws from `child_rng(root, "what", index, ...)`, never from a shared
stream, so that a resumed run or a run with one more component makes the same decisions.
"""

from __future__ import annotations

import hashlib
import random


def child_seed(root: int, *names: str | int) -> int:
    """A 63-bit seed that depends on `root` and the path of `names` (SHA-256, stable across processes)."""
    text = "/".join([str(root), *(f"{type(n).__name__}:{n}" for n in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def child_rng(root: int, *names: str | int) -> random.Random:
    """A `random.Random` seeded by `child_seed(root, *names)`."""
    return random.Random(child_seed(root, *names))
