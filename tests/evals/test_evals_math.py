"""AIME, MATH-500 and GSM8K on the real files: exact scores of scripted policies, worked solutions, blame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from qa_data import DATA, all_of, needs
from question_fakes import ask, chat_of

from spade.errors import FaultKind, InputError
from spade.serving.scripted import ScriptedPolicy
from spade.types import Fault, content_id
from spade_evals.data import DataAbsent, read_rows
from spade_evals.grade import math as grader
from spade_evals.question import Grade, GradeVerdict, Question, judge
from spade_evals.suites.math import make_suite
from spade_evals.tasks.math import Gsm8k, Math500, MathTask, aime24, aime25, aime26

SETTING: Any = None  # these graders use nothing of it


def task_of(name: str) -> MathTask:
    return {task.name: task for task in (aime24(), aime25(), aime26(), Math500(), Gsm8k())}[name]


SIZES = {"aime24": 30, "aime25": 30, "math500": 500, "gsm8k": 1319}


@needs(*SIZES)
@pytest.mark.parametrize("name", SIZES)
async def test_oracle_scores_all_and_null_nothing(name: str, tmp_path: Path) -> None:
    oracle = (await all_of(task_of(name), "oracle", tmp_path / "o")).tasks[0].score
    null = (await all_of(task_of(name), "null", tmp_path / "n")).tasks[0].score
    assert oracle is not None and null is not None
    assert (oracle.all.mean, oracle.verdicts, oracle.faults) == (1.0, {"correct": SIZES[name]}, {})
    assert (null.all.mean, null.verdicts) == (0.0, {"no_answer": SIZES[name]})


@needs("aime24", "aime25")
async def test_a_mixture_scores_exactly_what_it_knows(tmp_path: Path) -> None:
    """Four samples a question; each is known or not by a hash of question and sample."""

    def knows(question: str, sample: int) -> bool:
        return int(content_id(f"{question}/{sample}")[:4], 16) % 3 == 0

    policy = ScriptedPolicy.oracle_if(lambda i: knows(i.program_id, i.seed), max_rows=32)
    report = await ask(chat_of(policy), [aime24(), aime25()], DATA, tmp_path, samples=4)
    for task, row in zip((aime24(), aime25()), report.tasks, strict=True):
        known = [knows(q.id, k) for q in task.load(DATA).questions for k in range(4)]
        assert row.score is not None
        assert row.score.all.mean == pytest.approx(sum(known) / 120, abs=1e-12)
        assert 0 < sum(known) < 120


@needs("math500")
async def test_the_worked_solutions_of_math500_are_all_correct() -> None:
    """Upstream's own prose, with its boxes in `\\text`, `\\dfrac` and the like."""
    task = Math500()
    rows = read_rows(DATA / "math500/test.jsonl")
    for question, row in zip(task.load(DATA).questions, rows, strict=True):
        assert (await task.grade(row["solution"], question, SETTING)).verdict is GradeVerdict.CORRECT, row


@needs("gsm8k")
async def test_the_worked_solutions_of_gsm8k_are_all_correct_without_a_box() -> None:
    task = Gsm8k()
    rows = read_rows(DATA / "gsm8k/test.jsonl")
    for question, row in zip(task.load(DATA).questions, rows, strict=True):
        assert (await task.grade(row["answer"], question, SETTING)).verdict is GradeVerdict.CORRECT, row


@needs("aime24")
def test_zero_padded_references_lose_their_zeros() -> None:
    references = [question.reference for question in aime24().load(DATA).questions]
    assert "25" in references and not any(text.startswith("0") for text in references)


@needs("math500")
def test_questions_keep_the_names_of_the_source() -> None:
    assert Math500().load(DATA).questions[0].name == "test/precalculus/807.json"


def aime_folder(root: Path, answer: str = "25") -> Path:
    """Thirty rows of our own in AIME's format."""
    path = root / "aime26" / "test.jsonl"
    path.parent.mkdir(parents=True)
    rows = [{"problem": f"What is {answer} + {i} - {i}?", "answer": answer} for i in range(30)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


async def test_a_local_folder_in_aime_format_runs(tmp_path: Path) -> None:
    root = aime_folder(tmp_path / "data")
    report = await ask(
        chat_of(ScriptedPolicy("oracle", max_rows=16)), [aime26()], root, tmp_path / "o", samples=2
    )
    assert report.result.score[0] == 1.0
    assert report.tasks[0].score is not None and report.tasks[0].score.all.samples == 60


def test_aime_refuses_an_answer_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not have the form of aime26.*between 0 and 999"):
        aime26().load(aime_folder(tmp_path, "1000"))


def test_data_that_is_absent_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataAbsent) as caught:
        aime26().load(tmp_path)
    assert "spade data get aime26" in caught.value.command


def test_the_suite_names_its_tasks_and_samples() -> None:
    suite = make_suite()
    assert [task.name for task in suite.tasks] == ["aime24", "aime25", "aime26", "math500", "gsm8k"]
    assert [task.n for task in suite.tasks] == [32, 32, 32, 1, 1]
    assert {task.grader for task in suite.tasks} == {grader.grader_version()}


# --- single answers ------------------------------------------------------------------------------------


def question(reference: str) -> Question:
    return Question("math500", "?", reference)


async def grade(answer: str, reference: str) -> Grade:
    return await Math500().grade(answer, question(reference), SETTING)


async def test_of_two_boxes_the_last_counts() -> None:
    assert (await grade("\\boxed{3} ... so \\boxed{4}", "4")).verdict is GradeVerdict.CORRECT
    assert (await grade("\\boxed{4} ... so \\boxed{3}", "4")).verdict is GradeVerdict.WRONG
    assert (await grade("\\boxed{3}, \\boxed{4}", "3,4")).verdict is GradeVerdict.WRONG


async def test_a_dump_of_values_earns_nothing() -> None:
    dump = ", ".join(str(i) for i in range(300))
    assert (await grade(f"\\boxed{{{dump}}}", "204")).verdict is GradeVerdict.WRONG


async def test_only_the_box_counts_where_no_phrase_is_asked_for() -> None:
    assert (await grade("The answer is 4.", "4")).verdict is GradeVerdict.NO_ANSWER


async def test_an_answer_that_hangs_or_breaks_the_grader_is_wrong_with_its_own_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grader, "SECONDS", 0.5)
    hung = await judge(Math500(), "\\boxed{9^{9^{9^{9}}}}", False, question("2k"), SETTING)
    broken = await judge(Math500(), "\\boxed{\\frac{}{2}", False, question("2k"), SETTING)
    unread = await judge(Math500(), "\\boxed{\\frac{}{}}", False, question("2k"), SETTING)
    assert isinstance(hung, Grade) and isinstance(broken, Grade) and isinstance(unread, Grade)
    assert (hung.verdict, hung.value) == (GradeVerdict.GRADER_TIMEOUT, 0.0)
    assert (broken.verdict, broken.value) == (GradeVerdict.NO_ANSWER, 0.0)  # the box never closes
    assert (unread.verdict, unread.value) == (GradeVerdict.UNGRADABLE, 0.0)


@pytest.mark.parametrize("answer", ["\\boxed{5k}", "\\boxed{\\frac{}{}}"])
async def test_a_reference_that_cannot_be_read_is_a_fault_and_no_score(answer: str) -> None:
    fault = await judge(Math500(), answer, False, question("\\frac{}{}"), SETTING)
    assert isinstance(fault, Fault) and fault.kind is FaultKind.GRADER


async def test_a_killed_grader_is_a_fault_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def ask(self, request: object, seconds: float) -> None:
            raise grader.Lost("ended by signal 9 from outside")

    monkeypatch.setattr(grader, "pool", Gone)
    fault = await judge(Math500(), "\\boxed{k + k}", False, question("2k"), SETTING)
    assert isinstance(fault, Fault) and fault.kind is FaultKind.INFRASTRUCTURE
