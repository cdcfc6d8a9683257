"""What every policy promises, as checks that anybody can run: `spade.testing.check_policy`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spade.serving.chat import ChatCompletion, ChatPolicy, ChatRequest
from spade.serving.policy import SamplingParams
from spade.types import Message, StopReason

QUESTIONS = ("Guess a number between 1 and 9.", "Name a colour, then a number.", "Count from one to five.")
TOLERANCE = {"float32": 2e-3, "bfloat16": 0.25}
"""Largest difference of a log-prob from a plain forward pass in the same number type, in nats."""
PATIENCE = 60.0
"""Seconds a cancelled call may take to end; a hang, not slowness, is what fails."""

Reference = Callable[[Sequence[int], Sequence[int], float], list[float]]


async def check_policy(
    chat: ChatPolicy, *, reference: Reference | None = None, max_tokens: int = 24
) -> list[str]:
    """Check a policy's promises and return the names of the checks that ran.

    * greedy: temperature 0 gives the same reply in any company and under any seed;
    * seeds: so does one seed at temperature 1, if the policy takes seeds;
    * logprobs: those reported agree with `reference`, which defaults to a plain forward pass of transformers
      where the weights are at hand; at temperature 1 and below it, and for given texts where it can score;
    * stop: stop tokens end a row and are its last token, stop texts end what is visible;
    * turns: a conversation goes on from the very tokens that were sampled, with and without caches;
    * cancel: a caller that is cancelled ends its row, and the policy goes on unharmed.

    `max_tokens` is the length of the replies tried. The policy is left open. Raises AssertionError with one
    sentence on the first promise that is broken.
    """
    check = _Check(chat, max_tokens)
    done = ["greedy"]
    await check.greedy()
    if getattr(getattr(chat.policy, "able", None), "seed", "yes") == "yes":
        await check.seeds()
        done.append("seeds")
    path = chat.ref.path if chat.ref is not None else None
    if reference is None and path is not None and chat.policy.exact_tokens:
        from spade.serving.reference import plain_forward

        reference = plain_forward(path, check.dtype)
    if reference is not None:
        await check.logprobs(reference)
        done.append("logprobs")
    await check.stops()
    await check.turns()
    await check.cancel()
    return [*done, "stop", "turns", "cancel"]


@dataclass(slots=True)
class _Check:
    chat: ChatPolicy
    max_tokens: int

    @property
    def dtype(self) -> str:
        return str(getattr(self.chat.policy, "dtype", "float32")).removeprefix("torch.")

    def request(self, question: str, temperature: float = 0.0, seed: int | None = None) -> ChatRequest:
        params = SamplingParams(self.max_tokens, temperature, seed=seed)
        return ChatRequest([Message("user", question)], params=params)

    async def said(self, requests: Sequence[ChatRequest]) -> list[ChatCompletion]:
        return [row[0] for row in await self.chat.batch(requests)]

    async def greedy(self) -> None:
        together = await self.said([self.request(q) for q in QUESTIONS])
        alone = [(await self.said([self.request(q, seed=5)]))[0] for q in QUESTIONS]
        assert _all(together) == _all(alone), "a greedy reply depends on its company, its seed or the call"
        for reply in together:
            assert reply.stop is not StopReason.CANCELLED, "a reply was lost"
            count = len(reply.completion.token_ids)
            assert len(reply.completion.logprobs_T) == count, "a completion has one log-prob a token"

    async def seeds(self) -> None:
        requests = [self.request(q, 1.0, seed=100 + i) for i, q in enumerate(QUESTIONS)]
        first = await self.said(requests)
        again = await self.said(requests[::-1])
        assert _all(first) == _all(again[::-1]), "the same seeds do not give the same replies"

    async def logprobs(self, reference: Reference) -> None:
        limit = TOLERANCE.get(self.dtype, TOLERANCE["bfloat16"])
        for temperature in (1.0, 0.7, 0.0):
            for reply in await self.said([self.request(q, temperature, seed=3) for q in QUESTIONS]):
                done = reply.completion
                wanted = reference(reply.prompt_ids, done.token_ids, temperature)
                worst = max((abs(a - b) for a, b in zip(done.logprobs_T, wanted, strict=True)), default=0.0)
                assert worst <= limit, (
                    f"log-probs at temperature {temperature} are off a plain forward pass by {worst:.4f} nats"
                )
                await self._scores(reply, reference, limit)

    async def _scores(self, reply: ChatCompletion, reference: Reference, limit: float) -> None:
        policy: Any = self.chat.policy
        if not hasattr(policy, "score"):
            return
        ids = reply.completion.token_ids
        [scores] = await policy.score([reply.prompt_ids], [ids])
        wanted = reference(reply.prompt_ids, ids, 1.0)
        worst = max((abs(a - b) for a, b in zip(scores.logprobs_T, wanted, strict=True)), default=0.0)
        assert worst <= limit, f"scores are off a plain forward pass by {worst:.4f} nats"

    async def stops(self) -> None:
        for question in QUESTIONS:
            request = self.request(question)
            [whole] = await self.said([request])
            if self.chat.policy.exact_tokens and len(whole.completion.token_ids) > 2:
                await self._stop_token(whole)
            middle = len(whole.text) // 2
            mark = whole.text[middle : middle + 2].strip()
            if mark:
                [cut] = await self.said([replace(request, stop=[mark])])
                wanted = whole.text[: whole.text.find(mark)].strip()
                assert cut.text == wanted, f"the stop text {mark!r} gives {cut.text!r}, not {wanted!r}"
                assert cut.stop is StopReason.STOP, f"a stop text ends a reply with {cut.stop}"
                ids, count = whole.completion.token_ids, len(cut.completion.token_ids)
                if self.chat.policy.exact_tokens and whole.text.find(mark) + len(mark) < len(whole.text):
                    ended = cut.completion.token_ids == ids[:count] and count < len(ids)
                    assert ended, "a stop text does not end the row"

    async def _stop_token(self, whole: ChatCompletion) -> None:
        ids = whole.completion.token_ids
        token = ids[len(ids) // 2]
        params = SamplingParams(self.max_tokens, 0.0, stop_token_ids=(token,))
        [[cut]] = await self.chat.policy.generate([whole.prompt_ids], params)
        wanted = ids[: ids.index(token) + 1]
        assert cut.token_ids == wanted, "a stop token ends the row and is its last token"
        assert cut.stop is StopReason.STOP, f"a stop token ends a row with {cut.stop}"

    async def turns(self) -> None:
        request = self.request(QUESTIONS[0])
        [first] = await self.said([request])
        talk = [*request.messages, first.message, Message("user", QUESTIONS[2])]
        going = replace(request, messages=talk, replies=[first.completion.token_ids])
        [second] = await self.said([going])
        if self.chat.policy.exact_tokens:
            so_far = [*first.prompt_ids, *first.completion.token_ids]
            if self.chat.renderer.appends():
                prompt = list(second.prompt_ids)
                assert prompt[: len(so_far)] == so_far, "a conversation was tokenised anew between turns"
            await self.chat.policy.sleep()
            await self.chat.policy.wake()
        [fresh] = await self.said([going])
        assert _all([second]) == _all([fresh]), "a turn depends on what is cached"

    async def cancel(self) -> None:
        request = self.request(QUESTIONS[1])
        [before] = await self.said([request])
        waiter = _Waiter()
        task = asyncio.create_task(self._long(request, waiter))
        await waiter.started(task)
        finished = task.done()
        task.cancel()
        await asyncio.sleep(0)
        waiter.go.set()
        _, open_tasks = await asyncio.wait({task}, timeout=PATIENCE)
        assert not open_tasks, "a cancelled call does not end"
        [after] = await self.said([request])
        assert _all([before]) == _all([after]), "a cancelled call leaves the policy damaged"
        assert finished or waiter.tokens < waiter.budget, "a cancelled row is generated to its end"

    async def _long(self, request: ChatRequest, waiter: _Waiter) -> None:
        if not self.chat.policy.exact_tokens:
            waiter.begun.set()
            await self.chat.batch([request])
            return
        prompt = self.chat.prompt(request)
        waiter.budget = min(self.chat.policy.context_length - len(prompt), 1 << 14)
        await self.chat.policy.generate([prompt], SamplingParams(waiter.budget, 1.0, stop_when=waiter))


class _Waiter:
    """Holds a row at its second token until the call was cancelled, if the engine has a thread of its own."""

    def __init__(self) -> None:
        self.tokens, self.budget = 0, 1
        self.begun, self.go = asyncio.Event(), threading.Event()
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def __call__(self, ids: Sequence[int]) -> bool:
        self.tokens = len(ids)
        if len(ids) == 2 and threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.begun.set)
            self.go.wait(PATIENCE)
        return False

    async def started(self, task: asyncio.Task[None]) -> None:
        """Wait until the row is held, or the task has ended."""
        begun = asyncio.create_task(self.begun.wait())
        await asyncio.wait({task, begun}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()


def _all(replies: Sequence[ChatCompletion]) -> list[tuple[Any, ...]]:
    return [(r.raw, r.completion.token_ids, r.stop) for r in replies]
