"""Readiness of many sockets behind one descriptor of the event loop."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable


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
