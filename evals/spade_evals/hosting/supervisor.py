"""Starts, asks, kills and replaces hosted processes; any thread may ask.

Each request has a process to itself while it runs. How a process ended says who is to blame:

    Raised     the hosted code raised on this request         the process goes on
    Expired    the request used up its processor time         killed by the kernel, replaced
    Crashed    the process broke on the request               replaced
    Lost       killed from outside: nobody's request          replaced
      Stalled    no reply for a long time by the clock        killed, replaced
    NotStarted the process does not come up at all
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any, Final

from spade.errors import BackendError
from spade_evals.hosting.serve import FRAME

WALL_FACTOR: Final = 20.0
"""Wall clock allowed per second of budget: for a machine so busy that a process hardly runs."""
START_SECONDS: Final = 180.0
"""Wall clock for the imports of a host."""
ENDING_SECONDS: Final = 30.0
"""Wall clock for a process to be gone after it has closed its output."""

PASSED_ON: Final = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "VIRTUAL_ENV")
"""Variables that a hosted process gets; no others, so no secrets."""
OUTSIDE: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Raised(Exception):
    """The hosted code raised; the text is its words."""


class Expired(Exception):
    """The request used up its budget of processor time."""


class Crashed(Exception):
    """The process broke on the request: a fatal signal, an exit without a reply, a line that is too long."""


class Lost(Exception):
    """The process was killed from outside."""


class Stalled(Lost):
    """No reply within the wall clock allowed: it waits for something, or the machine is very busy."""


class NotStarted(BackendError):
    """The process cannot be started, or its library cannot be imported; the text says why."""


class Host:
    """One process that runs `python -m MODULE`, where MODULE calls `serve`. Not safe for two threads at once.

    Raises NotStarted.
    """

    def __init__(self, module: str) -> None:
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        env["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        env |= {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._module, self._rest = module, bytearray()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-m", module],
            env=env,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent; without the parent its input ends
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._writable, self._readable = _poll(self._in, select.POLLOUT), _poll(self._out, select.POLLIN)
        try:
            hello = json.loads(self._line(time.monotonic() + START_SECONDS))
        except (EOFError, TimeoutError, Crashed, ValueError) as error:
            self.close()
            why = f"exit code {self._process.returncode}"
            raise NotStarted(self._not_started(why)) from error
        if "failed" in hello:
            self.close()
            raise NotStarted(self._not_started(str(hello["failed"])))

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked; it may have been killed without our notice."""
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], seconds: float, wall: float | None = None) -> dict[str, Any]:
        """The reply to `request` within `seconds` of processor time and `wall` seconds by the clock.

        Raises as the module says. After all but Raised the process is gone.
        """
        wall = seconds * WALL_FACTOR if wall is None else wall
        line = json.dumps({"seconds": seconds, "request": request}).encode() + b"\n"
        if len(line) > FRAME:
            raise Raised(f"a request of {len(line):,} bytes is too long")
        until = time.monotonic() + wall
        try:
            self._write(line, until)
            reply = self._reply(until)
        except TimeoutError:
            self.close()
            raise Stalled(f"no reply within {wall:g} s of wall clock") from None
        except (EOFError, OSError):
            raise self._ended(seconds) from None
        except BaseException:
            self.close()  # whatever it would say later belongs to no request
            raise
        if "error" in reply:
            raise Raised(str(reply["error"]))
        return dict(reply["reply"])

    def close(self) -> None:
        """Kill and reap it. Idempotent."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    # --- inside ----------------------------------------------------------------------------------------

    def _not_started(self, why: str) -> str:
        return (
            f"the process {self._module} does not start ({why}); "
            f"try: {sys.executable} -m {self._module} </dev/null"
        )

    def _reply(self, until: float) -> dict[str, Any]:
        line = self._line(until)
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict) or not reply.keys() & {"reply", "error"}:
            raise Crashed("it said something that is no reply")
        return reply

    def _ended(self, seconds: float) -> Exception:
        try:
            code = self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self.close()
            return Crashed("it closed its output")
        self.close()
        if code == -signal.SIGPROF:
            return Expired(f"more than {seconds:g} s of processor time")
        if -code in OUTSIDE:
            return Lost(f"ended by signal {-code} from outside")
        return Crashed(f"ended with exit code {code}")

    def _write(self, line: bytes, until: float) -> None:
        rest = memoryview(line)
        while rest:
            try:
                rest = rest[os.write(self._in, rest[: 1 << 16]) :]
            except BlockingIOError:
                _wait(self._writable, until)

    def _line(self, until: float) -> bytes:
        while True:
            _wait(self._readable, until)
            chunk = os.read(self._out, 1 << 18)
            if not chunk:
                raise EOFError
            end = chunk.find(b"\n")
            self._rest += chunk if end < 0 else chunk[:end]
            if len(self._rest) > FRAME:
                raise Crashed(f"a reply of more than {FRAME:,} bytes")
            if end >= 0:
                if chunk[end + 1 :]:
                    raise Crashed("it said more than one reply")
                line, self._rest = bytes(self._rest), bytearray()
                return line


def _poll(fd: int, event: int) -> select.poll:
    """What waits for a file that does not block; `select` itself takes no number above 1,023."""
    os.set_blocking(fd, False)
    ready = select.poll()
    ready.register(fd, event)
    return ready


def _wait(ready: select.poll, until: float) -> None:
    """Until it is ready. Raises TimeoutError."""
    left = until - time.monotonic()
    if left <= 0 or not ready.poll(1000.0 * left):
        raise TimeoutError


class Pool:
    """Up to `size` hosts of one module, started when first needed. Any thread may call `ask`.

    They end with the pool, or with this process.
    """

    def __init__(self, module: str, size: int = 2) -> None:
        self._module = module
        self._free: queue.LifoQueue[Host | None] = queue.LifoQueue()
        self._lock = threading.Lock()
        self._hosts: set[Host] = set()
        for _ in range(size):
            self._free.put(None)
        weakref.finalize(self, _close_all, self._hosts)

    def ask(self, request: dict[str, Any], seconds: float, wall: float | None = None) -> dict[str, Any]:
        """Serve one request by a free host, waiting for one if need be. Raises as `Host` and `Host.ask`."""
        host = self._free.get()
        try:
            if host is None or not host.alive:
                self._drop(host)
                host = None
                host = self._start()
            return host.ask(request, seconds, wall)
        except Raised:
            raise
        except BaseException:
            self._drop(host)
            host = None
            raise
        finally:
            self._free.put(host)

    def close(self) -> None:
        """Kill all hosts; the pool starts new ones if it is asked again."""
        with self._lock:
            hosts = list(self._hosts)
        for host in hosts:
            self._drop(host)

    def pids(self) -> list[int]:
        """Process ids of the hosts alive."""
        with self._lock:
            return sorted(host.pid for host in self._hosts)

    def _start(self) -> Host:
        host = Host(self._module)
        with self._lock:
            self._hosts.add(host)
        return host

    def _drop(self, host: Host | None) -> None:
        if host is not None:
            host.close()
            with self._lock:
                self._hosts.discard(host)


def _close_all(hosts: set[Host]) -> None:
    for host in list(hosts):
        host.close()


def few() -> int:
    """How many processes are worth having on this machine: as many as cores, four at most."""
    return max(1, min(4, os.cpu_count() or 1))
