"""Our own environment programs in this process: their solutions, and players without skill."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from spade.envs.contract import bare, solution_actions, wrap_action
from spade.envs.floors import BLIND, CLOSED_LOOP, GARBAGE, RANDOM, View, code_words, in_turns, open_loop
from spade.envs.tools import ToolEnv
from spade_evals.suites.games_pool import Game

Make = Callable[[], Any]


def load(game: Game) -> Make:
    """The class of a program of OURS (never a model's)."""
    space: dict[str, Any] = {"ToolEnv": ToolEnv}
    exec(compile(game.program.code, game.name, "exec"), space)
    return next(v for k, v in space.items() if k.endswith("Env") and v is not ToolEnv)


def play(env: Any, actions: Sequence[str]) -> tuple[float, int, list[str]]:
    """Return, turns and observations of actions on a fresh episode, until it ends or they do."""
    seen: list[str] = []
    for turn, action in enumerate(actions, start=1):
        text, reward, terminated, truncated, _ = env.step(action)
        seen.append(text)
        if terminated or truncated:
            return (float(reward) if terminated else 0.0), turn, seen
    return 0.0, len(actions), seen


def solve(game: Game, make: Make, seed: int) -> tuple[float, int, list[str]]:
    env = make()
    env.reset(seed)
    return play(env, solution_actions(env.solution(), game.program.game_type))


def garbage(game: Game) -> str:
    return GARBAGE if game.program.game_type == "tool_use" else wrap_action(GARBAGE)


def floors(game: Game, make: Make, seeds: Sequence[int]) -> dict[str, float]:
    """Mean return of every player without skill that the validator knows, over `seeds`."""
    kind, turns = game.program.game_type, make().max_turns
    answers: Counter[str] = Counter()
    for seed in range(900_000, 900_012):
        env = make()
        env.reset(seed)
        answers.update(solution_actions(env.solution(), kind))
    known = tuple(a for a, _ in answers.most_common())
    policies = {**open_loop(turns), **BLIND, **RANDOM}
    policies |= in_turns(code_words(ast.parse(game.program.code)), turns, "code_words")
    means: dict[str, float] = {}
    for name, policy in policies.items():
        total = 0.0
        for seed in seeds:
            env = make()
            first, _ = env.reset(seed)
            row = list(policy(View(first, turns, known, seed)))
            row = [bare(a) if kind == "tool_use" else a for a in row]
            total += play(env, [row[k % len(row)] for k in range(turns)])[0]
        means[name] = total / len(seeds)
    if kind == "multi_turn":
        vocabulary = [bare(a) for a in known]
        for name, reactive in CLOSED_LOOP.items():
            means[name] = sum(_react(make, reactive(vocabulary), s, turns) for s in seeds) / len(seeds)
    return means


def _react(make: Make, policy: Callable[[str], str], seed: int, turns: int) -> float:
    env = make()
    text, _ = env.reset(seed)
    for _ in range(turns):
        text, reward, terminated, truncated, _ = env.step(policy(text))
        if terminated or truncated:
            return float(reward) if terminated else 0.0
    return 0.0
