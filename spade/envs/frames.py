"""Frames between the parent and a worker: requests out, bytes in, answers decoded.

A frame is a 4-byte big-endian length and strict JSON, in UTF-8 towards the worker (lone surrogates as they
are, so that any text can be an action), in ASCII towards the parent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from json.encoder import encode_basestring  # type: ignore[attr-defined]
from operator import itemgetter
from typing import Any, NoReturn

from spade.envs.contract import MAX_OBSERVATION_BYTES
from spade.envs.ops import Request
from spade.errors import FaultCode, ProgramFault

MAX_FRAME = 1 << 20
"""Longest frame in either direction, in bytes."""
FRAME_OPS = (32, 64)
"""Fewest and most operations in a frame of a message that has the processors to itself."""
AWAKE = ",1]"
"""End of a request after which the worker waits for the next one awake, for a moment."""
MAX_DETAIL = 500

_SURROGATES = re.compile("[\ud800-\udfff]")


class ProtocolError(Exception):
    """A reply that breaks the protocol."""


# --- requests ------------------------------------------------------------------------------------------

_encode = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode
kind_of = itemgetter(0)
"""The kind of an operation."""


def encode_request(ops: Sequence[Request], awake: bool = False) -> bytes:
    """One frame. Raises ProgramFault if it is larger than a frame may be.

    A lone step is written by hand, steps in a row are sent as two columns: both are the paths play takes.
    """
    if len(ops) == 1 and ops[0][0] == "s":
        _, i, action = ops[0]
        body = f'[["s",{i:d},{encode_basestring(action)}]]'
    else:
        body = _encode(_columns(ops))
    if awake:
        body = body[:-1] + AWAKE
    data = body.encode("utf-8", "surrogatepass")
    size = len(data)
    if size > MAX_FRAME:
        raise ProgramFault(FaultCode.PROTOCOL, f"the request of {size} bytes is larger than a frame")
    return size.to_bytes(4, "big") + data


def encode_frames(ops: Sequence[Request], alone: bool) -> Iterator[bytes]:
    """The frames of one message. Raises ProgramFault if one operation is larger than a frame may be.

    A message that has the processors to itself (`alone`) is cut into two frames or more: while the worker
    does the first, the next are written, and its answers are read while it does the last. Any other is one
    frame, or as few as it fits into.
    """
    fewest, most = FRAME_OPS
    size = min(most, max(fewest, (len(ops) + 1) // 2)) if alone else len(ops)
    awake = alone and ops[0][0] != "x"  # a solution's worker is asked too seldom for that
    for start in range(0, len(ops), size):
        yield from _fitting(ops[start : start + size], awake)


def _fitting(ops: Sequence[Request], awake: bool) -> Iterator[bytes]:
    try:
        yield encode_request(ops, awake)
    except ProgramFault:
        if len(ops) == 1:
            raise
        half = len(ops) // 2
        yield from _fitting(ops[:half], awake)
        yield from _fitting(ops[half:], awake)


def _columns(ops: Sequence[Request]) -> list[Request]:
    """The operations with every row of steps as one `("S", instances, actions)`."""
    if {*map(kind_of, ops)} == {"s"}:
        _, instances, actions = zip(*ops, strict=True)
        return [("S", instances, actions)]
    packed: list[Request] = []
    for kind, group in groupby(ops, kind_of):
        if kind == "s":
            _, instances, actions = zip(*group, strict=True)
            packed.append(("S", instances, actions))
        else:
            packed += group
    return packed


# --- answers -------------------------------------------------------------------------------------------


def _refuse_constant(name: str) -> NoReturn:
    raise ProtocolError(f"the constant {name}")


# What `decode` does, without looking for blanks around the value; the caller checks that nothing follows.
_scan = vars(json.JSONDecoder(parse_constant=_refuse_constant))["scan_once"]


def decode_answer(body: bytes) -> tuple[list[Any], list[str]]:
    """Results and noted violations of one frame."""
    try:
        text = str(body, "ascii")
        answer, end = _scan(text, 0)
    except (ValueError, RecursionError, StopIteration) as error:
        raise ProtocolError("a frame that is not strict JSON") from error
    if end != len(text) or type(answer) is not dict or type(results := answer.get("r")) is not list:
        raise ProtocolError("a frame without results")
    if "v" not in answer:
        return results, []
    violations = answer["v"]
    if type(violations) is not list or not all(type(v) is str for v in violations):
        raise ProtocolError("a malformed frame")
    return results, [repair(v)[:MAX_DETAIL] for v in violations[:8]]


class FrameReader:
    """Cuts a byte stream into frame bodies."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Complete bodies so far. Raises ProtocolError on an empty or oversized frame."""
        buffer = self.buffer
        if not buffer and 4 < len(data) == 4 + int.from_bytes(data[:4], "big") <= MAX_FRAME:
            return [data[4:]]  # one whole frame, the usual case
        buffer += data
        bodies = []
        while len(buffer) >= 4:
            length = int.from_bytes(buffer[:4], "big")
            if not 0 < length <= MAX_FRAME:
                raise ProtocolError(f"a frame of {length} bytes")
            if len(buffer) < 4 + length:
                break
            bodies.append(bytes(buffer[4 : 4 + length]))
            del buffer[: 4 + length]
        return bodies


def repair(text: str) -> str:
    """Lone surrogates replaced, cut to the observation limit."""
    if text.isascii():
        return text if len(text) <= MAX_OBSERVATION_BYTES else text[:MAX_OBSERVATION_BYTES]
    text = _SURROGATES.sub("\ufffd", text)
    if len(text) * 4 > MAX_OBSERVATION_BYTES:
        text = text.encode()[:MAX_OBSERVATION_BYTES].decode(errors="ignore")
    return text
