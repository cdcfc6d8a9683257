"""`spade sft` in two processes: what one makes, also after a stop that only one of them was asked for.

Needs the extra `trl`; `make test-extras` installs it.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from learn_data import save_llama, save_tokenizer
from parallel_child import sft
from two_processes import furthest, numbers, run_children

if find_spec("trl") is None:
    warnings.warn("the test of spade sft in two processes DID NOT RUN: no module trl", stacklevel=1)


@pytest.mark.skipif(find_spec("trl") is None, reason="NOT RUN: needs the extra trl (make test-extras)")
def test_two_processes_tune_what_one_tunes(tmp_path: Path) -> None:
    model = save_llama(tmp_path / "model")
    save_tokenizer(model)
    run_children("sft", tmp_path / "2", model, 2, timeout=900.0, nodes=True)
    sft(tmp_path / "1" / "rank-0", model)
    one, two = (tensors(tmp_path / size / "whole") for size in "12")
    assert furthest(one, two) < 1e-5
    assert furthest(tensors(tmp_path / "2" / "halves"), two) < 1e-5
    assert furthest(tensors(model), two) > 1e-3
    for rank in (0, 1):
        whole, stopped, resumed = numbers(tmp_path / "2", "sft", rank)
        assert (whole["status"], stopped["status"], resumed["status"]) == (
            "finished",
            "interrupted",
            "finished",
        )
        assert (whole["steps"], stopped["steps"], resumed["steps"]) == (4, 1, 4)


def tensors(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    found: dict[str, Any] = load_file(folder / "model.safetensors")
    return found
