"""What is kept of a run is enough for its tables, and holds no texts."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "evals"))

from test_evals_compare import make, trained

from spade.cli.main import main
from spade.config import Config
from spade.files import append_lines, read_jsonl
from spade.runs import CHECKPOINT_SCORES, RunFolder
from spade_evals.compare import compare_runs
from spade_evals.provenance import Origin


async def test_a_published_set_gives_the_same_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    base = await make(Path("runs/base"), 0.4, Origin())
    run = Path("runs/new")
    folder = RunFolder.create_or_resume(Config(name="new", out=str(run)), "train", "spade train new")
    folder.append("metrics.jsonl", {"step": 1, "tokens_total": 9, "return_plain": 0.5, "seconds": 1.25})
    folder.finish()
    await make(run / "eval", 0.6, trained("new", 0))
    await make(run / CHECKPOINT_SCORES, 0.5, trained("new", 0))
    whole = compare_runs([base, run])

    assert main(["run", "publish", "runs/base", "--set", "pair", "--json"]) == 0
    capsys.readouterr()
    assert main(["run", "publish", "runs/new", "--set", "pair", "--json"]) == 0
    files = [Path(name) for name in json.loads(capsys.readouterr().out)["files"]]
    kept = Path("results/runs/pair/new")
    assert files[0].parent == Path("results/records")
    assert sorted(str(f.relative_to(kept)) for f in files[1:]) == sorted(
        str(f.relative_to(kept)) for f in kept.rglob("*") if f.is_file()
    )
    assert not list((kept / CHECKPOINT_SCORES).glob("*.jsonl"))
    assert read_jsonl(kept / "metrics.jsonl") == [{"step": 1, "tokens_total": 9, "return_plain": 0.5}]
    samples = [row for file in kept.rglob("eval/*.jsonl") for row in read_jsonl(file)]
    assert samples and all("text" not in row for row in samples)

    shutil.rmtree("runs")
    again = compare_runs([Path("results/runs/pair/base"), kept])
    assert again.rows[1].tests == whole.rows[1].tests
    assert again.rows[1].cells == whole.rows[1].cells


def test_a_run_without_evaluation_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    append_lines(tmp_path / "empty" / "metrics.jsonl", [{"step": 1}])
    assert main(["run", "publish", "empty", "--set", "pair"]) == 2
    assert "holds no evaluation to publish; spade eval --ckpt empty" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
