"""Rows that are looked at while they grow: the parts of a reply that may already be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from spade.serving.chat import ChatCompletion, ChatRenderer, ChatRequest
from spade.serving.policy import SamplingParams
from spade.serving.stopping import Detokenizer, Visible, cut_at, overlap

CALL = "<tool_call>"
BARE = ("{", "[", "```", "<|python_tag|>")
"""Beginnings of replies that may be calls from end to end."""

Delta = tuple[str, str]
"""("reasoning_content" or "content", text)."""


def tapped(params: SamplingParams, row: int, queue: asyncio.Queue[Any]) -> SamplingParams:
    """`params` whose tokens go to the queue of the present loop as (row, token), from whatever thread."""
    loop, inner = asyncio.get_running_loop(), params.stop_when

    def watch(ids: Sequence[int]) -> bool:
        loop.call_soon_threadsafe(queue.put_nowait, (row, ids[-1]))
        return inner is not None and inner(ids)

    return replace(params, stop_when=watch)


class Composer:
    """Turns the tokens of one reply into deltas that add up to what the finished reply holds.

    Held back: whitespace at the end, what may be the beginning of a stop text, and with tools everything from
    where a call may begin, since calls are read as a whole.
    """

    def __init__(self, renderer: ChatRenderer, request: ChatRequest) -> None:
        self._reader = Detokenizer(renderer)
        self._visible = Visible(renderer.opens_thought(request.thinking))
        self._stop = [t for t in request.stop if t]
        self._tools = bool(request.tools)
        self._ids: list[int] = []
        self._pending = {"reasoning_content": "", "content": ""}
        self._sent = {"reasoning_content": "", "content": ""}
        self._closed = bool(request.begin)  # a forced call is sent as a whole

    def feed(self, ids: Sequence[int]) -> list[Delta]:
        """Take further tokens."""
        self._ids += ids
        out: list[Delta] = []
        for thought, text in self._visible.feed(self._reader.feed(self._ids)):
            kind = "reasoning_content" if thought else "content"
            self._pending[kind] += text
            free = self._free(kind)
            if free:
                self._sent[kind] += free
                out.append((kind, free))
        return out

    def finish(self, reply: ChatCompletion) -> list[Delta]:
        """What the finished reply holds beyond what was sent."""
        whole = {"reasoning_content": reply.reasoning, "content": reply.text}
        rest = [(kind, text[len(self._sent[kind]) :]) for kind, text in whole.items()
                if text.startswith(self._sent[kind])]  # fmt: skip
        return [(kind, text) for kind, text in rest if text]

    def _free(self, kind: str) -> str:
        """Take what may be sent out of the pending text."""
        if kind == "content" and self._closed:
            return ""
        text = self._pending[kind] if self._sent[kind] else self._pending[kind].lstrip()
        hold = 0
        if kind == "content":
            cut = self._until_markup(text)
            self._closed = cut is not None
            if cut is not None:
                text = cut
            elif self._may_be_bare(text):
                hold = len(text)
            else:
                marks = [*self._stop, *([CALL] if self._tools else [])]
                hold = max((overlap(text, mark) for mark in marks), default=0)
        at = len(text[: len(text) - hold].rstrip())
        self._pending[kind] = text[at:]
        return text[:at]

    def _may_be_bare(self, text: str) -> bool:
        """Whether the reply so far may be the beginning of a reply that is calls from end to end."""
        return self._tools and not self._sent["content"] and any(mark.startswith(text) for mark in BARE)

    def _until_markup(self, text: str) -> str | None:
        """The text before a stop text or a call, which ends what can be sent early; None without either."""
        if self._tools and not self._sent["content"] and text.startswith(BARE):
            return ""
        cut = cut_at(text, [*self._stop, *([CALL] if self._tools else [])])
        return cut if len(cut) < len(text) else None
