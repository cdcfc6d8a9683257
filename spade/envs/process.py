"""The parent's end of one worker process: batches out, checked results in, and one way to die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence

from spade.envs.channels import Channels, Watch
from spade.envs.death import Ended, cause_of_death, has_ended
from spade.envs.link import ZygoteLink
from spade.envs.usage import cpu_seconds, outer_pid
from spade.envs.wire import (
    FrameReader,
    OpResult,
    ProtocolError,
    Request,
    Value,
    check_results,
    decode_answer,
    encode_frames,
)
from spade.errors import FaultCode, ProgramFault, SandboxError

__all__ = ["Ended", "Process", "raise_fault"]

START_SECONDS = 30.0
"""A worker that has not started by then is lost (the machine's fault, not the program's)."""
DEATH_NOTICE_SECONDS = 1.0
"""Time a process may take to die after its channel is closed; one that lives on has closed it on purpose."""
READ_BYTES = 1 << 16
"""Bytes taken from a channel at once; a larger buffer would be mapped and unmapped by each read."""


class Process:
    """One worker process. One batch at a time; a second waits for the first."""

    def __init__(
        self, number: int, link: ZygoteLink, cpu_seconds: float, wall_seconds: float, channels: Channels
    ) -> None:
        self.number = number
        self.ended: Ended | None = None
        self.violations: list[str] = []
        """Forbidden attempts the worker noted, oldest first."""
        self.strict = False
        """Whether a forbidden attempt ends the process and fails its whole batch."""
        self.on_end: Callable[[Process], None] = lambda _: None
        self.on_forked: Callable[[Process], None] = lambda _: None
        """Called once when the process exists, or when it is known that it will not."""
        self.on_busy: Callable[[Process], bool] = lambda _: False
        """Called when an answer is awaited; says whether nothing else has to be attended to meanwhile."""
        self._link = link
        self._channels = channels
        self.limits = (cpu_seconds, wall_seconds)
        """CPU and wall seconds one operation may take."""
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._fault: ProgramFault | None = None
        self._started = False
        self.pid = 0
        """0 before it started and where it cannot be known; then only the wall limit applies."""
        self._pidfd: int | None = None
        self._created = time.monotonic()
        self._began = (0.0, 0.0)  # wall, CPU at the last sign of progress
        self._reader = FrameReader()
        self._ops: Sequence[Request] = ()
        self._results: list[OpResult] = []
        self._waiter: asyncio.Future[None] | None = None
        self._watch = Watch()
        self._socket: socket.socket | None = self._spawn()

    # --- starting --------------------------------------------------------------------------------------

    def _spawn(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            self._link.spawn(self, theirs, "serve")
        except SandboxError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channels.add(ours, self._readable)
        return ours

    def on_started(self, pid: int, pidfd: int | None) -> None:
        """The zygote forked it."""
        self._forked()
        if self.ended is not None:
            self._pidfd = pidfd
            self._signal()
            return
        self._started, self.pid, self._pidfd = True, pid, pidfd
        if pidfd is not None and self._link.level == "L3":
            self.pid = outer_pid(pidfd)  # the zygote only knows the pid inside its own namespace
        self._began = (time.monotonic(), 0.0)

    def _forked(self) -> None:
        told, self.on_forked = self.on_forked, lambda _: None
        told(self)

    # --- batches ---------------------------------------------------------------------------------------

    async def batch(self, ops: Sequence[Request]) -> list[OpResult]:
        """Results in the order of `ops`, each a value or a ProgramFault. A dead worker answers its fault."""
        async with self._lock:
            if not ops:
                return []
            if self._fault is None:
                self._refuse_answers_in_advance()
            if self._fault is not None:
                return [self._fault] * len(ops)
            alone = self.on_busy(self)
            self._ops, self._results = ops, []
            self._waiter = self._loop.create_future()
            self._began = (time.monotonic(), self.cpu())
            try:
                await self._send_all(ops, alone)
                if alone and self._watch.wait(self._more, lambda: len(self._results)):
                    await asyncio.sleep(0)
                await self._waiter
            except asyncio.CancelledError:
                self.end(Ended.CLOSED, FaultCode.LOST, "the caller gave up")
                raise
            results, self._results, self._ops, self._waiter = self._results, [], (), None
            if self.violations and self.strict:
                fault = ProgramFault(FaultCode.POLICY, f"it tried {self.violations[0]}")
                self.end(Ended.CLOSED, fault.code, fault.detail)
                return [fault] * len(ops)
            if len(results) < len(ops):
                fault = self._fault or ProgramFault(FaultCode.LOST, "no answer")
                results += [fault] * (len(ops) - len(results))
            return results

    def _refuse_answers_in_advance(self) -> None:
        """What lies in the channel before a question is asked answers nothing: the process is ended."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                if self._socket.recv(1, socket.MSG_PEEK):
                    self.end(Ended.BAD_FRAMES, FaultCode.PROTOCOL, "the worker sent bytes nobody asked for")

    async def _send_all(self, ops: Sequence[Request], alone: bool) -> None:
        """Send a message; frames are made while the worker does the ones before."""
        try:
            for frame in encode_frames(ops, alone):
                if not self.busy:
                    return
                if rest := self._send(frame):
                    await self._send_rest(rest)
        except ProgramFault as fault:  # an operation larger than a frame; a part may be on its way
            self.end(Ended.CLOSED, fault.code, fault.detail)

    def _send(self, data: bytes) -> bytes:
        """Send what fits; returns the rest."""
        assert self._socket is not None
        try:
            return data[self._socket.send(data) :]
        except BlockingIOError:
            return data
        except OSError:
            return b""  # the process is gone; its reader notices

    async def _send_rest(self, data: bytes) -> None:
        """Send more than the channel holds, until it is all sent or the process is ended."""
        assert self._socket is not None and self._waiter is not None
        sending = self._loop.create_task(self._loop.sock_sendall(self._socket, data))
        try:
            await asyncio.wait((sending, self._waiter), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            # Whether the process is gone is for its reader to notice.
            await asyncio.gather(sending, return_exceptions=True)

    def _more(self) -> bool:
        """Take what has come; whether there is more to wait for."""
        return self.busy and self._readable()

    def _readable(self) -> bool:
        """Take what has come; whether there may be more."""
        if self._socket is None:
            return False
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self._channels.remove(self._socket)
            self._loop.call_later(DEATH_NOTICE_SECONDS, self._closed_channel)
            return False
        try:
            self._accept(data)
        except ProtocolError as error:
            self.end(Ended.BAD_FRAMES, FaultCode.PROTOCOL, f"the worker sent {error}")
        return self._socket is not None

    def _accept(self, data: bytes) -> None:
        for body in self._reader.feed(data):
            raw, violations = decode_answer(body)
            if violations:
                self.violations = (self.violations + violations)[:32]
            if not raw or self._waiter is None:
                raise ProtocolError("an answer nobody asked for")
            self._results += check_results(self._ops, len(self._results), raw)
            if len(self._results) < len(self._ops):
                self._began = (time.monotonic(), self.cpu())  # every operation has its own budget
        if self._waiter is None or len(self._results) == len(self._ops):
            if self._reader.buffer:
                raise ProtocolError("bytes nobody asked for")
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- limits ----------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited."""
        return self._waiter is not None and not self._waiter.done() and self.ended is None

    def cpu(self) -> float:
        """CPU seconds the process has used, 0 if gone (its clock id is computed as the C library does)."""
        try:
            return time.clock_gettime(~self.pid << 3 | 2) if self.pid and self.ended is None else 0.0
        except OSError:
            return cpu_seconds(self.pid) if sys.platform == "darwin" else 0.0

    def remaining(self) -> float:
        """Seconds until the next look is due; kills the process when a limit is passed."""
        cpu_limit, wall_limit = self.limits
        if not self._started:
            left = START_SECONDS - (time.monotonic() - self._created)
            if left <= 0:
                self.end(Ended.LOST, FaultCode.LOST, "the worker did not start")
            return left
        wall = time.monotonic() - self._began[0]
        if wall >= wall_limit:
            self.end(Ended.KILLED, FaultCode.WALL_LIMIT, f"no answer within {wall_limit:g} s")
            return 0.0
        if wall < cpu_limit:
            return min(cpu_limit, wall_limit) - wall
        left = cpu_limit - (self.cpu() - self._began[1])
        if left <= 0:
            self.end(Ended.KILLED, FaultCode.CPU_LIMIT, f"no answer within {cpu_limit:g} s of CPU time")
        return min(left, wall_limit - wall)

    # --- the end ---------------------------------------------------------------------------------------

    def end(self, how: Ended, code: FaultCode, detail: str) -> None:
        """Kill the process and fail whatever is awaited; the first cause stands."""
        if self.ended is not None:
            return
        self.ended = how
        self._fault = ProgramFault(code, detail)
        self._signal()
        if self._socket is not None:
            self._channels.remove(self._socket)
            self._loop.remove_writer(self._socket)  # of a message longer than the channel holds
            self._socket.close()
            self._socket = None
        self._wake()
        self.on_end(self)

    def _signal(self) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
            self._pidfd = None
        elif self.number in self._link.children:
            self._link.kill(self.number)

    def on_memory(self, mebibytes: int) -> None:
        """The process takes more memory than it may, where the system does not see to that itself."""
        self.end(Ended.KILLED, FaultCode.MEMORY, f"it took more than {mebibytes} MiB of memory")

    def on_exit(self, status: int | None) -> None:
        """The process is gone. Answers it still sent are read first."""
        self._forked()
        while self.ended is None and self._socket is not None:
            try:
                data = self._socket.recv(READ_BYTES)
                if not data:
                    break
                self._accept(data)
            except OSError:
                break
            except ProtocolError as error:
                self.end(Ended.BAD_FRAMES, FaultCode.PROTOCOL, f"the worker sent {error}")
        self.end(*cause_of_death(status))

    def _closed_channel(self) -> None:
        if self.ended is None and has_ended(self._pidfd):
            # It died; on a busy machine the zygote takes a while to say of what.
            self._loop.call_later(DEATH_NOTICE_SECONDS, self._closed_channel)
            return
        self.end(Ended.BAD_FRAMES, FaultCode.PROTOCOL, "the worker closed its channel")


def raise_fault(result: OpResult) -> Value:
    """The value of a result; raises it if it is a fault."""
    if isinstance(result, ProgramFault):
        raise result
    return result
