r"""The two programs that `evals.py` sets side by side: commands on the same items, and what was answered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

PROMPT = "{q}\nPut your action in \\boxed{}."
NEW_TOKENS = 48
STOP = "Question:"

SUITE = """
from pathlib import Path
from spade_evals.data import DataFile, Source
from spade_evals.question import QuestionSuite
from spade_evals.tasks.math import Gsm8k

class Bench(QuestionSuite):
    def __init__(self):
        task = Gsm8k()
        task.data = Source((DataFile("items.jsonl"),), "made here", "1", "MIT", root=Path(__file__).parent)
        super().__init__("bench", [task])
"""


@dataclass(frozen=True)
class Run:
    """One process from start to end: seconds, and what it said and graded right, by place of the item."""

    wall: float
    cpu: float
    texts: dict[int, str]
    correct: dict[int, bool]


class Program(Protocol):
    """Runs on `items` items; `repeat` tells runs apart."""

    name: str

    def run(self, items: int, repeat: int) -> Run: ...


def write_items(folder: Path, count: int) -> None:
    """GSM8K-format items of a kind that the embedded model knows, our preset and suite, the harness' task."""
    folder.mkdir(exist_ok=True)
    with (folder / "items.jsonl").open("w") as file:
        for i in range(count):
            last, tries = 3 + i % 40, 2 + i // 40
            question = f"find the hidden number from 1 to {last}. {tries} tries left."
            middle = (1 + last) // 2
            answer = f"Halving is best: (1 + {last}) / 2 = <<(1+{last})/2={middle}>>{middle}.\n#### {middle}"
            file.write(json.dumps({"question": question, "answer": answer}) + "\n")
    (folder / "suite.py").write_text(SUITE)
    preset = {
        "prompts": {"boxed": PROMPT.replace("{q}", "{question}")},
        "defaults": {"n": 1, "temperature": 0.0, "max_tokens": NEW_TOKENS, "stop": [STOP]},
    }
    (folder / "preset.yaml").write_text(json.dumps(preset))
    (folder / "task").mkdir(exist_ok=True)
    (folder / "task/bench_gsm8k.yaml").write_text(json.dumps(_task(folder)))


def _task(folder: Path) -> dict[str, Any]:
    box = {"function": "regex", "regex_pattern": r"\\boxed\{\s*(-?[0-9][0-9.,]*)\s*\}", "group_select": -1}
    return {
        "task": "bench_gsm8k",
        "dataset_path": "json",
        "dataset_kwargs": {
            "data_files": {"test": str(folder / "items.jsonl")},
            "cache_dir": str(folder / "cache"),
        },
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": PROMPT.replace("{q}", "{{question}}"),
        "doc_to_target": "{{answer.split('#### ')[-1]}}",
        "generation_kwargs": {"until": [STOP], "do_sample": False, "max_gen_toks": NEW_TOKENS},
        "filter_list": [{"name": "boxed", "filter": [box, {"function": "take_first"}]}],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1},
    }


def timed(command: list[str], folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a process and what it waited for. Exits when it fails."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    with (folder / "log").open("w") as log:
        started = time.perf_counter()
        child = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(folder / 'log').read_text()[-3000:]}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime


class Ours:
    """`spade eval` on a suite of one task."""

    name = "spade eval"

    def __init__(self, folder: Path, ckpt: str, batch: int) -> None:
        self.folder, self.ckpt, self.batch = folder, ckpt, batch

    def run(self, items: int, repeat: int) -> Run:
        """See `Program`."""
        folder = self.folder / str(items)
        write_items(folder, items)
        out = folder / f"ours-{repeat}"
        command = [
            sys.executable, "-m", "spade.cli.main", "eval", "--ckpt", self.ckpt, "--suite", "suite.py:Bench",
            "--preset", "preset.yaml", "--out", str(out), "serving.device=cpu", "serving.dtype=float32",
            f"serving.max_rows={self.batch}",
        ]  # fmt: skip
        wall, cpu = timed(command, folder)
        rows = _lines(out / "bench/gsm8k.jsonl")
        places = {int(row["name"].rpartition("/")[2]) - 1: row for row in rows}
        return Run(
            wall, cpu, {i: row["text"].partition(STOP)[0] for i, row in places.items()},
            {i: row["outcome"]["value"] == 1.0 for i, row in places.items()},
        )  # fmt: skip


class Harness:
    """lm-evaluation-harness' own command line with its own engine, or with its dummy model."""

    name = "lm-evaluation-harness"

    def __init__(self, folder: Path, python: str, batch: int, model: str = "") -> None:
        self.folder, self.python, self.batch, self.model = folder, python, batch, model

    def run(self, items: int, repeat: int) -> Run:
        """See `Program`."""
        folder = self.folder / str(items)
        write_items(folder, items)
        out = folder / f"theirs-{repeat}"
        command = [
            self.python, "-m", "lm_eval", "run", "--tasks", "bench_gsm8k", "--include_path", "task",
            "--batch_size", str(self.batch), "--device", "cpu", "--log_samples", "--output_path", str(out),
        ]  # fmt: skip
        if self.model:
            command += ["--model", "hf", "--model_args", f"pretrained={self.model},dtype=float32"]
            command += ["--apply_chat_template"]
        else:
            command += ["--model", "dummy"]
        wall, cpu = timed(command, folder)
        rows = {int(row["doc_id"]): row for row in _lines(next(out.rglob("samples_*.jsonl")))}
        return Run(
            wall, cpu, {i: row["resps"][0][0] for i, row in rows.items()},
            {i: row["exact_match"] == 1.0 for i, row in rows.items()},
        )  # fmt: skip


def has_harness(python: str) -> bool:
    """Whether this interpreter can import the harness."""
    return subprocess.run([python, "-c", "import lm_eval"], capture_output=True).returncode == 0


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
