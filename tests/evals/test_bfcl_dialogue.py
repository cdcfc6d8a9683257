"""Conversations as items: what is stored, rounds in lockstep, lost requests, resuming, seeds, the user."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from question_fakes import chat_of, lines, write_sums

from spade.errors import BackendError
from spade.serving.chat import ChatPolicy
from spade.serving.policy import Completion
from spade.serving.scripted import ScriptedPolicy
from spade.types import Message, StopReason
from spade_evals.data import DataFile, Row, Source
from spade_evals.dialogue import DialogueTask, Speaker, Transcript, readable
from spade_evals.question import Grade, Question, QuestionSuite
from spade_evals.question_run import Options, SuiteReport, ask_suite, regrade_suite
from spade_evals.runner import Subject
from spade_evals.suite import Setting
from spade_evals.users import OpenUser


class Counting(DialogueTask):
    """The user says a number, the agent answers; `turns` times. Right when every answer holds the number."""

    styles = ("tools", "plain")
    variants = ("kind", "harsh")
    grader = "counting-1"

    def __init__(self, root: Path, turns: int = 3, count: int = 6, user: bool = False) -> None:
        self.name, self.turns, self.needs_user = "counting", turns, user
        self.hook: Callable[[Question, int], Any] | None = None
        self.data = Source(
            (DataFile("counting/test.jsonl", write_sums(root, "counting", count)),), "made here", "1", "MIT"
        )

    def read(self, rows: list[Row]) -> list[Question]:
        return [Question(self.name, row["q"], row["a"], row["id"]) for row in rows]

    async def converse(self, question: Question, speaker: Speaker, setting: Setting) -> Transcript:
        messages: list[Message] = []
        kept: list[dict[str, Any]] = []
        for turn in range(self.turns):
            if self.hook is not None:
                await self.hook(question, turn)
            said = f"{question.name} turn {turn}"
            if self.needs_user:
                reply = await speaker.say([Message("user", said)], role="user")
                said = reply.text
            messages.append(Message("user", said))
            reply = await speaker.say(messages)
            if reply.stop is StopReason.CONTEXT and not reply.completion.token_ids:
                return Transcript(tuple(kept), "context")
            messages.append(reply.message)
            kept += [{"role": "user", "content": said}, {"role": "assistant", "content": reply.raw}]
        return Transcript(tuple(kept), "done", {"turns": self.turns})

    async def mark(self, transcript: Transcript, question: Question, setting: Setting) -> Grade:
        if transcript.end == "context":
            return Grade.none("no room")
        said = [m["content"] for m in transcript.messages if m["role"] == "assistant"]
        wrong = sum(question.name not in text for text in said)
        grade = Grade.of(wrong == 0 if self.variant == "kind" else False, said[-1])
        return Grade(grade.verdict, grade.value, said[-1], parts={"heard": 1 - wrong / max(1, len(said))})

    async def script(self, question: Question, setting: Setting) -> list[str] | None:
        return [f"yes, {question.name}"] * self.turns

    def solution(self, question: Question) -> str | None:
        return Transcript(({"role": "assistant", "content": question.name},), "done").text()


class Recorder(ScriptedPolicy):
    """Echoes the last message and notes the batches it gets; `trouble` may raise or change a reply."""

    def __init__(self, rows: int = 4, **more: Any) -> None:
        super().__init__("null", max_rows=rows, **more)
        self.batches: list[list[str]] = []
        self.seeds: list[int | None] = []
        self.trouble: Callable[[str], None] = lambda text: None
        self._reply = lambda prompt, params, sample: self._last(prompt)

    async def generate(self, prompts: Sequence[Sequence[int]], params: Any, n: int = 1) -> Any:
        texts = [self._last(p) for p in prompts]
        for text in texts:
            self.trouble(text)
        self.batches.append(texts)
        self.seeds += [p.seed for p in ([params] * len(prompts) if not isinstance(params, list) else params)]
        return await super().generate(prompts, params, n)


class FreeRecorder(Recorder):
    lockstep = False


async def hold(
    chat: ChatPolicy,
    task: DialogueTask,
    root: Path,
    out: Path,
    user: ChatPolicy | None = None,
    **options: Any,
) -> SuiteReport:
    suite = QuestionSuite("quiz", [task], preset="smoke")
    seed = options.pop("seed", 0)
    options.setdefault("samples", 1)
    return await ask_suite(
        chat, suite, None, out, Subject("ckpt", "abc"), seed=seed, quiet=True,
        user=None if user is None else OpenUser(user, {"ref": "user"}),
        options=Options(data_root=root, **options),
    )  # fmt: skip


def verdicts(report: SuiteReport) -> dict[str, int]:
    assert report.tasks[0].score is not None
    return report.tasks[0].score.verdicts


@pytest.mark.parametrize("policy", [Recorder, FreeRecorder])
async def test_conversations_are_stored_and_graded(policy: Any, tmp_path: Path) -> None:
    task = Counting(tmp_path)
    report = await hold(chat_of(policy()), task, tmp_path, tmp_path / "out")
    assert (verdicts(report), report.complete) == ({"correct": 6}, True)
    stored = lines(tmp_path / "out", "counting")
    assert len(stored) == 6
    transcript = Transcript.of(stored[0]["text"])
    assert [m["role"] for m in transcript.messages] == ["user", "assistant"] * 3
    assert (transcript.end, transcript.data) == ("done", {"turns": 3})
    assert stored[0]["parts"] == {"heard": 1.0}
    assert stored[0]["tokens"] > 0 and stored[0]["prompt_tokens"] > stored[0]["tokens"]


async def test_the_oracle_says_the_script_as_it_is(tmp_path: Path) -> None:
    report = await hold(chat_of(ScriptedPolicy("oracle")), Counting(tmp_path), tmp_path, tmp_path / "out")
    assert verdicts(report) == {"correct": 6}
    said = Transcript.of(lines(tmp_path / "out", "counting")[0]["text"]).messages[1]["content"]
    assert said.startswith("yes, counting/")


# --- lockstep ------------------------------------------------------------------------------------------


async def test_a_batch_speaks_in_rounds_whoever_is_faster(tmp_path: Path) -> None:
    """The rows of every forward pass are the same when the dialogues take their time at random."""
    found = []
    for order in (1, -1):
        task = Counting(tmp_path)

        async def dawdle(question: Question, turn: int, order: int = order) -> None:
            number = int(question.name.rpartition("/")[2])
            await asyncio.sleep(0.002 * (number * order % 7))

        task.hook = dawdle
        recorder = Recorder(rows=4)
        await hold(chat_of(recorder), task, tmp_path, tmp_path / f"out{order}")
        found.append(recorder.batches)
    assert found[0] == found[1]
    assert [len(batch) for batch in found[0]] == [4, 4, 4, 2, 2, 2]
    assert found[0][0] == [f"counting/{k} turn 0" for k in range(4)]


async def test_dialogues_that_end_early_leave_the_round(tmp_path: Path) -> None:
    class Uneven(Counting):
        async def converse(self, question: Question, speaker: Speaker, setting: Setting) -> Transcript:
            self.turns = 1 + int(question.name.rpartition("/")[2]) % 3
            return await super().converse(question, speaker, setting)

    recorder = Recorder(rows=6)
    task = Uneven(tmp_path)
    # Each dialogue reads its own number of turns before it first waits, so set it without a race.
    await hold(chat_of(recorder), task, tmp_path, tmp_path / "out")
    assert sum(len(batch) for batch in recorder.batches) == sum(
        len(Transcript.of(line["text"]).messages) // 2 for line in lines(tmp_path / "out", "counting")
    )


async def test_a_resumed_run_computes_the_batch_again_and_keeps_what_is_stored(tmp_path: Path) -> None:
    task = Counting(tmp_path)
    whole = Recorder(rows=4)
    await hold(chat_of(whole), task, tmp_path, tmp_path / "whole")
    complete = (tmp_path / "whole" / "quiz" / "counting.jsonl").read_bytes()
    await hold(chat_of(Recorder(rows=4)), task, tmp_path, tmp_path / "out")
    path = tmp_path / "out" / "quiz" / "counting.jsonl"
    stored = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text(stored[0] + stored[2] + stored[4] + stored[5] + stored[1][:40], encoding="utf-8")
    resumed = Recorder(rows=4)
    report = await hold(chat_of(resumed), task, tmp_path, tmp_path / "out")
    assert report.complete
    assert resumed.batches == whole.batches[:3], "the batch that lacks something, and no other"

    def contents(data: bytes) -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in data.decode().splitlines()]
        return sorted(({**row, "seconds": 0} for row in rows), key=lambda row: str(row["item_id"]))

    assert contents(path.read_bytes()) == contents(complete)


# --- faults --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Recorder, FreeRecorder])
async def test_an_engine_that_fails_twice_is_asked_again(policy: Any, tmp_path: Path) -> None:
    recorder = policy()
    failures = iter([True, True])

    def trouble(text: str) -> None:
        if text == "counting/2 turn 1" and next(failures, False):
            raise BackendError("gone")

    recorder.trouble = trouble
    report = await hold(chat_of(recorder), Counting(tmp_path), tmp_path, tmp_path / "out")
    assert (verdicts(report), report.complete) == ({"correct": 6}, True)


async def test_a_lost_conversation_stays_open_and_is_not_scored(tmp_path: Path) -> None:
    recorder = FreeRecorder()

    def trouble(text: str) -> None:
        if text == "counting/2 turn 1":
            raise BackendError("gone")

    recorder.trouble = trouble
    task = Counting(tmp_path)
    report = await hold(chat_of(recorder), task, tmp_path, tmp_path / "out")
    assert (verdicts(report), report.complete, report.ok) == ({"correct": 5}, False, False)
    assert (report.tasks[0].state, report.tasks[0].reason) == ("partial", "gone")
    recorder.trouble = lambda text: None
    recorder.batches.clear()
    again = await hold(chat_of(recorder), task, tmp_path, tmp_path / "out")
    assert (verdicts(again), again.complete) == ({"correct": 6}, True)
    assert recorder.batches == [[f"counting/2 turn {k}"] for k in range(3)]


async def test_a_lockstep_engine_that_is_gone_ends_the_command(tmp_path: Path) -> None:
    recorder = Recorder()

    def trouble(text: str) -> None:
        if text == "counting/5 turn 0":
            raise BackendError("gone")

    recorder.trouble = trouble
    with pytest.raises(BackendError, match="gone"):
        await hold(chat_of(recorder), Counting(tmp_path), tmp_path, tmp_path / "out")
    assert len(lines(tmp_path / "out", "counting")) == 4, "the first batch is on disk"


async def test_a_cancelled_reply_is_a_lost_request(tmp_path: Path) -> None:
    class Cancels(FreeRecorder):
        async def generate(self, prompts: Sequence[Sequence[int]], params: Any, n: int = 1) -> Any:
            answers = await super().generate(prompts, params, n)
            if self._last(prompts[0]).startswith("counting/1 "):
                return [[Completion((), (), StopReason.CANCELLED)] for _ in answers]
            return answers

    report = await hold(chat_of(Cancels()), Counting(tmp_path), tmp_path, tmp_path / "out")
    assert (verdicts(report), report.complete) == ({"correct": 5}, False)


async def test_a_bug_in_a_conversation_ends_the_command(tmp_path: Path) -> None:
    task = Counting(tmp_path)

    async def broken(question: Question, turn: int) -> None:
        raise ZeroDivisionError

    task.hook = broken
    with pytest.raises(ZeroDivisionError):
        await hold(chat_of(Recorder()), task, tmp_path, tmp_path / "out")


async def test_no_room_in_the_context_is_an_answer_cut_by_its_limit(tmp_path: Path) -> None:
    report = await hold(chat_of(Recorder(context_length=60)), Counting(tmp_path), tmp_path, tmp_path / "out")
    assert (verdicts(report), report.complete) == ({"truncated": 6}, True)
    assert {line["end"] for line in lines(tmp_path / "out", "counting")} == {"context"}


# --- the user ------------------------------------------------------------------------------------------


async def test_without_a_user_the_task_is_not_run(tmp_path: Path) -> None:
    report = await hold(chat_of(Recorder()), Counting(tmp_path, user=True), tmp_path, tmp_path / "out")
    assert report.tasks[0].state == "not run"
    assert not report.ok
    assert "counting: not run: needs a second model to play the user" in str(report)


async def test_the_user_is_a_policy_of_its_own_in_the_same_rounds(tmp_path: Path) -> None:
    agent, user = Recorder(rows=3), Recorder(rows=3)
    report = await hold(
        chat_of(agent), Counting(tmp_path, user=True), tmp_path, tmp_path / "out", chat_of(user)
    )
    assert verdicts(report) == {"correct": 6}
    assert [len(batch) for batch in agent.batches] == [len(batch) for batch in user.batches] == [3] * 6
    assert set(agent.seeds).isdisjoint(user.seeds)


@pytest.mark.parametrize("policy", [Recorder, FreeRecorder])
async def test_a_lost_user_is_counted_apart_and_never_scored(policy: Any, tmp_path: Path) -> None:
    user = FreeRecorder()

    def trouble(text: str) -> None:
        if text == "counting/3 turn 2":
            raise BackendError("the user's endpoint is gone")

    user.trouble = trouble
    task = Counting(tmp_path, user=True)
    report = await hold(chat_of(policy()), task, tmp_path, tmp_path / "out", chat_of(user))
    missing = report.tasks[0].score.missing if report.tasks[0].score else 0
    assert (verdicts(report).get("correct", 0) + missing, report.complete) == (6, False)
    assert "the policy that plays the user was lost" in report.tasks[0].reason


# --- seeds and protocol --------------------------------------------------------------------------------


def test_a_seed_depends_on_run_task_item_sample_role_and_number_alone() -> None:
    def seed(
        run: int = 0, task: str = "t", text: str = "q", sample: int = 0, role: Any = "agent", k: int = 0
    ) -> int:
        async def line(asked: Any) -> Any:
            raise AssertionError

        return Speaker(line, Question(task, text, 1), sample, run, {}).seed(role, k)

    base = seed()
    others = [seed(run=1), seed(task="u"), seed(text="p"), seed(sample=1), seed(role="user"), seed(k=1)]
    assert len({base, *others}) == 7
    assert base == seed()
    assert all(0 <= one < 2**31 for one in (base, *others))


async def test_all_requests_of_a_run_have_seeds_of_their_own(tmp_path: Path) -> None:
    free, lock = FreeRecorder(), Recorder(rows=2)
    for recorder, out in ((free, "a"), (lock, "b")):
        await hold(chat_of(recorder), Counting(tmp_path), tmp_path, tmp_path / out, samples=2)
    assert len(set(free.seeds)) == len(free.seeds) == 6 * 2 * 3
    assert set(free.seeds) == set(lock.seeds)


async def test_another_style_asks_again_and_another_variant_only_grades_again(tmp_path: Path) -> None:
    task = Counting(tmp_path)
    recorder = Recorder()

    def preset(**settings: Any) -> str:
        path = tmp_path / "preset.yaml"
        path.write_text(json.dumps({"name": "test", "defaults": settings}))
        return str(path)

    for settings, asked, wanted in (
        ({}, 18, "correct"),
        ({"variant": "harsh"}, 0, "wrong"),
        ({"variant": "kind"}, 0, "correct"),
        ({"style": "plain"}, 18, "correct"),
    ):
        recorder.seeds.clear()
        report = await hold(chat_of(recorder), task, tmp_path, tmp_path / "out", preset=preset(**settings))
        assert (len(recorder.seeds), verdicts(report)) == (asked, {wanted: 6})


async def test_regrading_needs_neither_model_nor_user(tmp_path: Path) -> None:
    task = Counting(tmp_path, user=True)
    chat = chat_of(Recorder())
    before = await hold(chat, task, tmp_path, tmp_path / "out", chat_of(Recorder()))
    null = chat_of(ScriptedPolicy("null"))
    report = await regrade_suite(
        null, QuestionSuite("quiz", [task], preset="smoke"), None, tmp_path / "out", Subject("ckpt", "abc"),
        options=Options(data_root=tmp_path, samples=1, regrade=True),
    )  # fmt: skip
    assert verdicts(report) == verdicts(before) == {"correct": 6}


# --- transcripts ---------------------------------------------------------------------------------------

PLAIN = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s, max_size=3))


@given(st.lists(st.fixed_dictionaries({"role": st.text(), "content": st.text(), "more": PLAIN})), st.text())
def test_transcripts_survive_storage(messages: list[dict[str, Any]], end: str) -> None:
    transcript = Transcript(tuple(messages), end, {"x": [1, "<think>"]})
    text = transcript.text()
    assert Transcript.of(text) == transcript
    assert "<" not in text
    assert end in readable(text)


async def test_thoughts_and_stop_texts_inside_a_conversation_do_not_cut_it(tmp_path: Path) -> None:
    class Thinks(Counting):
        async def script(self, question: Question, setting: Setting) -> list[str] | None:
            return [f"<think>STOP {question.name}</think>yes, {question.name}</think>"] * 3

    path = tmp_path / "preset.yaml"
    path.write_text(json.dumps({"name": "test", "defaults": {"stop": ["STOP"]}}))
    report = await hold(
        chat_of(ScriptedPolicy("oracle")), Thinks(tmp_path), tmp_path, tmp_path / "out", preset=str(path)
    )
    assert verdicts(report) == {"correct": 6}


def test_other_text_is_shown_as_it_is() -> None:
    assert readable("42") == "42"
    shown = readable(Transcript(({"role": "tool", "content": "x", "name": "f"},), "done").text())
    assert shown == '[tool] {"name": "f"}\nx\n\n[end] done'
