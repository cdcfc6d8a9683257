"""One episode as a state machine: the same object for games and tool use, in training and in evaluation.

    begin(observation) ──► request() ──► reply(completion) ──► observe(result) ──┐
                              ▲                                                  │
                              └──────────────────────────────────────────────────┘ until `done`

The driver (`spade.play.schedule`) does the waiting; nothing here touches a model or a process, so the rules
of an episode are in one place: exactly the sampled tokens are masked 1, both arms live under the same limits
and the same thinking mode, and only what the program answered makes the return.

Token ids are appended as long as the chat template renders earlier turns the same way later on. Where it does
not (thinking templates drop earlier thoughts), a turn's prompt is the canonical history anew, and the turns
that do not extend what came before become token streams of their own (`Episode.later`).

In tool use the first message is the user's instruction as it is, the tools go through the template, and every
result of a call comes back as one `tool` message; what a program says to an answer, or to a reply without any
call, is a message of the user.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spade.config import PlayConfig
from spade.design.prompts import agent_message
from spade.errors import FaultCode, FaultKind, ProgramFault
from spade.play.actions import OPEN_THOUGHT, Action, codec_for
from spade.play.toolcalls import opening
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

ALMOST = 1.0 - 1e-6
"""Highest return of an episode that did not reach its goal."""


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


def episode_return(rewards: Sequence[float], terminated: bool, rule: str) -> float:
    """The return of an episode whose turns earned `rewards`.

    * `outcome`: the last reward, clipped to [-1, 1], if the program said `terminated`, else 0;
    * `progress`: 1 if the program ended the episode with a full reward, else the highest reward of any turn,
      clipped to [0, 1). What was reached once counts: no setback, lost game or limit takes it away.
    """
    last = rewards[-1] if terminated and rewards else 0.0
    if rule == "progress" and last < SOLVED:
        return min(ALMOST, max(0.0, *rewards)) if rewards else 0.0
    return min(1.0, max(-1.0, last))


class EpisodeState:
    """One episode in progress."""

    def __init__(self, instance: Instance, program: EnvProgram, renderer: ChatRenderer, rules: Rules) -> None:
        self.instance = instance
        self.program = program
        self.renderer = renderer
        self.rules = rules
        self.uses_tools = program.game_type == "tool_use"
        self.codec = codec_for(program.game_type, rules.limits.codec)
        self.messages: list[Message] = []
        self.tools: list[dict[str, Any]] = []
        self.prompt_ids: list[int] = []
        self.completion_ids: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float] = []
        self.streams: list[Trajectory] = []
        """Finished token streams; the present one is `prompt_ids` and `completion_ids`."""
        self.turns: list[Turn] = []
        self.first_observation = ""
        self.solution: list[str] = []
        """The program's own solution; only asked for when the policy is privileged."""
        self.weight_version = 0
        self.end: EpisodeEnd | None = None
        self.outcome: Outcome = Scored(0.0, False)
        self._started = time.perf_counter()
        self._reply: tuple[Completion, str, Action] | None = None
        self._room = 0
        thinking = rules.limits.thinking
        self._opened = OPEN_THOUGHT if renderer.opens_thought(thinking) else ""

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return self.end is not None

    def begin(self, observation: str, tools: Sequence[dict[str, Any]] = ()) -> None:
        """Take the first observation: hint last in the opening message, if there is one."""
        self.first_observation = observation
        hint = self.instance.hint
        shown = self._shown(observation)
        if self.uses_tools:
            first, self.tools = opening(shown, hint), list(tools)
        else:
            first = agent_message(shown, hint, self.rules.template, self.codec.instruction)
        self.messages = [first]
        self.prompt_ids = self.renderer.start(self.messages, self.tools, self.rules.limits.thinking)

    def request(self) -> tuple[list[int], SamplingParams] | None:
        """Prompt and sampling parameters of the next turn; None (episode over) when the context is full.

        The sampling seed depends on program, instance seed and turn only: the two arms share their noise.
        """
        prompt = self.prompt_ids + self.completion_ids
        limits, turn = self.rules.limits, len(self.turns)
        self._room = self.rules.context_length - len(prompt) - limits.reserve
        if self._room < 1:
            self._finish(EpisodeEnd.CONTEXT_LIMIT)
            return None
        params = SamplingParams(
            max_tokens=min(limits.max_tokens, self._room),
            temperature=limits.temperature,
            top_p=limits.top_p,
            top_k=limits.top_k,
            stop_token_ids=self.renderer.stop_token_ids,
            seed=child_seed(self.rules.seed, self.instance.program_id, self.instance.seed, turn),
        )
        return prompt, params

    def reply(self, completion: Completion) -> str | None:
        """Record a completion; returns the action for `step`, or None when the reply ends the episode."""
        self.completion_ids.extend(completion.token_ids)
        self.mask.extend([1] * len(completion.token_ids))
        self.logprobs.extend(completion.logprobs_T)
        self.weight_version = completion.weight_version
        text = self.renderer.text(list(completion.token_ids))
        action = self.codec.parse(self._opened + text, self.tools)
        self._reply = (completion, text, action)
        if completion.stop is StopReason.STOP:
            return action.wrapped
        self._add_turn("", 0.0)
        if completion.stop is StopReason.CANCELLED:
            self.fail(Fault(FaultKind.INFRASTRUCTURE, "generate", "the completion was cancelled"))
        elif completion.stop is StopReason.CONTEXT or len(completion.token_ids) >= self._room:
            self._finish(EpisodeEnd.CONTEXT_LIMIT)
        else:
            self._finish(EpisodeEnd.UNFINISHED)
        return None

    def observe(self, result: StepLike, results: Sequence[str] = ()) -> None:
        """Take the program's answer to the last action; `results` are those of its calls, one by one."""
        self._add_turn(result.observation, float(result.reward))
        if not math.isfinite(result.reward):
            self.fail(Fault(FaultKind.PROGRAM, "step", f"reward {result.reward} is not a finite number"))
        elif result.terminated:
            self._finish(EpisodeEnd.TERMINATED)
        elif result.truncated:
            self._finish(EpisodeEnd.TRUNCATED)
        elif len(self.turns) >= self.rules.limits.max_turns:
            self._finish(EpisodeEnd.TURN_LIMIT)
        elif results:
            self._show([Message("tool", self._shown(text)) for text in results])
        else:
            self._show([Message("user", self._shown(result.observation))])

    def _shown(self, observation: str) -> str:
        return BLANK if self.rules.blank else observation

    def _show(self, new: Sequence[Message]) -> None:
        """Go on with the next messages; none of these tokens was sampled."""
        thinking = self.rules.limits.thinking
        self.messages.append(Message("assistant", self.turns[-1].text))
        if self.renderer.appends(bool(self.tools), thinking):
            said = self.turns[-1].completion_ids
            suffix = self.renderer.extend(self.messages, new, said, self.tools, thinking)
            self.messages.extend(new)
        else:
            self.messages.extend(new)
            replies = [turn.completion_ids for turn in self.turns]
            prompt = self.renderer.start(self.messages, self.tools, thinking, replies)
            stream = self.prompt_ids + self.completion_ids
            if prompt[: len(stream)] != stream:
                self._next_stream(prompt)
                return
            suffix = prompt[len(stream) :]
        self.completion_ids.extend(suffix)
        self.mask.extend([0] * len(suffix))
        self.logprobs.extend([0.0] * len(suffix))

    def _next_stream(self, prompt: list[int]) -> None:
        """The template rewrote what came before: what follows is a token stream of its own."""
        self.streams.append(self._stream())
        self.prompt_ids = prompt
        self.completion_ids, self.mask, self.logprobs = [], [], []

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
        streams = [*self.streams, self._stream()]
        if len(streams) > 1 and not streams[-1].completion_ids:
            streams.pop()  # there was no room to speak in it
        return Episode(
            instance=self.instance,
            trajectory=streams[0],
            turns=tuple(self.turns),
            first_observation=self.first_observation,
            outcome=self.outcome,
            end=self.end,
            seconds=time.perf_counter() - self._started,
            later=tuple(streams[1:]),
        )

    def _stream(self) -> Trajectory:
        """The present token stream up to its last sampled token."""
        keep = len(self.mask)
        while keep and not self.mask[keep - 1]:
            keep -= 1
        return Trajectory(
            role="agent",
            prompt_ids=tuple(self.prompt_ids),
            completion_ids=tuple(self.completion_ids[:keep]),
            mask=tuple(self.mask[:keep]),
            logprobs=tuple(self.logprobs[:keep]),
            weight_version=self.weight_version,
        )

    def _add_turn(self, observation: str, reward: float) -> None:
        assert self._reply is not None, "observe() before reply()"
        completion, text, action = self._reply
        self.turns.append(
            Turn(
                completion_ids=completion.token_ids,
                logprobs_T=completion.logprobs_T,
                text=text,
                action=action.wrapped,
                observation=observation,
                reward=reward,
                stop=completion.stop,
                malformed=action.malformed,
            )
        )
        self._reply = None

    def _finish(self, end: EpisodeEnd) -> None:
        rewards = [turn.reward for turn in self.turns]
        value = episode_return(rewards, end is EpisodeEnd.TERMINATED, self.rules.limits.returns)
        self.end, self.outcome = end, Scored(value, value >= SOLVED)
