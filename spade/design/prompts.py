"""Briefs and prompts: the only place where text for the model is put together.

Templates live beside this file in `prompts/*.j2`, one message each. `short` ones suit models with a small
context, `full` ones instruction-tuned and base models: they say everything in one user message, because some
chat templates know no system role. Documents, observations, hints and program code are data: they are
inserted as they are, never interpreted as template text, and set off by a fence or tag that they do not hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.design.skills import VARIANTS, meaning
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

MAX_OBSERVATION = 4000
"""Characters of an observation the full brief allows (default of `validator.max_observation_chars`)."""

NAMES = {"multi_turn": "designer", "single_turn": "designer_single", "tool_use": "designer_tools"}
"""Template of each kind of program, without `_short` or `_full`."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all briefs of a run, so that the prompt agrees with what is run.

    `returns` is `play.returns`; `modules` may be imported; `own_hint` asks for `hint()` (`hints.source:
    program`).
    """

    own_hint: bool = False
    returns: str = "outcome"
    modules: tuple[str, ...] = contract.ALLOWED_MODULES
    max_chars: int = MAX_OBSERVATION


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
    *,
    terms: Terms | None = None,
    domain: str = "",
    variant: str = "",
    ideas: Sequence[str] = (),
) -> tuple[Message, ...]:
    """The Designer's brief. `template` is "short" or "full"; `exemplars` come from the memory.

    `domain` and `variant` (a key of `VARIANTS`) belong to tool use; `ideas` are for briefs without a
    document. `own_hint` is short for `Terms(own_hint=True)`. Raises ConfigError for a template that does
    not exist.
    """
    terms = terms or Terms(own_hint=own_hint)
    rows = contract.TOOL_MEMBERS if game_type == "tool_use" else contract.MEMBERS
    unwanted = {"close()"} if terms.own_hint else {"close()", "hint()"}
    return _messages(
        f"{NAMES[game_type]}_{template}",
        document=document,
        tag=source_tag(document),
        skill=skill,
        skill_meaning=meaning(skill),
        game_type=game_type,
        difficulty=difficulty,
        exemplars=list(exemplars),
        members=[(name, rule.removeprefix("optional: ")) for name, rule in rows if name not in unwanted],
        rules=contract.SHORT_RULES[game_type],
        own_hint=terms.own_hint,
        returns=terms.returns,
        modules=terms.modules,
        extra_modules=[m for m in terms.modules if m not in contract.ALLOWED_MODULES],
        max_chars=terms.max_chars,
        domain=domain,
        variant=VARIANTS[variant] if variant else None,
        ideas=list(ideas),
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


def hint_messages(
    code: str, template: str, max_words: int = 100, game_type: str = "multi_turn"
) -> tuple[Message, ...]:
    """The request for a hint about one program; tool use asks for a plan without values in its full form."""
    name = "hint_tools" if game_type == "tool_use" and template == "full" else "hint"
    return _messages(f"{name}_{template}", code=code, max_words=max_words)


def guide_messages(code: str, skill: str, document: str, template: str) -> tuple[Message, ...]:
    """The request for the guide score of one program."""
    return _messages(
        f"guide_{template}",
        code=code,
        skill=skill,
        skill_meaning=meaning(skill),
        document=document,
        tag=source_tag(document),
    )


def repair_message(stage: str, code: str, detail: str, template: str) -> Message:
    """The next user message after a rejected program: the validator's reason in words."""
    return _messages(f"repair_{template}", stage=stage, code=code, detail=detail)[-1]


def fenced(code: str, language: str = "python") -> str:
    """Code in a block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def sentence(text: str) -> str:
    """A text with a full stop at its end, if it has none."""
    return text if text.rstrip().endswith((".", "!", "?")) else f"{text.rstrip()}."


def source_tag(document: str) -> str:
    """Name of the tag around a document: `source`, with a number if the document itself closes such a tag."""
    number = 1
    tag = "source"
    while f"</{tag}>" in document:
        number += 1
        tag = f"source-{number}"
    return tag


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"fenced": fenced, "sentence": sentence}
    return environment


def _messages(template: str, **values: Any) -> tuple[Message, ...]:
    from jinja2 import TemplateNotFound

    try:
        loaded = _environment().get_template(f"{template}.j2")
    except TemplateNotFound as error:
        raise ConfigError(f"there is no prompt template '{template}.j2' in {FOLDER}") from error
    return (Message("user", loaded.render(**values).strip()),)
