"""The process that runs upstream's classes and upstream's checker (`spade_evals.hosting`).

    {"op": "run", "item": ITEM, "steps": [["f(a=1)", ...], ...]}
        ─► {"results": ["...", ...]}                       what the calls of the last step return
    {"op": "check", "item": ITEM, "turns": [[["f(a=1)"]]], "truth": [["f(a=1)"]], "strict": false}
        ─► {"valid": true, "error_type": "", "message": ""}

ITEM is `{"package": PATH, "id": ..., "initial_config": ..., "involved_classes": [...]}`. Nothing is kept
between requests: each gets modules executed anew and instances of its own (upstream's live in the globals of
a module and survive), so a step is run on top of all steps before it. Calls are read as names with literal
arguments and go to public methods of the item's classes; no text is ever evaluated. The budget of processor
time and the limits on memory and files are those of the process.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import json
import sys
from functools import cache, lru_cache
from types import CodeType, ModuleType
from typing import Any, Final

from spade_evals.grade.calls import Call
from spade_evals.grade.calls_reader import read_calls
from spade_evals.hosting.serve import serve

MEMORY: Final = 2 << 30
"""Address space in bytes."""
BASE: Final = "bfcl_eval.eval_checker.multi_turn_eval"
BULK: Final = f"{BASE}.func_source_code.long_context"
"""Module with the bulk records. In long-context items its objects are handed out and written to, so there it
is made anew as well; elsewhere nobody touches them."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request."""
    item = request["item"]
    _require(item["package"])
    world = World(item)
    if request["op"] == "run":
        results: list[str] = []
        for step in request["steps"]:
            results = world.run("model", step)
        return {"results": results}
    return check(world, item, request["turns"], request["truth"], bool(request.get("strict")))


def check(
    world: World, item: dict[str, Any], turns: list[list[list[str]]], truth: list[list[str]], strict: bool
) -> dict[str, Any]:
    """Upstream's verdict on a conversation. `strict` also asks its check that turns without reference calls
    hold no calls, which upstream itself never runs."""
    if len(turns) != len(truth):
        return {"valid": False, "error_type": "multi_turn:force_terminated", "message": ""}
    turns = [[step for step in turn if step] for turn in turns]
    checker: Any = importlib.import_module(f"{BASE}.multi_turn_checker")
    checker.execute_multi_turn_func_call = world.execute
    category = str(item["id"]).rsplit("_", 1)[0]
    verdict = checker.multi_turn_checker(turns, truth, item, category, "model")
    if strict and verdict["valid"]:
        verdict = checker.multi_turn_irrelevance_checker(turns, truth)
    return {
        "valid": bool(verdict["valid"]),
        "error_type": str(verdict.get("error_type", "")),
        "message": str(verdict.get("error_message", ""))[:300],
    }


class World:
    """The classes of one item, with separate instances for each side (the model's calls, the reference's)."""

    def __init__(self, item: dict[str, Any]) -> None:
        self._item = item
        self._long = "long_context" in str(item["id"])
        backends: Any = importlib.import_module("bfcl_eval.constants.executable_backend_config")
        self._stateless = frozenset(backends.STATELESS_CLASSES)
        sys.modules[BULK] = _fresh(BULK) if self._long else _bulk()
        self._classes = {
            name: getattr(_fresh(backends.CLASS_FILE_PATH_MAPPING[name]), name)
            for name in item["involved_classes"]
        }
        for name, made in self._classes.items():
            _METHODS.setdefault(name, _public(made))
        self._methods = {method: name for name in self._classes for method in _METHODS[name]}
        self._sides: dict[str, dict[str, Any]] = {}

    def run(self, side: str, calls: list[str]) -> list[str]:
        """Run calls in order; what each returned, as the text upstream makes of it."""
        instances = self._instances(side)
        return [self._result(instances, text) for text in calls]

    def execute(
        self,
        func_call_list: list[str],
        initial_config: dict[str, Any],
        involved_classes: list[str],
        model_name: str,
        test_entry_id: str,
        long_context: bool = False,
        is_evaL_run: bool = False,
    ) -> tuple[list[str], dict[str, Any]]:
        """In place of upstream's function of this signature, which hands the calls to `eval`."""
        return self.run(model_name, func_call_list), self._instances(model_name)

    def _instances(self, side: str) -> dict[str, Any]:
        if side not in self._sides:
            self._sides[side] = {name: self._made(name) for name in self._classes}
        return self._sides[side]

    def _made(self, name: str) -> Any:
        instance = self._classes[name]()
        if name not in self._stateless:
            config = copy.deepcopy(self._item["initial_config"].get(name, {}))
            instance._load_scenario(config, long_context=self._long)
        return instance

    def _result(self, instances: dict[str, Any], text: str) -> str:
        reading = _read(text)
        if len(reading.calls) != 1:
            return f"Error during execution: {reading.refused or 'not a call'}"
        call = reading.calls[0]
        if call.name not in self._methods:
            return f"Error during execution: name '{call.name.partition('.')[0]}' is not defined"
        try:
            return _text(self._called(instances, call))
        except Exception as error:  # a result like any other: the model reads it
            return f"Error during execution: {error}"

    def _called(self, instances: dict[str, Any], call: Call) -> Any:
        # The classes keep what they are given and change it, so every call gets values of its own.
        args, kwargs = copy.deepcopy((call.args, call.kwargs))
        return getattr(instances[self._methods[call.name]], call.name)(*args, **kwargs)


def _text(result: Any) -> str:
    """A result as upstream shows it."""
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except (TypeError, ValueError, RecursionError):
            return str(result)
    return result if isinstance(result, str) else str(result)


_METHODS: dict[str, list[str]] = {}
"""Class -> its public methods."""

_read = lru_cache(maxsize=4096)(read_calls)  # a conversation's first calls are read again in each step


def _public(made: type) -> list[str]:
    """Names of the methods that may be called."""
    return [name for name, _ in inspect.getmembers(made, inspect.isfunction) if not name.startswith("_")]


def _fresh(name: str) -> ModuleType:
    """A module executed anew; its code is compiled once."""
    module = ModuleType(name)
    exec(_code(name), module.__dict__)  # upstream's own code, hash checked
    return module


@cache
def _bulk() -> ModuleType:
    """The bulk records for items that do not use them."""
    return _fresh(BULK)


@cache
def _code(name: str) -> CodeType:
    spec = importlib.util.find_spec(name)
    loader: Any = spec.loader if spec is not None else None
    code: CodeType = loader.get_code(name)
    return code


@cache
def _require(package: str) -> None:
    """Make the package importable; a process serves one package."""
    sys.path.insert(0, package)


if __name__ == "__main__":
    serve(lambda: answer, memory=MEMORY)
