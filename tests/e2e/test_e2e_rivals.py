"""A run and what it is compared with: found, named when missing, made by one command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "evals"))

from e2e_cli import Spade
from test_evals_compare import make, trained

from spade.cli.rivals import compare_with_rivals, missing_text, rivals
from spade.config import Config
from spade.errors import InputError
from spade.runs import RunFolder
from spade_evals.provenance import Origin


def a_run(path: Path, source: str, tokens: float, weights: str = "hash-embedded", seed: int = 0) -> Config:
    """A finished run that spent `tokens`, with a start model of these weights."""
    cfg = Config.model_validate(
        {
            "name": path.name,
            "seed": seed,
            "out": str(path),
            "model": "embedded",
            "train": {"source": source},
            "eval": {"suite": "fake"},
        }
    )
    folder = RunFolder.create_or_resume(
        cfg, "train", f"spade train demo seed=1 out={path} budget.total_tokens=9"
    )
    data = {"model": weights} if weights else {}
    folder.update_record(ledger={"total_tokens": tokens, "plays_plain": 10.0}, data=data)
    folder.finish()
    return cfg


async def test_rivals_are_found_by_start_source_and_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spade.cli.rivals.start_weights", lambda model: f"hash-{model}")
    cfg = a_run(tmp_path / "own", "self_play", 1000.0)
    run = tmp_path / "own"
    with pytest.raises(InputError, match="own was not evaluated on fake; spade eval"):
        compare_with_rivals(cfg, run)
    await make(run / "eval", 0.6, trained("own", 0))
    report, missing = compare_with_rivals(cfg, run)
    assert [rival.name for rival in missing] == ["base", "fixed-pool", "procedural"]
    text = missing_text(missing)
    assert "spade eval --ckpt embedded --suite fake" in text
    assert "spade train demo seed=1 name=own-fixed-pool train.source=fixed_pool train.steps=" in text
    assert f" budget.like={run} eval.at_end=true" in text
    assert [row.label for row in report.rows] == ["own"]

    own = "hash-embedded"
    for name, source, tokens, weights, evaluated in (
        ("pool", "fixed_pool", 1020.0, own, True),
        ("poor", "fixed_pool", 500.0, own, True),  # another budget
        ("other", "procedural", 1000.0, "hash-older", True),  # another start, of the same name
        ("twin", "procedural", 1000.0, own, True),  # another seed
        ("dark", "procedural", 1000.0, "", True),  # of an unknown start
        ("blind", "procedural", 1000.0, own, False),  # not evaluated
    ):
        a_run(tmp_path / name, source, tokens, weights, seed=int(name == "twin"))
        if evaluated:
            await make(tmp_path / name / "eval", 0.5, trained(name, 0))
    await make(tmp_path / "older", 0.3, Origin())
    await make(tmp_path / "embedded", 0.4, Origin())
    await make(tmp_path / "asked-otherwise", 0.4, Origin(), temperature=0.5)
    _rename_checkpoint(tmp_path / "asked-otherwise" / "fake.json", "hash-embedded")
    found = {rival.name: [str(p.relative_to(tmp_path)) for p in rival.paths] for rival in rivals(cfg, run)}
    assert found == {"base": ["embedded/fake.json"], "fixed-pool": ["pool"], "procedural": []}
    report, missing = compare_with_rivals(cfg, run)
    assert [row.label for row in report.rows] == ["embedded", "pool", "own"]
    assert [rival.name for rival in missing] == ["procedural"]
    assert (run / "compare" / "compare.html").is_file()


def _rename_checkpoint(result: Path, checkpoint: str) -> None:
    tree = json.loads(result.read_text())
    result.write_text(json.dumps({**tree, "checkpoint": checkpoint}))


def test_the_command_of_a_missing_start_model_asks_as_the_run_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spade.cli.rivals.start_weights", lambda model: f"hash-{model}")
    cfg = a_run(tmp_path / "own", "self_play", 1000.0)
    few = cfg.model_copy(update={"eval": cfg.eval.model_copy(update={"episodes": 8, "seed": 3})})
    command = rivals(few, tmp_path / "own")[0].command
    assert command == "spade eval --ckpt embedded --suite fake --limit 8 --seed 3 --out runs/eval-embedded"


def test_one_command_trains_the_run_and_its_rivals(spade: Spade, work: Path, model: list[str]) -> None:
    """`spade train ... --with-baselines`, twice: the second time everything is there."""
    few = [
        "eval.episodes=6", "train.pool_size=3", "seed=5", "name=rivals", "design.designs=4",
        "play.programs=6", "play.plays=12", "train.checkpoint_every=20",
    ]  # fmt: skip
    first = spade("train", "smoke", *model, *few, "--with-baselines", "--json")
    assert first.code == 0, first.err
    told = json.loads(first.out)
    assert told["missing"] == ""
    labels = [row["label"] for row in told["comparison"]["rows"]]
    assert labels[1:] == ["rivals-fixed-pool", "rivals-procedural", "rivals"]
    run = work / "runs" / "rivals-s5"
    spent = [
        json.loads((p / "run.json").read_text())["ledger"]["total_tokens"]
        for p in (run, work / "runs" / "rivals-s5-fixed-pool", work / "runs" / "rivals-s5-procedural")
    ]
    assert all(s >= spent[0] for s in spent[1:])
    again = spade("train", "smoke", *model, *few, "--with-baselines", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["comparison"]["comparisons"] == told["comparison"]["comparisons"]
