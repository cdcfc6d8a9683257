"""Level replay: probabilities worked out by hand, draws that follow them, and what a checkpoint keeps."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spade.train.archive import Archive
from spade.train.replay import LevelBuffer, open_archive
from spade.types import EnvProgram, Regret
from tests.train.scripted_world import DigestLearner, decisions, rows, small_config, train

A, B, C, D = (EnvProgram.of(name) for name in "abcd")


def buffer(temperature: float = 0.5, staleness: float = 0.0, capacity: int = 10) -> LevelBuffer:
    """a, b and c were played at steps 1, 2 and 3 with regret bounds 0.1, 0.3 and 0.2; d was never played."""
    levels = LevelBuffer(capacity, temperature, staleness)
    for program in (A, B, C, D):
        levels.add(program)
    levels.update(A.id, [0, 1], step=1, regret=Regret(0.3, 0.2, 8, 0))
    levels.update(B.id, [0, 0], step=2, regret=Regret(0.5, 0.2, 8, 0))
    levels.update(C.id, [1, 0], step=3, regret=Regret(0.3, 0.1, 8, 0))
    return levels


def test_rank_prioritisation_by_hand() -> None:
    # beta 1/2: weights 1, 1/4, 1/9 of the ranks b, c, a; sum 49/36
    assert buffer().probabilities(5) == pytest.approx({A.id: 4 / 49, B.id: 36 / 49, C.id: 9 / 49}, abs=1e-12)
    # beta 1: weights 1, 1/2, 1/3; sum 11/6
    assert buffer(1.0).probabilities(5) == pytest.approx(
        {A.id: 2 / 11, B.id: 6 / 11, C.id: 3 / 11}, abs=1e-12
    )


def test_staleness_by_hand() -> None:
    # at step 5 the levels were played 4, 3 and 2 steps ago
    found = buffer(1.0, 0.3).probabilities(5)
    expected = {A.id: 0.7 * 2 / 11 + 0.3 * 4 / 9, B.id: 0.7 * 6 / 11 + 0.3 * 3 / 9}
    assert found == pytest.approx({**expected, C.id: 0.7 * 3 / 11 + 0.3 * 2 / 9}, abs=1e-12)
    assert sum(found.values()) == pytest.approx(1.0)
    # with b left out: ranks c, a, and ages 2 and 4
    rest = buffer(1.0, 0.3).probabilities(5, {B.id})
    assert rest == pytest.approx({A.id: 0.7 / 3 + 0.3 * 2 / 3, C.id: 0.7 * 2 / 3 + 0.3 / 3}, abs=1e-12)
    fresh = LevelBuffer(3, 1.0, 1.0)
    fresh.add(A)
    fresh.update(A.id, [1], step=7)
    assert fresh.probabilities(7) == {A.id: 1.0}  # nothing is stale: the ranks alone decide
    assert LevelBuffer(3, 1.0, 0.5).probabilities(1) == {} == fresh.probabilities(9, {A.id})


def test_what_was_learned_since_is_taken_off_the_regret() -> None:
    levels = buffer()
    assert levels.score(B.id) == pytest.approx(0.3)
    levels.update(B.id, [1, 1], step=4)  # running mean (0 + 1) / 2, at first 0
    assert levels.score(B.id) == pytest.approx(0.3 - 0.5)
    assert levels.traces[B.id].played == 4
    assert max(levels.probabilities(5), key=levels.probabilities(5).__getitem__) == C.id


def test_an_unmeasured_regret_and_games_of_luck() -> None:
    levels = buffer()
    levels.update(D.id, [1, 0, 0, 0], step=4, regret=None)
    assert levels.score(D.id) == pytest.approx(0.25 * 0.75)
    levels.update(D.id, [1, 0, 0, 0], 0.5, step=4, regret=Regret(0.4, float("nan"), 1, 0))
    assert levels.score(D.id) == pytest.approx(0.5 * 0.4)  # one pair has no error; the gate is one half
    levels.update(A.id, [0, 1], 0.0, step=5)
    assert levels.score(A.id) == 0.0
    assert levels.score(C.id) == pytest.approx(0.2)
    levels.update("gone", [1.0], step=5)
    levels.update(B.id, [], step=9)
    assert levels.traces[B.id].played == 2


def test_draws_follow_the_probabilities() -> None:
    levels = buffer(1.0, 0.3)
    expected = levels.probabilities(5)
    firsts = Counter(levels.draw(1, random.Random(i), step=5)[0].id for i in range(4000))
    for program_id, p in expected.items():
        assert firsts[program_id] / 4000 == pytest.approx(p, abs=4 * (p * (1 - p) / 4000) ** 0.5)
    pairs = Counter(tuple(p.id for p in levels.draw(2, random.Random(i), step=5)) for i in range(4000))
    first, second = expected[B.id], expected[C.id]
    both = first * second / (1 - first)  # without replacement: the rest is drawn by what is left
    assert pairs[(B.id, C.id)] / 4000 == pytest.approx(both, abs=4 * (both * (1 - both) / 4000) ** 0.5)
    assert len({p.id for p in levels.draw(9, random.Random(0), step=5)}) == 3
    assert levels.draw(3, random.Random(1), {A.id, B.id}, step=5) == [C]


def test_ranks_far_apart_stay_finite() -> None:
    levels = LevelBuffer(400, 0.01, 0.0)
    for i in range(300):
        levels.add(EnvProgram.of(f"x{i}"))
        levels.update(EnvProgram.of(f"x{i}").id, [0, 1], step=i, regret=Regret(i / 300, 0.0, 8, 0))
    drawn = levels.draw(3, random.Random(0), step=400)
    assert drawn[0] == EnvProgram.of("x299") and len(set(drawn)) == 3


def test_the_lowest_score_leaves_and_unplayed_levels_stay() -> None:
    levels = buffer(capacity=4)
    levels.add(EnvProgram.of("e"))
    assert A.id not in levels.levels and A.id not in levels.traces and D.id in levels.levels
    waiting = LevelBuffer(1, 0.1, 0.1)
    waiting.add(A)
    waiting.add(B)
    assert len(waiting) == 2  # both wait for their first play


def test_state_and_metrics() -> None:
    levels = buffer(1.0, 0.3)
    other = LevelBuffer(10, 1.0, 0.3)
    other.load_state_dict(json.loads(json.dumps(levels.state_dict())))
    assert other.probabilities(5) == levels.probabilities(5)
    assert other.draw(2, random.Random(3), step=5) == levels.draw(2, random.Random(3), step=5)
    numbers = levels.metrics(5)
    assert numbers == pytest.approx({"replay/staleness": 3.0, "replay/score": 0.2, "replay/measured": 1.0})
    assert Archive().metrics(5) == {}


def test_the_policy_is_chosen_by_name(tmp_path: Path) -> None:
    assert type(open_archive(small_config(tmp_path))) is Archive
    assert type(open_archive(small_config(tmp_path, play__replay="window"))) is Archive
    levels = open_archive(
        small_config(tmp_path, play__replay="plr", play__replay_capacity=7, reward__lcb_z=2.0)
    )
    assert isinstance(levels, LevelBuffer) and (levels.capacity, levels.z) == (7, 2.0)


def test_a_killed_run_with_level_replay_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    def cfg(name: str) -> Any:
        return small_config(
            tmp_path / name, play__replay="plr", play__programs=4, train__steps=5, train__checkpoint_every=1
        )

    _, straight, reference = train(cfg("a"))
    with pytest.raises(KeyboardInterrupt):
        train(cfg("b"), learner=DigestLearner(fail_at=4))
    _, resumed, learner = train(cfg("b"))
    assert decisions(resumed) == decisions(straight)
    assert learner.digest.tolist() == reference.digest.tolist()
    metrics = rows(straight, "metrics.jsonl")
    assert all("replay/staleness" in m for m in metrics[2:]) and metrics[0]["replay/share"] == 0
    assert any(m["replay/share"] > 0 for m in metrics)
