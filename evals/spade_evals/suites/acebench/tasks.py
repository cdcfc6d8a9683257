"""ACEBench-Agent as tasks: multi-step (20 items) and multi-turn (30 items, with a simulated user).

The value of a sample is 1 when the end state is as annotated, else 0. `process` is the share of milestones
that were passed, 1 where the end state is right. Both follow the variant, `official` or `strict` (see
`audit`); the value under the other one is kept beside them under its name. Conversations are the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from spade_evals.data import Row, Source
from spade_evals.dialogue import DialogueTask, Speaker, Transcript
from spade_evals.grade.calls import Call
from spade_evals.presets import Ask
from spade_evals.question import Grade, GradeVerdict, Question, UserFailed
from spade_evals.suite import Setting
from spade_evals.suites.acebench import check
from spade_evals.suites.acebench.audit import UNSCORABLE
from spade_evals.suites.acebench.check import State
from spade_evals.suites.acebench.loops import (
    DONE,
    MAX_MESSAGES,
    REFUSED,
    USER_CONTEXT,
    USER_SILENT,
    Scene,
    multi_step,
    multi_turn,
)
from spade_evals.suites.acebench.oracle import plan
from spade_evals.suites.acebench.prompts import FINISH, listed, prompt_hash, user_prompt_hash
from spade_evals.suites.acebench.reading import bracketed_calls, calls_in, executed
from spade_evals.suites.acebench.sources import paired, source
from spade_evals.suites.acebench.world import answers_of, answers_or_letters

OFFICIAL, STRICT = "official", "strict"

PASSED_BY_OFFICIAL: Final = ("agent_multi_step_0", "agent_multi_step_1", "agent_multi_step_19")
"""Unscorable items of which the published checker does not look at the part that is wrong."""

NO_USER: Final = {
    USER_CONTEXT: "the simulated user had no room left in its context",
    USER_SILENT: "the simulated user said nothing",
}


class AgentTask(DialogueTask):
    """One of the two categories; `data` replaces the pinned files (tests)."""

    styles = ("calls", "compact")
    """`compact` lists functions by their signatures, for small contexts."""
    style = "calls"
    variants = (OFFICIAL, STRICT)
    template = "{question}"
    max_tokens = 1000
    """Of one reply, as published; a preset may allow more."""
    user_ask = Ask(temperature=0.0, max_tokens=1000)
    grader = "ace-agent-1"
    category: str
    loop: Callable[[Scene, Speaker], Awaitable[Transcript]]

    def __init__(self, data: Source | None = None, part: str = "") -> None:
        self.data, self.part = data or source(self.category), part

    def configured(self, ask: Ask) -> AgentTask:
        """See `Task.configured`; the known defects depend on the variant."""
        task = super().configured(ask)
        assert isinstance(task, AgentTask)
        task.defects = task.known_defects()
        return task

    def known_defects(self) -> Mapping[str, str]:
        """Items that a careful agent does not pass under the variant, and why."""
        passed = () if self.variant == STRICT else PASSED_BY_OFFICIAL
        return {name: why for name, why in UNSCORABLE.items() if name not in passed}

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """Words of the prompts, limit of messages and, where there is one, who the user is."""
        return {**super().protocol(setting), "prompts": prompt_hash(), "messages": MAX_MESSAGES}

    def read(self, rows: list[Row]) -> list[Question]:
        """See `Task.read`."""
        return [self._question(item, answer) for item, answer in paired(rows)]

    def _question(self, item: Row, answer: Row) -> Question:
        return Question(
            task=self.name,
            prompt=item["question"],
            reference=answer["ground_truth"],
            name=item["id"],
            part=self.part,
            meta={
                "functions": item["function"],
                "classes": item["involved_classes"],
                "config": item["initial_config"],
                "milestones": answer["mile_stone"],
            },
        )

    async def converse(self, question: Question, speaker: Speaker, setting: Setting) -> Transcript:
        """See `DialogueTask.converse`."""
        return await type(self).loop(scene_of(question, self.style == "compact"), speaker)

    async def script(self, question: Question, setting: Setting) -> list[str] | None:
        """Calls that lead to the annotated end state, one a message, and the end."""
        return oracle_replies(question)

    def solution(self, question: Question) -> str | None:
        """A conversation of those calls; wrong where the end state cannot be reached (see `audit`)."""
        *calls, last = oracle_replies(question)
        said = [{"role": "assistant", "content": text, "to": "execution"} for text in calls]
        return Transcript((*said, {"role": "assistant", "content": last, "to": "nobody"}), DONE).text()

    async def mark(self, transcript: Transcript, question: Question, setting: Setting) -> Grade:
        """Run what was called once more and compare. Raises UserFailed where the user could not go on."""
        if transcript.end in NO_USER:
            raise UserFailed(NO_USER[transcript.end])
        sent = executed(transcript.messages)
        calls, reached = self._replayed(sent, question)
        if transcript.end == REFUSED:
            refused = str(transcript.data.get("refused", ""))
            return Grade(GradeVerdict.REFUSED, extracted=shown_calls(calls), detail=refused, parts=NOTHING)
        return self._grade(question, sent, calls, reached)

    def _replayed(self, sent: Sequence[str], question: Question) -> tuple[list[list[Call]], State]:
        """The calls of each message, and the end state; no state where nothing was run, as published."""
        world = scene_of(question).world()
        read, run = READERS[self.category]
        found = [list(read(text).calls) for text in sent]
        for calls in found:
            run(world, calls)
        return found, world.state() if any(found) else []

    def _grade(
        self, question: Question, sent: Sequence[str], calls: Sequence[list[Call]], reached: State
    ) -> Grade:
        wrong = {strict: check.differences(question.reference, reached, strict) for strict in (False, True)}
        strict = self.variant == STRICT
        right = not wrong[strict]
        other = OFFICIAL if strict else STRICT
        process = 1.0 if right else self._process(question, sent, calls)
        parts = {"process": process, other: float(not wrong[not strict])}
        if not any(calls):
            return Grade(GradeVerdict.NO_ANSWER, detail="no call", parts=parts)
        verdict = GradeVerdict.CORRECT if right else GradeVerdict.WRONG
        detail = "; ".join(wrong[strict])[:300]
        return Grade(verdict, float(right), shown_calls(calls), detail, parts)

    def _process(self, question: Question, sent: Sequence[str], calls: Sequence[list[Call]]) -> float:
        published = question.meta["milestones"]
        if self.variant != STRICT:
            return check.process_score(published, sent)
        stones = [
            [list(calls_in(stone).calls) for stone in each] for each in check.milestone_lists(published)
        ]
        return check.strict_process_score(stones, [group for group in calls if group])


class MultiStep(AgentTask):
    """The agent gets a request and acts until it says that it is done."""

    name = "ace_multi_step"
    category = "agent_multi_step"
    loop = staticmethod(multi_step)


class MultiTurn(AgentTask):
    """The agent talks to a simulated user, a policy of its own."""

    name = "ace_multi_turn"
    category = "agent_multi_turn"
    loop = staticmethod(multi_turn)
    needs_user = True

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """With the user: who plays it, its sampling, what it is told."""
        user = {**setting.user_key, "prompt": user_prompt_hash(), "sampling": self.user_ask.sampling}
        return {**super().protocol(setting), "user": user}


READERS: Final = {
    MultiStep.category: (calls_in, answers_of),
    MultiTurn.category: (bracketed_calls, answers_or_letters),
}
"""How a reply is read, and how calls are run."""

NOTHING: Final = {"process": 0.0}


def scene_of(question: Question, compact: bool = False) -> Scene:
    """The item without its annotation."""
    meta = question.meta
    assert isinstance(question.prompt, str)
    return Scene(question.prompt, listed(meta["functions"], compact), meta["classes"], meta["config"])


def oracle_replies(question: Question) -> list[str]:
    """What `scripted:oracle` says."""
    calls = plan(question.meta["classes"], question.meta["config"], question.reference)
    return [*(f"[{call}]" for call in calls), FINISH]


def shown_calls(calls: Sequence[list[Call]]) -> str:
    """Calls for people, at most 500 characters."""
    return " ".join(f"[{', '.join(map(str, group))}]" for group in calls if group)[:500]
