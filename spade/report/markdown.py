"""`report.md`: what was run, what came out, and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spade.files import atomic_write, read_jsonl
from spade.runs import read_record
from spade.types import RunRecord

METRICS = (
    ("return_plain", "plain return"),
    ("return_hinted", "hinted return"),
    ("regret", "regret"),
    ("accept_rate", "accept rate"),
    ("distinct_designs", "distinct designs"),
)

SPAN = 5
"""Steps at either end of a run whose mean is shown."""


def write_report(
    path: Path,
    *,
    title: str,
    claims: Sequence[str],
    comparison: str,
    curves: Path | None,
    runs: Sequence[Path],
) -> Path:
    """Write the report. `comparison` is Markdown, `runs` are run folders; returns `path`."""
    blocks = [f"# {title}"]
    if claims:
        blocks.append("\n".join(f"- {claim}" for claim in claims))
    if curves is not None:
        blocks.append(f"![Training and held-out curves]({curves.name})")
    blocks += ["## Comparison", comparison.strip()]
    records = [(folder, read_record(folder)) for folder in runs]
    if records:
        blocks += ["## Training", *(training(folder, record) for folder, record in records)]
        blocks += ["## How to repeat it", commands([record for _, record in records])]
    atomic_write(path, "\n\n".join(blocks) + "\n")
    return path


def training(folder: Path, record: RunRecord) -> str:
    """One run: start and end of its main metrics, and its hardware."""
    rows = read_jsonl(folder / "metrics.jsonl")
    name = record.config.get("name", folder.name)
    lines = [f"### {escape(str(name))}, seed {record.seed} ({record.status})", ""]
    table = [
        f"| {head} | {_mean(rows[:SPAN], key)} | {_mean(rows[-SPAN:], key)} |"
        for key, head in METRICS
        if any(row.get(key) is not None for row in rows)
    ]
    if table:
        lines += [f"| | first {SPAN} steps | last {SPAN} steps |", "|---|---|---|", *table, ""]
    seconds = sum(row.get("seconds") or 0 for row in rows)
    model = escape(str(record.config.get("model", "?")))
    lines.append(
        f"{len(rows)} steps in {seconds / 60:.1f} minutes from `{model}`; {_machine(record.hardware)}; "
        f"sandbox {record.sandbox_level or 'not used'}."
    )
    return "\n".join(lines)


def commands(records: Sequence[RunRecord]) -> str:
    """The commands that made the runs, as a shell block."""
    return "```sh\n" + "\n".join(record.command.replace("```", "'''") for record in records) + "\n```"


def escape(text: str) -> str:
    """Text from a config as inert Markdown."""
    for char in "\\`*_[]<>|":
        text = text.replace(char, f"\\{char}" if char not in "<>" else {"<": "&lt;", ">": "&gt;"}[char])
    return " ".join(text.split())


def _mean(rows: Sequence[Mapping[str, Any]], key: str) -> str:
    values = [row[key] for row in rows if row.get(key) is not None]
    return f"{sum(values) / len(values):.3f}" if values else "–"


def _machine(hardware: Mapping[str, Any]) -> str:
    known = [f"{key} {value}" for key, value in hardware.items() if isinstance(value, str | int | float)]
    return escape(", ".join(known[:4])) or "unknown machine"
