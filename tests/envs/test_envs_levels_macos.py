"""Level L1: the Seatbelt profile, how it is applied, and its portable code path, run on other systems.

Nothing here shows that Seatbelt works: that takes a Mac. A stand-in for `seatbelt.py` puts our seccomp filter
where Seatbelt would be, so that everything else of the level is as on macOS: no pidfd, no namespaces, no
address-space limit, kills through the zygote, memory watched by the parent.
"""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from envs_programs import ECHO
from levels_probe import BODIES, FAULTS, assert_contained, config, contained

from spade.config import SandboxConfig
from spade.envs import launch, levels, seatbelt, selftest, usage
from spade.envs.link import Place
from spade.envs.process import Ended
from spade.envs.sandbox import Sandbox
from spade.errors import FaultCode, ProgramFault, SandboxError

STAND_IN = '''
"""Stands in for seatbelt.py where there is no Seatbelt."""
from spade.envs import confine

def load():
    return confine.build_filter(confine.machine())

def leave_root(uid):
    pass

def apply(program):
    confine.no_new_privs()
    confine.install_filter(program)
'''
GREEDY = (
    "x = []\n        while True:\n            x.append(bytearray(4 << 20))\n            sum(range(300_000))"
)
BODIES_HERE = {**{k: v for k, v in BODIES.items() if "memory" not in k}, "memory": GREEDY}
FAULTS_HERE = {name: FAULTS[name] for name in BODIES_HERE}


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zygote's files in a folder of their own, with another `seatbelt.py`."""
    if sys.platform != "linux":
        pytest.skip("the stand-in uses Linux's seccomp")
    folder = tmp_path / "envs"
    shutil.copytree(Path(launch.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "seatbelt.py").write_text(STAND_IN)
    monkeypatch.setattr(launch, "_FOLDER", folder)


# --- the profile ---------------------------------------------------------------------------------------


def test_the_profile() -> None:
    assert seatbelt.PROFILE == (
        "(version 1)\n"
        "(deny default)\n"
        "(deny file-read*)\n"
        "(deny file-write*)\n"
        "(deny network*)\n"
        "(deny process-exec)\n"
        "(deny process-fork)\n"
        "(deny signal)\n"
        "(allow signal (target self))\n"
    )


class FakeLibrary:
    """`libsandbox` as ctypes sees it."""

    def __init__(self, status: int) -> None:
        self.seen: list[tuple[bytes, int]] = []
        self._text = ctypes.create_string_buffer(b"profile line 2: unknown")
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_char_p)
        )

        def initialise(profile: bytes, flags: int, message: Any) -> int:
            self.seen.append((profile, flags))
            if status:
                message[0] = ctypes.cast(self._text, ctypes.c_char_p)
            return status

        self.sandbox_init = kind(initialise)


def test_the_profile_reaches_the_system_as_text() -> None:
    library: Any = FakeLibrary(0)
    seatbelt.apply(library)
    assert library.seen == [(seatbelt.PROFILE.encode(), 0)]


def test_a_profile_the_system_refuses_is_an_error() -> None:
    library: Any = FakeLibrary(-1)
    with pytest.raises(OSError, match="Seatbelt: profile line 2: unknown"):
        seatbelt.apply(library)


# --- when it is chosen ---------------------------------------------------------------------------------


def test_macos_offers_l1_and_linux_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels.bwrap, "find", lambda: None)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert levels.candidates(None, False) == [Place("L1")]
    assert levels.candidates(None, True) == [Place("L1"), Place("L0")]
    monkeypatch.setattr(sys, "platform", "linux")
    assert [p.level for p in levels.candidates(None, False)] == ["L3", "L2", "L2s"]


async def test_macos_with_the_default_min_level_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "candidates", lambda force, unsafe: [Place("L1")])
    monkeypatch.setattr(levels.sys, "platform", "darwin")
    with pytest.raises(SandboxError, match=r"never run on a Mac: sandbox\.min_level=L1"):
        await levels.establish(None, "L2s", False, 64)


@pytest.mark.skipif(sys.platform == "darwin", reason="there it exists")
async def test_elsewhere_l1_is_refused_in_one_sentence() -> None:
    with pytest.raises(SandboxError, match="Seatbelt exists on macOS only"):
        await Sandbox.start(SandboxConfig(force_level="L1", min_level="L1"))


# --- the portable path ---------------------------------------------------------------------------------


async def gone(pids: set[int]) -> None:
    """Wait until these processes hold nothing any more."""
    async with asyncio.timeout(20):
        while any(usage.resident_bytes(pid) for pid in pids):
            await asyncio.sleep(0.01)


async def test_hostile_programs_on_the_portable_path(stand_in: None) -> None:
    cfg = config("L1", cpu_seconds=1.0)
    result = await contained(cfg, BODIES_HERE)
    assert result["level"] == "L1"
    assert_contained(result, FAULTS_HERE)


async def test_a_whole_life_without_pidfd(stand_in: None) -> None:
    async with await Sandbox.start(config("L1")) as sandbox:
        assert set(sandbox.self_test) >= selftest.expected("L1") and all(sandbox.self_test.values())
        worker = await sandbox.open(ECHO)
        assert await worker.reset(0, 4) == "seed 4"
        assert (await worker.play(0, 4, ["a", "win"])).value == 1.0
        assert worker._process._pidfd is None and worker.pid > 0
        assert usage.resident_bytes(worker.pid) > 1 << 20
        with pytest.raises(ProgramFault) as caught:
            await worker.step(0, "loop")
        assert caught.value.code in (FaultCode.CPU_LIMIT, FaultCode.WALL_LIMIT)
        assert worker.ended is Ended.KILLED
        other = await sandbox.open(ECHO)
        assert await other.reset(0, 5) == "seed 5"
        pids = {worker.pid, other.pid}
        async with asyncio.timeout(10):
            while sandbox.processes > 1:  # the killed one is reaped
                await asyncio.sleep(0.01)
    await gone(pids)


async def test_workers_end_with_a_lost_zygote(stand_in: None) -> None:
    """No system call ties them to it: the parent ends them by number."""
    async with await Sandbox.start(config("L1", cpu_seconds=20.0)) as sandbox:
        worker = await sandbox.open(ECHO)
        await worker.reset(0, 1)
        task = asyncio.create_task(worker.batch([("s", 0, "loop")]))
        await asyncio.sleep(0.05)
        (link,) = sandbox._links.values()
        os.killpg(link.process.pid, signal.SIGKILL)
        (result,) = await task
        assert isinstance(result, ProgramFault) and result.code is FaultCode.LOST
        await gone({worker.pid})


async def test_a_profile_that_does_not_hold_is_found_out(
    stand_in: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = STAND_IN.replace("confine.install_filter(program)", "pass")
    (tmp_path / "envs" / "seatbelt.py").write_text(empty)
    with pytest.raises(SandboxError, match=r"self-test of level L1 failed \(.*read a file.*witness"):
        await Sandbox.start(config("L1"))


# --- usage of other processes --------------------------------------------------------------------------


def test_usage_of_ourselves_and_of_nobody() -> None:
    assert usage.cpu_seconds(os.getpid()) > 0
    before = usage.resident_bytes(os.getpid())
    with mmap.mmap(-1, 64 << 20) as block:  # a mapping of its own: an allocator would give freed memory again
        block.write(b"x" * len(block))
        assert usage.resident_bytes(os.getpid()) - before > len(block) // 2
    assert usage.cpu_seconds(2**22 + 1) == 0.0 and usage.resident_bytes(2**22 + 1) == 0


def test_usage_as_macos_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`struct rusage_info_v0`: an identifier of 16 bytes, then ten numbers of 64 bits."""
    assert ctypes.sizeof(usage._RusageInfo) == 16 + 10 * 8

    class Library:
        @staticmethod
        def proc_pid_rusage(pid: int, flavour: int, info: Any) -> int:
            if pid != 7 or flavour != 0:
                return -1
            record = info._obj
            record.user, record.system, record.resident, record.footprint = 24_000_000, 12_000_000, 5, 9
            return 0

    monkeypatch.setattr(usage, "_libproc", lambda: (Library(), 125 / 3 / 1e9))  # ticks of an M1
    monkeypatch.setattr(usage.sys, "platform", "darwin")
    assert usage.cpu_seconds(7) == pytest.approx(1.5) and usage.resident_bytes(7) == 9
    assert usage.cpu_seconds(8) == 0.0 and usage.resident_bytes(8) == 0
