r"""Action codecs: from a model's reply to the text that an environment program's `step` receives.

The boxed codec takes the LAST complete `\boxed{...}` outside `<think>` blocks, brace-matched, and hands on
exactly `\boxed{content}`. A reply without a box is passed on as stripped text: the program answers that its
format is wrong, which is the Agent's own mistake and not a fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from spade.types import GameType

MAX_ACTION_CHARS = 100_000
"""Longer actions are cut: nothing sensible is longer, and a program may scan the text quadratically."""

_BRACES = re.compile(r"\\boxed\s*\{|[{}]")


@dataclass(frozen=True, slots=True)
class Action:
    """One parsed reply: `content` of the box (None without a box) and the text for `step`."""

    content: str | None
    wrapped: str


class Codec(Protocol):
    """What every codec offers."""

    instruction: str

    def parse(self, text: str) -> Action:
        """Read one reply."""
        ...

    def wrap(self, text: str) -> str:
        """The text for `step` that carries `text` as the whole action."""
        ...


def strip_thoughts(text: str) -> str:
    """Drop `<think>...</think>` blocks, an unopened thought before `</think>` and an unclosed one after."""
    kept: list[str] = []
    position = 0
    while (start := text.find("<think>", position)) >= 0:
        stop = text.find("</think>", start)
        if stop < 0:
            text = text[:start]
            break
        kept.append(text[position:start])
        position = stop + len("</think>")
    kept.append(text[position:])
    visible = "".join(kept)
    return visible.rsplit("</think>", 1)[-1]


def last_box(text: str) -> str | None:
    r"""Content of the last complete outermost `\boxed{...}`; None when there is none. Linear in the text.

    A box that holds nothing but a box is unwrapped, a few levels deep.
    """
    content = _outer_box(text)
    for _ in range(3):
        if content is None or not content.startswith("\\boxed") or not content.endswith("}"):
            break
        content = _outer_box(content)
    return content


def _outer_box(text: str) -> str | None:
    stack: list[tuple[int, int] | None] = []
    found: list[tuple[int, str]] = []
    for match in _BRACES.finditer(text):
        token = match.group()
        if token == "{":
            stack.append(None)
        elif token != "}":
            stack.append((match.start(), match.end()))
        elif stack and (opened := stack.pop()) is not None:
            start, inside = opened
            while found and found[-1][0] > start:
                found.pop()  # boxes inside this one are part of its content
            found.append((start, text[inside : match.start()]))
    if not found:
        return None
    return found[-1][1].strip()


class BoxedCodec:
    r"""Actions in `\boxed{...}`."""

    instruction = "Put your action in \\boxed{}."

    def parse(self, text: str) -> Action:
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


class RawCodec:
    """Actions as free text without thoughts: tool-use programs read calls and answers themselves."""

    instruction = "Do what the user asks with tool calls, then answer done."

    def parse(self, text: str) -> Action:
        """The visible reply, stripped."""
        visible = strip_thoughts(text).strip()[:MAX_ACTION_CHARS]
        return Action(visible, visible)

    def wrap(self, text: str) -> str:
        """The text itself."""
        return text.strip()[:MAX_ACTION_CHARS]


def codec_for(game_type: GameType | str) -> Codec:
    """The codec of a game type."""
    return RawCodec() if game_type == "tool_use" else BoxedCodec()
