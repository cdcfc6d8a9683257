"""Several questions to one policy at once, none of which can hold up the others.

An in-process engine that works in lockstep answers in one batch, so that results repeat; its calls end by
`max_tokens`. Everything else is asked question by question: one that hangs or fails is lost, the answers that
came are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spade.errors import BackendError
from spade.play.actions import OPEN_THOUGHT
from spade.serving.policy import Completion, SamplingParams

if TYPE_CHECKING:
    from spade.serving.chat import ChatPolicy
    from spade.serving.policy import Policy


async def ask(
    policy: Policy, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams], seconds: float
) -> list[Completion | None]:
    """One completion per prompt, in order; None for one that failed or took longer than `seconds`.

    Raises BackendError when every question failed: then it is the engine that is broken.
    """
    if not prompts:
        return []
    if policy.lockstep:
        answers = await policy.generate(prompts, params)
        return [completions[0] for completions in answers]
    tasks = [asyncio.create_task(policy.generate([p], [s])) for p, s in zip(prompts, params, strict=True)]
    try:
        await asyncio.wait(tasks, timeout=seconds)
        done = [task for task in tasks if task.done()]
        failed = [e for task in done if (e := task.exception()) is not None]
        for error in failed:
            if not isinstance(error, BackendError):
                raise error
        if len(failed) == len(tasks):
            raise failed[0]
        return [task.result()[0][0] if task in done and task.exception() is None else None for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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


def said(chat: ChatPolicy, completion: Completion, thinking: bool | None) -> str:
    """Text of an answer; a thought that the prompt has opened is opened in the text, too."""
    opened = OPEN_THOUGHT if chat.renderer.opens_thought(thinking) else ""
    return opened + chat.renderer.text(list(completion.token_ids))
