"""The `heldout` suite: environment programs that no training run has seen.

Part `a` has the mechanics of the embedded model's corpus with parameters kept out of it, an easier and a
harder half. Part `b` has sixteen hand-written programs whose rules are absent from the corpus: they use its
words and its kind of feedback, so what they measure is whether skill carries over to a new rule.
Every program is played from many seeds; clusters are programs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spade.play.actions import codec_for
from spade.rng import child_seed
from spade.types import EnvProgram, Episode, Instance, Item, ItemResult
from spade_evals.suite import About, Setting, take

if TYPE_CHECKING:
    from spade.serving.launch import ChatPolicy

FOLDER = Path(__file__).with_name("heldout_programs")

EPISODES = {"a/easy": 320, "a/hard": 320, "b": 480}
"""Fewest episodes of each part; every program of a part gets the same number of seeds."""

MAX_TEXT = 2000
"""Characters of an episode's transcript kept with its result."""


@dataclass(frozen=True, slots=True)
class HeldProgram:
    """One program of the suite. `name` is its cluster."""

    name: str
    part: str
    family: str
    program: EnvProgram


def new_mechanics() -> list[HeldProgram]:
    """Part `b`: the program files beside this module; a file is named `family_setting.py`."""
    out = []
    for path in sorted(FOLDER.glob("*.py")):
        program = EnvProgram.of(path.read_text(encoding="utf-8"), source="heldout")
        out.append(HeldProgram(path.stem, "b", path.stem.rsplit("_", 1)[0], program))
    return out


def new_parameters(validation: bool = False) -> list[HeldProgram]:
    """Part `a`: corpus mechanics under held-out parameters, those of the test or of the validation set."""
    from spade.embedded.heldout import heldout_programs, validation_programs

    return [
        HeldProgram(p.name, f"a/{p.half}", p.family, EnvProgram.of(p.code, source="heldout"))
        for p in (validation_programs() if validation else heldout_programs())
    ]


class HeldoutSuite:
    """See the module text. `programs` replaces the shipped ones (tests)."""

    name = "heldout"
    version = 1
    about = About(1_120, "80 programs of the package: 64 by the corpus' mechanics, 16 by hand", "1", "MIT")

    def __init__(self, programs: Sequence[HeldProgram] | None = None) -> None:
        self.programs = list(programs) if programs is not None else [*new_parameters(), *new_mechanics()]

    def items(self, seed: int, limit: int | None) -> list[Item]:
        """One item per program and seed; its id names part, program, code hash and number."""
        items = []
        for held in self.programs:
            share = sum(p.part == held.part for p in self.programs)
            for k in range(math.ceil(EPISODES[held.part] / share)):
                payload = {
                    "program": held.program.id,
                    "family": held.family,
                    "seed": child_seed(seed, "heldout", held.program.id, k) % 2**31,
                }
                name = f"{held.part}/{held.name}/{held.program.id[:12]}/{k}"
                items.append(Item(name, held.part, held.name, payload))
        return take(items, limit)

    def prompt(self, chat: ChatPolicy) -> str:
        """The first user message around a marker."""
        from spade.design.prompts import agent_message, choose_template

        style = choose_template("auto", chat.policy.context_length)
        return agent_message("OBSERVATION", None, style, codec_for("multi_turn").instruction).content

    async def run(self, items: Sequence[Item], setting: Setting) -> list[ItemResult]:
        """Play the items without hints."""
        from spade.play.schedule import play

        programs = {held.program.id: held.program for held in self.programs}
        episodes = await play(
            [Instance(item.payload["program"], item.payload["seed"]) for item in items],
            programs,
            setting.chat,
            setting.sandbox,
            setting.play,
            seed=child_seed(setting.seed, "heldout-sampling"),
            on_done=setting.on_done,
        )
        return [_result(item, episode) for item, episode in zip(items, episodes, strict=True)]


def make_suite() -> HeldoutSuite:
    """The registered factory."""
    return HeldoutSuite()


class ValidationSuite(HeldoutSuite):
    """Like part `a`, on other programs: for choosing settings, so that the test set stays unseen."""

    name = "validation"
    about = About(660, "60 programs of the package, by the corpus' mechanics", "1", "MIT")


def make_validation() -> ValidationSuite:
    """The registered factory."""
    return ValidationSuite(new_parameters(validation=True))


def _result(item: Item, episode: Episode) -> ItemResult:
    lines = [episode.first_observation]
    for turn in episode.turns:
        lines += [f"> {turn.text.strip()}", turn.observation]
    return ItemResult(
        item_id=item.id,
        part=item.part,
        cluster=item.cluster,
        sample=0,
        outcome=episode.outcome,
        end=episode.end.value,
        tokens=episode.sampled_tokens,
        text="\n".join(lines)[:MAX_TEXT],
    )
