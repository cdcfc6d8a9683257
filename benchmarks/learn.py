"""How fast the learners update, as ratios within one run: absolute rates depend on the machine.

    python benchmarks/learn.py [--samples 64] [--repeats 2] [--only trl,naive,settings] [--json] [--check]

One update of a random 1M-parameter Llama (vocabulary 2048) on multi-turn samples, one thread, in tokens per
CPU-second and per second of wall clock (prompt and completion tokens; padding does not count). Two kinds of
batches: all samples of one length, and lengths from 60 to 450 tokens.

    trl        the compact learner and `learner.type: trl` beside TRL's GRPOTrainer as its users write it
               (`learn_trl.py`), in the same compute type. The bar is for unequal lengths.
    naive      beside the loop one would write first: rows padded to the longest of the step, logits for every
               position, the model's default attention
    settings   attention and size of the passes of the compact learner
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from machine import Load, machine
from tabulate import tabulate

from spade.config import LearnerConfig
from spade.learn import trainer
from spade.learn.trainer import CompactLearner
from spade.types import Sample

VOCAB = 2048
ROWS = 16
"""Rows of a micro-batch of the loops that count rows."""
BAR = 1.5
"""Of the compact learner's rate over TRL's, at unequal lengths."""


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


def make_samples(n: int, length: int | None = None, seed: int = 0) -> list[Sample]:
    """Nine of ten samples are multi-turn plays (a third sampled), the rest designs (all sampled). All have
    `length` tokens, or 60 to 450."""
    rng = np.random.default_rng(seed)
    samples = []
    for i in range(n):
        total = length or int(rng.integers(60, 451))
        prompt = int(rng.integers(20, total // 2)) if length is None else length // 4
        design = i % 10 == 0
        mask = tuple(int(design or j % 30 < 10) for j in range(total - prompt))
        ids = [int(t) for t in rng.integers(0, VOCAB, total)]
        logprobs = tuple(-7.6 * m for m in mask)
        role = "designer" if design else "agent"
        advantage = float(rng.normal())
        samples.append(Sample(tuple(ids[:prompt]), tuple(ids[prompt:]), mask, logprobs, advantage, role))
    return samples


def naive_step(model: torch.nn.Module, samples: list[Sample], autocast: bool) -> None:
    """Batches of `ROWS` in the given order, padded to the longest sample, full logits, full softmax."""
    longest = max(len(s.prompt_ids) + len(s.completion_ids) for s in samples)
    for start in range(0, len(samples), ROWS):
        chunk = samples[start : start + ROWS]
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


def seconds(step: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Least wall and CPU seconds of `repeats` calls."""
    spent = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        spent.append((time.perf_counter() - wall, time.process_time() - cpu))
    return min(w for w, _ in spent), min(c for _, c in spent)


def learner_seconds(
    folder: Path, samples: list[Sample], repeats: int, attention: str = "block", **changes: object
) -> tuple[float, float]:
    """Whole `CompactLearner.step`: packing, both passes, clipped optimiser steps, metrics."""
    quiet = {"mismatch_alarm": 0.0, "ratio_alarm": 0.0, "micro_tokens": 2048}
    learner = CompactLearner(folder, LearnerConfig(**{**quiet, **changes}))  # type: ignore[arg-type]
    if attention != "block":
        learner.model.set_attn_implementation(attention)
    return seconds(lambda: learner.step(samples), repeats)


def own_trl_seconds(folder: Path, samples: list[Sample], repeats: int, autocast: str) -> tuple[float, float]:
    """Whole `TrlLearner.step`, without and with the extra pass of the importance weight."""
    from learn_trl import tokenizer

    from spade.learn.trl import TrlLearner

    tokenizer().save_pretrained(folder)
    cfg = LearnerConfig(
        type="trl", optimizer_per_role=False, autocast=autocast, tis_max=0.0, micro_tokens=2048,
        mismatch_alarm=0.0, ratio_alarm=0.0,
    )  # type: ignore[arg-type]  # fmt: skip
    learner = TrlLearner(folder, cfg, "cpu")
    try:
        return seconds(lambda: learner.step(samples), repeats)
    finally:
        learner.close()


# --- sections --------------------------------------------------------------------------------------------

Figure = tuple[str, str, int, Callable[[], tuple[float, float]]]
"""(name, name of the figure it is compared with, tokens, measurement)."""


def against_trl(folder: Path, args: argparse.Namespace) -> Iterator[Figure]:
    from learn_trl import trl_seconds

    for kind, length in (("unequal", None), ("equal", 256)):
        samples = make_samples(args.samples, length)
        tokens = sum(len(s.prompt_ids) + len(s.completion_ids) for s in samples)
        for autocast in ("off", "bf16"):
            base = f"TRL GRPOTrainer, {kind}, {autocast}"
            common = folder, samples, args.repeats

            def plain(common: Any = common, autocast: str = autocast) -> tuple[float, float]:
                return trl_seconds(*common, autocast == "bf16", ROWS)

            def compact(common: Any = common, autocast: str = autocast) -> tuple[float, float]:
                return learner_seconds(*common, autocast=autocast)

            def own(common: Any = common, autocast: str = autocast) -> tuple[float, float]:
                return own_trl_seconds(*common, autocast)

            yield base, base, tokens, plain
            yield f"compact, {kind}, {autocast}", base, tokens, compact
            yield f"learner.type=trl, {kind}, {autocast}", base, tokens, own


def against_naive(folder: Path, args: argparse.Namespace) -> Iterator[Figure]:
    from transformers import AutoModelForCausalLM

    samples = make_samples(args.samples)
    tokens = sum(len(s.prompt_ids) + len(s.completion_ids) for s in samples)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for autocast in ("off", "bf16"):
        base = f"naive, {autocast}"

        def naive(bf16: bool = autocast == "bf16") -> tuple[float, float]:
            return seconds(lambda: naive_step(model, samples, bf16), args.repeats)

        def compact(autocast: str = autocast) -> tuple[float, float]:
            return learner_seconds(folder, samples, args.repeats, autocast=autocast)

        yield base, base, tokens, naive
        yield f"compact, {autocast}", base, tokens, compact


def settings(folder: Path, args: argparse.Namespace) -> Iterator[Figure]:
    trainer.CPU_MICRO_TOKENS = 1 << 30  # what the cap was chosen by
    samples = make_samples(args.samples)
    tokens = sum(len(s.prompt_ids) + len(s.completion_ids) for s in samples)
    kinds: list[tuple[str, int]] = [("block", n) for n in (2048, 1024, 4096, 8192)]
    for autocast in ("bf16", "off"):
        base = f"compact, {autocast}, block, 2048"
        for attention, micro in [*kinds, ("sdpa", 2048), ("eager", 2048)]:

            def one(
                autocast: str = autocast, attention: str = attention, micro: int = micro
            ) -> tuple[float, float]:
                changes = {"autocast": autocast, "micro_tokens": micro}
                return learner_seconds(folder, samples, args.repeats, attention, **changes)

            yield f"compact, {autocast}, {attention}, {micro}", base, tokens, one


SECTIONS = {"trl": against_trl, "naive": against_naive, "settings": settings}


def measure(section: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of one section, each with its ratio to the figure it is compared with."""
    rows: list[dict[str, Any]] = []
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        for figure, base, tokens, run in SECTIONS[section](save_model(Path(name)), args):
            with Load() as load:
                wall, cpu = run()
            rates[figure] = tokens / cpu
            barred = section == "trl" and figure.startswith("compact, unequal")
            ratio = rates[figure] / rates[base]
            rows.append(
                {
                    "section": section,
                    "name": figure,
                    "tokens_per_cpu_second": tokens / cpu,
                    "tokens_per_second": tokens / wall,
                    "ratio": ratio,
                    "bar": BAR if barred else None,
                    "missed": barred and ratio < BAR,
                    "other_cores": round(load.others, 2),
                    "busy": load.busy,
                }
            )
            print(f"  {figure}: {ratio:.2f}", file=sys.stderr, flush=True)
    return rows


def shown(row: dict[str, Any]) -> list[str]:
    """One line of the table."""
    bar = "" if row["bar"] is None else f">= {row['bar']:g} {'missed' if row['missed'] else 'met'}"
    rates = [f"{row[key]:,.0f}" for key in ("tokens_per_cpu_second", "tokens_per_second")]
    return [row["name"], *rates, f"{row['ratio']:.2f}", bar, f"{row['other_cores']:.2f}"]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=2, help="the least of so many updates counts")
    parser.add_argument("--only", default="", help="sections by name, with commas between")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is missed or not measured")
    args = parser.parse_args()
    only = list(filter(None, args.only.split(","))) or list(SECTIONS)
    if unknown := set(only) - set(SECTIONS):
        parser.error(f"there is no section {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    left_out = []
    if "trl" in only:
        try:
            import trl  # noqa: F401
        except ModuleNotFoundError:
            left_out, only = ["trl"], [name for name in only if name != "trl"]
            print("NOT MEASURED: trl: no module trl (pip install 'spade-rl[trl]')", file=sys.stderr)
    rows = [row for name in only for row in measure(name, args)]
    facts = machine() | {"samples": args.samples, "repeats": args.repeats, "threads": 1}
    if args.json:
        print(json.dumps({"machine": facts, "figures": rows, "not_measured": left_out}, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in facts.items()))
        headers = ["update", "tokens/CPU-s", "tokens/s", "ratio", "bar", "others' cores"]
        print(tabulate([shown(row) for row in rows], headers, "github", disable_numparse=True))
    return 1 if args.check and (left_out or any(row["missed"] for row in rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
