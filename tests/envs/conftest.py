"""What the tests of environments share."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def canary() -> Iterator[Path]:
    """The file that hostile programs look for. There is one on a machine, so its tests take turns."""
    path = Path("/tmp/spade_canary")
    with open("/tmp/spade_canary.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)
