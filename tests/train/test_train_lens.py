"""The entropy lens in the real loop with the embedded model: what it measures, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spade.config_load import load_config
from spade.errors import FaultKind
from spade.interrupt import StopFlag
from spade.learn.entropy import ALARMS
from spade.runs import RunFolder
from spade.train.loop import run_training
from spade.train.probes import outcomes
from spade.types import EnvProgram, Episode, EpisodeEnd, Fault, Instance, Scored, StopReason, Trajectory, Turn
from tests.train.scripted_world import World, small_config, train
from tests.train.test_train_metrics import unknown

SETTINGS = ("train.steps=3", "play.programs=2", "design.designs=4", "train.lens.every=2", "learner.lr=1e-3")


def rows_of(folder: RunFolder) -> list[dict[str, Any]]:
    """Rows without what is wall clock."""
    kept = [{k: v for k, v in row.items() if "seconds" not in k} for row in folder.rows("metrics.jsonl")]
    return kept


def trained(out: Path, model: Path, *settings: str, stop_after: int | None = None) -> RunFolder:
    cfg = load_config("smoke", [*SETTINGS, *settings, f"out={out}", f"model={model}"])
    folder = RunFolder.create_or_resume(cfg, "train", "test")
    stop = StopFlag()
    append = folder.append

    def watched(name: str, row: Any) -> None:
        append(name, row)
        if name == "metrics.jsonl" and row["step"] == stop_after:
            stop.request()

    folder.append = watched  # type: ignore[method-assign]
    run_training(cfg, folder, stop)
    folder.finish("interrupted" if stop.requested else "finished")
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, shipped_model: Path) -> list[dict[str, Any]]:
    return rows_of(trained(tmp_path_factory.mktemp("lens") / "run", shipped_model))


def lens(row: dict[str, Any]) -> dict[str, float]:
    return {k.removeprefix("lens/"): v for k, v in row.items() if k.startswith("lens/")}


KEYS = {"sequence_entropy", "token_entropy", "length", "kl", "frozen_entropy", "frozen_kl", "off_grammar"}


def test_both_roles_are_measured_from_their_first_update_on(whole: list[dict[str, Any]]) -> None:
    first, second, third = map(lens, whole)
    for role, rows in (("agent", (first, second, third)), ("designer", (second, third))):
        for row in rows:
            assert {f"{role}/{key}" for key in KEYS} | {f"alarm/{a}/{role}" for a in ALARMS} <= set(row)
            # summed over positions and averaged over samples: the same as mean entropy times mean length
            product = row[f"{role}/token_entropy"] * row[f"{role}/length"]
            assert row[f"{role}/sequence_entropy"] == pytest.approx(product, rel=1e-4)
    assert not any("designer" in key for key in first)  # its first set is paid one step later
    assert first["agent/kl"] == pytest.approx(0, abs=1e-6)
    assert first["agent/frozen_kl"] == pytest.approx(0, abs=1e-4)
    assert third["agent/kl"] > 1e-6 and third["agent/frozen_kl"] > first["agent/frozen_kl"]
    assert {"agent/pass_1", "agent/pass_max", "elsewhere/accuracy"} <= set(first)
    assert "designer/distinct" in third and first["elsewhere/nll"] != third["elsewhere/nll"]
    assert unknown(key for row in whole for key in row) == []


def test_measuring_changes_nothing_that_is_trained(
    whole: list[dict[str, Any]], tmp_path: Path, shipped_model: Path
) -> None:
    without = rows_of(trained(tmp_path / "off", shipped_model, "train.lens.every=0"))
    assert [{k: v for k, v in row.items() if not k.startswith("lens/")} for row in whole] == without


def test_a_resumed_run_measures_the_same(
    whole: list[dict[str, Any]], tmp_path: Path, shipped_model: Path
) -> None:
    trained(tmp_path / "run", shipped_model, stop_after=1)
    again = rows_of(trained(tmp_path / "run", shipped_model))
    for mine, theirs in zip(again, whole, strict=True):
        assert set(mine) == set(theirs)
        for key, value in mine.items():
            assert value == pytest.approx(theirs[key], abs=1e-9), key


def test_a_learner_without_a_distribution_has_no_lens(tmp_path: Path) -> None:
    _, folder, _ = train(small_config(tmp_path / "a", train__steps=2), World())
    assert not any(k.startswith("lens/") for row in folder.rows("metrics.jsonl") for k in row)


def episode(program: str, action: str, value: float | None, malformed: bool = False) -> Episode:
    turn = Turn((1,), (-0.1,), action, action, "", 0.0, StopReason.STOP, malformed)
    outcome = Scored(value, value > 0) if value is not None else Fault(FaultKind.PROGRAM, "step", "broke")
    end = EpisodeEnd.TERMINATED if value is not None else EpisodeEnd.FAULT
    stream = Trajectory("agent", (1,), (1,), (1,), (-0.1,))
    return Episode(Instance(program, 0), stream, (turn,), "", outcome, end)


def test_outcomes_of_plays_by_hand() -> None:
    programs = [EnvProgram.of("a"), EnvProgram.of("b"), EnvProgram.of("c")]
    a, b, c = (p.id for p in programs)
    episodes = [
        *(episode(a, "1", v) for v in (1.0, 0.0, 0.0, 0.0)),
        *(episode(b, x, 0.0, malformed=x == "?") for x in ("1", "2", "2", "?")),
        *(episode(c, "1", None) for _ in range(4)),
    ]
    found = outcomes(programs, episodes)
    assert found["pass_1"] == pytest.approx((0.25 + 0) / 2) and found["pass_max"] == pytest.approx(0.5)
    assert found["return"] == pytest.approx(1 / 8)
    assert found["off_grammar"] == pytest.approx(1 / 12)
    entropy_b = -(0.25 * np.log(0.25) * 2 + 0.5 * np.log(0.5)) + 2 / 8
    assert found["answer_entropy"] == pytest.approx(entropy_b / 3)
    assert found["answer_coverage"] == pytest.approx((1 + 0.5 + 1) / 3)
