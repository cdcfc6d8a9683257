"""Rows that join a running batch, share beginnings, and survive what happens meanwhile."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spade.errors import BackendError
from spade.serving import linear
from spade.serving.local import LocalPolicy
from spade.serving.policy import Completion, SamplingParams
from spade.serving.prefixes import LEAST, Donors, common, shares
from spade.serving.sampling import Heat, sample
from spade.types import StopReason

from . import tiny
from .test_serving_local import prompts, reference

LONG = 150


class Probe:
    """A `stop_when` that runs something in the event loop after a given token, and waits for it there."""

    def __init__(self, at: int, start: Callable[[], Any]) -> None:
        self.at, self.start, self.seen = at, start, 0
        self.loop = asyncio.get_running_loop()
        self.task: asyncio.Task[Any] | None = None

    def __call__(self, ids: Sequence[int]) -> bool:
        assert len(ids) == self.seen + 1  # no token is shown twice, none is left out
        self.seen = len(ids)
        if self.seen == self.at:
            begun = threading.Event()

            def begin() -> None:
                self.task = asyncio.ensure_future(self.start())
                self.loop.call_soon(begun.set)  # after the task's first turn, which hands the call over

            self.loop.call_soon_threadsafe(begin)
            assert begun.wait(60)
        return False


def free(folder: Path, **changes: Any) -> LocalPolicy:
    return LocalPolicy.from_folder(folder, tiny.serving(**{"deterministic": False, **changes}))


async def one(policy: LocalPolicy, prompt: Sequence[int], **params: Any) -> Completion:
    return (await policy.generate([list(prompt)], SamplingParams(**params)))[0][0]


async def test_a_call_joins_the_running_batch(llama: tuple[Path, Any]) -> None:
    """It is answered while the other goes on, and both are what they would be alone."""
    policy = free(llama[0])
    long, short = prompts(2, 31)
    finished_at: list[int] = []

    async def late() -> Completion:
        out = await one(policy, short, max_tokens=5, seed=2)
        finished_at.append(probe.seen)
        return out

    probe = Probe(10, late)
    first = await one(policy, long, max_tokens=LONG, seed=1, stop_when=probe)
    assert probe.task is not None
    second = await probe.task
    assert len(first.token_ids) == LONG and len(second.token_ids) == 5
    assert finished_at[0] < LONG - 20
    for prompt, out in ((long, first), (short, second)):
        assert out.logprobs_T == pytest.approx(reference(llama[1], prompt, out.token_ids, 1.0), abs=1e-4)
    alone = free(llama[0])
    assert (await one(alone, long, max_tokens=LONG, seed=1)).token_ids == first.token_ids
    assert (await one(alone, short, max_tokens=5, seed=2)).token_ids == second.token_ids


async def test_a_deterministic_call_has_the_batch_to_itself(llama: tuple[Path, Any]) -> None:
    policy = LocalPolicy.from_folder(llama[0], tiny.serving())
    long, short = prompts(2, 31)
    probe = Probe(10, lambda: one(policy, short, max_tokens=5, seed=2))
    first = await one(policy, long, max_tokens=LONG, seed=1, stop_when=probe)
    assert probe.task is not None and not probe.task.done()
    second = await probe.task
    alone = LocalPolicy.from_folder(llama[0], tiny.serving())
    assert await one(alone, long, max_tokens=LONG, seed=1) == first
    assert await one(alone, short, max_tokens=5, seed=2) == second


async def test_new_weights_wait_for_rows_under_way_and_pass_those_that_wait(
    llama: tuple[Path, Any], tmp_path: Path
) -> None:
    """A stream of calls cannot keep an update out, and no row is sampled from two models."""
    other = tiny.write_model(tmp_path, "llama", initializer_range=0.2)
    policy = free(llama[0])
    long, short = prompts(2, 32)
    later: list[asyncio.Task[Completion]] = []

    async def update() -> None:
        loading = asyncio.ensure_future(policy.load_weights(other.state_dict().items(), 3))
        await asyncio.sleep(0)
        later.append(asyncio.ensure_future(one(policy, short, max_tokens=6, seed=2)))
        await loading

    probe = Probe(10, update)
    first = await one(policy, long, max_tokens=60, seed=1, stop_when=probe)
    assert probe.task is not None
    await probe.task
    second = await later[0]
    assert (first.weight_version, second.weight_version) == (0, 3)
    assert first.logprobs_T == pytest.approx(reference(llama[1], long, first.token_ids, 1.0), abs=1e-4)
    assert second.logprobs_T == pytest.approx(reference(other, short, second.token_ids, 1.0), abs=1e-4)


async def test_scores_come_between_two_tokens(llama: tuple[Path, Any]) -> None:
    policy = free(llama[0])
    long, short = prompts(2, 33)
    seen: list[int] = []

    async def score() -> list[float]:
        (got,) = await policy.score([short], [[5, 6, 7]])
        seen.append(probe.seen)
        return list(got.logprobs_T)

    probe = Probe(10, score)
    first = await one(policy, long, max_tokens=LONG, seed=1, stop_when=probe)
    assert probe.task is not None
    assert await probe.task == pytest.approx(reference(llama[1], short, [5, 6, 7], 1.0), abs=1e-4)
    assert seen[0] < LONG - 20
    assert first.logprobs_T == pytest.approx(reference(llama[1], long, first.token_ids, 1.0), abs=1e-4)


async def test_more_rows_than_fit_are_let_in_as_others_end(llama: tuple[Path, Any]) -> None:
    policy = free(llama[0], max_rows=8)
    rows = prompts(30, 34)
    each = [SamplingParams(max_tokens=1 + 3 * (i % 7), seed=i) for i in range(30)]
    widest = 0
    step = policy._engine.step

    def watched(tokens: torch.Tensor, live: np.ndarray) -> torch.Tensor:
        nonlocal widest
        widest = max(widest, int(live.sum()))
        return step(tokens, live)

    policy._engine.step = watched  # type: ignore[method-assign]
    out = [c for (c,) in await policy.generate(rows, each)]
    assert widest == 8
    for row, p, c in zip(rows, each, out, strict=True):
        assert len(c.token_ids) == p.max_tokens
        assert c.logprobs_T == pytest.approx(reference(llama[1], row, c.token_ids, 1.0), abs=1e-4)


async def test_rows_survive_running_out_of_memory_half_way(llama: tuple[Path, Any]) -> None:
    """They go on from where they were: whoever reads along is shown every token once."""
    policy = free(llama[0])
    rows = prompts(12, 35)
    probes = [Probe(-1, lambda: None) for _ in rows]
    each = [SamplingParams(max_tokens=20, seed=i, stop_when=p) for i, p in enumerate(probes)]
    calls, step = 0, policy._engine.step

    def tight(tokens: torch.Tensor, live: np.ndarray) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 7:
            raise MemoryError("no more")
        return step(tokens, live)

    policy._engine.step = tight  # type: ignore[method-assign]
    out = [c for (c,) in await policy.generate(rows, each)]
    for i, (row, c) in enumerate(zip(rows, out, strict=True)):
        assert probes[i].seen == 20 and c.stop is StopReason.LENGTH
        assert c.logprobs_T == pytest.approx(reference(llama[1], row, c.token_ids, 1.0), abs=1e-4)


async def test_a_failure_ends_the_calls_under_way_and_no_others(llama: tuple[Path, Any]) -> None:
    policy = free(llama[0], max_rows=4)
    step = policy._engine.step

    def broken(tokens: torch.Tensor, live: np.ndarray) -> torch.Tensor:
        policy._engine.step = step  # type: ignore[method-assign]
        raise RuntimeError("shape mismatch")

    policy._engine.step = broken  # type: ignore[method-assign]
    rows = prompts(8, 36)
    calls = [asyncio.ensure_future(one(policy, r, max_tokens=9, seed=i)) for i, r in enumerate(rows)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    lost = [d for d in done if isinstance(d, BackendError)]
    assert 1 <= len(lost) <= 4 and all("shape mismatch" in str(d) for d in lost)
    for row, got in zip(rows, done, strict=True):
        if isinstance(got, Completion):
            assert got.logprobs_T == pytest.approx(reference(llama[1], row, got.token_ids, 1.0), abs=1e-4)


async def test_a_cancelled_call_leaves_the_queue(llama: tuple[Path, Any]) -> None:
    policy = free(llama[0], max_rows=1)
    long, short = prompts(2, 37)
    waiting: list[asyncio.Task[Completion]] = []

    async def queue() -> None:
        waiting.append(asyncio.ensure_future(one(policy, short, max_tokens=5)))
        await asyncio.sleep(0)
        waiting[0].cancel()

    probe = Probe(5, queue)
    await one(policy, long, max_tokens=20, seed=1, stop_when=probe)
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    before = policy.stats.sampled_tokens
    await one(policy, short, max_tokens=3)
    assert policy.stats.sampled_tokens - before == 3  # the cancelled row cost nothing


# --- shared beginnings -----------------------------------------------------------------------------------


def alike(count: int, seed: int = 0) -> list[list[int]]:
    """Prompts with a beginning in common and ends of their own."""
    rng = random.Random(seed)
    head = [rng.randrange(3, 300) for _ in range(60)]
    return [head + [rng.randrange(3, 300) for _ in range(rng.randrange(1, 9))] for _ in range(count)]


@pytest.mark.parametrize("width", [32, 256])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_a_shared_beginning_is_computed_once_and_changes_no_bit(
    tmp_path: Path, width: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "PACK_SIZE", 0)  # wide layers are packed however small the model
    tiny.write_model(tmp_path, "llama", hidden_size=width)
    rows = alike(9)
    each = [SamplingParams(max_tokens=8, seed=i) for i in range(9)]
    policy = LocalPolicy.from_folder(tmp_path, tiny.serving(dtype=dtype))
    together = [c for (c,) in await policy.generate(rows, each)]
    assert policy.stats.prefilled_tokens < sum(map(len, rows)) - 7 * 60
    for row, params, got in zip(rows, each, together, strict=True):
        await policy.sleep()
        assert (await policy.generate([row], params))[0][0] == got


async def test_a_later_prompt_borrows_from_rows_at_hand(llama: tuple[Path, Any]) -> None:
    policy = free(llama[0])
    rows = alike(3, 5)
    for i, row in enumerate(rows):
        before = policy.stats.prefilled_tokens
        out = await one(policy, row, max_tokens=6, seed=i)
        computed = policy.stats.prefilled_tokens - before
        assert computed == len(row) if i == 0 else computed <= len(row) - 60
        assert out.logprobs_T == pytest.approx(reference(llama[1], row, out.token_ids, 1.0), abs=1e-4)


heads = st.lists(st.integers(0, 3), min_size=LEAST, max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(heads, min_size=1, max_size=3), st.lists(heads, min_size=2, max_size=8), st.integers(0, 99))
def test_shares_hold_what_they_say(starts: list[list[int]], ends: list[list[int]], seed: int) -> None:
    rng = random.Random(seed)
    rows = [[*rng.choice(starts), *end] for end in ends]
    packed = [np.asarray(r, dtype=np.int32).tobytes() for r in rows]
    members: list[int] = []
    for share in shares(packed):
        members += [share.leader, *share.followers]
        assert share.length >= LEAST and share.followers
        for follower in share.followers:
            assert rows[follower][: share.length] == rows[share.leader][: share.length]
            assert share.length < len(rows[follower])
    assert len(members) == len(set(members))
    slot, length = Donors(dict(enumerate(packed[1:]))).find(packed[0])
    assert length < len(rows[0])
    if length:
        assert rows[slot + 1][:length] == rows[0][:length]
        assert length == min(common(packed[slot + 1], packed[0]), len(rows[0]) - 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 700), st.integers(0, 10_000), st.floats(0, 1, exclude_max=True, width=32))
def test_the_draw_is_the_inverse_of_the_distribution(vocab: int, seed: int, noise: float) -> None:
    """The token drawn is where the running sum of the probabilities passes the noise, up to rounding."""
    logits = torch.randn(1, vocab, generator=torch.Generator().manual_seed(seed)) * 4
    logits[0, torch.arange(vocab) % 3 == 1] = float("-inf")
    heat = Heat()
    heat.grow(1)
    heat.put(0, SamplingParams())
    tokens, logprobs = sample(heat, np.array([0]), logits, torch.tensor([noise], dtype=torch.float64))
    token, probs = int(tokens[0]), logits.double().softmax(-1)[0]
    assert probs[token] > 0
    assert float(logprobs[0]) == pytest.approx(float(probs[token].log()), abs=1e-5)
    below = float(probs[:token].sum())
    assert below - 1e-5 <= noise <= below + float(probs[token]) + 1e-5
