"""The two conversations of ACEBench-Agent, step by step as the published loops run them.

    multi-step   agent, execution, agent, execution, ...                     40 messages at most
    multi-turn   user, then whoever is spoken to: agent, execution, user     1 + 40 messages at most

The agent gets a fresh chat in every step, with the conversation as one text; in a multi-step item that text
holds the request and the results, not the agent's own calls. The words that end a conversation count from the
third message on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from spade.types import Message, StopReason
from spade_evals.dialogue import Speaker, Transcript
from spade_evals.grade.calls_reader import Reading
from spade_evals.suites.acebench.prompts import FINISH, GREETING, NUDGE, agent_chat, user_rules
from spade_evals.suites.acebench.reading import bracketed_calls, calls_in
from spade_evals.suites.acebench.world import World, answers_of, answers_or_letters

MAX_MESSAGES: Final = 40

DONE, STEPS, CONTEXT, REFUSED = "done", "steps", "context", "refused"
USER_CONTEXT, USER_SILENT = "user_context", "user_silent"
"""How a conversation ends; the last two are the simulated user's doing."""


@dataclass(slots=True)
class Talk:
    """What has been said."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    history: str = ""
    """As the agent sees it."""

    def user(self, text: str) -> None:
        """The user speaks."""
        self.messages.append({"role": "user", "content": text})
        self.history += f"user:{text}\n"

    def agent(self, text: str, to: str, shown: bool) -> None:
        """The agent speaks, to `execution` or to `user`; `shown` puts it into the history."""
        self.messages.append({"role": "assistant", "content": text, "to": to})
        self.history += f"agent:{text}\n" if shown else ""

    def execution(self, results: Any, label: str) -> None:
        """Calls were answered."""
        self.messages.append({"role": "tool", "content": str(results)})
        self.history += f"{label}:{results}\n"

    def ended(self, how: str, **data: Any) -> Transcript:
        """The transcript."""
        return Transcript(tuple(self.messages), how, data)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a conversation is about: the item without its annotation."""

    task: str
    functions: str
    """As the agent sees them."""
    classes: list[str]
    config: dict[str, Any]

    def world(self) -> World:
        """A fresh one."""
        return World(self.classes, self.config)


async def multi_step(scene: Scene, speaker: Speaker) -> Transcript:
    """The request once, then calls until the agent says that it is done."""
    world, talk = scene.world(), Talk()
    talk.user(scene.task)
    for index in range(0, MAX_MESSAGES, 2):
        reply = await speaker.say(agent_chat(scene.functions, scene.classes, talk.history, turns=False))
        if reply.stop is StopReason.CONTEXT:
            return talk.ended(CONTEXT)
        finished = index > 1 and FINISH in reply.text
        talk.agent(reply.text, "nobody" if finished else "execution", shown=False)
        if finished:
            return talk.ended(DONE)
        found = calls_in(reply.text)
        if found.refused is not None:
            return talk.ended(REFUSED, refused=str(found.refused))
        talk.execution(answers_of(world, found.calls) if found.calls else NUDGE, "execution result")
    return talk.ended(STEPS)


async def multi_turn(scene: Scene, speaker: Speaker) -> Transcript:
    """A conversation with a simulated user, who speaks first."""
    world, talk, user = scene.world(), Talk(), SimulatedUser(scene, speaker)
    ended = await user.speaks(talk)
    if ended:
        return talk.ended(ended)
    spoken_to, found = "agent", Reading()
    for index in range(MAX_MESSAGES):
        said = ""
        if spoken_to == "agent":
            reply = await speaker.say(agent_chat(scene.functions, scene.classes, talk.history, turns=True))
            if reply.stop is StopReason.CONTEXT:
                return talk.ended(CONTEXT)
            said, found = reply.text, bracketed_calls(reply.text)
            spoken_to = "execution" if found.calls or found.refused else "user"
            talk.agent(said, spoken_to, shown=True)
            if found.refused is not None:
                return talk.ended(REFUSED, refused=str(found.refused))
        elif spoken_to == "execution":
            talk.execution(answers_or_letters(world, found.calls), "execution")
            spoken_to = "agent"
        else:
            ended = await user.speaks(talk)
            if ended:
                return talk.ended(ended)
            said, spoken_to = talk.messages[-1]["content"], "agent"
        if index > 1 and FINISH in said:
            return talk.ended(DONE)
    return talk.ended(STEPS)


class SimulatedUser:
    """The other side of a multi-turn conversation: a policy that is told the user's task."""

    def __init__(self, scene: Scene, speaker: Speaker) -> None:
        self._speaker = speaker
        self._chat = [Message("system", user_rules(scene.task, scene.classes)), Message("user", GREETING)]

    async def speaks(self, talk: Talk) -> str:
        """Answer what the agent said last and note it; returns how the conversation ended, or ""."""
        if talk.messages:
            self._chat.append(Message("user", _without_role(talk.messages[-1]["content"])))
        reply = await self._speaker.say(self._chat, role="user")
        if reply.stop is StopReason.CONTEXT:
            return USER_CONTEXT
        if not reply.text:
            return USER_SILENT
        self._chat.append(Message("assistant", reply.text))
        talk.user(reply.text)
        return ""


def _without_role(text: str) -> str:
    for label in ("user:", "agent:"):
        if text.startswith(label):
            return text.removeprefix(label)
    return text
