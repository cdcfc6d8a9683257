"""Runs one environment program: reads batches of operations from descriptor 3, answers in order.

Executed in a forked, confined process (standard library only). Frames are a 4-byte big-endian length and
JSON. A request is a list of operations, an answer `{"r": [result, ...]}` for the next operations in order,
with `"v": [...]` when the program tried something forbidden. One request may be answered in several frames:
long answers are split, and slow operations are reported as they finish, so the parent can time each of them.

Operations: `["l", code]` load, `["r", i, seed]` reset, `["s", i, action]` step, answered
`[observation, reward, end]` with end = terminated + 2 * truncated, `["S", [i, ...], [action, ...]]` steps in
a row, answered in columns, `{"s": observations, "w": rewards unless all are 0, "e": ends as digits}`,
`["o", i]` solution, `["h", i]` hint, `["d", i]` drop, `["t", i]` tools, `["c", i]` results of the last
turn's calls, `["q", i]` tool-use criteria, `["p", i, seed, actions, turns, brief, after]` play: reset, then
the actions (over and over up to `turns`) until the episode ends, then the actions `after`. A failed
operation answers `{"f": code, "d": detail}`. The checks here only make the common case cheap; the parent
checks again.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as _quote
from typing import Any

CHANNEL = 3
"""Descriptor of the socket to the parent; 0, 1 and 2 are /dev/null, nothing else is open."""

MODULE = "program"
CUT = 64 * 1024
TRACE_CHARS = 80_000  # a frame is at most 1 MiB and a character at most 12 bytes of JSON
TRACE_BYTES = 900_000
LATE_CHARS = 1000
STEP_CHARS = 40  # what a step takes beside its text
FLUSH_SECONDS = 0.05
READ_BYTES = 1 << 14
MAX_INSTANCES = 4096
MAX_INT_REWARD = 2**53
MAX_SOLUTION = 1000

_FORBIDDEN_TEXT = (
    "os.scandir os.mkdir os.rmdir os.remove os.rename os.link os.symlink os.truncate "
    "os.chmod os.chown os.chdir os.walk os.system os.exec os.fork os.forkpty os.posix_spawn "
    "os.spawn os.kill os.killpg os.utime subprocess.Popen signal.pthread_kill socket.__new__ "
    "socket.connect socket.bind socket.sendto socket.getaddrinfo socket.gethostname "
    "ctypes.dlopen _thread.start_new_thread resource.setrlimit resource.prlimit mmap.__new__ "
    "fcntl.ioctl"
)
FORBIDDEN = frozenset(_FORBIDDEN_TEXT.split())
"""Audit events of attempts no game makes. They fail anyway; noted, so that the parent can refuse."""

_DIGITS = "0123"
_clock = time.monotonic  # taken before the clocks are replaced
_read, _write = os.read, os.write
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_scan = vars(json.JSONDecoder())["scan_once"]  # what `decode` does, without looking for blanks around it


class ContractError(Exception):
    """The program returned something the contract does not allow."""


def describe(error: BaseException) -> str:
    """One line about an exception, without running any code the program may have put on it."""
    name = type.__dict__["__name__"].__get__(type(error))
    args = BaseException.__dict__["args"].__get__(error)
    parts = [a for a in args if type(a) is str or type(a) is int][:1]
    line = ""
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == f"<{MODULE}>":
            line = f" (line {trace.tb_lineno})"
        trace = trace.tb_next
    if type(error) is SyntaxError and type(error.lineno) is int:
        line = f" (line {error.lineno})"
    return f"{name}: {str(parts[0])[:300]}{line}" if parts else f"{name}{line}"


def fault_of(error: BaseException, loading: bool) -> dict[str, str]:
    """The wire form of an exception."""
    kind = type(error)
    if kind is ContractError:
        return {"f": "contract", "d": str(error.args[0])[:300]}
    code = "exception"
    if kind is MemoryError:
        code = "memory"
    elif loading and issubclass(kind, SyntaxError):
        code = "syntax"
    elif issubclass(kind, ImportError):
        code = "import_refused"
    return {"f": code, "d": describe(error)}


def checked_text(value: Any, what: str) -> str:
    """`value` if it is exactly a str, cut to the limit."""
    if type(value) is not str:
        raise ContractError(f"{what} must be a str, not {type(value).__name__}")
    return value if len(value) <= CUT else value[:CUT]


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
            tools if type(tools) is list and len(_encode(tools)) < CUT else [],
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
        if type(tools) is not list or len(_encode(tools)) > CUT:
            raise ContractError("the tools are not a list, or too long")
        return tools

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
    """Blocking frames on descriptor 3."""

    def __init__(self) -> None:
        self.buffer = b""

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
        return _scan(str(body, "ascii"), 0)[0]

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
        self.ends: list[int] = []
        self.room = TRACE_CHARS
        self.due = _clock() + FLUSH_SECONDS

    def add(self, result: Any) -> None:
        """The result of the next operation."""
        size = size_of(result)
        if size > self.room:
            self.flush()
        self.close_row()
        self.results.append(result)
        self.room -= size
        if _clock() > self.due:
            self.flush()

    def close_row(self) -> None:
        """Steps so far become one result."""
        if self.texts:
            columns: dict[str, Any] = {"s": self.texts, "e": "".join(map(_DIGITS.__getitem__, self.ends))}
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


def watch(stdlib: str) -> list[str]:
    """Note forbidden attempts of this process from now on; returns the growing list (at most 8 entries)."""
    noted: list[str] = []
    harmless = (stdlib, "/proc/self/", f"<{MODULE}>")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if len(noted) >= 8:
            return
        if event == "open" or event == "os.listdir":
            path = args[0]
            if not (type(path) is str and path.startswith(harmless)):  # imports look into the library
                noted.append(f"{event} {path!r}"[:80] if type(path) in (str, bytes, int) else event)
        elif event in FORBIDDEN:
            noted.append(event)

    sys.addaudithook(hook)
    return noted


def row(host: Host, answers: Answers, numbers: list[int], actions: list[str]) -> None:
    """Steps in a row, answered as columns. The usual result is judged here, any other by `checked_step`."""
    instances, current = host.instances, host.current
    for number, action in zip(numbers, actions, strict=True):
        try:
            held = instances.get(number)
            if held is None:
                instance = host.instance(number)
            else:
                instance, current[0] = held
            result = instance.step(action)
            if type(result) is not tuple or len(result) != 5:
                checked_step(result)  # says what is wrong
            text, reward, terminated, truncated, info = result
            if (
                type(text) is str
                and type(reward) is float
                and type(terminated) is bool
                and type(truncated) is bool
                and type(info) is dict
                and reward - reward == 0.0
                and len(text) <= CUT
            ):
                end = (3 if terminated else 2) if truncated else 1 if terminated else 0
            else:
                text, reward, end = checked_step(result)
        except BaseException as error:
            answers.add(fault_of(error, False))
            continue
        room = answers.room - len(text) - STEP_CHARS
        if room < 0:
            answers.flush()
            room = answers.room - len(text) - STEP_CHARS
        answers.room = room
        answers.texts.append(text)
        answers.rewards.append(reward)
        answers.ends.append(end)
        if _clock() > answers.due:
            answers.flush()


def main(extras: dict[str, Any], streams: tuple[list[Any], Callable[[], Any]], stdlib: str) -> None:
    """Serve requests until the parent closes the socket."""
    host, channel, noted = Host(extras, streams), Channel(), watch(stdlib)
    answers = Answers(channel, noted)
    while (request := channel.receive()) is not None:
        if len(request) == 1 and request[0][0] == "s":  # the usual case in play, written by hand
            result = host.perform(request[0])
            if type(result) is list and not noted:
                text, reward, end = result
                channel.send(f'{{"r":[[{_quote(text)},{reward!r},{end}]]}}')
                continue
            answers.add(result)
        else:
            answers.start()
            for operation in request:
                if operation[0] == "S":
                    row(host, answers, *operation[1:])
                else:
                    answers.add(host.perform(operation))
        answers.flush()
