"""`POST /v1/completions`: raw prompts, as text or token ids, also scored (`echo` with `logprobs`)."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from spade.rng import child_seed
from spade.serving.api.chat import finish_reason, top_of
from spade.serving.api.errors import ApiError
from spade.serving.api.fields import CompletionFields
from spade.serving.api.inputs import read_prompts
from spade.serving.api.live import tapped
from spade.serving.api.service import Service, end
from spade.serving.policy import Completion, SamplingParams, TokenScores, TopTokens
from spade.serving.stopping import Detokenizer, StopTexts, cut_at, overlap
from spade.types import StopReason

MAX_REPLIES = 4096
"""Replies of one request, over all its prompts: a small body must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Row:
    """One choice to come: which prompt, and which of its samples."""

    prompt: int
    sample: int


class CompletionJob:
    """One completion request. Raises ApiError for what it cannot ask for, before anything is generated."""

    def __init__(self, service: Service, fields: CompletionFields) -> None:
        service.check_model(fields.model)
        if service.speaks_chat:
            raise ApiError("The endpoint behind this server takes chats only; use /v1/chat/completions.")
        self.service, self.fields = service, fields
        renderer = service.chat.renderer
        said = read_prompts(fields.prompt)
        if len(said) * fields.n > MAX_REPLIES:
            raise ApiError(
                f"{len(said)} prompts with n={fields.n} ask for more than {MAX_REPLIES} replies; send fewer "
                "at once.", param="prompt",
            )  # fmt: skip
        self.prompts = [renderer.raw_ids(p) if isinstance(p, str) else p for p in said]
        self.texts = [p if isinstance(p, str) else "".join(map(renderer.token_text, p)) for p in said]
        if not all(self.prompts):
            raise ApiError("prompt has no tokens.", param="prompt")
        self.rows = [Row(i, k) for i in range(len(self.prompts)) for k in range(fields.n)]
        self._check()
        self.id = "cmpl-" + hashlib.sha256(f"{fields.prompt}{time.time_ns()}".encode()).hexdigest()[:24]
        self.created = int(time.time())

    def _check(self) -> None:
        fields = self.fields
        scores = hasattr(self.service.chat.policy, "score")
        if fields.echo and fields.logprobs is not None and not scores:
            raise ApiError("This model cannot score a prompt: leave out echo or logprobs.", param="echo")
        if fields.max_tokens == 0 and not fields.echo:
            raise ApiError("max_tokens is 0, which needs echo.", param="max_tokens")
        if fields.stream and (fields.echo or fields.logprobs is not None):
            raise ApiError("A stream of completions has neither echo nor logprobs.", param="stream")
        room = self.service.chat.policy.context_length
        longest = max(map(len, self.prompts))
        if longest + min(1, fields.max_tokens) > room:
            raise ApiError(
                f"A prompt of {longest} tokens leaves no room in a context of {room}.", param="prompt",
                code="context_length_exceeded",
            )  # fmt: skip

    def _params(self, row: Row) -> SamplingParams:
        fields, renderer = self.fields, self.service.chat.renderer
        seed = fields.seed
        if seed is not None and row.sample:
            seed = child_seed(seed, "sample", row.sample)
        watch = StopTexts(renderer, fields.stops, plain=True) if fields.stops else None
        return SamplingParams(
            max_tokens=fields.max_tokens, temperature=fields.temperature, top_p=fields.top_p,
            top_k=max(0, fields.top_k), stop_token_ids=renderer.stop_token_ids, seed=seed,
            top_logprobs=fields.logprobs, stop_when=watch,
        )  # fmt: skip

    async def _generate(self, queue: asyncio.Queue[Any] | None = None) -> list[Completion]:
        if self.fields.max_tokens == 0:
            return [Completion((), (), StopReason.LENGTH)] * len(self.rows)
        params = [self._params(row) for row in self.rows]
        if queue is not None:
            params = [tapped(p, k, queue) for k, p in enumerate(params)]
        prompts = [self.prompts[row.prompt] for row in self.rows]
        return [found[0] for found in await self.service.chat.policy.generate(prompts, params)]

    # --- in one piece ----------------------------------------------------------------------------------

    async def whole(self) -> dict[str, Any]:
        """The answer to a request without `stream`."""
        scores: list[TokenScores] = []
        if self.fields.echo and self.fields.logprobs is not None:
            heads, tails = [p[:1] for p in self.prompts], [p[1:] for p in self.prompts]
            policy: Any = self.service.chat.policy
            scores = await policy.score(heads, tails, self.fields.logprobs)
        done = await self._generate()
        choices = [
            self._choice(k, row, c, scores) for k, (row, c) in enumerate(zip(self.rows, done, strict=True))
        ]
        return self._frame() | {"choices": choices, "usage": self._usage(done)}

    def _choice(
        self, index: int, row: Row, completion: Completion, scores: Sequence[TokenScores]
    ) -> dict[str, Any]:
        text = cut_at(self.service.chat.renderer.text(completion.token_ids), self.fields.stops)
        echo = self.texts[row.prompt] if self.fields.echo else ""
        out: dict[str, Any] = {"index": index, "text": echo + text, "logprobs": None}
        if self.fields.logprobs is not None:
            book = LogprobBook(self.service.chat.renderer.token_text, self.fields.logprobs)
            if self.fields.echo:
                prompt = self.prompts[row.prompt]
                book.first(prompt[0])
                found = scores[row.prompt]
                for token, value, most in zip(
                    prompt[1:], found.logprobs_T, found.top_T or [()] * len(prompt[1:]), strict=True
                ):
                    book.add(((token, value), *most))
            for pairs in top_of(completion):
                book.add(pairs)
            out["logprobs"] = book.body
        return out | {"finish_reason": finish_reason(completion.stop)}

    def _frame(self) -> dict[str, Any]:
        return {
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.service.name,
        }  # fmt: skip

    def _usage(self, done: Sequence[Completion]) -> dict[str, int]:
        prompt = sum(map(len, self.prompts))
        sampled = sum(len(c.token_ids) for c in done)
        return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}

    # --- as a stream -----------------------------------------------------------------------------------

    async def stream(self) -> AsyncIterator[dict[str, Any]]:
        """Chunks of text; what is generated ends when the reader goes away."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.ensure_future(self._generate(queue))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        texts = [_Text(self.service, self.fields.stops) for _ in self.rows]
        try:
            while (item := await queue.get()) is not None:
                row, token = item
                if new := texts[row].feed(token):
                    yield self._chunk(row, new)
            done = task.result()
        finally:
            await end(task)
        for k, completion in enumerate(done):
            yield self._chunk(k, texts[k].rest(completion), finish_reason(completion.stop))
        if self.fields.stream_options.include_usage:
            yield self._frame() | {"choices": [], "usage": self._usage(done)}

    def _chunk(self, index: int, text: str, reason: str | None = None) -> dict[str, Any]:
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": reason}
        return self._frame() | {"choices": [choice]}


class _Text:
    """The text of one row as far as it may be sent: not what may be the beginning of a stop text."""

    def __init__(self, service: Service, stops: Sequence[str]) -> None:
        self._renderer, self._stops = service.chat.renderer, stops
        self._reader = Detokenizer(self._renderer)
        self._ids: list[int] = []
        self._sent = self._held = ""

    def feed(self, token: int) -> str:
        self._ids.append(token)
        text = self._held + self._reader.feed(self._ids)
        hold = max((overlap(text, mark) for mark in self._stops), default=0)
        text, self._held = text[: len(text) - hold], text[len(text) - hold :]
        text = cut_at(text, self._stops)
        self._sent += text
        return text

    def rest(self, completion: Completion) -> str:
        whole = cut_at(self._renderer.text(completion.token_ids), self._stops)
        return whole.removeprefix(self._sent) if whole.startswith(self._sent) else ""


class LogprobBook:
    """The `logprobs` object of one choice: parallel lists over its tokens."""

    def __init__(self, name: Any, top: int) -> None:
        self._name, self._top, self._at = name, top, 0
        names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        self.body: dict[str, list[Any]] = {name: [] for name in names}

    def first(self, token: int) -> None:
        """The first token of a prompt, which nothing predicts."""
        self._row(self._name(token), None, None)

    def add(self, pairs: TopTokens) -> None:
        """A token with its log-prob, and the most likely ones. Tokens that read the same share the higher."""
        (token, value), *most = pairs
        top: dict[str, float] = {}
        for i, p in most:
            top[self._name(i)] = max(p, top.get(self._name(i), p))
        self._row(self._name(token), value, top if self._top else {})

    def _row(self, text: str, value: float | None, top: dict[str, float] | None) -> None:
        for key, item in zip(self.body, (text, value, top, self._at), strict=True):
            self.body[key].append(item)
        self._at += len(text)
