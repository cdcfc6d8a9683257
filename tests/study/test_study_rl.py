"""The update: closed form, the trainer's own step, what moves nothing, and repeatability."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from spade.files import read_jsonl
from spade.study.cells import run_cell
from spade.study.families import Rules
from spade.study.ladder import LADDER, advantages
from spade.study.lm import TinyLM, load_lm
from spade.study.measure import Probes, change_metrics, distribution_metrics, other_domains
from spade.study.packed import group_logprobs
from spade.study.rl import Pool, RLRun, loud
from spade.study.settings import Cell, RLSettings
from spade.study.stages import ensure
from spade.types import Sample

SMALL = RLSettings(steps=4, batch=4, group=4, prompts=16)


class Wide(Rules):
    """Decoding over the whole vocabulary, as the trainer does it."""

    alphabet = tuple(range(32))
    format_LM = np.ones((4, 32), bool)


def groups(seed: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    family, rng = Wide(), np.random.default_rng(seed)
    ids = torch.from_numpy(family.prompts("?", "train", 4).ids_BP)
    y = torch.from_numpy(
        rng.integers(4, 32, (4, 3, 4))
    )  # not the padding token, whose row the trainer freezes
    return ids, y, advantages(rng.integers(0, 2, (4, 3)).astype(float), "zscore")


def rows_of(ids: torch.Tensor, y: torch.Tensor, logp: torch.Tensor, advantage: np.ndarray) -> list[Sample]:
    return [
        Sample(
            tuple(ids[b].tolist()), tuple(y[b, g].tolist()), (1,) * 4, tuple(logp[b, g].tolist()),
            float(advantage[b, g, 0]), "agent", group=str(b),
        )
        for b in range(4)
        for g in range(3)
    ]  # fmt: skip


@pytest.mark.parametrize("rung", ["grpo", "reinforce", "kl-0.1"])
def test_an_update_is_the_trainers(tiny: Callable[..., TinyLM], tmp_path: Path, rung: str) -> None:
    from spade.learn.trainer import CompactLearner

    model = tiny(4)
    model.save(tmp_path)
    ids, y, advantage = groups(0)
    advantage = np.broadcast_to(advantage, y.shape)
    with torch.no_grad():
        logp = group_logprobs(model, ids, y, Wide.alphabet, 0.7).gather(-1, y[..., None])[..., 0]
    samples = rows_of(ids, y, logp, advantage)
    run = RLRun(model, Wide(), replace(SMALL, algorithm=rung, lr=1e-3, temperature=0.7))
    cfg = (
        LADDER[rung]
        .learner()
        .model_copy(update={"lr": 1e-3, "betas": (0.9, 0.99), "autocast": "off", "mismatch_alarm": 0.0})
    )
    learner = CompactLearner(tmp_path, cfg)
    learner.step(samples, 0.7)
    run._update(ids, y, logp, advantage)
    theirs = learner.state_dict()["optimizers"]["agent"]["exp_avg"]
    mine = moments(run)
    assert set(theirs) <= set(mine) and len(theirs) > 15
    largest = max(float(t.abs().max()) for t in theirs.values())
    for name, tensor in theirs.items():  # 0.1 x the clipped gradient
        assert (mine[name] - tensor).abs().max() < 1e-4 * largest, name


def moments(run: RLRun) -> dict[str, torch.Tensor]:
    """First moments of Adam under the names of the Hugging Face weights."""
    shadow = copy.deepcopy(run.model)
    with torch.no_grad():
        for copied, p in zip(shadow.parameters(), run.model.parameters(), strict=True):
            copied.copy_(run._optimiser.state[p]["exp_avg"])
    return shadow.hf_state()


def test_the_gradient_of_a_bandit_in_closed_form(tiny: Callable[..., TinyLM]) -> None:
    """d loss / d logit of letter k at the first place is -(1/N L) sum_i A_i ([y_i = k] - p_k)."""
    model, family = tiny(1), Rules()
    run = RLRun(model, family, replace(SMALL, algorithm="grpo"))
    ids = torch.from_numpy(family.prompts("?", "train", 1).ids_BP)
    y = torch.tensor([[[0, 1, 2, 3], [0, 4, 5, 6], [7, 1, 2, 3]]])
    advantage = np.zeros((1, 3, 4))
    advantage[0, :, 0] = [1.0, -0.5, 2.0]  # only the first letter is paid
    with torch.no_grad():
        every = group_logprobs(model, ids, y, family.alphabet, 1.0)
    old = every.gather(-1, y[..., None])[..., 0]
    nudges = torch.zeros(8, requires_grad=True)
    original = model.letter_logits

    def nudged(hidden: torch.Tensor, letters: torch.Tensor) -> torch.Tensor:
        out = original(hidden, letters).clone()
        out[..., 0, :] = out[..., 0, :] + nudges
        return out

    model.letter_logits = nudged  # type: ignore[method-assign]
    loss, _ = run.loss(ids, y, old, advantage)
    loss.backward()  # type: ignore[no-untyped-call]
    p = every[0, 0, 0].exp().numpy()
    expected = sum(a * (np.arange(8) == k) - a * p for a, k in ((1.0, 0), (-0.5, 0), (2.0, 7)))
    assert nudges.grad is not None
    assert nudges.grad.numpy() == pytest.approx(-expected / 12, abs=1e-6)


def test_clipping_and_divergence_by_hand(tiny: Callable[..., TinyLM]) -> None:
    model, family = tiny(1), Rules()
    ids = torch.from_numpy(family.prompts("?", "train", 1).ids_BP)
    y = torch.tensor([[[0, 1, 2, 3], [4, 5, 6, 7]]])
    advantage = np.broadcast_to(np.array([1.0, -1.0])[None, :, None], (1, 2, 4))
    with torch.no_grad():
        now = group_logprobs(model, ids, y, family.alphabet, 1.0).gather(-1, y[..., None])[..., 0]
    shift = torch.log(torch.tensor([[[1.5, 1.1, 0.5, 1.0], [1.5, 0.9, 0.5, 1.0]]]))
    loss, (low, high) = RLRun(model, family, replace(SMALL, algorithm="clip")).loss(
        ids, y, now - shift, advantage
    )
    # A = 1: min(w, clip w) = 1.2, 1.1, 0.5, 1;  A = -1: -max(w, clip w) = -1.5, -0.9, -0.8, -1
    assert float(loss.detach()) == pytest.approx(
        -(1.2 + 1.1 + 0.5 + 1.0 - 1.5 - 0.9 - 0.8 - 1.0) / 8, abs=1e-5
    )
    assert (low, high) == (0.25, 0.25)
    run = RLRun(copy.deepcopy(model), family, replace(SMALL, algorithm="kl-0.1"))
    with torch.no_grad():
        for p in run.model.parameters():
            p.mul_(0.9)
    moved, _ = run.loss(ids, y, now, np.zeros((1, 2, 4)))
    with torch.no_grad():
        after = group_logprobs(run.model, ids, y, family.alphabet, 1.0).gather(-1, y[..., None])[..., 0]
    d = (now - after).double()
    assert float(moved.detach()) == pytest.approx(0.1 * float((d.exp() - d - 1).mean()), rel=1e-4)


@pytest.mark.parametrize(("reward", "algorithm", "moves"), [
    ("constant", "grpo", False), ("random-prompt", "grpo", False), ("constant", "group", False),
    ("constant", "reinforce", True), ("random", "grpo", True), ("random-prompt", "baseline", True),
])  # fmt: skip
def test_what_moves_the_weights(
    tiny: Callable[..., TinyLM], reward: str, algorithm: str, moves: bool
) -> None:
    model = tiny(0)
    before = model.hf_state()
    run = RLRun(model, Rules(), replace(SMALL, reward=reward, algorithm=algorithm))
    stats = [run.step() for _ in range(2)]
    same = all(torch.equal(before[n], t) for n, t in model.hf_state().items())
    assert same != moves
    assert all(s.silent == (s.groups if not moves else s.silent) for s in stats)


@pytest.mark.parametrize("algorithm", ["grpo", "clip", "reinforce"])
def test_groups_without_an_advantage_may_be_left_out(tiny: Callable[..., TinyLM], algorithm: str) -> None:
    """Same loss and gradient with and without them: the weights are those of the whole minibatch."""
    family = Rules()
    run = RLRun(tiny(2), family, replace(SMALL, algorithm=algorithm))
    rng = np.random.default_rng(5)
    ids = torch.from_numpy(family.prompts("?", "train", 6).ids_BP)
    y = torch.from_numpy(rng.integers(0, 8, (6, 4, 4)))
    silent = np.array([True, False, True, True, False, False])
    advantage = np.broadcast_to(np.where(silent[:, None], 0.0, rng.normal(size=(6, 4)))[..., None], y.shape)
    with torch.no_grad():
        now = group_logprobs(run.model, ids, y, family.alphabet, 1.0).gather(-1, y[..., None])[..., 0]
    old = now + 0.3 * torch.from_numpy(rng.normal(size=now.shape).astype(np.float32))
    found = []
    for rows in (np.arange(6), loud(np.arange(6), silent)):
        run.model.zero_grad(set_to_none=True)
        loss, _ = run.loss(ids[rows], y[rows], old[rows], advantage[rows], 6)
        loss.backward()  # type: ignore[no-untyped-call]
        found.append((float(loss.detach()), [p.grad for p in run.model.parameters() if p.grad is not None]))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-6) and abs(found[0][0]) > 1e-4
    largest = max(float(g.abs().max()) for g in found[0][1])
    for every, few in zip(found[0][1], found[1][1], strict=True):
        assert (every - few).abs().max() < 1e-5 * largest


def test_a_minibatch_without_any_advantage_keeps_one_group_for_the_momentum() -> None:
    silent = np.array([True, True, False, True])
    assert loud(np.array([0, 1, 3]), silent).tolist() == [0]
    assert loud(np.array([1, 2, 3]), silent).tolist() == [2]


@pytest.mark.parametrize(("reward", "moves"), [("random-prompt", False), ("random", True)])
def test_the_last_row_is_what_the_stored_weights_measure(tmp_path: Path, reward: str, moves: bool) -> None:
    """Also where nothing moved, and what was measured at the start was kept."""
    cell = Cell(size="XS", trunk_steps=30, probes=4, evals=2, rl=replace(SMALL, reward=reward))
    run_cell(cell, tmp_path)
    folder = tmp_path / "cells" / cell.key
    rows, family = read_jsonl(folder / "log.jsonl"), Rules()
    model, probes = load_lm(ensure(cell.start, tmp_path / "stages")), Probes.of(family, 4)
    base = probes.outputs(model)
    model.load_hf_state(load_file(folder / "final.safetensors"))
    now = probes.outputs(model)
    fresh = (
        distribution_metrics(probes, now) | change_metrics(probes, base, now) | other_domains(probes, model)
    )
    assert {k: rows[-1][k] for k in fresh} == fresh
    assert (fresh["KL"] > 0) == moves == (rows[0]["H_seq"] != rows[-1]["H_seq"])


def test_training_raises_what_is_paid(tiny: Callable[..., TinyLM]) -> None:
    model = tiny(0)
    run = RLRun(model, Rules(), replace(SMALL, reward="proxy", lr=3e-3, batch=8))
    rewards = [run.step().reward for _ in range(20)]
    assert rewards[0] < 0.75 and np.mean(rewards[-5:]) > 0.9


def test_pools_have_the_asked_size_and_breadth_and_the_same_prompts_for_a_seed() -> None:
    family = Rules()
    for count, breadth, size in ((1, 1, 1), (10, 1, 10), (1, 9, 9), (100, 9, 100)):
        pool = Pool(family, RLSettings(prompts=count, breadth=breadth))
        again = Pool(family, RLSettings(prompts=count, breadth=breadth, reward="random", steps=7))
        other = Pool(family, RLSettings(prompts=count, breadth=breadth, seed=1))
        assert len(pool.prompts) == size and len(set(pool.prompts.domains)) == breadth
        assert (pool.prompts.ids_BP == again.prompts.ids_BP).all()
        assert (pool.prompts.ids_BP != other.prompts.ids_BP).any()
    drawn = Pool(family, RLSettings(prompts=40)).draw(32)
    assert len({tuple(r) for r in drawn.ids_BP.tolist()}) == 32


def test_a_cell_repeats_bit_for_bit(tmp_path: Path) -> None:
    cell = Cell(
        size="XS", trunk_steps=30, probes=4, evals=2, rl=replace(SMALL, reward="partial", algorithm="clip")
    )
    logs = []
    for name in ("a", "b"):
        record = run_cell(cell, tmp_path / name)
        rows = read_jsonl(tmp_path / name / "cells" / cell.key / "log.jsonl")
        logs.append([{k: v for k, v in row.items() if k != "seconds"} for row in rows])
        assert record["status"] == "finished"
    assert logs[0] == logs[1] and [row["step"] for row in logs[0]] == [0, 2, 4]
    assert (tmp_path / "a/cells" / cell.key / "final.safetensors").read_bytes() == (
        tmp_path / "b/cells" / cell.key / "final.safetensors"
    ).read_bytes()


@pytest.mark.slow
def test_sparse_reward_moves_what_is_there_and_nothing_else(tmp_path: Path) -> None:
    """The two ends of E1 on shipped starts: without a hit the weights stay as they are."""
    ends = {}
    for chain in ((), ("dial=1e-2",)):
        cell = Cell(chain=chain, probes=16, evals=1, rl=RLSettings(steps=96))
        ends[chain] = run_cell(cell, tmp_path)["summary"]
    never, dialled = ends[()], ends[("dial=1e-2",)]
    assert never["hits"] == never["rewarded"] == 0 and never["end"]["KL"] == 0
    assert never["pool_mass"] * never["steps"] * 256 == pytest.approx(never["lambda"])
    assert dialled["hits"] > 10 * dialled["lambda"] and dialled["end"]["mass"] >= 0.9
    assert dialled["pool_mass"] == pytest.approx(dialled["end"]["mass"], abs=0.1)
