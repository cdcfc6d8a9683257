"""A tiny random Llama on disk, plain samples, and settings without the config loader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from learn_data import make, save_llama

from spade.config import LearnerConfig
from spade.types import Sample


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def make_samples() -> Callable[..., list[Sample]]:
    """`make(n, seed=0, roles=(...))`: multi-turn rows of 20 to 90 tokens with observation gaps."""
    return make


@pytest.fixture
def cfg() -> Callable[..., LearnerConfig]:
    """`cfg(lr=1e-2)`: learner settings in float32 without alarms unless said otherwise."""
    quiet = {"autocast": "off", "mismatch_alarm": 0.0, "ratio_alarm": 0.0}
    return lambda **changes: LearnerConfig(**{**quiet, **changes})
