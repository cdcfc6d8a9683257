"""What an environment program may rely on and must do; one place for prompts, validator, sandbox and docs.

A program is one module with one class whose name ends in `Env`:

* class attributes `game_type` ("single_turn" | "multi_turn" | "tool_use", default "multi_turn") and
  `max_turns` (int); the class can be constructed without arguments;
* `reset(seed) -> (observation: str, info: dict)`;
* `step(action: str) -> (observation: str, reward: float, terminated: bool, truncated: bool, info: dict)`;
* `solution() -> str | list[str]`: the winning answer, or the winning actions in order;
* optional `hint() -> str` and `close()`.

The text that reaches `step` is `\\boxed{content}`. Tool-use programs subclass `ToolEnv` and receive the
action unchanged.
"""

from __future__ import annotations

import re
from typing import Final

CONTRACT_VERSION: Final = "1"

ALLOWED_MODULES: Final[tuple[str, ...]] = (
    "abc",
    "bisect",
    "collections",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "textwrap",
    "time",
    "typing",
)
"""Modules a program may import. All are loaded before any program runs."""

NUMPY: Final = "numpy"


def allowed_modules(numpy: bool) -> tuple[str, ...]:
    """Modules a program may import; `numpy` as `sandbox.numpy` says."""
    return (*ALLOWED_MODULES, NUMPY) if numpy else ALLOWED_MODULES


MAX_TURNS: Final = 25
"""Turns after which every episode is over, whatever the program says about itself."""

MAX_OBSERVATION_BYTES: Final = 64 * 1024
"""Longer observations are cut (UTF-8 bytes)."""

MAX_ACTION_CHARS: Final = 100_000
"""Longer actions are cut before they reach a program."""

FULL_RETURN: Final = 1.0 - 1e-9
"""A return at least this large is a win."""

MEMBERS: Final[tuple[tuple[str, str], ...]] = (
    ("game_type", 'class attribute: `"multi_turn"` (default), `"single_turn"` or `"tool_use"`'),
    ("max_turns", "attribute: the program's own turn limit, at most 25 counts"),
    ("__init__", "optional; the class must be constructible without arguments"),
    (
        "reset(seed)",
        "returns `(observation, info)`; the same seed gives the same task, another seed another one",
    ),
    (
        "step(action)",
        "returns `(observation, reward, terminated, truncated, info)`; the action arrives as `\\boxed{...}`",
    ),
    (
        "solution()",
        "the winning answer as a string, or the winning actions in order as a list, for the task of the last "
        "`reset`",
    ),
    ("hint()", "optional: how to play, in a few words, without any value of the task"),
    ("close()", "optional"),
)
"""Members of the class and their rules, as the manual and the Designer's brief list them."""

TOOL_MEMBERS: Final[tuple[tuple[str, str], ...]] = (
    ("max_turns", "class attribute: the number of turns after which an unfinished episode is cut off"),
    (
        "tools",
        'class attribute: name to `{"description": text, "parameters": {argument: JSON type, '
        "or its schema}}`",
    ),
    (
        "setup(rng)",
        "fills `self.state`, a dict, and `self.tasks`, a list of pairs (instruction, predicate on the "
        "state); instructions are shown one at a time, the next once the predicate holds after a call",
    ),
    (
        "tool_NAME(...)",
        "one method for each tool, its arguments named as in `tools`; changes `self.state` and returns text; "
        "a call that cannot be carried out returns a text that says why",
    ),
    (
        "tool_decline(reason)",
        "is there already; list `decline` in `tools` to offer it; sets `declined` in the state",
    ),
    (
        "solution()",
        "the winning actions in order as a list: `self.call(NAME, argument=value)` for each call, then "
        "`self.answer`",
    ),
    ("hint()", "optional: how to go about the tasks, in a few words, without any value of them"),
)
"""The same for a subclass of `ToolEnv`, which brings `reset` and `step`."""

SHORT_RULES: Final[dict[str, str]] = {
    "multi_turn": (
        "Write a Python class ...Env: max_turns, reset(seed), solution(), step(action). "
        "Answers come in \\boxed{}. Reward 1 at the goal only. Guessing must not win."
    ),
    "single_turn": (
        "Write a Python class ...Env: max_turns, reset(seed), solution(), step(action). "
        "One answer in \\boxed{}. Reward 1 if right. Guessing must not win."
    ),
    "tool_use": (
        "Write a Python class ...Env(ToolEnv): max_turns, tools, setup(rng), tool methods, solution(). "
        "Tasks come one at a time, each with a check on the state."
    ),
}
"""The contract in two sentences, for the Designer's brief when the context is small."""

_BOX = "\\boxed{"
_BRACES = re.compile(r"\\boxed\s*\{|[{}]")
_WRAPPERS = 3


def wrap_action(text: str) -> str:
    """The text as it reaches `step`: unchanged when it already holds a complete box, else in one."""
    return text if boxed_content(text) is not None else f"{_BOX}{text}}}"


def boxed_content(text: str) -> str | None:
    """Content of the last complete outermost `\\boxed{...}` in `text` (braces matched), or None.

    A content that is nothing but one more box, or one more pair of braces, is unwrapped, a few levels deep.
    Linear in the length of the text.
    """
    if "\\boxed" not in text:
        return None
    content = _outer_box(text)
    for _ in range(_WRAPPERS):
        if content is None or (inner := _unwrapped(content.strip())) is None:
            break
        content = inner
    return content


def _outer_box(text: str) -> str | None:
    stack: list[tuple[int, int] | None] = []
    found: list[tuple[int, int, int]] = []
    for match in _BRACES.finditer(text):
        token = match.group()
        if token == "{":
            stack.append(None)
        elif token != "}":
            stack.append((match.start(), match.end()))
        elif stack and (opened := stack.pop()) is not None:
            start, inside = opened
            while found and found[-1][0] > start:
                found.pop()  # boxes inside this one are part of its content
            found.append((start, inside, match.start()))
    return text[found[-1][1] : found[-1][2]] if found else None


def _unwrapped(content: str) -> str | None:
    """What is inside when the whole content is one box or one pair of braces, else None."""
    first = _BRACES.match(content)
    if first is None or first.group() == "}":
        return None
    depth = 0
    for match in _BRACES.finditer(content):
        depth += -1 if match.group() == "}" else 1
        if depth == 0:
            return content[first.end() : -1] if match.end() == len(content) else None
    return None


def solution_actions(solution: str | list[str], game_type: str) -> list[str]:
    """The actions that play a `solution()`: a string is one action; tool-use actions stay as they are."""
    actions = [solution] if isinstance(solution, str) else list(solution)
    return actions if game_type == "tool_use" else [wrap_action(a) for a in actions]


def bare(action: str) -> str:
    """The content of an action's box, or the action itself, stripped."""
    inner = boxed_content(action)
    return (action if inner is None else inner).strip()
