"""One full window of a scripted world, worked out by hand: regret, plateau, blend, scale and advantages.

Two steps make a window (`design.every` = `design.delay` = 2), four plays in each arm. Three programs were
accepted (a and b of skill A, c of skill B), one attempt of skill A was invalid, one of skill B equalled c.

              plain, step 0     hinted, step 0     plain, step 1
    a         1 0 0 0           1 1 0 0            1 1 0 1
    b         0 0 0 0           0.1 0.2 0 0        1 1 0 0.2
    c         1 1 1 0           1 0 1 0            1 1 0 0.8
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spade.runs import RunFolder
from spade.serving.chat import ChatPolicy, ModelRef
from spade.train.ledger import Ledger
from spade.train.pending import Attempt, DesignSet
from spade.train.record import samples_of
from spade.train.selfplay import SelfPlaySource
from spade.train.source import World as SourceWorld
from spade.types import Credit, EnvProgram, Episode, EpisodeEnd, Group, Instance, Scored, Trajectory
from tests.train.scripted_world import World, small_config

PROGRAMS = {
    "a": EnvProgram.of("a", skill="A", hint="look"),
    "b": EnvProgram.of("b", skill="A", hint="look"),
    "c": EnvProgram.of("c", skill="B", hint="look"),
}
PLAIN = (
    {"a": (1, 0, 0, 0), "b": (0, 0, 0, 0), "c": (1, 1, 1, 0)},
    {"a": (1, 1, 0, 1), "b": (1, 1, 0, 0.2), "c": (1, 1, 0, 0.8)},
)
HINTED = {"a": (1, 1, 0, 0), "b": (0.1, 0.2, 0, 0), "c": (1, 0, 1, 0)}

# regret a = (0 + 1 + 0 + 0) / 4 = 0.25, b = (0.1 + 0.2) / 4 = 0.075, c = (0 - 1 + 0 + 0) / 4 = -0.25
REGRETS = {"a": 0.25, "b": 0.075, "c": -0.25}
# stderr a: sum of squares 3 * 0.25^2 + 0.75^2 = 0.75, / 3 / 4 = 0.0625, root 0.25
#        b: 0.025^2 + 0.125^2 + 2 * 0.075^2 = 0.0275, / 12;   c as a
ERRORS = {"a": 0.25, "b": math.sqrt(0.0275 / 12), "c": 0.25}

# window means: a (1 + 3) / 8 = 0.5, b (0 + 2.2) / 8 = 0.275, c (3 + 2.8) / 8 = 0.725
# plateau [0.4, 0.6], ramp 0.25: a 1, b 1 - 0.125 / 0.25 = 0.5, c 1 - 0.125 / 0.25 = 0.5
# blend: a 0.4 * min(1, 0.25 / 0.15) + 0.6 * 1   = 1.0
#        b 0.4 * 0.075 / 0.15        + 0.6 * 0.5 = 0.5
#        c 0.4 * 0                   + 0.6 * 0.5 = 0.3
# invalid 0, duplicate of c 0.3 - 0.3 = 0
# mean of skill A: (1 + 0.5 + 0) / 3 = 0.5;  of skill B: (0.3 + 0) / 2 = 0.15
CENTRED = (0.5, 0.0, 0.15, -0.5, -0.15)
# reference scale: 12 Agent plays of the step, 5 designs, 2 steps: 12 / 5 * 2 = 4.8, below the cap of 50
# std: population variance of CENTRED (mean 0): (2 * 0.25 + 2 * 0.0225) / 5 = 0.109, floor 0.1
SCALES = {"reference": 4.8, "none": 1.0, "std": 1.0 / (math.sqrt(0.109) + 0.1)}

# z-scores, floor 0.1. Step 0: a mean 1/4, variance 3/16; b is constant; c mean 3/4, variance 3/16.
THREE = math.sqrt(3) / 4 + 0.1
# Step 1: a mean 3/4, variance 3/16;
#         b mean 0.55, variance (0.45^2 * 2 + 0.55^2 + 0.35^2) / 4 = 0.2075
#         c mean 0.7, variance (0.3^2 * 2 + 0.7^2 + 0.1^2) / 4 = 0.17
B, C = math.sqrt(0.2075) + 0.1, math.sqrt(0.17) + 0.1
AGENT = (
    {
        "a": (0.75 / THREE, -0.25 / THREE, -0.25 / THREE, -0.25 / THREE),
        "b": (0.0, 0.0, 0.0, 0.0),
        "c": (0.25 / THREE, 0.25 / THREE, 0.25 / THREE, -0.75 / THREE),
    },
    {
        "a": (0.25 / THREE, 0.25 / THREE, -0.75 / THREE, 0.25 / THREE),
        "b": (0.45 / B, 0.45 / B, -0.55 / B, -0.35 / B),
        "c": (0.3 / C, 0.3 / C, -0.7 / C, 0.1 / C),
    },
)
# Running mean per program, decay 0.5: step 1 baseline = (mean of step 0 + mean of step 1) / 2
EMA = {"a": (0.25 + 0.75) / 2, "b": (0 + 0.55) / 2, "c": (0.75 + 0.7) / 2}
# Running mean per skill, decay 0.95. Skill A: step 0 mean of 8 plays 1/8, step 1 (3 + 2.2) / 8 = 0.65.
RAE = {"a": 0.95 * 0.125 + 0.05 * 0.65, "b": 0.95 * 0.125 + 0.05 * 0.65, "c": 0.95 * 0.75 + 0.05 * 0.7}


def stream(role: Any, *ids: int) -> Trajectory:
    return Trajectory(role, (1,), ids, (1,) * len(ids), (-1.0,) * len(ids))


def plays(name: str, values: Sequence[float], hint: str | None) -> tuple[Episode, ...]:
    return tuple(
        Episode(
            Instance(PROGRAMS[name].id, seed, hint),
            stream("agent", ord(name), seed),
            (),
            "",
            Scored(float(value), value == 1),
            EpisodeEnd.TERMINATED,
        )
        for seed, value in enumerate(values)
    )


def groups(step: int) -> list[Group]:
    return [
        Group(
            program,
            plays(name, PLAIN[step][name], None),
            plays(name, HINTED[name], "look") if step == 0 else (),
        )
        for name, program in PROGRAMS.items()
    ]


def open_source(out: Path, **changes: Any) -> SelfPlaySource:
    """A source in which the set of step 0 has just been designed; nothing is played in a sandbox."""
    cfg = small_config(
        out,
        design__delay=2,
        play__plays=4,
        play__hinted_plays=4,
        reward__skill_gate=False,
        design__memory__enabled=False,
        **changes,
    )
    policy = World().policy
    folder = RunFolder.create_or_resume(cfg, "train", "test")
    chat = ChatPolicy(policy.renderer, policy, ModelRef("local", "scripted", None))
    source = SelfPlaySource(SourceWorld(cfg, chat, None, folder, Ledger()))  # type: ignore[arg-type]
    attempts = [
        Attempt(p.skill, stream("designer", 100 + i), "accepted", p.id)
        for i, p in enumerate(PROGRAMS.values())
    ]
    attempts.append(Attempt("A", stream("designer", 103), "invalid"))
    attempts.append(Attempt("B", stream("designer", 104), "duplicate", "c2", PROGRAMS["c"].id))
    source.sets.append(DesignSet(0, tuple(attempts)))
    for program in PROGRAMS.values():
        source.archive.add(program)
    return source


def agent(credits: Sequence[Credit], step: int) -> dict[str, list[float]]:
    """Advantages by program name."""
    return {
        name: [c.advantage for c in credits if c.group == f"{step}/{program.id}/plain"]
        for name, program in PROGRAMS.items()
    }


@pytest.mark.parametrize("scale", SCALES)
async def test_one_full_window_by_hand(tmp_path: Path, scale: str) -> None:
    source = open_source(tmp_path / "a", learner__designer_scale=scale)
    first = await source.observe(0, groups(0))
    assert all(c.trajectory.role == "agent" for c in first) and len(first) == 12
    measured = {a.program_id: a.regret for a in source.sets[0].attempts if a.kind == "accepted"}
    for name, program in PROGRAMS.items():
        regret = measured[program.id]
        assert regret is not None and (regret.n, regret.faults) == (4, 0)
        assert regret.mean == pytest.approx(REGRETS[name], abs=1e-9)
        assert regret.stderr == pytest.approx(ERRORS[name], abs=1e-9)
    second = await source.observe(1, groups(1))
    designer = [c for c in second if c.trajectory.role == "designer"]
    assert [c.trajectory.completion_ids[0] for c in designer] == [100, 101, 102, 103, 104]
    for credit, centred in zip(designer, CENTRED, strict=True):
        assert credit.advantage == pytest.approx(centred * SCALES[scale], abs=1e-9)
    assert source.rewards == pytest.approx(
        {PROGRAMS["a"].id: 1.0, PROGRAMS["b"].id: 0.5, PROGRAMS["c"].id: 0.3}, abs=1e-9
    )
    assert source.metrics()["designer_reward"] == pytest.approx((1.0 + 0.5 + 0.3) / 5, abs=1e-9)
    for step, credits in enumerate((first, second)):
        for name, values in agent(credits, step).items():
            assert values == pytest.approx(AGENT[step][name], abs=1e-9)
    assert source.sets == [] and len(samples_of(second)) == 17


@pytest.mark.parametrize(("kind", "baseline"), [("ema", EMA), ("rae", RAE)])
async def test_running_baselines_by_hand_and_across_a_checkpoint(
    tmp_path: Path, kind: str, baseline: dict[str, float]
) -> None:
    source = open_source(tmp_path / "a", learner__advantage=kind)
    first = agent(await source.observe(0, groups(0)), 0)
    if kind == "ema":  # the first step of a program is centred on its own mean
        assert first["a"] == pytest.approx([0.75, -0.25, -0.25, -0.25], abs=1e-9)
    state = json.loads(json.dumps(source.state_dict()))
    resumed = open_source(tmp_path / "b", learner__advantage=kind)
    resumed.load_state_dict(state)
    for each in (source, resumed):
        second = agent(await each.observe(1, groups(1)), 1)
        for name, values in second.items():
            expected = [r - baseline[name] for r in PLAIN[1][name]]
            assert values == pytest.approx(expected, abs=1e-9)


# What each reward pays for a, b and c.
# Window means 0.5, 0.275, 0.725. Slow means after the first round: A (0.5 + 0.275) / 2 = 0.3875, B 0.725.
# Progress: mean of step 1 - mean of step 0 = 0.5, 0.55, -0.05.
# Lower bound with 4 + 2 pairs, z = 1:
#   a mean 1/6, second moment 1/6, error sqrt((1/6 - 1/36) / 5) = 1/6, so 0
#   b mean 0.05, second moment 0.05 / 6, error sqrt((0.05 / 6 - 0.0025) / 5)
# Regret of the whole window: a 0.5 - 0.5 = 0, b 0.075 - 0.275 < 0, c 0.5 - 0.725 < 0.
# Variances: a 1/4; b (1 + 1 + 0.04) / 8 - 0.275^2; c (5 + 0.64) / 8 - 0.725^2.
PAID: dict[str, tuple[float, float, float]] = {
    "regret": (0.25, 0.075, 0.0),
    "regret_lcb": (0.0, max(0.0, 0.05 - math.sqrt((0.05 / 6 - 0.0025) / 5)), 0.0),
    "learning_potential": (0.1125, 0.1125, 0.0),
    "solve_rate": (1.0, 0.5, 0.5),
    "micro_lp": (0.5, 0.55, 0.0),
    "learnability": (0.25, 0.275 * 0.725, 0.275 * 0.725),
    "variance": (
        1.0,
        math.exp(-((2.04 / 8 - 0.275**2 - 0.25) ** 2) / 0.02),
        math.exp(-((5.64 / 8 - 0.725**2 - 0.25) ** 2) / 0.02),
    ),
}


@pytest.mark.parametrize("name", PAID)
async def test_every_reward_by_hand(tmp_path: Path, name: str) -> None:
    source = open_source(tmp_path / "a", reward__type=name)
    await source.observe(0, groups(0))
    await source.observe(1, groups(1))
    assert [source.rewards[p.id] for p in PROGRAMS.values()] == pytest.approx(PAID[name], abs=1e-9)


async def test_regret_of_the_whole_window_and_the_shaped_reward(tmp_path: Path) -> None:
    source = open_source(
        tmp_path / "a",
        reward__type="regret",
        reward__regret_window="all",
        reward__regret_floor=False,
        reward__drop_negative=True,
        design__novelty_weight=0.1,
        design__guide_weight=0.5,
    )
    source.sets[0].attempts[0].novelty, source.sets[0].attempts[0].guide = 0.5, 0.2
    await source.observe(0, groups(0))
    credits = await source.observe(1, groups(1))
    # b and c have a negative raw reward and are left out; a earns 0 * ... + 0.1 * 0.5
    assert source.rewards == pytest.approx({PROGRAMS["a"].id: 0.05}, abs=1e-9)
    trained = [c.trajectory.completion_ids[0] for c in credits if c.trajectory.role == "designer"]
    assert trained == [100, 103, 104]


async def test_the_slow_mean_survives_a_checkpoint(tmp_path: Path) -> None:
    source = open_source(tmp_path / "a", reward__type="learning_potential")
    await source.observe(0, groups(0))
    await source.observe(1, groups(1))
    assert source.metrics()["skill_gap/A"] == 0.0
    resumed = open_source(tmp_path / "b", reward__type="learning_potential")
    resumed.load_state_dict(json.loads(json.dumps(source.state_dict())))
    assert resumed.skill_means.slow("A") == pytest.approx(0.3875, abs=1e-9)
    assert resumed.skill_means.slow("B") == pytest.approx(0.725, abs=1e-9)
