"""Which isolation a machine offers, decided by a self-test that tries the forbidden things.

L3   namespaces (user, pid, net, ipc, uts, mount with an empty root) and everything of L2
L2   no_new_privs, Landlock, seccomp allow-list, rlimits, no capabilities
L2s  L2 without Landlock, for kernels that lack it; the filter alone leaves no call that takes a path
L1   macOS Seatbelt and rlimits (written from its documentation, never run by us)
L0   rlimits only: no boundary, refused unless `sandbox.allow_unsafe` is set
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import sys
from typing import Any

from spade.envs.link import ZygoteLink
from spade.envs.wire import FrameReader, ProtocolError, decode_answer
from spade.errors import ConfigError, SandboxError

ORDER = ("L0", "L1", "L2s", "L2", "L3")
"""Weakest first."""
SELFTEST_SECONDS = 10.0
_INOTIFY_INIT1 = {"x86_64": 294, "aarch64": 26}


def rank(level: str) -> int:
    """Position in `ORDER`. Raises ConfigError for an unknown level."""
    if level not in ORDER:
        raise ConfigError(f"There is no sandbox level {level!r}; use one of {', '.join(ORDER)}.")
    return ORDER.index(level)


def candidates(force: str | None, allow_unsafe: bool) -> list[str]:
    """Levels to try on this machine, strongest first."""
    if force is not None:
        rank(force)
        return [force]
    found = ["L3", "L2", "L2s"] if sys.platform == "linux" else []
    return [*found, "L0"] if allow_unsafe else found


class _Subject:
    """The self-test worker as the link sees it."""

    number = 0

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    def on_started(self, pid: int, pidfd: int | None) -> None:
        if pidfd is not None:
            os.close(pidfd)

    def on_exit(self, status: int | None) -> None:
        self.gone.set()


async def self_test(link: ZygoteLink) -> dict[str, bool]:
    """What the self-test worker tried, and whether it was refused. Empty if it gave no answer."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reader, bodies = FrameReader(), list[bytes]()
    with socket.create_server(("127.0.0.1", 0)) as listener, ours:
        probe: dict[str, Any] = {
            "pid": os.getpid(),
            "port": listener.getsockname()[1],
            "file": os.path.abspath(__file__),
            "inotify": _INOTIFY_INIT1.get(platform.machine(), 26),
        }
        subject = _Subject()
        with theirs:
            link.spawn(subject, theirs, "selftest", probe)
        try:
            async with asyncio.timeout(SELFTEST_SECONDS):
                while not bodies and (data := await loop.sock_recv(ours, 1 << 16)):
                    bodies = reader.feed(data)
                await subject.gone.wait()
            (outcomes,), _ = decode_answer(bodies[0])
        except (TimeoutError, ProtocolError, ValueError, IndexError):
            return {}
    return {str(name): result is True for name, result in outcomes.items()} if type(outcomes) is dict else {}


def missing(level: str, outcomes: dict[str, bool]) -> list[str]:
    """Attempts that `level` should have refused and did not; ["no answer"] without outcomes."""
    if not outcomes:
        return ["no answer"]
    wanted = [name for name in outcomes if level == "L3" or not name.startswith("namespace")]
    return [name for name in wanted if not outcomes[name]]


async def establish(
    force: str | None, minimum: str, allow_unsafe: bool, memory_mb: int
) -> tuple[ZygoteLink, dict[str, bool]]:
    """A zygote at the strongest level whose self-test passes, and the outcomes. Raises SandboxError."""
    reasons = []
    for level in candidates(force, allow_unsafe):
        if level == "L0" and not allow_unsafe:
            raise SandboxError(
                "Level L0 is no isolation; set sandbox.allow_unsafe=true to run programs without."
            )
        if rank(level) < rank(minimum) and not allow_unsafe:
            continue
        try:
            link = await ZygoteLink.start(level, 1, memory_mb)
        except SandboxError as error:
            reasons.append(str(error))
            continue
        if level == "L0":
            return link, {}  # nothing is claimed, so there is nothing to test
        outcomes = await self_test(link)
        if not (holes := missing(level, outcomes)):
            return link, outcomes
        reasons.append(f"The self-test of level {level} failed ({', '.join(holes)}).")
        await link.close()
    tried = " ".join(reasons) or "No level this strong exists on this system."
    raise SandboxError(
        f"No sandbox of level {minimum} or stronger can be had here. {tried} "
        "Programs are not run; lower sandbox.min_level only if you trust them."
    )
