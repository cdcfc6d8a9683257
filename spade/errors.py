"""The fault family: everything that can go wrong has a type, and a type says who pays.

Two different things are kept apart on purpose:

* *Exceptions* below end a command. Each message is one sentence: what is wrong, where, what to do.
* *Faults* (`FaultKind`) are values: something broke inside one play, and the play has no score.
"""

from __future__ import annotations

from enum import StrEnum


class SpadeError(Exception):
    """Base of every error meant for the user; the CLI prints its message and exits with `exit_code`."""

    exit_code = 1


class ConfigError(SpadeError):
    """A config file, key or value is wrong."""

    exit_code = 2


class InputError(SpadeError):
    """A file, checkpoint, model name, run folder or device the user named cannot be used."""

    exit_code = 2


class BackendError(SpadeError):
    """The serving layer failed (engine, endpoint, out of memory)."""


class SandboxError(SpadeError):
    """The sandbox itself (not a program in it) cannot start or was lost."""


class InterruptedRun(SpadeError):
    """The user asked to stop; the state on disk is complete up to the last finished step."""

    exit_code = 130


class FaultKind(StrEnum):
    """Who broke it, hence who pays."""

    PROGRAM = "program"
    """The environment program raised, hung or broke its contract: charged to the Designer."""
    INFRASTRUCTURE = "infrastructure"
    """Server, worker killed from outside, disk: nobody pays, the pair is dropped and counted."""
    GRADER = "grader"
    """A grader failed on its own reference answer."""
    USER = "user"
    """The simulated user of a conversation could not go on: not the tested model's doing, no score."""


class FaultCode(StrEnum):
    """How a sandboxed program failed, as seen from the parent."""

    SYNTAX = "syntax"
    IMPORT_REFUSED = "import_refused"
    EXCEPTION = "exception"
    CONTRACT = "contract"
    MEMORY = "memory"
    CPU_LIMIT = "cpu_limit"
    WALL_LIMIT = "wall_limit"
    CRASH = "crash"
    POLICY = "policy"
    PROTOCOL = "protocol"
    LOST = "lost"
    """Not the program's doing: the worker was killed from outside or could not be started."""


class ProgramFault(Exception):
    """A program failed inside the sandbox. Not a `SpadeError`: callers turn it into a `Fault` value."""

    def __init__(self, code: FaultCode, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else str(code))
        self.code = code
        self.detail = detail

    @property
    def kind(self) -> FaultKind:
        """`LOST` is infrastructure; everything else is the program's own."""
        return FaultKind.INFRASTRUCTURE if self.code is FaultCode.LOST else FaultKind.PROGRAM
