"""`POST /v1/chat/completions`."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from spade.serving.api.errors import ApiError
from spade.serving.api.fields import ChatFields
from spade.serving.api.inputs import read_messages, read_tools
from spade.serving.api.live import Composer, Delta, tapped
from spade.serving.api.service import Service, end
from spade.serving.chat import ChatCompletion, ChatRequest
from spade.serving.policy import Completion, SamplingParams
from spade.serving.wire import wire_call
from spade.types import StopReason

ENDPOINT_TOKENS = 4096
"""`max_tokens` for an endpoint behind this server when a request names none: its context is not known."""

Chunk = dict[str, Any]


class ChatJob:
    """One chat request. Raises ApiError for what it cannot ask for, before anything is generated."""

    def __init__(self, service: Service, fields: ChatFields) -> None:
        service.check_model(fields.model)
        self.service, self.fields = service, fields
        messages, replies, self.key = service.recall.restore(read_messages(fields.messages))
        if messages[-1].role == "assistant":
            raise ApiError(
                "The last message is the assistant's; nothing is left to answer.", param="messages"
            )
        if service.speaks_chat:
            replies = []
        tools, begin = read_tools(fields)
        params = SamplingParams(
            max_tokens=fields.max_completion_tokens or fields.max_tokens or ENDPOINT_TOKENS,
            temperature=fields.temperature, top_p=fields.top_p, top_k=max(0, fields.top_k), seed=fields.seed,
            top_logprobs=fields.top_logprobs if fields.logprobs else None,
        )  # fmt: skip
        thinking = fields.chat_template_kwargs.enable_thinking
        self.request = ChatRequest(messages, tools, params, thinking, fields.stops, replies, begin)
        if begin and (service.speaks_chat or service.chat.renderer.opens_thought(thinking)):
            raise ApiError(
                "A call cannot be forced on this model; use tool_choice auto, or switch thinking off.",
                param="tool_choice",
            )
        self.id = "chatcmpl-" + hashlib.sha256(self.key + str(time.time_ns()).encode()).hexdigest()[:24]
        self.created = int(time.time())
        self.prompt: list[int] = []
        if not service.speaks_chat:
            self._render()

    def _render(self) -> None:
        """Make the prompt. A request that names no limit gets what the context has left."""
        chat, fields = self.service.chat, self.fields
        self.prompt = chat.prompt(self.request)
        room = chat.policy.context_length - len(self.prompt)
        if room < 1:
            raise ApiError(
                f"A prompt of {len(self.prompt)} tokens leaves no room in a context of "
                f"{chat.policy.context_length}.", param="messages", code="context_length_exceeded",
            )  # fmt: skip
        if not (fields.max_completion_tokens or fields.max_tokens):
            self.request = replace(self.request, params=replace(self.request.params, max_tokens=room))

    # --- in one piece ----------------------------------------------------------------------------------

    async def whole(self) -> dict[str, Any]:
        """The answer to a request without `stream`."""
        replies = await self._generate()
        self._note(replies)
        choices = [
            {
                "index": k,
                "message": self._message(reply, k),
                "logprobs": self._logprobs(reply),
                "finish_reason": self._reason(reply),
            }
            for k, reply in enumerate(replies)
        ]
        return self._frame("chat.completion") | {"choices": choices, "usage": usage(replies)}

    def _message(self, reply: ChatCompletion, k: int) -> dict[str, Any]:
        calls = self._calls(reply, k)
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or (None if calls else "")}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if calls:
            message["tool_calls"] = calls
        return message

    def _calls(self, reply: ChatCompletion, k: int) -> list[dict[str, Any]]:
        """The calls with ids that are new in the conversation and the same for the same request."""
        calls = reply.tool_calls if self.fields.parallel_tool_calls else reply.tool_calls[:1]
        root = hashlib.sha256(self.key + repr((k, reply.completion.token_ids)).encode()).hexdigest()
        return [wire_call(call, f"call_{root[:20]}{i:02d}") for i, call in enumerate(calls)]

    def _reason(self, reply: ChatCompletion) -> str:
        if reply.tool_calls and reply.stop is StopReason.STOP:
            return "tool_calls"
        return finish_reason(reply.stop)

    def _logprobs(self, reply: ChatCompletion) -> dict[str, Any] | None:
        if not self.fields.logprobs:
            return None
        if self.service.speaks_chat:
            rows = [entry(text, value) | {"top_logprobs": []} for text, value in reply.logprobs]
            return {"content": rows, "refusal": None}
        name = self.service.chat.renderer.token_text
        rows = []
        for own, *most in top_of(reply.completion):
            top = [entry(name(i), value) for i, value in most]
            rows.append(entry(name(own[0]), own[1]) | {"top_logprobs": top})
        return {"content": rows, "refusal": None}

    def _note(self, replies: Sequence[ChatCompletion]) -> None:
        for reply in replies:
            if not self.service.speaks_chat and not self.request.begin:
                self.service.recall.note(self.key, reply)

    def _frame(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.service.name}

    # --- as a stream -----------------------------------------------------------------------------------

    async def stream(self) -> AsyncIterator[Chunk]:
        """The chunks of a request with `stream`; what is generated ends when the reader goes away."""
        n, chat = self.fields.n, self.service.chat
        for k in range(n):
            yield self._chunk(k, {"role": "assistant", "content": ""})
        composers = [Composer(chat.renderer, self.request) for _ in range(n)]
        queue: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.ensure_future(self._generate(queue))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (item := await queue.get()) is not None:
                row, token = item
                for delta in composers[row].feed([token]):
                    yield self._chunk(row, dict([delta]))
            replies = task.result()
        finally:
            await end(task)
        self._note(replies)
        for k, reply in enumerate(replies):
            for chunk in self._last(k, composers[k].finish(reply), reply):
                yield chunk
        if self.fields.stream_options.include_usage:
            yield self._frame("chat.completion.chunk") | {"choices": [], "usage": usage(replies)}

    async def _generate(self, queue: asyncio.Queue[Any] | None = None) -> list[ChatCompletion]:
        """All choices; with a queue their tokens are put there while they come."""
        chat, request, n = self.service.chat, self.request, self.fields.n
        if self.service.speaks_chat:
            return (await chat.batch([request], n))[0]
        params = [chat.sampling(request, k) for k in range(n)]
        if queue is not None:
            params = [tapped(p, k, queue) for k, p in enumerate(params)]
        rows = await chat.policy.generate([self.prompt] * n, params)
        replies = [chat.read(request, self.prompt, row[0]) for row in rows]
        if request.begin and not all(reply.tool_calls for reply in replies):
            raise ApiError("The model wrote no call that can be read; ask again.", 500)
        return replies

    def _last(self, k: int, rest: Sequence[Delta], reply: ChatCompletion) -> list[Chunk]:
        chunks = [self._chunk(k, dict([delta])) for delta in rest]
        calls = [{"index": i, **call} for i, call in enumerate(self._calls(reply, k))]
        if calls:
            chunks.append(self._chunk(k, {"tool_calls": calls}))
        if self.fields.logprobs:  # known when the row has ended
            chunks.append(self._chunk(k, {"content": ""}, logprobs=self._logprobs(reply)))
        return [*chunks, self._chunk(k, {}, self._reason(reply))]

    def _chunk(self, k: int, delta: dict[str, Any], reason: str | None = None, logprobs: Any = None) -> Chunk:
        choice = {"index": k, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return self._frame("chat.completion.chunk") | {"choices": [choice]}


def finish_reason(stop: StopReason) -> str:
    """OpenAI's word. A reply that was lost is an error, not an answer: raises ApiError."""
    if stop is StopReason.CANCELLED:
        raise ApiError("The reply was lost; ask again.", 503)
    return "stop" if stop is StopReason.STOP else "length"


def usage(replies: Sequence[ChatCompletion]) -> dict[str, int]:
    """Token counts: the prompt once, all samples."""
    prompt = max((r.prompt_tokens for r in replies), default=0)
    sampled = sum(r.sampled_tokens for r in replies)
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def entry(text: str, logprob: float) -> dict[str, Any]:
    """A token with its log-prob."""
    return {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8", "replace"))}


def top_of(completion: Completion) -> list[tuple[tuple[int, float], ...]]:
    """What `top_logprobs` asked for; of a policy that does not say, the sampled tokens alone."""
    if completion.top_T or not completion.token_ids:
        return list(completion.top_T)
    return [((t, p),) for t, p in zip(completion.token_ids, completion.logprobs_T, strict=True)]
