"""Repair turns: a rejected program goes back to its writer with the validator's reason.

Only the first turn is ever trained. What a repair brings is played, so that the Agent still gets a program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spade.config import DesignConfig
from spade.design.ask import ask, said, sampling
from spade.design.prompts import repair_message
from spade.rng import child_seed
from spade.types import Design, EnvProgram, Message, Verdict

if TYPE_CHECKING:
    from spade.serving.chat import ChatPolicy


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer in a repair conversation, the messages before it, and its sampled ids."""

    text: str
    messages: tuple[Message, ...]
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Talk:
    """A design and the conversation that followed it; `verdict` is of the latest program.

    `replies` are the sampled ids of the assistant's messages, in order.
    """

    design: Design
    messages: tuple[Message, ...]
    replies: tuple[tuple[int, ...], ...]
    verdict: Verdict
    program: EnvProgram | None = None
    lost: bool = False

    @staticmethod
    def of(design: Design) -> Talk:
        """The conversation before its first repair turn."""
        assert design.verdict is not None, "only judged designs are repaired"
        messages = (*design.brief.messages, Message("assistant", design.text))
        return Talk(design, messages, (design.trajectory.completion_ids,), design.verdict)

    @property
    def done(self) -> bool:
        """Whether no further turn follows: repaired, or no answer came."""
        return self.verdict.accepted or self.lost

    def after(self, reply: Reply | None, program: EnvProgram | None, verdict: Verdict) -> Talk:
        """The conversation with one more answer, whose program got `verdict`."""
        if reply is None:
            return dataclasses.replace(self, lost=True)
        messages = (*reply.messages, Message("assistant", reply.text))
        return Talk(self.design, messages, (*self.replies, reply.ids), verdict, program)

    def result(self) -> Design:
        """The design as it stands: with the repaired program if that is accepted, else as it was written."""
        tokens = sum(map(len, self.replies[1:]))
        design = dataclasses.replace(self.design, extra_tokens=self.design.extra_tokens + tokens)
        if not self.verdict.accepted or self.program is None:
            return design
        return dataclasses.replace(
            design, program=self.program, verdict=self.verdict, first_verdict=self.design.verdict
        )


async def next_turn(
    talks: Sequence[Talk], chat: ChatPolicy, template: str, cfg: DesignConfig, turn: int
) -> list[Reply | None]:
    """The next answer of each conversation; None where the context is full or no answer came in time."""
    messages: list[tuple[Message, ...]] = []
    prompts: list[list[int]] = []
    for talk in talks:
        failed = talk.verdict.failed
        assert failed is not None, "only rejected programs are repaired"
        question = repair_message(failed.stage, failed.code, failed.detail, template)
        messages.append((*talk.messages, question))
        prompts.append(chat.renderer.start(messages[-1], (), cfg.thinking, talk.replies))
    asked = [i for i, prompt in enumerate(prompts) if len(prompt) < chat.policy.context_length]
    seeds = [child_seed(talks[i].design.brief.seed, "repair", turn) for i in asked]
    params = [
        sampling(chat, prompts[i], cfg.max_tokens, cfg.temperature, seed, cfg.top_p, cfg.top_k)
        for i, seed in zip(asked, seeds, strict=True)
    ]
    answers = await ask(chat.policy, [prompts[i] for i in asked], params, cfg.seconds)
    replies: list[Reply | None] = [None] * len(talks)
    for i, completion in zip(asked, answers, strict=True):
        if completion is not None:
            text = said(chat, completion.token_ids, cfg.thinking)
            replies[i] = Reply(text, messages[i], tuple(completion.token_ids))
    return replies
