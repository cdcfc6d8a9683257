"""The engine: batches, faults, limits, isolation of instances, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from envs_programs import ECHO, game, program, reply

from spade.config import SandboxConfig, ValidateConfig
from spade.envs.launch import Place, clean_environment, zygote_command
from spade.envs.process import Ended
from spade.envs.sandbox import BANNER, SPARES, Sandbox
from spade.envs.validate import RETRIES, validate
from spade.envs.wire import (
    Op,
    PlayTrace,
    StepResult,
)
from spade.errors import ConfigError, FaultCode, FaultKind, ProgramFault, SandboxError
from spade.types import EnvProgram

PTRACE = {"aarch64": 117}.get(platform.machine(), 101)
"""A system call for which the filter kills."""
LIMITS = SandboxConfig(cpu_seconds=0.3, wall_factor=10.0)


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(LIMITS) as running:
        yield running


async def fault_of(sandbox: Sandbox, code: str) -> ProgramFault:
    with pytest.raises(ProgramFault) as caught:
        worker = await sandbox.open(code)
        await worker.reset(0, 1)
        await worker.step(0, "go")
    return caught.value


async def test_conveniences(sandbox: Sandbox) -> None:
    worker = await sandbox.open(ECHO)
    assert (worker.info.class_name, worker.info.max_turns, worker.info.has_solution) == ("EchoEnv", 10, True)
    assert await worker.reset(3, 5) == "seed 5"
    assert await worker.step(3, "hi") == StepResult("5:hi", 0.25, False, False)
    assert await worker.solution(3) == ["win"]
    trace = await worker.play(3, 6, ["a", "win", "never"], after=["late"])
    assert trace == PlayTrace(
        ["seed 6", "6:a", "won"], [0.25, 1.0], True, False, [StepResult("6:late", 0.25, False, False)]
    )
    assert trace.value == 1.0 and trace.ended
    await worker.drop(3)
    with pytest.raises(ProgramFault) as caught:
        await worker.step(3, "x")  # a new instance that was never reset
    assert caught.value.code is FaultCode.EXCEPTION


async def test_a_batch_keeps_order_and_isolates_faults(sandbox: Sandbox) -> None:
    worker = await sandbox.open(ECHO)
    ops = [Op.reset(0, 1), Op.reset(1, 2), Op.step(1, "b"), Op.step(0, "raise"), Op.step(0, "a")]
    results = await worker.batch(ops)
    assert results[:3] == ["seed 1", "seed 2", StepResult("2:b", 0.25, False, False)]
    assert isinstance(results[3], ProgramFault) and results[3].code is FaultCode.EXCEPTION
    assert "ValueError: as asked (line" in results[3].detail
    assert results[4] == StepResult("1:a", 0.25, False, False)


async def test_a_kill_fails_the_rest_of_the_batch(sandbox: Sandbox) -> None:
    worker = await sandbox.open(ECHO)
    results = await worker.batch(
        [Op.reset(0, 1), Op.step(0, "burn400000"), Op.step(0, "loop"), Op.step(0, "a")]
    )
    assert all(isinstance(r, ProgramFault) and r.code is FaultCode.CPU_LIMIT for r in results[2:])
    assert worker.ended is Ended.KILLED
    assert isinstance((await worker.batch([Op.reset(0, 1)]))[0], ProgramFault)


async def test_the_limit_is_per_operation_not_per_message(sandbox: Sandbox) -> None:
    code = program("n = 0\n        while n < 2_000_000: n += 1\n        return 'x', 0.0, False, False, {}")
    worker = await sandbox.open(code)
    results = await worker.batch([Op.reset(0, 1)] + [Op.step(0, "a")] * 8)
    assert all(isinstance(r, StepResult) for r in results[1:])


async def test_the_kill_comes_after_the_deadline_and_not_before(sandbox: Sandbox) -> None:
    worker = await sandbox.open(program("time.sleep(1e6)"))
    await worker.reset(0, 1)
    worker._process.limits = (0.2, 0.2)
    started = time.monotonic()
    with pytest.raises(ProgramFault) as caught:
        await worker.step(0, "go")
    assert time.monotonic() - started >= 0.2  # how soon after it: benchmarks/envs.py
    assert caught.value.code is FaultCode.WALL_LIMIT


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (reply(reward="float('nan')"), FaultCode.CONTRACT),
        (reply(reward="float('inf')"), FaultCode.CONTRACT),
        (reply(reward="True"), FaultCode.CONTRACT),
        (reply(reward="10**400"), FaultCode.CONTRACT),
        (reply(reward="'1'"), FaultCode.CONTRACT),
        (reply(observation="b'x'"), FaultCode.CONTRACT),
        (reply(rest="0, False, {}"), FaultCode.CONTRACT),
        (reply(rest="False, False, None"), FaultCode.CONTRACT),
        (reply(rest="False, False"), FaultCode.CONTRACT),
        (program("return 1/0"), FaultCode.EXCEPTION),
        (program("raise SystemExit"), FaultCode.EXCEPTION),
        (program("raise KeyboardInterrupt"), FaultCode.EXCEPTION),
        (program("x = 'a' * (1 << 40)"), FaultCode.MEMORY),
        (program("pass", reset="return 'only text'"), FaultCode.CONTRACT),
        (program("os._exit(0)"), FaultCode.CRASH),
        (program("import numpy"), FaultCode.IMPORT_REFUSED),
        (program("os.write(3, b'x')"), FaultCode.PROTOCOL),
        (program("os.close(3); time.sleep(60)"), FaultCode.PROTOCOL),
        (program("return open('/etc/passwd').read(), 0.0, False, False, {}"), FaultCode.EXCEPTION),
        ("def f(:", FaultCode.SYNTAX),
        ("import socketserver", FaultCode.IMPORT_REFUSED),
        (program(f"import ctypes; ctypes.CDLL(None).syscall({PTRACE}, 0, 0, 0, 0)"), FaultCode.POLICY),
        (program("os.abort()"), FaultCode.CRASH),
        (program("os.fork()"), FaultCode.POLICY),
        (program("x = b'x'\n        while True: x += x"), FaultCode.MEMORY),
        (program("while True: pass"), FaultCode.CPU_LIMIT),
        (program("pass", reset="re.match('(a+)+$', 'a' * 60 + 'b'); return 'o', {}"), FaultCode.CPU_LIMIT),
        ("while True: pass", FaultCode.CPU_LIMIT),
        (program("time.sleep(1e6)"), FaultCode.WALL_LIMIT),
        (program("os.write(3, b'\\0\\0\\0\\2{}'); os._exit(0)"), FaultCode.PROTOCOL),
        ("x = 1", FaultCode.CONTRACT),
        ("class AEnv:\n    pass", FaultCode.CONTRACT),
    ],
)
async def test_faults_are_typed(sandbox: Sandbox, code: str, expected: FaultCode) -> None:
    fault = await fault_of(sandbox, code)
    allowed = {expected}
    if "open(" in code:
        allowed.add(FaultCode.POLICY)  # the exception it raises, or the attempt itself
    if expected is FaultCode.CPU_LIMIT:
        allowed.add(FaultCode.WALL_LIMIT)  # on a machine too busy to give it its CPU time
    assert fault.code in allowed
    assert fault.kind is FaultKind.PROGRAM


def test_every_code_says_who_pays() -> None:
    nobodys = {code for code in FaultCode if ProgramFault(code).kind is FaultKind.INFRASTRUCTURE}
    assert nobodys == {FaultCode.LOST}


async def test_a_limit_of_wall_time_is_tried_again_before_the_program_is_blamed() -> None:
    code = game(step="time.sleep(1e6)").replace("import random, re", "import random, re, time")
    async with await Sandbox.start(SandboxConfig(cpu_seconds=0.1, wall_factor=2.0)) as sandbox:
        opened = []
        plain = sandbox.open

        async def counted(code: str, **options: bool) -> object:
            opened.append(options.get("replay", False))
            return await plain(code, **options)

        sandbox.open = counted  # type: ignore[assignment, method-assign]
        verdict = await validate(EnvProgram.of(code), sandbox, ValidateConfig())
    assert verdict.code == FaultCode.WALL_LIMIT and not verdict.accepted
    assert opened.count(False) == RETRIES + 1 == 3


async def test_forbidden_attempts_are_refused_even_when_swallowed(sandbox: Sandbox) -> None:
    body = "try: os.listdir('/')\n        except OSError: pass\n        return 'x', 0.0, False, False, {}"
    fault = await fault_of(sandbox, program(body))
    assert fault.code is FaultCode.POLICY and "os.listdir" in fault.detail


async def test_text_is_repaired_and_cut(sandbox: Sandbox) -> None:
    surrogates = reply(observation=r"'a\ud800b\U0001F600'")
    worker = await sandbox.open(surrogates)
    await worker.reset(0, 1)
    assert (await worker.step(0, "go")).observation == "a\ufffdb\U0001f600"
    worker = await sandbox.open(reply(observation=r"'\U0001F600' * 100_000"))
    await worker.reset(0, 1)
    cut = (await worker.step(0, "go")).observation
    assert len(cut.encode()) == 64 * 1024 and set(cut) == {"\U0001f600"}


async def test_instances_have_their_own_global_random(sandbox: Sandbox) -> None:
    code = program(
        "return str(random.random()), 0.0, False, False, {}", reset="return str(random.random()), {}"
    )
    worker = await sandbox.open(code)
    alone = await worker.batch([Op.reset(0, 5), Op.step(0, "a"), Op.step(0, "a")])
    mixed = await worker.batch(
        [Op.reset(1, 5), Op.reset(2, 9), Op.step(1, "a"), Op.step(2, "a"), Op.step(1, "a")]
    )
    assert [mixed[0], mixed[2], mixed[4]] == alone
    assert mixed[1] != mixed[0]


async def test_clocks_and_entropy_are_the_same_in_every_process(sandbox: Sandbox) -> None:
    body = (
        "return repr((time.time(), time.monotonic_ns(), datetime.datetime.now(), datetime.date.today(), "
        "os.urandom(4), random.SystemRandom().random(), random.Random().random(), time.localtime()[:6], "
        "time.strftime('%Y'))), 0.0, False, False, {}"
    )
    seen = []
    for again in (False, False, True):
        worker = await sandbox.open(program(body), replay=again)
        await worker.reset(0, 1)
        seen.append((await worker.step(0, "a")).observation)
        await asyncio.sleep(0.02)
    assert seen[0] == seen[1] == seen[2]
    assert "2023" in seen[0]


async def test_string_hashes_differ_only_in_the_replay(sandbox: Sandbox) -> None:
    code = program("return str(hash('abc')), 0.0, False, False, {}")
    seen = []
    for again in (False, False, True):
        worker = await sandbox.open(code, replay=again)
        await worker.reset(0, 1)
        seen.append((await worker.step(0, "a")).observation)
    assert seen[0] == seen[1] != seen[2]


async def test_killed_from_outside_is_nobodys_fault(sandbox: Sandbox) -> None:
    worker = await sandbox.open(ECHO)
    while worker.pid is None:
        await asyncio.sleep(0.01)
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(ProgramFault) as caught:
        await worker.reset(0, 1)
    assert caught.value.kind is FaultKind.INFRASTRUCTURE
    assert worker.ended is Ended.LOST


async def test_a_lost_zygote_is_replaced(sandbox: Sandbox) -> None:
    worker = await sandbox.open(ECHO)
    os.killpg(next(iter(sandbox._links.values())).process.pid, signal.SIGKILL)
    with pytest.raises(ProgramFault) as caught:
        await worker.step(0, "a")
    assert caught.value.code is FaultCode.LOST
    again = await sandbox.open(ECHO)
    assert await again.reset(0, 1) == "seed 1"


async def test_max_workers_waits(sandbox: Sandbox) -> None:
    async with await Sandbox.start(SandboxConfig(max_workers=1)) as small:
        first = await small.open(ECHO)
        second = asyncio.create_task(small.open(ECHO))
        await asyncio.sleep(0.1)
        assert not second.done()
        await first.close()
        assert await (await second).reset(0, 1) == "seed 1"


async def test_a_cancelled_batch_ends_its_worker(sandbox: Sandbox) -> None:
    worker = await sandbox.open(ECHO)
    await worker.reset(0, 1)
    task = asyncio.create_task(worker.step(0, "loop"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert worker.ended is Ended.CLOSED


async def test_a_hundred_workers_asked_for_at_once() -> None:
    async with await Sandbox.start(SandboxConfig(max_workers=100)) as sandbox:
        workers = await asyncio.gather(*(sandbox.open(ECHO) for _ in range(100)))
        answers = await asyncio.gather(*(w.reset(0, k) for k, w in enumerate(workers)))
        assert answers == [f"seed {k}" for k in range(100)]
        assert sandbox.processes == 100
        await asyncio.gather(*(w.close() for w in workers))
        async with asyncio.timeout(20):
            while sandbox.processes:
                await asyncio.sleep(0.01)


def descendants(root: int) -> set[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = path.read_text().split(" (", 1)
        except OSError:
            continue
        parents[int(pid)] = int(rest.rsplit(") ", 1)[1].split()[1])
    found = {root}
    for _ in range(5):
        found |= {p for p, parent in parents.items() if parent in found}
    return found - {root}


async def test_nothing_is_left_behind() -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before, children = descriptors(), descendants(os.getpid())
    sandbox = await Sandbox.start(LIMITS)
    warm = descriptors()
    for k in range(30):
        worker = await sandbox.open(ECHO if k % 2 else program("os._exit(1)"), replay=k % 3 == 0)
        await worker.batch([Op.reset(0, 1), Op.step(0, "x")])
        if k % 5:
            await worker.close()
    running = [await sandbox.open(ECHO) for _ in range(3)]
    # Socket and pidfd of each open worker and of each spare, and the second zygote.
    assert descriptors() <= warm + 2 * 12 + 2 * 2 * SPARES + 1
    await sandbox.close()
    assert all(w.ended is Ended.CLOSED for w in running)
    assert descriptors() == before
    assert descendants(os.getpid()) - children == set()


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.06, 0.12, 0.2])
async def test_nothing_is_left_of_a_start_that_was_interrupted(seconds: float) -> None:
    children, before = descendants(os.getpid()), len(list(Path("/proc/self/fd").iterdir()))
    starting = asyncio.create_task(Sandbox.start(LIMITS))
    await asyncio.sleep(seconds)
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await starting).close()
    assert descendants(os.getpid()) - children == set()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


async def test_a_zygote_that_is_starting_notices_that_its_parent_is_gone() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        command = zygote_command(Place("L0"), theirs.fileno(), 1, 64)
        process = await asyncio.create_subprocess_exec(
            *command, env=clean_environment(1), pass_fds=[theirs.fileno()], stderr=asyncio.subprocess.PIPE
        )
    ours.close()
    async with asyncio.timeout(20):
        _, error = await process.communicate()
    assert (process.returncode, error) == (0, b"")  # it did not get as far as to report that it is ready


async def test_levels_are_demanded_not_hoped_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="no sandbox level"):
        await Sandbox.start(SandboxConfig(min_level="L9"))
    with pytest.raises(SandboxError, match="L2"):
        await Sandbox.start(SandboxConfig(force_level="L2s", min_level="L2"))
    with pytest.raises(SandboxError, match="allow_unsafe"):
        await Sandbox.start(SandboxConfig(force_level="L0", min_level="L0"))
    async with await Sandbox.start(SandboxConfig(force_level="L0", allow_unsafe=True)) as sandbox:
        assert sandbox.level == "L0"
        worker = await sandbox.open(ECHO)
        assert await worker.reset(0, 1) == "seed 1"
    assert capsys.readouterr().err.count(BANNER) == 2


async def test_self_test_tries_at_least_ten_things(sandbox: Sandbox) -> None:
    assert len(sandbox.self_test) >= 10 and sandbox.level in ("L3", "L2", "L2s")


async def test_tool_programs_find_their_base_class(sandbox: Sandbox) -> None:
    code = """
class StoreEnv(ToolEnv):
    tools = {"get": {"description": "get", "parameters": {"n": "integer"}}}
    def setup(self, rng):
        self.n = rng.randint(1, 1000)
        self.tasks = [(f"get {self.n}", lambda s: s.get("got") == self.n)]
    def tool_get(self, n):
        self.state["got"] = n
        return "ok"
    def solution(self):
        return [self.call("get", n=self.n), self.answer]
"""
    worker = await sandbox.open(code)
    assert worker.info.game_type == "tool_use" and len(worker.info.tools) == 1
    await worker.reset(0, 3)
    plan = await worker.solution(0)
    assert (await worker.play(0, 3, list(plan))).value == 1.0
