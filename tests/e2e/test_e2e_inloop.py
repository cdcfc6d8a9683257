"""Checkpoints are evaluated while a run trains, and the run is the same as without."""

from __future__ import annotations

import json
from pathlib import Path

from e2e_cli import Spade, rows, same_results

from spade.report.run_data import checkpoint_scores
from spade.runs import CHECKPOINT_SCORES

FEW = ("eval.checkpoint_items=8", "eval.episodes=12", "eval.compare=true", "seed=4")


def test_the_loop_evaluates_and_changes_nothing(spade: Spade, work: Path, model: list[str]) -> None:
    plain = spade("train", "smoke", *model, *FEW, "out=blind")
    assert plain.code == 0, plain.err
    assert not (work / "blind" / CHECKPOINT_SCORES).exists() and not (work / "blind" / "eval").exists()

    on = ("eval.every=1", "eval.at_end=true", "out=whole")
    done = spade("train", "smoke", *model, *FEW, *on, "--json")
    assert done.code == 0, done.err
    same_results(work / "whole", work / "blind")
    scores = checkpoint_scores(work / "whole")
    assert [row["step"] for row in scores] == [0, 1, 2]
    assert all(row["items"] == 8 and 0 <= row["score"] <= 1 for row in scores)
    summary = json.loads(done.out)
    assert summary["eval whole"]["score"][2] == 12
    assert "train.source=fixed_pool" in summary["missing"] and " seed=4 " in summary["missing"]
    text = (work / "whole" / "compare" / "compare.md").read_text()
    assert "smoke" in text and (work / "whole" / "compare" / "scores.png").is_file()

    samples = {p.name: rows(p) for p in (work / "whole" / CHECKPOINT_SCORES).glob("*.jsonl")}
    assert sorted(samples) == [
        "heldout-limit8.jsonl", "heldout@000001-limit8.jsonl", "heldout@000002-limit8.jsonl"
    ]  # fmt: skip
    again = spade(
        "train", "smoke", *model, *FEW, *on, "--json"
    )  # everything is there: nothing is played twice
    assert again.code == 0, again.err
    assert {p.name: rows(p) for p in (work / "whole" / CHECKPOINT_SCORES).glob("*.jsonl")} == samples
