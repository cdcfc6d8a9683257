"""Tool use and single-turn puzzles through the whole loop: design, hint, both arms, update, resume."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spade.config import Config
from tests.train.scripted_world import (
    DigestLearner,
    World,
    decisions,
    number_of,
    rows,
    small_config,
    train,
)

STORE = """class StoreEnv(ToolEnv):
    max_turns = {turns}
    tools = {{
        "{verb}_stock": {{"description": "{verb} a stock", "parameters": {{"good": "string", "count": "integer"}}}},
        "read_stock": {{"description": "read a stock", "parameters": {{"good": "string"}}}},
    }}

    def setup(self, rng):
        old = {{g: rng.randint(1, 9) for g in ["nails", "paint", "wire", "tape", "glue"]}}
        self.state, self.plan = dict(old), []
        for a in rng.sample(sorted(old), {tasks}):
            n = old[a] + rng.randint(1, {most})
            self.tasks.append(("{verb} " + a + " {by} " + str(n), lambda s, a=a, n=n: s[a] == {goal}))
            self.plan.append(self.call("{verb}_stock", good=a, count=n))

    def tool_{verb}_stock(self, good, count):
        self.state[good] {change} count
        return good + " is " + str(self.state[good])

    def tool_read_stock(self, good):
        return good + " is " + str(self.state[good])

    def solution(self):
        return self.plan + [self.answer]
"""  # noqa: E501


def store(number: int, tasks: int) -> str:
    """A store of goods whose stocks are set or added to."""
    verb = "set" if number % 2 else "add"
    change, by, goal = ("=", "to", "n") if verb == "set" else ("+=", "by", "old[a] + n")
    return STORE.format(
        verb=verb, change=change, by=by, goal=goal, tasks=tasks, turns=tasks + 3, most=5 + number % 50
    )


TASK = re.compile(r"(set|add) ([a-z]+) (?:to|by) (\d+)")


class ToolWorld(World):
    """Designs stores. With a hint it does what is asked; without, it also talks, or counts wrongly."""

    def design(self, prompt: str) -> str:
        self.briefs.append(prompt)
        kind = number_of(f"{prompt}{self.policy.version}", 6)
        if kind == 0:
            return "```python\nclass StoreEnv(ToolEnv):\n    pass\n```"
        return f"```python\n{store(number_of(prompt, 200), 1 + kind % 2)}```"

    def __init__(self) -> None:
        super().__init__("one call for each request, then answer")
        self.briefs: list[str] = []

    def play(self, prompt: str) -> str:
        verb, good, count = TASK.findall(prompt)[-1]
        if "answer done" in prompt.rsplit(f"{good} ", 1)[-1]:
            return "<answer>done</answer>"
        mood = 9 if "HINT" in prompt else number_of(f"{prompt}{self.policy.version}", 6)
        if mood == 0:
            return "I would change the stock now."
        wrong = 1000 if mood == 1 else 0
        call = {"name": f"{verb}_stock", "arguments": {"good": good, "count": int(count) + wrong}}
        return f"<tool_call>{json.dumps(call)}</tool_call>"


def tool_config(out: Path, **changes: Any) -> Config:
    return small_config(
        out,
        design__game_type="tool_use",
        design__delay=1,
        play__programs=2,
        play__max_turns=6,
        train__steps=3,
        reward__skill_gate=False,
        **changes,
    )


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One uninterrupted tool-use run and its world."""
    world = ToolWorld()
    return *train(tool_config(tmp_path_factory.mktemp("tools") / "a"), world), world


def test_tool_use_runs_through_the_whole_loop(tools: Any) -> None:
    _, folder, learner, world = tools
    metrics, episodes = rows(folder, "metrics.jsonl"), rows(folder, "episodes.jsonl")
    designs = rows(folder, "designs.jsonl")
    assert {d["skill"] for d in designs} <= set(tool_config(Path("x")).design.skills)
    assert all(d["domain"] and d["variant"] for d in designs)
    assert all("ToolEnv" in brief for brief in world.briefs)
    accepted = [d for d in designs if d["accepted"]]
    assert accepted and {d["hint_code"] for d in accepted} == {"ok"}
    hinted = [e["value"] for e in episodes if e["hinted"]]
    plain = [e["value"] for e in episodes if not e["hinted"]]
    assert set(hinted) == {1.0} and 0.0 in plain and 1.0 in plain
    assert any(m.get("regret", 0) > 0 for m in metrics)
    assert {s.role for s in learner.seen} == {"agent", "designer"}
    assert sum(s.role == "designer" for s in learner.seen) == len(designs)


def test_malformed_turns_cost_nothing_but_the_turn(tools: Any) -> None:
    _, folder, learner, _ = tools
    talked = [e for e in rows(folder, "episodes.jsonl") if any("I would" in a for a in e["actions"])]
    assert talked and {e["value"] for e in talked} == {0.0, 1.0}  # never -0.1, and the play may still be won
    assert any(m["malformed"] > 0 for m in rows(folder, "metrics.jsonl"))
    talk = tuple(b"I would change")
    for sample in learner.seen:
        ids = sample.completion_ids
        for at in range(len(ids)):
            if ids[at : at + len(talk)] == talk:
                assert not any(sample.mask[at : at + len(talk)])  # context, not trained


def test_a_killed_tool_use_run_equals_an_uninterrupted_one(tools: Any, tmp_path: Path) -> None:
    _, straight, reference, _ = tools
    cfg = tool_config(tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        train(cfg, ToolWorld(), DigestLearner(fail_at=3))
    _, resumed, learner = train(cfg, ToolWorld())
    assert decisions(resumed) == decisions(straight)
    assert learner.digest.tolist() == reference.digest.tolist()


SUM = """import random, re


class SumEnv:
    max_turns = 1

    def reset(self, seed=None):
        r = random.Random(seed)
        a, b = r.randint(100, {top}), r.randint(100, {top})
        self.x = a + b
        return f"what is {{a}} + {{b}}? answer in \\\\boxed{{{{}}}}", {{}}

    def solution(self):
        return str(self.x)

    def step(self, action):
        m = re.search(r"\\\\boxed{{(.*)}}", action)
        done = bool(m) and m.group(1) == str(self.x)
        return "right" if done else "wrong", float(done), done, True, {{}}
"""


class PuzzleWorld(World):
    """Designs sums; without a hint it forgets to carry now and then."""

    def design(self, prompt: str) -> str:
        return f"```python\n{SUM.format(top=900 + number_of(prompt, 200))}```"

    def play(self, prompt: str) -> str:
        a, b = map(int, re.findall(r"what is (\d+) \+ (\d+)", prompt)[-1])
        slips = "HINT" not in prompt and number_of(f"{prompt}{self.policy.version}", 2)
        return f"\\boxed{{{a + b - 10 * slips}}}"


def test_single_turn_puzzles_run_through_the_whole_loop(tmp_path: Path) -> None:
    cfg = small_config(tmp_path / "a", design__game_type="single_turn", train__steps=2, design__delay=2)
    _, folder, learner = train(cfg, PuzzleWorld("add the ones first and carry"))
    designs, episodes = rows(folder, "designs.jsonl"), rows(folder, "episodes.jsonl")
    assert any(d["accepted"] for d in designs), [d["code"] for d in designs]
    assert all(len(e["actions"]) == 1 for e in episodes)
    assert {e["value"] for e in episodes if e["hinted"]} == {1.0}
    assert rows(folder, "metrics.jsonl")[0]["regret"] > 0
    trained = [s.advantage for s in learner.seen if s.role == "designer"]
    assert len(trained) == len(designs)
