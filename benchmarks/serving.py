"""Generation speed of `LocalPolicy` against `transformers` generate, as ratios measured in one run.

    python benchmarks/serving.py                      # a random 1M-parameter Llama
    python benchmarks/serving.py --model FOLDER --rows 32 --repeats 2

Rates are sampled tokens per CPU-second of this process on one thread: wall clock says little on a shared
machine. Compare ratios, not rates. `episodes` plays turns that extend the row (a short reply, a short
observation) and counts sampled tokens; `re-prefill` is the same without reuse of the key-value cache.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from spade.config import ServingConfig
from spade.serving.local import LocalPolicy
from spade.serving.policy import SamplingParams


def write_model(folder: Path, hidden: int = 128, layers: int = 5) -> None:
    """A random Llama of about 1.1M parameters (vocabulary 1024, one key-value head)."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 32, num_key_value_heads=1, max_position_embeddings=1024,
        tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)


def best(repeats: int, work: Callable[[], int]) -> float:
    """Highest rate (tokens per CPU-second) of `repeats` runs."""
    rates = []
    for _ in range(repeats):
        start = time.process_time()
        tokens = work()
        rates.append(tokens / (time.process_time() - start))
    return max(rates)


def prompts(rows: int, length: int, vocab: int, salt: int) -> list[list[int]]:
    """Random prompts (rows, length), different for each salt."""
    gen = torch.Generator().manual_seed(salt)
    return torch.randint(3, vocab, (rows, length), generator=gen).tolist()


def run_ours(folder: Path, dtype: str, args: argparse.Namespace) -> dict[str, float]:
    """Rates of `LocalPolicy`."""
    cfg = ServingConfig.model_validate({"device": "cpu", "dtype": dtype, "max_rows": args.rows})
    policy = LocalPolicy.from_folder(folder, cfg)
    vocab = policy._engine.vocab
    salt = 0

    def generate() -> int:
        nonlocal salt
        salt += 1
        params = [SamplingParams(max_tokens=args.new, seed=i) for i in range(args.rows)]
        out = asyncio.run(policy.generate(prompts(args.rows, args.prompt, vocab, salt), params))
        return sum(len(c.token_ids) for (c,) in out)

    def episodes(reuse: bool) -> int:
        nonlocal salt
        salt += 1
        rows, total = prompts(args.rows, 60, vocab, salt), 0
        for turn in range(5):
            if not reuse:
                asyncio.run(policy.sleep())
            params = [SamplingParams(max_tokens=2 + (i + turn) % 5, seed=i) for i in range(len(rows))]
            out = asyncio.run(policy.generate(rows, params))
            total += sum(len(c.token_ids) for (c,) in out)
            seen = prompts(args.rows, 15, vocab, salt + 1000 * turn)
            rows = [[*r, *c.token_ids, *s] for r, (c,), s in zip(rows, out, seen, strict=True)]
        return total

    return {
        "generate": best(args.repeats, generate),
        "episodes": best(args.repeats, lambda: episodes(True)),
        "episodes re-prefill": best(args.repeats, lambda: episodes(False)),
    }


def run_transformers(folder: Path, dtype: str, args: argparse.Namespace) -> dict[str, float]:
    """Rate of `model.generate` with sampling, on the same shapes."""
    from transformers import AutoModelForCausalLM

    kind = torch.float32 if dtype == "float32" else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=kind).eval()
    salt = 0

    def generate() -> int:
        nonlocal salt
        salt += 1
        ids = torch.tensor(prompts(args.rows, args.prompt, model.config.vocab_size, salt))
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=args.new,
            min_new_tokens=args.new, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        return int(out[:, ids.shape[1] :].numel())

    with torch.inference_mode():
        return {"generate": best(args.repeats, generate)}


def main() -> int:
    """Print one JSON object with rates and ratios."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--model", type=Path, help="checkpoint folder; default: a random 1M Llama")
    parser.add_argument("--rows", type=int, default=192)
    parser.add_argument("--prompt", type=int, default=128, help="prompt tokens")
    parser.add_argument("--new", type=int, default=64, help="sampled tokens")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, object] = {"rows": args.rows, "prompt": args.prompt, "new": args.new}
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.model or Path(scratch)
        if args.model is None:
            write_model(folder)
        for dtype in args.dtype:
            ours, theirs = run_ours(folder, dtype, args), run_transformers(folder, dtype, args)
            report[dtype] = {
                "tokens per CPU-second": {k: round(v) for k, v in ours.items()},
                "transformers generate": round(theirs["generate"]),
                "ratio": round(ours["generate"] / theirs["generate"], 2),
            }
    json.dump(report, sys.stdout, indent=2)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
