"""BFCL multi-turn on the real package: golden agents, upstream's verdicts, refused answers, changed packages.

Skipped, with a reason, where the package is neither under the data root nor to be had from the index.
"""

from __future__ import annotations

import json
import os
import random
import signal
import zipfile
from pathlib import Path
from typing import Any

import pytest
from bfcl_data import (
    AGENTS,
    WANTED,
    bfcl_root,
    corrupted,
    golden,
    loaded,
    oracle,
    package_of,
    upstream,
)
from qa_data import DATA, needs
from question_fakes import chat_of

from spade.errors import ConfigError
from spade.serving.chat import ChatPolicy
from spade.serving.scripted import ScriptedPolicy
from spade.types import from_json
from spade_evals.answers import Answer
from spade_evals.data import DataAbsent, DataChanged
from spade_evals.dialogue import Transcript
from spade_evals.grade.calls import Refusal, RefusalCode
from spade_evals.planning import chosen
from spade_evals.presets import Ask
from spade_evals.question import Question, QuestionSuite
from spade_evals.question_run import Options, SuiteReport, ask_suite
from spade_evals.runner import Subject
from spade_evals.suites.bfcl import backend
from spade_evals.suites.bfcl.multi_turn import STEP_LIMIT, MultiTurn, transcript_of, turns_of
from spade_evals.suites.bfcl.package import CONTENT_SHA256, FOLDER, MULTI_TURN, WHEEL, find_package, used
from spade_evals.suites.bfcl.suite import make_suite

pytestmark = pytest.mark.slow

SETTING: Any = None
"""Nothing of it is needed to grade a stored conversation."""


@pytest.fixture(scope="session")
def root(pytestconfig: pytest.Config) -> Path:
    cache = pytestconfig.cache
    assert cache is not None
    return bfcl_root(cache.mkdir("bfcl"))


async def play(
    chat: ChatPolicy, tasks: list[MultiTurn], root: Path, out: Path, preset: str = "paper", **more: Any
) -> SuiteReport:
    suite = QuestionSuite("bfcl", tasks)
    options = Options(preset=preset, samples=1, data_root=root, **more)
    return await ask_suite(chat, suite, None, out, Subject("ckpt", "abc"), options=options, quiet=True)


def right(report: SuiteReport) -> dict[str, int]:
    """Correct samples of each task."""
    return {t.name: t.score.verdicts.get("correct", 0) for t in report.tasks if t.score is not None}


def rows(out: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "bfcl" / f"{name}.jsonl").read_text().splitlines()]


def preset_file(folder: Path, **settings: Any) -> str:
    path = folder / "preset.yaml"
    path.write_text(json.dumps({"name": "test", "defaults": settings}))
    return str(path)


# --- verdicts ------------------------------------------------------------------------------------------


async def verdicts(root: Path, jobs: list[tuple[dict[str, Any], Any, Any]]) -> list[dict[str, Any]]:
    """Ours, by the process that the suite uses."""
    package = str(package_of(root).path)
    found = [
        await backend.check({**item, "package": package}, turns, truth, False) for item, turns, truth in jobs
    ]
    return [{"valid": v.valid, "error_type": v.error_type} for v in found]


async def test_verdicts_equal_upstreams_on_all_golden_and_500_corrupted_conversations(root: Path) -> None:
    rng = random.Random(7)
    jobs, agents = [], []
    for category in MULTI_TURN:
        _, questions = loaded(category, root)
        for number, question in enumerate(questions):
            item, truth = question.meta["item"], question.reference
            jobs += [(item, agent(truth), truth) for agent in AGENTS.values()]
            agents += [(category, name) for name in AGENTS]
            if number < 125:
                jobs.append((item, corrupted(rng, truth), truth))
                agents.append((category, "corrupted"))
    assert len(jobs) == 4 * 200 * 5 + 500
    ours = await verdicts(root, jobs)
    theirs = upstream(
        package_of(root),
        [{"kind": "multi_turn", "item": i, "turns": t, "truth": truth} for i, t, truth in jobs],
    )
    differ = [(a, j[0]["id"], o, t) for a, j, o, t in zip(agents, jobs, ours, theirs, strict=True) if o != t]
    assert differ == []
    for category in MULTI_TURN:
        solved = {
            name: sum(o["valid"] for a, o in zip(agents, ours, strict=True) if a == (category, name))
            for name in AGENTS
        }
        assert solved == WANTED
    broken = [o["valid"] for a, o in zip(agents, ours, strict=True) if a[1] == "corrupted"]
    assert 50 < sum(broken) < 450, "the corrupted ones should be of both kinds"


@pytest.mark.parametrize("category", MULTI_TURN)
async def test_the_oracle_solves_all_200_through_the_whole_pipeline(
    category: str, root: Path, tmp_path: Path
) -> None:
    task, questions = loaded(category, root)
    report = await play(golden(task, questions, "oracle"), [task], root, tmp_path)
    assert right(report) == {task.name: 200}


@pytest.mark.parametrize("agent", [name for name in AGENTS if name != "oracle"])
async def test_the_other_agents_through_the_whole_pipeline(agent: str, root: Path, tmp_path: Path) -> None:
    """Every agent on 20 items of each category; on all of them with SPADE_FULL=1."""
    limit = None if os.environ.get("SPADE_FULL") else 20
    for category in MULTI_TURN:
        task, questions = loaded(category, root)
        out = tmp_path / category
        report = await play(golden(task, questions, agent), [task], root, out, limit=limit)
        found = right(report)[task.name]
        if agent == "backwards":
            played = questions if limit is None else chosen(questions, limit)
            jobs = [(q.meta["item"], AGENTS[agent](q.reference), q.reference) for q in played]
            assert found == sum(verdict["valid"] for verdict in await verdicts(root, jobs))
        else:
            assert found == (limit or 200 if WANTED[agent] else 0)


async def test_a_bad_run_leaves_nothing_behind_for_the_next(root: Path, tmp_path: Path) -> None:
    task, questions = loaded("base", root)
    bad = await play(golden(task, questions, "without_last"), [task], root, tmp_path / "bad", limit=60)
    again = await play(golden(task, questions, "oracle"), [task], root, tmp_path / "good", limit=60)
    assert (right(bad), right(again)) == ({task.name: 0}, {task.name: 60})


async def test_strict_also_wants_silence_where_nothing_can_be_done(root: Path, tmp_path: Path) -> None:
    """Harmless calls in a turn without reference calls pass with upstream, and fail under `strict`."""
    task, questions = loaded("miss_param", root)
    question = next(q for q in questions if "GorillaFileSystem" in q.meta["item"]["involved_classes"])
    turns = oracle(question.reference)
    empty = question.reference.index([])
    turns[empty] = [["pwd()"]]
    for variant, wanted in (("official", "correct"), ("strict", "wrong")):
        graded = task.configured(Ask(variant=variant))
        assert graded.grader == f"bfcl-multi-turn-1+{variant}"
        grade = await graded.mark(transcript_of(turns), question, SETTING)
        assert grade.verdict.value == wanted
    assert "irrelevance_error" in grade.detail
    clean = await graded.mark(transcript_of(oracle(question.reference)), question, SETTING)
    assert clean.verdict.value == "correct"


async def test_another_variant_grades_the_stored_conversations_again(root: Path, tmp_path: Path) -> None:
    task, questions = loaded("miss_param", root)
    chat = golden(task, questions, "oracle")
    await play(chat, [task], root, tmp_path, preset_file(tmp_path, variant="official"), limit=6)
    requests = []

    async def refuse(*args: Any) -> Any:
        requests.append(args)
        raise AssertionError("nothing is to be asked")

    chat.policy.converse = refuse  # type: ignore[attr-defined]
    report = await play(chat, [task], root, tmp_path, preset_file(tmp_path, variant="strict"), limit=6)
    assert right(report) == {task.name: 6}
    assert requests == []
    document = json.loads((tmp_path / "bfcl-limit6" / "run.json").read_text())
    assert document["tasks"][task.name]["protocol"]["grader"].endswith("+strict")


def test_a_variant_or_style_nobody_has_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no variant 'offical'; did you mean 'official'"):
        MultiTurn("base").configured(Ask(variant="offical"))
    with pytest.raises(ConfigError, match="no style 'boxed'; known: calls, compact, tools"):
        MultiTurn("base").configured(Ask(style="boxed"))


# --- the conversation ----------------------------------------------------------------------------------


def scripted(replies: list[str]) -> ChatPolicy:
    """Says these replies in turn, whatever it is asked; the last one for ever."""
    said = iter(replies)
    last = replies[-1]
    return chat_of(ScriptedPolicy.from_function(lambda prompt: next(said, last)))


async def one(
    root: Path, out: Path, category: str, replies: list[str], style: str = "tools"
) -> tuple[Answer, Transcript, Question]:
    """One item of a category, answered by these replies."""
    task, questions = loaded(category, root)
    report = await play(
        scripted(replies), [task], root, out, preset_file(out, style=style, temperature=0.0), limit=1
    )
    row = next(iter(_lines(out, task.name)))
    assert report.complete
    question = next(q for q in questions if q.id == row["item_id"])
    return from_json(Answer, row), Transcript.of(row["text"]), question


def _lines(out: Path, name: str) -> list[dict[str, Any]]:
    path = out / "bfcl-limit1" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("style", ["tools", "calls", "compact"])
async def test_scripted_oracle_in_every_style(style: str, root: Path, tmp_path: Path) -> None:
    chat = chat_of(ScriptedPolicy("oracle", max_rows=8))
    preset = preset_file(tmp_path, style=style)
    report = await play(chat, make_suite().tasks, root, tmp_path, preset, limit=4)  # type: ignore[arg-type]
    assert right(report) == {f"bfcl_{category}": 4 for category in MULTI_TURN}
    assert report.result.score[0] == 1.0
    assert sorted(report.result.parts) == sorted(f"bfcl_{category}" for category in MULTI_TURN)


@pytest.mark.parametrize("style", ["tools", "calls", "compact"])
async def test_a_held_back_function_appears_in_its_turn(style: str, root: Path, tmp_path: Path) -> None:
    task, questions = loaded("miss_func", root)
    (question,) = chosen(questions, 1)
    (turn,) = question.meta["missed"]
    (name,) = question.meta["missed"][turn]
    seen: list[str] = []

    def reply(prompt: str) -> str:
        seen.append(prompt)
        return "Nothing to do."

    chat = chat_of(ScriptedPolicy.from_function(reply))
    await play(chat, [task], root, tmp_path, preset_file(tmp_path, style=style), limit=1)
    assert question.id == _lines(tmp_path, task.name)[0]["item_id"]
    forms = (f'"name": "{name}"', f"'name': '{name}'", f"\n{name}(")
    offered = [any(form in prompt for form in forms) for prompt in seen]
    assert offered == [number >= int(turn) for number in range(len(question.reference))]
    assert "I have updated some more functions you can choose from. What about now?" in seen[int(turn)]


async def test_long_context_items_are_loaded_with_bulk_records(root: Path) -> None:
    package = str(package_of(root).path)
    found = {}
    for category in ("base", "long_context"):
        _, questions = loaded(category, root)
        question = next(q for q in questions if "GorillaFileSystem" in q.meta["item"]["involved_classes"])
        results = await backend.run({**question.meta["item"], "package": package}, [["find(path='.')"]])
        assert isinstance(results, list)
        found[category] = len(results[0])
    assert found["long_context"] > 5 * found["base"]


async def test_the_21st_step_of_a_turn_fails_the_item(root: Path, tmp_path: Path) -> None:
    call = '<tool_call>{"name": "no_such_function", "arguments": {}}</tool_call>'
    answer, transcript, _ = await one(root, tmp_path, "base", [call])
    assert (answer.verdict, transcript.end) == ("wrong", "steps")
    assert len(turns_of(transcript)[0]) == STEP_LIMIT + 1
    tools = [m for m in transcript.messages if m["role"] == "tool"]
    assert len(tools) == STEP_LIMIT
    assert tools[0]["content"] == "Error during execution: name 'no_such_function' is not defined"


async def test_20_steps_do_not_fail_it(root: Path) -> None:
    """Also in the last turn, where upstream would not notice a 21st."""
    task, questions = loaded("base", root)
    question = next(q for q in questions if "GorillaFileSystem" in q.meta["item"]["involved_classes"])
    turns = oracle(question.reference)
    turns[-1] += [["pwd()"]] * (STEP_LIMIT - len(turns[-1]))
    assert len(turns[-1]) == STEP_LIMIT
    assert (await task.mark(transcript_of(turns), question, SETTING)).verdict.value == "correct"
    turns[-1].append(["pwd()"])
    long = Transcript(transcript_of(turns).messages, "steps")
    assert (await task.mark(long, question, SETTING)).verdict.value == "wrong"


async def test_no_room_in_the_context_is_no_answer_and_no_fault(root: Path, tmp_path: Path) -> None:
    task, _ = loaded("base", root)
    chat = chat_of(ScriptedPolicy("oracle", context_length=500))
    report = await play(chat, [task], root, tmp_path, limit=3)
    score = report.tasks[0].score
    assert score is not None
    assert (score.verdicts, score.faults, report.complete) == ({"truncated": 3}, {}, True)
    assert score.truncated == 1.0


# --- hostile answers -----------------------------------------------------------------------------------

CANARY = "canary-of-the-bfcl-tests"

HOSTILE = [
    ("[__import__('os').system('touch CANARY')]", RefusalCode.PRIVATE_NAME),
    ("[ls(a=__import__('os').system('touch CANARY'))]", RefusalCode.PRIVATE_NAME),
    ("[cd(folder=().__class__.__base__.__subclasses__())]", RefusalCode.PRIVATE_NAME),
    ("[ls.__globals__.clear()]", RefusalCode.PRIVATE_NAME),
    ("[cd(__class__='x')]", RefusalCode.PRIVATE_NAME),
    ("[open('CANARY', 'w')]", RefusalCode.BUILTIN),
    ("[exec('import os')]", RefusalCode.BUILTIN),
    ("[cd(folder=open('CANARY', 'w').name)]", RefusalCode.NOT_LITERAL),
    ("[cd(folder='a' * 1000000000)]", RefusalCode.NOT_LITERAL),
    ("[cd(folder=[x for x in range(10**9)])]", RefusalCode.NOT_LITERAL),
    ("[cd(folder=lambda: 1)]", RefusalCode.NOT_LITERAL),
    ("[cd(folder=pwd())]", RefusalCode.NOT_LITERAL),
    ("[cd(**{'folder': 'x'})]", RefusalCode.NOT_LITERAL),
    ("[cd(folder=9**9**9**9)]", RefusalCode.NOT_LITERAL),
    (f"[cd(folder='{'x' * 50_000}')]", RefusalCode.TOO_LONG),
    (f"[cd(folder='{'x' * 500_000}')]", RefusalCode.TOO_LONG),
    (f"[{', '.join(['pwd()'] * 10_000)}]", RefusalCode.TOO_MANY),
    (f"[cd(folder={'[' * 5_000}{']' * 5_000})]", RefusalCode.TOO_DEEP),
    (f"[cd(folder={'-' * 5_000}1)]", RefusalCode.TOO_DEEP),
    (f"[cd(folder={'9' * 5_000})]", RefusalCode.BAD_NUMBER),
    ("[cd(folder=1e999)]", RefusalCode.BAD_NUMBER),
]


@pytest.mark.parametrize(("text", "code"), HOSTILE, ids=lambda value: str(value)[:30])
async def test_a_hostile_text_is_refused_and_nothing_runs(
    text: str, code: RefusalCode, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    canary = tmp_path / CANARY
    answer, transcript, _ = await one(root, tmp_path, "base", [text.replace("CANARY", str(canary))], "calls")
    assert (answer.verdict, answer.detail.partition(":")[0]) == ("refused", code.value)
    assert turns_of(transcript) == [[]]
    assert [m["role"] for m in transcript.messages] == ["user", "assistant"], "no result, so nothing ran"
    assert not canary.exists()


NATIVE = [
    ({"name": "__import__", "arguments": {"name": "os"}}, RefusalCode.PRIVATE_NAME),
    ({"name": "cd.__globals__.get", "arguments": {}}, RefusalCode.PRIVATE_NAME),
    ({"name": "eval", "arguments": {"source": "1"}}, RefusalCode.BUILTIN),
    ({"name": "open", "arguments": {"file": CANARY, "mode": "w"}}, RefusalCode.BUILTIN),
    ({"name": "cd'); import os; ('", "arguments": {}}, RefusalCode.BAD_NAME),
    ({"name": "cd", "arguments": {"folder) or (": "x"}}, RefusalCode.BAD_NAME),
    ({"name": "cd", "arguments": {"__class__": "x"}}, RefusalCode.PRIVATE_NAME),
    ({"name": "cd", "arguments": {"folder": "x" * 50_000}}, RefusalCode.TOO_LONG),
    ({"name": "cd", "arguments": {"folder": list(range(5_000))}}, RefusalCode.TOO_LONG),
]


@pytest.mark.parametrize(("call", "code"), NATIVE, ids=lambda value: str(value)[:40])
async def test_a_hostile_native_call_is_refused(
    call: dict[str, Any], code: RefusalCode, root: Path, tmp_path: Path
) -> None:
    answer, transcript, _ = await one(root, tmp_path, "base", [f"<tool_call>{json.dumps(call)}</tool_call>"])
    assert (answer.verdict, answer.detail.partition(":")[0]) == ("refused", code.value)
    assert turns_of(transcript) == [[]]


async def test_ten_thousand_native_calls_are_refused(root: Path, tmp_path: Path) -> None:
    call = '<tool_call>{"name": "pwd", "arguments": {}}</tool_call>'
    answer, _, _ = await one(root, tmp_path, "base", [call * 10_000])
    assert (answer.verdict, answer.detail.partition(":")[0]) == ("refused", "too_many")


async def test_calls_that_compute_for_ever_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A literal call can cost any time all the same; the process ends, and the answer pays."""
    monkeypatch.setattr(backend, "SECONDS", 0.5)
    _, questions = loaded("base", root)
    question = next(q for q in questions if "MathAPI" in q.meta["item"]["involved_classes"])
    item = {**question.meta["item"], "package": str(package_of(root).path)}
    found = await backend.run(item, [["power(base=7, exponent=10**9)".replace("10**9", "1000000000")]])
    assert isinstance(found, Refusal)
    assert found.code is RefusalCode.TOO_COSTLY
    monkeypatch.setattr(backend, "SECONDS", 10.0)
    assert await backend.run(item, [["power(base=7, exponent=2)"]]) == ['{"result": 49}']


async def test_a_process_killed_from_outside_is_started_again(root: Path) -> None:
    _, questions = loaded("base", root)
    item = {**questions[0].meta["item"], "package": str(package_of(root).path)}
    first = await backend.run(item, [["pwd()"]])
    for pid in backend.pool().pids():
        os.kill(pid, signal.SIGKILL)
    assert await backend.run(item, [["pwd()"]]) == first


# --- the package ---------------------------------------------------------------------------------------


@needs("bfcl_v4_multi_turn")
def test_the_packages_data_is_the_published_one(root: Path) -> None:
    package = package_of(root)
    for category in MULTI_TURN:
        name = f"BFCL_v4_multi_turn_{category}.json"
        lines = (DATA / "bfcl_v4_multi_turn" / name).read_text(encoding="utf-8").splitlines()
        assert package.rows(name) == [json.loads(line) for line in lines]


def unpacked(root: Path, to: Path) -> Path:
    """A data root with a folder instead of the wheel."""
    source = root / WHEEL
    target = to / FOLDER
    if not source.is_file():
        target.parent.mkdir(parents=True)
        target.symlink_to(root / FOLDER)
        return to
    with zipfile.ZipFile(source) as archive:
        for name in used():
            archive.extract(name, target.parent)
    return to


async def test_an_unpacked_package_serves_as_well(root: Path, tmp_path: Path) -> None:
    folder = unpacked(root, tmp_path / "data")
    package = find_package("bfcl", folder)
    assert package.sha256 == CONTENT_SHA256
    task, questions = loaded("base", folder)
    first = next(iter(questions))
    # Another process, since one process serves one package.
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:
        fresh = backend.Pool("spade_evals.suites.bfcl.host", 1)
        patched.setattr(backend, "pool", lambda: fresh)
        grade = await task.mark(transcript_of(oracle(first.reference)), first, SETTING)
        fresh.close()
    assert grade.verdict.value == "correct"


def test_a_changed_package_is_refused_unless_asked_for(root: Path, tmp_path: Path) -> None:
    if not (root / WHEEL).is_file():
        pytest.skip("NOT RUN: the package under the data root is a folder of the user's")
    folder = unpacked(root, tmp_path / "data")
    file = folder / FOLDER / "data" / "possible_answer" / "BFCL_v4_multi_turn_base.json"
    file.write_text(file.read_text(encoding="utf-8").replace("mkdir", "rmdir", 1), encoding="utf-8")
    with pytest.raises(DataChanged, match="--allow-changed-data"):
        find_package("bfcl_base", folder)
    changed = find_package("bfcl_base", folder, allow_changed=True)
    assert changed.changed == ("bfcl_eval",)
    assert changed.sha256 != CONTENT_SHA256


def test_without_the_package_the_suite_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(DataAbsent) as caught:
        MultiTurn("base").load(tmp_path)
    assert caught.value.command == f"spade data get bfcl data.root={tmp_path}"


async def test_a_category_that_was_not_run_is_not_averaged(root: Path, tmp_path: Path) -> None:
    class Absent(MultiTurn):
        def load(self, root: Path | None = None, allow_changed: bool = False) -> Any:
            raise DataAbsent("no such file", "spade data get bfcl")

    tasks = [MultiTurn("base"), Absent("miss_func")]
    chat = chat_of(ScriptedPolicy("oracle"))
    report = await play(chat, tasks, root, tmp_path, limit=1)
    assert "score undefined: 1 of 2 tasks did not run" in str(report)
    assert not report.ok
    allowed = await play(chat, tasks, root, tmp_path, limit=1, allow_missing=True)
    assert allowed.result.score[0] == 1.0
