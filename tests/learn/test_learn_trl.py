"""TRL's learner: the same loss, gradients and weights as the compact one, in one process and in two.

Needs the extra `trl`; `make test-extras` installs it.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learn_data import make, save_llama, save_tokenizer
from trl_cases import CASES, run_cases, settings
from two_processes import furthest, numbers, run_children, weights

from spade.config import LearnerConfig
from spade.config_trl import TrlConfig
from spade.errors import ConfigError, InputError
from spade.learn.batch import PackedBatch, micro_batches, token_weights
from spade.learn.checkpoint import load_causal_lm, load_checkpoint, save_checkpoint
from spade.learn.loss import policy_loss
from spade.learn.trainer import CompactLearner
from spade.types import Sample

try:
    import peft
    import trl
except ModuleNotFoundError:
    trl = None
    warnings.warn("tests of the TRL learner DID NOT RUN: no module trl or peft", stacklevel=1)

pytestmark = pytest.mark.skipif(trl is None, reason="NOT RUN: needs the extra trl (make test-extras)")

CLOSE = 1e-5
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_llama(tmp_path_factory.mktemp("trl") / "model")
    save_tokenizer(folder)
    return folder


@contextlib.contextmanager
def opened(model: Path, **changes: Any) -> Iterator[Any]:
    from spade.learn.trl import TrlLearner

    learner = TrlLearner(model, settings(**changes))
    try:
        yield learner
    finally:
        learner.close()


def copied(learner: Any) -> dict[str, torch.Tensor]:
    return {n: t.clone() for n, t in learner.named_weights()}


# --- against the compact learner -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "dapo", "micro_tokens": 300},
        {"loss": "grpo", "kl": 0.1},
        {"loss": "dr_grpo", "tis_max": 0.0, "weight_decay": 0.1},
        {"loss": "gspo", "epochs": 2, "minibatches": 2},
        {"loss": "dapo", "epochs": 2, "minibatches": 2, "dual_clip": 3.0, "kl": 0.05, "lr": 1e-4},
        {"loss": "reinforce"},
    ],
    ids=lambda c: "-".join(f"{k}={v}" for k, v in c.items()),
)
def test_both_learners_take_the_same_steps(model: Path, changes: dict[str, Any]) -> None:
    compact = CompactLearner(model, settings(**changes))
    with opened(model, **changes) as learner:
        for seed in range(2):
            ours = compact.step(make(13, seed), lr_scale=1.0 - 0.3 * seed)
            theirs = learner.step(make(13, seed), lr_scale=1.0 - 0.3 * seed)
            apart = {"seconds", "cpu_seconds", "grad_norm/agent", "grad_norm/designer"}
            apart |= {k for k in ours if k.startswith("token_entropy")}
            # a gradient of log p and one of a ratio that is 1 are the same; their losses are not
            apart |= {k for k in ours if k.startswith("loss")} if changes["loss"] == "reinforce" else set()
            for key in ours.keys() - apart:
                assert theirs[key] == pytest.approx(ours[key], rel=2e-4, abs=CLOSE), key
        assert learner.version == compact.version
        assert furthest(copied(learner), copied(compact)) < CLOSE


@pytest.mark.parametrize("loss", ["cispo", "sapo", "vespo"])
def test_trl_losses_do_not_depend_on_how_rows_are_cut(model: Path, loss: str) -> None:
    ends = []
    for tokens in (100, 4096):
        with opened(model, loss=loss, micro_tokens=tokens, clip_high=4.0) as learner:
            metrics = learner.step(make(13, 0))
            assert metrics["grad_norm/shared"] > 1e-3 and math.isfinite(metrics["loss"])
            ends.append((copied(learner), metrics))
    (first, a), (second, b) = ends
    assert furthest(first, second) < CLOSE
    assert a["loss"] == pytest.approx(b["loss"], rel=1e-4) and a["updates"] == 1


# --- against TRL's own loss ------------------------------------------------------------------------------


def trl_loss(
    learner: Any, batch: PackedBatch, loss: str, ratio: torch.Tensor, old: Any, reference: Any
) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of TRL's `_compute_loss` as TRL's own rollouts would call it: whole prompts padded
    on the left, its own reduction, its own importance weight."""
    trainer = learner.trainer
    prompts, completions = int(batch.starts_B.max()), int((batch.lengths_B - batch.starts_B).max())
    shape_p, shape_c = (len(batch.rows), prompts), (len(batch.rows), completions)
    found: dict[str, Any] = {
        "prompt_ids": np.full(shape_p, 2), "prompt_mask": np.zeros(shape_p, int),
        "completion_ids": np.full(shape_c, 2), "completion_mask": np.zeros(shape_c, int),
        "tool_mask": np.zeros(shape_c, np.float32),
    }  # fmt: skip
    for b, (start, end) in enumerate(zip(batch.starts_B, batch.lengths_B, strict=True)):
        found["prompt_ids"][b, prompts - start :] = batch.ids_BT[b, :start]
        found["prompt_mask"][b, prompts - start :] = 1
        found["completion_ids"][b, : end - start] = batch.ids_BT[b, start:end]
        found["completion_mask"][b, : end - start] = 1
        found["tool_mask"][b, : end - start] = batch.mask_BT[b, start:end]
    inputs = {name: torch.from_numpy(values) for name, values in found.items()}
    inputs["advantages"] = torch.from_numpy(batch.advantages_B).float()
    inputs["num_items_in_batch"] = inputs["tool_mask"].sum()
    mask = inputs["tool_mask"].bool()
    for name, flat in (
        ("importance_sampling_ratio", ratio),
        ("old_per_token_logps", old),
        ("ref_per_token_logps", reference),
    ):
        inputs[name] = torch.zeros(shape_c).masked_scatter(mask, flat)
    trainer.loss_type, trainer.importance_sampling_level = ("grpo" if loss == "gspo" else loss), "token"
    if loss == "gspo":
        trainer.importance_sampling_level = "sequence"
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
    trainer.max_completion_length = 128
    trainer.beta, trainer.epsilon_low, trainer.epsilon_high = 0.1, 0.2, 0.28
    if loss == "gspo":
        trainer.epsilon_low, trainer.epsilon_high = 3e-4, 4e-4
    trainer.args.delta, trainer.args.use_bias_correction_kl = 3.0, False
    value = trainer._compute_loss(trainer.model, inputs)
    torch.autograd.backward(value)
    grads = {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.grad is not None}
    trainer.model.zero_grad()
    return float(value), grads


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "gspo"])
def test_our_loss_and_gradients_are_trls(model: Path, loss: str) -> None:
    """With masks, old log-probs far enough for the clips to bind, importance weights and a divergence."""
    samples = make(8, 5, roles=("agent",))
    cap = 1.02 if loss == "gspo" else 2.0  # means over a sequence stay close to 1
    cfg = settings(loss=loss, kl=0.1, dual_clip=3.0, tis_max=cap, type="compact")
    batch = micro_batches(samples, 1 << 20, 2)[0]
    rng = torch.Generator().manual_seed(0)
    compact = CompactLearner(model, cfg.model_copy(update={"kl": 0.0}))
    logprobs_N = compact._scorer(batch, np.ones(len(batch.rows)))
    present, count = logprobs_N.detach(), logprobs_N.shape[0]
    spread = 5e-3 if loss == "gspo" else 0.5
    old, reference, sampled = (
        present + scale * torch.randn(count, generator=rng) for scale in (spread, 0.3, 0.5)
    )
    rows_N = torch.from_numpy(np.nonzero(batch.mask_BT)[0])
    token = torch.exp(old - sampled).clamp(max=cap)
    if loss == "gspo":
        sums, counts = (torch.zeros(8).index_add(0, rows_N, x) for x in (old - sampled, torch.ones(count)))
        token = torch.exp((sums / counts)[rows_N]).clamp(max=cap)
    tokens = int(batch.mask_BT.sum())
    weights_N = torch.from_numpy(token_weights(batch, loss, 8, tokens)).float()[rows_N]
    advantages = torch.from_numpy(batch.advantages_B).float()[rows_N]
    ours, stats = policy_loss(
        logprobs_N, sampled, advantages, weights_N, cfg, old_N=old, reference_N=reference, rows_N=rows_N
    )
    torch.autograd.backward(ours)
    mine = {n: p.grad.clone() for n, p in compact.model.named_parameters()}
    assert 0 < stats["clipped"] < count and stats["tis_capped"] > 0
    with opened(model) as learner:
        learner.model.set_attn_implementation("sdpa")  # the block attention is for rows padded on the right
        theirs, grads = trl_loss(learner, batch, loss, token, old, reference)
    assert float(ours.detach()) == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    assert furthest(mine, grads) < CLOSE * max(float(g.abs().max()) for g in mine.values())


# --- state -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 4])
def test_a_checkpoint_on_disk_loses_nothing(model: Path, tmp_path: Path, rank: int) -> None:
    changes = {"trl": TrlConfig(lora_rank=rank), "weight_decay": 0.1}
    with opened(model, **changes) as one:
        one.step(make(13, 0))
        save_checkpoint(tmp_path / "step-000001", one, model, {"x": 1})
        one.step(make(13, 1))
        with opened(model, **changes) as two:
            saved = load_checkpoint(tmp_path / "step-000001")
            two.load_state_dict(saved.learner)
            two.step(make(13, 1))
            a, b = copied(one), copied(two)
            assert all(torch.equal(a[n], b[n]) for n in a) and one.version == two.version == 2
    assert saved.extra == {"x": 1}


def test_full_checkpoints_go_from_one_learner_to_the_other(model: Path, tmp_path: Path) -> None:
    compact = CompactLearner(model, settings())
    compact.step(make(13, 0))
    save_checkpoint(tmp_path / "step-000001", compact, model, {})
    compact.step(make(13, 1))
    with opened(model) as learner:
        learner.load_state_dict(load_checkpoint(tmp_path / "step-000001").learner)
        learner.step(make(13, 1))
        assert furthest(copied(learner), copied(compact)) < CLOSE


def test_lora_trains_adapters_and_exports_them_merged_and_alone(model: Path, tmp_path: Path) -> None:
    with opened(model, trl=TrlConfig(lora_rank=4), lr=1e-2) as learner:
        before = copied(learner)
        learner.step(make(13, 0))
        after = copied(learner)
        learner.save(tmp_path)
        trained = {n for n, p in learner.model.named_parameters() if p.requires_grad}
        assert trained and all("lora_" in n for n in trained)
    assert set(before) == set(load_causal_lm(model, CPU).state_dict())
    moved = {n for n in before if not torch.equal(before[n], after[n])}
    assert moved and all(n.endswith("_proj.weight") for n in moved)
    merged = load_causal_lm(tmp_path, CPU)
    adapted = peft.PeftModel.from_pretrained(load_causal_lm(model, CPU), str(tmp_path / "adapter"))
    ids = torch.arange(40)[None] % 64
    with torch.no_grad():
        a, b = merged(input_ids=ids).logits, adapted(input_ids=ids).logits
    assert torch.allclose(a, b, atol=1e-5) and not torch.allclose(a, load_causal_lm(model, CPU)(ids).logits)


def test_a_checkpoint_without_adapter_is_refused(model: Path) -> None:
    with (
        opened(model, trl=TrlConfig(lora_rank=4)) as learner,
        pytest.raises(InputError, match="LoRA adapter"),
    ):
        learner.load_state_dict({"version": 1, "weights": {}, "optimizers": {}})


def test_saved_settings_are_the_models_own(model: Path, tmp_path: Path) -> None:
    with opened(model) as learner:
        learner.save(tmp_path)
    one, two = (load_causal_lm(folder, CPU).config.to_dict() for folder in (model, tmp_path))
    assert {k: v for k, v in one.items() if two.get(k) != v and k != "_name_or_path"} == {}


def test_a_gradient_that_is_not_finite_moves_nothing(model: Path) -> None:
    samples = make(6, 0)
    with opened(model) as learner:
        before = copied(learner)
        broken = [replace(s, advantage=math.inf) if i == 0 else s for i, s in enumerate(samples)]
        with pytest.raises(ValueError, match="finite"):
            learner.step(broken)
        huge = [replace(samples[0], advantage=3e38), replace(samples[0], advantage=3e38), *samples]
        assert learner.step(huge)["skipped_updates"] == 1.0 and learner.version == 0
        after = copied(learner)
        assert all(torch.equal(before[n], after[n]) for n in before)
        learner.step(samples)
        assert learner.version == 1 and furthest(before, copied(learner)) > 0


def test_scores_and_entropies_are_the_compact_learners(model: Path) -> None:
    samples = make(6, 1)
    compact = CompactLearner(model, settings())
    with opened(model, trl=TrlConfig(lora_rank=2)) as learner:
        for got, wanted in zip(learner.score(samples, 0.7), compact.score(samples, 0.7), strict=True):
            assert np.allclose(got, wanted, atol=1e-5)
        for got, wanted in zip(learner.entropies(samples)[1], compact.entropies(samples)[1], strict=True):
            assert np.allclose(got, wanted, atol=1e-4)


def test_another_temperature_is_refused(model: Path) -> None:
    with opened(model) as learner, pytest.raises(ValueError, match="temperature 1"):
        learner.step(make(4), {"agent": 1.0, "designer": 0.7})


def test_arguments_of_ours_are_refused_and_others_passed_on(model: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"trl\.args sets learning_rate"),
        opened(model, trl=TrlConfig(args={"learning_rate": 1.0})),
    ):
        pass
    with (
        pytest.raises(InputError, match="cannot be made"),
        opened(model, trl=TrlConfig(args={"nonsense": 1})),
    ):
        pass
    with opened(model, trl=TrlConfig(args={"optim": "sgd"})) as learner:
        assert isinstance(learner.trainer.optimizer.optimizer, torch.optim.SGD)


def test_samples_without_advantage_cost_nothing_and_count(model: Path) -> None:
    samples = make(8, 2)
    flat: list[Sample] = [replace(s, advantage=0.0) for s in make(4, 3)]
    compact = CompactLearner(model, settings(lr=1e-4))
    with opened(model, lr=1e-4) as learner:
        assert learner.step(flat)["updates"] == 0 and learner.version == 0
        got, wanted = learner.step([*samples, *flat]), compact.step([*samples, *flat])
        assert got["dropped"] == wanted["dropped"] == 4.0
        assert furthest(copied(learner), copied(compact)) < CLOSE


# --- two processes ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    root = tmp_path_factory.mktemp("trl-parallel")
    run_children("trl", root / "2", model, 2, timeout=900.0)
    run_cases(root / "1" / "rank-0", model)
    return {size: root / str(size) for size in (1, 2)}


@pytest.mark.parametrize("name", CASES)
def test_two_processes_learn_what_one_learns(done: dict[int, Path], name: str) -> None:
    one, two = (weights(done[size], name) for size in (1, 2))
    assert furthest(one, two) < CLOSE
    for single, double in zip(*(numbers(done[size], name) for size in (1, 2)), strict=True):
        for key in single.keys() - {"seconds", "cpu_seconds"}:
            assert double[key] == pytest.approx(single[key], rel=1e-4, abs=CLOSE), key


@pytest.mark.parametrize("name", [*CASES, "resumed"])
def test_every_process_holds_the_same_bits(done: dict[int, Path], name: str) -> None:
    first, second = (weights(done[2], name, rank) for rank in (0, 1))
    assert all(torch.equal(first[n], second[n]) for n in first)


@pytest.mark.parametrize("size", [1, 2])
def test_a_resumed_learner_goes_on_exactly(done: dict[int, Path], size: int) -> None:
    assert furthest(weights(done[size], "resumed"), weights(done[size], "plain")) == 0.0


def test_settings_are_valid() -> None:
    assert all(isinstance(settings(**changes), LearnerConfig) for changes in CASES.values())
