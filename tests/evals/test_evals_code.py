"""Code tasks: which program an answer gives, what judges it, and the benchmarks' own data in the suite."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.config import PlayConfig, SandboxConfig
from spade.envs.sandbox import Sandbox
from spade.envs.solutions import SolutionLimits, SolutionResult, SolutionVerdict, StdinTest, TestResult
from spade.errors import FaultCode, FaultKind, InputError, ProgramFault
from spade.serving.launch import ChatPolicy
from spade.serving.scripted import ScriptedPolicy
from spade.types import Fault
from spade_evals.data import DataAbsent, DataChanged, DataFile, Source
from spade_evals.grade import code as grading
from spade_evals.grade import packed_tests
from spade_evals.grade.packed_tests import decode_tests, encode_tests
from spade_evals.grade.programs import called, completed, program_in
from spade_evals.question import Grade, GradeVerdict, Question, QuestionSuite, grade_reference, judge
from spade_evals.question_run import Options, ask_suite
from spade_evals.runner import Subject
from spade_evals.suite import Setting
from spade_evals.suites.code import make_extra, make_plus, make_suite
from spade_evals.tasks.code import HumanEval, HumanEvalPlus, mbpp, mbpp_full, mbpp_plus
from spade_evals.tasks.livecodebench import SHA256, LiveCodeBench, livecodebench, livecodebench_v6_only

V = GradeVerdict
DATA = Path(os.environ.get("SPADE_SHARED", "SPADE_SHARED-is-not-set")) / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"NOT RUN: no {DATA}; set SPADE_SHARED")
QUICK = SolutionLimits(cpu_seconds=0.4, wall_seconds=8.0, memory_mb=256, stack_mb=128, output_bytes=1 << 20)


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with await Sandbox.start(SandboxConfig()) as box:
        yield Setting(SimpleNamespace(), box, PlayConfig(), 0)  # type: ignore[arg-type]


# --- from an answer to a program -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("Here:\n```python\nx = 1\n```\nDone.", "x = 1\n"),
        ("```python\nx = 1\n```\nBetter:\n```py\nx = 2\n```", "x = 2\n"),
        ("```python\nx = 1\n```\nIt prints\n```\n1\n```", "x = 1\n"),
        ("```python\nx = 1\n```\nand\n```python\nx = 2", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```json\n{}\n```\nno code", None),
        ("<think>```python\nx = 1\n```</think>I do not know.", None),
        ("<think>```python\nx = 1\n```</think>```python\nx = 2\n```", "x = 2\n"),
        ("```python\r\nx = 1\r\n```", "x = 1\n"),
        ("x = 1\nprint(x)", "x = 1\nprint(x)\n"),
        ("42", None),
        ("solution", None),
        ("The answer is 42.", None),
        ("\\boxed{}", None),
        ("```python\n\n```", None),
        ("", None),
    ],
)
def test_the_last_complete_block_outside_the_thought_is_the_program(answer: str, program: str | None) -> None:
    assert program_in(answer) == program


PROMPT = (
    'import math\n\ndef helper(x):\n    return x + 1\n\ndef f(n: int) -> int:\n    """Two more than n."""\n'
)
BODY = "    y = helper(n)\n    return helper(y)"
WHOLE = "def f(n):\n    return helper(helper(n))"


@pytest.mark.parametrize(
    "answer",
    [
        BODY,
        BODY.strip(),
        f"```python\n{BODY}\n```",
        "```python\ny = helper(n)\nreturn helper(y)\n```",
        f"```python\n{WHOLE}\n```",
        f"Sure.\n```\n{WHOLE}\n```\nThis adds one twice.",
        f"```python\n{PROMPT}{BODY}\n```",
        f"```python\nf = lambda n: helper(n) + math.ceil(0.5)\n```\n{WHOLE[:5]}",
        BODY + "\n\ndef g():\n    return 0",
        BODY + "\n\nif __name__ == '__main__':\n    print(f(1))\nand so on",
    ],
)
def test_a_completion_is_joined_to_its_prompt_whatever_its_style(answer: str) -> None:
    program = completed(answer, PROMPT, "f")
    assert program is not None
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["f"](1) == 3


@pytest.mark.parametrize("answer", ["", "\\boxed{}", "I cannot.", "```python\ndef f(n):\n    retu", "    "])
def test_no_completion_is_no_program(answer: str) -> None:
    assert completed(answer, PROMPT, "f") is None


def test_the_entry_point_is_the_function_of_the_reference_that_the_first_test_calls() -> None:
    code = "def helper(x):\n    return x\ndef main_one (x):\n    return helper(x)"
    assert called(code, ["assert set(main_one((1, 2))) == {1, 2}"]) == "main_one"
    assert called(code, ["assert other(1)"]) is None and called(code, []) is None


# --- packed tests --------------------------------------------------------------------------------------


@given(
    st.lists(st.fixed_dictionaries({"input": st.text(), "output": st.text(), "testtype": st.just("stdin")}))
)
def test_packed_and_plain_tests_are_read_alike(tests: list[dict[str, str]]) -> None:
    assert decode_tests(json.dumps(tests), "p") == decode_tests(encode_tests(tests), "p") == tests


class Evil:
    """Unpickling it makes a folder."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.path,)


def packed(value: Any, protocol: int = 4) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


def test_a_hostile_pickle_is_read_and_never_run(tmp_path: Path) -> None:
    target = tmp_path / "made"
    for value in (Evil(str(target)), ["[]"], {"a": "[]"}, 3, ("[]", Evil(str(target)))):
        with pytest.raises(InputError, match="pickle"):
            decode_tests(packed(value), "p1")
    assert not target.exists()
    for protocol in range(6):
        assert decode_tests(packed('[{"input": "1", "output": "2"}]', protocol), "p1")[0]["output"] == "2"


@pytest.mark.parametrize(
    "text", ["AAAA", "not base64!", "{}", '[{"input": 3}]', encode_tests([])[:-6], "[1]"]
)
def test_broken_tests_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="p1"):
        decode_tests(text, "p1")


def test_a_zip_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_tests, "MAX_BYTES", 1 << 16)
    with pytest.raises(InputError, match="more than"):
        decode_tests(packed(" " * (1 << 20)), "p1")


# --- LiveCodeBench's format ----------------------------------------------------------------------------

ADD = [
    {"input": f"{a} {b}\n", "output": f"{a + b}\n", "testtype": "stdin"} for a, b in ((1, 2), (5, 7), (0, 0))
]
SORTED = [
    {"input": "[3, 1, 2]\n2", "output": "[1, 2]", "testtype": "functional"},
    {"input": "[9]\n1", "output": "[9]", "testtype": "functional"},
]


def row(
    name: str, tests: list[dict[str, str]], public: int, starter: str = "", **metadata: str
) -> dict[str, Any]:
    """A problem of our own in the benchmark's format."""
    return {
        "question_title": name, "question_content": f"Problem {name}.", "question_id": name,
        "platform": "ours", "contest_id": "ours", "contest_date": "2026-01-01T00:00:00",
        "starter_code": starter, "difficulty": "easy",
        "public_test_cases": json.dumps(tests[:public]), "private_test_cases": encode_tests(tests[public:]),
        "metadata": json.dumps(metadata),
    }  # fmt: skip


STARTER = "class Solution:\n    def smallest(self, nums: List[int], k: int) -> List[int]:\n        "
ROWS = [
    row("add", ADD, 1),
    row("smallest", SORTED, 1, STARTER, func_name="smallest"),
    row("plain function", SORTED, 0, "def first(nums, k):", fn_name="first"),
    row("broken", ADD, 1) | {"private_test_cases": packed({"no": "string"})},
]
GOOD = {
    "add": "print(sum(map(int, input().split())))",
    "smallest": "class Solution:\n    def smallest(self, nums: List[int], k): return sorted(nums)[:k]",
    "plain function": "def first(nums, k): return tuple(sorted(nums)[:k])",
}


def source(*files: Path, size: int = 0, sha256: str = "") -> Source:
    return Source(
        tuple(DataFile(f.name, sha256) for f in files), "ours", "1", "MIT", size, root=files[0].parent
    )


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


@pytest.fixture
def lcb(tmp_path: Path) -> LiveCodeBench:
    files = write(tmp_path / "test.jsonl", ROWS[:2]), write(tmp_path / "test2.jsonl", ROWS[2:])
    return LiveCodeBench("livecodebench", source(*files, size=4))


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


async def test_problems_in_livecodebenchs_format_are_asked_and_judged(
    lcb: LiveCodeBench, setting: Setting
) -> None:
    assert grading.LIMITS.cpu_seconds == 6.0  # of each test, not of the program
    loaded = lcb.load()
    by_name = {q.name: q for q in loaded.questions}
    assert list(by_name) == [r["question_id"] for r in ROWS] and loaded.changed == ()
    assert STARTER.rstrip() in by_name["smallest"].fields["how"]
    assert "standard input" in by_name["add"].fields["how"]
    assert "12" not in json.dumps([q.meta for q in loaded.questions[:1]])  # tests stay in the file
    for name, code in GOOD.items():
        grade = await lcb.grade(fenced(code), by_name[name], setting)
        assert grade.verdict is V.CORRECT and grade.value == 1.0, (name, grade)
        assert (await lcb.grade("\\boxed{}", by_name[name], setting)).verdict is V.NO_ANSWER
    wrong = await lcb.grade(
        fenced("a, b = map(int, input().split())\nprint(3 if a == 1 else 0)"), by_name["add"], setting
    )
    assert (wrong.verdict, wrong.value) == (V.WRONG, 0.0) and wrong.detail.startswith(
        "test 2 of 3: wrong_answer"
    )
    wrong = await lcb.grade(fenced("class Solution:\n    pass"), by_name["smallest"], setting)
    assert wrong.verdict is V.WRONG and "runtime_error" in wrong.detail


async def test_tests_that_cannot_be_decoded_are_a_fault_and_no_score(
    lcb: LiveCodeBench, setting: Setting
) -> None:
    broken = lcb.load().questions[-1]
    outcome = await judge(lcb, fenced(GOOD["add"]), False, broken, setting)
    assert isinstance(outcome, Fault) and outcome.kind is FaultKind.GRADER


def test_ids_do_not_depend_on_the_files(lcb: LiveCodeBench, tmp_path: Path) -> None:
    one = LiveCodeBench("livecodebench", source(write(tmp_path / "all.jsonl", ROWS[::-1])))
    assert {q.id for q in one.load().questions} == {q.id for q in lcb.load().questions}


def test_data_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "test6.jsonl", ROWS[:1])
    with pytest.raises(InputError, match="should have 175"):
        LiveCodeBench("lcb", source(file, size=175)).load()
    pinned = LiveCodeBench("lcb", source(file, sha256="0" * 64))
    with pytest.raises(DataChanged, match="--allow-changed-data"):
        pinned.load()
    assert pinned.load(allow_changed=True).changed == ("test6.jsonl",)
    with pytest.raises(InputError, match="twice"):
        LiveCodeBench("lcb", source(write(tmp_path / "x.jsonl", ROWS[:1] * 2))).load()
    file.write_text('{"question_id": 1}\n')
    with pytest.raises(InputError, match="line 1"):
        LiveCodeBench("lcb", source(file)).load()


def test_release_v6_is_cumulative_and_absent_data_names_the_command(tmp_path: Path) -> None:
    whole, slice_ = livecodebench().data, livecodebench_v6_only().data
    assert [f.hub for f in whole.files] == list(SHA256) and whole.size == 1055 and whole.revision
    assert [f.hub for f in slice_.files] == ["test6.jsonl"] and slice_.size == 175
    with pytest.raises(DataAbsent) as absent:
        livecodebench().load(tmp_path)
    assert absent.value.command == f"spade data get livecodebench data.root={tmp_path}"
    names = [[t.name for t in suite.tasks] for suite in (make_suite(), make_extra(), make_plus())]
    assert names[0] == ["livecodebench", "humaneval", "mbpp"]
    assert names[1:] == [["livecodebench_v6_only", "mbpp_full"], ["humaneval_plus", "mbpp_plus"]]


# --- who is to blame -----------------------------------------------------------------------------------


CHEATS = {
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass": "time_limit",
    "import os\nos.fork()\nprint(3)": "",
    "import sys\nsys.exit(0)": "wrong_answer",
    "import os\nos._exit(0)": "crash",
    "while True: print('x' * 10000)": "output_limit",
}


async def test_programs_that_cheat_or_hang_are_wrong(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "LIMITS", QUICK)
    for program, verdict in CHEATS.items():
        grade = await grading.judge_stdin(setting.sandbox, program, [StdinTest("1 2\n", "3\n")])
        assert grade.verdict is V.WRONG and verdict in grade.detail, (program, grade)


@pytest.mark.parametrize(("lost", "right"), [(0, True), (2, True), (3, False)])
async def test_a_lost_worker_is_asked_again_and_never_a_score(
    monkeypatch: pytest.MonkeyPatch, lost: int, right: bool
) -> None:
    setting = Setting(SimpleNamespace(), SimpleNamespace(), PlayConfig(), 0)  # type: ignore[arg-type]
    calls: list[str] = []

    async def flaky(*args: Any, **kwargs: Any) -> SolutionResult:
        calls.append("run")
        if len(calls) <= lost:
            raise ProgramFault(FaultCode.LOST, "killed")
        return SolutionResult((TestResult(SolutionVerdict.PASSED),), 1)

    monkeypatch.setattr(grading, "run_script", flaky)
    question = Question(
        "humaneval", "", "    return 1", meta={"prompt": "def f():\n", "entry": "f", "test": ""}
    )
    task = HumanEval()
    outcome = await judge(task, task.solution(question), False, question, setting)
    if right:
        assert isinstance(outcome, Grade) and outcome.verdict is V.CORRECT and len(calls) == lost + 1
    else:
        assert isinstance(outcome, Fault) and outcome.kind is FaultKind.INFRASTRUCTURE


# --- EvalPlus' form ------------------------------------------------------------------------------------

PLUS_CHECK = """import numpy as np

def is_floats(x):
    return isinstance(x, float) or isinstance(x, np.ndarray) and x.dtype == np.float32

def assertion(out, exp, atol):
    if out != exp and (atol or is_floats(exp)):
        assert np.allclose(out, exp, rtol=1e-07, atol=atol or 1e-6)
    else:
        assert out == exp, f"out: {out}, exp: {exp}"

"""


async def test_evalplus_data_of_the_user_is_judged_without_numpy(tmp_path: Path, setting: Setting) -> None:
    loop = "for inp, exp in zip([[4], [2]], [2.0, 1.41421356]):\n    assertion(%s(*inp), exp, 0)\n"
    check = PLUS_CHECK + "def check(candidate):\n    " + loop.replace("\n ", "\n     ") % "candidate"
    human = {"task_id": "HumanEval/0", "prompt": "def root(x):\n", "entry_point": "root", "test": check}
    (tmp_path / "humaneval_plus").mkdir()
    (tmp_path / "mbpp_plus").mkdir()
    write(tmp_path / "humaneval_plus/test.jsonl", [human | {"canonical_solution": "    return x ** 0.5\n"}])
    mb = {"task_id": 1, "prompt": "Root.", "code": "def root(x): return x ** 0.5", "test_imports": []}
    mb |= {"test_list": ["assert root(4) == 2"], "test": PLUS_CHECK + loop % "root"}
    write(tmp_path / "mbpp_plus/test.jsonl", [mb])
    for task in (HumanEvalPlus(), mbpp_plus()):
        question = task.load(tmp_path).questions[0]
        good = await grade_reference(task, question, setting)
        assert isinstance(good, Grade) and good.verdict is V.CORRECT, good
        bad = await task.grade(fenced("def root(x): return x / 2"), question, setting)
        assert bad.verdict is V.WRONG and "AssertionError" in bad.detail
    with pytest.raises(DataAbsent, match="load_dataset"):
        HumanEvalPlus().load(tmp_path / "nowhere")


# --- the real files ------------------------------------------------------------------------------------


@needs_data
def test_every_item_of_the_real_files_is_read() -> None:
    sizes = {HumanEval: 164, mbpp: 427, mbpp_full: 974}
    for make, size in sizes.items():
        loaded = make().load(DATA)
        assert len({q.id for q in loaded.questions}) == size and not loaded.changed
        assert all(make().solution(q) for q in loaded.questions)
    # Every reference is found again in what a perfect model would say.
    task = HumanEval()
    assert sum(map(task.is_defective, task.load(DATA).questions)) == len(task.defects) == 2
    for q in task.load(DATA).questions:
        assert (
            (completed(task.solution(q), q.meta["prompt"], q.meta["entry"]) or "")
            .rstrip()
            .endswith(q.reference.rstrip())
        )
        # a base model's bare body
        assert completed(q.reference, q.meta["prompt"], q.meta["entry"]) is not None
    for q in mbpp().load(DATA).questions:
        assert (program_in(mbpp().solution(q)) or "").strip() == q.reference.strip()


async def asked(
    policy: ScriptedPolicy, setting: Setting, out: Path, limit: int, samples: int = 1
) -> dict[str, Any]:
    suite = QuestionSuite("code", [HumanEval(), mbpp()])
    chat = ChatPolicy(policy.renderer, policy, "scripted")
    report = await ask_suite(
        chat, suite, setting.sandbox, out, Subject("scripted", "scripted"),
        options=Options(limit=limit, samples=samples, data_root=DATA), quiet=True,
    )  # fmt: skip
    assert report.complete
    return {task.name: task.score for task in report.tasks}


@needs_data
async def test_scripted_policies_score_exactly_on_the_real_files(setting: Setting, tmp_path: Path) -> None:
    oracle = await asked(ScriptedPolicy("oracle"), setting, tmp_path / "oracle", 20)
    assert [s.all.mean for s in oracle.values()] == [1.0, 1.0]
    null = await asked(ScriptedPolicy("null"), setting, tmp_path / "null", 20)
    assert [s.all.mean for s in null.values()] == [0.0, 0.0]
    assert all(s.no_answer == 1.0 for s in null.values())
    mixed = ScriptedPolicy.oracle_if(lambda i: i.seed == 1)
    half = await asked(mixed, setting, tmp_path / "mixed", 6, samples=4)
    for score in half.values():
        assert score.all.mean == 0.25 and score.pass_at[1] == 0.25 and score.pass_at[4] == 1.0
