"""Warm child processes that can be killed: one line in, one line out, a budget per request.

Any thread may ask; each request has a process to itself while it runs. A process that ends or hangs is
replaced on the next request. How it ended says who is to blame: by its own budget of processor time, the
answer took too long; by a crash, the answer broke it; by a kill from outside, nobody's answer is to blame.
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
from typing import Any

from spade.errors import BackendError

WALL_FACTOR = 20.0
"""Wall clock allowed per second of budget: for a machine so busy that a process hardly runs."""

START_SECONDS = 120.0


class Expired(Exception):
    """The request used up its budget of processor time."""


class Crashed(Exception):
    """The process broke on the request: a fatal signal, or an exit without a reply."""


class Lost(Exception):
    """The process was killed from outside, or got no processor time."""


class Child:
    """One process that serves requests. Not safe for two threads at once."""

    def __init__(self, module: str) -> None:
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "PYTHONHASHSEED": "0",  # sympy orders sets by hash
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
        )
        self._rest = b""
        try:
            self._line(START_SECONDS)
        except (EOFError, TimeoutError) as error:
            self.close()
            raise BackendError(
                f"the grading process {module} does not start (exit code {self._process.returncode}); "
                f"try: {sys.executable} -m {module} </dev/null"
            ) from error

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked; it may have been killed without our notice."""
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The reply to `request`. Raises Expired, Crashed or Lost; the child is of no more use then."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({**request, "seconds": seconds}).encode() + b"\n")
            self._process.stdin.flush()
            reply: dict[str, Any] = json.loads(self._line(seconds * WALL_FACTOR))
        except TimeoutError:
            self.close()
            raise Lost(f"no reply within {seconds * WALL_FACTOR:.0f} s of wall clock") from None
        except (EOFError, BrokenPipeError):
            raise self._ended(seconds) from None
        return reply

    def close(self) -> None:
        """Kill and reap it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # bytes for a process that is gone
                    stream.close()

    def _ended(self, seconds: float) -> Exception:
        code = self._process.wait()
        self.close()
        if code == -signal.SIGPROF:
            return Expired(f"more than {seconds:g} s of processor time")
        if code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP):
            return Lost(f"ended by signal {-code} from outside")
        return Crashed(f"ended with exit code {code}")

    def _line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise TimeoutError
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise EOFError
            self._rest += chunk
        line, self._rest = self._rest.split(b"\n", 1)
        return line


class Pool:
    """Up to `size` children of one module, started when first needed. Any thread may call `ask`."""

    def __init__(self, module: str, size: int = 2) -> None:
        self._module = module
        self._free: queue.LifoQueue[Child | None] = queue.LifoQueue()
        self._lock = threading.Lock()
        self._children: set[Child] = set()
        for _ in range(size):
            self._free.put(None)

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Serve one request by a free child, waiting for one if need be. Raises as `Child.ask`."""
        child = self._free.get()
        try:
            if child is None or not child.alive:
                child = self._start()
            reply = child.ask(request, seconds)
        except BaseException:
            if child is not None:
                self._drop(child)
            self._free.put(None)
            raise
        self._free.put(child)
        return reply

    def close(self) -> None:
        """Kill all children; the pool starts new ones if it is asked again."""
        while True:
            with self._lock:
                if not self._children:
                    return
                child = next(iter(self._children))
            self._drop(child)

    def pids(self) -> list[int]:
        """Process ids of the children alive."""
        with self._lock:
            return sorted(child.pid for child in self._children)

    def _start(self) -> Child:
        child = Child(self._module)
        with self._lock:
            self._children.add(child)
        return child

    def _drop(self, child: Child) -> None:
        child.close()
        with self._lock:
            self._children.discard(child)
