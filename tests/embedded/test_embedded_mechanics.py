"""Corpus programs: skill pays, nothing leaks, and the held-out side stays out."""

from __future__ import annotations

import random
import re
import statistics
from typing import Any

import pytest

from spade.config import HintConfig, SandboxConfig, ValidateConfig
from spade.embedded import heldout, mechanics
from spade.embedded.heldout import heldout_programs
from spade.embedded.mechanics import (
    Mechanic,
    SampledProgram,
    draw_params,
    is_heldout,
    load,
    registry,
    sample_program,
    tool_registry,
)
from spade.embedded.players import Play, play
from spade.embedded.samples import fits
from spade.envs.fingerprint import canonical
from spade.envs.hintcheck import check_hint, check_hint_play, hint_facts
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate_many
from spade.types import GAME_TYPES, EnvProgram

ALL = {**registry(), **tool_registry()}
every = pytest.mark.parametrize("mechanic", ALL.values(), ids=list(ALL))


def tools(mechanic: Mechanic) -> bool:
    return mechanic.name in tool_registry()


def draws(mechanic: Mechanic, n: int, level: int | None = None) -> list[SampledProgram]:
    rng = random.Random(f"{mechanic.name}/{level}")
    return [sample_program(rng, name=mechanic.name, level=level, tools=tools(mechanic)) for _ in range(n)]


def wrapped(sampled: SampledProgram, content: str) -> str:
    return content if "(ToolEnv)" in sampled.code else f"\\boxed{{{content}}}"


def run(sampled: SampledProgram, player: mechanics.Player, seed: int) -> Play:
    """One game of a scripted player that never changes its mode."""
    env, rng = load(sampled.code), random.Random(f"player {seed}")  # must not follow the game's own generator
    env.text, _ = first, _ = env.reset(seed)
    history: list[tuple[str, str]] = []
    for _ in range(env.max_turns):
        action = player(env, history, rng)
        reply, reward, terminated, truncated, _ = env.step(wrapped(sampled, action))
        history.append((action, reply))
        if terminated or truncated:
            return Play(first, tuple(history), float(reward) if terminated else 0.0)
    raise AssertionError(f"{sampled.mechanic.name} does not end after max_turns:\n{sampled.code}")


def mean(mechanic: Mechanic, player: mechanics.Player, level: int) -> float:
    return statistics.fmean(run(s, player, seed).value for seed, s in enumerate(draws(mechanic, 60, level)))


def test_there_are_enough_mechanics_over_all_skills() -> None:
    from spade.config import GAME_SKILLS
    from spade.embedded.tool_worlds import TOOL_SKILLS

    assert len(registry()) >= 12 and len(tool_registry()) >= 6
    assert {m.skill for m in registry().values()} == set(GAME_SKILLS)
    assert {m.skill for m in tool_registry().values()} == set(TOOL_SKILLS)


@every
def test_skill_pays_at_every_level(mechanic: Mechanic) -> None:
    for level in (0, 1, 2):
        expert, naive = mean(mechanic, mechanic.expert, level), mean(mechanic, mechanic.naive, level)
        assert expert >= naive + 0.25, f"level {level}: expert {expert:.2f}, naive {naive:.2f}"
        assert expert >= 0.55


@every
def test_programs_are_deterministic_per_seed_and_vary_between_seeds(mechanic: Mechanic) -> None:
    firsts = set()
    for seed, sampled in enumerate(draws(mechanic, 12)):
        once, again = run(sampled, mechanic.naive, seed), run(sampled, mechanic.naive, seed)
        assert once == again
        solutions = {str(answer(sampled.code, s)) for s in range(12)}
        assert len(solutions) > 1, sampled.code
        firsts.add(once.first)
    assert len(firsts) > 1


def answer(code: str, seed: int) -> Any:
    env = load(code)
    env.reset(seed)
    return env.solution()


@every
def test_the_solution_wins(mechanic: Mechanic) -> None:
    for level in (0, 1, 2):
        for seed, sampled in enumerate(draws(mechanic, 12, level)):
            env = load(sampled.code)
            env.reset(seed)
            plan = env.solution()
            actions = [plan] if isinstance(plan, str) else plan
            assert 1 <= len(actions) <= env.max_turns
            reward, terminated = 0.0, False
            for action in actions:
                assert not terminated, f"the program ends before its solution does:\n{sampled.code}"
                _, reward, terminated, _, _ = env.step(wrapped(sampled, action))
            assert terminated and reward == 1.0, sampled.code


@every
def test_junk_never_wins_and_never_raises(mechanic: Mechanic) -> None:
    sampled = draws(mechanic, 1)[0]
    contents = ("", "\u0663", "-1", "a b c\n1", "1" * 400, "}{")
    for junk in ("", "x" * 5000, "{" * 50, *(f"\\boxed{{{c}}}" for c in contents)):
        env = load(sampled.code)
        env.reset(0)
        for _ in range(env.max_turns):
            _, reward, terminated, truncated, _ = env.step(junk)
            assert reward == 0.0
            if terminated or truncated:
                break
        else:
            raise AssertionError("the program does not end")


def test_expert_share_mixes_the_two_players() -> None:
    rng = random.Random(4)
    programs = [sample_program(rng) for _ in range(150)]
    skilled, plain = (
        statistics.fmean(play(s, random.Random(i), share).value for i, s in enumerate(programs))
        for share in (1.0, 0.0)
    )
    assert skilled > 0.85 > 0.5 > plain > 0.02


# --- hints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanic", ALL.values(), ids=ALL.keys())
def test_hints_hold_no_digit_and_no_answer(mechanic: Mechanic) -> None:
    """A word of a hint may be one that the game itself shows, never an answer that it hides."""
    answers: set[str] = set()
    for seed, sampled in enumerate(draws(mechanic, 60)):
        plan = answer(sampled.code, seed)
        if isinstance(plan, str):
            answers.add(plan.casefold())
        else:
            answers.add(" ".join(plan).casefold())
    assert len(mechanic.hints) >= 2
    for hint in mechanic.hints:
        assert not re.search(r"\d", hint)
        assert len(hint.split()) <= HintConfig().max_words
        padded = f" {' '.join(re.findall(r'[a-z]+', hint.casefold()))} "
        assert [a for a in answers if f" {a} " in padded] == []


async def test_hints_pass_the_run_time_checks_and_corpus_programs_the_battery() -> None:
    """What the model is taught to write must be what the validator and the hint checks let through."""
    limits = ValidateConfig(floor_max=0.34)
    chosen = [s for m in ALL.values() for s in draws(m, 2, 1)]
    programs = [EnvProgram.of(s.code, game_type=GAME_TYPES[1 + tools(s.mechanic)]) for s in chosen]
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        verdicts = await validate_many(programs, sandbox, limits)
        codes = [(s.mechanic.name, v.code) for s, v in zip(chosen, verdicts, strict=True)]
        assert sum(v.accepted for v in verdicts) >= 0.8 * len(verdicts), codes
        for sampled, program in list(zip(chosen, programs, strict=True))[::2]:
            facts = await hint_facts(program, sandbox)
            results = [check_hint(h, facts, HintConfig().max_words) for h in sampled.mechanic.hints]
            hint = sampled.mechanic.hints[0]
            results.append(await check_hint_play(hint, program, sandbox, limits.floor_max))
            bad = [r for r in results if not r.ok]
            assert bad == [], f"{sampled.mechanic.name}: {bad}"


# --- the split -------------------------------------------------------------------------------------------


def test_corpus_draws_are_never_held_out() -> None:
    rng = random.Random(8)
    held = {canonical(p.code) for p in heldout_programs()}
    seen: set[str] = set()
    for i in range(3000):
        sampled = sample_program(rng, tools=i % 10 == 0)
        assert not is_heldout(sampled.mechanic.name, sampled.params)
        seen.add(sampled.code)
    assert len(seen) > 500
    assert [code for code in seen if canonical(code) in held] == []


def test_heldout_programs_lie_on_the_heldout_side(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, bool] = {}

    def spy(mechanic: Mechanic, rng: random.Random, level: int, *, heldout: bool) -> mechanics.Params:
        params = draw_params(mechanic, rng, level, heldout=heldout)
        drawn[mechanic.code(params)] = is_heldout(mechanic.name, params)
        return params

    monkeypatch.setattr(heldout, "draw_params", spy)
    rows = heldout_programs()
    assert all(drawn[row.code] for row in rows)
    assert {row.family for row in rows} == set(registry())
    assert {row.half for row in rows} == {"easy", "hard"}
    for key in ("name", "code"):
        assert len({getattr(row, key) for row in rows}) == len(rows)
    assert len({canonical(row.code) for row in rows}) == len(rows)


def test_heldout_programs_are_the_same_for_everybody() -> None:
    random.seed(1)
    once = heldout_programs()
    random.seed(2)
    assert heldout_programs() == once


def test_the_split_takes_about_a_fifth_of_every_mechanic() -> None:
    rng = random.Random(0)
    for mechanic in ALL.values():
        tuples = {repr(p): p for p in (mechanic.draw(rng, i % 3) for i in range(600))}
        share = statistics.fmean(is_heldout(mechanic.name, p) for p in tuples.values())
        assert 0.02 <= share <= 0.5, f"{mechanic.name}: {share:.2f} of {len(tuples)}"


def test_a_mechanic_without_a_side_is_an_error() -> None:
    one = registry()["sum"]
    params = one.draw(random.Random(0), 0)
    fixed = Mechanic("sum", one.skill, lambda r, k: params, one.code, one.expert, one.naive, one.hints, ())
    side = is_heldout("sum", params)
    assert draw_params(fixed, random.Random(0), 0, heldout=side) == params
    with pytest.raises(ValueError, match="no parameters with heldout"):
        draw_params(fixed, random.Random(0), 0, heldout=not side)


def test_most_mechanics_have_documents_that_suit_them(documents: list[str]) -> None:
    without = [m.name for m in ALL.values() if not any(fits(m, d) for d in documents)]
    assert len(without) <= len(ALL) // 4, without
