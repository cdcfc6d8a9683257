"""Levels: what the self-test covers, what is demanded, L3 through bwrap, L0, control messages."""

from __future__ import annotations

import ast
import asyncio
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from envs_programs import ECHO
from hypothesis import given, settings
from hypothesis import strategies as st
from levels_probe import assert_contained, config, contained

from spade.config import SandboxConfig
from spade.envs import bwrap, levels, selftest
from spade.envs.control import CHUNK, Inbox, pack
from spade.envs.link import Place, ZygoteLink
from spade.envs.sandbox import BANNER, Sandbox
from spade.errors import SandboxError

LINUX = ("L3", "L2", "L2s")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="levels of Linux")
pytestmark = linux_only


# --- self-test -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LINUX)
async def test_the_self_test_tries_everything_expected_and_all_is_refused(level: str) -> None:
    try:
        link, outcomes = await levels.establish(level, "L2s", False, 64)
    except SandboxError as error:
        pytest.skip(str(error))
    await link.close()
    assert selftest.expected(level) <= set(outcomes) and all(outcomes.values())
    names = " ".join(outcomes)
    for word in ("environment", "processes", "read a file", "write a file", "remove", "TCP", "UDP", "unix"):
        assert word in names
    for word in ("fork", "thread", "signal", "descriptor", "more memory", "a limit", "namespace", "trace"):
        assert word in names
    assert (levels.PID_NAMESPACE in outcomes) == (level == "L3")


@pytest.mark.parametrize("level", LINUX)
def test_what_was_not_tried_is_not_believed(level: str) -> None:
    wanted = dict.fromkeys(selftest.expected(level) | {levels.PID_NAMESPACE}, True)
    assert levels.missing(level, wanted) == []
    assert levels.missing(level, {}) == ["no answer"]
    for name in selftest.expected(level):
        assert levels.missing(level, {**wanted, name: False}) == [name]
        assert levels.missing(level, {k: v for k, v in wanted.items() if k != name}) == [name]
    seen = "witness: no file changed"
    assert levels.missing(level, {**wanted, seen: False}) == [seen]


async def test_without_confinement_the_self_test_finds_the_holes() -> None:
    """The witness is real: at L0 almost everything goes through, and the parent sees it."""
    link = await ZygoteLink.start(Place("L0"), 1, 64)
    try:
        outcomes = await levels.self_test(link)
    finally:
        await link.close()
    holes = set(levels.missing("L1", outcomes))
    assert {"read a file", "write a file", "connect by TCP", "send by UDP", "execute a program"} <= holes
    assert {"witness: no connection came", "witness: no datagram came", "witness: no file changed"} <= holes
    assert outcomes["take more memory"]  # rlimits hold at every level
    assert "see another descriptor" not in holes


async def test_a_level_with_a_hole_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    real = levels.self_test

    async def leaky(link: ZygoteLink) -> dict[str, bool]:
        return {**await real(link), "fork": link.level == "L2s"}

    monkeypatch.setattr(levels, "self_test", leaky)
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        assert sandbox.level == "L2s"
        assert any("self-test of level L2 failed (fork)" in reason for reason in sandbox.refused)
    with pytest.raises(SandboxError, match=r"No sandbox of level L2 or stronger .*L2 failed \(fork\)"):
        await Sandbox.start(SandboxConfig(min_level="L2"))


async def test_min_level_fails_instead_of_degrading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels.bwrap, "find", lambda: None)
    real = ZygoteLink.start

    async def refuse(place: Place, *rest: Any) -> ZygoteLink:
        if place.level in ("L3", "L2"):
            raise SandboxError(f"Sandbox level {place} is not available here: as asked.")
        return await real(place, *rest)

    monkeypatch.setattr(ZygoteLink, "start", refuse)
    for wanted in ("L3", "L2"):
        with pytest.raises(SandboxError, match=f"No sandbox of level {wanted} or stronger"):
            await Sandbox.start(SandboxConfig(min_level=wanted))
    async with await Sandbox.start(SandboxConfig(min_level="L2s")) as sandbox:
        assert sandbox.level == "L2s" and len(sandbox.refused) == 2


# --- L0 ------------------------------------------------------------------------------------------------


async def test_l0_is_refused_and_then_announced_twice(capsys: pytest.CaptureFixture[str]) -> None:
    for level in ("L0", None):
        with pytest.raises(SandboxError, match=r"allow_unsafe|No sandbox of level L3"):
            await Sandbox.start(SandboxConfig(force_level=level, min_level="L0" if level else "L3"))
            raise SandboxError("No sandbox of level L3: it is there")  # a machine that has L3
    assert BANNER not in capsys.readouterr().err
    sandbox = await Sandbox.start(SandboxConfig(force_level="L0", allow_unsafe=True))
    assert capsys.readouterr().err.count(BANNER) == 1
    worker = await sandbox.open(ECHO)
    assert await worker.reset(0, 1) == "seed 1"
    await sandbox.close()
    assert capsys.readouterr().err.count(BANNER) == 1
    assert sandbox.level == "L0" and sandbox.self_test == {}


# --- L3 through bwrap ----------------------------------------------------------------------------------

STAND_IN = '''#!{python} -I
"""What bwrap does with the options SPADE gives it, by our own system calls."""
import ctypes, os, sys
sys.path.insert(0, {root!r})
from spade.envs.confine import checked, libc, machine, die_with_parent
from spade.envs.namespaces import unshare_namespaces

options, paths, environment = {{}}, [], {{}}
words = iter(sys.argv[1:])
for word in words:
    if word == "--":
        break
    if word in ("--uid", "--gid", "--hostname", "--cap-drop", "--proc", "--chdir"):
        options[word] = next(words)
    elif word == "--setenv":
        environment[next(words)] = next(words)
    elif word == "--ro-bind-try":
        paths.append((next(words), next(words)))
    else:
        options[word] = True
command = list(words)
for needed in ("user", "pid", "net", "ipc", "uts"):
    assert options["--unshare-" + needed]
assert options["--new-session"] and options["--die-with-parent"] and options["--clearenv"]
unshare_namespaces(int(options["--uid"]))
if (pid := os.fork()):
    os.set_inheritable(0, True)
    os.closerange(3, 64)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
die_with_parent()
os.setsid()
new = "/tmp"
checked(libc.mount(b"none", new.encode(), b"tmpfs", 0, b"mode=755"), "tmpfs")
for source, target in paths:
    if not os.path.exists(source):
        continue
    place = new + target
    if os.path.isdir(source):
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        open(place, "w").close()
    checked(libc.mount(source.encode(), place.encode(), None, 4096 | 16384, None), "bind " + source)
os.makedirs(new + "/proc")
checked(libc.mount(b"proc", (new + "/proc").encode(), b"proc", 0, None), "proc")
os.chdir(new)
checked(libc.syscall({{"x86_64": 155, "aarch64": 41}}[machine()], b".", b"."), "pivot_root")
checked(libc.umount2(b".", 2), "umount")
os.chdir(options["--chdir"])
os.execve(command[0], command, environment)
'''


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called `bwrap` that comes first on the PATH."""
    root = Path(levels.__file__).parents[2]
    script = tmp_path / "bwrap"
    script.write_text(STAND_IN.format(python=os.path.realpath(sys.executable), root=str(root)))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return script


def without_own_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ZygoteLink.start

    async def start(place: Place, *rest: Any) -> ZygoteLink:
        if place.how == "own":
            raise SandboxError("Sandbox level L3 (namespaces: own) is not available here: as asked.")
        return await real(place, *rest)

    monkeypatch.setattr(ZygoteLink, "start", start)


async def own_namespaces_or_skip() -> None:
    try:
        link = await ZygoteLink.start(Place("L3", "own"), 1, 64)
    except SandboxError as error:
        pytest.skip(f"the stand-in for bwrap needs namespaces: {error}")
    await link.close()


async def test_l3_through_a_stand_in_for_bwrap(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await own_namespaces_or_skip()
    without_own_namespaces(monkeypatch)
    result = await contained(config(None))
    assert (result["level"], result["place"]) == ("L3", "L3 (namespaces: bwrap)")
    assert_contained(result)
    assert len(result["refused"]) == 1


async def test_l3_through_the_real_bwrap(monkeypatch: pytest.MonkeyPatch) -> None:
    if bwrap.find() is None:
        pytest.skip("bwrap is not installed")
    try:
        await (await ZygoteLink.start(Place("L3", "bwrap"), 1, 64)).close()
    except SandboxError as error:
        pytest.skip(f"bwrap does not work here: {error}")
    without_own_namespaces(monkeypatch)
    result = await contained(config("L3"))
    assert result["place"] == "L3 (namespaces: bwrap)"
    assert_contained(result)


async def test_a_bwrap_that_fails_leads_to_l2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bwrap"
    script.write_text("#!/bin/sh\necho no permissions >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    without_own_namespaces(monkeypatch)
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        assert sandbox.level in ("L2", "L2s")
        assert "bwrap" in sandbox.refused[1] and "ended" in sandbox.refused[1]


def test_bwrap_gets_what_python_needs_and_no_more() -> None:
    command = bwrap.wrapped("/x/bwrap", ["python", "zygote.py"], 65534, {"TZ": "UTC"}, ["/srv/spade/envs"])
    text = " ".join(command)
    assert text.startswith("/x/bwrap ") and text.endswith("--proc /proc --chdir / -- python zygote.py")
    for option in ("--unshare-net", "--new-session", "--die-with-parent", "--clearenv", "--setenv TZ UTC"):
        assert option in text
    bound = [command[i + 1] for i, word in enumerate(command) if word == "--ro-bind-try"]
    assert "/usr" in bound and "/srv/spade/envs" in bound
    assert not {"/", "/etc", "/home", "/root", "/tmp", "/var", os.path.expanduser("~")} & set(bound)
    assert not any(word in text for word in ("--bind ", "--dev-bind", "--share-net"))
    pairs = [(a, b) for a in bound for b in bound if a != b]
    assert not any(a.startswith(b + "/") for a, b in pairs)  # nothing twice


# --- control messages ----------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=200), st.booleans()), min_size=1, max_size=12), st.data())
def test_messages_and_descriptors_meet_again_wherever_the_stream_is_cut(
    sent: list[tuple[str, bool]], data: st.DataObject
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        inbox, got = Inbox(), list[tuple[dict[str, Any], int | None]]()
        for number, (text, with_descriptor) in enumerate(sent):
            message = {"id": number, "text": text}
            if not with_descriptor:
                ours.sendall(pack(message))
            else:
                read_end, write_end = os.pipe()
                os.write(write_end, str(number).encode())
                os.close(write_end)
                body = pack({**message, "fd": 1})
                cut = data.draw(st.integers(1, len(body)))
                socket.send_fds(ours, [body[:cut]], [read_end])
                ours.sendall(body[cut:])
                os.close(read_end)
            if data.draw(st.booleans()):
                got += inbox.receive(theirs) or []
        ours.close()
        while (more := inbox.receive(theirs)) is not None:
            got += more
    assert [(m["text"], d is not None) for m, d in got] == sent
    for message, descriptor in got:
        if descriptor is not None:
            assert os.read(descriptor, 100) == str(message["id"]).encode()
            os.close(descriptor)


async def test_requests_queue_when_the_zygote_is_slow() -> None:
    """More workers at once than a socket buffer holds requests."""
    link = await ZygoteLink.start(Place("L2s"), 1, 64)
    started: list[int] = []

    class Counter:
        def __init__(self, number: int) -> None:
            self.number = number

        def on_started(self, pid: int, pidfd: int | None) -> None:
            started.append(self.number)
            if pidfd is not None:
                os.close(pidfd)

        def on_exit(self, status: int | None) -> None:
            if len(link.children) == 0:
                over.set()

        def on_memory(self, mebibytes: int) -> None:
            raise AssertionError

    over, count = asyncio.Event(), 60
    long = {"pad": "x" * (CHUNK // 4)}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for number in range(1, count + 1):
            link.spawn(Counter(number), theirs, "call", {"number": 39, **long})
        assert link._unsent  # it really is more than the socket took
        async with asyncio.timeout(30):
            await over.wait()
    assert started == list(range(1, count + 1))
    assert not link._unsent and not link._lent
    await link.close()


async def test_a_dead_zygote_takes_no_requests() -> None:
    link = await ZygoteLink.start(Place("L2s"), 1, 64)
    await link.close()
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(SandboxError, match="cannot be reached"):
        link.spawn(levels._Subject(1), theirs, "serve")
    assert link.children == {} and link._lent == {}


INSIDE = (
    "zygote",
    "control",
    "confine",
    "namespaces",
    "seatbelt",
    "selftest",
    "entropy",
    "numpy_entropy",
    "worker",
    "host",
    "answers",
)


@pytest.mark.parametrize("name", INSIDE)
def test_files_of_the_sandbox_need_the_standard_library_and_each_other(name: str) -> None:
    """The zygote has no site-packages, and the rest of the package is not importable there."""
    tree = ast.parse((Path(levels.__file__).parent / f"{name}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spade"):
            files = [a.name for a in node.names] if node.module == "spade.envs" else [node.module[11:]]
            assert set(files) <= set(INSIDE)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            assert (module or "").split(".")[0] in sys.stdlib_module_names


# --- workers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LINUX)
async def test_workers_are_the_first_to_die_when_memory_runs_out(level: str) -> None:
    try:
        sandbox = await Sandbox.start(SandboxConfig(force_level=level))
    except SandboxError as error:
        pytest.skip(str(error))
    async with sandbox:
        worker = await sandbox.open(ECHO)
        while worker.pid is None:  # the zygote says so a moment later
            await asyncio.sleep(0.01)
        assert Path(f"/proc/{worker.pid}/oom_score_adj").read_text().strip() == "1000"
