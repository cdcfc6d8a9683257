"""ACEBench's categories of single answers: references, both ways to compare calls, sentences, groups."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from ace_data import rows
from hypothesis import example, given, settings
from hypothesis import strategies as st
from qa_data import DATA, needs
from question_fakes import chat_of

from spade.serving.scripted import ScriptedPolicy
from spade_evals.data import DataFile, Source
from spade_evals.grade.calls import Call
from spade_evals.question import QuestionSuite, Task
from spade_evals.question_run import Options, ask_suite
from spade_evals.runner import Subject
from spade_evals.suites.acebench.matching import fits, plain_text, same
from spade_evals.suites.acebench.single import (
    GroupTask,
    SingleTask,
    SpecialTask,
    answers_in,
    as_calls,
    first_block,
    verdict_of,
)
from spade_evals.suites.acebench.sources import FILES
from spade_evals.suites.acebench.suite import make_full
from spade_evals.task_report import SuiteReport
from spade_evals.users import OpenUser, scripted_user

FUNCTION = {
    "name": "book",
    "description": "Book a table.",
    "parameters": {
        "type": "object",
        "required": ["place", "guests"],
        "properties": {
            "place": {"type": "string"},
            "guests": {"type": "integer"},
            "outside": {"type": "boolean"},
            "dishes": {"type": "array", "items": {"type": "string"}},
            "when": {"type": "object", "properties": {"day": {"type": "string"}}},
            "people": {"type": "array", "items": {"type": "object"}},
        },
    },
}
WANTED = {"book": {"place": "Joe's Inn", "guests": 4, "outside": True, "dishes": ["soup", "fish"]}}


def judged(arguments: str, wanted: dict[str, Any] = WANTED, strict: bool = False) -> bool:
    """Whether one call fits."""
    meta = {"functions": [FUNCTION], "answers": [wanted]}
    return verdict_of(f"[book({arguments})]", meta, strict).verdict == "correct"


@pytest.mark.parametrize(
    ("arguments", "official", "strict"),
    [
        ("place='Joe\\'s Inn', guests=4, outside=True, dishes=['soup', 'fish']", True, True),
        ("place='at joes-inn'.upper(), guests=4", False, False),  # not a literal
        ("place='at Joe\\'s  inn, please', guests=4, outside=True, dishes=['Soup', 'fish']", True, True),
        ("place='Joe', guests=4, outside=True, dishes=['soup', 'fish']", False, False),
        ("place='Joe\\'s Inn', guests=9, outside=True, dishes=['soup', 'fish']", True, False),
        ("place='Joe\\'s Inn', guests=4, outside=False, dishes=['soup', 'fish']", True, False),
        ("place='Joe\\'s Inn', guests=4", True, False),  # annotated but not required
        ("place='Joe\\'s Inn', guests='4', outside=True, dishes=['soup', 'fish']", False, False),
        ("place='Joe\\'s Inn', guests=4, outside=true, dishes=['soup', 'fish']", True, True),
        ("place='Joe\\'s Inn', guests=4, outside=True, dishes=['fish', 'soup']", False, False),
        ("place='Joe\\'s Inn', guests=4, outside=True, dishes=['soup', 'fish'], extra=1", False, False),
        ("guests=4", False, False),
        ("", False, False),
    ],
)
def test_arguments_under_both_variants(arguments: str, official: bool, strict: bool) -> None:
    assert judged(arguments) is official
    assert judged(arguments, strict=True) is strict


def test_values_whose_annotation_has_another_type_are_not_compared_officially() -> None:
    wanted = {"book": {"place": "x", "guests": 2.5}}
    assert judged("place='x', guests=7.5", wanted)
    assert not judged("place='x', guests=7.5", wanted, strict=True)
    nothing = {"book": {"place": "x", "guests": 1, "dishes": []}}
    assert not judged("place='x', guests=1, dishes=[]", nothing)  # an empty list never fits
    assert judged("place='x', guests=1, dishes=[]", nothing, strict=True)


def test_mappings_and_lists_of_mappings() -> None:
    wanted = {"book": {"place": "x", "guests": 1, "when": {"day": "2024-01-02"}, "people": [{"name": "Ann"}]}}
    right = "place='x', guests=1, when={'day': 'on 2024 01 02'}, people=[{'name': 'Ann'}]"
    for strict in (False, True):
        assert judged(right, wanted, strict)
        assert not judged(right.replace("02", "03"), wanted, strict)
        assert not judged(right.replace("'day'", "'date'"), wanted, strict)
        assert not judged(
            right.replace("[{'name': 'Ann'}]", "[{'name': 'Ann'}, {'name': 'Bob'}]"), wanted, strict
        )


def test_repeated_calls_are_counted_and_strict_pairs_them() -> None:
    wanted = {"book_1": {"place": "a", "guests": 1}, "book_2": {"place": "b", "guests": 2}}

    def fit(calls: list[Call], strict: bool) -> bool:
        return fits(calls, wanted, [FUNCTION], strict) == ""

    one, two = (
        Call("book", (), kwargs) for kwargs in ({"place": "a", "guests": 1}, {"place": "b", "guests": 2})
    )
    both = Call("book", (), {"place": "a and b", "guests": 1})
    for strict in (False, True):
        assert fit([two, one], strict)
        assert not fit([one], strict)
        assert not fit([one, two, two], strict)
        assert not fit([one, Call("other", (), {})], strict)
    assert fit([both, both], strict=False)  # one call may stand for several
    assert not fit([both, both], strict=True)


@given(st.text(max_size=30))
@example("FALSE")
@settings(max_examples=60, deadline=None)
def test_comparison_ignores_case_blanks_and_punctuation(text: str) -> None:
    assert same(text, text.upper().lower()) or text.lower() != text.upper().lower()  # as in ß
    assert plain_text(plain_text(text)) == plain_text(text)
    assert same(text, f"{text} and more")
    assert not same(f"{text}z", text) or "z" in plain_text(text)


def test_answers_are_read_from_the_first_brackets() -> None:
    assert first_block("Sure: [a(x=[1])] or [b()]") == "[a(x=[1])]"
    assert first_block("] no [brackets") == ""
    meta = {"functions": [FUNCTION], "answers": [WANTED]}
    assert verdict_of("book(place='x')", meta, True).verdict == "no_answer"
    refused = verdict_of("[book(place=__import__('os').getcwd())]", meta, False)
    assert (refused.verdict, refused.value) == ("refused", 0.0)


@pytest.mark.parametrize(
    ("category", "reference", "right", "wrong"),
    [
        (
            "special_incomplete",
            {"book": ["place"]},
            '["Missing necessary parameters (place) for the api (book)"]',
            '["Missing necessary parameters (guests) for the api (book)"]',
        ),
        (
            "special_error_param",
            {"place": ["45.ABC"]},
            '["There is incorrect value (45.ABC) for the parameters (place) in the conversation history."]',
            '["There is incorrect value (45) for the parameters (place) in the conversation history."]',
        ),
        (
            "special_irrelevant",
            "Due to the limitations of the function, I cannot solve this problem.",
            '["Due to the limitations of the function, I cannot solve this problem."]',
            "[book(place='x', guests=1)]",
        ),
    ],
)
def test_sentences_for_requests_that_cannot_be_met(
    category: str, reference: Any, right: str, wrong: str
) -> None:
    task = SpecialTask(category)
    row = {"id": "x", "question": "q", "function": [FUNCTION], "time": ""}
    question = task._question(row, {"ground_truth": reference})

    def graded(answer: str) -> Any:
        return asyncio.run(task.grade(answer, question, None))  # type: ignore[arg-type]

    assert graded(right).value == graded(task.solution(question)).value == 1.0
    assert graded(wrong).value == 0.0
    assert graded("").verdict == "no_answer"


def hold(
    out: Path, tasks: list[Task], root: Path, variant: str = "official", agent: Any = "oracle"
) -> SuiteReport:
    path = out.parent / f"{variant}.yaml"
    path.write_text(json.dumps({"defaults": {"temperature": 0.0, "max_tokens": 1000, "variant": variant}}))
    policy = ScriptedPolicy(agent, max_rows=64) if isinstance(agent, str) else agent
    suite = QuestionSuite("ace", tasks)
    who, options = Subject("ckpt", "abc"), Options(data_root=root, preset=str(path))
    user = OpenUser(scripted_user(), {"ref": "scripted:user"})
    return asyncio.run(
        ask_suite(chat_of(policy), suite, None, out, who, options=options, quiet=True, user=user)
    )


def write_group(root: Path) -> Source:
    """Two conversations of two requests each."""
    items = [
        {
            "id": f"normal_multi_turn_user_switch_{g}_{n}",
            "question": f"user: table {n}",
            "function": [FUNCTION],
            "time": "",
        }
        for g in range(2)
        for n in range(2)
    ]
    answers = [
        {"id": item["id"], "ground_truth": {"book": {"place": item["question"][-1], "guests": 1}}}
        for item in items
    ]
    files = []
    for path, lines in (("made/items.jsonl", items), ("made/possible_answer/items.jsonl", answers)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("".join(json.dumps(line) + "\n" for line in lines))
        files.append(DataFile(path))
    return Source(tuple(files), "made in the test", "1", "MIT", 2)


def test_a_group_is_solved_when_all_its_answers_are(tmp_path: Path) -> None:
    task = GroupTask("normal_multi_turn_user_switch", write_group(tmp_path))
    assert hold(tmp_path / "oracle", [task], tmp_path).result.score[0] == 1.0
    half = ScriptedPolicy.from_function(
        lambda prompt: "[book(place='0', guests=1)]", max_rows=2
    )  # right in the first request of each
    score = hold(tmp_path / "half", [task], tmp_path, agent=half).tasks[0].score
    assert score is not None
    assert (score.all.mean, score.parts["process"].mean) == (0.0, 0.5)


@needs("acebench_en")
@pytest.mark.parametrize(("variant", "refused"), [("official", 27), ("strict", 0)])
def test_references_pass_but_for_those_that_the_published_rules_refuse(
    variant: str, refused: int, tmp_path: Path
) -> None:
    """The published reader removes blanks inside lists of the two categories of groups (25); one list is
    empty, the elements of one are not described. Strict rules take every reference."""
    tasks = [task for task in make_full().tasks if not hasattr(task, "loop")]
    report = hold(tmp_path / "out", tasks, DATA, variant)
    scores = [task.score for task in report.tasks]
    assert len(scores) == 15
    assert all(score is not None and score.sound.mean == 1.0 for score in scores)
    assert sum(s.all.items - s.sound.items for s in scores if s is not None) == refused
    other = "official" if variant == "strict" else "strict"
    assert all(score is not None and other in score.parts for score in scores)


@needs("acebench_en")
def test_the_suite_has_all_categories_in_three_parts() -> None:
    suite = make_full()
    assert len(suite.tasks) == len(FILES) == 17
    parts = [task.part for task in suite.tasks if isinstance(task, SingleTask | GroupTask)]
    assert [part.split("/")[0] for part in parts] == ["normal"] * 12 + ["special"] * 3
    for category in FILES:
        row = rows(f"possible_answer/data_{category}.json")[0]
        assert row["ground_truth"] or category
    sample = rows("possible_answer/data_normal_atom_bool.json")[0]
    assert as_calls(answers_in(sample)[0]).startswith("[")
