"""Does the Designer collapse? A table and a plot from finished runs of several settings and seeds.

    python benchmarks/collapse_start.py --out runs/reader
    for seed in 0 1 2; do
      for config in games collapse-answers; do
        spade train embedded/$config seed=$seed model=runs/reader train.steps=150 budget.total_tokens=null \\
          design.every=1 design.designs=12 play.programs=6 play.plays=8 play.hinted_plays=6 \\
          train.checkpoint_every=30 train.keep=6
        for step in 30 60 90 120 150; do
          spade eval --ckpt runs/$config-s$seed@$step --suite heldout --limit 560
        done
      done
    done
    python benchmarks/collapse.py runs/games-s* runs/collapse-answers-s* --recheck 40 \\
      --out results/tables/collapse

Runs of one config name are one setting; figures are means over its seeds with their range, and the
differences of the last window have the 95 % t interval over seeds. A *mechanic* is a cluster of programs that
are equal up to names and constants (`spade.envs.fingerprint.skeleton`); their *effective number* is
exp(entropy of the clusters' shares). `first` and `last` are the first and the last window of that many
training steps. With `--recheck` the last so many accepted programs are judged once more, with their hints, by
the validator and the hint checks of `embedded/games`: how many of them the default would have refused, and
why.

All figures are kept in `figures.json`, from which the same command makes table and plot again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

if __package__:
    from benchmarks.collapse_report import Summary, draw, report
else:
    from collapse_report import Summary, draw, report  # run as a script

from spade.config_load import load_config
from spade.design.parse import extract_code
from spade.design.variety import structure
from spade.envs.hintcheck import check_hint, check_hint_play, hint_facts
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate_many
from spade.errors import InputError, ProgramFault
from spade.files import read_jsonl
from spade.runs import read_record
from spade.types import EnvProgram

DECIDES = 0.5
"""Difference of the arms' means from which on the hint is said to decide the game."""
LUCK = ("other_seed_wins", "no_information", "answer_in_observation", "answer_in_feedback")
"""Reason codes, besides `floor_*`, of games that are won without a look at them."""
HINT_ONLY = ("hint_leaks_answer", "hint_leaks_code", "hint_wins_alone")
"""Reason codes of hints that give the game away."""
DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Run:
    """What the folder of one run holds about its designs."""

    name: str
    seed: int
    metrics: tuple[Mapping[str, Any], ...]
    designs: tuple[Mapping[str, Any], ...]
    """Rows of `designs.jsonl`; sound ones (accepted, or repeats of such) with `structure`, and accepted ones
    with `gap` where both arms were played."""
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
    designs, programs = [], {}
    for row in read_jsonl(folder / "designs.jsonl"):
        if row["accepted"]:
            code = _code(folder, row)
            row |= {"structure": structure(code), "gap": gaps.get(row["program"])}
            hint = row["hint"] if row["hint_code"] == "ok" else None
            game_type = record.config["design"]["game_type"]
            programs[row["program"]] = EnvProgram(row["program"], code, row["skill"], game_type, hint=hint)
        elif row["code"] == DUPLICATE and (repeated := extract_code(row["text"])) is not None:
            row["structure"] = structure(repeated)
        designs.append(row)
    name = str(record.config["name"])
    return Run(name, record.seed, tuple(metrics), tuple(designs), _scores(folder), programs)


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


def most_frequent(structures: Sequence[str]) -> float:
    """Share of the largest cluster."""
    return Counter(structures).most_common(1)[0][1] / len(structures) if structures else math.nan


def figures(run: Run, first: int, last: int) -> dict[str, float]:
    """Numbers over the steps first..last (counted from 1, both included); NaN where there is nothing."""
    designs = [d for d in run.designs if first <= d["step"] <= last]
    good = [d for d in designs if d["accepted"]]
    made = [d["structure"] for d in good]
    sound = [d["structure"] for d in designs if "structure" in d]
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
        "repeats": share([d["code"] == DUPLICATE for d in designs]),
        "mechanics": float(len(set(made))) if made else math.nan,
        "effective": effective(made),
        "effective, repeats counted": effective(sound),
        "most frequent": most_frequent(made),
        "most frequent, repeats counted": most_frequent(sound),
        "hint decides": share([g >= DECIDES for g in gaps]),
        "refused: luck": share(luck),
        "refused: hint": share([code in HINT_ONLY for code in hints]),
        "regret": mean("regret"),
        "return": mean("return_plain"),
        "return with hint": mean("return_hinted"),
    }


def windows(run: Run, width: int) -> list[tuple[int, int]]:
    """Consecutive windows of `width` steps; a shorter rest belongs to the last one."""
    starts = list(range(1, max(2, run.steps - width + 2), width))
    return [(a, b - 1) for a, b in zip(starts, [*starts[1:], run.steps + 1], strict=True)]


def summarise(run: Run, width: int, count: int) -> Summary:
    """All figures of one run; `count` late programs are judged once more."""
    spans = windows(run, width)
    again = asyncio.run(recheck(run, count)) if count else {}
    return Summary(
        run.name, run.seed, spans, [figures(run, *span) for span in spans], dict(run.scores), again
    )


async def recheck(run: Run, count: int) -> dict[str, float]:
    """Shares of the last accepted programs that `embedded/games` refuses, by kind of reason."""
    cfg = load_config("embedded/tools" if _is_tools(run) else "embedded/games")
    programs = [run.programs[d["program"]] for d in run.designs if d["accepted"]][-count:]
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


def read_summaries(path: Path) -> list[Summary]:
    """Figures kept by an earlier call; JSON has no NaN, so null stands for it."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    for row in rows:
        row["figures"] = [{k: math.nan if v is None else v for k, v in f.items()} for f in row["figures"]]
        row["scores"] = {int(step): score for step, score in row["scores"].items()}
        row["spans"] = [(first, last) for first, last in row["spans"]]
    return [Summary(**row) for row in rows]


def write_summaries(path: Path, summaries: Sequence[Summary]) -> None:
    """Inverse of `read_summaries`."""
    rows = [asdict(s) for s in summaries]
    for row in rows:
        row["figures"] = [{k: None if math.isnan(v) else v for k, v in f.items()} for f in row["figures"]]
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    """Read the runs, write `collapse.md`, `figures.json` and the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="run folders, or a figures.json in their place"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--window", type=int, default=30, help="training steps of a window")
    parser.add_argument("--format", choices=["png", "svg"], default="png")
    parser.add_argument("--recheck", type=int, default=0, metavar="N", help="programs a run judged once more")
    args = parser.parse_args(argv)
    summaries: list[Summary] = []
    for path in args.runs:
        if path.suffix == ".json":
            summaries += read_summaries(path)
        else:
            summaries.append(summarise(read_run(path), args.window, args.recheck))
    args.out.mkdir(parents=True, exist_ok=True)
    text = report(summaries)
    (args.out / "collapse.md").write_text(text, encoding="utf-8")
    write_summaries(args.out / "figures.json", summaries)
    draw(summaries, args.out / f"collapse.{args.format}")
    print(text)


if __name__ == "__main__":
    main()
