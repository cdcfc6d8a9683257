"""Sampling, log-probs, cache reuse and determinism of the local policy, against transformers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from spade.errors import BackendError, InputError
from spade.serving import linear
from spade.serving.local import LocalPolicy
from spade.serving.policy import Completion, Policy, SamplingParams
from spade.types import StopReason

from . import tiny

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": False}),
    ("qwen2", {}),
    ("qwen2", {"hidden_size": 256, "initializer_range": 0.1}),
    ("qwen3", {}),
    ("gpt_neox", {}),
]


def reference(model: Any, prompt: Sequence[int], completion: Sequence[int], heat: float) -> list[float]:
    ids = torch.tensor([[*prompt, *completion]])
    with torch.inference_mode():
        logprobs = (model(ids).logits[0].float() / heat).log_softmax(-1)
    return [logprobs[len(prompt) - 1 + i, t].item() for i, t in enumerate(completion)]


def prompts(count: int, seed: int = 0, longest: int = 40) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(3, 300) for _ in range(rng.randrange(1, longest))] for _ in range(count)]


def flat(out: list[list[Completion]]) -> list[Completion]:
    return [c for (c,) in out]


def params(count: int, **changes: Any) -> list[SamplingParams]:
    rng = random.Random(count)
    base: dict[str, Any] = dict(temperature=0.8, stop_token_ids=(2, 9, 30, 77))
    return [
        SamplingParams(**{**base, "max_tokens": rng.randrange(1, 24), "seed": i, **changes})
        for i in range(count)
    ]


@pytest.mark.parametrize(("kind", "changes"), VARIANTS, ids=str)
async def test_logprobs_equal_a_plain_forward_over_several_turns(
    tmp_path: Path, kind: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "PACK_SIZE", 0)  # wide layers are packed however small the model
    model = tiny.write_model(tmp_path, kind, **changes)
    policy = LocalPolicy.from_folder(tmp_path, tiny.serving(max_rows=24))
    assert isinstance(policy, Policy)
    rng, rows = random.Random(1), prompts(19)
    each = params(len(rows))
    for _ in range(3):
        out = flat(await policy.generate(rows, each))
        for row, c in zip(rows, out, strict=True):
            assert c.logprobs_T == pytest.approx(reference(model, row, c.token_ids, 0.8), abs=1e-4)
        keep = [i for i in range(len(rows)) if rng.random() < 0.8]
        rng.shuffle(keep)
        rows = [[*rows[i], *out[i].token_ids, *prompts(1, i, 6)[0]] for i in keep]
        each = [each[i] for i in keep]


async def test_cache_reuse_changes_nothing_but_work(llama: tuple[Path, Any]) -> None:
    async def play(reuse: bool) -> tuple[list[Completion], int]:
        policy = LocalPolicy.from_folder(llama[0], tiny.serving())
        rows, seen = prompts(12), []
        for turn in range(3):
            if not reuse:
                await policy.sleep()
            out = flat(await policy.generate(rows, params(12)))
            seen += out
            rows = [[*r, *c.token_ids, 40 + turn, 41] for r, c in zip(rows, out, strict=True)]
        return seen, policy.stats.prefilled_tokens

    (with_cache, little), (without, much) = await play(True), await play(False)
    assert [c.token_ids for c in with_cache] == [c.token_ids for c in without]
    for a, b in zip(with_cache, without, strict=True):
        assert a.logprobs_T == pytest.approx(b.logprobs_T, abs=1e-4)
    assert (
        little == sum(map(len, prompts(12))) + 2 * 12 * 3
    )  # a turn adds the last sampled token and two new ones
    assert much > 2 * little


async def test_equal_prompts_are_prefilled_once(llama: tuple[Path, Any]) -> None:
    policy = LocalPolicy.from_folder(llama[0], tiny.serving())
    one, two = prompts(2, 5)
    out = await policy.generate([one, two, one, one], SamplingParams(max_tokens=6, seed=3), n=2)
    assert policy.stats.prefilled_tokens == len(one) + len(two)
    assert [len(x) for x in out] == [2, 2, 2, 2]
    assert out[0] == out[2] == out[3] and out[0][0] != out[0][1]
    for c in out[3]:
        assert c.logprobs_T == pytest.approx(reference(llama[1], one, c.token_ids, 1.0), abs=1e-4)


@pytest.mark.parametrize("width", [32, 256])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_deterministic_rows_do_not_depend_on_company(
    tmp_path: Path, width: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: order, other rows, chunking and the kernel's batch size do not matter."""
    monkeypatch.setattr(linear, "PACK_SIZE", 0)
    tiny.write_model(tmp_path, "llama", hidden_size=width)
    rows, each = prompts(21), params(21)

    async def run(order: Sequence[int], max_rows: int = 24) -> dict[int, Completion]:
        policy = LocalPolicy.from_folder(tmp_path, tiny.serving(max_rows=max_rows, dtype=dtype))
        out = flat(await policy.generate([rows[i] for i in order], [each[i] for i in order]))
        return dict(zip(order, out, strict=True))

    base = await run(range(21))
    shuffled = random.Random(3).sample(range(21), 21)
    assert await run(shuffled) == base
    assert await run(range(21), max_rows=8) == base
    for few in ([20], [4, 2, 9]):
        assert await run(few) == {i: base[i] for i in few}


async def test_seeds_reproduce_and_missing_seeds_do_not(llama: tuple[Path, Any]) -> None:
    policy = LocalPolicy.from_folder(llama[0], tiny.serving())
    row = prompts(1, 9)[0]

    async def once(seed: int | None) -> tuple[int, ...]:
        out = await policy.generate([row], SamplingParams(max_tokens=12, seed=seed, temperature=1.5))
        return out[0][0].token_ids

    assert await once(5) == await once(5)
    assert await once(5) != await once(6)
    assert await once(None) != await once(None)
    longer = (await policy.generate([row], SamplingParams(max_tokens=20, seed=5, temperature=1.5)))[0][0]
    assert longer.token_ids[:12] == await once(5)


async def test_sampling_follows_the_distribution(llama: tuple[Path, Any]) -> None:
    policy = LocalPolicy.from_folder(llama[0], tiny.serving(max_rows=512))
    row = prompts(1, 2)[0]
    with torch.inference_mode():
        want = (llama[1](torch.tensor([row])).logits[0, -1] / 2.0).softmax(-1)
    each = [SamplingParams(max_tokens=1, seed=i, temperature=2.0) for i in range(4000)]
    drawn = torch.tensor([c.token_ids[0] for c in flat(await policy.generate([row] * 4000, each))])
    got = torch.bincount(drawn, minlength=len(want)) / 4000
    assert (got - want).abs().sum() < 0.35  # total variation of 4000 draws over ~360 tokens
    assert (got.max() - want[got.argmax()]).abs() < 0.04


async def test_greedy_top_k_and_top_p(llama: tuple[Path, Any]) -> None:
    policy = LocalPolicy.from_folder(llama[0], tiny.serving(max_rows=64))
    row = prompts(1, 4)[0]
    with torch.inference_mode():
        logits = llama[1](torch.tensor([row])).logits[0, -1]
    weights, order = logits.softmax(-1).sort(descending=True)
    greedy = (await policy.generate([row], SamplingParams(max_tokens=1, temperature=0)))[0][0]
    assert greedy.token_ids == (int(order[0]),)
    assert greedy.logprobs_T == pytest.approx([float(weights[0].log())], abs=1e-4)
    best = set(order[:3].tolist())
    each = [SamplingParams(max_tokens=1, seed=i, top_k=3) for i in range(64)]
    drawn = flat(await policy.generate([row] * 64, each))
    assert {c.token_ids[0] for c in drawn} <= best
    for c in drawn:  # over the full vocabulary, whatever top-k leaves out
        assert c.logprobs_T[0] == pytest.approx(float(logits.log_softmax(-1)[c.token_ids[0]]), abs=1e-4)
    nucleus = int((weights.cumsum(0) - weights < 0.5).sum())
    each = [SamplingParams(max_tokens=1, seed=i, top_p=0.5) for i in range(64)]
    drawn = flat(await policy.generate([row] * 64, each))
    assert {c.token_ids[0] for c in drawn} <= set(order[:nucleus].tolist())


async def test_stop_length_and_context(llama: tuple[Path, Any]) -> None:
    policy = LocalPolicy.from_folder(llama[0], tiny.serving(context_length=48))
    row = prompts(1, 7)[0][:5]
    free = (await policy.generate([row], SamplingParams(max_tokens=20, seed=1)))[0][0]
    assert (free.stop, len(free.token_ids)) == (StopReason.LENGTH, 20)
    target = free.token_ids[6]
    first = free.token_ids.index(target)
    stopping = SamplingParams(max_tokens=20, seed=1, stop_token_ids=(target,))
    cut = (await policy.generate([row], stopping))[0][0]
    assert cut.stop is StopReason.STOP
    assert cut.token_ids == free.token_ids[: first + 1]
    full = (await policy.generate([row * 9], SamplingParams(max_tokens=20, seed=1)))[0][0]
    assert (full.stop, len(full.token_ids)) == (StopReason.CONTEXT, 3)
    with pytest.raises(InputError, match="leaves no room"):
        await policy.generate([row * 10], SamplingParams(max_tokens=1))
    with pytest.raises(InputError, match="without tokens"):
        await policy.generate([[]], SamplingParams())
    assert await policy.generate([], SamplingParams()) == []


async def test_new_weights_count_at_once_and_drop_caches(llama: tuple[Path, Any], tmp_path: Path) -> None:
    other = tiny.write_model(tmp_path, "llama", initializer_range=0.2)
    policy = LocalPolicy.from_folder(llama[0], tiny.serving())
    row = prompts(1, 3)[0]
    before = (await policy.generate([row], SamplingParams(max_tokens=8, seed=1)))[0][0]
    longer = [*row, *before.token_ids, 5]
    weights = {k: v.clone() for k, v in other.state_dict().items()}
    await policy.load_weights(weights.items(), 7)
    for v in weights.values():
        v.zero_()  # the policy holds copies
    after = (await policy.generate([longer], SamplingParams(max_tokens=8, seed=1)))[0][0]
    assert (before.weight_version, after.weight_version) == (0, 7)
    assert after.logprobs_T == pytest.approx(reference(other, longer, after.token_ids, 1.0), abs=1e-4)
    with pytest.raises(BackendError, match="do not fit"):
        await policy.load_weights([("model.norm.weight", torch.zeros(3))], 8)


async def test_free_running_calls_share_batches_and_keep_rows(llama: tuple[Path, Any]) -> None:
    """Without determinism single-row calls are merged, rows linger, and slots are recycled when full."""
    policy = LocalPolicy.from_folder(llama[0], tiny.serving(deterministic=False, max_rows=8))
    assert not policy.lockstep

    async def episode(number: int) -> None:
        row = prompts(1, 50 + number)[0]
        for turn in range(4):
            await asyncio.sleep(0.001 * (number * 7 % 5))
            out = (await policy.generate([row], SamplingParams(max_tokens=1 + turn, seed=number)))[0][0]
            assert out.logprobs_T == pytest.approx(reference(llama[1], row, out.token_ids, 1.0), abs=1e-4)
            row = [*row, *out.token_ids, 11, 12]

    await asyncio.gather(*(episode(i) for i in range(14)))
    assert policy.stats.requests == 14 * 4
    assert policy.stats.prefilled_tokens < policy.stats.prompt_tokens


async def test_out_of_memory_halves_the_rows(
    llama: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = LocalPolicy.from_folder(llama[0], tiny.serving())
    rows = prompts(16)
    want = await policy.generate(rows, params(16))
    whole = policy._engine.begin

    def tight(prompts: Any, rows: int, busy: Any) -> Any:
        if len(prompts) > 5:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return whole(prompts, rows, busy)

    monkeypatch.setattr(policy._engine, "begin", tight)
    assert await policy.generate(rows, params(16)) == want
    said = capsys.readouterr().err
    assert said.count("out of memory") == 1 and "16 rows" in said

    def broken(prompts: Any, rows: int, busy: Any) -> Any:
        raise RuntimeError("shape mismatch")

    monkeypatch.setattr(policy._engine, "begin", broken)
    with pytest.raises(BackendError, match="shape mismatch"):
        await policy.generate(rows, params(16))


async def test_memory_limit_bounds_the_rows(llama: tuple[Path, Any]) -> None:
    policy = LocalPolicy.from_folder(llama[0], tiny.serving())
    rows = prompts(16)
    want = await policy.generate(rows, params(16))
    engine: Any = policy._engine
    engine.memory = engine.arena.bytes_per_token * 64 * 4
    await policy.sleep()
    assert await policy.generate(rows, params(16)) == want
    assert engine.arena.slots <= 8


def test_dtype_choice(llama: tuple[Path, Any]) -> None:
    from spade.serving.device import pick_dtype

    cpu = torch.device("cpu")
    assert LocalPolicy.from_folder(llama[0], tiny.serving(dtype="auto")).dtype is torch.float32
    assert pick_dtype("auto", cpu, 1_000_000) is torch.float32
    assert pick_dtype("auto", torch.device("cuda"), 10**9) is torch.bfloat16
    assert pick_dtype("bfloat16", cpu, 1) is torch.bfloat16


async def test_bfloat16_stays_close(llama: tuple[Path, Any]) -> None:
    policy = LocalPolicy.from_folder(llama[0], tiny.serving(dtype="bfloat16"))
    rows = prompts(6)
    gaps = []
    for row, c in zip(rows, flat(await policy.generate(rows, params(6))), strict=True):
        exact = reference(llama[1], row, c.token_ids, 0.8)
        gaps += [abs(a - b) for a, b in zip(exact, c.logprobs_T, strict=True)]
    assert 0 < sum(gaps) / len(gaps) < 0.25
    await policy.close()
    await policy.close()


async def test_ids_of_another_model_and_endless_replies_are_refused_or_cut(llama: tuple[Path, Any]) -> None:
    folder, _ = llama
    policy = LocalPolicy.from_folder(folder, tiny.serving())
    for ids in ([5, 10**6], [-1, 5]):
        with pytest.raises(InputError, match=r"token id (1000000|-1) is none of the model's, which are 0 to"):
            await policy.generate([[5], ids], SamplingParams(max_tokens=2))
        with pytest.raises(InputError, match="is none of the model's"):
            await policy.score([[5]], [ids])
    few, endless = [SamplingParams(max_tokens=n, seed=1, top_k=k) for n, k in ((20, 0), (1 << 40, 1 << 70))]
    short, long = flat(await policy.generate([[5, 6], [5, 6]], [few, endless]))
    assert long.token_ids[: len(short.token_ids)] == short.token_ids
    assert len(long.token_ids) == policy.context_length - 2 and long.stop is StopReason.CONTEXT
    await policy.close()
