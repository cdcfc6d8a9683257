"""Does the Designer collapse? A table and a plot from finished runs of several settings and seeds.

    for seed in 0 1 2; do
      for config in games collapse; do
        spade train embedded/$config seed=$seed train.steps=150 budget.total_tokens=null \\
          train.checkpoint_every=30 train.keep=6 eval.every=30
      done
    done
    python benchmarks/collapse.py runs/games-s* runs/collapse-s* --out collapse [--window 30] [--recheck 60]

Runs of one config name are one setting; figures are means over its seeds with their range. A *mechanic* is a
cluster of accepted programs that are equal up to names and constants (`spade.envs.fingerprint.skeleton`);
their *effective number* is exp(entropy of the clusters' shares). `first` and `last` are the first and the
last window of that many training steps. With `--recheck` that many accepted programs of the last window are
judged once more, with their hints, by the validator and the hint checks of `embedded/games`: how many of them
the default would have refused, and why.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from spade.config_load import load_config
from spade.design.parse import extract_code
from spade.design.variety import structure
from spade.envs.hintcheck import check_hint, check_hint_play, hint_facts
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate_many
from spade.errors import InputError, ProgramFault
from spade.files import atomic_write, read_jsonl
from spade.report.curves import COLOURS
from spade.runs import read_record
from spade.types import EnvProgram

DECIDES = 0.5
"""Difference of the arms' means from which on the hint is said to decide the game."""
LUCK = ("other_seed_wins", "no_information", "answer_in_observation", "answer_in_feedback")
"""Reason codes, besides `floor_*`, of games that are won without a look at them."""
HINT_ONLY = ("hint_leaks_answer", "hint_leaks_code", "hint_wins_alone")
"""Reason codes of hints that give the game away."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the folder of one run holds about its designs."""

    name: str
    seed: int
    metrics: tuple[Mapping[str, Any], ...]
    designs: tuple[Mapping[str, Any], ...]
    """Rows of `designs.jsonl`; accepted ones with `structure` and, where both arms were played, `gap`."""
    scores: Mapping[int, float]
    """Held-out return by training step."""
    programs: Mapping[str, EnvProgram]
    """Accepted programs by id."""

    @property
    def steps(self) -> int:
        """Finished steps."""
        return int(self.metrics[-1]["step"])


def read_run(folder: Path) -> Run:
    """Read a run folder. Raises InputError when it is none, or has no finished step."""
    record = read_record(folder)
    metrics = read_jsonl(folder / "metrics.jsonl")
    if not metrics:
        raise InputError(f"{folder} has no finished step")
    gaps = hint_gaps(read_jsonl(folder / "episodes.jsonl"))
    hints = {d["program"]: d["hint"] for d in read_jsonl(folder / "designs.jsonl") if d["hint_code"] == "ok"}
    designs, programs = [], {}
    for row in read_jsonl(folder / "designs.jsonl"):
        if row["accepted"]:
            code = _code(folder, row)
            row |= {"structure": structure(code), "gap": gaps.get(row["program"])}
            game_type = record.config["design"]["game_type"]
            programs[row["program"]] = EnvProgram(
                row["program"], code, row["skill"], game_type, hint=hints.get(row["program"])
            )
        designs.append(row)
    return Run(
        str(record.config["name"]), record.seed, tuple(metrics), tuple(designs), _scores(folder), programs
    )


def _code(folder: Path, row: Mapping[str, Any]) -> str:
    path = folder / "pool" / f"{row['program']}.py"
    code = path.read_text(encoding="utf-8") if path.is_file() else extract_code(row["text"])
    if code is None:
        raise InputError(f"{folder} lacks the program {row['program'][:12]} of step {row['step']}")
    return code


def _scores(folder: Path) -> dict[int, float]:
    found: dict[int, float] = {}
    for path in folder.glob("eval*/*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        step = (result.get("origin") or {}).get("step")
        if result.get("complete") and step is not None and result["result"]["suite"] == "heldout":
            found[int(step)] = float(result["result"]["score"][0])
    return dict(sorted(found.items()))


def hint_gaps(episodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean return with the hint minus without, by program, at the step in which both arms were played."""
    arms: dict[tuple[str, int], dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})
    for row in episodes:
        if row["value"] is not None:
            arms[row["program"], row["step"]][row["hinted"]].append(row["value"])
    return {
        program: float(np.mean(both[True]) - np.mean(both[False]))
        for (program, _), both in arms.items()
        if both[True] and both[False]
    }


def effective(structures: Sequence[str]) -> float:
    """exp(entropy) of the shares of the clusters: how many equally frequent ones would be as varied."""
    shares = np.array(list(Counter(structures).values())) / max(1, len(structures))
    return float(np.exp(-(shares * np.log(shares)).sum())) if structures else math.nan


def figures(run: Run, first: int, last: int) -> dict[str, float]:
    """Numbers over the steps first..last (counted from 1, both included); NaN where there is nothing."""
    designs = [d for d in run.designs if first <= d["step"] <= last]
    good = [d for d in designs if d["accepted"]]
    made = [d["structure"] for d in good]
    gaps = [d["gap"] for d in good if d["gap"] is not None]
    hints = [d["hint_code"] for d in good if d["hint_code"] is not None]
    luck = [d["code"].startswith("floor_") or d["code"] in LUCK for d in designs]

    def mean(key: str) -> float:
        values = [m[key] for m in run.metrics if first <= m["step"] <= last and m.get(key) is not None]
        return float(np.mean(values)) if values else math.nan

    def share(values: Sequence[bool]) -> float:
        return float(np.mean(values)) if values else math.nan

    return {
        "accepted": share([d["accepted"] for d in designs]),
        "mechanics": float(len(set(made))) if made else math.nan,
        "effective": effective(made),
        "most frequent": Counter(made).most_common(1)[0][1] / len(made) if made else math.nan,
        "hint decides": share([g >= DECIDES for g in gaps]),
        "refused: luck": share(luck),
        "refused: hint": share([code in HINT_ONLY for code in hints]),
        "regret": mean("regret"),
        "return": mean("return_plain"),
    }


def windows(run: Run, width: int) -> list[tuple[int, int]]:
    """Consecutive windows of `width` steps; a shorter rest belongs to the last one."""
    starts = list(range(1, max(2, run.steps - width + 2), width))
    return [(a, b - 1) for a, b in zip(starts, [*starts[1:], run.steps + 1], strict=True)]


def cell(values: Sequence[float]) -> str:
    """Mean of the known values with their range."""
    known = [v for v in values if not math.isnan(v)]
    if not known:
        return "\N{EN DASH}"
    mean = f"{np.mean(known):.2f}"
    return mean if len(known) == 1 else f"{mean} ({min(known):.2f} to {max(known):.2f})"


def table(runs: Mapping[str, Sequence[Run]], width: int) -> str:
    """Markdown: a row for each figure, two columns (first, last window) for each setting."""
    head, rows = ["mean over seeds (range)"], defaultdict(list)
    for name, seeds in runs.items():
        head += [f"{name}, first", f"{name}, last"]
        for at in (0, -1):
            found = [figures(run, *windows(run, width)[at]) for run in seeds]
            for key in found[0]:
                rows[key].append(cell([f[key] for f in found]))
    seeds_of = {name: ", ".join(str(r.seed) for r in seeds) for name, seeds in runs.items()}
    about = "; ".join(f"{name}: seeds {seeds}" for name, seeds in seeds_of.items())
    body = _markdown([[k, *v] for k, v in rows.items()], head)
    return f"{body}\n\nWindows of {width} steps. {about}.\n\n{_score_table(runs)}"


def _score_table(runs: Mapping[str, Sequence[Run]]) -> str:
    steps = sorted({step for seeds in runs.values() for run in seeds for step in run.scores})
    if not steps:
        return "No held-out results in these runs; train them with eval.every=N."
    rows = [
        [name, *(cell([run.scores[s] for run in seeds if s in run.scores]) for s in steps)]
        for name, seeds in runs.items()
    ]
    return _markdown(rows, ["held-out return", *(f"step {s}" for s in steps)])


def _markdown(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    return tabulate(rows, headers=head, tablefmt="github", disable_numparse=True)


def draw(runs: Mapping[str, Sequence[Run]], width: int, path: Path) -> None:
    """Four panels over training steps, a colour a setting, a thin line a seed; PNG or SVG by the suffix."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    panels: list[tuple[str, Callable[[Run], tuple[list[float], list[float]]]]] = [
        ("Effective number of mechanics", lambda run: _line(run, "effective", width)),
        ("Share of games that the hint decides", lambda run: _line(run, "hint decides", width)),
        ("Regret", lambda run: _line(run, "regret", width)),
        ("Held-out return", lambda run: ([float(s) for s in run.scores], list(run.scores.values()))),
    ]
    for axis, (title, line) in zip(axes.flat, panels, strict=True):
        for (name, seeds), colour in zip(runs.items(), COLOURS * len(runs), strict=False):
            lines = [line(run) for run in seeds]
            for x, y in lines:
                axis.plot(x, y, color=colour, linewidth=0.8, alpha=0.5)
            xs = [x for x, _ in lines if x]
            if xs and all(x == xs[0] for x in xs):
                mean = np.nanmean([y for _, y in lines if y], axis=0)
                axis.plot(xs[0], mean, color=colour, marker="o", markersize=3, linewidth=2, label=name)
            else:
                axis.plot([], [], color=colour, label=name)
        axis.set_title(title, fontsize=11)
        axis.set_xlabel("training step")
        axis.grid(alpha=0.25)
        axis.legend(fontsize=8, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=120)
    atomic_write(path, buffer.getvalue())


def _line(run: Run, key: str, width: int) -> tuple[list[float], list[float]]:
    spans = windows(run, width)
    values = [figures(run, *span)[key] for span in spans]
    known = [(float(b), v) for (_, b), v in zip(spans, values, strict=True) if not math.isnan(v)]
    return [x for x, _ in known], [y for _, y in known]


async def recheck(run: Run, width: int, count: int) -> dict[str, float]:
    """Shares of accepted programs of the last window that `embedded/games` refuses, by kind of reason."""
    cfg = load_config("embedded/tools" if _is_tools(run) else "embedded/games")
    first, last = windows(run, width)[-1]
    late = [d["program"] for d in run.designs if d["accepted"] and first <= d["step"] <= last]
    chosen = random.Random(0).sample(late, min(count, len(late)))
    programs = [run.programs[i] for i in chosen]
    async with await Sandbox.start(cfg.sandbox) as sandbox:
        verdicts = await validate_many(programs, sandbox, cfg.validator)
        hints = [await _hint_code(p, sandbox, cfg.hints.max_words, cfg.validator.floor_max) for p in programs]
    codes = [v.code for v in verdicts]
    luck = [c.startswith("floor_") or c in LUCK for c in codes]
    told = [h in HINT_ONLY for h in hints]
    other = [c != "accepted" and not bad for c, bad in zip(codes, luck, strict=True)]
    n = max(1, len(programs))
    return {
        "programs": float(len(programs)),
        "games of luck": sum(luck) / n,
        "hints that give the game away": sum(told) / n,
        "either": sum(a or b for a, b in zip(luck, told, strict=True)) / n,
        "refused for another reason": sum(other) / n,
    }


def _is_tools(run: Run) -> bool:
    return any(p.game_type == "tool_use" for p in run.programs.values())


async def _hint_code(program: EnvProgram, sandbox: Sandbox, max_words: int, floor_max: float) -> str:
    if program.hint is None:
        return "none"
    try:
        result = check_hint(program.hint, await hint_facts(program, sandbox), max_words)
        if result.ok:
            result = await check_hint_play(program.hint, program, sandbox, floor_max)
    except ProgramFault as error:
        return str(error.code)
    return result.code


def main(argv: Sequence[str] | None = None) -> None:
    """Read the runs, write `collapse.md` and the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--window", type=int, default=30, help="training steps of a window")
    parser.add_argument("--format", choices=["png", "svg"], default="png")
    parser.add_argument("--recheck", type=int, default=0, metavar="N", help="programs a run judged once more")
    args = parser.parse_args(argv)
    runs: dict[str, list[Run]] = defaultdict(list)
    for folder in args.runs:
        run = read_run(folder)
        runs[run.name].append(run)
    text = f"# Collapse of the Designer\n\n{table(runs, args.window)}\n"
    if args.recheck:
        found = {
            name: [asyncio.run(recheck(run, args.window, args.recheck)) for run in seeds]
            for name, seeds in runs.items()
        }
        keys = list(next(iter(found.values()))[0])
        rows = [[key, *(cell([f[key] for f in seeds]) for seeds in found.values())] for key in keys]
        text += f"\n{_markdown(rows, ['judged once more', *found])}\n"
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "collapse.md").write_text(text, encoding="utf-8")
    draw(runs, args.window, args.out / f"collapse.{args.format}")
    print(text)


if __name__ == "__main__":
    main()
