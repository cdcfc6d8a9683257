"""What the Designer can be asked for: skills and tool-use task variants, with their meaning in words.

Names are configuration (`spade.config`); this module says what they mean. Example ideas are shown only in
briefs without a document (`design.corpus: none`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EXAMPLES_SHOWN = 3
"""Example ideas named in a brief without a document."""


@dataclass(frozen=True, slots=True)
class Skill:
    """Meaning of a skill in one line, and ideas of programs that train it."""

    meaning: str
    ideas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """A kind of tool-use task: what it asks of the program, in full and in a few words."""

    full: str
    short: str


SKILLS: dict[str, Skill] = {
    "Mathematical Reasoning": Skill(
        "work with numbers, equations and quantities until the result follows",
        (
            "find an unknown rate by measuring twice",
            "reach a target sum with a few allowed operations",
            "weigh coins to find their values",
            "tune two knobs until an equation balances",
        ),
    ),
    "Logical Deduction": Skill(
        "rule out what cannot be, and conclude what must be, from clues and rules",
        (
            "ask truth-tellers and liars to find a key",
            "find a secret code from scored guesses",
            "order guests from clues bought one at a time",
            "find the broken part by testing combinations",
        ),
    ),
    "Spatial Reasoning": Skill(
        "keep track of places, directions, shapes and moves",
        (
            "steer a robot through rooms that are seen one at a time",
            "turn a die onto the wanted face",
            "fold a strip so that marks meet",
            "dig for pipes whose direction is sensed",
        ),
    ),
    "Pattern Recognition": Skill(
        "notice what repeats or grows, and continue it",
        (
            "continue a sequence whose rule is probed term by term",
            "find the odd machine by its outputs",
            "learn a secret substitution of letters",
            "foresee a signal with a hidden period",
        ),
    ),
    "Optimization": Skill(
        "choose what is best when not everything is possible",
        (
            "pack a cart whose item weights show when lifted",
            "find the peak of a hidden curve in few samples",
            "plan deliveries under a fuel limit",
            "share workers among jobs of unknown speed",
        ),
    ),
    "Causal Inference": Skill(
        "find out by trying what causes what, then use it",
        (
            "find which levers drive which lamps",
            "tell a cause from a symptom by switching one thing off",
            "find the ingredient that spoils a mixture",
            "find the order in which valves must be opened",
        ),
    ),
    "Strategic Planning": Skill(
        "look several moves ahead and prepare them",
        (
            "hold a bridge with few troops",
            "set up a trade route before winter",
            "unlock rooms in the right order",
            "win a taking game against a fixed opponent",
        ),
    ),
    "Memory Recall": Skill(
        "remember what was shown earlier and use it later",
        (
            "match hidden pairs of cards",
            "repeat a growing row of signals",
            "retrace a path in the dark",
            "recall which guest ordered what",
        ),
    ),
    "Language Understanding": Skill(
        "grasp meaning, wording and structure of text",
        (
            "find the speaker of a sentence by asking",
            "repair a sentence with swapped words",
            "find a word from its neighbours in meaning",
            "translate with a dictionary that is learned on the way",
        ),
    ),
    "API Orchestration": Skill(
        "combine several tools in the right order",
        (
            "look up, compute and book",
            "pass one tool's result to the next",
            "join two registers",
            "open, change and close a session",
        ),
    ),
    "Data Retrieval": Skill(
        "find the right records with the tools at hand",
        (
            "filter by two properties",
            "page through long lists",
            "follow a reference to another table",
            "find the newest entry",
        ),
    ),
    "State Modification": Skill(
        "change stored data exactly as asked",
        (
            "move an amount between accounts",
            "rename and retag items",
            "undo the last change only",
            "update all entries but one",
        ),
    ),
    "Error Recovery": Skill(
        "notice a failed call and find another way",
        (
            "a locked record",
            "an item out of stock",
            "a name that is taken",
            "a service that wants a permission first",
        ),
    ),
    "Tool Selection": Skill(
        "pick the one tool that fits among similar ones",
        (
            "copy or move",
            "cancel or postpone",
            "read a total or a single entry",
            "add to an amount or set it",
        ),
    ),
    "Multi-Step Workflows": Skill(
        "carry out a chain of dependent actions",
        (
            "order, pay and ship",
            "create a project and assign its tasks",
            "check in and print a pass",
            "collect, sort and archive",
        ),
    ),
}

VARIANTS: dict[str, Variant] = {
    "plain": Variant(
        "Plain execution: the instructions say all that is needed; carrying them out takes the right calls.",
        "say all that is needed",
    ),
    "conditional": Variant(
        "Read, then write: at least one instruction depends on a value that only a read tool shows (if it is "
        "above a limit, do one thing, else another).",
        "one change depends on a value to be read",
    ),
    "missing": Variant(
        "A missing value: the user leaves out a value that is needed. A read tool shows it, and a guessed "
        "value gives an error.",
        "one value is left out and must be looked up",
    ),
    "decline": Variant(
        "One request out of scope: no tool can serve exactly one of the instructions. It is fulfilled by a "
        "call of the tool `decline` with a reason; the others are ordinary.",
        "no tool serves one request, which is to be declined",
    ),
}


def meaning(skill: str) -> str:
    """The skill in one line; empty for a skill of the user's own."""
    return SKILLS[skill].meaning if skill in SKILLS else ""


def ideas(skill: str, rng: random.Random) -> tuple[str, ...]:
    """A few example ideas of a skill, for a brief without a document."""
    known = SKILLS[skill].ideas if skill in SKILLS else ()
    return tuple(rng.sample(known, min(EXAMPLES_SHOWN, len(known))))


def draw_task(domains: Sequence[str], variants: Mapping[str, float], rng: random.Random) -> tuple[str, str]:
    """Domain (uniform) and task variant (by weight) of a tool-use brief; empty where none is on offer."""
    domain = rng.choice(list(domains)) if domains else ""
    names = [name for name, weight in variants.items() if weight > 0]
    variant = rng.choices(names, [variants[n] for n in names])[0] if names else ""
    return domain, variant
