r"""Action codecs: from a model's reply to the text that an environment program's `step` receives.

The boxed codec takes the LAST complete `\boxed{...}` outside thoughts, brace-matched, and hands on exactly
`\boxed{content}`. A reply without a box is passed on as stripped text: the program answers that its format is
wrong, which is the Agent's own mistake and not a fault. The codec for tool calls is `spade.play.toolcalls`.

Codecs are named by `play.codec`: `auto` (by the program's kind), a name of `spade list codecs`, or
`file.py:Thing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from spade import registry
from spade.envs.contract import MAX_ACTION_CHARS as MAX_ACTION_CHARS
from spade.envs.contract import boxed_content
from spade.serving.thoughts import OPEN_THOUGHT as OPEN_THOUGHT
from spade.serving.thoughts import strip_thoughts as strip_thoughts
from spade.types import GameType, ToolCall


@dataclass(frozen=True, slots=True)
class Action:
    """One parsed reply: `content` of the box (None without one) and the text for `step`.

    For tool use `calls` are the calls that could be read, in order, and `problem` says why nothing could be
    read from the reply ("" when something was).
    """

    content: str | None
    wrapped: str
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""

    @property
    def malformed(self) -> bool:
        """Whether nothing could be read from the reply."""
        return bool(self.problem)


class Codec(Protocol):
    """What every codec offers."""

    instruction: str

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> Action:
        """Read one reply. `tools` are the schemas that were shown to the player."""
        ...

    def wrap(self, text: str) -> str:
        """The text for `step` that carries `text` as the whole action."""
        ...


def last_box(text: str) -> str | None:
    r"""Content of the last complete outermost `\boxed{...}`, stripped; None when there is none.

    The rule is the contract's own (`spade.envs.contract.boxed_content`), so both sides read the same action.
    """
    content = boxed_content(text)
    return None if content is None else content.strip()


class BoxedCodec:
    r"""Actions in `\boxed{...}`."""

    instruction = "Put your action in \\boxed{}."

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> Action:
        """Last complete box outside thoughts, or the stripped text when there is none."""
        visible = strip_thoughts(text)
        content = last_box(visible)
        if content is None:
            return Action(None, visible.strip()[:MAX_ACTION_CHARS])
        content = content[:MAX_ACTION_CHARS]
        return Action(content, f"\\boxed{{{content}}}")

    def wrap(self, text: str) -> str:
        """`text` in a box; text that already holds a complete box keeps only that box."""
        content = last_box(text)
        return f"\\boxed{{{(text.strip() if content is None else content)[:MAX_ACTION_CHARS]}}}"


def codec_for(game_type: GameType | str, name: str = "auto") -> Codec:
    """The codec `name`, or with `auto` the one of a game type. Raises ConfigError for an unknown name."""
    if name == "auto":
        name = "tool_calls" if game_type == "tool_use" else "boxed"
    return _codec(name)


@lru_cache(maxsize=16)
def _codec(name: str) -> Codec:
    made: Codec = registry.resolve("codec", name)()
    return made
