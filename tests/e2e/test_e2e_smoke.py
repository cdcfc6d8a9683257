"""The main job, small: train, evaluate, compare; then the baseline at the same budget."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from e2e_cli import Done, Spade, rows

from spade.envs.fingerprint import canonical
from spade.envs.pool import read_pool
from spade_evals.suites.heldout import HeldoutSuite


@pytest.fixture(scope="module")
def smoke(work: Path, model: list[str]) -> tuple[Path, Done]:
    """`spade train smoke` from a cold start, in its default folder."""
    command = [sys.executable, "-m", "spade.cli.main", "train", "smoke", *model]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=180)
    return work / "runs" / "smoke-s0", Done(done.returncode, done.stdout, done.stderr)


def test_smoke_finishes_and_leaves_its_files(smoke: tuple[Path, Done]) -> None:
    run, done = smoke
    assert done.code == 0, done.err
    assert "status: finished" in done.out and "steps: 2" in done.out
    assert "step 1/2" in done.err and "step 2/2" in done.err
    assert "Traceback" not in done.err and "Warning" not in done.err
    record = json.loads((run / "run.json").read_text())
    assert record["status"] == "finished" and record["kind"] == "train"
    assert record["command"].startswith("spade train smoke")
    assert record["config"]["train"]["steps"] == 2 and record["seed"] == 0
    assert record["sandbox_level"] and record["data"]["corpus"]
    assert {"torch", "transformers"} <= set(record["versions"])
    assert [r["step"] for r in rows(run / "metrics.jsonl")] == [1, 2]
    assert len(rows(run / "episodes.jsonl")) == sum(r["plays"] for r in rows(run / "metrics.jsonl"))
    assert len(rows(run / "designs.jsonl")) == record["ledger"]["designs"] >= 2
    assert [r["event"] for r in rows(run / "events.jsonl")] == ["start", "finished"]
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["step-000001", "step-000002"]


def test_ledger_agrees_with_the_rows(reference: Path) -> None:
    """Every sampled token is counted once, by purpose and in total."""
    ledger = json.loads((reference / "run.json").read_text())["ledger"]
    episodes, designs = rows(reference / "episodes.jsonl"), rows(reference / "designs.jsonl")
    assert ledger["tokens_plain"] == sum(e["tokens"] for e in episodes if not e["hinted"])
    assert ledger["tokens_hinted"] == sum(e["tokens"] for e in episodes if e["hinted"])
    assert ledger["tokens_design"] == sum(d["tokens"] for d in designs)
    assert ledger["accepted"] == sum(d["accepted"] for d in designs) > 0
    parts = ("plain", "hinted", "design", "hint", "pool_design")
    assert ledger["total_tokens"] == sum(ledger[f"tokens_{p}"] for p in parts)
    assert rows(reference / "metrics.jsonl")[-1]["tokens_total"] == ledger["total_tokens"]


def test_training_moves_the_weights(reference: Path, shipped_model: Path) -> None:
    from safetensors.torch import load_file

    assert json.loads((reference / "run.json").read_text())["ledger"]["optimiser_steps"] > 0
    before = load_file(shipped_model / "model.safetensors")
    after = load_file(reference / "checkpoints" / "step-000004" / "model.safetensors")
    assert set(before) == set(after)
    assert any(not before[name].float().equal(after[name]) for name in before)


def test_checkpoints_are_plain_hugging_face_folders(reference: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folders = sorted((reference / "checkpoints").glob("step-*"))
    assert [f.name for f in folders] == ["step-000002", "step-000003", "step-000004"], "train.keep is 3"
    last = folders[-1]
    assert [p.name for p in last.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".pkl")] == []
    _, info = AutoModelForCausalLM.from_pretrained(last, local_files_only=True, output_loading_info=True)
    assert not info["missing_keys"]
    tokenizer = AutoTokenizer.from_pretrained(last, local_files_only=True)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)


def test_eval_and_compare(spade: Spade, reference: Path, work: Path, shipped_model: Path) -> None:
    base = spade("eval", "--ckpt", str(shipped_model), "--limit", "40", "--out", "base")
    assert base.code == 0, base.err
    assert "heldout on" in base.out and "n = 40" in base.out
    trained = spade("eval", "--ckpt", "reference", "--limit", "40", "--json")
    assert trained.code == 0, trained.err
    result = json.loads(trained.out)
    assert result["suite"] == "heldout" and result["score"][2] == 40
    assert 0.0 <= result["score"][0] <= 1.0 and result["tokens"] > 0
    assert {"a", "b", "a/easy", "a/hard"} <= set(result["parts"])
    assert any((reference / "eval").iterdir())

    again = spade("eval", "--ckpt", "reference", "--limit", "40", "--json")
    assert json.loads(again.out) == result, "the same evaluation is read back, not changed"

    table = spade("compare", "base=base", "reference", "--out", "tables")
    assert table.code == 0, table.err
    assert "±" in table.out and "reference" not in table.err
    assert (work / "tables" / "report.md").is_file()
    document = spade("compare", "base=base", "reference", "--json")
    assert document.code == 0, document.err
    assert isinstance(json.loads(document.out), dict)


def test_fixed_pool_gets_the_same_budget(spade: Spade, reference: Path, work: Path, model: list[str]) -> None:
    """As many programs as self-play accepted, and its total tokens, the pool's own cost included."""
    shape = ["serving.max_rows=16", "design.designs=8", "play.programs=4", "play.plays=6"]
    done = spade("train", "demo-fixed-pool", "budget.like=reference", "out=fixed", *shape, *model)
    assert done.code == 0, done.err
    wanted = json.loads((reference / "run.json").read_text())["ledger"]
    record = json.loads((work / "fixed" / "run.json").read_text())
    pool = read_pool(work / "fixed" / "pool")
    assert len(pool.programs) == len({p.code for p in pool.programs}) == wanted["accepted"]
    assert record["ledger"]["tokens_pool_design"] == pool.tokens > 0
    unseen = {canonical(held.program.code) for held in HeldoutSuite().programs}
    assert len(unseen) == 80 and not unseen & {canonical(p.code) for p in pool.programs}
    budget = record["config"]["budget"]
    assert (budget["total_tokens"], budget["like"]) == (wanted["total_tokens"], None)
    metrics = rows(work / "fixed" / "metrics.jsonl")
    assert len(metrics) >= 2, "the pool must not eat the whole budget"
    total = record["ledger"]["total_tokens"]
    assert metrics[-2]["tokens_total"] < wanted["total_tokens"] <= total == metrics[-1]["tokens_total"]
    assert record["ledger"]["designs"] == 0 and record["ledger"]["tokens_hinted"] == 0
