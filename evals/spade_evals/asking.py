"""Ask one task's questions and grade the answers, each sample stored when it is finished.

The seed of a sample depends on (run seed, task, item, sample) alone, so every checkpoint answers the same
questions with the same seeds, whatever else is asked and in whatever order.

* An engine in lockstep gets batches on a fixed grid over (question, sample). A batch of which anything is
  missing is asked again as a whole, so that a resumed run computes exactly what one run in one go computes;
  answers that are stored stay.
* Other engines get every missing sample at once and do the batching themselves.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spade.errors import BackendError, FaultKind
from spade.play.actions import OPEN_THOUGHT
from spade.rng import child_seed
from spade.serving.policy import Completion, Policy, SamplingParams
from spade.serving.stopping import StopTexts
from spade.types import Fault, Instance, Outcome, Scored, StopReason
from spade_evals.answers import Answer, AnswerLog, Key
from spade_evals.presets import Ask
from spade_evals.question import Grade, GradeVerdict, Question, Task, judge, visible_answer
from spade_evals.suite import Setting

TRIES = 3
"""Attempts at a sample whose engine or grader is lost."""

GIVE_UP = 8
"""Samples lost one after another that end the command: the engine is gone, not one request."""

IN_FLIGHT = 256
"""Samples of a free-running engine that are alive at once."""

GRADING = 8
"""Answers graded at once; graders with processes of their own queue there."""

ENDS = {StopReason.STOP: "stop", StopReason.LENGTH: "length", StopReason.CONTEXT: "context"}

Unit = tuple[Question, int]

OnAnswer = Callable[[Answer], None]
"""Called with each answer when it is stored."""


@dataclass(frozen=True, slots=True)
class _Request:
    question: Question
    sample: int
    prompt_ids: list[int]
    prompt: str
    params: SamplingParams | None
    """None when the prompt leaves no room for an answer."""


class Asker:
    """Asks one task. After `run`, `lost` counts the samples without an answer."""

    def __init__(
        self, task: Task, ask: Ask, setting: Setting, log: AnswerLog, on_answer: OnAnswer | None = None
    ) -> None:
        self.task, self.ask, self.setting, self.log = task, ask, setting, log
        self.lost = 0
        self.problem = ""
        """The last thing that went wrong with the machinery."""
        self._on_answer = on_answer
        self._in_row = 0
        self._gate = asyncio.Semaphore(GRADING)
        self._opened = setting.chat.renderer.opens_thought(ask.thinking)

    async def run(self, questions: Sequence[Question]) -> None:
        """Ask for every sample that is missing. Raises BackendError when the engine fails for good."""
        await self.ask_units([(q, sample) for q in questions for sample in range(self.ask.n)])

    async def ask_units(self, units: Sequence[Unit]) -> None:
        """The same for these samples; the grid of an engine in lockstep begins at the first of them."""
        policy = self.setting.chat.policy
        await run_units(units, policy, self._missing, self._batch, self._single, IN_FLIGHT)

    def _missing(self, unit: Unit) -> bool:
        return (unit[0].id, unit[1]) not in self.log.answers

    # --- asking ----------------------------------------------------------------------------------------

    def _request(self, unit: Unit) -> _Request:
        question, sample = unit
        chat, ask = self.setting.chat, self.ask
        messages = ask.messages(question.prompt, question.fields)
        ids = chat.renderer.start(messages, thinking=ask.thinking)
        room = chat.policy.context_length - len(ids)
        params = SamplingParams(
            max_tokens=min(ask.max_tokens, room),
            temperature=ask.temperature,
            top_p=ask.top_p,
            top_k=ask.top_k,
            stop_token_ids=chat.renderer.stop_token_ids,
            seed=sample_seed(self.setting.seed, question, sample),
        )
        text = "\n\n".join(m.content if m.role == "user" else f"[{m.role}] {m.content}" for m in messages)
        return _Request(question, sample, ids, text, params if room > 0 else None)

    async def _batch(self, batch: Sequence[Unit]) -> None:
        """One batch of a lockstep engine; an engine that fails three times ends the command."""
        requests = [self._request(unit) for unit in batch]
        asked = [r for r in requests if r.params is not None]
        started = time.monotonic()
        for attempt in range(TRIES):
            try:
                completions = await self._generate(asked)
                break
            except BackendError:
                if attempt + 1 == TRIES:
                    raise
        seconds = time.monotonic() - started
        found = {id(r): c for r, c in zip(asked, completions, strict=True)}
        todo = [r for r in requests if self._missing((r.question, r.sample))]
        await together([self._finish(request, found.get(id(request)), seconds) for request in todo])

    async def _single(self, unit: Unit) -> None:
        """One sample of a free-running engine."""
        request = self._request(unit)
        for attempt in range(TRIES):
            started = time.monotonic()
            try:
                completion = (await self._generate([request]))[0] if request.params is not None else None
            except BackendError as error:
                if attempt + 1 == TRIES:
                    self._lose(str(error))
                continue
            if completion is not None and completion.stop is StopReason.CANCELLED and attempt + 1 < TRIES:
                continue
            await self._finish(request, completion, time.monotonic() - started)
            return

    async def _generate(self, requests: Sequence[_Request]) -> list[Completion]:
        policy = self.setting.chat.policy
        if not requests:
            return []
        if not getattr(policy, "privileged", False):
            params = [self._stopping(r.params) for r in requests if r.params is not None]
            answers = await policy.generate([r.prompt_ids for r in requests], params)
            return [answer[0] for answer in answers]
        out = []
        for r in requests:  # told just before it is asked, since samples of one question share a prompt
            solution = self.task.solution(r.question)
            said = [] if solution is None else [solution]
            told = Instance(r.question.id, r.sample)
            policy.tell(r.prompt_ids, said, told, whole=self.task.markup)  # type: ignore[attr-defined]
            assert r.params is not None
            out.append((await policy.generate([r.prompt_ids], r.params))[0][0])
        return out

    def _stopping(self, params: SamplingParams) -> SamplingParams:
        """With a watch over stop texts, made anew for every attempt: engines that heed it stop early. What is
        graded stays the same, since the answer ends before the first stop text anyway."""
        if not self.ask.stop:
            return params
        watch = StopTexts(self.setting.chat.renderer, self.ask.stop, self._opened)
        return replace(params, stop_when=watch)

    # --- grading ---------------------------------------------------------------------------------------

    async def _finish(self, request: _Request, completion: Completion | None, seconds: float) -> None:
        """Grade and store; a grader lost three times leaves the sample unanswered."""
        if completion is not None and completion.stop is StopReason.CANCELLED:
            self._lose("the engine cancelled the answer")
            return
        text, end, tokens = "", "context", 0
        if completion is not None:
            text = self.setting.chat.renderer.text(completion.token_ids)
            text = OPEN_THOUGHT + text if self._opened else text
            end, tokens = ENDS[completion.stop], len(completion.token_ids)
            if visible_answer(text, self.ask.stop) != visible_answer(text):
                end = "stop"  # whatever a limit cut came after the answer
        question = request.question
        answer = Answer(
            item_id=question.id, sample=request.sample,
            part=question.part or self.task.name, cluster=question.cluster or question.id,
            outcome=Scored(0.0, False), end=end, tokens=tokens,
            text=text, verdict="", extracted="", detail="", expected=shown(question.reference),
            prompt=request.prompt,
            name=question.name, defective=self.task.is_defective(question),
            prompt_tokens=len(request.prompt_ids), seconds=round(seconds, 3),
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

    def _lose(self, why: str) -> None:
        self.lost += 1
        self._in_row += 1
        self.problem = why
        if self._in_row >= GIVE_UP:
            raise BackendError(f"{why}; {GIVE_UP} samples in a row were lost. Run the same command to resume")


async def run_units(
    units: Sequence[Unit],
    policy: Policy,
    missing: Callable[[Unit], bool],
    batch: Callable[[Sequence[Unit]], Coroutine[Any, Any, None]],
    single: Callable[[Unit], Coroutine[Any, Any, None]],
    at_once: int,
) -> None:
    """What is missing of `units`: an engine in lockstep on a fixed grid, any other `at_once` at a time."""
    if policy.lockstep:
        size = max(1, policy.max_rows)
        for at in range(0, len(units), size):
            if any(map(missing, units[at : at + size])):
                await batch(units[at : at + size])
        return
    alive = asyncio.Semaphore(at_once)

    async def one(unit: Unit) -> None:
        async with alive:
            await single(unit)

    await together([one(unit) for unit in units if missing(unit)])


async def together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all; the first error cancels the others and is raised as it is, when they have ended."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def grade_again(
    task: Task, ask: Ask, question: Question, answer: Answer, setting: Setting
) -> Answer | None:
    """The answer with its grade, from its text alone; None when the grader was lost `TRIES` times."""
    for _ in range(TRIES):
        grade = await judge(task, task.visible(answer.text, ask.stop), answer.cut, question, setting)
        if not (isinstance(grade, Fault) and grade.kind is FaultKind.INFRASTRUCTURE):
            return _graded(answer, grade, task, question)
    return None


def _graded(answer: Answer, grade: Grade | Fault, task: Task, question: Question) -> Answer:
    defective = task.is_defective(question)
    if isinstance(grade, Fault):
        return replace(
            answer, outcome=grade, verdict="", extracted="", detail=grade.detail, defective=defective,
            parts={},
        )  # fmt: skip
    outcome: Outcome = Scored(grade.value, grade.verdict is GradeVerdict.CORRECT)
    return replace(
        answer, outcome=outcome, verdict=grade.verdict.value, extracted=grade.extracted,
        detail=grade.detail, defective=defective, parts=grade.parts,
    )  # fmt: skip


def sample_seed(seed: int, question: Question, sample: int) -> int:
    """31 bits (what endpoints take) from the run's seed, the task, the item and the sample."""
    return child_seed(seed, "answer", question.task, question.id, sample) % 2**31


def shown(reference: Any) -> str:
    """A reference as text for people."""
    return reference if isinstance(reference, str) else json.dumps(reference, ensure_ascii=False)


def unanswered(questions: Sequence[Question], n: int, answers: dict[Key, Answer]) -> int:
    """Samples without a line."""
    return sum((q.id, sample) not in answers for q in questions for sample in range(n))
