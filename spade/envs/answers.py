"""A worker's end of the socket to its parent: requests in, answers out in frames of limited size.

Standard library only.
"""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

from spade.envs.host import TRACE_CHARS

CHANNEL = 3
"""Descriptor of the socket to the parent; 0, 1 and 2 are /dev/null, nothing else is open."""
FLUSH_SECONDS = 0.05
READ_BYTES = 1 << 14
AWAKE_SECONDS = 0.0002
"""Longest time in which the next request is waited for without sleeping: being woken may take as long."""
AWAKE_PAUSE = 16
"""Requests slept for after one that did not come in this time."""

# Taken before the clocks are replaced.
clock = time.monotonic
_read, _write, _yield = os.read, os.write, os.sched_yield
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_scan = vars(json.JSONDecoder())["scan_once"]  # what `decode` does, without looking for blanks around it


def size_of(result: Any) -> int:
    """Roughly the characters in a result: its texts and, for an episode, the list of its texts."""
    if type(result) is str:
        return len(result)
    size = 40
    if type(result) is list:
        for part in result:
            if type(part) is str:
                size += len(part)
            elif type(part) is list:
                size += sum(map(len, part)) if part and type(part[0]) is str else 8 * len(part)
    return size


class Channel:
    """Frames on descriptor 3, read and written blocking."""

    def __init__(self) -> None:
        self.buffer = b""
        self._asleep = 0  # requests still to be slept for
        self._poll = select.poll()
        self._poll.register(CHANNEL, select.POLLIN)

    def _fill(self, count: int) -> bool:
        while len(self.buffer) < count:
            data = _read(CHANNEL, READ_BYTES)
            if not data:
                return False
            self.buffer += data
        return True

    def receive(self) -> Any:
        """The next request, or None when the parent is gone."""
        if not self._fill(4):
            return None
        end = 4 + int.from_bytes(self.buffer[:4], "big")
        if not self._fill(end):
            return None
        body, self.buffer = self.buffer[4:end], self.buffer[end:]
        return _scan(str(body, "utf-8", "surrogatepass"), 0)[0]

    def stay_awake(self) -> None:
        """Wait a moment for the next request without sleeping; whoever else wants the processor gets it."""
        if self._asleep:
            self._asleep -= 1
            return
        ready = self._poll.poll
        until = clock() + AWAKE_SECONDS
        while not (self.buffer or ready(0)):
            _yield()
            if clock() > until:
                self._asleep = AWAKE_PAUSE
                return

    def send(self, body: str) -> None:
        """Write one frame."""
        data = len(body).to_bytes(4, "big") + body.encode("ascii")
        sent = _write(CHANNEL, data)
        while sent < len(data):
            sent += _write(CHANNEL, data[sent:])


class Answers:
    """Results on their way out: frames of limited size, sent early when the program is slow."""

    def __init__(self, channel: Channel, noted: list[str]) -> None:
        self.channel, self.noted = channel, noted
        self.results: list[Any] = []
        self.start()

    def start(self) -> None:
        """A new frame."""
        self.texts: list[str] = []
        self.rewards: list[float] = []
        self.ends: list[str] = []
        self.room = TRACE_CHARS
        self.due = clock() + FLUSH_SECONDS

    def add(self, result: Any) -> None:
        """The result of the next operation."""
        size = size_of(result)
        if size > self.room:
            self.flush()
        self.close_row()
        self.results.append(result)
        self.room -= size
        if clock() > self.due:
            self.flush()

    def close_row(self) -> None:
        """Steps so far become one result."""
        if self.texts:
            columns: dict[str, Any] = {"s": self.texts, "e": "".join(self.ends)}
            if any(self.rewards):
                columns["w"] = self.rewards
            self.results.append(columns)
            self.texts, self.rewards, self.ends = [], [], []

    def flush(self) -> None:
        """Send what there is."""
        self.close_row()
        if self.results:
            noted = self.noted
            self.channel.send(_encode({"r": self.results, "v": noted} if noted else {"r": self.results}))
            noted.clear()
            self.results = []
        self.start()
