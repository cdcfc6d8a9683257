"""A start checkpoint for the collapse experiment: the embedded model, taught to read an answer in a hint.

    python benchmarks/collapse_start.py --out runs/reader

The embedded model has only ever seen hints that name a strategy and takes no notice of others, so a hint
that gives the answer away cannot tempt its Designer. Larger models read what they are given. This adds that
one skill: supervised training goes on from the shipped weights, half on the samples of the recipe, half on
episodes whose hint is the program's own solution (`hints.source: solution`) and whose player follows it.
Corpus, mechanics and held-out split are the recipe's.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

from spade.design.hints import SOLUTION
from spade.design.prompts import agent_message
from spade.embedded.build import batches, builtin_documents, fast_bf16, loss_of
from spade.embedded.mechanics import load, sample_program
from spade.embedded.samples import TEMPLATE, Encoded, SampleMaker
from spade.embedded.tokenizer import save_tokenizer
from spade.types import Message

SHARE = 0.5
"""Episodes with an answer among all samples."""
TOKENS = 200_000
LR = 1e-3
LR_END = 0.05
BATCH_TOKENS = 1600


class ReaderSamples(SampleMaker):
    """The recipe's samples, and episodes with the answer as hint."""

    def draw(self) -> Encoded:
        """One sample of a random kind."""
        if self.rng.random() < SHARE:
            return self.encode(self.answered(), "answered")
        return super().draw()

    def answered(self) -> list[Message]:
        """A game of the corpus, opened with its solution and played by it."""
        sampled = sample_program(self.rng)
        env = load(sampled.code)
        first, _ = env.reset(self.rng.randrange(2**31))
        solution = env.solution()
        plan = [solution] if isinstance(solution, str) else solution
        actions = [self.codec.wrap(action) for action in plan]
        messages = [agent_message(first, SOLUTION.format(" ".join(actions)), TEMPLATE)]
        for action in actions:
            reply, _, terminated, truncated, _ = env.step(action)
            messages += [Message("assistant", action), Message("user", reply)]
            if terminated or truncated:
                break
        return messages[:-1]


def teach(model: Any, maker: SampleMaker, tokens: int, seed: int) -> None:
    """Supervised training on the assistant's tokens, the learning rate falling linearly."""
    import torch

    optimiser = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.01)
    mean = 0.0
    for step, (group, drawn) in enumerate(batches(maker, random.Random(seed), tokens, BATCH_TOKENS), 1):
        scale = 1 - (1 - LR_END) * min(1.0, drawn / tokens)
        for row in optimiser.param_groups:
            row["lr"] = LR * scale
        with torch.autocast("cpu", torch.bfloat16, enabled=fast_bf16()):
            loss = loss_of(model, group, every_token=False)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        mean = 0.95 * mean + 0.05 * float(loss.detach()) if step > 1 else float(loss.detach())
        if step % 50 == 0:
            print(f"step {step}  {drawn:,} of {tokens:,} tokens  loss {mean:.3f}", flush=True)


def main() -> None:
    """Write the checkpoint."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    start = Path(load_start())
    tokenizer = AutoTokenizer.from_pretrained(start)
    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    teach(model, ReaderSamples(tokenizer, builtin_documents(), args.seed), args.tokens, args.seed + 1)
    args.out.mkdir(parents=True, exist_ok=True)
    model.float().save_pretrained(str(args.out), safe_serialization=True)
    save_tokenizer(tokenizer, args.out)


def load_start() -> str:
    """Folder of the embedded model."""
    from spade.serving.launch import resolve_ref

    return str(resolve_ref("embedded").path)


if __name__ == "__main__":
    main()
