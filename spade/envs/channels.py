"""Waiting for answers: many sockets behind one descriptor of the event loop, or one without sleeping."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Callable

WATCH_SECONDS = 0.0003
"""Time a lone worker is watched without sleeping after its last answer; being woken may take as long."""
TURN_SECONDS = 0.005
"""Longest time in which answers watched for keep the event loop from everything else."""
WATCH_PAUSE = 16
"""Messages without watching after one that was not answered in this time."""


class Channels:
    """The readiness of many channels behind one descriptor of the event loop: one callback for all of them.

    Cheaper than one reader each, whose callbacks the loop would look up, queue and run one by one. Where the
    system has no epoll, that is what happens.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._readers: dict[int, Callable[[], object]] = {}
        self._epoll: select.epoll | None = None
        if hasattr(select, "epoll"):
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._ready)

    def add(self, channel: socket.socket, reader: Callable[[], object]) -> None:
        """Call `reader` whenever `channel` is readable."""
        if self._epoll is None:
            self._loop.add_reader(channel, reader)
        else:
            self._readers[channel.fileno()] = reader
            self._epoll.register(channel.fileno(), select.EPOLLIN)

    def remove(self, channel: socket.socket) -> None:
        """Do not call it any more. Must come before the channel is closed."""
        if self._epoll is None:
            self._loop.remove_reader(channel)
        elif self._readers.pop(channel.fileno(), None) is not None:
            self._epoll.unregister(channel.fileno())

    def _ready(self) -> None:
        assert self._epoll is not None
        for descriptor, _ in self._epoll.poll(0):
            reader = self._readers.get(descriptor)
            if reader is not None:  # else removed by an earlier reader of this round
                reader()

    def close(self) -> None:
        """Give the descriptor back; only when no channel is left."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()


class Watch:
    """Waits for the answers of one worker without giving the processor back."""

    def __init__(self) -> None:
        self._pause = 0
        self._next_turn = 0.0

    def wait(self, more: Callable[[], bool], heard: Callable[[], int]) -> bool:
        """Call `more` until it says no, for `WATCH_SECONDS` after the last growth of `heard` at most.

        The result says whether it is the event loop's turn. Where the time ran out, the next waits are left
        out.
        """
        if self._pause:
            self._pause -= 1
            return False
        now = last = time.monotonic()
        end = self._next_turn if self._next_turn > now else now + TURN_SECONDS
        count = 0
        while more():
            now = time.monotonic()
            if (grown := heard()) > count:
                count, last = grown, now
            elif now > last + WATCH_SECONDS:
                self._pause = WATCH_PAUSE
                return False
            if now > end:
                break
        due = now > self._next_turn
        if due:
            self._next_turn = now + TURN_SECONDS
        return due
