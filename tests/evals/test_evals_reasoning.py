"""Reasoning-Gym: frozen items, the datasets' own scorers in a process that can be killed, new items."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rg_solvers import solve

from spade.config import PlayConfig
from spade.errors import FaultKind, InputError
from spade.serving.launch import ChatPolicy
from spade.serving.scripted import ScriptedPolicy
from spade.types import Fault
from spade_evals.data import DataAbsent, DataFile, Source
from spade_evals.grade.reasoning import Scorer, ScorerError, read_answer
from spade_evals.grade.reasoning_host import check_expression, literal
from spade_evals.question import (
    Grade,
    GraderLost,
    GradeVerdict,
    Question,
    QuestionSuite,
    judge,
)
from spade_evals.question_run import Options, ask_suite
from spade_evals.runner import Subject
from spade_evals.suite import Setting
from spade_evals.suites.reasoning import make_suite
from spade_evals.tasks.reasoning import (
    DEFECTS,
    GROUPS,
    ITEMS,
    NO_REFERENCE,
    ReasoningGroup,
    configurations,
    generate_items,
)

V = GradeVerdict
DATA = Path(os.environ.get("SPADE_SHARED", "SPADE_SHARED-is-not-set")) / "data"
needs_data = pytest.mark.skipif(
    not (DATA / ITEMS).is_file(), reason=f"NOT RUN: no {DATA / ITEMS}; set SPADE_SHARED"
)
SETTING = Setting(SimpleNamespace(), SimpleNamespace(), PlayConfig(), 0)  # type: ignore[arg-type]

DEFAULT_SCORER = [
    name
    for line in (
        "acre aiw arc_1d base_conversion bf binary_alternation caesar_cipher count_bits count_primes gcd",
        "course_schedule isomorphic_strings largest_island lcm leg_counting letter_counting list_functions",
        "mahjong_puzzle maze modulo_grid number_filtering number_sequence ransom_note rotate_matrix",
        "rotten_oranges simple_equations simple_geometry string_manipulation string_splitting",
        "string_synthesis word_sequence_reversal",
    )
    for name in line.split()
]
"""Tasks scored by the library's default: the reference's share of the answer's length, where it is inside."""


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    opened = Scorer(cpu_seconds=5.0)
    yield opened
    opened.close()


def groups(scorer: Scorer | None = None) -> list[ReasoningGroup]:
    return [ReasoningGroup(group, scorer=scorer) for group in GROUPS]


# --- what is read from an answer -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("<answer>42</answer>", "42"),
        ("So <answer>1</answer>, no: <answer> 2\n3 </answer> it is.", "2\n3"),
        ("I put it in <answer> tags: <answer>7</answer>", "7"),
        ("<think><answer>1</answer></think> <answer>2</answer>", "2"),
        ("<think><answer>1</answer></think> done", None),
        ("\\boxed{[[1, 2], {3}]}", "[[1, 2], {3}]"),
        ("\\boxed{1} and <answer>2</answer>", "2"),
        ("<answer>12", None),
        ("<answer></answer>", None),
        ("\\boxed{}", None),
        ("42", None),
        ("", None),
    ],
)
def test_the_last_complete_answer_outside_the_thought_counts(answer: str, text: str | None) -> None:
    assert read_answer(answer) == text


# --- text is never run ---------------------------------------------------------------------------------


def test_literals_and_arithmetic_are_read_and_nothing_else_is() -> None:
    assert literal("[1, 2.5, 'a', (0x1f & 3) << 2, -1]") == [1, 2.5, "a", 12, -1]
    for text in (
        "print(1)",
        "x",
        "[i for i in (1,)]",
        "().__class__",
        "lambda: 0",
        "f'{1}'",
        "1 if 1 else 2",
    ):
        with pytest.raises(ValueError, match="not evaluated"):
            literal(text)


KNOWN = frozenset({"eval", "open", "chr", "integrate", "expand", "sin", "or", "lambda", "S", "sympify"})


@pytest.mark.parametrize(
    "text", ["3*x**2 - sin(x)/2 + C", "(1+2)*3!", "0.5*y^2", "1e5*x", "S*2", "log(x, 2)"]
)
def test_plain_mathematics_passes(text: str) -> None:
    check_expression(text, {"S": 1}, KNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "eval(chr(49))", "open('x')", "x.__class__", "().a", "[1]", "x[0]", "integrate(x)", "1or eval(x)",
        "'a'", "lambda: 1", "sympify(x)", "x := 1", "{1}", "x; y",
    ],
)  # fmt: skip
def test_programs_in_expressions_do_not(text: str) -> None:
    with pytest.raises(ValueError, match="not evaluated"):
        check_expression(text, {}, KNOWN)


# --- the 100 tasks -------------------------------------------------------------------------------------


def test_there_are_100_tasks_in_four_groups() -> None:
    sizes = {group: len(tasks) for group, tasks in configurations().items()}
    assert sizes == {"math": 31, "algorithmic": 36, "cognition": 24, "logic": 9} and tuple(sizes) == GROUPS
    names = [task for tasks in configurations().values() for task in tasks]
    assert len(set(names)) == 100 and {*NO_REFERENCE, *DEFECTS, *DEFAULT_SCORER} <= set(names)
    assert [task.name for task in make_suite().tasks] == [f"rg_{group}" for group in GROUPS]


@needs_data
def test_the_real_items_are_read_with_the_configurations_of_the_split() -> None:
    for task in groups():
        questions = task.load(DATA).questions
        counts = Counter(q.meta["task"] for q in questions)
        assert set(counts) == set(task.tasks) and set(counts.values()) == {8}
        assert {q.part for q in questions} == {f"{task.name}/{name}" for name in task.tasks}
        assert all(q.meta["config"] == task.tasks[q.meta["task"]] for q in questions)
        without = {q.meta["task"] for q in questions if task.solution(q) is None}
        assert without == set(NO_REFERENCE) & set(task.tasks)
        defective = {q.meta["task"] for q in questions if task.is_defective(q)}
        assert defective == set(DEFECTS) & set(task.tasks)


def test_without_items_the_command_that_makes_them_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataAbsent) as absent:
        ReasoningGroup("logic").load(tmp_path)
    assert absent.value.command == f"spade data generate reasoning-gym-hard --out {tmp_path}"


@needs_data
def test_items_and_their_order_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from pathlib import Path; from spade_evals.tasks.reasoning import ReasoningGroup\n"
        f"print([q.id for q in ReasoningGroup('logic').load(Path({str(DATA)!r})).questions])"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(texts) == 1 and texts.pop().count("rg_logic/") == 72


# --- scoring -------------------------------------------------------------------------------------------


@needs_data
def test_every_reference_or_solver_is_solved_and_empty_or_dumped_answers_are_not(scorer: Scorer) -> None:
    solved, dumped, empty = Counter[str](), Counter[str](), Counter[str]()
    for task in groups():
        for q in task.load(DATA).questions:
            name, index = q.name.split("/")
            args = (name, q.meta["config"], q.meta["entry"])
            answer = q.reference
            if answer is None:
                answer = solve(name, q.meta["entry"]["metadata"])
            solved[name] += scorer.score(*args, answer) >= 1
            if index == "0":
                empty[name] += scorer.score(*args, "") >= 1
                if name in DEFAULT_SCORER:
                    dumped[name] += scorer.score(*args, f"It is {answer}, 17 or nothing.") >= 1
    assert set(solved.values()) == {8} and len(solved) == 100
    assert sum(empty.values()) == 0 and len(empty) == 100
    assert sum(dumped.values()) == 0 and len(dumped) == len(DEFAULT_SCORER)


def item(name: str, **entry: Any) -> Question:
    meta = {"task": name, "config": {}, "entry": {"question": "?", "answer": None, "metadata": {}} | entry}
    return Question("rg_math", "?", meta["entry"]["answer"], name=f"{name}/0", meta=meta)


async def test_partial_credit_is_wrong_and_shown(scorer: Scorer) -> None:
    task = ReasoningGroup("math", scorer=scorer)
    question = item("gcd", answer="12")
    right = await task.grade("<answer>12</answer>", question, SETTING)
    assert (right.verdict, right.value, right.extracted) == (V.CORRECT, 1.0, "12")
    part = await task.grade("<answer>12 or so</answer>", question, SETTING)
    assert (part.verdict, part.value, part.detail) == (V.WRONG, 0.0, "raw score 0.25")
    assert (await task.grade("12", question, SETTING)).verdict is V.NO_ANSWER
    cut = await judge(task, "12", True, question, SETTING)
    assert isinstance(cut, Grade) and cut.verdict is V.TRUNCATED


async def test_hostile_answers_are_not_run(scorer: Scorer, tmp_path: Path) -> None:
    target = tmp_path / "made"
    run = f"__import__('os').mkdir({str(target)!r})"
    spiral = item("spiral_matrix", answer="1 2")
    assert scorer.score("spiral_matrix", {}, spiral.meta["entry"], run) == 0.0
    assert scorer.score("spiral_matrix", {}, spiral.meta["entry"], "[1, 2]") == 0.1  # as the library does
    numbers = {"question": "?", "answer": "", "metadata": {"numbers": [4, 6], "target": 24}}
    assert scorer.score("countdown", {}, numbers, run) < 1
    assert scorer.score("countdown", {}, numbers, "4*6") == 1.0
    assert not target.exists()


async def test_an_answer_that_hangs_the_scorer_is_wrong_and_the_next_one_is_scored() -> None:
    scorer = Scorer(cpu_seconds=1.0)
    task = ReasoningGroup("cognition", scorer=scorer)
    try:
        board = {"board_config": "o" * 12 + "AAoooo" + "o" * 18, "min_moves": 1}
        open_ended = item("rush_hour", metadata=board)
        slow = await judge(task, "<answer>A+99999999999</answer>", False, open_ended, SETTING)
        assert isinstance(slow, Grade) and (slow.verdict, slow.value) == (V.GRADER_TIMEOUT, 0.0)
        fine = await judge(task, "<answer>A+4</answer>", False, open_ended, SETTING)
        assert isinstance(fine, Grade) and fine.verdict is V.CORRECT
        numbers = item("countdown", answer="4*6", metadata={"numbers": [4, 6], "target": 24})
        slow = await judge(task, "<answer>9**9**9**9</answer>", False, numbers, SETTING)
        assert isinstance(slow, Grade) and slow.verdict is V.GRADER_TIMEOUT
        factors = item("prime_factorization", answer="2 × 3", metadata={"number": 6, "factors": [2, 3]})
        raised = await judge(task, "<answer>two × 3</answer>", False, factors, SETTING)
        assert isinstance(raised, Grade) and raised.verdict is V.UNGRADABLE and "ValueError" in raised.detail
    finally:
        scorer.close()


async def test_a_scorer_that_fails_on_the_reference_is_a_fault(scorer: Scorer) -> None:
    task = ReasoningGroup("math", scorer=scorer)
    broken = item("arc_agi", answer="1 2", metadata={"no": "board"})
    outcome = await judge(task, "<answer>1 2</answer>", False, broken, SETTING)
    assert isinstance(outcome, Fault) and outcome.kind is FaultKind.GRADER
    with pytest.raises(ScorerError):
        scorer.score("no_such_task", {}, broken.meta["entry"], "1")


async def test_a_scorer_killed_from_outside_is_nobodys_score() -> None:
    scorer = Scorer(cpu_seconds=60.0)
    task = ReasoningGroup("math", scorer=scorer)
    try:
        question = item("gcd", answer="12")
        assert (await task.grade("<answer>12</answer>", question, SETTING)).verdict is V.CORRECT
        (pid,) = scorer.pool.pids()
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
        numbers = item("countdown", answer="4*6", metadata={"numbers": [4, 6], "target": 24})
        with pytest.raises(GraderLost):
            await task.grade("<answer>factorial(10**9)</answer>", numbers, SETTING)
        many = await asyncio.gather(
            *(task.grade(f"<answer>{n}</answer>", question, SETTING) for n in range(9, 15))
        )
        assert [g.value for g in many] == [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    finally:
        scorer.close()


# --- the suite path ------------------------------------------------------------------------------------


async def asked(policy: ScriptedPolicy, task: ReasoningGroup, out: Path) -> Any:
    suite = QuestionSuite("reasoning", [task])
    chat = ChatPolicy(policy.renderer, policy, "scripted")
    options = Options(data_root=DATA)
    subject = Subject("scripted", "scripted")
    return await ask_suite(chat, suite, None, out, subject, options=options, quiet=True)


@needs_data
async def test_scripted_policies_score_exactly_on_the_real_items(scorer: Scorer, tmp_path: Path) -> None:
    task = ReasoningGroup("logic", scorer=scorer)
    report = await asked(ScriptedPolicy("oracle"), task, tmp_path / "oracle")
    assert report.complete and report.tasks[0].score.all.mean == 8 / 9  # one of nine has no reference
    columns = {name: mean for name, (mean, _, _) in report.result.parts.items()}
    assert columns.pop("rg_logic") == pytest.approx(8 / 9)
    assert columns.pop("rg_logic/propositional_logic") == 0.0 and set(columns.values()) == {1.0}
    assert len(columns) == 8 and report.tasks[0].score.sound.mean == 1.0
    null = await asked(ScriptedPolicy("null"), task, tmp_path / "null")
    assert null.tasks[0].score.all.mean == 0.0 and null.tasks[0].score.no_answer == 1.0
    ids = [q.id for q in task.load(DATA).questions if q.reference is not None][::4]
    mixed = await asked(ScriptedPolicy.oracle_if(lambda i: i.program_id in ids), task, tmp_path / "mixed")
    assert mixed.tasks[0].score.all.mean == len(ids) / 72


# --- making items --------------------------------------------------------------------------------------


def made(folder: Path, group: str, scorer: Scorer) -> list[Question]:
    source = Source((DataFile(ITEMS),), "ours", "", "Apache-2.0", root=folder)
    return ReasoningGroup(group, source, scorer).load().questions


def test_items_are_made_alike_twice_with_version_and_hash(tmp_path: Path, scorer: Scorer) -> None:
    tasks = ("chain_sum", "ransom_note", "rearc", "word_ladder")
    paths = [generate_items(tmp_path / n, per_task=2, seed=7, tasks=tasks) for n in ("a", "b")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    rows = [json.loads(line) for line in paths[0].read_text().splitlines()]
    assert [(r["task"], r["index"]) for r in rows] == [
        (t, i) for t in ("chain_sum", "ransom_note", "word_ladder", "rearc") for i in range(2)
    ]
    assert {r["version"] for r in rows} == {scorer.version()}
    assert "SHA-256" in paths[0].with_name("SOURCE").read_text()
    questions = [q for group in GROUPS for q in made(tmp_path / "a", group, scorer)]
    assert len(questions) == 8
    for q in questions:
        assert scorer.score(q.meta["task"], q.meta["config"], q.meta["entry"], q.reference) == 1.0
    rows[0]["entry"]["answer"] = "0"
    paths[1].write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(InputError, match="changed"):
        made(tmp_path / "b", "math", scorer)


def test_items_of_unknown_tasks_or_a_part_of_them_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no task 'chess'"):
        generate_items(tmp_path, tasks=("chess",))
    row = {
        "task": "acre",
        "index": 0,
        "config": {},
        "entry": {"question": "?", "answer": "yes", "metadata": {}},
    }
    path = tmp_path / ITEMS
    path.parent.mkdir()
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match="no items of aiw"):
        ReasoningGroup("logic").load(tmp_path)
