"""Runs one code-benchmark solution, or the check program that judges one, in a confined process.

Standard library only; forked from the zygote that has `solutions.SOLUTION_MODULES` loaded. Requests on
descriptor 3 are framed as in `worker.py`, one operation `["x", verb, text]` a frame; the answer is
`{"r": [text]}`. Texts are JSON, cut into chunks: verb `put` sends all but the last chunk of a request, an
answer that begins with `+` has more to it, fetched by verb `more`.

| verb | request | answer |
|---|---|---|
| `stdin` | code, prelude, stdin, cap | `{"out": text}` or an error |
| `load` | code, prelude, name, side | `{"ok": 1}` or an error |
| `call` | name or handle, args, kwargs | `{"value": plain, "changed": {...}}`, a question or an error |
| `get` | name | `{"value": plain}` or an error |
| `attr` | handle, name, new | `{"value": plain}` or an error |
| `check` | code, modules, names, side | `{"ok": 1}`, a question or an error |
| `answer` | what the question was answered | goes on where the question was asked |

An error is `{"error": verdict, "detail": text}`. A *question* is `{"ask": {...}}`, the request of a `call`,
`get` or `attr` to the process on the other side: the check program asks for the solution's functions this
way, and neither ever runs in the other's process. See `solution_check.py` for what that protects.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import importlib
import json
import sys
import types
from collections.abc import Callable
from typing import Any

from spade.envs import plain
from spade.envs import solution_io as streams
from spade.envs import worker as common

CHANNEL = 3
CHUNK = 60_000
"""Characters (ASCII) of one chunk of a text."""
MAX_EXPORTS = 100_000

_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_loads = json.JSONDecoder().decode


FILE = f"<{common.MODULE}>"
"""File name of the solution in tracebacks; `common.describe` finds its lines by it."""


class Finished(BaseException):
    """The channel is closed."""


# --- channel -------------------------------------------------------------------------------------------


class Channel:
    """Operations in, answers out; hides the chunks."""

    def __init__(self, noted: list[str]) -> None:
        self.noted = noted
        self.rest = ""

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = streams.os_read(CHANNEL, count - len(data))
            if not part:
                raise Finished
            data += part
        return data

    def receive(self) -> tuple[str, Any]:
        """The next verb with its whole request. Raises Finished."""
        parts: list[str] = []
        while True:
            size = int.from_bytes(self._read(4), "big")
            ((_, verb, text),) = _loads(self._read(size).decode("ascii"))
            if verb == "put":
                parts.append(text)
                self._send("")
            elif verb == "more":
                self._send_chunk()
            else:
                return verb, _loads("".join([*parts, text]))

    def reply(self, answer: dict[str, Any]) -> None:
        """The answer to the last verb."""
        self.rest = _dumps(answer)
        self._send_chunk()

    def _send_chunk(self) -> None:
        chunk, self.rest = self.rest[:CHUNK], self.rest[CHUNK:]
        self._send(f"+{chunk}" if self.rest else chunk)

    def _send(self, text: str) -> None:
        body = _dumps({"r": [text], "v": self.noted[:]} if self.noted else {"r": [text]}).encode("ascii")
        self.noted.clear()
        data = len(body).to_bytes(4, "big") + body
        while data:
            data = data[streams.os_write(CHANNEL, data) :]


# --- modules and errors -------------------------------------------------------------------------------


def run_module(code: str, prelude: str, name: str, file: str = FILE) -> dict[str, Any]:
    """Execute `prelude` and `code` as a fresh module called `name`; its namespace."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    if prelude:
        exec(compile(prelude, "<prelude>", "exec", dont_inherit=True), module.__dict__)
    try:
        program = compile(code, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # a null byte has no file name, or is a ValueError
        if isinstance(error, SyntaxError) and error.filename is not None:
            raise
        raise SyntaxError(str(error), (file, None, None, None)) from None
    exec(program, module.__dict__)
    return module.__dict__


def error_of(error: BaseException, loading: bool = False) -> dict[str, Any]:
    """The wire form of an exception of a solution."""
    kind = type(error)
    verdict = "runtime_error"
    if kind is MemoryError:
        verdict = "memory_limit"
    elif kind is streams.OutputLimit or kind is plain.TooLarge:
        verdict = "output_limit"
    elif loading and issubclass(kind, SyntaxError) and error.filename == FILE:  # type: ignore[attr-defined]
        verdict = "syntax"
    name = kind.__name__ if kind.__module__ == "builtins" else "Exception"
    return {"error": verdict, "detail": common.describe(error), "raised": name}


# --- verbs ---------------------------------------------------------------------------------------------


class Remote:
    """An object of the other process: can be called and handed back, equals only itself.

    Attributes can be reached on objects of the solution, never the other way round.
    """

    def __init__(self, guest: Guest, handle: list[Any]) -> None:
        object.__setattr__(self, "_guest", guest)
        object.__setattr__(self, "_handle", handle)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._guest.ask({"h": self._handle[:2]}, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._guest.inquire("attr", {"handle": self._handle[:2], "name": name, "new": []})

    def __setattr__(self, name: str, value: Any) -> None:
        new = [self._guest.encode(value)]
        self._guest.inquire("attr", {"handle": self._handle[:2], "name": name, "new": new})


class Guest:
    """State of this process: the module of a solution or of a check program."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.names: dict[str, Any] = {}
        self.side = "a"
        self.exports: list[Any] = []
        self.remote: dict[tuple[str, int], Remote] = {}
        self.asked: list[BaseException] = []  # what questions raised, to tell it from the check's own errors
        self.verbs: dict[str, Callable[..., dict[str, Any]]] = {
            "stdin": self.stdin,
            "load": self.load,
            "call": self.call,
            "get": self.get,
            "attr": self.attribute,
            "check": self.check,
        }

    def serve(self) -> None:
        """Answer until the channel is closed."""
        while True:
            verb, request = self.channel.receive()
            self.channel.reply(self.perform(verb, request))

    def perform(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        """The answer of one verb. The one fault boundary: what a solution raises becomes an error."""
        try:
            return self.verbs[verb](**request)
        except Finished:
            raise
        except BaseException as error:
            return error_of(error, loading=verb in ("stdin", "load"))

    def stdin(self, code: str, prelude: str, stdin: str, cap: int) -> dict[str, Any]:
        """Run a whole program on one input."""
        sink = streams.install_streams(stdin.encode("utf-8", "surrogatepass"), cap)
        try:
            with contextlib.suppress(SystemExit):  # an ordinary way to end a program
                run_module(code, prelude, "__main__")
            atexit._run_exitfuncs()
            return {"out": streams.printed(sink)}
        finally:
            if sink.over:
                raise streams.OutputLimit(f"more than {cap} bytes printed")

    def load(self, code: str, prelude: str, name: str, side: str, cap: int) -> dict[str, Any]:
        """Run the module whose functions will be called."""
        self.side = side
        streams.install_streams(b"", cap)
        self.names = run_module(code, prelude, name)
        return {"ok": 1}

    def call(self, target: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Call a function of the module, a method of its class `Solution`, or an exported object."""
        function = self.exports[target[1]] if type(target) is list else self.function(target)
        values = [self.decode(a) for a in args]
        named = {k: self.decode(v) for k, v in kwargs.items()}
        before = [_dumps(a) for a in args]
        result = self.encode(function(*values, **named))
        changed = {}
        for index, value in enumerate(values):
            if type(value) in (list, dict, set) and before[index] != _dumps(after := self.encode(value)):
                changed[str(index)] = after
        return {"value": result, "changed": changed}

    def function(self, name: str) -> Any:
        """The function a benchmark means by `name`. Raises NameError."""
        solution = self.names.get("Solution")
        if isinstance(solution, type) and hasattr(solution, name):
            return getattr(solution(), name)
        if name not in self.names:
            raise NameError(f"the solution defines no {name}")
        return self.names[name]

    def get(self, name: str) -> dict[str, Any]:
        """A module-level value. Raises NameError."""
        if name not in self.names:
            raise NameError(f"the solution defines no {name}")
        return {"value": self.encode(self.names[name])}

    def attribute(self, handle: list[Any], name: str, new: list[Any]) -> dict[str, Any]:
        """Read an attribute of an exported object, or set it to the one element of `new`."""
        if self.side != "a":
            raise AttributeError(name)  # a check program's objects lead to its globals
        if new:
            setattr(self.exports[handle[1]], name, self.decode(new[0]))
            return {"value": None}
        return {"value": self.encode(getattr(self.exports[handle[1]], name))}

    def check(self, code: str, modules: list[str], names: list[str], side: str) -> dict[str, Any]:
        """Run a check program; `names` are taken from the solution on the other side."""
        self.side = side
        streams.install_streams(b"", 1 << 16)
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        module.__dict__.update({m: importlib.import_module(m) for m in modules})
        try:
            module.__dict__.update({n: self.ask(n, None, {}) for n in names})
            exec(compile(code, "<check>", "exec", dont_inherit=True), module.__dict__)
        except Finished:
            raise
        except BaseException as error:
            line = _line_of(error)
            if error in self.asked:
                return {**getattr(error, "answer", {}), "line": line}
            verdict = "memory_limit" if type(error) is MemoryError else "wrong_answer"
            return {"error": verdict, "detail": common.describe(error), "line": line}
        return {"ok": 1}

    # --- the other side ------------------------------------------------------------------------------

    def ask(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The value of `target` there, or of calling it. Raises what the call raised, if it is built in."""
        if args is None:
            return self.inquire("get", {"name": target})
        request = {
            "target": target["h"] if type(target) is dict else target,
            "args": [self.encode(a) for a in args],
            "kwargs": {k: self.encode(v) for k, v in kwargs.items()},
        }
        return self.inquire("call", request, args)

    def inquire(self, verb: str, request: dict[str, Any], args: Any = ()) -> Any:
        """Ask a question and wait; meanwhile the other side may ask back. `args` are brought up to date."""
        self.channel.reply({"ask": {"verb": verb, "request": request}})
        while True:
            verb, answer = self.channel.receive()
            if verb == "answer":
                break
            self.channel.reply(self.perform(verb, answer))
        if "error" in answer:
            self.fail(answer)
        for index, raw in answer.get("changed", {}).items():
            update(args[int(index)], self.decode(raw))
        return self.decode(answer["value"])

    def fail(self, answer: dict[str, Any]) -> None:
        """Raise what the other side reported."""
        kind = getattr(builtins, str(answer.get("raised")), Exception)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            kind = Exception
        try:
            error = kind(answer.get("detail", ""))
        except Exception:
            error = Exception(answer.get("detail", ""))
        error.answer = answer  # type: ignore[attr-defined]
        self.asked.append(error)
        raise error

    def encode(self, value: Any) -> Any:
        """The JSON form of a value; opaque ones are kept here under a number."""
        return plain.Writer(self.export).encode(value)

    def export(self, value: Any) -> list[Any]:
        """Side and number of an opaque object."""
        if type(value) is Remote:
            handle: list[Any] = value._handle[:2]
            return handle
        if len(self.exports) >= MAX_EXPORTS:
            raise plain.TooLarge("too many objects")
        self.exports.append(value)
        return [self.side, len(self.exports) - 1]

    def decode(self, raw: Any) -> Any:
        """The value of a JSON form."""
        return plain.decode(raw, self.resolve)

    def resolve(self, handle: list[Any]) -> Any:
        """The object of a handle: our own, or a stand-in for the other side's."""
        side, number = handle[:2]
        if side == self.side:
            return self.exports[number]
        return self.remote.setdefault((side, number), Remote(self, handle))


def update(mine: Any, theirs: Any) -> None:
    """Bring a container up to date that the other side changed in place."""
    if type(mine) is list and type(theirs) is list:
        mine[:] = theirs
    elif type(mine) is type(theirs) and type(mine) in (dict, set):
        mine.clear()
        mine.update(theirs)


def _line_of(error: BaseException) -> int:
    """Line of the check program an exception comes from; 0 if none."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<check>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def main(extras: dict[str, Any], randomness: tuple[list[Any], Callable[[], Any]], stdlib: str) -> None:
    """Serve requests until the parent closes the socket."""
    current, new_stream = randomness
    current[0] = new_stream()
    noted = common.watch(stdlib)
    streams.prepare_process()
    try:
        Guest(Channel(noted)).serve()
    except Finished:
        return
