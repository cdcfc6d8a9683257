"""What a repository keeps of a run: enough for every table and curve, without programs, plays and weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from spade.errors import InputError
from spade.files import atomic_write, make_folder, path_inside, read_json, read_jsonl
from spade.runs import CHECKPOINT_SCORES, METRICS, RECORD

CURVES = ("step", "tokens_total", "return_plain", "return_hinted", "regret", "accept_rate")
"""Metrics that comparisons draw."""
LEFT_OUT = "text"
"""Field of a sample with what was said: most of its size, and no table needs it."""


def publish_set(run: Path, target: Path) -> list[Path]:
    """Copy what a comparison needs of a run, or of an evaluation folder, into the folder `target`.

    The record, the metrics that are drawn, the evaluations of the finished run item by item without their
    texts, and the scores of those made at checkpoints. Returns the files written. Raises InputError when
    there is no evaluation in `run`.
    """
    texts = dict(_files(run))
    if not any(Path(name).suffix == ".jsonl" and name != METRICS for name in texts):
        raise InputError(f"{run} holds no evaluation to publish; spade eval --ckpt {run} makes one")
    written = []
    for name, text in texts.items():
        path = path_inside(target, name)
        make_folder(path.parent)
        atomic_write(path, text)
        written.append(path)
    return written


def _files(run: Path) -> Iterator[tuple[str, str]]:
    home = run
    if (run / RECORD).is_file() and "format" not in read_json(run / RECORD, "run record"):
        yield RECORD, (run / RECORD).read_text(encoding="utf-8")
        rows = read_jsonl(run / METRICS)
        yield METRICS, _lines({key: row[key] for key in CURVES if row.get(key) is not None} for row in rows)
        home = run / "eval"
        for file in sorted((run / CHECKPOINT_SCORES).glob("*.json")):
            yield f"{CHECKPOINT_SCORES}/{file.name}", file.read_text(encoding="utf-8")
    for file in sorted(home.glob("*.json")):
        name = str(file.relative_to(run))
        yield name, file.read_text(encoding="utf-8")
        samples = file.with_suffix(".jsonl")
        if samples.is_file():
            rows = read_jsonl(samples)
            kept = ({key: value for key, value in row.items() if key != LEFT_OUT} for row in rows)
            yield str(samples.relative_to(run)), _lines(kept)


def _lines(rows: Iterator[dict[str, object]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
