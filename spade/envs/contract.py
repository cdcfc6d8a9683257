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

MAX_TURNS: Final = 25
"""Turns after which every episode is over, whatever the program says about itself."""

MAX_OBSERVATION_BYTES: Final = 64 * 1024
"""Longer observations are cut (UTF-8 bytes)."""

MAX_ACTION_CHARS: Final = 100_000
"""Longer actions are cut before they reach a program."""

FULL_RETURN: Final = 1.0 - 1e-9
"""A return at least this large is a win."""

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


def wrap_action(text: str) -> str:
    """The text as it reaches `step`: unchanged when it already holds a complete box, else in one."""
    return text if boxed_content(text) is not None else f"{_BOX}{text}}}"


def boxed_content(text: str) -> str | None:
    """Content of the last complete `\\boxed{...}` in `text` (braces matched), or None."""
    start = text.rfind(_BOX)
    while start >= 0:
        depth = 1
        for index in range(start + len(_BOX), len(text)):
            depth += (text[index] == "{") - (text[index] == "}")
            if depth == 0:
                return text[start + len(_BOX) : index]
        start = text.rfind(_BOX, 0, start)
    return None


def solution_actions(solution: str | list[str], game_type: str) -> list[str]:
    """The actions that play a `solution()`: a string is one action; tool-use actions stay as they are."""
    actions = [solution] if isinstance(solution, str) else list(solution)
    return actions if game_type == "tool_use" else [wrap_action(a) for a in actions]


def bare(action: str) -> str:
    """The content of an action's box, or the action itself, stripped."""
    inner = boxed_content(action)
    return (action if inner is None else inner).strip()
