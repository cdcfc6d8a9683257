"""On one NVIDIA GPU: rollout rate of the built-in engine, and how much of the card an update uses.

    python benchmarks/gpu.py                                  # Qwen3-0.6B and Qwen3-4B shapes, random weights
    python benchmarks/gpu.py --shapes 0.6b --seconds 240 --json
    python benchmarks/gpu.py --shapes tiny --device cpu       # tries the script itself

Weights are random and in bfloat16: rates do not depend on what they say. *Rollout*: prompts of 512 tokens,
eight plays of each sharing its cache, 128 sampled tokens a row, through `LocalPolicy`. *Update*: forward,
backward and AdamW (fused) over packed rows of 1,024 tokens, attention by PyTorch's flash kernels, with and
without `torch.compile`; MFU counts 6 operations a weight and token plus attention, over the peak that a large
matrix product reaches on the same card in the same run. Stops starting new parts when `--seconds` are over.
Without a GPU it says what it would measure, and ends with 0.
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
from typing import Any

SHAPES: dict[str, dict[str, Any]] = {
    "0.6b": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                 num_key_value_heads=8, head_dim=128, vocab_size=151936, tie_word_embeddings=True),
    "4b": dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32,
               num_key_value_heads=8, head_dim=128, vocab_size=151936, tie_word_embeddings=True),
    "tiny": dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=16, vocab_size=512, tie_word_embeddings=True),
}  # fmt: skip
"""The published sizes of Qwen3-0.6B and Qwen3-4B, and one to try the script with."""


class Bench:
    """What is measured at one shape on one device."""

    def __init__(self, shape: str, device: str, ends: float) -> None:
        import torch

        self.name, self.shape, self.ends = shape, SHAPES[shape], ends
        self.device = torch.device(device)
        self.small = shape == "tiny"
        self.rows: list[dict[str, Any]] = []

    def say(self, what: str, value: float, unit: str, **more: Any) -> None:
        """Note a figure and print it at once: a run that is cut short has shown what it found."""
        row = {"shape": self.name, "what": what, "value": round(value, 4), "unit": unit, **more}
        self.rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)

    def left(self) -> bool:
        """Whether there is time for another part."""
        return time.perf_counter() < self.ends

    def seconds(self, work: Callable[[], object], repeats: int) -> float:
        """Least wall time of `repeats` calls, after one to warm up."""
        import torch

        times = []
        for i in range(repeats + 1):
            start = time.perf_counter()
            work()
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            if i:
                times.append(time.perf_counter() - start)
        return min(times)

    def model(self) -> Any:
        """Random weights, made where they are used."""
        import torch
        from transformers import Qwen3Config, Qwen3ForCausalLM

        torch.manual_seed(0)
        with self.device:
            config = Qwen3Config(**self.shape, max_position_embeddings=4096, attn_implementation="sdpa")
            return Qwen3ForCausalLM(config).to(torch.bfloat16)

    def peak(self) -> float:
        """Operations per second of a large bfloat16 matrix product."""
        import torch

        n = 256 if self.small else 8192
        a = torch.randn(n, n, device=self.device, dtype=torch.bfloat16)
        return 2 * n**3 / self.seconds(lambda: a @ a, 10)

    def rollout(self, folder: Path) -> None:
        """Sampled tokens per second of `LocalPolicy`, prompts included, at several numbers of rows."""
        from spade.config import ServingConfig
        from spade.serving.local import LocalPolicy
        from spade.serving.policy import SamplingParams

        prompt, new = (32, 8) if self.small else (512, 128)
        sizes = (8,) if self.small else (8, 64, 256)
        cfg = {
            "device": self.device.type,
            "dtype": "bfloat16",
            "max_rows": max(sizes),
            "deterministic": False,
        }
        policy = LocalPolicy.from_folder(folder, ServingConfig.model_validate(cfg))
        loop = asyncio.new_event_loop()
        for rows in sizes:
            if not self.left():
                break
            prompts = [[(7 * i + 13 * j) % 500 + 8 for j in range(prompt)] for i in range(rows // 8)]

            def work(prompts: list[list[int]] = prompts) -> None:
                loop.run_until_complete(policy.sleep())
                loop.run_until_complete(policy.generate(prompts, SamplingParams(max_tokens=new), n=8))

            took = self.seconds(work, 2)
            self.say(f"rollout, {rows} rows", rows * new / took, "tokens/s", prompt=prompt, new=new)
        loop.run_until_complete(policy.close())

    def update(self, peak: float) -> None:
        """Tokens per second and MFU of an update, with and without compilation."""
        import torch
        import torch.nn.functional as F

        length, batches = (64, (2,)) if self.small else (1024, (4, 16))
        model = self.model()
        if self.name == "4b":
            model.gradient_checkpointing_enable()
        fused = self.device.type == "cuda"
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=fused)
        weights = sum(p.numel() for p in model.parameters())
        inner = self.shape["num_attention_heads"] * self.shape["head_dim"] * self.shape["num_hidden_layers"]
        for compiled in (False, True):
            if compiled and not self.small:
                model.compile()
            for rows in batches:
                if not self.left() or (compiled and self.small):
                    continue
                ids = torch.randint(8, 500, (rows, length), device=self.device)

                def work(ids: torch.Tensor = ids) -> None:
                    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
                    loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)

                try:
                    took = self.seconds(work, 3)
                except torch.OutOfMemoryError:
                    print(f"{self.name}: {rows} rows do not fit", file=sys.stderr)
                    continue
                flops = rows * length * (6 * weights + 6 * inner * length)
                more = {"mfu": round(flops / took / peak, 4), "compiled": compiled, "length": length}
                self.say(f"update, {rows} rows", rows * length / took, "tokens/s", **more)

    def run(self) -> None:
        """Everything there is time for."""
        peak = self.peak()
        self.say("matrix product", peak / 1e12, "TFLOP/s")
        if self.left():
            with tempfile.TemporaryDirectory() as scratch:
                model = self.model()
                model.save_pretrained(scratch)
                del model
                self.rollout(Path(scratch))
        if self.left():
            self.update(peak)


def main() -> int:
    """Measure and print one JSON document."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["0.6b", "4b"])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=float, default=480, help="no new part begins after this time")
    parser.add_argument("--json", action="store_true", help="print the figures as one document at the end")
    args = parser.parse_args()
    import torch

    if args.device == "cuda" and not torch.cuda.is_available():
        print(f"No CUDA device here. On one, this measures for {', '.join(args.shapes)}:")
        print("  the peak of a large bfloat16 matrix product;")
        print("  rollout tokens per second at 8, 64 and 256 rows (512-token prompts, 128 new tokens);")
        print("  update tokens per second and MFU at 4 and 16 rows of 1,024 tokens, plain and compiled.")
        return 0
    card = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    ends = time.perf_counter() + args.seconds
    rows = []
    for shape in args.shapes:
        bench = Bench(shape, args.device, ends)
        bench.run()
        rows += bench.rows
        del bench
        if args.device == "cuda":
            torch.cuda.empty_cache()
    if args.json:
        print(json.dumps({"card": card, "torch": torch.__version__, "figures": rows}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
