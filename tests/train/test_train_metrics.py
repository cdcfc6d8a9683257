"""Every key a run writes is explained in docs/metrics.md; and the numbers of paid sets by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from spade.errors import FaultKind
from spade.files import read_jsonl
from spade.learn.baselines import Baselines
from spade.learn.optimizers import SHARED
from spade.learn.sums import MEANS, RoleSums, StepSums, batch_metrics
from spade.report.charts import LENS, PANELS
from spade.report.columns import COLUMNS
from spade.report.summary import TREND
from spade.train.metrics import group_metrics, length_metrics, skill_metrics
from spade.train.pending import Attempt, DesignSet
from spade.train.record import design_metrics, out_of_time, sample_metrics
from spade.train.set_metrics import early_and_late, paid_metrics, regret_metrics, reward_rows
from spade.train.source import baseline_metrics
from spade.types import (
    Brief,
    Design,
    EnvProgram,
    Episode,
    EpisodeEnd,
    Fault,
    Group,
    Instance,
    Regret,
    Sample,
    Scored,
    StopReason,
    Trajectory,
    Turn,
    Verdict,
)
from tests.play.programs import COUNT
from tests.train.scripted_world import World, guess_program, rows, small_config, train

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "metrics.md"


def documented() -> list[re.Pattern[str]]:
    """A pattern for every key of the tables; words in capitals match any name."""
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    keys = [key for row in rows for key in re.findall(r"`([^`]+)`", row)]
    parts = [re.sub(r"[A-Z]{2,}", ".+" if "KEY" in key else "[^/]+", re.escape(key)) for key in keys]
    return [re.compile(part) for part in parts]


def unknown(keys: Iterable[str]) -> list[str]:
    patterns = documented()
    return sorted({key for key in keys if not any(p.fullmatch(key) for p in patterns)})


class Thinker(World):
    """Thinks, breaks now and then, and repairs what was rejected."""

    def reply(self, prompt: str) -> str:
        if "Rejected" in prompt:
            return f"```python\n{guess_program(9 + len(prompt) % 7, 4)}```"
        return super().reply(prompt)

    def play(self, prompt: str) -> str:
        return f"<think>hm</think>{super().play(prompt)}"


@pytest.mark.parametrize(
    "changes",
    [
        {"design__repair_turns": 1, "design__guide_weight": 0.2, "reward__type": "learning_potential"},
        {"play__replay": "plr", "design__delay": 3, "hints__max_words": 2},
        {"train__source": "fixed_pool", "train__pool_size": 2},
    ],
)
def test_every_key_of_a_run_is_documented(tmp_path: Path, changes: dict[str, Any]) -> None:
    _, folder, _ = train(small_config(tmp_path / "a", train__steps=3, **changes), Thinker())
    keys = {key for row in folder.rows("metrics.jsonl") for key in row}
    assert unknown(keys) == []
    assert {"samples/agent", "share/frontier", "timeouts", "thoughts/plain"} <= keys
    if "design__repair_turns" in changes:
        assert {"structure_share", "design_slots", "window/plateau", "designer_age", "regret_floored"} <= keys


def test_keys_of_the_real_learner_are_documented() -> None:
    """Those of published runs, and whatever the learner's sums may hold."""
    files = sorted((ROOT / "results" / "runs").rglob("metrics.jsonl"))
    assert files
    keys = {key for file in files[:4] for row in read_jsonl(file)[:20] for key in row}
    sums = StepSums()
    sums.roles["agent"] = RoleSums(totals=dict.fromkeys(MEANS, 1.0), entropy_tokens=1)
    sums.updated({"agent": 1.0, "designer": 1.0, SHARED: 1.0}, 0)
    names = {**sums.metrics(), **batch_metrics([], 0), "seconds": 0.0, "cpu_seconds": 0.0}
    keys |= {f"learner/{name}" for name in names} | {f"learner/separate/{name}" for name in names}
    assert "learner/reference_kl/agent" in keys
    assert unknown(keys) == []
    assert unknown({"learner/nonsense", "skill/A/B/regret"}) == ["learner/nonsense", "skill/A/B/regret"]


def test_every_key_that_a_report_shows_is_documented() -> None:
    shown = {key for key, _ in TREND} | {column.key for column in COLUMNS}
    shown |= {key for _, lines in PANELS for key, _ in lines} | {f"lens/agent/{name}" for name in LENS}
    assert unknown(shown) == []
    assert unknown({"learner/agent/entropy"})  # as the trend once called it


STREAM = Trajectory("designer", (1,), (2,), (1,), (-1.0,), weight_version=3)


def test_numbers_of_paid_sets_by_hand(tmp_path: Path) -> None:
    cfg = small_config(tmp_path)
    a = Attempt("A", STREAM, "accepted", "a", played=True, regret=Regret(0.3, 0.1, 4, 0))
    b = Attempt("B", STREAM, "accepted", "b", played=True, regret=Regret(-0.1, 0.1, 4, 0))
    for attempt, first, second in ((a, [1, 0], [1, 1]), (b, [0, 0], [0, 1])):
        attempt.saw(0, first)
        attempt.saw(2, second)
    made = DesignSet(0, (a, b, Attempt("B", STREAM, "invalid"), Attempt("B", STREAM, "accepted", "c")))
    found = paid_metrics([(made, {0: 1.0, 1: 0.4, 2: 0.0}, [0.5, -0.5, 0.0])], cfg, version=7)
    assert found == pytest.approx(
        {
            "designer_reward": 1.4 / 3,
            "designs_trained": 3.0,
            "designer_age": 4.0,
            "window/unpaid": 0.25,
            "skill/A/reward": 1.0,
            "skill/A/paid": 1.0,
            "skill/B/reward": 0.2,
            "skill/B/paid": 2.0,
            "window/programs": 2.0,
            "window/plays": 8.0,
            "window/return": (0.75 + 0.25) / 2,
            "window/return_var": 3 / 16,
            "window/plateau": (1 - 0.15 / 0.25) / 2 * 2,
            "window/regret": 0.1,
            "window/regret_std": 0.2,
            "window/regret_part": 0.5,
            "window/early": 0.25,
            "window/late": 0.75,
        }
    )
    assert early_and_late(Attempt("A", STREAM, "accepted", returns=[1], offsets=[0])) is None
    assert paid_metrics([(made, {}, [])], cfg) == {}
    assert "designer_age" not in paid_metrics([(made, {0: 1.0}, [0.0])], cfg, None)
    rows = reward_rows(4, made, {0: 1.0, 2: 0.0}, [0.5, -0.5])
    assert [(r["step"], r["designed"], r["number"]) for r in rows] == [(4, 1, i) for i in range(4)]
    assert [r["reward"] for r in rows] == [1.0, None, 0.0, None]
    assert [r["advantage"] for r in rows] == [0.5, None, -0.5, None]
    assert (rows[0]["return"], rows[0]["regret"], rows[0]["plays"]) == (0.75, 0.3, 4)
    assert rows[2]["program"] is rows[2]["return"] is rows[2]["regret"] is None


def played(program: EnvProgram, value: float | None, hint: str | None = None, text: str = "x") -> Episode:
    turn = Turn((1,), (0.0,), text, "x", "", 0.0, StopReason.STOP)
    lost = Fault(FaultKind.PROGRAM, "step", "cpu_limit: 1 s")
    outcome = Scored(value, value >= 1) if value is not None else lost
    end = EpisodeEnd.FAULT if value is None else EpisodeEnd.TERMINATED if value else EpisodeEnd.TURN_LIMIT
    stream = Trajectory("agent", (1,), (2, 3), (1, 1), (0.0, 0.0))
    return Episode(Instance(program.id, 0, hint), stream, (turn,), "", outcome, end)


def test_numbers_of_plays_by_hand() -> None:
    a, b = EnvProgram.of("a", skill="A"), EnvProgram.of("b", skill="B")
    thought = "<think>hm</think>x"
    groups = [
        Group(a, (played(a, 1.0), played(a, 0.0, text=thought), played(a, None)), (played(a, 1.0, "h"),)),
        Group(b, (played(b, 0.0), played(b, 0.0))),
    ]
    found = group_metrics(groups) | skill_metrics(groups) | length_metrics(groups)
    assert found["share/learnable"] == found["share/hard"] == 0.5 and found["share/easy"] == 0.0
    assert (found["share/frontier"], found["share/intractable"]) == (0.5, 0.5)
    assert (found["skill/A/return_std"], found["skill/B/return_std"], found["skill/A/regret"]) == (
        0.5,
        0,
        0.5,
    )
    assert found["thoughts/plain"] == pytest.approx(0.2) and "thoughts/hinted" not in found
    assert found["cut_off/plain"] == pytest.approx(3 / 5)
    outcome = groups[0].plain[2].outcome
    assert isinstance(outcome, Fault) and out_of_time(outcome)
    assert not out_of_time(Fault(FaultKind.PROGRAM, "step", "exception: cpu_limit"))


def test_numbers_of_samples_and_regrets_by_hand() -> None:
    def sample(role: str, advantage: float, weight: float = 1.0) -> Sample:
        return Sample((1,), (2,), (1,), (-1.0,), advantage, role, weight)

    found = sample_metrics([sample("agent", 1.0), sample("agent", -2.0), sample("designer", 0.5, 4.0)])
    assert found == {
        "samples/agent": 2.0,
        "samples/designer": 1.0,
        "advantage/agent_mean": -0.5,
        "advantage/agent_std": 1.5,
        "advantage/designer_mean": 0.5,
        "advantage/designer_std": 0.0,
        "advantage/designer_share": 2 / 5,
    }
    assert sample_metrics([]) == {"samples/agent": 0.0, "samples/designer": 0.0}
    regrets = regret_metrics([Regret(0.5, 0.1, 4, 0), Regret(-0.1, 0.1, 4, 1)])
    assert regrets == pytest.approx(
        {"regret": 0.2, "regret_programs": 2.0, "regret_floored": 0.5, "regret_stderr": 0.3}
    )
    assert "regret_stderr" not in regret_metrics([Regret(0.5, 0.1, 4, 0)]) and regret_metrics([]) == {}


@pytest.mark.parametrize("kind", ["ema", "rae"])
def test_running_baselines_are_shown_by_arm_or_skill(tmp_path: Path, kind: str) -> None:
    cfg = small_config(tmp_path, learner__advantage=kind)
    keys = ("a/plain", "b/plain", "a/hinted") if kind == "ema" else ("plain/A", "plain/B", "hinted/A")
    baselines = Baselines(0.5)
    baselines.update({keys[0]: [9.0]})
    baselines.update(dict(zip(keys, ([1.0], [0.0, 0.5], [1.0]), strict=True)))
    found = baseline_metrics(cfg, baselines)
    if kind == "ema":
        assert found == {"baseline/hinted": 1.0, "baseline/plain": (5.0 + 0.25) / 2}
    else:
        assert found == {"baseline/hinted/A": 1.0, "baseline/plain/A": 5.0, "baseline/plain/B": 0.25}
    assert unknown(found) == [] and baseline_metrics(cfg, Baselines(0.5)) == {}


def test_variety_and_cut_off_replies_of_a_design_step() -> None:
    brief = Brief("b", "A", "multi_turn", "medium", "", (), 0, ())

    def design(code: str | None, cut_off: bool = False) -> Design:
        program = None if code is None else EnvProgram.of(code)
        verdict = Verdict("", program is not None, (), "", "")
        return Design(brief, STREAM, "", program, verdict, cut_off=cut_off)

    guess = guess_program(9, 4)
    alike = design_metrics([design(guess), design(guess_program(8, 4)), design(guess)], [])
    other = design_metrics([design(guess), design(COUNT), design(None, cut_off=True)], [])
    assert alike["structures"] == 1 and 1.0 < alike["vendi"] < 1.5 < 1.9 < other["vendi"] <= 2.0
    assert other["vendi_share"] == other["vendi"] / 2
    assert (alike["design_tokens/cut_off"], other["design_tokens/cut_off"]) == (0.0, 1 / 3)
    assert design_metrics([design(guess), design(guess)], [])["vendi"] == pytest.approx(1.0)


def test_a_run_shows_win_rates_and_running_baselines(tmp_path: Path) -> None:
    _, folder, _ = train(small_config(tmp_path / "a", train__steps=1, learner__advantage="rae"), World())
    (row,) = rows(folder, "metrics.jsonl")
    episodes = rows(folder, "episodes.jsonl")
    for arm, hinted in (("plain", False), ("hinted", True)):
        won = [e["value"] > 0 for e in episodes if e["hinted"] is hinted]
        assert row[f"win_rate/{arm}"] == pytest.approx(sum(won) / len(won))
    assert "regret_pairs_lost" not in row and any(key.startswith("baseline/plain/") for key in row)
