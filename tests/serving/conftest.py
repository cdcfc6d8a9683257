from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from . import tiny


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A tiny Llama checkpoint folder and its transformers model."""
    folder = tmp_path_factory.mktemp("llama")
    return folder, tiny.write_model(folder)


@pytest.fixture(scope="session")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint whose context has room for tools."""
    folder = tmp_path_factory.mktemp("roomy")
    tiny.write_model(folder, max_position_embeddings=2048)
    return folder


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny.write_tokenizer(folder)
    return folder
