"""Size of a run's report, and the time to build it, for a run of 400 steps.

    python benchmarks/report.py [--steps 400] [--size demo|full] [--json]

The run is made up, row by row as a run writes them: the measured metrics of a finished demo over and over,
programs and verdicts of the shipped pool with other ids, plays and token streams of two sizes. `demo` has the
short texts of the embedded model; `full` those of published runs: 24 designs every fourth step, programs of
300 lines, eight turns of 400 characters, and the 2,000 tokens a play that a run keeps. Bars: 20 MB, and 20 s
with reading.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any, TextIO

from machine import Load, machine

from spade.cli.report import _comparison, _documents
from spade.config_load import load_config
from spade.files import read_jsonl, write_json
from spade.report.html import write_page
from spade.report.run_data import read_run
from spade.runs import RunFolder
from spade.train.token_rows import MAX_TOKENS
from spade_baselines.pool_refs import SHIPPED

ROOT = Path(__file__).resolve().parents[1]
METRICS = ROOT / "results" / "runs" / "demo" / "demo-s0" / "metrics.jsonl"
BAR_MB, BAR_SECONDS = 20.0, 20.0
SIZES: dict[str, dict[str, int]] = {
    "demo": {"lines": 0, "turns": 3, "chars": 40, "tokens": 30, "plays": 16, "hinted": 8, "programs": 12},
    "full": {"lines": 300, "turns": 8, "chars": 400, "tokens": MAX_TOKENS, "plays": 8, "hinted": 16,
             "programs": 24},
}  # fmt: skip
"""Lines added to a program, turns, characters of an observation, tokens kept of a play, plays of a program
(hinted ones after a design step only)."""
DESIGNS, EVERY = 24, 4
WORDS = ("the", "level", "tank", "pump", "answer", "is", "higher", "try", "next", "move", "box", "north")


class Writer:
    """Rows of one made-up run."""

    def __init__(self, folder: Path, size: dict[str, int]) -> None:
        self.folder, self.size, self.rng = folder, size, random.Random(0)
        self.known = json.loads((SHIPPED / "starter" / "manifest.json").read_text())["programs"]
        self.codes = [(SHIPPED / "starter" / row["file"]).read_text() for row in self.known]
        self.out: dict[str, TextIO] = {}
        self.live: list[str] = []
        self.texts: dict[int, list[str]] = {}

    def text(self, chars: int) -> str:
        """About that many characters of words, one of a few hundred texts of that length."""
        made = self.texts.setdefault(chars, [])
        if len(made) < 300:
            made.append(" ".join(self.rng.choices(WORDS, k=max(1, chars // 6))))
            return made[-1]
        return self.rng.choice(made)

    def add(self, name: str, row: dict[str, Any]) -> None:
        """One row of a file."""
        if name not in self.out:
            (self.folder / name).parent.mkdir(exist_ok=True)
            self.out[name] = (self.folder / name).open("w")
        self.out[name].write(json.dumps(row) + "\n")

    def design(self, step: int) -> None:
        """A set of designs, three in four of them accepted."""
        self.live = []
        for number in range(DESIGNS):
            at = self.rng.randrange(len(self.known))
            more = "\n".join(f"# {self.text(36)}" for _ in range(self.size["lines"]))
            code = f"{self.codes[at]}{more}\n# {step} {number}\n"
            name, good = sha256(code.encode()).hexdigest(), self.rng.random() < 0.75
            row = {
                "step": step, "number": number, "brief": f"{step}-{number}", "skill": self.known[at]["skill"],
                "domain": "", "variant": "", "document": None, "exemplars": [], "program": name,
                "accepted": good, "detail": "" if good else self.text(80), "facts": {}, "repaired": None,
                "code": "accepted" if good else self.rng.choice(["floor_counting", "syntax"]), "novelty": 0.5,
                "guide": None, "tokens": len(code) // 4, "text": f"```python\n{code}```",
                "hint": self.text(60), "hint_code": "ok",
            }  # fmt: skip
            self.add("designs.jsonl", row)
            if good:
                self.live.append(name)
                (self.folder / "pool").mkdir(exist_ok=True)
                (self.folder / "pool" / f"{name}.py").write_text(code)
                about = {**self.known[at], "id": name, "file": f"{name}.py", "sha256": name, "step": step}
                self.add("pool/programs.jsonl", {"step": step, "program": about})

    def play(self, step: int) -> None:
        """Plays of a step, a pair of them token by token."""
        size = self.size
        for number, program in enumerate(self.live[: size["programs"]]):
            for seed in range(size["plays"] + (size["hinted"] if step % EVERY == 1 else 0)):
                hinted, turns = seed >= size["plays"], range(size["turns"])
                self.add("episodes.jsonl", {
                    "step": step, "program": program, "seed": seed % size["plays"], "hinted": hinted,
                    "first": self.text(size["chars"]), "actions": [self.text(20) for _ in turns],
                    "observations": [self.text(size["chars"]) for _ in turns],
                    "value": float(self.rng.random() < 0.5), "end": "terminated", "tokens": size["tokens"],
                })  # fmt: skip
            stats = {"plays": size["plays"], "mean_return": 0.5, "return_stderr": 0.1, "regret": 0.2,
                     "regret_stderr": 0.1, "turns": 3.0}  # fmt: skip
            self.add("pool/programs.jsonl", {"step": step, "id": program, "stats": stats})
            for hinted in (False, True) if number == 0 else ():
                said = self.rng.choices(WORDS, k=size["tokens"])
                tokens = [[word, -round(self.rng.random(), 4)] for word in said]
                self.add("tokens.jsonl", {
                    "step": step, "program": program, "seed": 0, "hinted": hinted, "advantage": 0.5,
                    "streams": [[self.text(size["chars"]), tokens]], "left_out": 0,
                })  # fmt: skip

    def close(self) -> None:
        """All rows to disk."""
        for file in self.out.values():
            file.close()


def make(folder: Path, steps: int, size: str) -> None:
    """A finished run of `steps` steps."""
    run = RunFolder.create_or_resume(load_config("demo", [f"out={folder}"]), "train", "benchmark")
    rows, writer = read_jsonl(METRICS), Writer(folder, SIZES[size])
    for step in range(1, steps + 1):
        if step % EVERY == 1:
            writer.design(step)
        writer.play(step)
        writer.add("metrics.jsonl", {**rows[(step - 1) % len(rows)], "step": step})
    writer.close()
    run.finish()
    write_json(folder / "made-up.json", {"steps": steps, "size": size})


def measure(steps: int, size: str) -> dict[str, Any]:
    """Seconds of wall and processor time of what `spade report` does, and the size of its page."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        make(folder, steps, size)
        held = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        with Load() as busy:
            data = read_run(folder, _documents(folder))
            path = write_page(folder / "report.html", [data], _comparison([folder], []))
        megabytes = path.stat().st_size / 1e6
    seconds = busy.own * busy.seconds  # of this process alone: what it takes on an idle core
    return {
        "steps": steps, "size": size, "run_mb": round(held / 1e6, 1), "page_mb": round(megabytes, 2),
        "cpu_seconds": round(seconds, 2), "wall_seconds": round(busy.seconds, 2), "bar_mb": BAR_MB,
        "bar_seconds": BAR_SECONDS, "met": megabytes < BAR_MB and seconds < BAR_SECONDS,
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "left_out": data.left_out, "others_cores": round(busy.others, 2), "machine": machine(),
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="size and time of a report")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(args.steps, args.size)
    if args.json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        print(f"{key:14} {value}")


if __name__ == "__main__":
    main()
