"""Which isolation a machine offers, decided by a self-test that tries the forbidden things.

L3   namespaces (user, pid, net, ipc, uts, mount with an empty root) and everything of L2; the namespaces
     come from our own system calls or, where those are refused and it is installed, from bubblewrap
L2   no_new_privs, Landlock, seccomp allow-list, rlimits, no capabilities
L2s  L2 without Landlock, for kernels that lack it; the filter alone leaves no call that takes a path
L1   macOS Seatbelt, rlimits, and a watch on memory (written from its documentation, never run on a Mac by us)
L0   rlimits only: no boundary, refused unless `sandbox.allow_unsafe` is set
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import Any

from spade.envs import bwrap, confine, selftest
from spade.envs.link import Place, ZygoteLink
from spade.envs.wire import FrameReader, ProtocolError, decode_answer
from spade.envs.witness import Witness
from spade.errors import ConfigError, SandboxError

ORDER = ("L0", "L1", "L2s", "L2", "L3")
"""Weakest first."""
SELFTEST_SECONDS = 10.0
PID_NAMESPACE = selftest.NAMESPACE + "know other processes"


def rank(level: str) -> int:
    """Position in `ORDER`. Raises ConfigError for an unknown level."""
    if level not in ORDER:
        raise ConfigError(f"There is no sandbox level {level!r}; use one of {', '.join(ORDER)}.")
    return ORDER.index(level)


def candidates(force: str | None, allow_unsafe: bool) -> list[Place]:
    """Ways to isolate on this machine, strongest first."""
    if force is not None:
        rank(force)
        levels = [force]
    else:
        levels = {"linux": ["L3", "L2", "L2s"], "darwin": ["L1"]}.get(sys.platform, [])
        levels += ["L0"] if allow_unsafe else []
    places = []
    for level in levels:
        places.append(Place(level, "own" if level == "L3" else ""))
        if level == "L3" and bwrap.find() is not None:
            places.append(Place(level, "bwrap"))
    return places


class _Subject:
    """A self-test worker as the link sees it, and the parent's end of its channel."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pids = 0
        """Numbers the process has, one for each pid namespace it is seen in; 0 if that cannot be known."""
        self.status: int | None = None
        self.started, self.gone = asyncio.Event(), asyncio.Event()
        self.channel, self._theirs = socket.socketpair()
        self.channel.setblocking(False)

    def start(self, link: ZygoteLink, mode: str, probe: dict[str, Any]) -> None:
        with self._theirs:
            link.spawn(self, self._theirs, mode, probe)

    def on_started(self, pid: int, pidfd: int | None) -> None:
        if pidfd is not None:
            self.pids = _process_numbers(pidfd)
            os.close(pidfd)
        self.started.set()

    def on_exit(self, status: int | None) -> None:
        self.status = status
        self.started.set()
        self.gone.set()

    def on_memory(self, mebibytes: int) -> None:
        pass  # the deadline of the self-test is enough

    async def answer(self) -> dict[str, bool]:
        """Outcomes the worker reports; empty if it gives none."""
        loop = asyncio.get_running_loop()
        reader, bodies = FrameReader(), list[bytes]()
        try:
            while not bodies and (data := await loop.sock_recv(self.channel, 1 << 16)):
                bodies = reader.feed(data)
            (outcomes,), _ = decode_answer(bodies[0])
        except (ProtocolError, ValueError, IndexError):
            return {}
        return {str(k): v is True for k, v in outcomes.items()} if type(outcomes) is dict else {}


def _process_numbers(pidfd: int) -> int:
    """In how many pid namespaces, from ours inwards, the process has a number (0 if unknown)."""
    try:
        with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
            lines = [line.split() for line in file]
    except OSError:
        return 0
    return max((len(line) - 1 for line in lines if line[0] == "NSpid:"), default=0)


async def self_test(link: ZygoteLink) -> dict[str, bool]:
    """What was tried, and whether it was refused. Empty if the self-test worker gave no answer."""
    with Witness() as witness:
        probe = witness.probe(link.memory_mb)
        subject = _Subject(0)
        deadly = {name: _Subject(-1 - i) for i, name in enumerate(_deadly_calls(link.level))}
        try:
            subject.start(link, "selftest", probe)
            for name, number in _deadly_calls(link.level).items():
                deadly[name].start(link, "call", {"number": number})
            async with asyncio.timeout(SELFTEST_SECONDS):
                outcomes = await subject.answer()
                # The worker waits for our end to close: only of a living process are the numbers known.
                await subject.started.wait()
                subject.channel.shutdown(socket.SHUT_RDWR)
                for each in (subject, *deadly.values()):
                    await each.gone.wait()
        except TimeoutError:
            return {}
        finally:
            for each in (subject, *deadly.values()):
                each.channel.close()
        if not outcomes:
            return {}
        for name, each in deadly.items():
            status = each.status
            outcomes[name] = status is not None and status >= 0 and os.WTERMSIG(status) == signal.SIGSYS
        if link.level == "L3":
            outcomes[PID_NAMESPACE] = subject.pids > 1
        return outcomes | witness.saw()


def _deadly_calls(level: str) -> dict[str, int]:
    """Attempts that must end the worker at `level`, with the system call's number here."""
    if level in ("L0", "L1"):
        return {}
    column = confine.COLUMNS[confine.machine()]
    calls = {name: confine.DEADLY[call][column] for name, call in selftest.DEADLY.items()}
    return {name: number for name, number in calls.items() if number is not None}


def missing(level: str, outcomes: dict[str, bool]) -> list[str]:
    """Attempts that `level` must refuse and that were not refused, or not made; ["no answer"] without any."""
    if not outcomes:
        return ["no answer"]
    wanted = selftest.expected(level) | {name for name in outcomes if name.startswith("witness: ")}
    if level == "L3":
        wanted |= {PID_NAMESPACE}
    return sorted(name for name in wanted if not outcomes.get(name, False))


async def establish(
    force: str | None, minimum: str, allow_unsafe: bool, memory_mb: int, numpy: bool = False
) -> tuple[ZygoteLink, dict[str, bool]]:
    """A zygote at the strongest level whose self-test passes, and the outcomes.

    `force` names the only level to try; `minimum` the weakest that will do; `memory_mb` MiB are a worker's
    own. The reasons against stronger levels are in `ZygoteLink.refused`. Raises SandboxError, ConfigError.
    """
    rank(minimum)
    reasons: list[str] = []
    for place in candidates(force, allow_unsafe):
        if place.level == "L0" and not allow_unsafe:
            raise SandboxError(
                "Level L0 is no isolation; set sandbox.allow_unsafe=true to run programs without."
            )
        if rank(place.level) < rank(minimum) and not allow_unsafe:
            continue
        try:
            link = await ZygoteLink.start(place, 1, memory_mb, numpy)
        except SandboxError as error:
            reasons.append(str(error))
            continue
        link.refused = reasons
        if place.level == "L0":
            return link, {}  # nothing is claimed, so there is nothing to test
        try:
            outcomes = await self_test(link)
        except BaseException:  # the caller gave up, or it cannot be reached
            await link.close()
            raise
        if not (holes := missing(place.level, outcomes)):
            return link, outcomes
        reasons.append(f"The self-test of level {place} failed ({', '.join(holes)}).")
        await link.close()
    tried = " ".join(reasons) or "No level this strong exists on this system."
    if sys.platform == "darwin" and force is None and rank(minimum) > rank("L1"):
        tried += " macOS has level L1 (Seatbelt), which we have never run on a Mac: sandbox.min_level=L1."
    raise SandboxError(
        f"No sandbox of level {minimum} or stronger can be had here. {tried} "
        "Programs are not run; lower sandbox.min_level only if you trust them."
    )
