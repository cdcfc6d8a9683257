"""A policy that can chat: messages and tools in; text, thought and tool calls out.

Checkpoints and scripted players are a renderer (messages to ids) plus a policy (ids to ids), and their calls
are read from the text. An endpoint speaks messages itself (`SpeaksChat`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from spade.rng import child_seed
from spade.serving.calls import Broken, read_reply
from spade.serving.policy import Completion, Policy, SamplingParams
from spade.serving.stopping import StopTexts, cut_at
from spade.serving.thoughts import OPEN_THOUGHT, split_thoughts
from spade.types import Message, StopReason, ToolCall

DEFAULT = SamplingParams()
SILENCE = Message("assistant", "")


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

    def shown(self, ids: Sequence[int]) -> str:
        """See `Renderer.shown`."""
        ...

    def text(self, completion_ids: Sequence[int]) -> str:
        """Text of a completion, without special tokens."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of a text, special tokens disabled."""
        ...

    def said_ids(self, text: str) -> list[int]:
        """Ids of what an assistant says: markup of thoughts and calls is made of tokens."""
        ...

    def raw_ids(self, text: str) -> list[int]:
        """Ids of a raw prompt, without a conversation around it."""
        ...

    def token_text(self, token: int) -> str:
        """One token as text."""
        ...

    def count(self, text: str) -> int:
        """Tokens in a text."""
        ...

    def truncate(self, text: str, tokens: int) -> str:
        """The longest beginning of a text that has at most `tokens` tokens."""
        ...


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A conversation to answer.

    `tools` are OpenAI function schemas. `stop` are texts that end what is visible of a reply, but no thought.
    `replies[k]` are the sampled ids of the k-th assistant message (None where they are unknown), so that a
    history is not tokenised anew. `params` without stop tokens takes the renderer's. `begin` is put into the
    assistant's mouth: the reply goes on from it and holds it (policies of ids only).
    """

    messages: Sequence[Message]
    tools: Sequence[dict[str, Any]] = ()
    params: SamplingParams = DEFAULT
    thinking: bool | None = None
    stop: Sequence[str] = ()
    replies: Sequence[Sequence[int] | None] = ()
    begin: str = ""


@dataclass(frozen=True, slots=True)
class ChatCompletion:
    """One reply.

    `text` is what is visible, stripped: without thoughts, ended before a stop text, and without the calls
    that could be read if tools were given. `problems` says in a few words why a call could not be read; such
    a call stays in `text`. `raw` is everything that was sampled. An endpoint has no `prompt_ids`, its
    `completion` is bytes with NaN for log-probs, and its token counts are those it reports.
    """

    text: str
    completion: Completion
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    problems: tuple[str, ...] = ()
    raw: str = ""
    prompt_ids: tuple[int, ...] = ()
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    message: Message = SILENCE
    """What to append to the conversation: as sampled, or with structured calls on an endpoint."""
    logprobs: tuple[tuple[str, float], ...] = ()
    """Token texts with log-probs, from endpoints only, when `params.top_logprobs` asked for them."""

    @property
    def stop(self) -> StopReason:
        """Why the reply ended; CANCELLED is a lost request, never a wrong answer."""
        return self.completion.stop


@runtime_checkable
class SpeaksChat(Protocol):
    """A policy that takes messages instead of ids."""

    async def converse(self, requests: Sequence[ChatRequest], n: int = 1) -> list[list[ChatCompletion]]:
        """See `ChatPolicy.batch`."""
        ...


@dataclass(slots=True)
class ChatPolicy:
    """A renderer plus a policy."""

    renderer: ChatRenderer
    policy: Policy
    ref: ModelRef | None = None

    async def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        params: SamplingParams = DEFAULT,
        *,
        thinking: bool | None = None,
        stop: Sequence[str] = (),
        replies: Sequence[Sequence[int] | None] = (),
        n: int = 1,
    ) -> list[ChatCompletion]:
        """`n` replies to one conversation; see `ChatRequest` for the arguments and `batch` for errors."""
        return (await self.batch([ChatRequest(messages, tools, params, thinking, stop, replies)], n))[0]

    async def batch(self, requests: Sequence[ChatRequest], n: int = 1) -> list[list[ChatCompletion]]:
        """`n` replies to every conversation, in order: in one batch, or at once on an endpoint.

        Raises `InputError` when a conversation leaves no room to answer or an endpoint lacks a parameter that
        was asked for, `BackendError` when the engine fails. A request that an endpoint failed to answer while
        it answered others comes back as `StopReason.CANCELLED`.
        """
        if isinstance(self.policy, SpeaksChat):
            return await self.policy.converse(requests, n)
        prompts = [self.prompt(request) for request in requests]
        # Rows of their own, since what watches a row for stop texts remembers it.
        spread = [prompt for prompt in prompts for _ in range(n)]
        params = [self.sampling(request, k) for request in requests for k in range(n)]
        rows = [row[0] for row in await self.policy.generate(spread, params)]
        return [
            [self.read(request, prompt, row) for row in rows[i * n : (i + 1) * n]]
            for i, (request, prompt) in enumerate(zip(requests, prompts, strict=True))
        ]

    def prompt(self, request: ChatRequest) -> list[int]:
        """The ids that a conversation is answered from."""
        ids = self.renderer.start(request.messages, request.tools, request.thinking, request.replies)
        return [*ids, *self.renderer.said_ids(request.begin)] if request.begin else ids

    def sampling(self, request: ChatRequest, sample: int = 0) -> SamplingParams:
        """The request's parameters for one of its samples: with stop tokens, a seed of the sample's own, and
        something that watches for the stop texts."""
        params = request.params
        if sample and params.seed is not None:
            params = replace(params, seed=child_seed(params.seed, "sample", sample))
        if not params.stop_token_ids:
            params = replace(params, stop_token_ids=self.renderer.stop_token_ids)
        if request.stop:
            opened = self.renderer.opens_thought(request.thinking)
            params = replace(params, stop_when=StopTexts(self.renderer, request.stop, opened))
        return params

    def read(self, request: ChatRequest, prompt: Sequence[int], completion: Completion) -> ChatCompletion:
        """What a completion says."""
        said = request.begin + self.renderer.text(completion.token_ids)
        opened = OPEN_THOUGHT if self.renderer.opens_thought(request.thinking) else ""
        reasoning, visible = split_thoughts(opened + said)
        text, calls, problems = read_visible(visible, request)
        return ChatCompletion(
            text, completion, reasoning, calls, problems, opened + said, tuple(prompt), len(prompt),
            len(completion.token_ids), Message("assistant", said),
        )  # fmt: skip

    async def close(self) -> None:
        """Close the policy."""
        await self.policy.close()


def read_visible(visible: str, request: ChatRequest) -> tuple[str, tuple[ToolCall, ...], tuple[str, ...]]:
    """Text, calls and problems of what is visible of a reply; calls are read only where tools were given."""
    visible = cut_at(visible, request.stop)
    if not request.tools:
        return visible.strip(), (), ()
    reading = read_reply(visible.strip(), request.tools)
    calls = tuple(c for c in reading.calls if isinstance(c, ToolCall))
    problems = tuple(c.reason for c in reading.calls if isinstance(c, Broken))
    return reading.rest.strip(), calls, problems
