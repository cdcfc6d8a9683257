"""One episode as a state machine: the same object in training, in evaluation, hinted or plain.

    begin(observation) ──► request() ──► reply(completion) ──► observe(result) ──┐
                              ▲                                                  │
                              └──────────────────────────────────────────────────┘ until `done`

The driver (`spade.play.schedule`) does the waiting; nothing here touches a model or a process, so the rules
of an episode are in one place: token ids are only ever appended, exactly the sampled tokens are masked 1, and
both arms live under the same limits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from spade.config import PlayConfig
from spade.design.prompts import agent_message
from spade.errors import FaultCode, FaultKind, ProgramFault
from spade.play.actions import codec_for
from spade.rng import child_seed
from spade.serving.chat import ChatRenderer
from spade.serving.policy import Completion, SamplingParams
from spade.types import (
    EnvProgram,
    Episode,
    EpisodeEnd,
    Fault,
    Instance,
    Message,
    Outcome,
    Scored,
    StopReason,
    Trajectory,
    Turn,
)

BLANK = "..."
"""Stands for an observation in hint-only play."""

SOLVED = 1.0 - 1e-9
"""Returns from here on count as solved."""


class StepLike(Protocol):
    """What a program answered to one action."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """What all episodes of one call share; `template` is "short" or "full"."""

    limits: PlayConfig
    context_length: int
    seed: int
    template: str
    blank: bool = False
    """Show the player `BLANK` in place of every observation."""


class EpisodeState:
    """One episode in progress."""

    def __init__(self, instance: Instance, program: EnvProgram, renderer: ChatRenderer, rules: Rules) -> None:
        self.instance = instance
        self.program = program
        self.renderer = renderer
        self.rules = rules
        self.codec = codec_for(program.game_type)
        self.messages: list[Message] = []
        self.tools: list[dict[str, Any]] = []
        self.prompt_ids: list[int] = []
        self.completion_ids: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float] = []
        self.turns: list[Turn] = []
        self.first_observation = ""
        self.solution: list[str] = []
        """The program's own solution; only asked for when the policy is privileged."""
        self.weight_version = 0
        self.end: EpisodeEnd | None = None
        self.outcome: Outcome = Scored(0.0, False)
        self._started = time.perf_counter()
        self._reply: tuple[Completion, str, str] | None = None

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return self.end is not None

    def begin(self, observation: str, tools: Sequence[dict[str, Any]] = ()) -> None:
        """Take the first observation: hint last in the opening message, if there is one."""
        self.first_observation = observation
        hint, style = self.instance.hint, self.rules.template
        shown = BLANK if self.rules.blank else observation
        self.messages = [agent_message(shown, hint, style, self.codec.instruction)]
        self.tools = list(tools) if self.program.game_type == "tool_use" else []
        self.prompt_ids = self.renderer.start(self.messages, self.tools)

    def request(self) -> tuple[list[int], SamplingParams] | None:
        """Prompt and sampling parameters of the next turn; None (episode over) when the context is full.

        The sampling seed depends on program, instance seed and turn only: the two arms share their noise.
        """
        prompt = self.prompt_ids + self.completion_ids
        room = self.rules.context_length - len(prompt)
        if room < 1:
            self._finish(EpisodeEnd.CONTEXT_LIMIT)
            return None
        limits, turn = self.rules.limits, len(self.turns)
        params = SamplingParams(
            max_tokens=min(limits.max_tokens, room),
            temperature=limits.temperature,
            top_p=limits.top_p,
            top_k=limits.top_k,
            stop_token_ids=self.renderer.stop_token_ids,
            seed=child_seed(self.rules.seed, self.instance.program_id, self.instance.seed, turn),
        )
        return prompt, params

    def reply(self, completion: Completion) -> str | None:
        """Record a completion; returns the action for `step`, or None when the reply ends the episode."""
        full = self.rules.context_length - len(self.prompt_ids) - len(self.completion_ids)
        self.completion_ids.extend(completion.token_ids)
        self.mask.extend([1] * len(completion.token_ids))
        self.logprobs.extend(completion.logprobs_T)
        self.weight_version = completion.weight_version
        text = self.renderer.text(list(completion.token_ids))
        action = self.codec.parse(text).wrapped
        self._reply = (completion, text, action)
        if completion.stop is StopReason.STOP:
            return action
        self._add_turn("", 0.0)
        if completion.stop is StopReason.CANCELLED:
            self.fail(Fault(FaultKind.INFRASTRUCTURE, "generate", "the completion was cancelled"))
        elif completion.stop is StopReason.CONTEXT or len(completion.token_ids) >= full:
            self._finish(EpisodeEnd.CONTEXT_LIMIT)
        else:
            self._finish(EpisodeEnd.UNFINISHED)
        return None

    def observe(self, result: StepLike) -> None:
        """Take the program's answer to the last action."""
        self._add_turn(result.observation, float(result.reward))
        if not math.isfinite(result.reward):
            self.fail(Fault(FaultKind.PROGRAM, "step", f"reward {result.reward} is not a finite number"))
        elif result.terminated:
            value = min(1.0, max(-1.0, float(result.reward)))
            self._finish(EpisodeEnd.TERMINATED, Scored(value, value >= SOLVED))
        elif result.truncated:
            self._finish(EpisodeEnd.TRUNCATED)
        elif len(self.turns) >= self.rules.limits.max_turns:
            self._finish(EpisodeEnd.TURN_LIMIT)
        else:
            self._show(result.observation)

    def _show(self, observation: str) -> None:
        """Append the next observation; none of these tokens was sampled."""
        last = self.turns[-1]
        self.messages.append(Message("assistant", last.text))
        role: Literal["tool", "user"] = "tool" if self.program.game_type == "tool_use" else "user"
        new = Message(role, BLANK if self.rules.blank else observation)
        suffix = self.renderer.extend(self.messages, [new], last.completion_ids, self.tools)
        self.messages.append(new)
        self.completion_ids.extend(suffix)
        self.mask.extend([0] * len(suffix))
        self.logprobs.extend([0.0] * len(suffix))

    def fail(self, fault: Fault) -> None:
        """End without a score."""
        self.end = EpisodeEnd.FAULT
        self.outcome = fault

    def fail_program(self, where: str, error: ProgramFault) -> None:
        """End because the sandbox reported a fault."""
        self.fail(Fault(error.kind, where, f"{FaultCode(error.code).value}: {error.detail}".rstrip(": ")))

    def episode(self) -> Episode:
        """The finished record. Tokens after the last sampled one are not part of it."""
        assert self.end is not None, "episode() before the end"
        keep = len(self.mask)
        while keep and not self.mask[keep - 1]:
            keep -= 1
        trajectory = Trajectory(
            role="agent",
            prompt_ids=tuple(self.prompt_ids),
            completion_ids=tuple(self.completion_ids[:keep]),
            mask=tuple(self.mask[:keep]),
            logprobs=tuple(self.logprobs[:keep]),
            weight_version=self.weight_version,
        )
        return Episode(
            instance=self.instance,
            trajectory=trajectory,
            turns=tuple(self.turns),
            first_observation=self.first_observation,
            outcome=self.outcome,
            end=self.end,
            seconds=time.perf_counter() - self._started,
        )

    def _add_turn(self, observation: str, reward: float) -> None:
        assert self._reply is not None, "observe() before reply()"
        completion, text, action = self._reply
        self.turns.append(
            Turn(
                completion_ids=completion.token_ids,
                logprobs_T=completion.logprobs_T,
                text=text,
                action=action,
                observation=observation,
                reward=reward,
                stop=completion.stop,
            )
        )
        self._reply = None

    def _finish(self, end: EpisodeEnd, outcome: Outcome | None = None) -> None:
        self.end = end
        self.outcome = Scored(0.0, False) if outcome is None else outcome
