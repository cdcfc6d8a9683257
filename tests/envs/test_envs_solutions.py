"""Code-benchmark solutions in the sandbox: references pass, everything else fails for its own reason."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from envs_programs import SHARED
from hypothesis import given, settings
from hypothesis import strategies as st

from spade.config import SandboxConfig
from spade.envs.plain import TooLarge, Writer, decode, equals
from spade.envs.sandbox import Sandbox
from spade.envs.solution_check import free_names
from spade.envs.solutions import (
    SOLUTION_MODULES,
    FunctionTest,
    SolutionLimits,
    SolutionResult,
    SolutionVerdict,
    StdinTest,
    run_function,
    run_script,
    run_stdin,
    same_output,
)
from spade.errors import ConfigError, FaultCode, InputError, ProgramFault, SandboxError

V = SolutionVerdict
QUICK = SolutionLimits(cpu_seconds=0.4, wall_seconds=8.0, memory_mb=256, stack_mb=128, output_bytes=1 << 20)
SLEEPER = SolutionLimits(cpu_seconds=0.2, wall_seconds=0.5)
HUMANEVAL, MBPP = SHARED / "data/humaneval/HumanEval.jsonl", SHARED / "data/mbpp/sanitized-mbpp.json"
needs_data = pytest.mark.skipif(not MBPP.is_file(), reason=f"NOT RUN: no {MBPP}; set SPADE_SHARED")


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig()) as opened:
        yield opened


async def spread(jobs: Iterable[Callable[[], Awaitable[SolutionResult]]]) -> list[SolutionResult]:
    """A few at a time."""
    gate = asyncio.Semaphore(4)

    async def one(job: Callable[[], Awaitable[SolutionResult]]) -> SolutionResult:
        async with gate:
            return await job()

    return list(await asyncio.gather(*map(one, jobs)))


# --- the benchmarks' own data --------------------------------------------------------------------------


def mbpp_entry(item: dict[str, Any]) -> str:
    """The tested function: the one of the reference that the first assert calls."""
    names = [w.split("(")[0].strip() for w in item["code"].split("def ")[1:]]
    return next(n for n in names if f"{n}(" in item["test_list"][0].replace(" (", "("))


@needs_data
async def test_all_humaneval_references_pass_and_a_null_solution_never(sandbox: Sandbox) -> None:
    items = [json.loads(line) for line in HUMANEVAL.read_text().splitlines()]
    assert len(items) == 164

    def judge(item: dict[str, Any], body: str) -> Callable[[], Awaitable[SolutionResult]]:
        check = f"{item['test']}\ncheck({item['entry_point']})"
        return lambda: run_script(sandbox, item["prompt"] + body, check)

    results = await spread(judge(i, i["canonical_solution"]) for i in items)
    assert [(i["task_id"], r.tests) for i, r in zip(items, results, strict=True) if not r.passed] == []
    null = await spread(judge(i, "    return None\n") for i in items[::8])
    assert [i["task_id"] for i, r in zip(items[::8], null, strict=True) if r.passed] == []


@needs_data
async def test_all_mbpp_references_pass_and_a_null_solution_never(sandbox: Sandbox) -> None:
    items = json.loads(MBPP.read_text())
    assert len(items) == 427

    def judge(item: dict[str, Any], code: str) -> Callable[[], Awaitable[SolutionResult]]:
        check = "\n".join([*item["test_imports"], *item["test_list"]])
        return lambda: run_script(sandbox, code, check, entry=mbpp_entry(item))

    results = await spread(judge(i, i["code"]) for i in items)
    assert [(i["task_id"], r.tests) for i, r in zip(items, results, strict=True) if not r.passed] == []
    null = await spread(judge(i, f"def {mbpp_entry(i)}(*args): return None") for i in items[::16])
    assert [i["task_id"] for i, r in zip(items[::16], null, strict=True) if r.passed] == []


# --- comparing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("3\n", "3", True),
        ("  3  \n\n", "3\n", True),
        ("1 2\n3 4", "1  2 \n 3 4\n", True),
        ("1.0", "1", True),
        ("1e3", "1000", True),
        ("0.3", "0.30000000000000004", False),
        ("1\n2", "1 2", False),
        ("1\n\n2", "1\n2", False),
        ("YES", "Yes", False),
        ("3 a", "3.0 a", False),
        ("", "0", False),
        ("", "", True),
        ("nan", "NaN", False),
        ("inf", "Infinity", True),
        ("sNaN", "1", False),
        ("1 2 3", "1 2", False),
        ("a b", "a  b", False),
        ("\x0b3", "3", True),
        ("1e999999999", "2e999999999", False),
    ],
)
def test_outputs_are_compared_as_livecodebench_does(printed: str, expected: str, same: bool) -> None:
    assert same_output(printed, expected) is same


def opaque(value: Any) -> list[Any]:
    return ["a", 0]


def plain(value: Any) -> Any:
    """Through the wire and back into JSON."""
    return json.loads(json.dumps(Writer(opaque).encode(value), allow_nan=False))


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
hashables = scalars | st.tuples(scalars, scalars) | st.frozensets(st.integers(), max_size=3)
values = st.recursive(
    hashables
    | st.complex_numbers(allow_nan=False)
    | st.binary(max_size=4)
    | st.fractions()
    | st.decimals(allow_nan=False)
    | st.sets(hashables, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(hashables, inner, max_size=3)
    ),
)


@given(value=values)
@settings(max_examples=150, deadline=None)
def test_values_survive_the_way_with_their_exact_types(value: Any) -> None:
    back = decode(plain(value), opaque)
    assert type(back) is type(value) and back == value and repr(type(back)) == repr(type(value))


@given(ours=json_values, theirs=json_values)
@settings(max_examples=150, deadline=None)
def test_equality_on_json_values_is_pythons(ours: Any, theirs: Any) -> None:
    assert equals(ours, plain(ours))
    assert equals(theirs, plain(ours)) is (theirs == ours)


def test_subclasses_are_read_as_what_they_derive_from() -> None:
    class Liar(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    class Words(str):
        def __str__(self) -> str:
            return "other"

    class Always:
        def __eq__(self, other: object) -> bool:
            return True

    pair = namedtuple("pair", "x y")
    assert plain(Liar(3)) == 3 and plain(Words("a")) == "a"
    assert plain(Counter("aab")) == {"d": [["a", 2], ["b", 1]]} == plain(OrderedDict(a=2, b=1))
    assert plain(pair(1, 2)) == {"t": [1, 2]}
    assert plain(Always())["h"][:2] == ["a", 0]
    assert not equals(3, plain(Always())) and not equals([3], [plain(Always())])
    assert equals([1, [2]], {"t": [1, [2]]}) and not equals([1, [2]], [1, {"t": [2]}])
    assert not equals({"1": 2}, plain({1: 2})) and equals({"a": 2}, plain({"a": 2}))
    assert equals(10**30, plain(10**30)) and not equals(0.3, plain(0.1 + 0.2)) and equals(1, plain(True))
    assert plain(map(str, [1])) == {"n": ["1"]} and plain(deque([1])) == {"q": [1]}
    assert plain([Decimal("1.50"), Fraction(1, 2)]) == [{"D": "1.50"}, {"F": [1, 2]}]
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TooLarge):
        plain(endless)


@pytest.mark.parametrize(
    "forged",
    [
        {"i": "zz"},
        {"i": 3},
        {"f": "nan"},
        {"t": 3},
        {"d": [["a"]]},
        {"d": [["a", 1], ["a", 1]]},
        {},
        {"x": [1]},
    ],
)
def test_forged_values_equal_nothing(forged: Any) -> None:
    for expected in (1, "a", None, [1], [], {"a": 1}, {}, 0.5):
        assert not equals(expected, forged)


# --- standard input ------------------------------------------------------------------------------------

ADD = "print(sum(map(int, input().split())))"
FAST_IO = """
import os, sys, io
class Fast(io.IOBase):
    def __init__(self, file):
        self._fd, self.buffer = file.fileno(), io.BytesIO()
        self.writable = "x" in file.mode or "r" not in file.mode
    def read(self):
        while block := os.read(self._fd, max(os.fstat(self._fd).st_size, 8192)):
            at = self.buffer.tell(); self.buffer.seek(0, 2); self.buffer.write(block); self.buffer.seek(at)
        return self.buffer.read()
    def flush(self):
        if self.writable:
            os.write(self._fd, self.buffer.getvalue()); self.buffer.truncate(0); self.buffer.seek(0)
source, sink = Fast(sys.stdin), Fast(sys.stdout)
sink.buffer.write(str(sum(map(int, source.read().split()))).encode())
sink.flush()
"""
IDIOMS = {
    "input": ADD,
    "readline": "import sys\ninput = sys.stdin.readline\n" + ADD,
    "buffer": "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))",
    "open(0)": "print(sum(map(int, open(0).read().split())))",
    "dev stdin": "print(sum(map(int, open('/dev/stdin').read().split())))",
    "os.read": "import os\nprint(sum(map(int, os.read(0, 1 << 20).split())))",
    "fast io": FAST_IO,
    "iteration": "import sys\nfor line in sys.stdin: print(sum(map(int, line.split())))",
    "main": "def main():\n    " + ADD + "\nif __name__ == '__main__':\n    main()",
    "sys.exit": "import sys\n" + ADD + "\nsys.exit(0)\nprint('more')",
    "exit()": ADD + "\nexit()",
    "atexit": "import atexit\nn = input()\natexit.register(lambda: print(sum(map(int, n.split()))))",
    "own stdout": "import sys, io\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, 'utf-8')\n" + ADD,
    "buffer out": "import sys\nsys.stdout.buffer.write(b'%d' % sum(map(int, input().split())))",
    "thread": "import threading\ndef main(): " + ADD + "\nthreading.stack_size(1 << 27)\n"
    "t = threading.Thread(target=main)\nt.start()\nt.join()",
    "limits": "import resource, sys\nresource.setrlimit(resource.RLIMIT_STACK, (-1, -1))\n"
    "sys.setrecursionlimit(10**7)\n" + ADD,
    "optional file": "import os, sys\nif os.path.exists('in.txt'): sys.stdin = open('in.txt')\n" + ADD,
    "future": "from __future__ import annotations\n" + ADD,
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n" + ADD,
}


@pytest.mark.parametrize("name", IDIOMS)
async def test_the_usual_ways_to_read_and_write(sandbox: Sandbox, name: str) -> None:
    result = await run_stdin(
        sandbox, IDIOMS[name], [StdinTest("1 2 39\r\n", "42\n")], QUICK, prelude="import re"
    )
    assert result.passed, result.tests


async def test_deep_recursion_has_the_stack_it_needs(sandbox: Sandbox) -> None:
    code = (
        "import sys, functools\nsys.setrecursionlimit(10**6)\n@functools.lru_cache(None)\n"
        "def depth(n): return 0 if n == 0 else 1 + depth(n - 1)\nprint(depth(40000))"
    )
    result = await run_stdin(sandbox, code, [StdinTest("", "40000")], SolutionLimits(stack_mb=512))
    assert result.passed, result.tests


FAILURES = {
    "wrong": ("print(41)", V.WRONG_ANSWER),
    "silent": ("", V.WRONG_ANSWER),
    "exit 0": ("import sys\nsys.exit(0)", V.WRONG_ANSWER),
    "exception": ("print(42)\n1 / 0", V.RUNTIME_ERROR),
    "unknown module": ("import numpyy\nprint(42)", V.RUNTIME_ERROR),
    "no network": ("import socket\nprint(42)", V.RUNTIME_ERROR),
    "harness module": ("import ctypes\nprint(42)", V.RUNTIME_ERROR),
    "recursion": ("def f(): f()\nf()", V.RUNTIME_ERROR),
    "loop": ("while True: pass", V.TIME_LIMIT),
    "loop that swallows": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        V.TIME_LIMIT,
    ),
    "memory": ("x = [0] * 10**10", V.MEMORY_LIMIT),
    "flood": ("while True: print('x' * 1000)", V.OUTPUT_LIMIT),
    "flood that swallows": (
        "try:\n    while True: print('x' * 10**5)\nexcept BaseException: print(42)",
        V.OUTPUT_LIMIT,
    ),
    "syntax": ("print(42", V.SYNTAX),
    "null byte": ("print(42)\0", V.SYNTAX),
    "syntax at run time": ("eval('1 +')", V.RUNTIME_ERROR),
    "file": ("print(open('/etc/passwd').read())", V.REFUSED),
    "fork": ("import os\nos.fork()\nprint(42)", V.REFUSED),
    "os._exit(0)": ("import os\nprint(42)\nos._exit(0)", V.CRASH),
    "abort": ("import os\nos.abort()", V.CRASH),
    "forged frame": ("import os\nos.write(3, b'\\0\\0\\0\\3xyz')\nprint(42)", V.REFUSED),
    "forged output": (
        "import os, json\nb = json.dumps({'r': [json.dumps({'out': 42})]}).encode()\n"
        "os.write(3, len(b).to_bytes(4, 'big') + b)",
        V.REFUSED,
    ),
}


async def test_failures_have_their_own_verdicts(sandbox: Sandbox) -> None:
    tests = [StdinTest("1 2 39\n", "42\n")]
    jobs = [lambda code=code: run_stdin(sandbox, code, tests, QUICK) for code, _ in FAILURES.values()]
    found = {name: r.verdict for name, r in zip(FAILURES, await spread(jobs), strict=True)}
    assert found == {name: verdict for name, (_, verdict) in FAILURES.items()}


async def test_a_sleeper_meets_the_wall_limit(sandbox: Sandbox) -> None:
    code = "import time\ntime.sleep(60)\nprint(42)"
    (test,) = (await run_stdin(sandbox, code, [StdinTest("", "42")], SLEEPER)).tests
    assert test.verdict is V.TIME_LIMIT and "0.5 s" in test.detail


async def test_every_input_meets_a_fresh_process(sandbox: Sandbox) -> None:
    code = (
        "import math, builtins\nn = input()\nprint(getattr(math, 'seen', n))\n"
        "math.seen = n\nbuiltins.print = None"
    )
    tests = [StdinTest("1", "1"), StdinTest("2", "2"), StdinTest("3", "4"), StdinTest("5", "5")]
    result = await run_stdin(sandbox, code, tests, QUICK)
    assert [t.verdict for t in result.tests] == [V.PASSED, V.PASSED, V.WRONG_ANSWER]
    assert not result.passed and result.asked == 4
    whole = await run_stdin(sandbox, code, tests, QUICK, stop_at_first_failure=False)
    assert [t.verdict for t in whole.tests] == [V.PASSED, V.PASSED, V.WRONG_ANSWER, V.PASSED]
    assert not whole.passed and whole.verdict is V.WRONG_ANSWER


async def test_large_inputs_and_outputs_cross_in_chunks(sandbox: Sandbox) -> None:
    text = "\n".join(f'{i} é\\"' for i in range(150_000))
    code = "import sys\nsys.stdout.write(sys.stdin.read())"
    result = await run_stdin(sandbox, code, [StdinTest(text, text)])
    assert len(text) > 1 << 20 and result.passed, result.verdict


async def test_no_test_is_no_pass(sandbox: Sandbox) -> None:
    for run in (run_stdin(sandbox, ADD, []), run_function(sandbox, ADD, "f", [])):
        with pytest.raises(InputError, match="without a single test"):
            await run
    assert not SolutionResult((), 0).passed and not SolutionResult((), 1).passed


async def test_numpy_by_config() -> None:
    code = "import numpy as np\ndef f(x): return [np.sum(x), np.array(x)]"
    tests = [FunctionTest([[1, 2]], [3, [1, 2]])]
    async with await Sandbox.start(SandboxConfig(numpy=True)) as with_numpy:
        assert (await run_function(with_numpy, code, "f", tests)).passed
        check = "import numpy as np\nassert np.allclose(f([1, 2])[1], [1.0, 2.0])"
        assert (await run_script(with_numpy, code, check)).passed
    async with await Sandbox.start(SandboxConfig()) as without:
        (test,) = (await run_function(without, code, "f", tests)).tests
    assert test.verdict is V.RUNTIME_ERROR and "numpy" in test.detail


async def test_all_listed_modules_can_be_imported(sandbox: Sandbox) -> None:
    code = "\n".join(f"import {m}" for m in SOLUTION_MODULES if m != "__future__") + "\nprint(42)"
    assert (await run_stdin(sandbox, code, [StdinTest("", "42")])).passed


# --- functions -----------------------------------------------------------------------------------------

SOLUTION = """
from typing import List
class Solution:
    calls = 0
    def __init__(self): self.fresh = True
    def add(self, a: int, b: int) -> List[int]:
        assert self.fresh
        self.fresh = False
        Solution.calls += 1
        return (a + b, Solution.calls)
def add(a, b): return "not this one"
"""


async def test_methods_of_solution_and_functions(sandbox: Sandbox) -> None:
    tests = [FunctionTest.parse("1\n2", "[3, 1]"), FunctionTest([5, 6], [11, 2])]
    assert (await run_function(sandbox, SOLUTION, "add", tests, QUICK)).passed
    code = "from collections import *\ndef f(x): return Counter(x)"
    tests = [FunctionTest(["aab"], {"a": 2, "b": 1}), FunctionTest([["b"]], {"b": 1})]
    assert (await run_function(sandbox, code, "f", tests, QUICK)).passed
    with pytest.raises(InputError, match="not JSON"):
        FunctionTest.parse("1\n{", "1")


async def test_the_next_test_gets_a_new_process_after_a_death(sandbox: Sandbox) -> None:
    code = "import os\ndef f(x):\n    if x == 1: os._exit(0)\n    if x == 2: return 1 / 0\n    return x"
    tests = [FunctionTest([x], x) for x in (0, 1, 2, 3)]
    result = await run_function(sandbox, code, "f", tests, QUICK, stop_at_first_failure=False)
    assert [t.verdict for t in result.tests] == [V.PASSED, V.CRASH, V.RUNTIME_ERROR, V.PASSED]
    first = await run_function(sandbox, code, "f", tests, QUICK)
    assert [t.verdict for t in first.tests] == [V.PASSED, V.CRASH] and not first.passed


ALWAYS_EQUAL = """
class Always:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    __class__ = int
class Text(str):
    def __eq__(self, other): return True
    __hash__ = str.__hash__
"""


@pytest.mark.parametrize(
    ("body", "expected", "verdict"),
    [
        ("return Always()", 7, V.WRONG_ANSWER),
        ("return [Always()]", [7], V.WRONG_ANSWER),
        ("return Text('b')", "a", V.WRONG_ANSWER),
        ("return {Always(): 1}", {"a": 1}, V.WRONG_ANSWER),
        ("return float('nan')", 7, V.WRONG_ANSWER),
        ("import sys; sys.exit(0)", 7, V.RUNTIME_ERROR),
        ("return iter([7])", 7, V.WRONG_ANSWER),
        ("return iter(int, 1)", 7, V.OUTPUT_LIMIT),
        ("return [0] * 3000000", 7, V.OUTPUT_LIMIT),
        ("x = []; x.append(x); return x", 7, V.OUTPUT_LIMIT),
        ("return 'x' * 5000000", 7, V.OUTPUT_LIMIT),
        ("raise Exception(Always())", 7, V.RUNTIME_ERROR),
    ],
)
async def test_what_a_function_returns_cannot_lie(
    sandbox: Sandbox, body: str, expected: Any, verdict: SolutionVerdict
) -> None:
    code = f"{ALWAYS_EQUAL}\ndef f(x):\n    {body}\n"
    limits = SolutionLimits(cpu_seconds=5.0, output_bytes=1 << 20)
    result = await run_function(sandbox, code, "f", [FunctionTest([1], expected)], limits)
    assert result.verdict is verdict and not result.passed, result.tests


DEEP = """
import os, json
def f(n):
    deep = "[" * n + "]" * n
    text = '{"value":%s}' % deep if n % 2 else '{"error":"x","detail":%s}' % deep
    body = json.dumps({"r": [text]}).encode()
    os.write(3, len(body).to_bytes(4, "big") + body)
    os.read(3, 1)
"""


async def test_answers_nested_to_the_limit_are_refused(sandbox: Sandbox) -> None:
    jobs = [
        lambda n=n: run_function(sandbox, DEEP, "f", [FunctionTest([n], 1)], QUICK)
        for n in (300, *range(901, 1000, 7))
    ]
    assert not any(r.passed for r in await spread(jobs))


async def test_missing_functions_and_modules_that_do_not_load(sandbox: Sandbox) -> None:
    tests = [FunctionTest([1], 1), FunctionTest([2], 2)]
    for code, verdict in (
        ("def g(x): return x", V.RUNTIME_ERROR),
        ("def f(x) return x", V.SYNTAX),
        ("import sys\nsys.exit(0)", V.RUNTIME_ERROR),
        ("while True: pass", V.TIME_LIMIT),
    ):
        assert (await run_function(sandbox, code, "f", tests, QUICK)).verdict is verdict


# --- check programs ------------------------------------------------------------------------------------

CHECK = (
    "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(2, 2) == 4\ncheck(add)\n"
)
FORGERIES = {
    "exit": "import sys\nsys.exit(0)",
    "exit in the call": "import sys\ndef add(a, b): sys.exit(0)",
    "os._exit": "import os\ndef add(a, b): os._exit(0)",
    "always equal": ALWAYS_EQUAL + "def add(a, b): return Always()",
    "patched built-ins": "import builtins\nbuiltins.AssertionError = builtins.Exception = None\n"
    "builtins.abs = lambda x: 0\ndef add(a, b): return 5",
    "raises an assertion": "def add(a, b): raise AssertionError",
    "frames": "import sys\ndef add(a, b):\n    f = sys._getframe()\n    while f:\n"
    "        f.f_globals['check'] = f.f_builtins['len'] = lambda *a: None\n        f = f.f_back\n"
    "    return 0",
    "every object": "import gc\ndef add(a, b):\n    for o in gc.get_objects():\n"
    "        if type(o).__name__ == 'Guest':\n            o.channel.reply({'ok': 1})\n    return 0",
    "a forged end": "import os, json\ndef add(a, b):\n"
    "    b = json.dumps({'r': [json.dumps({'ok': 1})]}).encode()\n"
    "    os.write(3, len(b).to_bytes(4, 'big') + b)\n    while True: pass",
    "a question back": "import gc\ndef add(a, b):\n    for o in gc.get_objects():\n"
    "        if type(o).__name__ == 'Guest':\n"
    "            return o.inquire('attr', {'handle': ['b', 0], 'name': '__globals__', 'new': []})",
    "questions for ever": "import gc\ndef add(a, b):\n    for o in gc.get_objects():\n"
    "        if type(o).__name__ == 'Guest':\n            return o.inquire('get', {'name': 'check'})",
    "its own value": "def add(a, b): return {'ok': 1}",
}


async def test_a_check_program_cannot_be_fooled(sandbox: Sandbox) -> None:
    jobs = [lambda code=code: run_script(sandbox, code, CHECK, QUICK) for code in FORGERIES.values()]
    results = dict(zip(FORGERIES, await spread(jobs), strict=True))
    assert [name for name, r in results.items() if r.passed] == []
    assert results["always equal"].verdict is V.WRONG_ANSWER
    assert "check line 2" in results["always equal"].tests[0].detail
    assert results["exit"].verdict is V.RUNTIME_ERROR and results["os._exit"].verdict is V.CRASH
    assert (await run_script(sandbox, "def add(a, b): return a + b", CHECK, QUICK)).passed


SCRIPTS = {
    "changed in place": ("def f(x): x.sort()", "a = [3, 1]\nf(a)\nassert a == [1, 3]", True),
    "exceptions": (
        "def f(x): raise ValueError('no')",
        "try:\n    f(1)\nexcept ValueError as e:\n    assert 'no' in str(e)\nelse:\n    assert False",
        True,
    ),
    "callbacks": ("def f(g, xs): return [g(x) for x in xs]", "assert f(lambda x: x + 1, [1]) == [2]", True),
    "types": ("def f(x, t): return isinstance(x, t)", "assert f(1, int) and not f(1, str)", True),
    "iterators": (
        "def f(n):\n    yield from range(n)",
        "assert list(f(3)) == [0, 1, 2] and f(3) != [0, 1, 2]",
        True,
    ),
    "exact types": ("def f(): return (1, 2)", "assert f() == [1, 2]", False),
    "keywords": ("def f(a, *, b=1): return a - b", "assert f(3, b=1) == 2", True),
    "objects": (
        "class Node:\n    def __init__(self, v): self.v, self.next = v, None\n"
        "def f(n): return n.v + (f(n.next) if n.next else 0)",
        "a = Node(1)\na.next = Node(2)\nassert f(a) == 3 and a.next.v == 2 and a == a and a != Node(1)",
        True,
    ),
    "a solution's import": ("import math\ndef f(x): return x", "assert math.isclose(f(0.1), 0.1)", True),
    "helpers": ("def g(x): return x + 1\ndef f(x): return g(x)", "import random\nassert f(1) == g(1)", True),
    "main guard": ("def f(): return 1", "if __name__ == '__main__':\n    assert f() == 2", False),
    "error in the check": ("def f(): return None", "assert abs(f() - 1) < 1", False),
    "built-in names stay": (
        "def f(): return [1]\ndef set(x): return 0",
        "assert set(f()) == set([2])",
        False,
    ),
    "loop": ("def f():\n    while True: pass", "assert f() == 1", False),
    "unknown name": ("def g(): return 1", "assert f() == 1", False),
}


async def test_check_programs_see_ordinary_functions(sandbox: Sandbox) -> None:
    jobs = [lambda c=c, t=t: run_script(sandbox, c, t, QUICK) for c, t, _ in SCRIPTS.values()]
    found = {name: r.passed for name, r in zip(SCRIPTS, await spread(jobs), strict=True)}
    assert found == {name: passed for name, (_, _, passed) in SCRIPTS.items()}


async def test_a_function_named_like_a_built_in_one(sandbox: Sandbox) -> None:
    code = "def sum(a, b): return a + b"
    with pytest.raises(InputError, match="entry"):
        await run_script(sandbox, code, "assert sum(1, 2) == 3")
    assert (await run_script(sandbox, code, "assert sum(1, 2) == 3", entry="sum")).passed
    with pytest.raises(InputError, match="does not parse"):
        await run_script(sandbox, code, "assert sum(")


def test_free_names() -> None:
    code = (
        "import a\nfrom b import c as d\ndef e(f):\n    global g\n    g = h(f, k=len(f))\n"
        "    return [i for i in j]\ne(l)"
    )
    assert free_names(code) == ["h", "j", "l"]


async def test_pairs_do_not_wait_for_each_other() -> None:
    good = "def add(a, b): return a + b"
    async with await Sandbox.start(SandboxConfig(max_workers=2)) as narrow:
        async with asyncio.timeout(60):
            results = await asyncio.gather(*(run_script(narrow, good, CHECK) for _ in range(6)))
        assert all(r.passed for r in results)
    async with await Sandbox.start(SandboxConfig(max_workers=1)) as single:
        with pytest.raises(ConfigError, match="max_workers"):
            await run_script(single, good, CHECK)


# --- faults --------------------------------------------------------------------------------------------


async def test_a_worker_killed_from_outside_is_a_fault_and_not_a_failure(sandbox: Sandbox) -> None:
    code, tests = "while True: pass", [StdinTest("", "42")]
    task = asyncio.create_task(run_stdin(sandbox, code, tests))
    while not any(p.busy for p in sandbox._processes):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    for process in sandbox._processes:
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(ProgramFault) as caught:
        await task
    assert caught.value.code is FaultCode.LOST


async def test_nothing_is_left_behind() -> None:
    before = set(os.listdir("/proc/self/fd"))
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        await run_script(sandbox, "def add(a, b): return a + b", CHECK)
        await run_stdin(sandbox, "while True: pass", [StdinTest("", "")], QUICK)
        assert not sandbox._processes
        pids = [link.process.pid for link in sandbox._links.values()]
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1  # the listing's own descriptor


@pytest.mark.parametrize("level", ["L3", "L2", "L2s"])
async def test_every_level_runs_and_refuses(level: str) -> None:
    try:
        opened = await Sandbox.start(SandboxConfig(force_level=level, min_level=level))
    except SandboxError as error:
        pytest.skip(f"NOT RUN: {error}")
    async with opened:
        for name in ("thread", "fast io", "optional file"):
            assert (await run_stdin(opened, IDIOMS[name], [StdinTest("1 2 39\n", "42")], QUICK)).passed
        for name in ("file", "fork", "memory"):
            code, verdict = FAILURES[name]
            assert (await run_stdin(opened, code, [StdinTest("", "42")], QUICK)).verdict is verdict
        assert (await run_script(opened, "def add(a, b): return a + b", CHECK, QUICK)).passed


def test_the_example_of_the_page_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "environments.md"
    part = page.read_text(encoding="utf-8").partition("## Running code-benchmark solutions")[2]
    code, shown = (re.search(rf"```{kind}\n(.*?)```", part, re.S) for kind in ("python", "text"))
    assert code is not None and shown is not None
    exec(compile(code.group(1), str(page), "exec"), {})
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == shown.group(1).splitlines()
