"""Share of a training run's wall time in which no model work runs, and who uses the processor.

    python benchmarks/idle.py                                        # the embedded model, ten steps of `demo`
    python benchmarks/idle.py demo train.staleness=1 train.steps=10  # one step off: update beside generation
    python benchmarks/idle.py smollm2-plays --bar 0.10               # SmolLM2-135M, fetched before

Runs the training loop as `spade train CONFIG key=value ...` does, in a temporary folder, and notes when the
engine's thread computes (sampling, scoring) and when the learner does (the update, and the entropies of the
lens). *Idle* is the wall time between the first and the last of these spans in which none is open: design
validation, steps of the environments, Python between turns, checkpoints, weights on their way to the engine.
Each idle second is put down to the stage that had begun last. Loading the models and evaluating come before
and after, and do not count. Processor seconds come beside: engine, learner, the rest of the process, and the
sandbox's workers. On a busy machine a span lasts longer than its work, and so does a gap; the processor
seconds hold. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from machine import Load, machine, tree_seconds

LONGEST = 8
"""Gaps that are listed one by one."""


class Spans:
    """When calls of watched methods were under way, and the processor time of their threads; and when stages
    of the run were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.spans: list[tuple[float, float]] = []
        self.stages: list[tuple[float, float, str]] = []
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.before: tuple[float, float] | None = None
        """CPU seconds of the process, and of it with its children, when the first span began."""

    def watch(self, owner: type, method: str, name: str) -> None:
        """Note every call of a method from now on."""
        inner: Callable[..., Any] = getattr(owner, method)

        def timed(*args: Any, **more: Any) -> Any:
            if self.before is None:
                self.before = time.process_time(), tree_seconds(os.getpid())
            start, cpu = time.perf_counter(), time.thread_time()
            try:
                return inner(*args, **more)
            finally:
                end, used = time.perf_counter(), time.thread_time() - cpu
                with self._lock:
                    self.spans.append((start, end))
                    self.wall[name] = self.wall.get(name, 0.0) + end - start
                    self.cpu[name] = self.cpu.get(name, 0.0) + used

        setattr(owner, method, timed)

    def watch_stages(self, ledger: type) -> None:
        """Note every stage that a ledger times from now on."""
        inner: Callable[..., Any] = ledger.phase  # type: ignore[attr-defined]

        @contextmanager
        def timed(itself: Any, name: str) -> Iterator[None]:
            start = time.perf_counter()
            try:
                with inner(itself, name):
                    yield
            finally:
                self.stages.append((start, time.perf_counter(), name))

        ledger.phase = timed  # type: ignore[attr-defined]

    def gaps(self) -> list[tuple[float, float, str]]:
        """Times between the first and the last span in which none was open, with the stage that had begun
        last; cut where stages begin and end."""
        found: list[tuple[float, float]] = []
        spans = sorted(self.spans)
        until = spans[0][1]
        for start, end in spans:
            if start > until:
                found.append((until, start))
            until = max(until, end)
        edges = sorted({edge for start, end, _ in self.stages for edge in (start, end)})
        out: list[tuple[float, float, str]] = []
        for begin, end in found:
            cuts = [begin, *(e for e in edges if begin < e < end), end]
            out += [(a, b, self._stage((a + b) / 2)) for a, b in pairwise(cuts)]
        return out

    def _stage(self, at: float) -> str:
        return max(((s, name) for s, e, name in self.stages if s <= at < e), default=(0.0, "between"))[1]

    def whole(self) -> float:
        """From the first beginning to the last end."""
        return max(e for _, e in self.spans) - min(s for s, _ in self.spans)


def watched() -> Spans:
    """Spans of everything that computes with a model here, from now on: the engine, the learner's update, and
    the passes of the learner that the entropy lens asks for."""
    from spade.learn.trainer import CompactLearner
    from spade.serving.running import Rows
    from spade.serving.slots import SlotEngine
    from spade.train.ledger import Ledger

    spans = Spans()
    spans.watch(Rows, "advance", "generate")
    spans.watch(SlotEngine, "score", "score")
    spans.watch(CompactLearner, "step", "learn")
    spans.watch(CompactLearner, "entropies", "lens")
    spans.watch_stages(Ledger)
    return spans


def measure(config: str, overrides: list[str]) -> dict[str, Any]:
    """Train and return the split."""
    from spade.config_load import load_config
    from spade.interrupt import StopFlag
    from spade.runs import RunFolder
    from spade.train.loop import run_training

    spans = watched()
    with tempfile.TemporaryDirectory() as scratch:
        cfg = load_config(config, [*overrides, f"out={scratch}/run"])
        folder = RunFolder.create_or_resume(cfg, "train", "benchmarks/idle.py")
        with Load() as load, StopFlag() as stop:
            summary = run_training(cfg, folder, stop)
        before = spans.before or (0.0, 0.0)
        own, tree = time.process_time() - before[0], tree_seconds(os.getpid()) - before[1]
        rows = [json.loads(line) for line in (Path(scratch) / "run" / "metrics.jsonl").open()]
    phases: dict[str, float] = {}
    for row in rows:
        for key, value in row.items():
            if key.startswith("seconds/"):
                phases[key] = phases.get(key, 0.0) + value
    model = sum(spans.cpu.values())
    return {
        "config": config, "overrides": overrides, "steps": summary["steps"],
        "sampled_tokens": summary["total_tokens"], "wall_seconds": round(spans.whole(), 2),
        **idleness(spans),
        "wall_by_stage": {k: round(v, 2) for k, v in {**spans.wall, **phases}.items()},
        "cpu_seconds": {
            **{k: round(v, 2) for k, v in spans.cpu.items()},
            "rest of the process": round(max(0.0, own - model), 2),
            "sandbox": round(max(0.0, tree - own), 2),
        },
        "model_share_of_cpu": round(model / tree, 3),
        "others_cores": round(load.others, 2),
    }  # fmt: skip


def idleness(spans: Spans) -> dict[str, Any]:
    """The idle share, the seconds of it by stage, and the longest gaps with the second they began at."""
    gaps = spans.gaps()
    by_stage: dict[str, float] = {}
    for start, end, stage in gaps:
        by_stage[stage] = by_stage.get(stage, 0.0) + end - start
    first = min(start for start, _ in spans.spans)
    return {
        "idle_share": round(sum(by_stage.values()) / spans.whole(), 4),
        "idle_by_stage": {k: round(v, 2) for k, v in sorted(by_stage.items(), key=lambda row: -row[1])},
        "longest_gaps": [
            {"at": round(s - first, 2), "seconds": round(e - s, 2), "stage": stage}
            for s, e, stage in sorted(gaps, key=lambda gap: gap[0] - gap[1])[:LONGEST]
        ],
    }


def markdown(row: dict[str, Any]) -> str:
    """The lines of `docs/performance.md`."""
    cpu = ", ".join(f"{name} {value}" for name, value in row["cpu_seconds"].items())
    gaps = ", ".join(f"{name} {value}" for name, value in row["idle_by_stage"].items() if value >= 0.1)
    return "\n".join(
        [
            "| run | steps | wall | no model work | in it | CPU seconds | model's share | others' cores |",
            "|---|---|---|---|---|---|---|---|",
            f"| `{' '.join([row['config'], *row['overrides']])}` | {row['steps']} | {row['wall_seconds']} s "
            f"| {100 * row['idle_share']:.1f} % | {gaps} | {cpu} | {100 * row['model_share_of_cpu']:.0f} % "
            f"| {row['others_cores']} |",
        ]
    )


def main() -> int:
    """Measure and print; 1 if the bar is missed."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("config", nargs="?", default="demo")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--bar", type=float, default=0.35, help="largest idle share")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    overrides = args.overrides
    if args.config == "demo" and not any(o.startswith("train.steps=") for o in overrides):
        overrides = [*overrides, "train.steps=10"]
    row = measure(args.config, [*overrides, "eval.at_end=false"])
    row |= {"machine": machine(), "bar": args.bar}
    print(markdown(row) if args.markdown else json.dumps(row, indent=2))
    return int(row["idle_share"] > args.bar)


if __name__ == "__main__":
    sys.exit(main())
