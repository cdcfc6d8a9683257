"""Measure what the embedded model can do and write its model card.

Four figures, for games and for tool use, at temperature 1.0 and with the validator, sandbox and play loop
that training uses: share of designs that pass, distinct programs among them, plain return and hinted return
on its own designs. Hints are the model's own; a hint that fails its checks drops out of both arms. Hint-only
play (observations blanked) is measured beside them: it must fail.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.config import Config
from spade.types import Design, EnvProgram, Episode, Instance, Scored

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.launch import ChatPolicy

BARS = {"accept_rate": 0.60, "distinct": 100, "plain_low": 0.25, "plain_high": 0.65, "gain": 0.15}
"""What the shipped model must reach on 500 samples."""


@dataclass
class Card:
    """The measured figures of one checkpoint."""

    samples: int
    accept_rate: float
    distinct: int
    plain_return: float
    hinted_return: float
    hint_only_return: float
    hint_pass_rate: float
    programs_played: int
    plays: int
    level: str
    rejects: dict[str, int] = field(default_factory=dict)
    families: dict[str, int] = field(default_factory=dict)

    def holds(self) -> bool:
        """Whether all bars are met."""
        gain = self.hinted_return - self.plain_return
        return (
            self.accept_rate >= BARS["accept_rate"]
            and self.distinct >= BARS["distinct"]
            and BARS["plain_low"] <= self.plain_return <= BARS["plain_high"]
            and gain >= BARS["gain"]
        )


async def measure(
    ref: str, cfg: Config, samples: int = 500, programs: int = 120, log: Callable[[str], None] = print
) -> Card:
    """Sample `samples` designs of `ref`, validate them, and play `programs` distinct accepted ones."""
    from spade.design.designer import Designer
    from spade.design.hints import write_hints
    from spade.envs.sandbox import Sandbox
    from spade.serving.launch import open_chat

    chat = await open_chat(ref, cfg.serving)
    try:
        async with await Sandbox.start(cfg.sandbox) as sandbox:
            designer = Designer(cfg, chat, sandbox)
            designs: list[Design] = []
            while len(designs) < samples:
                step = len(designs) // 100 * cfg.design.every
                designs += await designer.sample(step, min(100, samples - len(designs)))
            log(f"{samples} designs written")
            verdicts = await _verdicts(designs, sandbox, cfg)
            good = [d.program for d in designs if d.program and verdicts.get(d.program.id) == "accepted"]
            distinct = list({p.id: p for p in good}.values())
            log(f"{len(good)} accepted, {len(distinct)} distinct")
            chosen = distinct[:programs]
            hints = await write_hints(
                chosen, chat, sandbox, cfg.hints, seed=cfg.seed, floor_max=cfg.validator.floor_max
            )
            usable = {h.program_id: h.usable for h in hints if h.usable}
            arms = await _arms([p for p in chosen if p.id in usable], usable, chat, sandbox, cfg)
            plain, hinted, blind = (_mean(a) for a in arms)
            return Card(
                samples=samples,
                accept_rate=len(good) / samples,
                distinct=len(distinct),
                plain_return=plain,
                hinted_return=hinted,
                hint_only_return=blind,
                hint_pass_rate=len(usable) / max(1, len(chosen)),
                programs_played=len(usable),
                plays=len(arms[0]),
                level=sandbox.level,
                rejects=dict(Counter(_reason(d, verdicts) for d in designs).most_common()),
                families=dict(Counter(_family(p) for p in good).most_common()),
            )
    finally:
        await chat.policy.close()


async def _verdicts(designs: Sequence[Design], sandbox: Sandbox, cfg: Config) -> dict[str, str]:
    from spade.envs.validate import validate_many

    unique = list({d.program.id: d.program for d in designs if d.program}.values())
    return {v.program_id: v.code for v in await validate_many(unique, sandbox, cfg.validator)}


async def _arms(
    programs: Sequence[EnvProgram], hints: dict[str, str], chat: ChatPolicy, sandbox: Sandbox, cfg: Config
) -> list[list[Episode]]:
    """Plain, hinted and hint-only plays on the same programs and seeds."""
    from spade.play.schedule import play

    by_id = {p.id: p for p in programs}
    arms = []
    for hinted, blank in ((False, False), (True, False), (True, True)):
        instances = [
            Instance(p.id, seed, hints[p.id] if hinted else None) for p in programs for seed in range(1, 9)
        ]
        arms.append(await play(instances, by_id, chat, sandbox, cfg.play, seed=cfg.seed, blank=blank))
    return arms


def _mean(episodes: Sequence[Episode]) -> float:
    values = [e.outcome.value for e in episodes if isinstance(e.outcome, Scored)]
    return statistics.fmean(values) if values else 0.0


def _reason(design: Design, verdicts: dict[str, str]) -> str:
    return "no_code" if design.program is None else verdicts.get(design.program.id, "no_verdict")


def _family(program: EnvProgram) -> str:
    """Class name of the program, a good enough stand-in for its mechanic here."""
    return next((w.split("(")[0].strip(":") for w in program.code.split() if "Env" in w), "?")


CARD_TEXT = """---
license: mit
library_name: transformers
tags: [spade, reinforcement-learning, self-play]
---

# The embedded default model

A Llama-architecture model of {parameters:,} parameters with its own {vocabulary}-entry tokenizer, trained
from scratch by `spade embedded build` on a synthetic corpus (documents, environment programs over {mechanics}
mechanics, scripted episodes with and without hints, tool-use programs and episodes). It exists so that
self-play runs on a laptop in minutes; it knows nothing else.

Measured by `spade embedded card` on {samples} designs of each kind at temperature 1.0, sandbox level {level}:

{table}

{details}
"""

FIGURES = (
    ("designs that pass the validator", "accept_rate", ">= 0.60"),
    ("distinct programs among them", "distinct", ">= 100"),
    ("plain return on its own designs", "plain_return", "0.25 to 0.65"),
    ("hinted return on the same programs and seeds", "hinted_return", "plain + 0.15"),
    ("hint-only return (observations blanked)", "hint_only_return", "low"),
    ("hints that pass their checks", "hint_pass_rate", ""),
)
"""Rows of the card: what, field, bar."""

KINDS = {"games": "demo", "tool use": "embedded/tools"}
"""What is measured, and the shipped config that says how."""


def write_card(folder: Path, cards: dict[str, Card]) -> None:
    """Write `README.md` and `card.json` into the model folder; `cards` by kind (`KINDS`)."""
    from spade.embedded.mechanics import registry, tool_registry

    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    rows = {kind: asdict(card) for kind, card in cards.items()}
    (folder / "card.json").write_text(json.dumps(rows, indent=1) + "\n")
    first = next(iter(cards.values()))
    text = CARD_TEXT.format(
        samples=first.samples,
        level=first.level,
        table=_table(cards),
        details="\n\n".join(_details(kind, card) for kind, card in cards.items()),
        parameters=_parameters(folder),
        vocabulary=config["vocab_size"],
        mechanics=len(registry()) + len(tool_registry()),
    )
    (folder / "README.md").write_text(text)


def read_cards(folder: Path) -> dict[str, Card]:
    """The cards of a model folder by kind."""
    rows = json.loads((folder / "card.json").read_text())
    return {kind: Card(**row) for kind, row in rows.items()}


def _table(cards: dict[str, Card]) -> str:
    head = f"| figure | {' | '.join(cards)} | bar |\n|---|{'---|' * len(cards)}---|"
    lines = [head]
    for what, name, bar in FIGURES:
        values = (getattr(card, name) for card in cards.values())
        cells = " | ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in values)
        lines.append(f"| {what} | {cells} | {bar} |")
    return "\n".join(lines)


def _details(kind: str, card: Card) -> str:
    rejects, families = (
        ", ".join(f"{k} {v}" for k, v in rows.items()) or "none" for rows in (card.rejects, card.families)
    )
    short = "" if card.holds() else "**Not all bars are met.** "
    return (
        f"{kind.capitalize()}: {short}{card.programs_played} programs were played {card.plays} times in each "
        "arm. "
        f"Reject reasons: {rejects}. Accepted programs by class: {families}."
    )


def _parameters(folder: Path) -> int:
    """Number of parameters in `model.safetensors`, read from its header."""
    raw = (folder / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    total = 0
    for name, row in header.items():
        if name != "__metadata__":
            size = 1
            for axis in row["shape"]:
                size *= axis
            total += size
    return total
