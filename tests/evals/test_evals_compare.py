"""From evaluations of fake checkpoints to tables, curves and a report."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from evals_fakes import PARTS, FakeSuite, fake_chat
from scipy import stats as scipy_stats

from spade.config import Config, PlayConfig
from spade.errors import FaultKind, InputError
from spade.files import plain
from spade.rng import child_rng
from spade.runs import RunFolder
from spade_evals import comparison, stats
from spade_evals.compare import compare_runs, in_words
from spade_evals.provenance import Origin, checkpoint_hash, origin_of, recipe_of, run_of, step_of
from spade_evals.results import load
from spade_evals.runner import Subject, evaluate

TOTAL = sum(size for _, size in PARTS)


def coin(p: float, salt: str) -> Callable[[str], float]:
    """Item values 0/1: a shared difficulty per item, so that checkpoints are correlated."""

    def value(item_id: str) -> float:
        shared = child_rng(0, item_id).random()
        own = child_rng(0, salt, item_id).random()
        return float(0.7 * shared + 0.3 * own < p)

    return value


async def make(out: Path, p: float, origin: Origin | None = None, temperature: float = 1.0) -> Path:
    subject = Subject(str(out.name), f"hash-{out.name}", origin or Origin())
    suite = FakeSuite(coin(p, out.name))
    play = PlayConfig(temperature=temperature)
    await evaluate(fake_chat(), suite, None, out, subject, quiet=True, play=play)  # type: ignore[arg-type]
    return out


def trained(name: str, seed: int, **fields: float) -> Origin:
    return Origin(
        name=name, seed=seed, step=10, tokens=1000.0, recipe=name, ledger={"total_tokens": 1000.0, **fields}
    )


async def test_two_checkpoints_difference_interval_and_mcnemar(tmp_path: Path) -> None:
    base, better = await make(tmp_path / "base", 0.4), await make(tmp_path / "new", 0.6)
    report = compare_runs([base, better])
    a, b = load(base).items, load(better).items
    gained = sum(b[i].value > a[i].value for i in a)
    lost = sum(b[i].value < a[i].value for i in a)
    test = report.rows[1].tests["score"]
    assert (test.gained, test.lost) == (gained, lost)
    assert test.p == pytest.approx(scipy_stats.binomtest(gained, gained + lost).pvalue)
    assert test.p_holm >= test.p
    found = report.comparison("new")
    means = [sum(b[i].value - a[i].value for i in a if i.startswith(part)) / n for part, n in PARTS]
    assert found.difference == pytest.approx((means[0] / 2 + means[1] / 2 + means[2]) / 2)
    assert found.low < found.difference < found.high
    assert found.low > 0
    assert "higher than base" in found.words
    assert found.n == TOTAL
    text = str(report)
    assert "a easy" in text
    assert "mean" in text


async def test_order_of_samples_and_missing_items_do_not_break_the_pairing(tmp_path: Path) -> None:
    base, other = await make(tmp_path / "base", 0.4), await make(tmp_path / "new", 0.6)
    before = compare_runs([base, other]).comparison("new", "b")
    samples = other / "fake.jsonl"
    lines = samples.read_text().splitlines()
    random.Random(1).shuffle(lines)
    samples.write_text("\n".join(lines) + "\n")
    assert compare_runs([base, other]).comparison("new", "b") == before
    kept = [line for line in lines if json.loads(line)["item_id"] != "b/p0/0"]
    samples.write_text("\n".join(kept) + "\n")
    after = compare_runs([base, other]).comparison("new", "b")
    assert after.n == before.n - 1
    a, b = load(base).items, load(other).items
    shared = [i for i in b if i.startswith("b")]
    assert after.difference == pytest.approx(sum(b[i].value - a[i].value for i in shared) / len(shared))


async def test_other_protocol_is_marked_and_not_compared(tmp_path: Path) -> None:
    base = await make(tmp_path / "base", 0.4)
    hot = await make(tmp_path / "hot", 0.9, temperature=0.5)
    report = compare_runs([base, hot])
    assert report.comparisons == ()
    assert not report.rows[1].comparable
    assert "sampling" in report.problems[0]
    assert "other protocol" in str(report)


async def test_seeds_form_a_row_with_a_t_interval(tmp_path: Path) -> None:
    base = await make(tmp_path / "base", 0.4)
    runs = [await make(tmp_path / f"s{k}", 0.5 + 0.02 * k, trained("self", k)) for k in range(5)]
    report = compare_runs([base, *runs])
    row = report.rows[1]
    assert row.seeds == (0, 1, 2, 3, 4)
    assert row.ledger == {"total_tokens": 1000.0}
    each = [compare_runs([base, run]).comparison("self").difference for run in runs]
    expected = scipy_stats.t.interval(0.95, 4, loc=sum(each) / 5, scale=scipy_stats.sem(each))
    found = report.comparison("self")
    assert (found.low, found.high) == pytest.approx(expected)
    assert found.words == "higher than base over 5 training seeds"
    assert row.tests["score"].p == pytest.approx(scipy_stats.ttest_1samp(each, 0).pvalue)
    few = compare_runs([base, *runs[:3]]).comparison("self")
    assert few.words == "descriptive only (3 seeds)"
    assert "total_tokens" in str(report)


async def test_two_recipes_are_paired_by_seed(tmp_path: Path) -> None:
    fixed = [await make(tmp_path / f"f{k}", 0.45 + 0.05 * k, trained("fixed", k)) for k in range(3)]
    own = [await make(tmp_path / f"o{k}", 0.50 + 0.05 * k, trained("own", k)) for k in reversed(range(3))]
    report = compare_runs([*fixed, *own], reference="fixed")
    each = [compare_runs([fixed[k], own[2 - k]]).comparison("own").difference for k in range(3)]
    assert report.comparison("own").difference == pytest.approx(sum(each) / 3)
    assert all("no untrained model" in problem for problem in report.problems)
    partly = compare_runs([*fixed, *own[:2]], reference="fixed")
    assert partly.comparison("own").n == 2
    assert "only the 2 training seeds" in partly.problems[0]


async def test_an_untrained_model_against_a_row_of_seeds(tmp_path: Path) -> None:
    base = await make(tmp_path / "base", 0.4)
    runs = [await make(tmp_path / f"s{k}", 0.6, trained("self", k)) for k in range(5)]
    report = compare_runs([base, *runs], reference="self")
    assert report.comparison("base").n == 5
    forward = compare_runs([base, *runs]).comparison("self")
    assert report.comparison("base").difference == pytest.approx(-forward.difference)


async def test_same_name_with_another_config_is_another_row(tmp_path: Path) -> None:
    one = await make(tmp_path / "one", 0.4, Origin(name="demo", seed=0, recipe="x"))
    two = await make(tmp_path / "two", 0.5, Origin(name="demo", seed=1, recipe="y"))
    report = compare_runs([one, two])
    assert [row.label for row in report.rows] == ["demo", "demo (2)"]
    assert "different configs" in report.problems[0]


async def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    base = await make(tmp_path / "base", 0.4)
    with pytest.raises(InputError, match="holds no evaluation; make one with spade eval"):
        (tmp_path / "empty").mkdir()
        compare_runs([tmp_path / "empty"])
    with pytest.raises(InputError, match="there is no folder"):
        compare_runs([tmp_path / "nowhere"])
    with pytest.raises(InputError, match="did you mean 'base'"):
        compare_runs([base], reference="bse")
    tree = json.loads((base / "fake.json").read_text())
    tree["samples"] = "../secret.jsonl"
    (base / "fake.json").write_text(json.dumps(tree))
    with pytest.raises(InputError, match="does not stay inside"):
        compare_runs([base])


async def test_name_may_be_given_with_the_path(tmp_path: Path) -> None:
    base = await make(tmp_path / "base", 0.4)
    other = await make(tmp_path / "other", 0.4)
    report = compare_runs([f"start={base}", other])
    assert [row.label for row in report.rows] == ["start", "other"]


async def test_faulted_items_leave_both_sides(tmp_path: Path) -> None:
    base = await make(tmp_path / "base", 0.4)
    subject = Subject("faulty", "f")
    suite = FakeSuite(lambda i: FaultKind.PROGRAM if i.endswith("/0") else 1.0)
    await evaluate(fake_chat(), suite, None, tmp_path / "faulty", subject, quiet=True)  # type: ignore[arg-type]
    report = compare_runs([base, tmp_path / "faulty"])
    assert report.comparison("faulty").n == TOTAL - 3
    assert report.rows[1].faults == 3


def run_folder(path: Path, name: str, seed: int) -> RunFolder:
    folder = RunFolder.create_or_resume(
        Config(name=name, seed=seed, out=str(path)), "train", f"spade train {name}"
    )
    for step in range(1, 9):
        row = {
            "step": step, "tokens_total": 500 * step, "return_plain": 0.3 + 0.03 * step, "regret": 0.1,
            "return_hinted": 0.5, "accept_rate": 0.8, "seconds": 1.0,
        }  # fmt: skip
        folder.append("metrics.jsonl", row)
    folder.update_record(ledger={"total_tokens": 4000.0, "tokens_plain": 3000.0})
    folder.finish()
    return folder


async def test_outputs_report_and_curves(tmp_path: Path) -> None:
    base = await make(tmp_path / "embedded", 0.4)
    paths: list[Path] = [base]
    for seed in range(2):
        run = run_folder(tmp_path / f"demo-s{seed}", "demo", seed).path
        for step, p in ((4, 0.5), (8, 0.6)):
            await make(run / "eval", p, origin_of(run, step))
        paths.append(run)
    report = compare_runs(paths, None, tmp_path / "out")
    assert [row.label for row in report.rows] == ["embedded", "demo"]
    assert report.rows[1].seeds == (0, 1)
    assert set(report.files) == {
        "compare.md", "compare.csv", "compare.txt", "compare.json", "compare.tex", "compare.html",
        "curves.png", "scores.png", "report.md",
    }  # fmt: skip
    assert (tmp_path / "out" / "curves.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    text = (tmp_path / "out" / "report.md").read_text()
    for words in ("curves.png", "spade train demo", "seed 1", "tokens_plain", "± ", "descriptive only"):
        assert words in text
    rows = list(csv.DictReader((tmp_path / "out" / "compare.csv").open()))
    assert len(rows) == 2 * len(stats.columns_of([p for p, _ in PARTS]))
    assert float(rows[-1]["difference"]) == pytest.approx(report.comparison("demo").difference)
    json.dumps(plain(report), allow_nan=False)


def test_origin_reads_run_and_step(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "r", "demo", 3).path
    checkpoint = run / "checkpoints" / "step-000004"
    checkpoint.mkdir(parents=True)
    assert run_of(checkpoint) == run
    assert run_of(tmp_path) is None
    assert step_of(checkpoint) == 4
    origin = origin_of(run, 4)
    assert (origin.name, origin.seed, origin.step, origin.tokens) == ("demo", 3, 4, 2000.0)
    assert origin_of(run, None).tokens == 4000.0


def test_recipe_ignores_seed_folders_and_budget_only() -> None:
    one = Config(name="x", seed=0).model_dump(mode="json")
    two = Config(name="x", seed=7, out="elsewhere").model_dump(mode="json")
    assert recipe_of(one) == recipe_of(two)
    two["learner"]["lr"] = 1.0
    assert recipe_of(one) != recipe_of(two)


def test_checkpoint_hash_follows_the_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"one")
    first = checkpoint_hash(tmp_path, "x")
    (tmp_path / "trainer.safetensors").write_bytes(b"momentum")
    assert checkpoint_hash(tmp_path, "x") == first
    weights.write_bytes(b"two")
    assert checkpoint_hash(tmp_path, "x") != first
    assert checkpoint_hash(None, "scripted:null") != checkpoint_hash(None, "scripted:oracle")


def test_words_say_what_can_be_claimed() -> None:
    above = stats.Interval(0.1, 0.02, 0.18, 0.04, 100)
    none = stats.Interval(0.01, -0.05, 0.07, 0.03, 100)
    few = stats.Interval(-0.1, math.nan, math.nan, math.nan, 1)
    sure, weak = (comparison.Test("McNemar", p, p, 9, 1, 0.08) for p in (0.01, 0.08))
    assert (
        in_words(above, "base", 1, sure, False) == "higher than base on this suite, for this one checkpoint"
    )
    assert "not shown for new ones" in in_words(above, "base", 1, sure, True)
    assert in_words(above, "base", 1, weak, False).endswith("not after the correction for several columns")
    assert in_words(above, "base", 5, weak, False).endswith("not after the correction for several columns")
    assert in_words(above, "base", 5, sure, False) == "higher than base over 5 training seeds"
    assert in_words(none, "base", 1, weak, False) == "no difference from base shown"
    assert in_words(above, "base", 4, sure, False) == "descriptive only (4 seeds)"
    assert in_words(none, "base", 6, weak, False) == "no difference from base shown over 6 training seeds"
    assert in_words(few, "b", 1, weak, False).startswith("no diff")
