"""Several questions to one policy at once, none of which can hold up the others.

An in-process engine that works in lockstep answers in one batch, so that results repeat; its calls end by
`max_tokens`. Everything else is asked question by question: one that hangs or fails is lost, the answers that
came are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from spade.deadlines import all_in_time
from spade.errors import BackendError
from spade.play.actions import OPEN_THOUGHT
from spade.serving.policy import Completion, SamplingParams
from spade.types import StopReason

if TYPE_CHECKING:
    from spade.serving.chat import ChatPolicy
    from spade.serving.policy import Policy

OnAnswer = Callable[[int, Sequence[int]], None]
"""Called in the event loop with the number of a question and the ids of its answer."""


async def ask(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    params: Sequence[SamplingParams],
    seconds: float,
    on_answer: OnAnswer | None = None,
) -> list[Completion | None]:
    """One completion per prompt, in order; None for one that failed or took longer than `seconds`.

    `on_answer` is told of answers that are there before the last one is, where the engine lets that be seen.
    Raises BackendError when every question failed: then it is the engine that is broken.
    """
    if policy.lockstep:
        if on_answer is not None:
            params = [replace(s, stop_when=_Ended(i, s, on_answer)) for i, s in enumerate(params)]
        answers = await policy.generate(prompts, params) if prompts else []
        return [completions[0] for completions in answers]
    failed: list[BackendError] = []

    async def one(number: int, prompt: Sequence[int], sampled: SamplingParams) -> Completion | None:
        try:
            completion = (await policy.generate([prompt], [sampled]))[0][0]
        except BackendError as error:
            failed.append(error)
            return None
        if on_answer is not None and completion.stop is StopReason.STOP:
            on_answer(number, completion.token_ids)
        return completion

    asked = enumerate(zip(prompts, params, strict=True))
    answered = await all_in_time([one(i, p, s) for i, (p, s) in asked], seconds)
    if failed and len(failed) == len(answered):
        raise failed[0]
    return answered


class _Ended:
    """Watches a row of a batch, in the engine's thread, and tells when it has ended by itself; ends none."""

    def __init__(self, number: int, params: SamplingParams, on_answer: OnAnswer) -> None:
        self._number, self._on_answer = number, on_answer
        self._stops, self._others = frozenset(params.stop_token_ids), params.stop_when
        self._loop = asyncio.get_running_loop()

    def __call__(self, ids: Sequence[int]) -> bool:
        if ids[-1] in self._stops:
            self._loop.call_soon_threadsafe(self._on_answer, self._number, tuple(ids))
        return self._others is not None and self._others(ids)


def sampling(
    chat: ChatPolicy,
    prompt: Sequence[int],
    max_tokens: int,
    temperature: float,
    seed: int,
    top_p: float = 1.0,
    top_k: int = 0,
) -> SamplingParams:
    """Parameters of one answer that ends with the turn and fits the context behind `prompt`."""
    room = max(1, chat.policy.context_length - len(prompt))
    return SamplingParams(
        max_tokens=min(max_tokens, room),
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        stop_token_ids=chat.renderer.stop_token_ids,
        seed=seed,
    )


def said(chat: ChatPolicy, ids: Sequence[int], thinking: bool | None) -> str:
    """Text of an answer; a thought that the prompt has opened is opened in the text, too."""
    opened = OPEN_THOUGHT if chat.renderer.opens_thought(thinking) else ""
    return opened + chat.renderer.text(list(ids))
