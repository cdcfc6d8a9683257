"""Read evaluation results back: which one a path stands for, its items, and where it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.files import path_inside, read_json, read_jsonl
from spade.types import from_json
from spade_evals.provenance import Origin, run_of
from spade_evals.stored import FORMAT

PLACES = ("*.json", "*/run.json", "eval*/*.json", "eval*/*/run.json")
"""Where results lie below an evaluation or a run folder; suites of tasks have folders of their own."""


@dataclass(frozen=True, slots=True)
class ItemValue:
    """Mean value of one item over its `n` samples, `solved` of which are right."""

    part: str
    cluster: str
    value: float
    n: int = 1
    solved: int = 0


@dataclass(frozen=True, slots=True)
class EvalRun:
    """One evaluated checkpoint. `items` holds scored items only; `faults` counts the others."""

    label: str
    path: Path
    suite: str
    fingerprint: str
    protocol: dict[str, Any]
    checkpoint: str
    ref: str
    origin: Origin
    score: tuple[float | None, float | None, int]
    complete: bool
    items: dict[str, ItemValue]
    faults: int
    single: bool
    """Every item has one sample."""

    @property
    def folder(self) -> Path | None:
        """The training run's folder: the one the result lies in (runs move), else where it was evaluated."""
        home = next((run for above in self.path.parents[:3] if (run := run_of(above))), None)
        return home or (Path(self.origin.folder) if self.origin.folder else None)

    @property
    def seed(self) -> int | None:
        """Seed of the training run; None for a model that was not trained here."""
        return self.origin.seed


def documents(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """All result documents a path stands for: a file, an evaluation folder, or a run folder."""
    if path.is_file():
        files = [path]
    else:
        files = [file for pattern in PLACES for file in sorted(path.glob(pattern))]
    found = []
    for file in files:
        tree = read_json(file, "evaluation result")
        if tree.get("format") == FORMAT:
            found.append((file, tree))
    return found


def expand(paths: Sequence[Path | str]) -> list[Path | str]:
    """`paths` with every folder of runs replaced by its runs, by name; everything else as it is.

    A folder of runs may hold evaluations beside them (the start model's).
    """
    out: list[Path | str] = []
    for path in paths:
        folder = Path(path)
        if folder.is_dir() and run_of(folder) is None and (_has_runs(folder) or not documents(folder)):
            inside = sorted(child for child in folder.iterdir() if child.is_dir() and documents(child))
            out += inside or [path]
        else:
            out.append(path)
    return out


def not_evaluated(paths: Sequence[Path | str]) -> list[str]:
    """A note on the runs in folders of runs that were not evaluated, hence are not compared."""
    folders = [Path(path) for path in paths if Path(path).is_dir() and run_of(Path(path)) is None]
    inside = sorted(child for folder in folders for child in folder.iterdir() if child.is_dir())
    bare = [child.name for child in inside if run_of(child) == child and not documents(child)]
    return [f"not evaluated, hence left out: {', '.join(bare)}"] if bare else []


def _has_runs(folder: Path) -> bool:
    return any(child.is_dir() and run_of(child) is not None for child in folder.iterdir())


def suites_of(path: Path | str) -> set[str]:
    """Names of the suites of which `path` (or `NAME=path`) holds results."""
    return {str(tree["protocol"]["suite"]) for _, tree in documents(_plain_path(path))}


def _plain_path(path: Path | str) -> Path:
    text = str(path)
    return Path(text.split("=", 1)[1]) if "=" in text and not Path(text).exists() else Path(text)


def find(path: Path | str, suite: str | None) -> tuple[Path, dict[str, Any]]:
    """The result a path stands for: of the suite, the latest step, preferring the most items.

    Raises InputError with the command to run when there is none.
    """
    path = _plain_path(path)
    if not path.exists():
        raise InputError(f"there is no folder {path}")
    known = [pair for pair in documents(path) if suite in (None, pair[1]["protocol"]["suite"])]
    if not known:
        wanted = suite or "heldout"
        raise InputError(
            f"{path} holds no evaluation; make one with spade eval --ckpt {path} --suite {wanted}"
        )
    return max(known, key=_rank)


def _rank(pair: tuple[Path, dict[str, Any]]) -> tuple[int, int, bool, str]:
    protocol, origin = pair[1]["protocol"], pair[1]["origin"]
    return int(protocol["n_items"]), int(origin.get("step") or 0), protocol["seed"] == 0, pair[0].name


def load(path: Path | str, suite: str | None = None) -> EvalRun:
    """Read the result behind `path`, or behind `NAME=path` to give it that name."""
    file, tree = find(path, suite)
    try:
        run = _eval_run(file, tree)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file} is not an evaluation result of this version ({error!r})") from error
    name, given, _ = str(path).partition("=")
    return replace(run, label=name) if given and not Path(str(path)).exists() else run


def _eval_run(file: Path, tree: dict[str, Any]) -> EvalRun:
    origin = from_json(Origin, tree["origin"])
    files = [tree["samples"]] if isinstance(tree["samples"], str) else tree["samples"]
    samples = [row for name in files for row in read_jsonl(path_inside(file.parent, name))]
    keys = set(tree.get("keys") or [f"{tree['fingerprint']}-{tree['checkpoint']}"])
    items, faults, single = _items([row for row in samples if row["key"] in keys])
    mean, stderr, n = tree["result"]["score"]
    return EvalRun(
        label=origin.name or tree["ref"],
        path=file,
        suite=tree["protocol"]["suite"],
        fingerprint=tree["fingerprint"],
        protocol=tree["protocol"],
        checkpoint=tree["checkpoint"],
        ref=tree["ref"],
        origin=origin,
        score=(mean, stderr, n),
        complete=tree["complete"],
        items=items,
        faults=faults,
        single=single,
    )


def _items(rows: Sequence[dict[str, Any]]) -> tuple[dict[str, ItemValue], int, bool]:
    """Items by id, the number of faulted ones, and whether each has a single sample.

    A later line for the same item and sample replaces an earlier one: an infrastructure fault that was
    played again.
    """
    latest = {(row["item_id"], row["sample"]): row for row in rows}
    values: dict[str, list[float]] = {}
    solved: Counter[str] = Counter()
    about: dict[str, dict[str, Any]] = {}
    for (item_id, _), row in latest.items():
        about[item_id] = row
        outcome = row["outcome"]
        if outcome["is"] == "Scored":
            values.setdefault(item_id, []).append(outcome["value"])
            solved[item_id] += bool(outcome["solved"])
    items = {
        i: ItemValue(about[i]["part"], about[i]["cluster"], sum(v) / len(v), len(v), solved[i])
        for i, v in values.items()
    }
    return items, len(about) - len(items), all(len(v) == 1 for v in values.values())
