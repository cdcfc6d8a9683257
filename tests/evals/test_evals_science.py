"""GPQA, MMLU-Pro, MMLU-STEM, SciBench, TheoremQA: real files where they are here, else tables of our own."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from qa_data import DATA, all_of, needs
from question_fakes import ask, chat_of

from spade.serving.scripted import ScriptedPolicy
from spade.types import content_id
from spade_evals.data import DataAbsent, read_rows
from spade_evals.question import GradeVerdict, Question, Task
from spade_evals.suites.science import make_suite
from spade_evals.tasks.science import Gpqa, MmluPro, MmluProSample, MmluStem
from spade_evals.tasks.scinumbers import SciBench, TheoremQa, options_in, plain_unit, same_numbers

SETTING: Any = None  # these graders use nothing of it
TASKS: dict[str, tuple[type[Task], int]] = {
    "mmlu_stem": (MmluStem, 3018),
    "mmlu_pro_sample": (MmluProSample, 300),
    "scibench": (SciBench, 580),
    "theoremqa": (TheoremQa, 747),
}
CORRECT, WRONG, NO_ANSWER = GradeVerdict.CORRECT, GradeVerdict.WRONG, GradeVerdict.NO_ANSWER


@needs(*TASKS)
@pytest.mark.parametrize("name", TASKS)
async def test_oracle_scores_all_and_null_nothing(name: str, tmp_path: Path) -> None:
    kind, size = TASKS[name]
    oracle = (await all_of(kind(), "oracle", tmp_path / "o")).tasks[0].score
    null = (await all_of(kind(), "null", tmp_path / "n")).tasks[0].score
    assert oracle is not None and null is not None
    assert (oracle.all.mean, oracle.verdicts, oracle.faults) == (1.0, {"correct": size}, {})
    assert (null.all.mean, null.verdicts) == (0.0, {"no_answer": size})


@needs("mmlu_pro_sample", "theoremqa")
async def test_a_mixture_scores_exactly_what_it_knows(tmp_path: Path) -> None:
    def knows(question: str, sample: int) -> bool:
        return int(content_id(f"{question}/{sample}")[:4], 16) % 4 != 0

    tasks: list[Task] = [MmluProSample(), TheoremQa()]
    policy = ScriptedPolicy.oracle_if(lambda i: knows(i.program_id, i.seed), max_rows=64)
    report = await ask(chat_of(policy), tasks, DATA, tmp_path, samples=2)
    for task, row in zip(tasks, report.tasks, strict=True):
        known = [knows(q.id, k) for q in task.load(DATA).questions for k in range(2)]
        assert row.score is not None
        assert row.score.all.mean == pytest.approx(sum(known) / len(known), abs=1e-12)


@needs(*TASKS)
@pytest.mark.parametrize("name", TASKS)
def test_every_known_defect_names_a_question(name: str) -> None:
    task = TASKS[name][0]()
    names = {question.name for question in task.load(DATA).questions}
    assert set(task.defects) <= names
    assert all(reason for reason in task.defects.values())


@needs("mmlu_stem")
async def test_any_fixed_letter_scores_its_share_of_mmlu() -> None:
    task = MmluStem()
    questions = task.load(DATA).questions
    right = [await task.grade("Answer: B", question, SETTING) for question in questions]
    assert sum(grade.value for grade in right) == sum(question.reference == "B" for question in questions)


@needs("mmlu_stem")
async def test_the_full_text_of_the_right_option_is_right() -> None:
    task = MmluStem()
    wrong = []
    for question in task.load(DATA).questions:
        text = question.meta["options"]["ABCD".index(question.reference)]
        if (await task.grade(f"\\boxed{{{text}}}", question, SETTING)).verdict is not CORRECT:
            wrong.append((question.name, text))
    assert wrong == EXCEPTIONS


EXCEPTIONS = [
    ("mmlu_stem/1271", "**"),  # marks alone are no text
    ("mmlu_stem/1299", "c"),  # the text of D; a letter is a letter
    ("mmlu_stem/2148", "B"),  # the text of D
    ("mmlu_stem/2554", "687"),  # the text of A and of B
]


@needs("scibench")
async def test_both_fields_of_a_scibench_reference_agree_but_for_the_listed_ones() -> None:
    """`answer_latex` is what the book prints; `answer_number` is the reference."""
    task = SciBench()
    rows = [row for file in task.data.files for row in read_rows(DATA / file.path)]
    wrong = set()
    for question, row in zip(task.load(DATA).questions, rows, strict=True):
        power = plain_unit(row["unit"])[1]
        written = row["answer_latex"].strip().strip("$") + (f" \\times 10^{{{power}}}" if power else "")
        if (await task.grade(f"\\boxed{{{written}}}", question, SETTING)).verdict is not CORRECT:
            wrong.add(question.name)
    assert wrong == {*task.defects, *SOUND_NUMBERS}


SOUND_NUMBERS = {
    "quan/14.29": "a form feed stands for the head of `\\frac`",
    "chemmc/1-37": "the printed 1.69 belongs to another question; 4.59e17 Hz is right",
    "class/9.22 B.": "the printed angles are those of part A",
    "class/13.6": "the printed answer also holds the third harmonic, which is not asked for",
    "class/14.32": "the printed answer also holds the proton, which is not asked for",
}
"""Questions whose printed answer differs while the number, which is the reference, is right."""


@needs("theoremqa")
def test_theoremqa_leaves_out_the_questions_with_pictures() -> None:
    rows = read_rows(DATA / "theoremqa/test.json")
    with_picture = {row["id"] for row in rows if row["Picture"]}
    names = {question.name for question in TheoremQa().load(DATA).questions}
    assert len(with_picture) == 53 and not names & with_picture


@needs("mmlu_pro_sample")
def test_options_leave_the_question_text_of_the_sample() -> None:
    questions = MmluProSample().load(DATA).questions
    assert not any("Options are" in str(question.prompt) for question in questions)
    assert max(len(question.meta["options"]) for question in questions) == 10
    assert questions[0].fields["options"].startswith("A. Amino acids with a preferred orientation")


# --- data that only the hub has ------------------------------------------------------------------------


def gpqa_folder(root: Path, count: int = 198) -> Path:
    """Questions of our own in GPQA's format."""
    path = root / "gpqa" / "gpqa_diamond.csv"
    path.parent.mkdir(parents=True)
    columns = ["Record ID", "Question", "Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3))]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for i in range(count):
            table.writerow(
                [
                    f"rec{i}",
                    f"Which number is {i},\nwritten out?",
                    f"{i} \n",
                    f"{i + 1}",
                    f"{i + 2}",
                    f"{i + 3}",
                ]
            )
    return root


async def test_gpqa_options_have_an_order_of_their_own_and_the_mapping_is_kept(tmp_path: Path) -> None:
    root = gpqa_folder(tmp_path / "data")
    questions = Gpqa().load(root).questions
    for i, question in enumerate(questions):
        order = question.meta["order"]
        assert [question.meta["options"][order.index(k)] for k in range(4)] == [str(i + k) for k in range(4)]
        assert question.reference == "ABCD"[order.index(0)]
    letters = [question.reference for question in questions]
    assert all(25 < letters.count(letter) < 75 for letter in "ABCD")
    report = await ask(
        chat_of(ScriptedPolicy("oracle", max_rows=64)), [Gpqa()], root, tmp_path / "o", samples=1
    )
    assert report.result.score[0] == 1.0


def test_gpqa_order_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    many = Gpqa().load(gpqa_folder(tmp_path / "a")).questions
    few = Gpqa().load(gpqa_folder(tmp_path / "b", 7), allow_changed=True).questions
    assert [question.id for question in few] == [question.id for question in many[:7]]


def test_absent_gpqa_says_how_to_get_access(tmp_path: Path) -> None:
    with pytest.raises(DataAbsent) as caught:
        Gpqa().load(tmp_path)
    assert "accept the terms at https://huggingface.co/datasets/Idavidrein/gpqa" in caught.value.reason
    assert "spade data get gpqa_diamond" in caught.value.command


async def test_mmlu_pro_reads_the_hub_file_with_ten_options(tmp_path: Path) -> None:
    from pyarrow import Table, parquet

    rows = [
        {
            "question_id": 70 + i,
            "question": f"Which is {i}?",
            "options": [str(k) for k in range(10)],
            "answer": "ABCDEFGHIJ"[i],
        }
        for i in range(10)
    ]
    path = tmp_path / "mmlu_pro" / "test.parquet"
    path.parent.mkdir()
    parquet.write_table(Table.from_pylist(rows), path)
    questions = MmluPro().load(tmp_path, allow_changed=True).questions
    assert [question.reference for question in questions] == list("ABCDEFGHIJ")
    assert questions[3].name == "mmlu_pro/73" and questions[3].fields["options"].endswith("J. 9")
    assert (await MmluPro().grade("\\boxed{\\text{J}}", questions[9], SETTING)).verdict is CORRECT
    assert (await MmluPro().grade("\\boxed{I, J}", questions[9], SETTING)).verdict is WRONG


def test_the_suite_names_its_tasks() -> None:
    names = ["gpqa_diamond", "mmlu_pro", "mmlu_stem", "scibench", "theoremqa"]
    assert [task.name for task in make_suite().tasks] == names


# --- single answers ------------------------------------------------------------------------------------


def test_a_power_of_ten_leaves_the_unit() -> None:
    assert plain_unit("$10^{-19} \\mathrm{~J}$") == ("$\\mathrm{~J}$", -19)
    assert plain_unit(" $\\mathrm{10^7} \\mathrm{~km}$") == ("$\\mathrm{~km}$", 7)
    assert plain_unit("10^{-5} \\mathrm{~m}") == ("$\\mathrm{~m}$", -5)
    assert plain_unit("$10^6$ m") == ("m", 6)
    assert plain_unit("$10^{42}$") == ("", 42)
    assert plain_unit(" $") == ("$", 0)
    assert plain_unit("$\\$$") == ("$\\$$", 0)
    assert plain_unit(" ") == ("", 0)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("\\boxed{3.52 \\times 10^{-19} \\text{ J}}", CORRECT),
        ("\\boxed{3.5e-19}", CORRECT),
        ("\\boxed{\\frac{352}{10^{21}}}", CORRECT),
        ("\\boxed{3.52}", WRONG),
        ("\\boxed{3.8 \\times 10^{-19}}", WRONG),
        ("\\boxed{3.52e-19, 4e-19}", WRONG),
        ("3.52e-19", NO_ANSWER),
    ],
)
async def test_scibench_answers(answer: str, verdict: GradeVerdict) -> None:
    question = Question("scibench", "?", 3.52e-19, meta={"unit": "J"})
    assert (await SciBench().grade(answer, question, SETTING)).verdict is verdict


async def test_a_reference_of_zero_wants_zero() -> None:
    question = Question("scibench", "?", 0.0, meta={"unit": ""})
    assert (await SciBench().grade("\\boxed{0.0}", question, SETTING)).verdict is CORRECT
    assert (await SciBench().grade("\\boxed{0.01}", question, SETTING)).verdict is WRONG


@pytest.mark.parametrize(
    ("kind", "reference", "right", "wrong"),
    [
        ("bool", True, ["True", "\\text{True}", "yes"], ["False", "1", "True or False"]),
        ("bool", False, ["False", "no."], ["True", "0", "not true"]),
        ("integer", 11760, ["11760", "11,760", "11760.2"], ["11761", "11760, 5"]),
        ("integer", 50, ["50", "50\\%"], ["0.5", "-50"]),
        ("float", 0.333, ["0.33", "\\frac{1}{3}", "33.3\\%"], ["0.3", "33.3"]),
        ("float", -6e25, ["-6 \\times 10^{25}"], ["6 \\times 10^{25}", "-6"]),
        ("list of integer", [4, 1, 2, 0], ["[4, 1, 2, 0]", "(4,1,2,0)", "4, 1, 2, 0"], ["[4, 1, 2]", "4120"]),
        ("list of integer", [3], ["[3]", "3"], ["[3, 3]"]),
        ("list of float", [0.6667, -0.6667], ["[2/3, -2/3]", "\\pm \\frac{2}{3}"], ["[0.6667, 0.6667]"]),
        ("list of integer", [8, -14], ["\\begin{pmatrix} 8 \\\\ -14 \\end{pmatrix}"], ["8"]),
    ],
)
async def test_theoremqa_answers(kind: str, reference: Any, right: list[str], wrong: list[str]) -> None:
    question = Question("theoremqa", "?", reference, meta={"kind": kind})
    for answer in right:
        assert (await TheoremQa().grade(f"\\boxed{{{answer}}}", question, SETTING)).verdict is CORRECT, answer
    for answer in wrong:
        assert (await TheoremQa().grade(f"\\boxed{{{answer}}}", question, SETTING)).verdict is WRONG, answer


async def test_theoremqa_options() -> None:
    prompt = "Which holds? (a) $f(x)$ grows; (b) it falls; (c) none. Which option is correct?"
    question = Question("theoremqa", prompt, "(c)", meta={"kind": "option"})
    assert len(options_in(prompt)) == 3
    for answer, verdict in (
        ("\\boxed{(c)}", CORRECT),
        ("The answer is (c).", CORRECT),
        ("\\boxed{C}", CORRECT),
        ("\\boxed{(b)}", WRONG),
        ("\\boxed{b, c}", WRONG),
        ("\\boxed{(d)}", WRONG),
        ("I do not know", NO_ANSWER),
    ):
        assert (await TheoremQa().grade(answer, question, SETTING)).verdict is verdict, answer


def test_a_thousands_comma_separates_where_a_list_is_asked() -> None:
    assert same_numbers([100, 200], "100,200")
    assert same_numbers(100200, "100,200")


def test_questions_are_plain_json() -> None:
    question = MmluStem().read([{"question": "?", "type": "x", "choices": ["a", "b"], "answer": 1}])[0]
    assert json.loads(json.dumps(question.meta)) == {"options": ["a", "b"], "order": [0, 1]}
