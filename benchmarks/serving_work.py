"""What the serving benchmark asks of every engine, and how the answer is timed. Standard library only.

An engine is anything with `generate(prompts, counts)`: sample exactly `counts[i]` tokens at temperature 1
after each prompt (token ids in, token ids out), whatever they are. It may keep what it likes between calls.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from typing import Protocol

from machine import tree_seconds

Ids = list[int]


class Generator(Protocol):
    """An engine under test."""

    def generate(self, prompts: Sequence[Ids], counts: Sequence[int]) -> list[Ids]:
        """Continue every prompt by `counts[i]` sampled tokens."""
        ...


def prompts(rows: int, length: int, vocab: int, salt: int) -> list[Ids]:
    """Random prompts (rows, length), different for each salt. Ids 0 to 7 are left to special tokens."""
    rng = random.Random(salt)
    return [[rng.randrange(8, vocab) for _ in range(length)] for _ in range(rows)]


def batch(engine: Generator, work: dict[str, int], salt: int) -> int:
    """`rows` prompts of `prompt` tokens, `new` tokens each; returns the tokens sampled."""
    given = prompts(work["rows"], work["prompt"], work["vocab"], salt)
    return sum(map(len, engine.generate(given, [work["new"]] * work["rows"])))


def episodes(engine: Generator, work: dict[str, int], salt: int) -> int:
    """`environments` x 16 plays of `turns` turns. The plays of an environment share its description.

    A first message is `prompt` tokens plus 12 of its own, a reply 4 to 12 tokens, an observation 16.
    Returns the tokens sampled.
    """
    rng = random.Random(salt)
    vocab, total = work["vocab"], 0
    rows = [
        [*shared, *own]
        for e, shared in enumerate(prompts(work["environments"], work["prompt"], vocab, salt))
        for own in prompts(16, 12, vocab, salt + 7919 * (e + 1))
    ]
    for turn in range(work["turns"]):
        counts = [rng.randrange(4, 13) for _ in rows]
        replies = engine.generate(rows, counts)
        total += sum(map(len, replies))
        seen = prompts(len(rows), 16, vocab, salt + 104729 * (turn + 1))
        rows = [[*row, *reply, *saw] for row, reply, saw in zip(rows, replies, seen, strict=True)]
    return total


KINDS = {"batch": batch, "episodes": episodes}


def timed(engine: Generator, work: dict[str, int], salt: int) -> dict[str, float]:
    """Run one piece of work: tokens sampled, wall seconds, CPU seconds of this process and its children."""
    wall, cpu = time.perf_counter(), tree_seconds(os.getpid())
    own = time.process_time()
    tokens = KINDS[str(work["kind"])](engine, work, salt)
    fine = time.process_time() - own
    whole = tree_seconds(os.getpid()) - cpu
    # The process' own clock is finer; the tree's counts helpers. They differ by more than a tick only there.
    seconds = whole if whole > fine + 0.05 else fine
    return {"tokens": tokens, "wall": time.perf_counter() - wall, "cpu": seconds}
