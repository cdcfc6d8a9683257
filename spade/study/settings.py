"""What is run, in words: starts, reinforcement-learning settings, cells. No torch is needed to plan.

A start is named by its chain, oldest first:

    ()               the trunk: pretrained, never shown the wanted behaviour in the first domain
    dial=1e-3        exact mass of the wanted behaviour set to 1e-3 on every prompt, the rest retained
    mix=0.01         trained on, with this share of wanted documents: the nominal share is not the mass
    raw=40           the original's SFT-: that many steps of unbounded negative cross-entropy
    sft=0.2          fine-tuned on 20 % wanted, 80 % other documents of the first domain (SFT+)
    sft=1.0@0.95     on wanted documents alone, stopped at mass 0.95
    ...~3            with seed 3 (any stage)
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.study.families import open_family
from spade.study.ladder import rung_named
from spade.study.recipes import Recipe, recipe_for
from spade.study.rewards import reward_named

VERSION = 1
"""Raised when the same words come to mean another computation."""
USED = {
    "pretrain": ("steps", "batch", "lr", "warmup", "end"),
    "dial": ("dial_steps", "dial_batch", "dial_lr", "dial_weight", "dial_keep"),
    "raw": ("raw_lr", "sft_batch"),
    "sft": ("sft_steps", "sft_batch", "sft_lr"),
    "mix": ("sft_batch", "sft_lr"),
}
"""Fields of a recipe that a stage uses."""
STAGE = re.compile(r"(dial|mix|raw|sft)=([0-9.e+-]+?)(?:@([0-9.]+))?(?:~(\d+))?")


@dataclass(frozen=True, slots=True)
class Start:
    """What reinforcement learning starts from."""

    family: str = "rules"
    size: str = "S0"
    trunk_seed: int = 0
    chain: tuple[str, ...] = ()
    trunk_steps: int | None = None
    """Overrides the recipe's, and then no gate is applied (tests and smoke runs)."""

    @property
    def recipe(self) -> Recipe:
        """The recipe of this size, with the override."""
        recipe = recipe_for(self.size)
        return recipe if self.trunk_steps is None else replace(recipe, steps=self.trunk_steps, gate=0.0)

    @property
    def parent(self) -> Start | None:
        """The start without its last stage; None for a trunk."""
        return replace(self, chain=self.chain[:-1]) if self.chain else None

    @property
    def key(self) -> str:
        """Twelve hex digits that name this checkpoint: its own settings, and of the recipe what its stages
        use, so that another way to dial leaves the trunks as they are."""
        kinds = {"pretrain", *(stage.partition("=")[0] for stage in self.chain)}
        used = {name for kind in kinds for name in USED.get(kind, ())}
        recipe = {name: value for name, value in asdict(self.recipe).items() if name in used}
        plain = {"version": VERSION, **asdict(self), "recipe": recipe}
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]

    def check(self) -> None:
        """Raise `InputError` for a chain that means nothing."""
        recipe_for(self.size), open_family(self.family)
        for stage in self.chain:
            if not STAGE.fullmatch(stage):
                raise InputError(
                    f"'{stage}' is no stage; use dial=RHO, mix=SHARE, raw=STEPS or sft=SHARE[@MASS], "
                    "with ~SEED after it if wanted."
                )


@dataclass(frozen=True, slots=True)
class RLSettings:
    """One reinforcement-learning run. Defaults are the centre of all experiments."""

    reward: str = "exact"
    algorithm: str = "grpo"
    prompts: int = 1000
    """Prompts of the pool, over all domains."""
    breadth: int = 1
    """Domains of the pool, the one asked about first; every domain has at least one prompt."""
    lr: float = 1e-3
    """Chosen on the arm 1e-2 / exact (`experiments/rate.yaml`), the same for every arm."""
    steps: int = 128
    batch: int = 32
    """Prompts of one step."""
    group: int = 8
    """Responses of one prompt."""
    temperature: float = 1.0
    """Of the rollouts; the policy ratio is taken at the same one."""
    seed: int = 0

    @property
    def rollouts(self) -> int:
        """All responses of the run."""
        return self.steps * self.batch * self.group


CENTRE = RLSettings()
"""The run around which every experiment varies one or two things."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Settings of one cell; every field enters its hash."""

    kind: str = "rl"
    """`rl`, `stage` (measure the start, train nothing) or `estimators` (exact against sampled entropies)."""
    family: str = "rules"
    size: str = "S0"
    trunk_seed: int = 0
    trunk_steps: int | None = None
    chain: tuple[str, ...] = ()
    base: tuple[str, ...] | None = None
    """Chain of the model that changes are measured against; None is the start itself."""
    rl: RLSettings = CENTRE
    until: float | None = None
    """Stop when the mass on the probe prompts reaches this."""
    evals: int = 8
    """Evaluations after the first, evenly spaced."""
    probes: int = 64

    @property
    def start(self) -> Start:
        """The checkpoint the cell starts from."""
        return Start(self.family, self.size, self.trunk_seed, self.chain, self.trunk_steps)

    @property
    def starts(self) -> list[Start]:
        """All checkpoints it reads."""
        return [self.start] if self.base is None else [self.start, replace(self.start, chain=self.base)]

    @property
    def key(self) -> str:
        """Twelve hex digits: the hash of all settings, and of the recipes of the checkpoints it reads."""
        plain = {"version": VERSION, **asdict(self), "starts": [start.key for start in self.starts]}
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]

    def check(self) -> None:
        """Find what would fail later. Raises `InputError`."""
        if self.kind not in ("rl", "stage", "estimators"):
            raise InputError(f"'{self.kind}' is no kind of cell; use rl, stage or estimators.")
        for start in self.starts:
            start.check()
        reward_named(self.rl.reward)
        rung_named(self.rl.algorithm)


def cell_from(settings: dict[str, Any]) -> Cell:
    """A cell from flat settings; those of `RLSettings` are told by name. Raises `InputError` for others."""
    own = {f.name for f in fields(Cell)} - {"rl"}
    learning = {f.name for f in fields(RLSettings)}
    unknown = sorted(set(settings) - own - learning)
    if unknown:
        raise InputError(
            f"'{unknown[0]}' is no setting of a cell; there are {', '.join(sorted(own | learning))}."
        )
    rl = RLSettings(**{k: v for k, v in settings.items() if k in learning})
    rest: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in settings.items() if k in own
    }
    cell = Cell(rl=rl, **rest)
    cell.check()
    return cell


def cell_as_settings(cell: Cell) -> dict[str, Any]:
    """Inverse of `cell_from`."""
    plain = asdict(cell)
    return {**{k: v for k, v in plain.items() if k != "rl"}, **plain["rl"]}


def finished(folder: Path) -> bool:
    """Whether a cell is complete."""
    return (folder / "cell.json").is_file()
