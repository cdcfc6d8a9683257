"""How a worker process comes to its end, and whose fault that is."""

from __future__ import annotations

import os
import select
import signal
from enum import StrEnum

from spade.errors import FaultCode


class Ended(StrEnum):
    """How a worker process came to its end."""

    KILLED = "killed"
    """By the parent, at a limit."""
    DIED = "died"
    """By itself."""
    BAD_FRAMES = "bad_frames"
    """By the parent, for breaking the protocol."""
    LOST = "lost"
    """Not the program's doing."""
    CLOSED = "closed"
    """By its user."""


def cause_of_death(status: int | None) -> tuple[Ended, FaultCode, str]:
    """What a wait status means for a worker nobody killed."""
    if status is None or status == -1:
        return Ended.LOST, FaultCode.LOST, "the sandbox process was lost"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL:
            return Ended.LOST, FaultCode.LOST, "the worker was killed from outside"
        if number == signal.SIGSYS:
            return Ended.DIED, FaultCode.POLICY, "ended by the kernel for a forbidden system call"
        return Ended.DIED, FaultCode.CRASH, f"ended by {signal.Signals(number).name}"
    return Ended.DIED, FaultCode.CRASH, f"exited by itself with status {os.waitstatus_to_exitcode(status)}"


def has_ended(pidfd: int | None) -> bool:
    """Whether the process behind `pidfd` has ended: it is readable then. False where there is none."""
    if pidfd is None:
        return False
    watch = select.poll()
    watch.register(pidfd, select.POLLIN)
    return bool(watch.poll(0))
