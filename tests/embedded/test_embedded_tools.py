"""Tool-use corpus programs: one number decides how much is asked for, and the players do what they say."""

from __future__ import annotations

import random
import re
import statistics
from collections import Counter
from itertools import pairwise

import pytest

from spade.config import SandboxConfig, ValidateConfig
from spade.embedded.mechanics import Mechanic, SampledProgram, load, sample_program, tool_registry
from spade.embedded.players import HINTED_EXPERT, PLAIN_EXPERT, play
from spade.embedded.tool_worlds import arguments_of, call, steps
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate_many
from spade.types import EnvProgram

every = pytest.mark.parametrize("mechanic", tool_registry().values(), ids=list(tool_registry()))


def draws(mechanic: Mechanic, n: int, level: int | None = None) -> list[SampledProgram]:
    rng = random.Random(f"{mechanic.name}/{level}")
    return [sample_program(rng, name=mechanic.name, level=level, tools=True) for _ in range(n)]


@every
def test_instructions_follow_from_the_turn_limit_whatever_it_is(mechanic: Mechanic) -> None:
    """A Designer that changes `max_turns` alone still writes a program that its solution wins."""
    code = draws(mechanic, 1)[0].code
    least = int(mechanic.name in ("diary", "bank", "files", "desk")) + 2
    counts = []
    for turns in range(least, 8):
        env = load(re.sub(r"max_turns = \d+", f"max_turns = {turns}", code))
        env.reset(turns)
        counts.append(len(env.tasks))
        actions = env.solution()
        assert len(actions) <= turns
        assert [env.step(a)[1] for a in actions][-1] == 1.0
    assert counts == sorted(counts) and counts[0] == 1 and counts[-1] == 3


@every
def test_a_parameter_stands_in_one_place_of_the_program(mechanic: Mechanic) -> None:
    """Programs of two parameter tuples differ in at most as many lines as the tuples differ in values."""
    rows = [(s.params, s.code.splitlines()) for s in draws(mechanic, 30)]
    for (one, first), (other, second) in pairwise(rows):
        assert len(first) == len(second)
        lines = sum(a != b for a, b in zip(first, second, strict=True))
        assert lines <= sum(one[key] != other[key] for key in one)


@every
def test_a_plan_is_cut_by_instruction(mechanic: Mechanic) -> None:
    for seed, sampled in enumerate(draws(mechanic, 20)):
        env = load(sampled.code)
        env.reset(seed)
        groups = steps(env)
        assert len(groups) == len(env.tasks)
        assert [c for group in groups for c in group] == env.plan


@every
def test_scripted_play_leaves_room_and_a_hint_fills_it(mechanic: Mechanic) -> None:
    """The shares of the corpus: unhinted play wins a third to two thirds, hinted play nearly always."""
    samples = draws(mechanic, 300, 0)
    plain, hinted = (
        statistics.fmean(play(s, random.Random(i), share).value for i, s in enumerate(samples))
        for share in (PLAIN_EXPERT, HINTED_EXPERT)
    )
    assert 0.33 <= plain <= 0.66
    assert hinted >= 0.88


def test_call_text_and_its_arguments() -> None:
    text = call("move", event="lunch", hour=12)
    assert text == '<tool_call>{"name": "move", "arguments": {"event": "lunch", "hour": 12}}</tool_call>'
    assert arguments_of(text) == {"event": "lunch", "hour": 12}
    assert arguments_of(call("list")) == {}


def test_a_player_starts_again_after_an_error() -> None:
    """A call that was refused counts as not made: the skilled player repeats it once the way is free."""
    files = tool_registry()["files"]
    env = load(draws(files, 1, 1)[0].code)
    env.reset(3)
    put = steps(env)[0][1]
    history = [(put, env.step(put)[0])]
    assert history[0][1].startswith("error")
    for _ in range(2):
        action = files.expert(env, history, random.Random(0))
        history.append((action, env.step(action)[0]))
    assert [a for a, _ in history[1:]] == steps(env)[0]
    assert env.current == 1


async def test_every_tool_program_of_the_corpus_passes_the_battery() -> None:
    limits = ValidateConfig(floor_max=0.34)
    chosen = [s for m in tool_registry().values() for level in (0, 1, 2) for s in draws(m, 2, level)]
    programs = [EnvProgram.of(s.code, game_type="tool_use") for s in chosen]
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        verdicts = await validate_many(programs, sandbox, limits)
    assert Counter(v.code for v in verdicts) == {"accepted": len(chosen)}
