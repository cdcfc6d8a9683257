"""How long `spade compare` takes on large evaluations, reading included.

    python benchmarks/compare.py [--runs 10] [--items 10000] [--json]

Ten runs of 10,000 items, as `spade eval` writes them, two recipes of five seeds, 10,000 draws; the bar is
five seconds. Beside it: processor seconds, for a machine that is not idle, and the time that `json.loads`
alone takes for the same lines, in the same run.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import Load, machine

from spade_evals.compare import compare_runs
from spade_evals.results import load
from spade_evals.stored import FORMAT

BAR = 5.0
PARTS = ("a/easy", "a/hard", "b", "c")


def make(folder: Path, name: str, seed: int, items: int) -> Path:
    """An evaluation folder with `items` samples of 300 characters."""
    rng = random.Random(f"{name}-{seed}")
    folder.mkdir(parents=True)
    key = f"protocol-{name}{seed}"
    with (folder / "big.jsonl").open("w") as out:
        for k in range(items):
            value = float(rng.random() < 0.4 + 0.02 * (name == "new"))
            row = {
                "key": key, "item_id": f"{PARTS[k % 4]}/p{k % 100}/{k}", "part": PARTS[k % 4],
                "cluster": f"p{k % 100}", "sample": 0,
                "outcome": {"is": "Scored", "value": value, "solved": value == 1.0},
                "end": "terminated", "tokens": 20, "text": "x" * 300,
            }  # fmt: skip
            out.write(json.dumps(row) + "\n")
    origin = {"name": name, "seed": seed, "step": 1, "tokens": 1.0, "recipe": name, "folder": "", "model": "",
              "ledger": {}}  # fmt: skip
    tree: dict[str, Any] = {
        "format": FORMAT, "complete": True, "fingerprint": "protocol", "checkpoint": f"{name}{seed}",
        "protocol": {"suite": "big", "n_items": items, "seed": 0}, "ref": name, "origin": origin,
        "samples": "big.jsonl", "result": {"score": [0.4, 0.01, items]},
    }  # fmt: skip
    (folder / "big.json").write_text(json.dumps(tree))
    return folder


def measure(runs: int, items: int) -> dict[str, Any]:
    """Seconds of reading and comparing, and of `json.loads` alone."""
    with tempfile.TemporaryDirectory() as place:
        paths = [
            make(Path(place) / str(k), "old" if k < runs // 2 else "new", k % max(1, runs // 2), items)
            for k in range(runs)
        ]
        started = time.perf_counter()
        for path in paths:
            for line in (path / "big.jsonl").read_bytes().splitlines():
                json.loads(line)
        parsing = time.perf_counter() - started
        started = time.perf_counter()
        for path in paths:
            load(path)
        reading = time.perf_counter() - started
        with Load() as busy:
            started, busy_before = time.perf_counter(), time.process_time()
            compare_runs(paths)
            whole, own = time.perf_counter() - started, time.process_time() - busy_before
            started = time.perf_counter()
            compare_runs([paths[0], paths[-1]])
            pair = time.perf_counter() - started
    return {
        "runs": runs, "items": items, "seconds": round(whole, 2), "bar_seconds": BAR, "met": whole <= BAR,
        "processor_seconds": round(own, 2),
        "reading_seconds": round(reading, 2), "json_seconds": round(parsing, 2),
        "ratio_to_json": round(whole / parsing, 2), "pair_seconds": round(pair, 2),
        "others_cores": round(busy.others, 2), "machine": machine(),
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="speed of spade compare")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(args.runs, args.items)
    if args.json:
        print(json.dumps(found))
        return
    for key, value in found.items():
        print(f"{key:18} {value}")


if __name__ == "__main__":
    main()
