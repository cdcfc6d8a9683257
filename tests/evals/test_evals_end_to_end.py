"""Real sandbox, scripted players: evaluation, comparison, and the validator on the held-out programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from spade import registry
from spade.config import SandboxConfig, ValidateConfig
from spade.envs.sandbox import Sandbox
from spade_evals.compare import compare_runs
from spade_evals.runner import run_eval
from spade_evals.suites import heldout

SHOWN = ("both", "change", "falling", "stride")
"""Rules whose first observation fixes the answer, so that a scripted oracle can tell episodes apart."""


@pytest.fixture
def small_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Part b without the guessing games, six seeds a program, under the name `small`."""
    programs = [held for held in heldout.new_mechanics() if held.family in SHOWN]
    monkeypatch.setattr(heldout, "make_suite", lambda: heldout.HeldoutSuite(programs))
    monkeypatch.setitem(heldout.EPISODES, "b", 48)
    assert registry.resolve("suite", "heldout") is heldout.make_suite


def test_oracle_null_and_random_through_the_whole_stack(small_suite: None, tmp_path: Path) -> None:
    scores = {}
    for kind in ("oracle", "null", "random"):
        result = run_eval(f"scripted:{kind}", "heldout", tmp_path / kind, quiet=True)
        assert result.faults == {}
        assert result.score[2] == 48
        scores[kind] = result.score[0]
    assert scores["oracle"] == 1.0
    assert scores["null"] == 0.0
    assert scores["random"] < 0.35
    again = run_eval("scripted:random", "heldout", tmp_path / "again", quiet=True)
    assert again.score[0] == scores["random"]
    report = compare_runs([tmp_path / "null", tmp_path / "oracle"], None, tmp_path / "out")
    found = report.comparison("scripted:oracle")
    assert (found.difference, found.n) == (1.0, 48)
    assert (tmp_path / "out" / "report.md").exists()


async def test_validator_accepts_every_hand_written_program() -> None:
    from spade.envs.validate import validate_many

    programs = [held.program for held in heldout.new_mechanics()]
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        verdicts = await validate_many(programs, sandbox, ValidateConfig(floor_max=0.34))
    names = [held.name for held in heldout.new_mechanics()]
    refused = {n: (v.code, v.failed) for n, v in zip(names, verdicts, strict=True) if not v.accepted}
    assert refused == {}
