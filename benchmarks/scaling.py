"""Cost against work: tokens per CPU-second and memory of the built-in engine as the work grows.

    python benchmarks/scaling.py --out results/tables/scaling        # the embedded model; JSON, table, plot
    python benchmarks/scaling.py --model smollm2-135m --rows 1 4 16 --turns 1 4 --environments 1 2

Three series, one grown at a time, on one core and one thread: rows decoded together (64-token prompts, 32 new
tokens each), turns of an episode (16 episodes that share a beginning of 100 tokens; a turn is a reply of 8
and an observation of 16), and environments (16 episodes of four turns each, all rows at once up to
`--max-rows`). Memory is that of the key-value cache; the JSON has the growth of the process beside it.
*Cost* is the processor time of a token, computed or sampled, by that of the first point of the series: 1 is
linear. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from machine import Load, machine

HEAD, OWN, REPLY, SEEN = 100, 12, 8, 16


@dataclass(slots=True)
class Point:
    """One measurement. `linear` is CPU time a token, by that of the first point of the series."""

    series: str
    size: int
    sampled: int
    prefilled: int
    cpu: float
    wall: float
    cache_mib: float
    process_mib: float
    linear: float = 1.0


class Bench:
    """One model on one core."""

    def __init__(self, folder: Path, max_rows: int, repeats: int) -> None:
        from spade.config import ServingConfig
        from spade.serving.local import LocalPolicy

        cfg = ServingConfig.model_validate({"device": "cpu", "max_rows": max_rows, "deterministic": False})
        self.policy = LocalPolicy.from_folder(folder, cfg)
        self.engine: Any = self.policy._engine
        self.loop, self.repeats = asyncio.new_event_loop(), repeats
        self.empty = resident()

    def turn(self, rows: Sequence[list[int]], new: int) -> list[list[int]]:
        """One call: every row is continued by `new` tokens."""
        from spade.serving.policy import SamplingParams

        out = self.loop.run_until_complete(self.policy.generate(rows, SamplingParams(max_tokens=new)))
        return [list(c.token_ids) for (c,) in out]

    def ids(self, rng: random.Random, count: int) -> list[int]:
        """Random tokens."""
        return rng.choices(range(8, self.engine.vocab), k=count)

    def batch(self, rows: int, rng: random.Random) -> None:
        """Prompts of 64 tokens, 32 new ones each."""
        self.turn([self.ids(rng, 64) for _ in range(rows)], 32)

    def episodes(self, environments: int, turns: int, rng: random.Random) -> None:
        """Conversations that grow, 16 from each beginning."""
        rows = [
            [*head, *self.ids(rng, OWN)]
            for head in [self.ids(rng, HEAD) for _ in range(environments)]
            for _ in range(16)
        ]
        for _ in range(turns):
            replies = self.turn(rows, REPLY)
            rows = [[*r, *a, *self.ids(rng, SEEN)] for r, a in zip(rows, replies, strict=True)]

    def point(self, series: str, size: int) -> Point:
        """The best of the repeats, caches emptied before each."""
        best: Point | None = None
        for salt in range(self.repeats):
            self.loop.run_until_complete(self.policy.sleep())
            rng, stats = random.Random(1000 * size + salt), self.policy.stats
            sampled, prefilled = stats.sampled_tokens, stats.prefilled_tokens
            wall, cpu = time.perf_counter(), time.process_time()
            if series == "rows":
                self.batch(size, rng)
            else:
                self.episodes(*((1, size) if series == "turns" else (size, 4)), rng)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            if best is None or cpu < best.cpu:
                arena = self.engine.arena
                cache = arena.slots * arena.columns * arena.bytes_per_token / 2**20
                done = stats.sampled_tokens - sampled, stats.prefilled_tokens - prefilled
                best = Point(series, size, *done, cpu, wall, cache, resident() - self.empty)
        assert best is not None
        return best


def resident() -> float:
    """MiB of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def linearity(points: Sequence[Point]) -> None:
    """Fill in `linear`; the cost of a point is all its tokens, computed or sampled."""
    first: dict[str, float] = {}
    for p in points:
        each = p.cpu / (p.sampled + p.prefilled)
        p.linear = each / first.setdefault(p.series, each)


def table(points: Sequence[Point]) -> str:
    """Markdown."""
    lines = [
        "| series | size | sampled | prefilled | sampled per CPU-s | all per CPU-s | cache MiB | cost |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for p in points:
        rates = f"{p.sampled / p.cpu:,.0f} | {(p.sampled + p.prefilled) / p.cpu:,.0f}"
        head = f"| {p.series} | {p.size} | {p.sampled:,} | {p.prefilled:,} | {rates}"
        lines.append(f"{head} | {p.cache_mib:.1f} | {p.linear:.2f} |")
    return "\n".join(lines)


def plot(points: Sequence[Point], path: Path) -> None:
    """Rates and memory over the size of the work, a panel a series."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(p.series for p in points))
    figure, axes = plt.subplots(1, len(names), figsize=(4 * len(names), 3), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        mine = [p for p in points if p.series == name]
        sizes = [p.size for p in mine]
        axis.plot(sizes, [(p.sampled + p.prefilled) / p.cpu for p in mine], "o-", label="all tokens")
        axis.plot(sizes, [p.sampled / p.cpu for p in mine], "s-", label="sampled tokens")
        axis.set_xscale("log", base=2)
        axis.set_xlabel(name)
        axis.set_ylabel("tokens per CPU-second")
        axis.set_ylim(bottom=0)
        memory = axis.twinx()
        memory.plot(sizes, [p.cache_mib for p in mine], "^--", color="grey", label="cache, MiB")
        memory.set_ylim(bottom=0)
        memory.set_ylabel("cache, MiB")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> int:
    """Measure, print the table, and write it with the plot when `--out` is given."""
    from spade.serving.launch import resolve_ref

    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32, 64, 128, 192])
    parser.add_argument("--turns", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--environments", type=int, nargs="*", default=[1, 2, 4, 8, 16])
    parser.add_argument("--max-rows", type=int, default=192)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="folder for scaling.json, scaling.md and scaling.svg")
    args = parser.parse_args()
    folder = resolve_ref(args.model).path
    if folder is None:
        print(f"{args.model} is no checkpoint that can be served here.", file=sys.stderr)
        return 2
    os.sched_setaffinity(0, {args.core})
    bench = Bench(folder, args.max_rows, args.repeats)
    bench.batch(4, random.Random(0))
    todo = [("rows", n) for n in args.rows] + [("turns", n) for n in args.turns]
    todo += [("environments", n) for n in args.environments]
    points = []
    with Load() as load:
        for series, size in todo:
            points.append(bench.point(series, size))
            print(f"{series} {size}: {points[-1].cpu:.2f} CPU-s", file=sys.stderr, flush=True)
    linearity(points)
    where = {**machine(), "model": args.model, "others_cores": round(load.others, 2)}
    print(json.dumps(where), "\n", table(points), sep="\n")
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        document = {"machine": where, "points": [asdict(p) for p in points]}
        (args.out / "scaling.json").write_text(json.dumps(document, indent=1) + "\n")
        (args.out / "scaling.md").write_text(f"{json.dumps(where)}\n\n{table(points)}\n")
        plot(points, args.out / "scaling.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
