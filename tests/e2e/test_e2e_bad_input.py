"""Bad input: exit code 2, one sentence on standard error, nothing on standard output."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_cli import Spade

from spade.cli import main
from spade.envs.pool import Pool, write_pool
from spade.types import EnvProgram, content_id

Refused = Callable[..., str]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPADE_DEBUG", raising=False)


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that must be refused; returns its one sentence."""

    def check(*argv: str) -> str:
        capfd.readouterr()
        code = main.main(argv)
        captured = capfd.readouterr()
        assert code == 2, captured.err
        assert captured.out == ""
        lines = captured.err.strip().splitlines()
        assert len(lines) == 1 and lines[0].startswith("spade: "), captured.err
        return lines[0]

    return check


@pytest.fixture
def copy(shipped_model: Path, tmp_path: Path) -> Path:
    """A copy of the model that may be damaged."""
    return Path(shutil.copytree(shipped_model, tmp_path / "copy"))


def both(refused: Refused, ref: str) -> list[str]:
    """Train from a checkpoint, and evaluate it."""
    return [refused("train", "smoke", f"model={ref}"), refused("eval", "--ckpt", ref, "--limit", "4")]


def test_missing_checkpoint(refused: Refused) -> None:
    for sentence in both(refused, "./nowhere/step-000001"):
        assert "nowhere/step-000001" in sentence
    assert not Path("runs").exists()


def test_run_without_a_checkpoint(refused: Refused) -> None:
    Path("run/checkpoints").mkdir(parents=True)
    for sentence in both(refused, "run"):
        assert "no complete checkpoint" in sentence


@pytest.mark.parametrize("size", [0, 3000, -1000])
def test_corrupt_safetensors(refused: Refused, copy: Path, size: int) -> None:
    data = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(data[:size])
    for sentence in both(refused, "copy"):
        assert "copy/model.safetensors" in sentence and "damaged" in sentence


def test_pickled_weights_are_refused_unread(refused: Refused, copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    trap = copy / "pytorch_model.bin"
    trap.write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    for sentence in both(refused, "copy"):
        assert "pickled" in sentence and "pytorch_model.bin" in sentence
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("file", "text"),
    [("config.json", "{"), ("config.json", "[]"), ("tokenizer.json", "{}"), ("tokenizer.json", "")],
)
def test_broken_files_beside_the_weights(refused: Refused, copy: Path, file: str, text: str) -> None:
    (copy / file).write_text(text)
    for sentence in both(refused, "copy"):
        assert "copy" in sentence


def test_remote_code_in_a_checkpoint_is_not_run(spade: Spade, copy: Path, tmp_path: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config |= {"model_type": "foreign"}
    config["auto_map"] = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for command in (["train", "smoke", "out=foreign", f"model={copy}"], ["eval", "--ckpt", str(copy)]):
        done = spade(*command)
        assert done.code == 2 and done.out == "" and "Traceback" not in done.err
        assert done.err.splitlines()[-1].startswith(f"spade: {copy} cannot be served")
    assert not (tmp_path / "ran").exists()


def test_bad_yaml(refused: Refused) -> None:
    Path("bad.yaml").write_text("train: {steps: 2\nplay: ]\n")
    assert "bad.yaml" in refused("train", "bad.yaml")


def test_unknown_key(refused: Refused) -> None:
    Path("mine.yaml").write_text("extends: smoke\nplay: {playz: 3}\n")
    sentence = refused("train", "mine.yaml")
    assert "'play.playz'" in sentence and "did you mean 'play.plays'?" in sentence
    assert "'learner.lrr'" in refused("train", "smoke", "learner.lrr=1")


@pytest.mark.parametrize("override", ["play.plays=many", "train.steps=0", "seed=1.5", "reward.band_low=2"])
def test_wrong_type_or_value(refused: Refused, override: str) -> None:
    assert f"'{override.partition('=')[0]}'" in refused("train", "smoke", override)


def test_gpu_asked_for_and_absent(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "GPU" in refused("train", "smoke", "serving.device=cuda")
    assert "GPU" in refused("eval", "--ckpt", "embedded", "serving.device=cuda")
    assert not Path("runs").exists()


def test_run_folder_of_another_config_and_of_something_else(
    refused: Refused, reference: Path, model: list[str]
) -> None:
    sentence = refused("train", "smoke", f"out={reference}", *model)
    assert "another configuration" in sentence and "seed (3 there, 0 now)" in sentence
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("keep")
    assert "not a run folder" in refused("train", "smoke", "out=mine", *model)
    assert Path("mine/thesis.txt").read_text() == "keep"


def test_damaged_checkpoint_of_a_run_is_named(refused: Refused, reference: Path, four: list[str]) -> None:
    run = Path(shutil.copytree(reference, "run"))
    last = sorted((run / "checkpoints").glob("step-*"))[-1]
    data = bytearray((last / "trainer.safetensors").read_bytes())
    data[-1] ^= 1
    (last / "trainer.safetensors").write_bytes(data)
    sentence = refused(*four, "out=run")
    assert f"{last / 'trainer.safetensors'} is damaged" in sentence
    assert len((run / "metrics.jsonl").read_bytes()) == len((reference / "metrics.jsonl").read_bytes())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (["train.source=fixed_pool", "train.pool=empty"], "empty holds no programs"),
        (["train.source=dataset"], "dataset.path is not set"),
        (["train.source=dataset", "dataset.path=nowhere"], "there is no nowhere"),
        (["train.source=dataset", "dataset.path=empty"], "empty holds no questions"),
        (["train.source=procedural", "procedural.families=[riddles]"], "unknown kind 'riddles'"),
        (["train.source=mine.py:Source"], "there is no file mine.py"),
    ],
)
def test_a_source_that_cannot_start_is_found_before_a_run_folder_is_made(
    refused: Refused, model: list[str], changes: list[str], why: str
) -> None:
    Path("empty").mkdir()
    assert why in refused("train", "smoke", *model, *changes)
    assert not Path("runs").exists()


CODE = "class AEnv:\n    pass\n"


@pytest.fixture
def pool() -> Path:
    write_pool(Path("pool"), Pool((EnvProgram.of(CODE),)))
    return Path("pool")


ESCAPES = ("../outside.py", "/etc/hostname", "programs/../../outside.py", "link.py", "")


@pytest.mark.parametrize("name", ESCAPES)
def test_pool_manifest_may_not_leave_its_folder(
    refused: Refused, pool: Path, name: str, model: list[str]
) -> None:
    Path("outside.py").write_text(CODE)
    (pool / "link.py").symlink_to(Path("outside.py").resolve())
    manifest = json.loads((pool / "manifest.json").read_text())
    manifest["programs"][0] |= {"file": name, "sha256": content_id(CODE)}
    (pool / "manifest.json").write_text(json.dumps(manifest))
    command = ["train", "smoke", "train.source=fixed_pool", "train.pool=pool", *model]
    for sentence in (refused(*command), refused("pool", "stats", "pool")):
        assert "pool" in sentence


def test_altered_pool_program(refused: Refused, pool: Path, model: list[str]) -> None:
    file = next((pool / "programs").iterdir())
    file.write_text("import os\n")
    sentence = refused("train", "smoke", "train.source=fixed_pool", "train.pool=pool", *model)
    assert "sha256" in sentence and file.name in sentence
