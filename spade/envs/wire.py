"""What crosses the pipe between the parent and a worker, and every check on it.

Nothing a worker says is trusted: frames are capped, JSON is strict, shapes and exact types are checked again,
text is repaired and cut. A reply that fails is a `ProtocolError`, and the worker is killed.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from spade.envs.contract import MAX_ACTION_CHARS, MAX_OBSERVATION_BYTES, MAX_TURNS
from spade.errors import FaultCode, ProgramFault

MAX_FRAME = 1 << 20
"""Longest frame in either direction, in bytes."""
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


class StepResult(NamedTuple):
    """One checked answer of `step`; `reward` is finite."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool


class PlayTrace(NamedTuple):
    """One episode played in one message.

    `observations` has one more entry than `rewards` (the first is the reset's), or none if brief.
    `after_end` holds the steps taken after the end (texts cut short), those that raised left out.
    """

    observations: list[str]
    rewards: list[float]
    terminated: bool
    truncated: bool
    after_end: list[StepResult]

    @property
    def value(self) -> float:
        """The return: the last reward if the program terminated, else 0."""
        return self.rewards[-1] if self.terminated and self.rewards else 0.0

    @property
    def ended(self) -> bool:
        """Whether the program itself ended the episode."""
        return self.terminated or self.truncated


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """What a program says about itself after loading. `max_turns` is 0 if it does not say."""

    class_name: str
    game_type: str
    max_turns: int
    has_solution: bool
    has_hint: bool
    tools: tuple[dict[str, Any], ...] = ()

    @property
    def turns(self) -> int:
        """Turns an episode can take: the program's own limit, capped at the contract's."""
        return min(self.max_turns, MAX_TURNS) if self.max_turns else MAX_TURNS


Request = tuple[Any, ...]
Value = str | list[str] | StepResult | PlayTrace | ProgramInfo | None
OpResult = Value | ProgramFault


class Op:
    """Builders of operations; an operation is a plain tuple."""

    @staticmethod
    def load(code: str) -> Request:
        """Load a program; the result is a `ProgramInfo`."""
        return ("l", code)

    @staticmethod
    def reset(i: int, seed: int) -> Request:
        """Start an episode of instance `i`; the result is the first observation."""
        return ("r", i, seed)

    @staticmethod
    def step(i: int, action: str) -> Request:
        """One step; the result is a `StepResult`."""
        return ("s", i, action if len(action) <= MAX_ACTION_CHARS else action[:MAX_ACTION_CHARS])

    @staticmethod
    def play(
        i: int,
        seed: int,
        actions: Sequence[str],
        *,
        turns: int | None = None,
        brief: bool = False,
        after: Sequence[str] = (),
    ) -> Request:
        """A whole episode: `actions` once, or over and over up to `turns`; the result is a `PlayTrace`.

        `brief` leaves the observations out; the actions `after` are given after the end.
        """
        return ("p", i, seed, list(actions), (len(actions) if turns is None else turns), brief, list(after))

    @staticmethod
    def solution(i: int) -> Request:
        """The program's own answer now: str or list of actions."""
        return ("o", i)

    @staticmethod
    def hint(i: int) -> Request:
        """The program's own hint now."""
        return ("h", i)

    @staticmethod
    def drop(i: int) -> Request:
        """Forget instance `i`."""
        return ("d", i)


# --- frames --------------------------------------------------------------------------------------------


def _refuse_constant(name: str) -> NoReturn:
    raise ProtocolError(f"the constant {name}")


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def encode_request(ops: Sequence[Request]) -> bytes:
    """One frame. Raises ProgramFault if it is larger than a frame may be."""
    body = _encode(ops).encode("ascii")
    if len(body) > MAX_FRAME:
        raise ProgramFault(FaultCode.PROTOCOL, f"the request of {len(body)} bytes is larger than a frame")
    return struct.pack(">I", len(body)) + body


def decode_answer(body: bytes) -> tuple[list[Any], list[str]]:
    """Results and noted violations of one frame."""
    try:
        answer = _decode(body.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a frame that is not strict JSON") from error
    if type(answer) is not dict or type(results := answer.get("r")) is not list:
        raise ProtocolError("a frame without results")
    violations = answer.get("v", [])
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


def _step(raw: Any) -> StepResult:
    observation, reward, terminated, truncated = _list(raw, 4)
    return StepResult(_text(observation), _reward(reward), _flag(terminated), _flag(truncated))


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


def check_result(op: Request, raw: Any) -> OpResult:
    """The checked value of one operation, or the program's fault. Raises ProtocolError on any other shape."""
    kind = op[0]
    if kind == "s" and type(raw) is list:
        return _step(raw)
    if type(raw) is dict:
        code = _PROGRAM_CODES.get(raw.get("f", ""))
        if code is None:
            raise ProtocolError("an unknown fault")
        return ProgramFault(code, _text(raw.get("d"))[:MAX_DETAIL])
    if kind == "p":
        return _play(raw, op[4], op[5])
    if kind == "r" or kind == "h":
        return _text(raw)
    if kind == "o":
        return _solution(raw)
    if kind == "l":
        return _info(raw)
    if raw is not None:
        raise ProtocolError("nothing expected")
    return None
