"""Every reward, advantage and masking rule by its name, through the config and the whole loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spade.config import Config
from spade.envs.battery import STAGES
from spade.errors import ConfigError
from spade.learn.advantages import KINDS, SCALES
from spade.learn.checks import check_training
from spade.learn.rewards import REWARDS
from tests.train.scripted_world import DigestLearner, decisions, rows, small_config, train

RUNS = [(reward, KINDS[i % len(KINDS)], SCALES[i % len(SCALES)]) for i, reward in enumerate(REWARDS)]


def quick(out: Path, **changes: Any) -> Config:
    """The scripted run with a validator that only loads the program: other tests are about the validator."""
    return small_config(out, validator__stages={**dict.fromkeys(STAGES, False), "load": True}, **changes)


@pytest.mark.parametrize(("reward", "advantage", "scale"), RUNS)
def test_a_run_by_name(tmp_path: Path, reward: str, advantage: str, scale: str) -> None:
    cfg = quick(
        tmp_path / "run",
        reward__type=reward,
        reward__skill_gate=False,
        learner__advantage=advantage,
        learner__designer_scale=scale,
        design__delay=2,
        design__skills=["Logical Deduction"],
        play__replay="window",
        play__hinted_plays=4,
        train__steps=3,
    )
    _, folder, learner = train(cfg)
    designs = [s for s in learner.seen if s.role == "designer"]
    assert len(designs) == len(rows(folder, "designs.jsonl"))
    assert any(s.advantage for s in designs) or reward == "micro_lp"
    assert any(s.advantage for s in learner.seen if s.role == "agent")
    assert any("designer_reward" in m for m in rows(folder, "metrics.jsonl"))
    if reward == "learning_potential":
        assert any(k.startswith("skill_gap/") for m in rows(folder, "metrics.jsonl") for k in m)


@pytest.mark.parametrize(("reward", "advantage"), [("learning_potential", "ema"), ("blend", "rae")])
def test_a_killed_run_keeps_its_running_means(tmp_path: Path, reward: str, advantage: str) -> None:
    def cfg(name: str) -> Config:
        return quick(
            tmp_path / name,
            reward__type=reward,
            learner__advantage=advantage,
            play__replay="window",
            design__designs=3,
            train__steps=4,
            train__checkpoint_every=1,
        )

    _, straight, reference = train(cfg("a"))
    with pytest.raises(KeyboardInterrupt):
        train(cfg("b"), learner=DigestLearner(fail_at=3))
    _, resumed, learner = train(cfg("b"))
    assert decisions(resumed) == decisions(straight)
    assert learner.digest.tolist() == reference.digest.tolist()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"play__top_p": 0.95}, r"play\.top_p=0\.95.*learner\.truncated_sampling"),
        ({"play__top_k": 20}, r"play\.top_k=20"),
        ({"play__temperature": 0.0}, r"play\.temperature is 0"),
        ({"design__temperature": 0.0}, r"design\.temperature is 0"),
        ({"reward__type": "micro_lp"}, r"design\.delay is 0"),
        ({"reward__mlp_weight": 0.5, "design__delay": 1}, r"design\.delay is 1"),
        ({"reward__type": "regret", "play__hinted_plays": 0}, r"play\.hinted_plays is 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        check_training(small_config(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_truncated_sampling_can_be_allowed_with_and_without_a_warning(tmp_path: Path) -> None:
    cut = {"play__top_p": 0.95, "play__top_k": 20}
    with pytest.warns(UserWarning, match=r"play\.top_p=0\.95 and play\.top_k=20"):
        check_training(small_config(tmp_path, learner__truncated_sampling="warn", **cut))
    check_training(small_config(tmp_path, learner__truncated_sampling="allow", **cut))
    check_training(small_config(tmp_path, design__temperature=0.0, learner__designer_weight=0.0))
    check_training(small_config(tmp_path, reward__type="micro_lp", train__source="fixed_pool"))


def test_a_run_with_contradictions_ends_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"design\.delay"):
        train(small_config(tmp_path / "a", reward__type="micro_lp"))


def test_truncated_plays_are_left_out_when_asked(tmp_path: Path) -> None:
    def trained(mode: str) -> set[str]:
        cfg = quick(
            tmp_path / mode,
            learner__mask_truncated=mode,
            play__max_turns=2,
            learner__advantage="mean",
            train__steps=1,
        )
        _, folder, learner = train(cfg)
        ends = {e["end"] for e in rows(folder, "episodes.jsonl")}
        assert "turn_limit" in ends
        return {s.episode for s in learner.seen if s.role == "agent"}

    assert trained("none") == trained("tool_use") > trained("all")
