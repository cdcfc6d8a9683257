"""BFCL single-turn on the real package: the oracle, upstream's verdicts on changed calls, source text."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from bfcl_data import bfcl_root, loaded, package_of, upstream
from question_fakes import chat_of

from spade.serving.scripted import ScriptedPolicy
from spade_evals.dialogue import Transcript
from spade_evals.fetching import fetch
from spade_evals.grade.calls import Call
from spade_evals.question import Question, QuestionSuite
from spade_evals.question_run import Options, SuiteReport, ask_suite
from spade_evals.runner import Subject
from spade_evals.suites.bfcl import prompts
from spade_evals.suites.bfcl.ast_check import Wrong, check_calls
from spade_evals.suites.bfcl.package import MULTI_TURN, SINGLE_TURN
from spade_evals.suites.bfcl.single_turn import DEFECTS, SingleTurn
from spade_evals.suites.bfcl.solutions import java_source, javascript_source
from spade_evals.suites.bfcl.source_text import java_value, javascript_value, read_source_calls

CHECKED = [name for name in SINGLE_TURN if "relevance" not in name]


@pytest.fixture(scope="session")
def root(pytestconfig: pytest.Config) -> Path:
    cache = pytestconfig.cache
    assert cache is not None
    return bfcl_root(cache.mkdir("bfcl"))


async def play(
    kind: str, tasks: list[SingleTurn], root: Path, out: Path, style: str, limit: int | None = None
) -> SuiteReport:
    preset = out / f"{style}.yaml"
    preset.write_text(json.dumps({"name": "test", "defaults": {"style": style}}))
    return await ask_suite(
        chat_of(ScriptedPolicy(kind)), QuestionSuite("bfcl-single", tasks), None, out,
        Subject("ckpt", "abc"), quiet=True, options=Options(preset=str(preset), data_root=root, limit=limit),
    )  # fmt: skip


@pytest.mark.parametrize("style", ["tools", "calls"])
async def test_the_oracle_is_right_but_for_the_listed_defects(style: str, root: Path, tmp_path: Path) -> None:
    tasks = [SingleTurn(name) for name in SINGLE_TURN]
    report = await play("oracle", tasks, root, tmp_path, style, limit=120)
    folder = tmp_path / "bfcl-single-limit120"
    wrong = {
        row["name"]: row["verdict"]
        for task in tasks
        for row in map(json.loads, (folder / f"{task.name}.jsonl").read_text().splitlines())
        if row["verdict"] != "correct"
    }
    assert set(wrong) <= set(DEFECTS)
    assert {report.name: report.state for report in report.tasks} == {task.name: "done" for task in tasks}


async def test_calling_nothing_is_right_only_where_nothing_helps(root: Path, tmp_path: Path) -> None:
    tasks = [SingleTurn(name) for name in SINGLE_TURN]
    report = await play("constant:I cannot help.", tasks, root, tmp_path, "calls", limit=10)
    means = {task.name: task.score.all.mean for task in report.tasks if task.score is not None}
    assert {name for name, mean in means.items() if mean} == {"bfcl_irrelevance", "bfcl_live_irrelevance"}
    assert {mean for mean in means.values()} == {0.0, 1.0}


def test_every_category_has_its_published_size(root: Path) -> None:
    for name, size in SINGLE_TURN.items():
        questions = SingleTurn(name).load(root).questions
        assert len(questions) == size
        assert len({question.id for question in questions}) == size


# --- verdicts ------------------------------------------------------------------------------------------


def changed(rng: random.Random, calls: list[Call]) -> list[Call]:
    """The calls with one random change."""
    calls = [Call(c.name, (), copy.deepcopy(c.kwargs)) for c in calls]
    way, at = rng.random(), rng.randrange(len(calls))
    call = calls[at]
    if way < 0.1:
        calls.pop(at)
    elif way < 0.2:
        calls.append(call)
    elif way < 0.25:
        calls[at] = Call(f"{call.name}x", (), call.kwargs)
    elif way < 0.35:
        rng.shuffle(calls)
    elif call.kwargs:
        name = rng.choice(list(call.kwargs))
        if way < 0.45:
            del call.kwargs[name]
        elif way < 0.5:
            call.kwargs["extra"] = 1
        else:
            call.kwargs[name] = rng.choice(values_like(call.kwargs[name]))
    return calls


def values_like(value: Any) -> list[Any]:
    """Values near and far; JSON, because upstream gets them as JSON."""
    near: list[Any] = [value, str(value), "", 0, 1.0, True, None, [], [value], {}, {"a": 1}]
    if isinstance(value, str):
        near += [value.upper(), f" {value}-", value[:-1], value.replace(" ", "_")]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        near += [value + 1, -value, float(value), int(value)]
    elif isinstance(value, list):
        near += [value[::-1], value[:-1], [str(v) for v in value], [*value, *value]]
    elif isinstance(value, dict):
        near += [dict(list(value.items())[1:]), {**value, "extra": 1}, [value]]
    return near


def verdict(task: SingleTurn, question: Question, calls: list[Call]) -> dict[str, Any]:
    try:
        check_calls(question.meta["functions"], calls, question.reference, task.language, task.category)
    except Wrong as wrong:
        return {"valid": False, "error_type": wrong.code}
    except Exception as error:
        return {"valid": False, "error_type": f"raised {type(error).__name__}"}
    return {"valid": True, "error_type": ""}


def test_verdicts_equal_upstreams_on_right_and_changed_calls(root: Path) -> None:
    rng = random.Random(3)
    cases = []
    for name in CHECKED:
        task = SingleTurn(name)
        for question in task.load(root).questions:
            right = task.right_calls(question)
            for number in range(4):
                calls = right if number == 0 else changed(rng, right)
                calls = changed(rng, calls) if number == 3 and calls else calls
                cases.append((task, question, calls))
    requests = [
        {
            "kind": "ast", "functions": q.meta["functions"], "calls": [{c.name: c.kwargs} for c in calls],
            "truth": q.reference, "language": task.language, "category": task.category,
        }
        for task, q, calls in cases
    ]  # fmt: skip
    theirs = upstream(package_of(root), requests)
    ours = [verdict(*case) for case in cases]
    differ = [
        (case[1].name, [str(c) for c in case[2]], one, other)
        for case, one, other in zip(cases, ours, theirs, strict=True)
        if one["valid"] != other["valid"] or (one != other and not other["error_type"].startswith("raised"))
    ]
    assert differ == []
    assert len(cases) == 4 * sum(SINGLE_TURN[name] for name in CHECKED)
    kinds = {one["error_type"] for one in ours}
    assert {
        "",
        "type_error:simple",
        "type_error:java",
        "value_error:string",
        "value_error:list/tuple",
    } <= kinds
    for case, one in zip(cases[::4], ours[::4], strict=True):
        assert one["valid"] == (case[1].name not in DEFECTS)


def test_what_a_model_is_shown_equals_upstreams(root: Path) -> None:
    """Functions with their language named, the system message, and native tools, on a tenth of all items."""
    docs: list[tuple[str, str, list[dict[str, Any]]]] = []
    for name in SINGLE_TURN:
        task = SingleTurn(name)
        docs += [(name, task.language, q.meta["functions"]) for q in task.load(root).questions[::10]]
    raw = package_of(root).docs()
    for category in MULTI_TURN:
        questions = loaded(category, root)[1][::10]
        classes = [question.meta["item"]["involved_classes"] for question in questions]
        docs += [(f"multi_turn_{category}", "python", [d for c in one for d in raw[c]]) for one in classes]
    requests = [{"kind": "prompt", "functions": given, "category": name} for name, _, given in docs]
    for (name, language, given), theirs in zip(docs, upstream(package_of(root), requests), strict=True):
        ours = prompts.with_language_hint(given, language)
        assert ours == theirs["functions"], name
        assert prompts.system_prompt(ours, "calls") == theirs["system"], name
        for tool in theirs["tools"]:  # what a function returns is described in the data; tools do not have it
            tool["function"].pop("response", None)
        assert prompts.as_tools(ours) == theirs["tools"], name


# --- hostile and odd answers ---------------------------------------------------------------------------


async def test_a_hostile_single_answer_is_refused(root: Path, tmp_path: Path) -> None:
    task = SingleTurn("simple_python")
    await play("constant:[f(a=__import__('os').system('x'))]", [task], root, tmp_path, "calls", limit=2)
    rows = (tmp_path / "bfcl-single-limit2" / f"{task.name}.jsonl").read_text().splitlines()
    assert [json.loads(row)["verdict"] for row in rows] == ["refused"] * 2
    assert Transcript.of(json.loads(rows[0])["text"]).messages[0]["calls"] == []


def test_source_text_calls() -> None:
    text = (
        '[A.b(m=new HashMap<String, Object>() {{ put("a", 1); }}, s="x, y", l=new int[]{1, 2}, c=o.f(1, 2))]'
    )
    (call,) = read_source_calls(text).calls
    assert call == Call(
        "A.b", (),
        {"m": 'new HashMap<String, Object>() {{ put("a", 1); }}', "s": "x, y", "l": "new int[]{1, 2}",
         "c": "o.f(1, 2)"},
    )  # fmt: skip
    assert read_source_calls("[f(a=`x, ${y}`, b=(x) => [x, 1])]").calls == (
        Call("f", (), {"a": "x, ${y}", "b": "(x) => [x, 1]"}),
    )
    assert read_source_calls("[f(a=1, b=(2]").calls == ()


@pytest.mark.parametrize(
    ("value", "kind", "inner"),
    [(5, "integer", None), (-5, "long", None), (2.5, "float", None), (2.5, "double", None),
     (True, "boolean", None), ("x", "String", None), ([1, 2], "Array", "integer"),
     (["a", "b"], "ArrayList", "String"), ([1, 2], "ArrayList", "long"), ([], "ArrayList", "String")],
)  # fmt: skip
def test_java_values_survive_their_source(value: Any, kind: str, inner: str | None) -> None:
    if value == []:
        assert java_value("new ArrayList<>()", kind, inner) == []
    else:
        assert java_value(java_source(value, kind, inner), kind, inner) == value


@pytest.mark.parametrize(
    ("value", "kind", "inner"),
    [(5, "integer", None), (2.5, "float", None), (7, "Bigint", None), (False, "Boolean", None),
     ("x", "String", None), ([1, 2], "array", "integer"), (["a", "b"], "array", "String"),
     ([[1, 2], [3, 4]], "array", None), ({}, "dict", None)],
)  # fmt: skip
def test_javascript_values_survive_their_source(value: Any, kind: str, inner: str | None) -> None:
    assert javascript_value(javascript_source(value, kind), kind, inner) == value


def test_fetching_is_by_suite_or_by_task(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip is asked once for all tasks of a suite; other bytes than the pinned ones are not kept."""
    import subprocess

    from spade.errors import InputError
    from spade_evals import catalogue
    from spade_evals.suites.bfcl.package import WHEEL, source

    asked = []

    def pip(command: list[str], **more: Any) -> Any:
        asked.append(command)
        folder = Path(command[command.index("--dest") + 1])
        (folder / "bfcl_eval-2026.3.23-py3-none-any.whl").write_bytes(content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    content = b"something else"
    with pytest.raises(InputError, match="is not the pinned data of bfcl"):
        catalogue.fetch("bfcl", tmp_path)
    assert not (tmp_path / WHEEL).exists()
    if not (root / WHEEL).is_file():
        pytest.skip("NOT RUN: the package under the data root is a folder of the user's")
    content = (root / WHEEL).read_bytes()
    assert catalogue.fetch("bfcl-single", tmp_path) == [tmp_path / WHEEL]
    assert catalogue.fetch("bfcl_base", tmp_path) == [tmp_path / WHEEL]
    assert len(asked) == 2 and "--no-deps" in asked[1]
    assert fetch(source(0), "bfcl", tmp_path) == [tmp_path / WHEEL]
