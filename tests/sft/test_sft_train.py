"""`spade sft` end to end on a small random model. Needs the extra `trl`; `make test-extras` installs it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from spade.cli import main
from spade.config import LearnerConfig
from spade.errors import InputError
from spade.interrupt import StopFlag
from spade.learn.checkpoint import copy_tokenizer, load_causal_lm
from spade.learn.trainer import CompactLearner
from spade.serving.launch import open_chat
from spade.sft.rows import IGNORED, Row
from spade.types import Sample

try:
    import trl
except ModuleNotFoundError:
    trl = None
    warnings.warn("tests of spade sft DID NOT RUN: no module trl", stacklevel=1)

pytestmark = pytest.mark.skipif(trl is None, reason="NOT RUN: needs the extra trl (make test-extras)")

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, shipped_model: Path) -> Path:
    from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("sft") / "model"
    vocabulary = AutoConfig.from_pretrained(shipped_model).vocab_size
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=256,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    copy_tokenizer(shipped_model, folder)
    return folder


@pytest.fixture(scope="module")
def rows(model: Path) -> list[Row]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for length in range(8, 24):
        ids = torch.randint(5, 60, (length,), generator=generator).tolist()
        found.append(Row(ids, [IGNORED] * 4 + ids[4:]))
    return found


def settings(**changes: Any) -> Any:
    from spade.sft.train import Settings

    base = {"epochs": 2.0, "batch": 4, "micro_batch": 2, "lr": 1e-2, "save_every": 2, "device": "cpu"}
    return Settings(**{**base, "dtype": "float32", **changes})


def tune(model: Path, rows: list[Row], out: Path, stop: StopFlag | None = None, **changes: Any) -> Any:
    from spade.sft.train import fine_tune

    return fine_tune(model, rows, out, settings(**changes), {"data": "rows"}, stop or StopFlag())


def nll(folder: Path, rows: list[Row]) -> float:
    learner = CompactLearner(folder, LearnerConfig(autocast="off"))
    samples = [
        Sample(
            tuple(r.input_ids[:4]), tuple(r.input_ids[4:]), (1,) * len(r.input_ids[4:]),
            (0.0,) * len(r.input_ids[4:]), 0.0, "agent",
        )
        for r in rows
    ]  # fmt: skip
    scored = learner.score(samples)
    return -float(sum(x.sum() for x in scored)) / sum(len(x) for x in scored)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_causal_lm(folder, CPU).state_dict())


@pytest.fixture(scope="module")
def whole(model: Path, rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "out"
    summary = tune(model, rows, out)
    assert summary["status"] == "finished" and summary["steps"] == 8
    return out


def test_the_model_learns_its_rows_and_stays_a_plain_checkpoint(
    model: Path, rows: list[Row], whole: Path
) -> None:
    assert nll(whole, rows) < nll(model, rows) - 0.3
    names = {p.name for p in whole.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "sft.json"} <= names
    assert "trainer" not in names
    assert (whole / "config.json").read_text() == (model / "config.json").read_text()


async def test_the_model_can_be_sampled_and_trained_on(whole: Path) -> None:
    from spade.config import ServingConfig
    from spade.serving.policy import SamplingParams

    chat = await open_chat(str(whole), ServingConfig(device="cpu"))
    try:
        found = await chat.policy.generate([[5, 6, 7]], SamplingParams(max_tokens=3, seed=1))
        assert len(found[0][0].token_ids) == 3
    finally:
        await chat.close()


def test_interrupted_work_goes_on_to_the_same_weights(
    model: Path, rows: list[Row], whole: Path, tmp_path: Path
) -> None:
    stop = StopFlag()
    stop.request()
    summary = tune(model, rows, tmp_path / "out", stop)
    assert summary["status"] == "interrupted" and summary["steps"] == 1
    assert not (tmp_path / "out" / "model.safetensors").exists()
    summary = tune(model, rows, tmp_path / "out")
    assert summary["status"] == "finished" and summary["steps"] == 8
    one, two = weights(whole), weights(tmp_path / "out")
    assert max(float((one[n] - two[n]).abs().max()) for n in one) < 1e-6


def test_finished_work_is_not_done_again_and_other_work_is_refused(
    model: Path, rows: list[Row], whole: Path
) -> None:
    before = (whole / "model.safetensors").stat().st_mtime_ns
    assert tune(model, rows, whole)["status"] == "finished"
    assert (whole / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(InputError, match=r"settings differ.*--out"):
        tune(model, rows, whole, lr=1e-3)


def test_a_folder_of_something_else_is_refused(model: Path, rows: list[Row]) -> None:
    with pytest.raises(InputError, match="not the work of spade sft"):
        tune(model, rows, model)


def test_lora_is_merged(model: Path, rows: list[Row], tmp_path: Path) -> None:
    tune(model, rows, tmp_path / "out", lora_rank=4)
    one, two = weights(model), weights(tmp_path / "out")
    moved = {n for n in one if not torch.equal(one[n], two[n])}
    assert one.keys() == two.keys() and moved and all(n.endswith("_proj.weight") for n in moved)


def test_the_command(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "chat.jsonl"
    row = {"prompt": "Say it.", "completion": "It."}
    data.write_text("".join(json.dumps(row) + "\n" for _ in range(6)))
    argv = ["sft", str(data), "--model", str(model), "--out", str(tmp_path / "out"), "--batch", "3", "--json"]
    assert main.main([*argv, "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["conversations"] == found["rows"] == 6 and found["steps"] == 2
    assert found["status"] == "finished" and found["cut"] == 0
    assert main.main([*argv[:-1], "--roles", "boss"]) == 2
    assert "neither agent nor designer" in capsys.readouterr().err
