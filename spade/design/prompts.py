"""Briefs and prompts: the only place where text for the model is put together.

Templates live beside this file in `prompts/*.j2`. A template may have two blocks, `system` and `user`, one
message each; without blocks the whole text is the user message. `short` templates suit models with a small
context, `full` ones instruction-tuned models. Documents, observations and program code are data: they
are inserted as they are and never interpreted as template text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.envs import contract
from spade.errors import ConfigError
from spade.play.actions import BoxedCodec
from spade.types import Message

if TYPE_CHECKING:
    from jinja2 import Environment

    from spade.envs.memory import Exemplar

FOLDER = Path(__file__).with_name("prompts")

SHORT_CONTEXT = 4096
"""Models with at most this context get the short templates under `template: auto`."""

SKILL_MEANINGS = {
    "Mathematical Reasoning": "work with numbers, equations and quantities until the result follows",
    "Logical Deduction": "rule out what cannot be, and conclude what must be, from clues and rules",
    "Spatial Reasoning": "keep track of places, directions, shapes and moves",
    "Pattern Recognition": "notice what repeats or grows, and continue it",
    "Optimization": "choose what is best when not everything is possible",
    "Causal Inference": "find out by trying what causes what, then use it",
    "Strategic Planning": "look several moves ahead and prepare them",
    "Memory Recall": "remember what was shown earlier and use it later",
    "Language Understanding": "grasp meaning, wording and structure of text",
    "API Orchestration": "combine several tools in the right order",
    "Data Retrieval": "find the right records with the tools at hand",
    "State Modification": "change stored data exactly as asked",
    "Error Recovery": "notice a failed call and find another way",
    "Tool Selection": "pick the one tool that fits among similar ones",
    "Multi-Step Workflows": "carry out a chain of dependent actions",
}


def choose_template(template: str, context_length: int) -> str:
    """ "short" or "full"; "auto" decides by the model's context length in tokens."""
    if template == "auto":
        return "short" if context_length <= SHORT_CONTEXT else "full"
    return template


def designer_messages(
    document: str,
    skill: str,
    game_type: str,
    difficulty: str,
    exemplars: Sequence[Exemplar],
    template: str,
    own_hint: bool = False,
) -> tuple[Message, ...]:
    """The Designer's brief. `template` is "short" or "full"; `exemplars` come from the memory.

    `own_hint` asks for a method `hint()` that names the strategy (`hints.source: program`).
    """
    name = "designer_single" if game_type == "single_turn" and template == "full" else "designer"
    return _messages(
        f"{name}_{template}",
        document=document,
        skill=skill,
        skill_meaning=SKILL_MEANINGS.get(skill, ""),
        game_type=game_type,
        difficulty=difficulty,
        exemplars=list(exemplars),
        contract=contract,
        own_hint=own_hint,
    )


def agent_message(
    observation: str,
    hint: str | None,
    template: str,
    instruction: str = BoxedCodec.instruction,
) -> Message:
    """The Agent's opening message: instruction, observation and, in the hinted arm, the hint last.

    `instruction` is the action codec's.
    """
    values = {"observation": observation, "hint": hint, "instruction": instruction}
    return _messages(f"agent_{template}", **values)[-1]


def hint_messages(code: str, template: str, max_words: int = 100) -> tuple[Message, ...]:
    """The request for a hint about one program."""
    return _messages(f"hint_{template}", code=code, max_words=max_words)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )


def _messages(template: str, **values: Any) -> tuple[Message, ...]:
    from jinja2 import TemplateNotFound

    try:
        loaded = _environment().get_template(f"{template}.j2")
    except TemplateNotFound as error:
        raise ConfigError(f"there is no prompt template '{template}.j2' in {FOLDER}") from error
    if not loaded.blocks:
        return (Message("user", loaded.render(**values).strip()),)
    found: list[Message] = []
    if "system" in loaded.blocks:
        found.append(Message("system", _block(loaded, "system", values)))
    found.append(Message("user", _block(loaded, "user", values)))
    return tuple(found)


def _block(loaded: Any, name: str, values: dict[str, Any]) -> str:
    return "".join(loaded.blocks[name](loaded.new_context(values))).strip()
