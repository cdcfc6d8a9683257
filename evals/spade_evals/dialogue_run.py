"""Hold the conversations of one task, each sample graded and stored when it ends.

* An engine in lockstep gets batches of dialogues on a fixed grid over (question, sample). When every dialogue
  of a batch that is still going waits for a reply, all their requests are answered in one batch, in the order
  of the dialogues (`Rounds`). So the rows of each forward pass depend on what was said alone, not on who was
  faster. A batch of which anything is missing is held again as a whole; what is stored stays.
* With any other engine many dialogues run at once, each at its own pace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from spade.errors import BackendError
from spade.serving.chat import ChatCompletion, ChatPolicy, SpeaksChat
from spade.serving.policy import Completion
from spade.types import Instance, Scored, StopReason
from spade_evals.answers import Answer, AnswerLog
from spade_evals.asking import (
    GIVE_UP,
    GRADING,
    TRIES,
    OnAnswer,
    Unit,
    grade_again,
    run_units,
    shown,
    together,
)
from spade_evals.dialogue import Asked, DialogueTask, Line, Lost, Role, Speaker, UserLost
from spade_evals.presets import Ask
from spade_evals.question import Question
from spade_evals.suite import Setting

DIALOGUES = 64
"""Dialogues of a free-running engine that are going on at once."""


class DialogueAsker:
    """Holds the missing conversations of a task; the counterpart of `asking.Asker`."""

    def __init__(
        self,
        task: DialogueTask,
        ask: Ask,
        setting: Setting,
        log: AnswerLog,
        on_answer: OnAnswer | None = None,
    ) -> None:
        self.task, self.ask, self.setting, self.log = task, ask, setting, log
        self.lost = 0
        self.user_lost = 0
        """Samples lost to the policy that plays the user; counted in `lost` too."""
        self.problem = ""
        """The last thing that went wrong with the machinery."""
        self._on_answer = on_answer
        self._in_row = 0
        self._gate = asyncio.Semaphore(GRADING)

    async def run(self, questions: Sequence[Question]) -> None:
        """Hold every conversation that is missing. Raises BackendError when the engine fails for good."""
        await self.ask_units([(q, sample) for q in questions for sample in range(self.ask.n)])

    async def ask_units(self, units: Sequence[Unit]) -> None:
        """The same for these samples; the grid of an engine in lockstep begins at the first of them."""
        policy = self.setting.chat.policy
        await run_units(units, policy, self._missing, self._batch, self._single, DIALOGUES)

    async def _single(self, unit: Unit) -> None:
        await self._hold(unit, self._answer_one, _nothing)

    def _missing(self, unit: Unit) -> bool:
        return (unit[0].id, unit[1]) not in self.log.answers

    async def _batch(self, batch: Sequence[Unit]) -> None:
        rounds = Rounds(len(batch), self._answer)
        held = [self._hold(unit, rounds.line(place), rounds.ended) for place, unit in enumerate(batch)]
        await together([rounds.run(), *held])

    async def _hold(self, unit: Unit, line: Line, ended: Callable[[], None]) -> None:
        """One conversation from its first word to its stored line; `ended` is called after the last word."""
        question, sample = unit
        started = time.monotonic()
        try:
            try:
                script = await self._script(question)
                asks: dict[Role, Ask] = {"agent": self.ask, "user": self.task.user_ask}
                speaker = Speaker(line, question, sample, self.setting.seed, asks, script)
                transcript = await self.task.converse(question, speaker, self.setting)
            finally:
                ended()
        except Lost as lost:
            self._lose(str(lost), isinstance(lost, UserLost))
            return
        if not self._missing(unit):
            return  # it was held again for the sake of its batch
        answer = Answer(
            item_id=question.id, sample=sample,
            part=question.part or self.task.name, cluster=question.cluster or question.id,
            outcome=Scored(0.0, False), end=speaker.cut or "stop", tokens=speaker.tokens["agent"],
            text=transcript.text(), verdict="", extracted="", detail="", expected=shown(question.reference),
            prompt=self.task.opening(question), name=question.name,
            defective=self.task.is_defective(question), prompt_tokens=speaker.prompt_tokens,
            seconds=round(time.monotonic() - started, 3),
        )  # fmt: skip
        async with self._gate:
            graded = await grade_again(self.task, self.ask, question, answer, self.setting)
        if graded is None:
            self._lose(f"the grader of {self.task.name} was lost")
            return
        self._in_row = 0
        self.log.add(graded)
        if self._on_answer is not None:
            self._on_answer(graded)

    async def _script(self, question: Question) -> list[str] | None:
        if not getattr(self.setting.chat.policy, "privileged", False):
            return None
        return await self.task.script(question, self.setting)

    # --- requests --------------------------------------------------------------------------------------

    async def _answer_one(self, asked: Asked) -> ChatCompletion:
        found = (await self._answer([asked]))[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def _answer(self, asked: Sequence[Asked]) -> list[ChatCompletion | Lost]:
        """Answers in order, role by role. A lost request is tried again; one that stays lost is a value.

        Raises BackendError when an engine in lockstep fails for good.
        """
        found: dict[int, ChatCompletion | Lost] = {}
        for role in ("agent", "user"):
            places = [i for i, a in enumerate(asked) if a.role == role]
            if places:
                replies = await self._of_role(role, [asked[i] for i in places])
                found.update(zip(places, replies, strict=True))
        return [found[i] for i in range(len(asked))]

    async def _of_role(self, role: str, asked: Sequence[Asked]) -> list[ChatCompletion | Lost]:
        chat = self.setting.chat if role == "agent" else self.setting.user
        assert chat is not None
        kind = Lost if role == "agent" else UserLost
        found: dict[int, ChatCompletion] = {}
        why = "the engine cancelled the reply"
        for attempt in range(TRIES):
            left = [i for i in range(len(asked)) if i not in found]
            try:
                replies = await answer_all(chat, [asked[i] for i in left])
            except BackendError as error:
                if role == "agent" and chat.policy.lockstep and attempt + 1 == TRIES:
                    raise
                why = str(error)
                continue
            whole = [r.stop is not StopReason.CANCELLED for r in replies]
            found.update({i: r for i, r, fine in zip(left, replies, whole, strict=True) if fine})
            if len(found) == len(asked):
                break
        return [found.get(i) or kind(why) for i in range(len(asked))]

    def _lose(self, why: str, user: bool = False) -> None:
        self.lost += 1
        self.user_lost += user
        self._in_row += 1
        self.problem = (
            f"the policy that plays the user was lost {self.user_lost} times: {why}" if user else why
        )
        if self._in_row >= GIVE_UP:
            raise BackendError(f"{why}; {GIVE_UP} samples in a row were lost. Run the same command to resume")


class Rounds:
    """Collects what the dialogues of a batch ask, until all that are still going wait; then answers them."""

    def __init__(
        self, count: int, answer: Callable[[Sequence[Asked]], Awaitable[list[ChatCompletion | Lost]]]
    ) -> None:
        self._live, self._answer = count, answer
        self._waiting: dict[int, tuple[Asked, asyncio.Future[ChatCompletion]]] = {}
        self._full = asyncio.Event()

    def line(self, place: int) -> Line:
        """The line of the dialogue at `place`; places give the order of the rows."""

        async def ask(asked: Asked) -> ChatCompletion:
            future: asyncio.Future[ChatCompletion] = asyncio.get_running_loop().create_future()
            self._waiting[place] = asked, future
            self._check()
            return await future

        return ask

    def ended(self) -> None:
        """One dialogue has said its last word."""
        self._live -= 1
        self._check()

    async def run(self) -> None:
        """Answer round after round until no dialogue is left."""
        while self._live:
            await self._full.wait()
            self._full.clear()
            waiting = [self._waiting[place] for place in sorted(self._waiting)]
            self._waiting.clear()
            if not waiting:
                continue
            for (_, future), found in zip(waiting, await self._answer([a for a, _ in waiting]), strict=True):
                if isinstance(found, Exception):
                    future.set_exception(found)
                else:
                    future.set_result(found)

    def _check(self) -> None:
        if len(self._waiting) == self._live:
            self._full.set()


def _nothing() -> None:
    return None


# --- one batch of requests -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    """A request that fits into the context, with its prompt."""

    place: int
    asked: Asked
    prompt: list[int]


async def answer_all(chat: ChatPolicy, asked: Sequence[Asked]) -> list[ChatCompletion]:
    """Answer requests in one batch, in order.

    A conversation that leaves no room in the context is answered by an empty reply that ended by `CONTEXT`.
    Raises BackendError when the engine fails.
    """
    policy = chat.policy
    if isinstance(policy, SpeaksChat):
        return [row[0] for row in await chat.batch([a.request for a in asked])]
    found: dict[int, ChatCompletion] = {}
    rows = []
    for place, one in enumerate(asked):
        prompt = chat.prompt(one.request)
        room = policy.context_length - len(prompt)
        if room <= 0:
            nothing = Completion((), (), StopReason.CONTEXT)
            found[place] = ChatCompletion("", nothing, prompt_ids=tuple(prompt), prompt_tokens=len(prompt))
            continue
        params = replace(one.request.params, max_tokens=min(one.request.params.max_tokens, room))
        rows.append(_Row(place, replace(one, request=replace(one.request, params=params)), prompt))
    for row, completion in zip(rows, await _generate(chat, rows), strict=True):
        found[row.place] = chat.read(row.asked.request, row.prompt, completion)
    return [found[place] for place in range(len(asked))]


async def _generate(chat: ChatPolicy, rows: Sequence[_Row]) -> list[Completion]:
    policy = chat.policy
    if not rows:
        return []
    if not getattr(policy, "privileged", False):
        params = [chat.sampling(row.asked.request) for row in rows]
        return [answer[0] for answer in await policy.generate([row.prompt for row in rows], params)]
    out = []
    for row in rows:  # told just before it is asked, since samples of one question share a prompt
        params_of_row = chat.sampling(row.asked.request)
        policy.tell(row.prompt, [row.asked.told], Instance("", 0), whole=True)  # type: ignore[attr-defined]
        out.append((await policy.generate([row.prompt], [params_of_row]))[0][0])
    return out
