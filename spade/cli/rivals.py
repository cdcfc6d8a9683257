"""What a trained checkpoint is compared with: its start model, and baselines of equal seed, start and budget.

    base         the untrained model, evaluated on the same suite
    fixed-pool   the same config with `train.source=fixed_pool` and `budget.like=RUN`
    procedural   the same config with `train.source=procedural` and `budget.like=RUN`

They are looked for beside the run and in the folders of `eval.results`. One that is not there is named with
the command that makes it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade.cli.evaluate import default_out, evaluate
from spade.cli.main import lazy
from spade.config import Config
from spade.config_load import with_overrides
from spade.errors import InputError
from spade.files import read_json
from spade.runs import CHECKPOINT_SCORES, RECORD, read_record
from spade.types import RunRecord

SOURCES = {"fixed-pool": "fixed_pool", "procedural": "procedural"}
NEAR = 0.05
"""Largest relative difference of two budgets that counts as none: a run ends with the step that spends it."""
FOLDER = "compare"
OWN = ("eval", CHECKPOINT_SCORES, FOLDER)
"""Folders of a run that are no rivals of it, though they hold results."""
STEPS = 100_000
"""More than a baseline needs: its budget ends it, and its steps may be smaller than the run's."""


@dataclass(frozen=True, slots=True)
class Rival:
    """One row of the comparison; `paths` is empty where nothing is there yet."""

    name: str
    paths: tuple[Path, ...]
    command: str


def rivals(cfg: Config, run: Path) -> list[Rival]:
    """The start model and each baseline, found or not."""
    record = read_record(run)
    places = [run.parent, *map(Path, cfg.eval.results)]
    suite, weights = cfg.eval.suite, start_weights(cfg.model)
    protocol = _protocol(run, suite)
    base = sorted(p for place in places for p in _base_files(place, weights, suite, protocol))
    found = [Rival("base", tuple(base[:1]), _base_command(cfg))]
    for name, source in SOURCES.items():
        if cfg.train.source != source:
            paths = [
                p
                for place in places
                for p in _folders(place)
                if _is_match(p, record, source, suite, protocol)
            ]
            found.append(Rival(name, tuple(sorted(set(paths))), _command(record, run, name, source)))
    return found


def compare_with_rivals(cfg: Config, run: Path) -> tuple[Any, list[Rival]]:
    """The comparison with what is there, written into `RUN/compare`, and what is missing.

    Raises InputError when the run itself was not evaluated on `eval.suite`.
    """
    known = rivals(cfg, run)
    paths = [path for rival in known for path in rival.paths]
    missing = [rival for rival in known if not rival.paths]
    if cfg.eval.suite not in lazy("spade_evals.results:suites_of")(run):
        raise InputError(f"{run} was not evaluated on {cfg.eval.suite}; spade eval --ckpt {run} does it")
    compare = lazy("spade_evals.compare:compare_runs")
    return compare([*paths, run], None, run / FOLDER, suite=cfg.eval.suite), missing


def make_missing(cfg: Config, run: Path, train_one: Callable[[Config, str], Path]) -> None:
    """Make what `rivals` does not find: evaluate the start model, train each baseline with `train_one`."""
    for rival in rivals(cfg, run):
        if rival.paths:
            continue
        if rival.name == "base":
            evaluate(cfg, cfg.model, cfg.eval.suite, seed=cfg.eval.seed, limit=cfg.eval.episodes,
                     out=run.parent / default_out(cfg.model).name)  # fmt: skip
            continue
        changes = [
            f"name={cfg.name}-{rival.name}", f"train.source={SOURCES[rival.name]}", "train.pool=null",
            f"budget.like={run}", "eval.at_end=true", f"train.steps={STEPS}",
            f"out={run.parent / f'{run.name}-{rival.name}'}",
        ]  # fmt: skip
        train_one(with_overrides(cfg, changes), rival.command)


def missing_text(missing: list[Rival]) -> str:
    """One line for each, with its command."""
    return "\n".join(f"not compared with {rival.name}: {rival.command}" for rival in missing)


def _command(record: RunRecord, run: Path, name: str, source: str) -> str:
    """The command of the run, with what makes it the baseline."""
    changes = (
        f"name={record.config['name']}-{name} train.source={source} train.steps={STEPS} budget.like={run} "
        "eval.at_end=true train.pool=null"
    )
    kept = [
        word
        for word in shlex.split(record.command)
        if not word.startswith(("out=", "name=", "budget.", "train.steps=", "--"))
    ]
    return f"{shlex.join(kept)} {changes}"


def _folders(place: Path) -> Iterator[Path]:
    """Folders in which a run or an evaluation may lie, `place/*` and `place/*/*`."""
    for pattern in ("*", "*/*"):
        yield from (path for path in place.glob(pattern) if path.is_dir() and path.name not in OWN)


def start_weights(model: str) -> str:
    """Hash of the weights behind a start model. A name is not enough: the model that comes with the package
    changes between versions."""
    return str(lazy("spade_evals.runner:subject_of")(model).checkpoint)


def _base_command(cfg: Config) -> str:
    """The command that evaluates the start model as the run is evaluated at its end."""
    words = ["spade", "eval", "--ckpt", cfg.model, "--suite", cfg.eval.suite]
    words += ["--limit", str(cfg.eval.episodes)] if cfg.eval.episodes is not None else []
    words += ["--seed", str(cfg.eval.seed)] if cfg.eval.seed else []
    return shlex.join([*words, "--out", str(default_out(cfg.model))])


def _protocol(path: Path, suite: str) -> str | None:
    """Fingerprint of the result of `suite` that stands for `path`; None without one."""
    if suite not in lazy("spade_evals.results:suites_of")(path):
        return None
    return str(lazy("spade_evals.results:find")(path, suite)[1]["fingerprint"])


def _base_files(place: Path, weights: str, suite: str, protocol: str | None) -> Iterator[Path]:
    """Results of the start model below `place`, under the protocol of the run."""
    for path in _folders(place):
        if (path / RECORD).is_file():
            continue
        for file, tree in lazy("spade_evals.results:documents")(path):
            if (
                tree["checkpoint"] == weights
                and tree["origin"].get("seed") is None
                and tree["protocol"]["suite"] == suite
                and tree["fingerprint"] == (protocol or tree["fingerprint"])
            ):
                yield file


def _is_match(path: Path, record: RunRecord, source: str, suite: str, protocol: str | None) -> bool:
    """Whether `path` is a run of `source` with seed, start weights and spending of `record`, evaluated so."""
    if not (path / RECORD).is_file() or "format" in read_json(path / RECORD, "run record"):
        return False
    other = read_record(path)
    train = other.config.get("train") or {}
    spent, wanted = (float(r.ledger.get("total_tokens") or 0) for r in (other, record))
    asked = (other.config.get("budget") or {}).get("total_tokens")  # as `budget.like` sets it
    return (
        other.id != record.id
        and other.seed == record.seed
        and train.get("source") == source
        and "model" in record.data
        and other.data.get("model") == record.data["model"]
        and (asked == int(wanted) or abs(spent - wanted) <= NEAR * wanted)
        and (own := _protocol(path, suite)) is not None
        and own == (protocol or own)
    )
