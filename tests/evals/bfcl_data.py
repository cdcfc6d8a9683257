"""The BFCL package for tests, golden and broken agents, and upstream's own checker in its own process."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from spade.errors import InputError
from spade.rng import child_seed
from spade.serving.chat import ChatCompletion, ChatPolicy, ChatRequest
from spade.serving.policy import Completion
from spade.serving.scripted import ScriptedPolicy
from spade.types import Message, StopReason, ToolCall
from spade_evals import data
from spade_evals.fetching import fetch
from spade_evals.grade.calls import Call
from spade_evals.grade.calls_reader import read_calls
from spade_evals.question import Question
from spade_evals.suites.bfcl.multi_turn import MultiTurn, in_steps
from spade_evals.suites.bfcl.package import FOLDER, WHEEL, Package, find_package, source

UPSTREAM = Path(__file__).resolve().parents[2] / "benchmarks" / "bfcl_upstream.py"
Turns = list[list[list[str]]]
"""Calls by turn and step."""


def bfcl_root(keep: Path) -> Path:
    """A data root that holds the package: the user's, else `keep`, into which it is fetched once. Skips."""
    mine = data.data_root()
    if (mine / WHEEL).is_file() or (mine / FOLDER).is_dir():
        return mine
    if not (keep / WHEEL).is_file():
        try:
            with patch.dict(os.environ, {"PIP_RETRIES": "1", "PIP_DEFAULT_TIMEOUT": "15"}):
                fetch(source(0), "bfcl", keep)
        except InputError as error:
            pytest.skip(f"NOT RUN: no bfcl-eval under {mine} (spade data get bfcl), and {error}")
    return keep


def loaded(category: str, root: Path) -> tuple[MultiTurn, list[Question]]:
    """A multi-turn task and its questions."""
    task = MultiTurn(category)
    return task, task.load(root).questions


# --- agents --------------------------------------------------------------------------------------------


def oracle(truth: list[list[str]]) -> Turns:
    return [in_steps(turn) for turn in truth]


def parallel(truth: list[list[str]]) -> Turns:
    return [[list(turn)] if turn else [] for turn in truth]


def silent(truth: list[list[str]]) -> Turns:
    return [[] for _ in truth]


def without_last(truth: list[list[str]]) -> Turns:
    turns = oracle(truth)
    next(turn for turn in reversed(turns) if turn)[-1].pop()
    return turns


def backwards(truth: list[list[str]]) -> Turns:
    return [in_steps(turn[::-1]) for turn in truth]


AGENTS = {
    "oracle": oracle, "parallel": parallel, "silent": silent, "without_last": without_last,
    "backwards": backwards,
}  # fmt: skip
WANTED = {"oracle": 200, "parallel": 200, "silent": 0, "without_last": 0, "backwards": 90}
"""Items of 200 that each agent solves, in every category."""


def corrupted(rng: random.Random, truth: list[list[str]]) -> Turns:
    """The oracle's calls with one to three random changes."""
    turns = oracle(truth) if rng.random() < 0.7 else parallel(truth)
    for _ in range(rng.randint(1, 3)):
        _corrupt(rng, turns, [call for turn in truth for call in turn])
    return turns


def _corrupt(rng: random.Random, turns: Turns, known: Sequence[str]) -> None:
    turn = rng.choice(turns)
    if not turn or rng.random() < 0.15:
        turn.append([rng.choice(known)])
        return
    step = rng.choice(turn)
    if not step:
        return
    at = rng.randrange(len(step))
    way = rng.randrange(7)
    if way == 0:
        step.pop(at)
    elif way == 1:
        step.insert(at, step[at])
    elif way == 2:
        step.insert(at, rng.choice(known))
    elif way == 3:
        rng.shuffle(turn)
    else:
        step[at] = str(_changed(rng, read_calls(step[at]).calls[0], known))


def _changed(rng: random.Random, call: Call, known: Sequence[str]) -> Call:
    """Another function, an argument more or less, or another value."""
    kwargs = copy.deepcopy(call.kwargs)
    if rng.random() < 0.15:
        other = read_calls(rng.choice(known)).calls[0].name
        return Call(rng.choice([other, "no_such_function"]), call.args, kwargs)
    if not kwargs or rng.random() < 0.15:
        return Call(call.name, call.args, {**kwargs, "extra": 1})
    name = rng.choice(list(kwargs))
    value = kwargs[name]
    if rng.random() < 0.2:
        del kwargs[name]
        return Call(call.name, call.args, kwargs)
    values: list[Any] = [None, "", 0, -1, 1.5, True, [], str(value), f"{value} x", [value], {"a": value}]
    if isinstance(value, int | float) and not isinstance(value, bool):
        values += [value + 1, float(value)]
    kwargs[name] = rng.choice(values)
    return Call(call.name, call.args, kwargs)


class GoldenPolicy(ScriptedPolicy):
    """Says what `replies` hold for the seed of a request, which names question and reply.

    It takes messages as they are, so that thousands of conversations cost no rendering.
    """

    def __init__(self, replies: dict[int, tuple[ToolCall, ...]], rows: int = 64) -> None:
        super().__init__("null", max_rows=rows)
        self.replies = replies

    async def converse(self, requests: Sequence[ChatRequest], n: int = 1) -> list[list[ChatCompletion]]:
        return [[self._reply_to(request)] for request in requests]

    def _reply_to(self, request: ChatRequest) -> ChatCompletion:
        assert request.params.seed is not None
        calls = self.replies[request.params.seed]
        return ChatCompletion(
            "reply", Completion((1, 256), (0.0, 0.0), StopReason.STOP), tool_calls=calls, raw="reply",
            sampled_tokens=2, message=Message("assistant", "reply"),
        )  # fmt: skip


def _replies(turns: Turns) -> Iterable[tuple[ToolCall, ...]]:
    for turn in turns:
        for step in turn:
            if step:
                yield tuple(ToolCall(c.name, c.kwargs) for text in step for c in read_calls(text).calls)
        yield ()


def golden(task: MultiTurn, questions: Sequence[Question], agent: str, rows: int = 64) -> ChatPolicy:
    """A chat that plays one of `AGENTS` on these questions, in a run with seed 0."""
    replies = {}
    for question in questions:
        named = [[str(task.named(question, text)) for text in turn] for turn in question.reference]
        for number, calls in enumerate(_replies(AGENTS[agent](named))):
            seed = child_seed(0, "dialogue", task.name, question.id, 0, "agent", number) % 2**31
            assert seed not in replies
            replies[seed] = calls
    policy = GoldenPolicy(replies, rows)
    return ChatPolicy(policy.renderer, policy)


# --- upstream ------------------------------------------------------------------------------------------


def upstream(package: Package, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Verdicts of upstream's own checkers."""
    done = subprocess.run(
        [sys.executable, str(UPSTREAM), str(package.path)],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()][:-1]


def package_of(root: Path) -> Package:
    return find_package("bfcl", root)
