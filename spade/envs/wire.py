"""Checks on everything that crosses the pipe between the parent and a worker.

Nothing a worker says is trusted: frames are capped, JSON is strict (`frames.py`), shapes and exact types are
checked again, text is repaired and cut. A reply that fails is a `ProtocolError`, and the worker is killed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from spade.envs.contract import MAX_OBSERVATION_BYTES
from spade.envs.frames import (
    MAX_DETAIL,
    MAX_FRAME,
    FrameReader,
    ProtocolError,
    decode_answer,
    encode_frames,
    encode_request,
    kind_of,
    repair,
)
from spade.envs.ops import Criteria, Op, OpResult, PlayTrace, ProgramInfo, Request, StepResult, Value
from spade.errors import FaultCode, ProgramFault

# Handed on, so that those who talk to workers need one import only.
__all__ = [
    "MAX_FRAME",
    "Criteria",
    "FrameReader",
    "Op",
    "OpResult",
    "PlayTrace",
    "ProgramInfo",
    "ProtocolError",
    "Request",
    "StepResult",
    "Value",
    "decode_answer",
    "encode_frames",
    "encode_request",
    "repair",
]

MAX_INT_REWARD = 2**53

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
_new = tuple.__new__  # of a StepResult, without a Python call


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
    if "w" in raw and ({*map(type, rewards)} != {float} or not math.isfinite(sum(rewards))):
        rewards = [_reward(reward) for reward in rewards]
    flags = _ENDS_BY_DIGIT[ends[0]] if ends.count(ends[0]) == len(ends) else None
    if flags is not None:
        rows = zip(texts, rewards, repeat(flags[0]), repeat(flags[1]))
    else:
        rows = zip(texts, rewards, *zip(*map(_ENDS_BY_DIGIT.__getitem__, ends), strict=True), strict=True)
    return list(map(_new, repeat(StepResult), rows))


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
            if len(asked) != len(steps) or {*map(kind_of, asked)} != {"s"}:
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
