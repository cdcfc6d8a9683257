"""Tiny untrained models, and the shipped fixture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from spade.study.lm import SIZES, TinyLM
from spade.study.settings import Start
from spade.study.stages import FIXTURE, find
from spade.study.vocabulary import VOCAB

torch.set_num_threads(1)


@pytest.fixture
def tiny() -> Callable[..., TinyLM]:
    """`tiny(seed)`: an untrained model of the smallest size."""
    return lambda seed=0: TinyLM(SIZES["XS"], VOCAB, seed)


@pytest.fixture(scope="session")
def shipped() -> Callable[..., Path]:
    """`shipped("dial=1e-3")`: folder of a shipped checkpoint."""

    def folder(*chain: str) -> Path:
        found = find(Start(chain=chain), FIXTURE)
        assert found is not None, f"{chain} is not among the shipped checkpoints"
        return found

    return folder
