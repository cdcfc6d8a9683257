"""Experiments as declarative grids: one YAML file each, levels of named factors, presets that take a part.

    factors:
      prior: {never: {chain: []}, 1e-2: {chain: [dial=1e-2]}}     a level is a set of settings ...
      reward: [exact, partial]                                    ... or a value of the setting of that name
    presets:
      quick: {seeds: 3, levels: {reward: [exact]}, settings: {steps: 64}}

Arms are paired: seed s means the same prompt pool and the same random numbers in every arm.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from spade.errors import InputError
from spade.study.settings import Cell, cell_from

FOLDER = Path(__file__).with_name("experiments")
PRESETS = ("smoke", "quick", "full")


@dataclass(frozen=True)
class Experiment:
    """One experiment file."""

    id: str
    title: str
    question: str
    source: str
    settings: dict[str, Any]
    factors: dict[str, dict[str, dict[str, Any]]]
    presets: dict[str, dict[str, Any]]
    default: tuple[str, ...]
    """Presets that include this experiment when none is named."""


@dataclass(frozen=True)
class Planned:
    """A cell and where it stands in its experiment: level of every factor, and the seed."""

    cell: Cell
    labels: dict[str, str]
    seed: int


def experiment_names() -> list[str]:
    """Ids of the shipped experiments, in order."""
    return sorted((p.stem for p in FOLDER.glob("E*.yaml")), key=lambda name: int(name[1:]))


def load_experiment(name: str) -> Experiment:
    """A shipped experiment by id, or one from a YAML file. Raises `InputError` when there is none."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name.upper()}.yaml"
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        names = ", ".join(experiment_names())
        raise InputError(
            f"there is no experiment '{name}'; there are {names}, or give a YAML file."
        ) from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not valid YAML: {error}") from None
    try:
        factors = {str(n): _levels(str(n), levels) for n, levels in data["factors"].items()}
        return Experiment(
            str(data["id"]), data["title"], data["question"], data["source"], dict(data["settings"]), factors,
            dict(data["presets"]), tuple(data.get("default", ())),
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no experiment: {error}") from None


def plan(experiment: Experiment, preset: str, seeds: int | None = None) -> list[Planned]:
    """All cells of an experiment under a preset. Raises `InputError` for an unknown preset or level."""
    if preset not in experiment.presets:
        known = ", ".join(experiment.presets)
        raise InputError(f"{experiment.id} has no preset '{preset}'; it has {known}.")
    chosen = experiment.presets[preset]
    wanted = {str(n): [str(x) for x in levels] for n, levels in chosen.get("levels", {}).items()}
    names = list(experiment.factors)
    columns = [_chosen(experiment, name, wanted.get(name)) for name in names]
    planned = []
    for levels in itertools.product(*columns):
        for seed in range(seeds or int(chosen["seeds"])):
            settings = {**experiment.settings}
            for name, level in zip(names, levels, strict=True):
                settings |= experiment.factors[name][level]
            settings |= {**chosen.get("settings", {}), "seed": seed}
            settings = {key: _with_seed(value, seed) for key, value in settings.items()}
            planned.append(Planned(cell_from(settings), dict(zip(names, levels, strict=True)), seed))
    return planned


def _levels(name: str, levels: Any) -> dict[str, dict[str, Any]]:
    if isinstance(levels, list):
        return {str(value): {name: value} for value in levels}
    return {str(label): dict(settings) for label, settings in levels.items()}


def _chosen(experiment: Experiment, name: str, wanted: list[str] | None) -> list[str]:
    there = experiment.factors[name]
    for level in wanted or ():
        if level not in there:
            raise InputError(
                f"{experiment.id}: factor {name} has no level '{level}', only {', '.join(there)}."
            )
    return list(there) if wanted is None else wanted


def _with_seed(value: Any, seed: int) -> Any:
    """Fill `{seed}` in the stages of a chain."""
    if isinstance(value, list):
        return [_with_seed(item, seed) for item in value]
    return re.sub(r"\{seed\}", str(seed), value) if isinstance(value, str) else value
