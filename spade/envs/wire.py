"""What crosses the pipe between the parent and a worker, and every check on it.

Nothing a worker says is trusted: frames are capped, JSON is strict, shapes and exact types are checked again,
text is repaired and cut. A reply that fails is a `ProtocolError`, and the worker is killed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from json.encoder import encode_basestring_ascii
from operator import itemgetter
from typing import Any, NoReturn

from spade.envs.contract import MAX_OBSERVATION_BYTES
from spade.envs.ops import Criteria, Op, OpResult, PlayTrace, ProgramInfo, Request, StepResult, Value
from spade.errors import FaultCode, ProgramFault

# Handed on, so that those who talk to workers need one import only.
__all__ = ["Criteria", "Op", "OpResult", "PlayTrace", "ProgramInfo", "Request", "StepResult", "Value"]

MAX_FRAME = 1 << 20
"""Longest frame in either direction, in bytes."""
LONG_MESSAGE = 32
"""Operations from which on a message is worth two frames."""
MAX_INT_REWARD = 2**53
MAX_DETAIL = 500

_SURROGATES = re.compile("[\ud800-\udfff]")
_PROGRAM_CODES = {
    c.value: c
    for c in (
        FaultCode.SYNTAX,
        FaultCode.IMPORT_REFUSED,
        FaultCode.EXCEPTION,
        FaultCode.CONTRACT,
        FaultCode.MEMORY,
    )
}


class ProtocolError(Exception):
    """A reply that breaks the protocol."""


# --- frames --------------------------------------------------------------------------------------------


def _refuse_constant(name: str) -> NoReturn:
    raise ProtocolError(f"the constant {name}")


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
# What `decode` does, without looking for blanks around the value; the caller checks that nothing follows.
_scan = vars(json.JSONDecoder(parse_constant=_refuse_constant))["scan_once"]
_kind = itemgetter(0)


def encode_request(ops: Sequence[Request]) -> bytes:
    """One frame. Raises ProgramFault if it is larger than a frame may be.

    A lone step is written by hand, steps in a row are sent as two columns: both are the paths play takes.
    """
    if len(ops) == 1 and ops[0][0] == "s":
        _, i, action = ops[0]
        body = f'[["s",{i:d},{encode_basestring_ascii(action)}]]'
    else:
        body = _encode(_columns(ops))
    size = len(body)
    if size > MAX_FRAME:
        raise ProgramFault(FaultCode.PROTOCOL, f"the request of {size} bytes is larger than a frame")
    return size.to_bytes(4, "big") + body.encode("ascii")


def encode_parts(ops: Sequence[Request]) -> bytes:
    """The same, a long message as two frames: while the worker does the last quarter, the rest is read."""
    if len(ops) < LONG_MESSAGE:
        return encode_request(ops)
    part = len(ops) * 3 // 4
    return encode_request(ops[:part]) + encode_request(ops[part:])


def _columns(ops: Sequence[Request]) -> list[Request]:
    """The operations with every row of steps as one `("S", instances, actions)`."""
    packed: list[Request] = []
    for kind, group in groupby(ops, _kind):
        if kind == "s":
            _, instances, actions = zip(*group, strict=True)
            packed.append(("S", instances, actions))
        else:
            packed += group
    return packed


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


# --- checks --------------------------------------------------------------------------------------------


def repair(text: str) -> str:
    """Lone surrogates replaced, cut to the observation limit."""
    if text.isascii():
        return text if len(text) <= MAX_OBSERVATION_BYTES else text[:MAX_OBSERVATION_BYTES]
    text = _SURROGATES.sub("\ufffd", text)
    if len(text) * 4 > MAX_OBSERVATION_BYTES:
        text = text.encode()[:MAX_OBSERVATION_BYTES].decode(errors="ignore")
    return text


def _text(raw: Any) -> str:
    if type(raw) is not str:
        raise ProtocolError("text expected")
    return repair(raw)


def _reward(raw: Any) -> float:
    if type(raw) is float and math.isfinite(raw):
        return raw
    if type(raw) is int and -MAX_INT_REWARD < raw < MAX_INT_REWARD:
        return float(raw)
    raise ProtocolError("a finite reward expected")


def _flag(raw: Any) -> bool:
    if type(raw) is not bool:
        raise ProtocolError("a flag expected")
    return raw


def _list(raw: Any, length: int | None = None) -> list[Any]:
    if type(raw) is not list or (length is not None and len(raw) != length):
        raise ProtocolError("a list expected")
    return raw


_ENDS = ((False, False), (True, False), (False, True), (True, True))
"""(terminated, truncated) by the number that stands for them on the wire."""
_ENDS_BY_DIGIT = dict(zip("0123", _ENDS, strict=True))
_step_result = partial(tuple.__new__, StepResult)  # builds the tuple without a Python call


def _step(raw: Any) -> StepResult:
    if type(raw) is not list or len(raw) != 3:
        raise ProtocolError("a step expected")
    text, reward, end = raw
    if type(text) is not str or type(end) is not int or not 0 <= end <= 3:
        raise ProtocolError("a step expected")
    if not text.isascii() or len(text) > MAX_OBSERVATION_BYTES:
        text = repair(text)
    return StepResult(text, _reward(reward), *_ENDS[end])


def _steps(raw: dict[str, Any]) -> list[StepResult]:
    """Steps in a row, sent as columns. The usual case is checked as a whole, any other element by element."""
    texts, ends = _list(raw.get("s")), raw.get("e")
    rewards = _list(raw["w"]) if "w" in raw else [0.0] * len(texts)
    if type(ends) is not str or ends.strip("0123") or not 0 < len(texts) == len(rewards) == len(ends):
        raise ProtocolError("columns of steps expected")
    try:
        whole = "".join(texts)
    except TypeError as error:
        raise ProtocolError("text expected") from error
    if not whole.isascii() or len(whole) > MAX_OBSERVATION_BYTES:
        texts = [repair(text) for text in texts]
    if {*map(type, rewards)} != {float} or not math.isfinite(sum(rewards)):
        rewards = [_reward(reward) for reward in rewards]
    terminated, truncated = zip(*[_ENDS_BY_DIGIT[end] for end in ends], strict=True)
    return list(map(_step_result, zip(texts, rewards, terminated, truncated, strict=True)))


def _play(raw: Any, turns: int, brief: bool) -> PlayTrace:
    observations, rewards, terminated, truncated, after = _list(raw, 5)
    texts = [_text(t) for t in _list(observations)]
    values = [_reward(r) for r in _list(rewards)]
    if len(values) > turns or len(texts) != (0 if brief else len(values) + 1):
        raise ProtocolError("an episode of the wrong length")
    late = [_step(s) for s in _list(after) if type(s) is not dict]
    return PlayTrace(texts, values, _flag(terminated), _flag(truncated), late)


def _info(raw: Any) -> ProgramInfo:
    name, game_type, turns, solution, hint, tools = _list(raw, 6)
    if type(turns) is not int or not all(type(t) is dict for t in _list(tools)):
        raise ProtocolError("malformed program information")
    return ProgramInfo(_text(name), _text(game_type), turns, _flag(solution), _flag(hint), tuple(tools))


def _solution(raw: Any) -> str | list[str]:
    return [_text(a) for a in raw] if type(raw) is list else _text(raw)


def _tools(raw: Any) -> list[dict[str, Any]]:
    if not all(type(tool) is dict for tool in _list(raw)):
        raise ProtocolError("a list of tools expected")
    return list(raw)


def _criteria(raw: Any) -> Criteria:
    current, met = _list(raw, 2)
    if type(current) is not int or not all(m is None or type(m) is bool for m in _list(met)):
        raise ProtocolError("malformed criteria")
    return Criteria(current, tuple(met))


def check_results(ops: Sequence[Request], done: int, raw: Sequence[Any]) -> list[OpResult]:
    """The checked values of the operations from number `done` on. Raises ProtocolError on any other shape."""
    if len(raw) == len(ops) == 1 and ops[0][0] == "s" and type(raw[0]) is list and not done:
        return [_step(raw[0])]
    results: list[OpResult] = []
    for entry in raw:
        at = done + len(results)
        if at >= len(ops):
            raise ProtocolError("an answer nobody asked for")
        if type(entry) is dict and "s" in entry:
            steps = _steps(entry)
            asked = ops[at : at + len(steps)]
            if len(asked) != len(steps) or {*map(_kind, asked)} != {"s"}:
                raise ProtocolError("steps nobody asked for")
            results += steps
        else:
            results.append(check_result(ops[at], entry))
    return results


def check_result(op: Request, raw: Any) -> OpResult:
    """The checked value of one operation, or the program's fault. Raises ProtocolError on any other shape."""
    kind = op[0]
    if type(raw) is dict:
        code = _PROGRAM_CODES.get(f) if type(f := raw.get("f")) is str else None
        if code is None:
            raise ProtocolError("an unknown fault")
        return ProgramFault(code, _text(raw.get("d"))[:MAX_DETAIL])
    if kind == "s":
        return _step(raw)  # refuses it
    if kind == "s":
        return _step(raw)
    if kind == "p":
        return _play(raw, op[4], op[5])
    if kind == "r" or kind == "h" or kind == "x":
        return _text(raw)
    if kind == "o":
        return _solution(raw)
    if kind == "l":
        return _info(raw)
    if kind == "t":
        return _tools(raw)
    if kind == "c":
        return [_text(text) for text in _list(raw)]
    if kind == "q":
        return _criteria(raw)
    if kind != "d" or raw is not None:
        raise ProtocolError("nothing expected")
    return None
