"""`spade report --card`: a model card and a pool card for a run, as Markdown that hubs show.

The cards state what the run's files hold and nothing else; what is unknown is said to be unknown.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spade.files import atomic_write, make_folder
from spade.report.html import Comparison
from spade.report.markdown import escape
from spade.report.run_data import RunData

MODEL_CARD, POOL_CARD = "MODEL_CARD.md", "POOL_CARD.md"

HEAD = """---
base_model: {model}
library_name: transformers
tags: [reinforcement-learning, self-play, spade]
---
"""
LIMITS = """
## Limits

- Trained by reinforcement learning on programs that a model wrote: it learned what those programs reward.
- Replies may be wrong or offensive as far as the base model's are; nothing was done about that here.
- Scores hold for the protocol named with them. One seed says nothing about another.
"""
POOL_LIMITS = """## Known limits

- The validator shows that a program can be won, is not won by careless play and repeats under a seed; not
  that it teaches anything.
- Programs differ in wording more than in rules.
"""


def write_cards(out: Path, run: RunData, comparison: Comparison) -> list[Path]:
    """Write both cards of a run into `out`; a run without a pool of its own has no pool card."""
    make_folder(out)
    paths = [out / MODEL_CARD]
    atomic_write(paths[0], model_card(run, comparison))
    if run.programs:
        paths.append(out / POOL_CARD)
        atomic_write(paths[1], pool_card(run))
    return paths


def model_card(run: RunData, comparison: Comparison) -> str:
    """What the checkpoint is, how it was trained and measured, what it must not be used for."""
    o, config = run.overview, run.record.config
    trained = [
        ("source of programs", o["source"]),
        ("Designer reward", (config.get("designer") or {}).get("reward", "unknown")),
        ("sandbox level", o["sandbox"] or "not used"),
        ("config digest", o["digest"]),
        ("seed", o["seed"]),
        ("command", f"`{o['command']}`"),
        ("versions", ", ".join(f"{k} {v}" for k, v in o["versions"].items())),
        ("hardware", ", ".join(f"{k} {v}" for k, v in o["hardware"].items())),
    ]
    spent = [(k, _count(v)) for k, v in o["ledger"].items()] or [("ledger", "not closed yet")]
    lines = [
        HEAD.format(model=json.dumps(o["model"])),
        f"# {escape(run.label)}\n",
        f"Trained from `{escape(o['model'])}` by `spade` for {o['steps']} steps "
        f"({_count(o['tokens'])} sampled tokens), status {o['status']}.\n",
        f"## Training\n\n{_table(trained)}\n",
        f"## What it cost\n\n{_table(spent)}\n",
        "## Evaluation\n",
    ]
    lines += [f"- {escape(claim)}" for claim in comparison.claims]
    for title, columns, rows in comparison.tables:
        lines += ["", f"### {escape(title)}", "", _grid(columns, rows)]
    if not comparison.tables:
        lines.append(escape(comparison.missing))
    lines.append(LIMITS)
    return "\n".join(lines)


def pool_card(run: RunData) -> str:
    """What the accepted programs of a run are: how many, of what kind, how hard, how they were checked."""
    programs, o = run.programs, run.overview
    total = len(programs) + run.left_out["programs"]
    skills = Counter(p["skill"] or "none" for p in programs)
    kinds = Counter(p["type"] or "multi_turn" for p in programs)
    played = [p["return"] for p in programs if p["return"] is not None]
    regrets = [p["regret"] for p in programs if p["regret"] is not None]
    counted = "" if total == len(programs) else f" (figures below: the {len(programs)} played most)"
    rows: list[tuple[str, Any]] = [
        ("programs", f"{total}{counted}"),
        ("by skill", ", ".join(f"{k} {n}" for k, n in skills.most_common())),
        ("by type", ", ".join(f"{k} {n}" for k, n in kinds.most_common())),
        ("with a hint", sum(bool(p["hint"]) for p in programs)),
        ("validator battery", ", ".join(sorted({str(p["battery"]) for p in programs}))),
        ("sandbox level", o["sandbox"] or "unknown"),
        ("return when last played", _spread(played)),
        ("regret when last played", _spread(regrets)),
        ("designs by verdict", ", ".join(f"{k} {n}" for k, n in o["verdicts"].items())),
    ]
    place = run.folder / "pool"
    return "\n".join(
        [
            f"# Environment programs of {escape(run.label)}\n",
            f"Written by `{escape(o['model'])}` as Designer during training. Model-written code: run it in a",
            "sandbox only, such as `spade envs run`.\n",
            f"{_table(rows)}\n",
            f"## How to use it\n\n```sh\nspade envs validate {place}",
            f"spade train demo-fixed-pool train.pool={place}\n```\n",
            POOL_LIMITS,
        ]
    )


def _count(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else "unknown"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "not played"
    ends = f"from {min(values):.3f} to {max(values):.3f}"
    return f"mean {statistics.fmean(values):.3f}, {ends}, {len(values)} programs"


def _table(rows: Sequence[tuple[str, Any]]) -> str:
    return _grid(("", ""), rows)


def _grid(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = f"| {' | '.join(escape(str(c)) for c in columns)} |"
    body = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(columns), *body])


def _cell(value: Any) -> str:
    text = str(value)
    return text.replace("|", "\\|") if text.startswith("`") else escape(text)
