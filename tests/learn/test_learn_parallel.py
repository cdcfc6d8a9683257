"""Two processes over gloo do what one does: the compact learner, and models sharded by `fully_shard`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learn_data import make, save_llama
from parallel_child import SETTINGS, STEPS, compact, shard
from two_processes import furthest, numbers, run_children, weights

from spade.errors import InputError
from spade.learn.batch import dealt_batches, micro_batches
from spade.learn.checkpoint import load_causal_lm
from spade.learn.parallel import Team
from spade.learn.ranks import world

CLOSE = 1e-5
"""In float32 two processes add in another order than one."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Folders of the results of one process and of two."""
    root = tmp_path_factory.mktemp("parallel")
    model = save_llama(root / "model")
    run_children("compact,shard", root / "2", model, 2)
    for job in (compact, shard):
        job(root / "1" / "rank-0", model)
    return {size: root / str(size) for size in (1, 2)}


@pytest.mark.parametrize("name", SETTINGS)
def test_two_processes_learn_what_one_learns(done: dict[int, Path], name: str) -> None:
    one, two = (weights(done[size], name) for size in (1, 2))
    assert furthest(one, two) < CLOSE
    for single, double in zip(*(numbers(done[size], name) for size in (1, 2)), strict=True):
        skip = {"seconds", "cpu_seconds", *(k for k in single if k.startswith("token_entropy"))}
        assert single.keys() == double.keys()
        for key in single.keys() - skip:
            assert double[key] == pytest.approx(single[key], rel=1e-4, abs=CLOSE), key


@pytest.mark.parametrize("name", [*SETTINGS, "resumed"])
def test_every_process_holds_the_same_bits(done: dict[int, Path], name: str) -> None:
    first, second = (weights(done[2], name, rank) for rank in (0, 1))
    assert all(torch.equal(first[n], second[n]) for n in first)


def test_a_resumed_team_goes_on_where_one_process_stopped(done: dict[int, Path]) -> None:
    assert furthest(weights(done[2], "resumed"), weights(done[1], "shared")) < CLOSE


def test_the_steps_moved_the_weights(done: dict[int, Path]) -> None:
    assert len(numbers(done[2], "per-role")) == STEPS
    assert furthest(weights(done[2], "per-role"), weights(done[2], "shared")) > 10 * CLOSE


@pytest.mark.parametrize("name", ["middle", "middle-exp_avg", "middle-exp_avg_sq", "end"])
def test_sharded_weights_and_moments_come_back_whole(done: dict[int, Path], name: str) -> None:
    one, two = (weights(done[size], name) for size in (1, 2))
    assert furthest(one, two) < CLOSE
    assert numbers(done[1], name) == numbers(done[2], name)


def test_the_export_of_a_sharded_model_is_a_plain_checkpoint(done: dict[int, Path]) -> None:
    model = load_causal_lm(done[2] / "rank-0" / "export", torch.device("cpu"))
    found = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    assert furthest(found, weights(done[1], "middle")) < CLOSE


# --- without other processes -----------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 40), seed=st.integers(0, 99), tokens=st.integers(1, 3000), size=st.integers(2, 5))
def test_batches_for_several_processes_are_whole_and_even(n: int, seed: int, tokens: int, size: int) -> None:
    samples = make(n, seed)
    alone, shared = (micro_batches(samples, tokens, 0, k) for k in (1, size))
    assert sorted(i for b in shared for i in b.rows) == list(range(n))
    rounds = -(-len(alone) // size)
    assert len(alone) <= len(shared) <= rounds * size
    assert all(b.ids_BT.size <= tokens or len(b.rows) == 1 for b in shared)
    parts = [Team(rank, size).share(shared) for rank in range(size)]
    assert sorted(i for part in parts for b in part for i in b.rows) == list(range(n))


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 40), seed=st.integers(0, 99), tokens=st.integers(1, 3000), size=st.integers(1, 5))
def test_dealt_rows_are_as_many_in_every_process(n: int, seed: int, tokens: int, size: int) -> None:
    samples = make(n, seed)
    hands = [dealt_batches(samples, tokens, 0, rank, size) for rank in range(size)]
    assert sorted(i for hand in hands for b, _ in hand if b is not None for i in b.rows) == list(range(n))
    for one_round in zip(*hands, strict=True):
        (wanted,) = {rows for _, rows in one_round}
        sizes = [0 if b is None else len(b.rows) for b, _ in one_round]
        assert max(sizes) == wanted and min(sizes) >= wanted - 1
        assert all(b is None or wanted == 1 or wanted * b.ids_BT.shape[1] <= tokens for b, _ in one_round)


def test_batches_for_two_processes_weigh_about_the_same() -> None:
    samples = make(40, 3)
    sizes = [sum(b.ids_BT.size for b in Team(r, 2).share(micro_batches(samples, 4096, 0, 2))) for r in (0, 1)]
    assert len(micro_batches(samples, 4096, 0, 2)) == 2
    assert max(sizes) < 1.3 * min(sizes)


def test_a_team_of_one_keeps_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    team = Team()
    tensors = [torch.ones(3)]
    team.add(tensors)
    assert team.share([1, 2, 3]) == [1, 2, 3] and team.gather("x") == ["x"] and team.leads
    assert np.array_equal(tensors[0], np.ones(3))


@pytest.mark.parametrize(("rank", "size"), [("2", "2"), ("-1", "2"), ("x", "2")])
def test_a_rank_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, rank: str, size: str) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(InputError, match="no launcher"):
        world()
