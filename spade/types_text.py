"""Messages, token streams, and how a completion ends."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Role = Literal["designer", "agent"]
GameType = Literal["single_turn", "multi_turn", "tool_use"]
GAME_TYPES: tuple[GameType, ...] = ("single_turn", "multi_turn", "tool_use")


def content_id(text: str) -> str:
    """SHA-256 of UTF-8 text, the id of everything that has content."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One parsed call: tool name and JSON arguments."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `content` is hostile text: it is never encoded with special tokens enabled."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    name: str | None = None


class StopReason(StrEnum):
    """Why one completion ended."""

    STOP = "stop"
    """A stop token was sampled: the model finished its turn."""
    LENGTH = "length"
    """`max_tokens` was reached."""
    CONTEXT = "context"
    """The context window was full."""
    CANCELLED = "cancelled"
    """The caller gave up."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Token stream of one role in one task: `prompt_ids` then `completion_ids`.

    `completion_ids`, `mask`, `logprobs` have equal length. `mask` is 1 exactly on tokens the model sampled,
    0 on observations and template; `logprobs` is 0.0 where `mask` is 0.
    """

    role: Role
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    weight_version: int = 0

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens the model itself produced."""
        return sum(self.mask)
