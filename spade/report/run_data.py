"""What a report shows of a run, read from the run's folder as plain JSON values.

Everything a model wrote stays text here; escaping is the page's work. A run has more than a page can hold:
what is kept is bounded by the limits below, and `left_out` says how much is not shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spade.files import read_json, read_jsonl
from spade.report.columns import PHASES
from spade.report.summary import time_split, verdicts
from spade.runs import CHECKPOINT_SCORES, read_record
from spade.types import RunRecord

MAX_PROGRAMS = 400
MAX_PAIRS = 120
MAX_REJECTED = 25
"""Rejected designs shown for each reason, spread over the run."""
MAX_TEXT = 6000
"""Characters of one text."""
ENDS = 5
"""Steps at either end of a run whose mean the overview shows."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunData:
    """One run as the page needs it; `metrics` are its rows, everything else is JSON."""

    folder: Path
    record: RunRecord
    metrics: list[dict[str, Any]]
    overview: dict[str, Any]
    programs: list[dict[str, Any]]
    pairs: list[dict[str, Any]]
    rejected: list[dict[str, Any]]
    left_out: dict[str, int]
    scores: list[dict[str, Any]] = field(default_factory=list)
    """Evaluated checkpoints, see `checkpoint_scores`."""

    @property
    def label(self) -> str:
        """Name and seed."""
        return f"{self.record.config.get('name', self.folder.name)}, seed {self.record.seed}"


def read_run(folder: Path | str, documents: Mapping[str, str] | None = None) -> RunData:
    """Read a finished or running run; `documents` are corpus texts by id.

    Raises InputError when `folder` is no run.
    """
    folder = Path(folder)
    record = read_record(folder)
    metrics = read_jsonl(folder / "metrics.jsonl")
    designs = read_jsonl(folder / "designs.jsonl")
    programs, more_programs = _programs(folder, designs, documents or {})
    pairs, more_pairs = _pairs(read_jsonl(folder / "tokens.jsonl"), read_jsonl(folder / "episodes.jsonl"))
    rejected, more_rejected = _rejected(designs)
    left_out = {"programs": more_programs, "plays": more_pairs, "rejected designs": more_rejected}
    overview, scores = _overview(record, metrics), checkpoint_scores(folder)
    return RunData(folder, record, metrics, overview, programs, pairs, rejected, left_out, scores)


def checkpoint_scores(folder: Path) -> list[dict[str, Any]]:
    """What the loop evaluated: `suite, step, score, stderr, items` by suite and step; step 0 is the start."""
    rows = []
    for file in sorted((folder / CHECKPOINT_SCORES).glob("*.json")):
        tree = read_json(file, "evaluation result")
        mean, stderr, items = (tree.get("result") or {}).get("score") or (None, None, 0)
        if mean is not None:
            step = (tree.get("origin") or {}).get("step") or 0
            row = {"step": step, "score": mean, "stderr": stderr or 0.0, "items": items}
            rows.append({"suite": tree["protocol"]["suite"], **row})
    return sorted(rows, key=lambda row: (str(row["suite"]), row["step"]))


# --- overview ------------------------------------------------------------------------------------------


def _overview(record: RunRecord, rows: Sequence[Row]) -> dict[str, Any]:
    ends = {
        key: [_mean(rows[:ENDS], key), _mean(rows[-ENDS:], key)]
        for key in ("return_plain", "return_hinted", "regret", "accept_rate", "distinct_designs")
        if any(row.get(key) is not None for row in rows)
    }
    return {
        "name": str(record.config.get("name", "")),
        "seed": record.seed,
        "status": record.status,
        "model": str(record.config.get("model", "")),
        "source": str((record.config.get("train") or {}).get("source", "")),
        "sandbox": record.sandbox_level,
        "command": record.command,
        "digest": record.digest,
        "versions": record.versions,
        "hardware": {k: str(v) for k, v in record.hardware.items()},
        "started": record.started,
        "steps": len(rows),
        "tokens": rows[-1].get("tokens_total") if rows else None,
        "seconds": round(sum(float(row.get("seconds") or 0) for row in rows)),
        "ends": ends,
        "verdicts": verdicts(rows),
        "time": time_split(rows),
        "phases": [p for p in PHASES if any(row.get(f"seconds/{p}") for row in rows)],
        "ledger": record.ledger,
        "scores": record.scores,
    }


def _mean(rows: Sequence[Row], key: str) -> float | None:
    values = [float(row[key]) for row in rows if row.get(key) is not None]
    return sum(values) / len(values) if values else None


# --- programs ------------------------------------------------------------------------------------------


def _programs(
    folder: Path, designs: Sequence[Row], documents: Mapping[str, str]
) -> tuple[list[dict[str, Any]], int]:
    """The accepted programs with what became of them, newest first; the ones played most are kept."""
    known: dict[str, dict[str, Any]] = {}
    for row in _pool_rows(folder):
        if "program" in row:
            about = row["program"]
            known.setdefault(about["id"], {"step": row["step"], **about, "history": []})
        elif row.get("id") in known:
            known[row["id"]]["history"].append({"step": row["step"], **row["stats"]})
    attempts = {d["program"]: d for d in designs if d.get("accepted")}
    kept = sorted(known.values(), key=lambda p: (-len(p["history"]), -p["step"], p["id"]))[:MAX_PROGRAMS]
    found = [_program(folder, about, attempts.get(about["id"], {}), documents) for about in kept]
    return sorted(found, key=lambda p: (-p["step"], p["id"])), len(known) - len(kept)


def _pool_rows(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted((folder / "pool").glob("*.jsonl")) for row in read_jsonl(file)]


def _program(folder: Path, about: Row, attempt: Row, documents: Mapping[str, str]) -> dict[str, Any]:
    path = folder / "pool" / Path(str(about["file"])).name
    verdict = about.get("verdict") or {}
    brief = about.get("brief") or {}
    last = about["history"][-1] if about["history"] else {}
    return {
        "id": about["id"],
        "step": about["step"],
        "skill": about.get("skill") or "",
        "type": about.get("game_type") or "",
        "code": _text(path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""),
        "hint": about.get("hint"),
        "difficulty": brief.get("difficulty") or "",
        "domain": attempt.get("domain") or "",
        "document": _text(documents.get(str(brief.get("document")), "")),
        "stages": [[s["stage"], s["ok"], s["code"], s["detail"]] for s in verdict.get("stages", ())],
        "battery": verdict.get("battery"),
        "facts": verdict.get("facts") or {},
        "history": about["history"],
        "plays": sum(h.get("plays") or 0 for h in about["history"]),
        "return": last.get("mean_return"),
        "regret": last.get("regret"),
    }


# --- plays ---------------------------------------------------------------------------------------------


def _pairs(tokens: Sequence[Row], episodes: Sequence[Row]) -> tuple[list[dict[str, Any]], int]:
    """A plain play and the hinted one beside it, with their tokens where those were kept.

    A run without `tokens.jsonl` shows the first pair of each step. With too many, they are thinned evenly.
    """
    plays: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for episode in episodes:
        plays[_key(episode)].append(episode)
    by_pair: dict[tuple[Any, ...], dict[str, Any]] = {}
    chosen: Sequence[Row] = tokens or _first_pairs(episodes)
    for row in chosen:
        pair = by_pair.setdefault(
            (row["step"], row["program"]), {"step": row["step"], "program": row["program"], "arms": []}
        )
        found = plays.get(_key(row))
        if found:
            pair["arms"].append(_arm(found[0], row if "streams" in row else None))
    every = list(by_pair.values())
    stride = max(1, -(-len(every) // MAX_PAIRS))
    kept = every[::-1][::stride]
    return kept, len(every) - len(kept)


def _key(row: Row) -> tuple[Any, ...]:
    return row["step"], row["program"], row["seed"], row["hinted"]


def _first_pairs(episodes: Sequence[Row]) -> list[Row]:
    out: list[Row] = []
    seen: set[int] = set()
    hinted = {(e["step"], e["program"], e["seed"]): e for e in episodes if e["hinted"]}
    for episode in episodes:
        if not episode["hinted"] and episode["step"] not in seen:
            seen.add(episode["step"])
            out.append(episode)
            if other := hinted.get((episode["step"], episode["program"], episode["seed"])):
                out.append(other)
    return out


def _arm(episode: Row, tokens: Row | None) -> dict[str, Any]:
    turns = list(zip(episode["actions"], episode["observations"], strict=False))
    return {
        "hinted": episode["hinted"],
        "seed": episode["seed"],
        "first": _text(episode["first"]),
        "turns": [[_text(action), _text(observation)] for action, observation in turns],
        "value": episode.get("value"),
        "end": episode["end"],
        "fault": episode.get("fault"),
        "tokens": episode["tokens"],
        "streams": [[_text(prompt), pieces] for prompt, pieces in tokens["streams"]] if tokens else None,
        "advantage": tokens.get("advantage") if tokens else None,
        "left_out": tokens["left_out"] if tokens else 0,
    }


# --- rejected designs ----------------------------------------------------------------------------------


def _rejected(designs: Sequence[Row]) -> tuple[list[dict[str, Any]], int]:
    by_code: dict[str, list[Row]] = defaultdict(list)
    for design in designs:
        if not design["accepted"]:
            by_code[design["code"]].append(design)
    out, shown = [], 0
    for code, rows in sorted(by_code.items(), key=lambda item: (-len(item[1]), item[0])):
        stride = max(1, -(-len(rows) // MAX_REJECTED))
        kept = rows[::stride]
        shown += len(kept)
        out.append(
            {
                "code": code,
                "count": len(rows),
                "designs": [
                    {"step": d["step"], "skill": d["skill"], "detail": d["detail"], "text": _text(d["text"])}
                    for d in kept
                ],
            }
        )
    return out, sum(map(len, by_code.values())) - shown


def _text(text: str) -> str:
    return (
        text
        if len(text) <= MAX_TEXT
        else f"{text[:MAX_TEXT]}\n[... {len(text) - MAX_TEXT:,} more characters]"
    )
