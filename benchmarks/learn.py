"""How fast the compact learner is, as ratios within one run: absolute rates depend on the machine.

    python benchmarks/learn.py [--samples 220] [--repeats 2]

One update of a random 1M-parameter Llama (vocabulary 2048) on multi-turn samples of 60 to 450 tokens, single
threaded, in tokens per CPU-second (prompt and completion tokens; padding does not count). The baseline is
the loop one would write first: all rows of a batch padded to the longest of the step, logits for every
position, the model's default attention.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from spade.config import LearnerConfig
from spade.learn import trainer
from spade.learn.trainer import CompactLearner
from spade.types import Sample

VOCAB = 2048


def save_model(folder: Path) -> Path:
    """A random Llama of 0.96M parameters with one key-value head and tied embeddings."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
        max_position_embeddings=1024,
    )
    disable_progress_bar()
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def make_samples(n: int, seed: int = 0) -> list[Sample]:
    """Nine of ten samples are multi-turn plays (a third sampled), the rest designs (all sampled)."""
    rng = np.random.default_rng(seed)
    samples = []
    for i in range(n):
        total = int(rng.integers(60, 451))
        prompt = int(rng.integers(20, total // 2))
        design = i % 10 == 0
        mask = tuple(int(design or j % 30 < 10) for j in range(total - prompt))
        ids = [int(t) for t in rng.integers(0, VOCAB, total)]
        logprobs = tuple(-7.6 * m for m in mask)
        role = "designer" if design else "agent"
        advantage = float(rng.normal())
        samples.append(Sample(tuple(ids[:prompt]), tuple(ids[prompt:]), mask, logprobs, advantage, role))
    return samples


def naive_step(model: torch.nn.Module, samples: list[Sample], rows: int, autocast: bool) -> None:
    """Batches of `rows` in the given order, padded to the longest sample, full logits, full softmax."""
    longest = max(len(s.prompt_ids) + len(s.completion_ids) for s in samples)
    for start in range(0, len(samples), rows):
        chunk = samples[start : start + rows]
        ids, mask = (torch.zeros(len(chunk), longest, dtype=torch.long) for _ in range(2))
        attention = torch.zeros_like(ids)
        for b, s in enumerate(chunk):
            p, end = len(s.prompt_ids), len(s.prompt_ids) + len(s.completion_ids)
            ids[b, :end] = torch.tensor(s.prompt_ids + s.completion_ids)
            mask[b, p:end] = torch.tensor(s.mask)
            attention[b, :end] = 1
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = model(input_ids=ids, attention_mask=attention, use_cache=False).logits
        logprobs = torch.log_softmax(logits[:, :-1].float(), -1).gather(-1, ids[:, 1:, None])[..., 0]
        advantages = torch.tensor([s.advantage for s in chunk])[:, None]
        torch.autograd.backward(-(logprobs * advantages * mask[:, 1:]).sum() / len(samples))


def rate(step: Callable[[], object], tokens: int, repeats: int) -> float:
    """Best tokens per CPU-second of `repeats` calls."""
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        step()
        best = min(best, time.process_time() - started)
    return tokens / best


def learner_rate(
    folder: Path, samples: list[Sample], repeats: int, attention: str, **changes: object
) -> float:
    """Whole `CompactLearner.step`: packing, both passes, two clipped optimiser steps, metrics."""
    cfg = LearnerConfig(**changes)  # type: ignore[arg-type]
    trainer.CPU_MICRO_TOKENS = 1 << 30  # the benchmark is what the cap was chosen by
    learner = CompactLearner(folder, cfg)
    if attention != "block":
        learner.model.set_attn_implementation(attention)
    tokens = sum(len(s.prompt_ids) + len(s.completion_ids) for s in samples)
    return rate(lambda: learner.step(samples), tokens, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=220)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    samples = make_samples(args.samples)
    tokens = sum(len(s.prompt_ids) + len(s.completion_ids) for s in samples)
    print(f"{len(samples)} samples, {tokens} tokens, {sum(sum(s.mask) for s in samples)} sampled", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = save_model(Path(name))
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        base = rate(lambda: naive_step(model, samples, 16, True), tokens, args.repeats)
        report("naive, bf16", base, base)
        report("naive, fp32", rate(lambda: naive_step(model, samples, 16, False), tokens, args.repeats), base)
        for autocast in ("bf16", "off"):
            for attention in ("block", "sdpa", "eager"):
                got = learner_rate(
                    folder, samples, args.repeats, attention, autocast=autocast, micro_tokens=2048
                )
                report(f"learner, {autocast}, {attention}, 2048", got, base)
        for micro in (1024, 4096, 8192):
            got = learner_rate(folder, samples, args.repeats, "block", autocast="bf16", micro_tokens=micro)
            report(f"learner, bf16, block, {micro}", got, base)


def report(name: str, got: float, base: float) -> None:
    print(f"{name:34s} {got:8.0f} tokens per CPU-s   {got / base:5.2f} x naive", flush=True)


if __name__ == "__main__":
    main()
