"""Steps that overlap: what is sampled with which weights, and that no stop changes it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from spade.envs.battery import STAGES
from spade.errors import ConfigError
from spade.interrupt import StopFlag
from spade.learn.background import Background
from spade.train.checks import check_run
from spade.train.made import Made
from spade.train.roles import learner_config
from spade.types import Sample, from_json, to_json
from tests.train.scripted_world import DigestLearner, World, decisions, rows, small_config, train


def stale_config(out: Path, **changes: Any) -> Any:
    """Overlapping steps with a validator that only loads programs, which is quick."""
    stages = {**dict.fromkeys(STAGES, False), "load": True}
    more = {"train__checkpoint_every": 1, "validator__stages": stages, **changes}
    return small_config(out, train__staleness=1, **more)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One uninterrupted run of overlapping steps."""
    return train(stale_config(tmp_path_factory.mktemp("stale") / "a"))


def test_every_step_but_the_first_two_lacks_exactly_the_update_that_ran_beside_it(straight: Any) -> None:
    summary, folder, learner = straight
    metrics = rows(folder, "metrics.jsonl")
    assert [m["step"] for m in metrics] == [1, 2, 3, 4, 5, 6] and learner.version == 6
    ages = [m["staleness/agent"] for m in metrics if "staleness/agent" in m]
    assert ages[0] == 0 and set(ages[1:]) == {1}
    assert max(m.get("staleness/agent_max", 0) for m in metrics) == 1
    designs = {m["step"]: m["staleness/designer"] for m in metrics if "staleness/designer" in m}
    assert designs.pop(1, 0) == 0 and all(age >= 1 for age in designs.values())
    assert summary["optimiser_steps"] == 6
    episodes = rows(folder, "episodes.jsonl")
    assert {e["step"] for e in episodes} == {1, 2, 3, 4, 5, 6}
    assert summary["plays_plain"] == sum(not e["hinted"] for e in episodes)


def test_the_update_really_runs_beside_the_next_step(tmp_path: Path) -> None:
    """The update of each step waits for a play of the next one: it would never come one after the other."""
    world, learner = World(), DigestLearner()
    played = threading.Event()
    reply, step = world.play, learner.step

    def play(prompt: str) -> str:
        played.set()
        return reply(prompt)

    def patient(samples: Any, temperature: Any, lr_scale: float = 1.0) -> dict[str, float]:
        assert threading.current_thread() is not threading.main_thread()
        if learner.version < 3:
            played.clear()
            assert played.wait(60), "nothing was played while the update ran"
        return step(samples, temperature, lr_scale)

    world.play, learner.step = play, patient  # type: ignore[method-assign]
    summary, _, _ = train(stale_config(tmp_path / "a", train__steps=4), world, learner)
    assert summary["steps"] == 4


@pytest.mark.parametrize("stop_after", [1, 4])
def test_a_stopped_run_goes_on_as_if_it_never_stopped(
    tmp_path: Path, straight: Any, stop_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spade.runs import RunFolder

    stop, append = StopFlag(), RunFolder.append

    def noting(self: RunFolder, name: str, row: Any) -> None:
        append(self, name, row)
        if name == "metrics.jsonl" and row["step"] == stop_after:
            stop.request()

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append", noting)
        summary, folder, _ = train(stale_config(tmp_path / "b"), stop=stop)
    assert summary["steps"] == stop_after
    state = json.loads(next((folder.path / "checkpoints").glob(f"*{stop_after}/state.json")).read_text())
    assert state["extra"]["made"]["step"] == stop_after + 1
    assert max(e["step"] for e in rows(folder, "episodes.jsonl")) == stop_after + 1
    _, resumed, learner = train(stale_config(tmp_path / "b"))
    assert decisions(resumed) == decisions(straight[1])
    assert learner.digest.tolist() == straight[2].digest.tolist()


@pytest.mark.parametrize("limit", [{"total_tokens": 6000}, {"train_tokens": 200}])
def test_a_budget_ends_overlapping_steps_with_nothing_left_over(tmp_path: Path, limit: Any) -> None:
    summary, folder, _ = train(stale_config(tmp_path / "a", train__steps=40, budget=limit))
    assert summary["steps"] < 40
    metrics = rows(folder, "metrics.jsonl")
    assert len(metrics) == summary["steps"] == max(e["step"] for e in rows(folder, "episodes.jsonl"))
    last = sorted((folder.path / "checkpoints").glob("step-*/state.json"))[-1]
    assert "made" not in json.loads(last.read_text())["extra"]


def test_an_update_that_fails_ends_the_run_after_the_step_beside_it(tmp_path: Path) -> None:
    class Broken(DigestLearner):
        def step(self, samples: Any, temperature: Any, lr_scale: float = 1.0) -> dict[str, float]:
            if self.version == 1:
                raise RuntimeError("no gradient")
            return super().step(samples, temperature, lr_scale)

    with pytest.raises(RuntimeError, match="no gradient"):
        train(stale_config(tmp_path / "a"), learner=Broken())
    _, resumed, learner = train(stale_config(tmp_path / "a"))
    assert len(rows(resumed, "metrics.jsonl")) == 6 and learner.version == 6


def test_a_step_survives_its_checkpoint() -> None:
    sample = Sample((1, 2), (3,), (1,), (-0.1234567890123,), 0.5, "agent", 1.0, "g", "e")
    made = Made(3, (sample,), (1,), ((0.0, 1.0), (0.5,)), {"step": 3, "x": 0.1}, {"play": 1.5}, 2.0)
    assert from_json(Made, json.loads(json.dumps(to_json(made)))) == made
    assert made.ages({"agent": 2}) == {"staleness/agent": 1.0, "staleness/agent_max": 1.0}


def test_staleness_needs_the_importance_weight_and_raises_no_alarm_by_itself() -> None:
    cfg = small_config(Path("x"), train__staleness=1, learner__tis_max=0.0)
    with pytest.raises(ConfigError, match=r"train.staleness is 1, .* learner.tis_max=0 "):
        check_run(cfg)
    assert learner_config(small_config(Path("x"), train__staleness=1)).mismatch_alarm == 0
    assert learner_config(small_config(Path("x"))).mismatch_alarm > 0


async def test_the_background_thread_has_the_settings_of_its_maker_and_passes_errors_on() -> None:
    import torch

    background = Background()
    assert await background.call(torch.get_num_threads) == torch.get_num_threads()
    with pytest.raises(ValueError, match="no"):
        await background.call(lambda: int("no"))
    names = [await background.call(lambda: threading.current_thread().name) for _ in range(2)]
    assert names == ["spade-learner"] * 2
    background.close()
