"""The program and its instances, as a worker holds them, and the worker's own checks on what they return.

Standard library only. The checks here only make the common case cheap; the parent checks again.
"""

from __future__ import annotations

import contextlib
import json
import sys
import types
from collections.abc import Callable
from typing import Any

MODULE = "program"
CUT = 64 * 1024
TRACE_CHARS = 80_000  # a frame is at most 1 MiB and a character at most 12 bytes of JSON
TRACE_BYTES = 900_000
LATE_CHARS = 1000
MAX_INSTANCES = 4096
MAX_INT_REWARD = 2**53
MAX_SOLUTION = 1000
RESERVE = 2 << 20
"""Bytes of address space, never touched, that are given back when the memory limit is reached."""

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


class ContractError(Exception):
    """The program returned something the contract does not allow."""


def describe(error: BaseException) -> str:
    """One line about an exception, without running any code the program may have put on it."""
    name = type.__dict__["__name__"].__get__(type(error))
    args = BaseException.__dict__["args"].__get__(error)
    # A number of thousands of digits cannot be written, and would not be read.
    parts = [a for a in args if type(a) is str or (type(a) is int and -MAX_INT_REWARD < a < MAX_INT_REWARD)][
        :1
    ]
    line = ""
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == f"<{MODULE}>":
            line = f" (line {trace.tb_lineno})"
        trace = trace.tb_next
    if type(error) is SyntaxError and type(error.lineno) is int:
        line = f" (line {error.lineno})"
    return f"{name}: {str(parts[0])[:300]}{line}" if parts else f"{name}{line}"


_reserve = [bytes(RESERVE)]


def fault_of(error: BaseException, loading: bool) -> dict[str, str]:
    """The wire form of an exception. Where all memory is taken, the reserve is enough to say so."""
    if type(error) is not MemoryError:
        try:
            return _fault_of(error, loading)
        except MemoryError:
            pass
    _reserve.clear()
    try:
        fault = {"f": "memory", "d": describe(error)}
    except MemoryError:
        fault = {"f": "memory", "d": "MemoryError"}
    BaseException.with_traceback(error, None)  # the program's frames may hold what filled the memory
    with contextlib.suppress(MemoryError):
        _reserve.append(bytes(RESERVE))
    return fault


def _fault_of(error: BaseException, loading: bool) -> dict[str, str]:
    kind = type(error)
    if kind is ContractError:
        return {"f": "contract", "d": str(error.args[0])[:300]}
    code = "exception"
    if loading and issubclass(kind, SyntaxError):
        code = "syntax"
    elif issubclass(kind, ImportError):
        code = "import_refused"
    return {"f": code, "d": describe(error)}


def checked_text(value: Any, what: str) -> str:
    """`value` if it is exactly a str, cut to the limit."""
    if type(value) is not str:
        raise ContractError(f"{what} must be a str, not {type(value).__name__}")
    return value if len(value) <= CUT else value[:CUT]


def checked_tools(tools: list[Any]) -> list[Any]:
    """Tools that can be written as JSON of limited length."""
    try:
        size = len(_encode(tools))
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError("the tools cannot be written as JSON") from error
    if size > CUT:
        raise ContractError("the tools are too long")
    return tools


def checked_step(result: Any) -> list[Any]:
    """What `step` returned as `[observation, reward, end]`; info is dropped here."""
    if type(result) is not tuple or len(result) != 5:
        raise ContractError("step must return a tuple (observation, reward, terminated, truncated, info)")
    observation, reward, terminated, truncated, info = result
    if type(observation) is not str or len(observation) > CUT:
        observation = checked_text(observation, "the observation of step")
    if type(reward) is float:
        if reward - reward != 0.0:
            raise ContractError(f"the reward of step must be finite, not {reward}")
    elif type(reward) is not int:
        raise ContractError(f"the reward of step must be a float, not {type(reward).__name__}")
    elif not -MAX_INT_REWARD < reward < MAX_INT_REWARD:
        raise ContractError("the reward of step is too large")
    if type(terminated) is not bool or type(truncated) is not bool:
        raise ContractError("terminated and truncated of step must be bool")
    if type(info) is not dict:
        raise ContractError(f"the info of step must be a dict, not {type(info).__name__}")
    if truncated:
        return [observation, reward, 3 if terminated else 2]
    return [observation, reward, 1 if terminated else 0]


class Host:
    """The program and its instances."""

    def __init__(self, extras: dict[str, Any], streams: tuple[list[Any], Callable[[], Any]]) -> None:
        self.extras = extras
        self.current, self.new_stream = streams
        self.factory: Any = None
        self.spare: Any = None
        self.instances: dict[int, tuple[Any, Any]] = {}
        self.operations: dict[str, Callable[..., Any]] = {
            "l": self.load,
            "r": self.reset,
            "s": self.step,
            "p": self.play,
            "o": self.solution,
            "h": self.hint,
            "d": self.drop,
            "t": self.tools,
            "c": self.call_results,
            "q": self.criteria,
        }

    def load(self, code: str) -> list[Any]:
        """Run the module and construct its class: `[name, game_type, turns, solution?, hint?, tools]`."""
        module = types.ModuleType(MODULE)
        module.__dict__.update(self.extras)
        sys.modules[MODULE] = module
        exec(compile(code, f"<{MODULE}>", "exec", dont_inherit=True), module.__dict__)
        found = [
            v
            for v in module.__dict__.values()
            if isinstance(v, type) and v.__name__.endswith("Env") and v.__module__ == MODULE
        ]
        whole = [c for c in found if hasattr(c, "reset") and hasattr(c, "step")]
        if not whole:
            what = "has no reset and step" if found else "is missing"
            raise ContractError(f"the class whose name ends in Env {what}")
        self.factory = whole[-1]
        self.spare = self.factory()
        turns = getattr(self.spare, "max_turns", None)
        game_type = getattr(self.spare, "game_type", "multi_turn")
        schemas = getattr(self.spare, "schemas", None) if game_type == "tool_use" else None
        tools = schemas() if callable(schemas) else []
        return [
            checked_text(self.factory.__name__, "the class name"),
            checked_text(game_type, "game_type"),
            turns if type(turns) is int and 0 < turns < 10**6 else 0,
            callable(getattr(self.spare, "solution", None)),
            callable(getattr(self.spare, "hint", None)),
            checked_tools(tools) if type(tools) is list else [],
        ]

    def instance(self, index: int) -> Any:
        """Instance `index`, made on first use; its random stream becomes the current one."""
        held = self.instances.get(index)
        if held is None:
            if self.factory is None or len(self.instances) >= MAX_INSTANCES:
                raise ContractError("no program loaded, or too many instances")
            stream = self.new_stream()
            self.current[0] = stream
            made, self.spare = self.spare, None
            held = self.instances[index] = (self.factory() if made is None else made, stream)
        self.current[0] = held[1]
        return held[0]

    def reset(self, index: int, seed: int) -> str:
        """First observation of an episode."""
        instance = self.instance(index)
        self.current[0].restart(seed)
        result = instance.reset(seed=seed)
        if type(result) is not tuple or len(result) != 2 or type(result[1]) is not dict:
            raise ContractError("reset must return a tuple (observation, info dict)")
        return checked_text(result[0], "the observation of reset")

    def step(self, index: int, action: str) -> list[Any]:
        """One step of an episode."""
        return checked_step(self.instance(index).step(action))

    def play(
        self, index: int, seed: int, actions: list[str], turns: int, brief: bool, after: list[str]
    ) -> list[Any]:
        """A whole episode: `[observations, rewards, terminated, truncated, steps after the end]`."""
        observations = [self.reset(index, seed)]
        instance = self.instances[index][0]
        rewards: list[float] = []
        terminated = truncated = False
        room = TRACE_CHARS - len(observations[0])
        count = len(actions)
        while len(rewards) < turns and not (terminated or truncated):
            text, reward, end = checked_step(instance.step(actions[len(rewards) % count]))
            terminated, truncated = end % 2 == 1, end >= 2
            rewards.append(reward)
            if not brief:
                observations.append(text)
                room -= len(text)
                if room < 0:  # the cheap count is up: look at the bytes themselves
                    room = (TRACE_BYTES - sum(len(_encode(o)) for o in observations)) // 12
                    if room < 0:
                        raise ContractError(f"the observations of one episode exceed {TRACE_BYTES} bytes")
        late: list[Any] = []
        if terminated or truncated:
            late = [self.perform(["s", index, action]) for action in after]
            for step in late:
                if type(step) is list:
                    step[0] = step[0][:LATE_CHARS]
        return [[] if brief else observations, rewards, terminated, truncated, late]

    def solution(self, index: int) -> str | list[str]:
        """The program's own answer for the current episode."""
        value = self.instance(index).solution()
        if type(value) is list:
            if len(value) > MAX_SOLUTION or sum(len(checked_text(v, "an action")) for v in value) > CUT:
                raise ContractError("the actions of solution are too long")
            return value
        return checked_text(value, "solution")

    def hint(self, index: int) -> str:
        """The program's own hint for the current episode."""
        return checked_text(self.instance(index).hint(), "hint")

    def tools(self, index: int) -> list[Any]:
        """The tools of an instance as its episode offers them, in the OpenAI function format."""
        schemas = getattr(self.instance(index), "schemas", None)
        tools = schemas() if callable(schemas) else []
        if type(tools) is not list:
            raise ContractError("the tools are not a list")
        return checked_tools(tools)

    def call_results(self, index: int) -> list[str]:
        """Results of the last turn's calls; empty for programs without `ToolEnv`."""
        instance = self.instance(index)
        if not isinstance(instance, self.extras.get("ToolEnv", ())):
            return []
        return [checked_text(text, "the result of a tool") for text in instance._results]

    def criteria(self, index: int) -> list[Any]:
        """`[instructions done, [value of each predicate]]` as a tool-use program reports them."""
        instance = self.instance(index)
        if not isinstance(instance, self.extras.get("ToolEnv", ())):
            return [0, []]
        return [instance.current, instance.criteria()]

    def drop(self, index: int) -> None:
        """Forget an instance."""
        self.instances.pop(index, None)

    def perform(self, operation: list[Any]) -> Any:
        """Result of one operation. The one fault boundary: what a program raises becomes a typed answer."""
        try:
            return self.operations[operation[0]](*operation[1:])
        except BaseException as error:
            return fault_of(error, operation[0] == "l")
