"""Items that are a whole conversation: what a dialogue task is, how it speaks, what is kept of it.

    Question ─DialogueTask.converse─► Transcript ─text()─► one stored line ─mark─► Grade
                     │  ▲
              Speaker.say: one request, one reply

A task writes the loop (`converse`) and grades from the stored transcript alone (`mark`), so that resuming,
grading again and looking at samples work as for single answers. It never talks to a policy itself: the
`Speaker` makes each request, with a seed of its own from (run, task, item, sample, role, number of the
request), counts tokens, and hides lost requests, which are tried again and never scored.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from spade.errors import ConfigError, InputError
from spade.registry import suggestion
from spade.rng import child_seed
from spade.serving.chat import ChatCompletion, ChatRequest
from spade.serving.policy import SamplingParams
from spade.types import Message, StopReason
from spade_evals.presets import Ask
from spade_evals.question import Grade, Question, Task
from spade_evals.suite import Setting

Role = Literal["agent", "user"]
"""Who is asked: the policy under test, or the one that plays the user."""

CUT = {StopReason.LENGTH: "length", StopReason.CONTEXT: "context"}
LAST_WORD = "Done."
"""What the oracle says after the end of its script."""


class Lost(Exception):
    """A request got no answer, whose fault it is not the model's: the sample stays open."""


class UserLost(Lost):
    """The same for the policy that plays the user."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """What is kept of a conversation."""

    messages: tuple[dict[str, Any], ...]
    """In order: `role`, `content`, and what else the task keeps with a message; plain JSON."""
    end: str
    """Why it ended, in the task's own word: `done`, `steps`, `context`, ..."""
    data: dict[str, Any] = field(default_factory=dict)
    """What else the grader needs, plain JSON."""

    def text(self) -> str:
        """As stored. `<` is escaped, so that no markup of a reply is taken for markup of the text."""
        tree = {"messages": list(self.messages), "end": self.end, "data": self.data}
        return json.dumps(tree, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")

    @staticmethod
    def of(text: str) -> Transcript:
        """Read it back. Raises InputError for other text."""
        try:
            tree = json.loads(text)
            return Transcript(tuple(map(dict, tree["messages"])), str(tree["end"]), dict(tree["data"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"a stored conversation is not one of this version ({error!r})") from error


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of one dialogue; `told` is what the oracle is to say."""

    role: Role
    request: ChatRequest
    told: str


Line = Callable[[Asked], Awaitable[ChatCompletion]]
"""Gets a request answered; raises Lost."""


class Speaker:
    """Makes the requests of one dialogue. Attributes are what it has counted so far."""

    def __init__(
        self,
        line: Line,
        question: Question,
        sample: int,
        seed: int,
        asks: dict[Role, Ask],
        script: Sequence[str] | None = None,
    ) -> None:
        self.tokens: Counter[str] = Counter()
        """Sampled tokens by role."""
        self.prompt_tokens = 0
        """Of the agent's requests together."""
        self.cut = ""
        """`length` or `context` once a limit cut a reply of the agent."""
        self._line, self._asks, self._script = line, asks, script
        self._seed = (seed, question, sample)
        self._count: Counter[Role] = Counter()

    async def say(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        *,
        role: Role = "agent",
        replies: Sequence[Sequence[int] | None] = (),
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> ChatCompletion:
        """The reply to a conversation; `replies` are the sampled ids of its assistant messages.

        A conversation that leaves no room in the context gets a reply without text that ended by `CONTEXT`.
        Raises Lost, which is not to be caught.
        """
        ask, number = self._asks[role], self._count[role]
        self._count[role] += 1
        params = SamplingParams(
            max_tokens=min(ask.max_tokens, max_tokens or ask.max_tokens),
            temperature=ask.temperature,
            top_p=ask.top_p,
            top_k=ask.top_k,
            seed=self.seed(role, number),
        )
        request = ChatRequest(messages, tools, params, ask.thinking, stop=(*ask.stop, *stop), replies=replies)
        script = self._script or ()
        told = script[number] if role == "agent" and number < len(script) else LAST_WORD
        reply = await self._line(Asked(role, request, told))
        self.tokens[role] += reply.sampled_tokens
        if role == "agent":
            self.prompt_tokens += reply.prompt_tokens
            self.cut = CUT.get(reply.stop, self.cut)
        return reply

    def seed(self, role: Role, number: int) -> int:
        """31 bits from the run's seed, the task, the item, the sample, the role and its request's number."""
        seed, question, sample = self._seed
        return child_seed(seed, "dialogue", question.task, question.id, sample, role, number) % 2**31


class DialogueTask(Task):
    """A benchmark of conversations. Subclasses write `read`, `converse`, `mark`, `script` and `solution`."""

    styles: ClassVar[tuple[str, ...]] = ("tools",)
    """How calls are written, for a preset's `style`; the first is the default. `tools` are native calls."""
    style = ""
    needs_user: bool = False
    """Whether a second policy plays the user."""
    user_ask: Ask = Ask()
    """Sampling of the user."""
    variant: str = ""

    async def converse(self, question: Question, speaker: Speaker, setting: Setting) -> Transcript:
        """Hold the conversation. Waits for the speaker and for its own processes, never for anything else."""
        raise NotImplementedError

    async def mark(self, transcript: Transcript, question: Question, setting: Setting) -> Grade:
        """Grade a stored conversation. May raise anything; see `question.judge`."""
        raise NotImplementedError

    async def script(self, question: Question, setting: Setting) -> list[str] | None:
        """Whole replies, in order, with which the oracle solves the item; None where nobody knows them."""
        return None

    async def grade(self, answer: str, question: Question, setting: Setting) -> Grade:
        """See `Task.grade`."""
        return await self.mark(Transcript.of(answer), question, setting)

    def visible(self, text: str, stop: Sequence[str]) -> str:
        """All of it: thoughts and stop texts were dealt with reply by reply."""
        return text

    def configured(self, ask: Ask) -> DialogueTask:
        """See `Task.configured`."""
        super().configured(ask)
        if ask.style and ask.style not in self.styles:
            raise ConfigError(f"{self.name} has no style '{ask.style}'{suggestion(ask.style, self.styles)}")
        task = copy.copy(self)
        task.style = ask.style or self.style or self.styles[0]
        task.variant = ask.variant or (self.variants[0] if self.variants else "")
        task.grader = f"{self.grader}+{task.variant}" if task.variant else self.grader
        return task

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """See `Task.protocol`; subclasses add the hash of their prompts and their limits."""
        return {"style": self.style}

    def lacks(self, setting: Setting) -> tuple[str, str] | None:
        """See `Task.lacks`."""
        if self.needs_user and setting.user is None:
            return "needs a second model to play the user", "--user REF"
        return None

    def opening(self, question: Question) -> str:
        """What is shown of the question beside the conversation."""
        if isinstance(question.prompt, str):
            return question.prompt
        return "\n\n".join(
            m.content if m.role == "user" else f"[{m.role}] {m.content}" for m in question.prompt
        )


def readable(text: str) -> str:
    """A stored conversation for people: a paragraph per message; other text as it is."""
    try:
        transcript = Transcript.of(text)
    except InputError:
        return text
    parts = []
    for message in transcript.messages:
        extra = {k: v for k, v in message.items() if k not in ("role", "content") and v}
        shown = f" {json.dumps(extra, ensure_ascii=False)}" if extra else ""
        parts.append(f"[{message.get('role', '')}]{shown}\n{message.get('content', '')}")
    return "\n\n".join([*parts, f"[end] {transcript.end}"])
