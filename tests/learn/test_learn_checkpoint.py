"""Checkpoints: whole or absent, plain Hugging Face, nothing pickled, exact continuation."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from spade.config import LearnerConfig
from spade.errors import InputError
from spade.learn import checkpoint
from spade.learn.checkpoint import (
    checkpoint_path,
    clean_partial,
    latest_checkpoint,
    load_checkpoint,
    prune,
    save_checkpoint,
)
from spade.learn.trainer import CompactLearner
from spade.types import Sample

Maker = Callable[..., list[Sample]]
Settings = Callable[..., LearnerConfig]


@pytest.fixture
def learner(tiny: Path, cfg: Settings, make_samples: Maker) -> CompactLearner:
    made = CompactLearner(tiny, cfg())
    made.step(make_samples(8))
    return made


def test_resume_from_disk_is_bit_identical(
    tiny: Path, tmp_path: Path, cfg: Settings, make_samples: Maker, learner: CompactLearner
) -> None:
    path = save_checkpoint(checkpoint_path(tmp_path, 1), learner, tiny, {"step": 1, "rng": [1, 2]})
    learner.step(make_samples(8, 1))
    loaded = load_checkpoint(path)
    assert loaded.extra == {"step": 1, "rng": [1, 2]}
    for start in (tiny, path):
        resumed = CompactLearner(start, cfg())
        resumed.load_state_dict(loaded.learner)
        assert resumed.version == 1
        resumed.step(make_samples(8, 1))
        pairs = zip(resumed.named_weights(), learner.named_weights(), strict=True)
        assert all(torch.equal(a, b) for (_, a), (_, b) in pairs)


def test_a_checkpoint_is_a_plain_hugging_face_folder(
    tiny: Path, tmp_path: Path, learner: CompactLearner
) -> None:
    from transformers import AutoModelForCausalLM

    path = save_checkpoint(checkpoint_path(tmp_path, 3), learner, tiny, {})
    names = {p.name for p in path.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= names
    assert not any(n.endswith((".bin", ".pt", ".pkl")) for n in names)
    assert json.loads((path / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert "spade" not in (path / "config.json").read_text()
    model = AutoModelForCausalLM.from_pretrained(path)
    for name, tensor in learner.named_weights():
        assert torch.equal(model.state_dict()[name], tensor)


def test_latest_ignores_partial_folders_and_prune_keeps_the_newest(
    tiny: Path, tmp_path: Path, learner: CompactLearner
) -> None:
    assert latest_checkpoint(tmp_path) is None
    for step in (2, 10, 9):
        save_checkpoint(checkpoint_path(tmp_path, step), learner, tiny, {"step": step})
    folder = tmp_path / "checkpoints"
    (folder / ".partial-1-step-000099").mkdir()
    (folder / "step-000050").mkdir()
    (folder / "notes").mkdir()
    assert latest_checkpoint(tmp_path) == folder / "step-000010"
    assert prune(tmp_path, 1) == [folder / "step-000002", folder / "step-000009"]
    assert latest_checkpoint(tmp_path) == folder / "step-000010"
    assert prune(tmp_path, 0) == []


def test_partial_folders_of_dead_writers_are_cleaned_on_load(
    tiny: Path, tmp_path: Path, learner: CompactLearner
) -> None:
    path = save_checkpoint(checkpoint_path(tmp_path, 1), learner, tiny, {})
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    dead = path.parent / f".partial-{gone.stdout.strip()}-step-000002"
    alive = path.parent / f".partial-{os.getppid()}-step-000002"
    dead.mkdir()
    alive.mkdir()
    load_checkpoint(path)
    assert not dead.exists() and alive.exists()
    assert clean_partial(tmp_path / "absent") == 0


def test_a_failed_write_leaves_the_old_checkpoint(
    tiny: Path, tmp_path: Path, learner: CompactLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_checkpoint(checkpoint_path(tmp_path, 1), learner, tiny, {"step": 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_sync", full)
    with pytest.raises(InputError, match="No space left"):
        save_checkpoint(path, learner, tiny, {"step": 2})
    assert load_checkpoint(path).extra == {"step": 1}
    assert [p.name for p in path.parent.iterdir()] == ["step-000001"]


def test_a_disk_too_small_for_the_weights_is_one_sentence(
    tiny: Path, tmp_path: Path, learner: CompactLearner
) -> None:
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, old_limit[1]))
    try:
        with pytest.raises(InputError, match="cannot write the checkpoint") as caught:
            save_checkpoint(checkpoint_path(tmp_path, 1), learner, tiny, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_later_save_replaces_the_same_step(tiny: Path, tmp_path: Path, learner: CompactLearner) -> None:
    for value in (1, 2):
        path = save_checkpoint(checkpoint_path(tmp_path, 1), learner, tiny, {"value": value})
    assert load_checkpoint(path).extra == {"value": 2}


@pytest.mark.parametrize("name", ["model.safetensors", "trainer.safetensors", "state.json", "config.json"])
@pytest.mark.parametrize("how", ["missing", "cut", "flipped"])
def test_damage_is_one_sentence_naming_the_file(
    tiny: Path, tmp_path: Path, learner: CompactLearner, name: str, how: str
) -> None:
    path = save_checkpoint(checkpoint_path(tmp_path, 1), learner, tiny, {})
    data = (path / name).read_bytes()
    if how == "missing":
        (path / name).unlink()
    elif how == "cut":
        (path / name).write_bytes(data[: len(data) // 2])
    else:
        (path / name).write_bytes(data[:-2] + bytes([data[-2] ^ 1, data[-1]]))
        if name.endswith(".json"):
            (path / name).write_bytes(b"\xff" + data)
    with pytest.raises(InputError, match=rf"{'safetensors' if how == 'missing' else name}|{name}") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)


def test_pickled_weights_and_other_folders_are_refused(tmp_path: Path, cfg: Settings) -> None:
    with pytest.raises(InputError, match="no model folder"):
        CompactLearner(tmp_path / "absent", cfg())
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InputError, match="no safetensors"):
        CompactLearner(tmp_path, cfg())
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(InputError, match="pickled"):
        CompactLearner(tmp_path, cfg())


def test_weights_that_lack_a_tensor_are_refused_and_not_made_up(
    tiny: Path, tmp_path: Path, cfg: Settings
) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(tiny / "model.safetensors")
    del tensors["model.layers.0.mlp.up_proj.weight"]
    (tmp_path / "config.json").write_bytes((tiny / "config.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="up_proj"):
        CompactLearner(tmp_path, cfg())


def test_a_source_without_tokenizer_is_refused(tmp_path: Path, learner: CompactLearner) -> None:
    with pytest.raises(InputError, match="tokenizer"):
        save_checkpoint(tmp_path / "run" / "step-000001", learner, tmp_path, {})
    assert not list((tmp_path / "run").iterdir())
