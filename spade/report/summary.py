"""`spade run show`: a finished or running run on one screen, from its record and `metrics.jsonl`.

Means over thirds of the run show where it went; a mean over a whole run would hide that it moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spade.report.columns import PHASES
from spade.types import RunRecord

Row = Mapping[str, Any]

TREND = (
    ("return_plain", "return, plain"),
    ("return_hinted", "return, hinted"),
    ("regret", "regret"),
    ("regret_stderr", "  standard error"),
    ("share/frontier", "share frontier"),
    ("share/mastered", "share mastered"),
    ("share/intractable", "share intractable"),
    ("informative_groups", "informative groups"),
    ("accept_rate", "designs accepted"),
    ("oracle_turns", "turns of a solution"),
    ("turns", "turns of a play"),
    ("learner/entropy/agent", "Agent entropy"),
    ("learner/entropy/designer", "Designer entropy"),
    ("seconds", "seconds a step"),
)
"""Metrics shown as a trend, where a run has them."""


def trend(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Per metric of `TREND`: its mean over each third of the steps, and its last value."""
    thirds = [list(part) for part in np.array_split(np.arange(len(rows)), 3)]
    out: list[dict[str, Any]] = []
    for key, label in TREND:
        if not any(_known(row, key) for row in rows):
            continue
        means = [_mean([rows[i] for i in part], key) for part in thirds]
        last = next(float(row[key]) for row in reversed(rows) if _known(row, key))
        first, middle, end = means
        named = {"first": first, "middle": middle, "end": end, "last": last}
        out.append({"metric": key, "label": label, **named})
    return out


def verdicts(rows: Sequence[Row]) -> dict[str, int]:
    """Designs of the whole run by reason code, most frequent first; `accepted` among them."""
    totals: dict[str, int] = {}
    for row in rows:
        if "distinct_designs" in row:
            totals["accepted"] = totals.get("accepted", 0) + int(row["distinct_designs"])
        for key, value in row.items():
            if key.startswith("rejected/"):
                code = key.removeprefix("rejected/")
                totals[code] = totals.get(code, 0) + int(value)
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


def time_split(rows: Sequence[Row]) -> dict[str, float]:
    """Share of the run's seconds by phase; what no phase covers is `other`."""
    total = sum(float(row.get("seconds") or 0.0) for row in rows)
    parts = {name: sum(float(row.get(f"seconds/{name}") or 0.0) for row in rows) for name in PHASES}
    if total <= 0:
        return {}
    shares = {name: value / total for name, value in parts.items() if value > 0}
    return {**shares, "other": max(0.0, 1.0 - sum(shares.values()))}


def progress_line(record: RunRecord, rows: Sequence[Row]) -> str:
    """How far the run is, in steps and in tokens of its budget."""
    config = record.config
    steps = (config.get("train") or {}).get("steps")
    budget = (config.get("budget") or {}).get("total_tokens")
    done = int(rows[-1]["step"]) if rows else 0
    text = f"step {done} of {steps}" if steps else f"step {done}"
    spent = int(rows[-1].get("tokens_total") or 0) if rows else 0
    if budget:
        text += f", {spent:,} of {budget:,} tokens ({min(1.0, spent / budget):.0%})"
    elif spent:
        text += f", {spent:,} tokens"
    return text


def run_text(record: RunRecord, rows: Sequence[Row], checkpoints: Sequence[str]) -> str:
    """The whole summary as text."""
    machine = record.hardware
    head = {
        "run": f"{record.id} ({record.kind}), {record.status}, started {record.started}",
        "progress": progress_line(record, rows),
        "command": record.command,
        "config": f"digest {record.digest[:12]}, seed {record.seed}, model {record.config.get('model')}",
        "machine": f"{machine.get('cpu')}, {machine.get('cores')} cores, {machine.get('memory_gib')} GiB, "
        f"GPU {', '.join(machine.get('gpus') or []) or 'none'}; sandbox {record.sandbox_level or 'unknown'}",
        "versions": ", ".join(f"{name} {text}" for name, text in record.versions.items()),
        "checkpoints": ", ".join(checkpoints) or "none",
        "ledger": ", ".join(f"{k} {v:,.0f}" for k, v in record.ledger.items()),
        "scores": ", ".join(f"{k} {short(v)}" for k, v in record.scores.items()),
    }
    lines = [f"{title:<12}{text}" for title, text in head.items() if text]
    return "\n".join([*lines, *_trend_lines(rows), *_total_lines(rows)])


def _trend_lines(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["metrics     none yet"]
    table = trend(rows)
    width = max((len(row["label"]) for row in table), default=0)
    heads = "".join(f"{name:>14}" for name in ("first third", "middle", "last third", "last step"))
    lines = ["", f"{'':<{width}}{heads}"]
    for row in table:
        cells = "".join(f"{short(row[key]):>14}" for key in ("first", "middle", "end", "last"))
        lines.append(f"{row['label']:<{width}}{cells}")
    return lines


def _total_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    if codes := verdicts(rows):
        total = sum(codes.values())
        shown = ", ".join(f"{code} {n} ({n / total:.0%})" for code, n in codes.items())
        lines += ["", f"designs     {total}: {shown}"]
    if split := time_split(rows):
        lines.append("time        " + ", ".join(f"{name} {share:.0%}" for name, share in split.items()))
    names = sorted({k for row in rows for k in row if k.startswith("faults/")})
    faults = {name: sum(int(row.get(name) or 0) for row in rows) for name in names}
    if any(faults.values()):
        lines.append("faults      " + ", ".join(f"{k.split('/')[-1]} {n}" for k, n in faults.items() if n))
    return lines


def short(value: Any) -> str:
    """A number with at most four significant digits; a dash for an unknown one."""
    if value is None or value != value:
        return "\N{EN DASH}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _known(row: Row, key: str) -> bool:
    value = row.get(key)
    return value is not None and value == value


def _mean(rows: Sequence[Row], key: str) -> float | None:
    values = [float(row[key]) for row in rows if _known(row, key)]
    return float(np.mean(values)) if values else None
