"""Messages between the parent and a zygote: JSON objects with a length before each, some with a descriptor.

Standard library only; both ends use it. The socket is an ordinary stream, which every system has. A message
that carries a descriptor says so (`"fd": 1`), and descriptors are handed out in the order in which they came,
so it does not matter where the stream is cut.
"""

from __future__ import annotations

import json
import socket
import struct
from collections import deque
from typing import Any

CHUNK = 1 << 16
MOST_DESCRIPTORS = 16
"""Descriptors accepted in one read; systems hand over at most one message's."""

Message = dict[str, Any]


def pack(message: Message) -> bytes:
    """The wire form of a message."""
    body = json.dumps(message).encode("ascii")
    return struct.pack(">I", len(body)) + body


class Inbox:
    """Puts messages and their descriptors together again."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._descriptors = deque[int]()

    def receive(self, control: socket.socket) -> list[tuple[Message, int | None]] | None:
        """Messages that one read completes, each with its descriptor; None at the end of the stream.

        Raises OSError as `recvmsg` does (BlockingIOError when there is nothing to read).
        """
        data, descriptors, _, _ = socket.recv_fds(control, CHUNK, MOST_DESCRIPTORS)
        self._descriptors.extend(descriptors)
        if not data:
            return None
        self._bytes += data
        messages: list[tuple[Message, int | None]] = []
        while len(self._bytes) >= 4:
            end = 4 + int.from_bytes(self._bytes[:4], "big")
            if len(self._bytes) < end:
                break
            message = json.loads(self._bytes[4:end])
            del self._bytes[:end]
            messages.append((message, self._descriptors.popleft() if message.get("fd") else None))
        return messages


def send_whole(control: socket.socket, message: Message, descriptor: int | None = None) -> None:
    """Send one message on a blocking socket; a signal may cut a write short."""
    if descriptor is None:
        control.sendall(pack(message))
        return
    data = pack({**message, "fd": 1})
    sent = socket.send_fds(control, [data], [descriptor])
    control.sendall(data[sent:])
