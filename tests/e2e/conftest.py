"""The start model, a folder to work in, and one uninterrupted run to compare with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from e2e_cli import Command, Spade, Start


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.pop("SPADE_DEBUG", None)


@pytest.fixture(scope="session")
def model(shipped_model: Path) -> list[str]:
    """The override that selects the start model; none when it is the shipped one."""
    return [f"model={shipped_model}"] if os.environ.get("SPADE_TEST_MODEL") else []


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("e2e")


@pytest.fixture(scope="session")
def start(work: Path) -> Start:
    return lambda *argv: Command(work, list(argv))


@pytest.fixture(scope="session")
def spade(start: Start) -> Spade:
    return lambda *argv: start(*argv).done()


FOUR = ("train", "smoke", "train.steps=4", "design.designs=16", "play.programs=4", "play.plays=6", "seed=3")


@pytest.fixture(scope="session")
def four(model: list[str]) -> list[str]:
    """A command of four steps that learns something; add `train.checkpoint_every=N` and `out=DIR`."""
    return [*FOUR, *model]


@pytest.fixture(scope="session")
def reference(spade: Spade, work: Path, four: list[str]) -> Path:
    """The four steps without an interruption."""
    done = spade(*four, "out=reference")
    assert done.code == 0, done.err
    return work / "reference"
