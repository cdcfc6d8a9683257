"""Experiment R1, real models: what is run, in words. No torch is needed to plan; `real_run` runs it.

One prompt, two target texts chosen by their exact prior (`quotes`), a sparse and a graded reward. A response
is the first L tokens the model goes on with, L being the length of the target, and right are just the
target's tokens; so the prior by teacher forcing is exactly the chance of a right response.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any

from spade.errors import InputError
from spade.study.grid import Experiment
from spade.study.settings import cell_from

VERSION = 1
"""Raised when the same words come to mean another computation."""
REWARDS = ("exact", "partial", "lev")
"""Rewards of `spade.study.rewards` that give one number a response of any length."""
BUDGET = 4096
"""Rollouts of one run of the original (128 steps of 32), from which R1 decides."""


@dataclass(frozen=True, slots=True)
class RealCell:
    """Settings of one run on a real checkpoint; every field but `model` enters its hash."""

    model: str
    """Name of the checkpoint, for people."""
    weights: str
    """Twelve hex digits of the SHA-256 over its weight files."""
    prompt: str
    chat: bool
    """Whether the prompt goes through the chat template."""
    prior: str
    """`seen` or `unseen`."""
    target: str
    reward: str = "exact"
    steps: int = 128
    rollouts: int = 32
    """Responses of one step."""
    group: int = 32
    """Responses that are compared with each other; divides `rollouts`."""
    lr: float = 2e-5
    """The original's."""
    temperature: float = 1.0
    lens: int = 16
    """Responses of a step along which entropies and the divergence are measured."""
    seed: int = 0
    kind: str = "real"

    @property
    def key(self) -> str:
        """Twelve hex digits: the hash of all settings."""
        plain = {"version": VERSION, **asdict(self)}
        del plain["model"]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def budget(self) -> int:
        """All responses of the run."""
        return self.steps * self.rollouts

    def check(self) -> None:
        """Find what would fail later. Raises `InputError`."""
        if self.reward not in REWARDS:
            raise InputError(f"R1 has no reward '{self.reward}'; choose one of {', '.join(REWARDS)}.")
        for name in ("steps", "rollouts", "lens"):
            if getattr(self, name) < 1:
                raise InputError(f"R1 needs at least 1 for {name}, not {getattr(self, name)}.")
        if self.group < 2 or self.rollouts % self.group:
            raise InputError(
                f"{self.rollouts} rollouts a step cannot be compared in groups of {self.group}; give a "
                "--group of 2 or more that divides --rollouts."
            )


def real_from(settings: Mapping[str, Any]) -> RealCell:
    """A cell from flat settings. Raises `InputError` for one that is unknown or missing."""
    unknown = sorted(set(settings) - {f.name for f in fields(RealCell)})
    if unknown:
        raise InputError(f"'{unknown[0]}' is no setting of R1.")
    try:
        cell = RealCell(**settings)
    except TypeError as error:
        raise InputError(f"the settings are not those of R1: {error}") from None
    cell.check()
    return cell


def cell_key(settings: Mapping[str, Any]) -> str:
    """Hash of the settings of any cell of the study, as its folder is named."""
    real = settings.get("kind") == "real"
    return real_from(settings).key if real else cell_from(dict(settings)).key


@dataclass(frozen=True, slots=True)
class RealPlanned:
    """A cell of R1 and where it stands: level of every factor, and the seed."""

    cell: RealCell
    labels: dict[str, str]
    seed: int


def plan_real(
    experiment: Experiment, preset: str, world: Mapping[str, Any], targets: Mapping[str, str],
    given: Mapping[str, Any], seeds: int | None = None,
) -> list[RealPlanned]:  # fmt: skip
    """All cells of R1: `world` names checkpoint and prompt, `targets` the text of every level of `prior`,
    `given` are settings that replace the preset's. Unset, all responses of a step are one group.

    Raises `InputError` for an unknown preset or settings that do not fit.
    """
    if preset not in experiment.presets:
        raise InputError(f"R1 has no preset '{preset}'; it has {', '.join(experiment.presets)}.")
    chosen = experiment.presets[preset]
    base = {**experiment.settings, **chosen.get("settings", {}), **given}
    base.setdefault("group", base["rollouts"])
    planned = []
    for prior, reward in product(*(experiment.factors[name] for name in ("prior", "reward"))):
        for seed in range(seeds or int(chosen["seeds"])):
            own = {"prior": prior, "target": targets[prior], "reward": reward, "seed": seed}
            cell = real_from({**base, **world, **own})
            planned.append(RealPlanned(cell, {"prior": prior, "reward": reward}, seed))
    return planned
