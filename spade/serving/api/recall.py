"""What was said in which conversation, so that a history that comes back as text keeps its exact tokens.

A client sends a whole conversation each time, and its text tokenised anew may give other ids than those that
were sampled, and without its thoughts. Replies are therefore remembered by the conversation they ended; what
is not found is tokenised from its text.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from spade.serving.chat import ChatCompletion
from spade.serving.thoughts import strip_thoughts
from spade.types import Message

MAX_TOKENS = 1 << 20
"""Sampled tokens that are remembered in all; the longest unused replies are forgotten first."""


class Recall:
    """Remembers replies. Conversations are known by a hash of their visible messages."""

    def __init__(self, tokens: int = MAX_TOKENS) -> None:
        self._room = tokens
        self._said: OrderedDict[bytes, tuple[str, tuple[int, ...]]] = OrderedDict()

    def restore(
        self, messages: Sequence[Message]
    ) -> tuple[list[Message], list[tuple[int, ...] | None], bytes]:
        """The conversation with replies as they were sampled, their ids, and the key of the whole."""
        key = b""
        out: list[Message] = []
        replies: list[tuple[int, ...] | None] = []
        for message in messages:
            key = self._key(key, message)
            if message.role == "assistant":
                found = self._said.get(key)
                replies.append(None if found is None else found[1])
                if found is not None:
                    self._said.move_to_end(key)
                    message = replace(message, content=found[0], tool_calls=())
            out.append(message)
        return out, replies, key

    def note(self, key: bytes, reply: ChatCompletion) -> None:
        """Remember the reply to the conversation `key`."""
        shown = Message("assistant", reply.text, reply.tool_calls)
        key = self._key(key, shown)
        old = self._said.pop(key, None)
        self._room += len(old[1]) if old is not None else 0
        self._said[key] = (reply.message.content, reply.completion.token_ids)
        self._room -= len(reply.completion.token_ids)
        while self._room < 0 and self._said:
            self._room += len(self._said.popitem(last=False)[1][1])

    @staticmethod
    def _key(before: bytes, message: Message) -> bytes:
        content = message.content
        if message.role == "assistant":
            content = strip_thoughts(content).strip()
        calls = [(c.name, c.arguments) for c in message.tool_calls]
        text = json.dumps([message.role, content, calls], sort_keys=True)
        return hashlib.sha256(before + text.encode("utf-8", "surrogatepass")).digest()
