"""A policy that can chat: a renderer (messages to ids) plus a policy (ids to ids)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from spade.serving.policy import Completion, Policy, SamplingParams
from spade.types import Message


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A resolved reference. `path` is the checkpoint folder of local ones, `spec` the rest of the others."""

    kind: Literal["local", "scripted", "openai"]
    ref: str
    path: Path | None = None
    spec: str = ""
    step: int | None = None


class ChatRenderer(Protocol):
    """What play and design need of a renderer; `Renderer` and `ByteRenderer` offer it."""

    stop_token_ids: tuple[int, ...]

    def start(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        thinking: bool | None = None,
        replies: Sequence[Sequence[int] | None] = (),
    ) -> list[int]:
        """Ids of a conversation, ready for the assistant to speak; `replies` are its sampled ids so far."""
        ...

    def extend(
        self,
        messages_so_far: Sequence[Message],
        new_messages: Sequence[Message],
        completion_ids: Sequence[int] | None = None,
        tools: Sequence[dict[str, Any]] = (),
        thinking: bool | None = None,
    ) -> list[int]:
        """Ids to append after the assistant's completion so that it can speak again."""
        ...

    def appends(self, tools: bool = False, thinking: bool | None = None) -> bool:
        """Whether `extend` gives what `start` gives for the whole, in conversations of this kind."""
        ...

    def opens_thought(self, thinking: bool | None = None) -> bool:
        """Whether a reply begins inside a thought that the prompt has opened."""
        ...

    def text(self, completion_ids: Sequence[int]) -> str:
        """Text of a completion, without special tokens."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of a text, special tokens disabled."""
        ...

    def count(self, text: str) -> int:
        """Tokens in a text."""
        ...

    def truncate(self, text: str, tokens: int) -> str:
        """The longest beginning of a text that has at most `tokens` tokens."""
        ...


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One assistant turn: its text, the exact completion, and the prompt it answered."""

    text: str
    completion: Completion
    prompt_ids: tuple[int, ...]


@dataclass(slots=True)
class ChatPolicy:
    """A renderer plus a policy."""

    renderer: ChatRenderer
    policy: Policy
    ref: ModelRef | None = None

    async def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams,
        tools: Sequence[dict[str, Any]] = (),
        thinking: bool | None = None,
    ) -> ChatReply:
        """Answer a conversation. Without stop tokens in `params`, the renderer's are used."""
        if not params.stop_token_ids:
            params = replace(params, stop_token_ids=self.renderer.stop_token_ids)
        prompt = self.renderer.start(messages, tools, thinking)
        completion = (await self.policy.generate([prompt], params))[0][0]
        return ChatReply(self.renderer.text(completion.token_ids), completion, tuple(prompt))

    async def close(self) -> None:
        """Close the policy."""
        await self.policy.close()
