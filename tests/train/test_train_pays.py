"""Who pays for what, end to end: every design of a run is paid once, at the right step, by the right rule."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spade.errors import FaultKind
from spade.runs import RunFolder
from spade.train import groups
from spade.types import Episode, EpisodeEnd, Fault
from tests.train.scripted_world import DigestLearner, World, guess_program, rows, small_config, train

ALL_STAGES_OFF = {"contract": False, "leak": False, "floor": False, "replay": False, "late": False}


def by_design(folder: RunFolder) -> dict[tuple[int, int], dict[str, Any]]:
    """Reward rows by the step and number of the design; each at most once."""
    found = rows(folder, "rewards.jsonl")
    keys = [(r["designed"], r["number"]) for r in found]
    assert len(keys) == len(set(keys))
    return dict(zip(keys, found, strict=True))


@pytest.mark.parametrize(("every", "delay", "steps"), [(1, 0, 3), (1, 4, 4), (2, 5, 5), (3, 2, 5)])
def test_every_set_is_paid_once_after_its_delay_or_at_the_end(
    tmp_path: Path, every: int, delay: int, steps: int
) -> None:
    cfg = small_config(
        tmp_path / "a", design__every=every, design__delay=delay, design__designs=3, train__steps=steps
    )
    with pytest.raises(KeyboardInterrupt):
        train(cfg, learner=DigestLearner(fail_at=steps - 1))
    _, folder, _ = train(cfg)
    paid = by_design(folder)
    designs = rows(folder, "designs.jsonl")
    assert set(paid) == {(d["step"], d["number"]) for d in designs}
    for (designed, _), row in paid.items():
        if delay > 1:
            assert row["step"] == min(designed + delay - 1, steps)  # the window, or what there was of it
        assert designed <= row["step"] <= steps
    for key, row in paid.items():
        (design,) = (d for d in designs if (d["step"], d["number"]) == key)
        assert (row["kind"] == "accepted") == design["accepted"]


def test_a_program_that_breaks_is_retired_and_paid_the_fault_reward(tmp_path: Path) -> None:
    world = World()
    trap = guess_program(9, 4).replace("        n = int", "        assert a != '7'\n        n = int")
    designs = iter([trap, *(guess_program(n, 4) for n in range(10, 99))])
    world.design = lambda prompt: f"```python\n{next(designs)}```"  # type: ignore[method-assign]
    world.play = lambda prompt: r"\boxed{7}"  # type: ignore[method-assign]
    cfg = small_config(
        tmp_path / "a",
        design__fault_reward=-0.75,
        design__delay=3,
        design__every=4,
        design__designs=3,
        train__steps=4,
        validator__stages=ALL_STAGES_OFF,
        learner__designer_scale="none",
    )
    _, folder, _ = train(cfg, world)
    broken = [r for r in rows(folder, "rewards.jsonl") if r["broken"]]
    assert len(broken) == 1 and broken[0]["reward"] == -0.75
    mine = [e for e in rows(folder, "episodes.jsonl") if e["program"] == broken[0]["program"]]
    assert {e["step"] for e in mine} == {1} and {e["end"] for e in mine} == {"fault"}
    paid = [r for r in rows(folder, "rewards.jsonl") if r["skill"] == broken[0]["skill"]]
    mean = sum(r["reward"] for r in paid) / len(paid)
    assert broken[0]["advantage"] == pytest.approx(-0.75 - mean)


def test_nobody_pays_for_plays_lost_to_the_machinery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlucky: list[str] = []
    play = groups.play

    async def losing(instances: Any, *args: Any, **options: Any) -> list[Episode]:
        episodes = await play(instances, *args, **options)
        unlucky.append(instances[0].program_id)
        lost = Fault(FaultKind.INFRASTRUCTURE, "step", "lost: gone")
        return [
            dataclasses.replace(e, outcome=lost, end=EpisodeEnd.FAULT)
            if e.instance.program_id == unlucky[0]
            else e
            for e in episodes
        ]

    monkeypatch.setattr(groups, "play", losing)
    cfg = small_config(tmp_path / "a", design__delay=2, train__steps=2, train__max_fault_share=1.0)
    _, folder, learner = train(cfg)
    (row,) = (r for r in rows(folder, "rewards.jsonl") if r["program"] == unlucky[0])
    assert row["kind"] == "accepted" and row["plays"] == 0 and not row["broken"]
    assert row["reward"] is row["advantage"] is row["regret"] is None
    assert rows(folder, "metrics.jsonl")[0]["regret_pairs_lost"] == cfg.play.hinted_plays
    paid = [r for r in rows(folder, "rewards.jsonl") if r["reward"] is not None]
    assert len(paid) == sum(s.role == "designer" for s in learner.seen) == len(by_design(folder)) - 1
    assert not any(unlucky[0] in s.group for s in learner.seen)
    steps = {e["step"] for e in rows(folder, "episodes.jsonl") if e["program"] == unlucky[0]}
    assert steps == {1}  # never won or lost, so there is no telling whether it is worth another try


class Repairer(World):
    """Its first answer is never a program; asked to repair it, it writes one."""

    def reply(self, prompt: str) -> str:
        if "Rejected" in prompt:
            return f"```python\n{guess_program(9 + len(prompt) % 40, 4)}```"
        return super().reply(prompt)

    def design(self, prompt: str) -> str:
        return "I have no idea."


@pytest.mark.parametrize("include", [True, False])
def test_a_repaired_design_is_played_but_paid_as_the_first_turn(tmp_path: Path, include: bool) -> None:
    cfg = small_config(
        tmp_path / "a",
        design__repair_turns=1,
        design__invalid_reward=-0.5,
        design__include_invalid=include,
        train__steps=2,
    )
    _, folder, learner = train(cfg, Repairer())
    designs, paid = rows(folder, "designs.jsonl"), by_design(folder)
    repaired = [d for d in designs if d["accepted"]]
    assert repaired and {d["repaired"] for d in repaired} == {"no_code"}
    assert {d["program"] for d in repaired} == {e["program"] for e in rows(folder, "episodes.jsonl")}
    for design in repaired:
        row = paid[design["step"], design["number"]]
        assert row["kind"] == "repaired" and row["reward"] == (-0.5 if include else None)
        assert row["plays"] > 0
    trained = [bytes(s.completion_ids[:-1]).decode() for s in learner.seen if s.role == "designer"]
    assert set(trained) == ({"I have no idea."} if include else set())


def test_the_paid_reward_is_the_raw_one_times_the_gate_and_twins_earn_less(tmp_path: Path) -> None:
    world = World()
    texts = iter([guess_program(12, 4), guess_program(13, 4), guess_program(12, 4), "no program"] * 9)
    world.design = lambda prompt: f"```python\n{next(texts)}```"  # type: ignore[method-assign]
    cfg = small_config(
        tmp_path / "a",
        train__steps=2,
        design__delay=2,
        reward__type="learnability",
        design__duplicate_penalty=0.3,
        design__invalid_reward=-0.5,
        design__novelty_weight=0.0,
    )
    _, folder, _ = train(cfg, world)
    found = rows(folder, "rewards.jsonl")
    kinds = Counter(r["kind"] for r in found)
    assert kinds == {"accepted": 2, "duplicate": 1, "invalid": 1}
    earned = {}
    for row in found:
        if row["kind"] == "accepted":
            p = row["return"]
            assert row["reward"] == pytest.approx(row["gate"] * p * (1 - p))
            earned[row["program"]] = row["reward"]
    assert [r["reward"] for r in found if r["kind"] == "invalid"] == [-0.5]
    (twin,) = (r["reward"] for r in found if r["kind"] == "duplicate")
    assert any(twin == pytest.approx(reward - 0.3) for reward in earned.values())
