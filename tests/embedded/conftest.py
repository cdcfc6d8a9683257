"""One miniature build of the embedded model for all tests of this area."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spade.embedded.build import Recipe, build, builtin_documents
from spade.embedded.samples import SampleMaker

TINY = Recipe(
    hidden=32, layers=1, heads=2, feed_forward=64, pretrain_tokens=3000, skill_tokens=2000, sft_tokens=2000
)


@pytest.fixture(scope="session")
def documents() -> list[str]:
    return builtin_documents()


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Folder of a model of a few thousand tokens with a full-size tokenizer, and the lines of its log."""
    folder = tmp_path_factory.mktemp("embedded") / "model"
    lines: list[str] = []
    build(folder, TINY, lines.append, folder.parent / "stages")
    return folder, lines


@pytest.fixture(scope="session")
def tokenizer(built: tuple[Path, list[str]]) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(built[0], local_files_only=True)


@pytest.fixture
def maker(tokenizer: Any, documents: list[str]) -> SampleMaker:
    return SampleMaker(tokenizer, documents, seed=3)
