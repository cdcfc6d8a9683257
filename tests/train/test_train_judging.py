"""Rewards of design sets, the archive, the open-loop floor: small numbers that can be checked by hand."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from spade.config import SandboxConfig
from spade.design.designer import active_skills
from spade.envs.sandbox import Sandbox
from spade.errors import FaultKind
from spade.learn.potential import SkillMeans
from spade.train.archive import MIN_WEIGHT, Archive
from spade.train.floor import blind_floor, winning_sequences
from spade.train.pending import Attempt, DesignSet, set_credits, set_from_json, set_rewards, set_to_json
from spade.types import (
    EnvProgram,
    Episode,
    EpisodeEnd,
    Fault,
    Instance,
    Outcome,
    Regret,
    Scored,
    StopReason,
    Trajectory,
    Turn,
)
from tests.play.programs import GUESS
from tests.train.scripted_world import World, guess_program, rows, small_config, train

STREAM = Trajectory("designer", (1,), (2,), (1,), (-1.0,))


def attempt(kind: Any = "accepted", skill: str = "A", **fields: Any) -> Attempt:
    fields.setdefault("played", kind == "accepted")
    return Attempt(skill, STREAM, kind, **fields)


def good(name: str, mean: float, regret: float | None, **fields: Any) -> Attempt:
    measured = None if regret is None else Regret(regret, 0.1, 8, 0)
    return attempt(program_id=name, returns=[mean, mean], offsets=[0, 0], regret=measured, **fields)


@pytest.fixture
def cfg(tmp_path: Path) -> Any:
    return small_config(
        tmp_path, design__invalid_reward=-0.5, design__fault_reward=-0.25, design__duplicate_penalty=0.3
    )


def test_published_reward_values(cfg: Any) -> None:
    made = DesignSet(
        0, (good("a", 0.0, 1.0), good("b", 0.5, 0.0), good("c", 0.5, 0.15), good("d", 0.275, -1.0))
    )
    assert set_rewards(made, cfg, {}, SkillMeans()) == pytest.approx({0: 0.4, 1: 0.6, 2: 1.0, 3: 0.3})


def test_who_pays_for_what(cfg: Any) -> None:
    made = DesignSet(
        0,
        (
            good("a", 0.5, 0.15),
            attempt("invalid"),
            attempt("duplicate", twin="a"),
            attempt("duplicate", twin="old"),
            attempt("duplicate", twin="unknown"),
            attempt(program_id="b", broken=True, returns=[1.0]),
            attempt(program_id="c"),  # every play was lost to the machinery
            good("d", 0.5, 0.15, gate=0.5),
        ),
    )
    rewards = set_rewards(made, cfg, {"old": 0.9}, SkillMeans())
    assert rewards == pytest.approx({0: 1.0, 1: -0.5, 2: 0.7, 3: 0.6, 4: -0.8, 5: -0.25, 7: 0.5})


def test_an_unknown_regret_is_neither_rewarded_nor_punished(cfg: Any) -> None:
    made = DesignSet(
        0,
        (
            good("a", 0.5, 0.15),
            good("b", 0.5, 0.05),
            good("c", 0.5, None),
            good("d", 0.5, None, skill="B"),
        ),
    )
    rewards = set_rewards(made, cfg, {}, SkillMeans())
    assert rewards[2] == pytest.approx(0.6 + 0.4 * (0.1 / 0.15)) == rewards[3]
    alone = DesignSet(0, (good("a", 0.5, None),))
    assert set_rewards(alone, cfg, {}, SkillMeans()) == pytest.approx({0: 0.6})


def test_invalid_designs_can_be_left_out(tmp_path: Path) -> None:
    cfg = small_config(tmp_path, design__include_invalid=False)
    made = DesignSet(0, (attempt("invalid"), good("a", 0.5, 0.0)))
    assert set_rewards(made, cfg, {}, SkillMeans()) == {1: 0.6}


def test_designer_advantages_are_centred_per_skill_and_scaled(tmp_path: Path) -> None:
    made = DesignSet(0, tuple(good(str(i), 0.5, 0.0, skill=s) for i, s in enumerate("AABB")))
    rewards = {0: 1.0, 1: 0.0, 2: 0.5, 3: 0.5}
    std = small_config(tmp_path, learner__designer_weight=0.5)
    credits = set_credits(made, rewards, 100, std)
    spread = (0.5**2 * 2 / 4) ** 0.5
    assert [c.advantage for c in credits] == pytest.approx(
        [0.5 / (spread + 0.1), -0.5 / (spread + 0.1), 0, 0]
    )
    assert {c.weight for c in credits} == {0.5}
    reference = small_config(tmp_path, learner__designer_scale="reference")
    assert set_credits(made, rewards, 32, reference)[0].advantage == pytest.approx(0.5 * 32 / 4 * 2)
    frozen = small_config(tmp_path, learner__designer_weight=0.0)
    assert set_credits(made, rewards, 32, frozen) == []


def test_a_set_is_due_when_played_and_its_window_is_over() -> None:
    made = DesignSet(4, (good("a", 0.5, 0.0), attempt("invalid")))
    assert made.due(4, 0) and made.due(4, 1) and not made.due(4, 2) and made.due(5, 2)
    waiting = DesignSet(4, (attempt(program_id="b", played=False),))
    assert not waiting.due(9, 0)


def test_sets_survive_json_with_an_unknown_error() -> None:
    made = DesignSet(
        2, (good("a", 0.5, 0.1), attempt(program_id="b", regret=Regret(0.2, float("nan"), 1, 0)))
    )
    text = json.dumps(set_to_json(made)).replace("NaN", "null")
    again = set_from_json(json.loads(text))
    assert again.attempts[0] == made.attempts[0]
    assert (
        again.attempts[1].regret is not None
        and again.attempts[1].regret.stderr != again.attempts[1].regret.stderr
    )


def test_skill_windows_rotate(tmp_path: Path) -> None:
    cfg = small_config(tmp_path, design__every=4, design__skills_per_step=3).design
    first, last = cfg.skills[:3], cfg.skills[3:]
    assert [active_skills(cfg, s) for s in (0, 3, 4, 8, 12)] == [first, first, last, first, last]
    assert active_skills(small_config(tmp_path, design__skills_per_step=0).design, 7) == cfg.skills


def level(name: str) -> EnvProgram:
    return EnvProgram.of(name)


def test_the_archive_prefers_levels_at_the_edge() -> None:
    archive = Archive()
    names = {"mid": 0.5, "won": 1.0, "lost": 0.0, "luck": 0.5, "new": 0.5}
    for name in names:
        archive.add(level(name))
    for name, mean in names.items():
        if name != "new":
            archive.update(level(name).id, [mean] * 4, gate=0.0 if name == "luck" else 1.0)
    counts = dict.fromkeys(names, 0)
    for seed in range(400):
        counts[archive.draw(1, random.Random(seed))[0].code] += 1
    assert counts["mid"] > 330 and counts["new"] == 0
    assert max(counts["won"], counts["lost"], counts["luck"]) < 30
    assert [p.code for p in archive.draw(9, random.Random(0), {level("mid").id})].count("mid") == 0
    assert len(archive.draw(9, random.Random(0))) == 4
    assert archive.levels[level("won").id].weight == MIN_WEIGHT


def test_the_archive_forgets_the_oldest_played_level_and_survives_json() -> None:
    archive = Archive(capacity=2)
    for name in "abc":
        archive.add(level(name))
        if name != "a":
            archive.update(level(name).id, [1.0, 0.0])
    assert [v.program.code for v in archive.levels.values()] == ["a", "c"]  # a still waits for its first play
    archive.update(level("c").id, [1.0, 1.0])
    assert archive.levels[level("c").id].mean == 0.75
    copy = Archive(capacity=2)
    copy.load_state_dict(json.loads(json.dumps(archive.state_dict())))
    assert copy.levels == archive.levels
    archive.retire(level("c").id)
    archive.update(level("c").id, [1.0])
    assert len(archive) == 1


def played(actions: list[str], outcome: Outcome) -> Episode:
    turns = tuple(Turn((), (), a, f"\\boxed{{{a}}}", "", 0.0, StopReason.STOP) for a in actions)
    return Episode(Instance("p", 1), STREAM, turns, "", outcome, EpisodeEnd.TERMINATED)


def test_winning_sequences_are_distinct_and_the_best() -> None:
    win, half = Scored(1.0, True), Scored(0.5, False)
    fault = Fault(FaultKind.PROGRAM, "step", "boom")
    plays = [played(["0"], half), *(played([str(i)], win) for i in (1, 2, 1, 3, 4)), played(["9"], fault)]
    plays += [played(["8"], Scored(0.0, False)), played(["7"], Scored(-1.0, False))]
    assert winning_sequences(plays) == [(f"\\boxed{{{i}}}",) for i in (1, 2, 3, 4)]
    assert winning_sequences(plays[:1]) == [("\\boxed{0}",)]


async def test_the_floor_tells_luck_from_skill() -> None:
    seeds = list(range(20))
    luck = EnvProgram.of(guess_program(2, 2))  # two tries at one of two numbers: a fixed sequence always wins
    skill = EnvProgram.of(GUESS.replace("1, 8", "1, 30"))
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        wins = [played(["1", "2"], Scored(1.0, True))]
        assert (await blind_floor(luck, wins, sandbox, seeds))[0] == 1.0
        wins = [
            played(["16", "8", "4", "2"], Scored(1.0, True)),
            played(["16", "24", "28"], Scored(1.0, True)),
        ]
        floor, error = await blind_floor(skill, wins, sandbox, seeds)
        assert floor < 0.4 and 0 < error < 0.2
        assert await blind_floor(skill, [], sandbox, seeds) == (0.0, 0.0)


PAYS_ANYTHING = guess_program(30, 4).replace("float(done), done", "1.0 if done else 0.5, done")


async def test_progress_that_blind_play_makes_as_well_is_part_of_the_floor() -> None:
    program, seeds = EnvProgram.of(PAYS_ANYTHING), list(range(20))
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        plays = [played(["40", "41"], Scored(0.5, False))]  # never right
        floor, error = await blind_floor(program, plays, sandbox, seeds)
        assert floor == 0.0 and error == pytest.approx(21**0.5 / 22**1.5)
        floor, _ = await blind_floor(program, plays, sandbox, seeds, "progress")
        assert floor == 0.5


@pytest.mark.parametrize(("returns", "gate"), [("outcome", None), ("progress", 0.0)])
def test_a_program_that_pays_for_anything_earns_nothing_by_progress(
    tmp_path: Path, returns: str, gate: float | None
) -> None:
    """Its mean return of a half lies in the wanted band, whatever the player does."""
    world = World()
    world.design = lambda prompt: f"```python\n{PAYS_ANYTHING}```"  # type: ignore[method-assign]
    world.play = lambda prompt: r"\boxed{40}"  # type: ignore[method-assign]
    cfg = small_config(
        tmp_path / "a",
        play__returns=returns,
        train__steps=1,
        design__designs=1,
        reward__type="solve_rate",
        validator__stages={"contract": False, "rewards": False},
    )
    _, folder, _ = train(cfg, world)
    (row,) = rows(folder, "metrics.jsonl")
    (paid,) = rows(folder, "rewards.jsonl")
    assert row["return_plain"] == (0.5 if gate == 0.0 else 0.0)
    assert paid["reward"] == 0.0 and (gate is None or paid["gate"] == gate)
