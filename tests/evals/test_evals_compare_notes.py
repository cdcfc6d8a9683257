"""What a comparison says beside its numbers: what is missing, what was not matched, what could be found."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from evals_fakes import PARTS, FakeSuite, fake_chat
from scipy import stats as scipy_stats
from test_evals_compare import coin, make, run_folder, trained

from spade.cli import report as report_verb
from spade.errors import FaultKind
from spade_evals import stats
from spade_evals.compare import compare_runs, compare_suites
from spade_evals.compare_files import claims
from spade_evals.comparison import unequal_budgets
from spade_evals.pairing import paired
from spade_evals.provenance import origin_of
from spade_evals.render import to_csv, to_markdown
from spade_evals.results import load
from spade_evals.runner import Subject, evaluate

TOTAL = sum(size for _, size in PARTS)


async def faulty(out: Path, broken: Callable[[str], bool]) -> Path:
    """An evaluation in which the items that `broken` names have no score."""
    value = coin(0.6, out.name)
    suite = FakeSuite(lambda i: FaultKind.PROGRAM if broken(i) else value(i))
    subject = Subject(out.name, f"hash-{out.name}")
    await evaluate(fake_chat(), suite, None, out, subject, quiet=True)  # type: ignore[arg-type]
    return out


async def test_items_without_a_partner_are_counted_and_named(tmp_path: Path) -> None:
    base = await make(tmp_path / "base", 0.4)
    some = await faulty(tmp_path / "some", lambda i: i in ("b/p0/0", "b/p1/1", "b/p2/2", "b/p3/3"))
    report = compare_runs([base, some])
    assert report.comparison("some").n == TOTAL - 4
    note = next(p for p in report.problems if "lack a score" in p)
    assert f"'some': 4 of {TOTAL} items" in note and "(b/p0/0, b/p1/1, b/p2/2, ...)" in note
    assert note in str(report) and note in to_markdown(report)
    whole = compare_runs([base, await make(tmp_path / "whole", 0.6)])
    assert not [p for p in whole.problems if "lack a score" in p]


@pytest.mark.parametrize("side", ["row", "reference"])
async def test_a_part_that_is_missing_whole_leaves_the_mean_without_a_score(
    tmp_path: Path, side: str
) -> None:
    """The mean over two parts is not to be compared with the mean over all."""
    base = await make(tmp_path / "base", 0.4)
    half = await faulty(tmp_path / "half", lambda i: i.startswith("b/"))
    report = compare_runs([base, half] if side == "row" else [half, base])
    name = "half" if side == "row" else "base"
    row = next(r for r in report.rows if r.label == "half")
    assert math.isnan(row.cells[stats.SCORE][0]) and math.isnan(row.cells["b"][0])
    assert 0 < row.cells["a"][0] < 1
    assert {c.column for c in report.comparisons} == {"a/easy", "a/hard", "a"}
    other = next(r for r in report.rows if r.label == "base")
    assert other.cells[stats.SCORE][0] > 0
    assert set(next(r for r in report.rows if r.label == name).tests) == {"a/easy", "a/hard", "a"}
    assert "–" in str(report)


async def test_nothing_in_common_is_said_and_not_called_equal(tmp_path: Path) -> None:
    one = await faulty(tmp_path / "one", lambda i: int(i.split("/")[-1]) % 2 == 0)
    two = await faulty(tmp_path / "two", lambda i: int(i.split("/")[-1]) % 2 == 1)
    report = compare_runs([one, two])
    assert report.comparisons == () and "no difference" not in str(report)
    assert f"{TOTAL} of {TOTAL} items lack a score" in str(report)


async def test_runs_of_a_folder_that_were_not_evaluated_are_named(tmp_path: Path) -> None:
    for name, p in (("a", 0.4), ("b", 0.6)):
        await make(tmp_path / "set" / name, p)
    run_folder(tmp_path / "set" / "bare", "bare", 0)
    report = compare_suites([tmp_path / "set"])
    assert "not evaluated, hence left out: bare" in report.problems  # type: ignore[union-attr]
    suite = FakeSuite(coin(0.5, "c"))
    suite.name = "other"
    out, subject = tmp_path / "set" / "c", Subject("c", "hash-c")
    await evaluate(fake_chat(), suite, None, out, subject, quiet=True)  # type: ignore[arg-type]
    report = compare_suites([tmp_path / "set"], suite="fake")
    assert [row.label for row in report.rows] == ["a", "b"]  # type: ignore[union-attr]
    assert "not evaluated on fake, hence left out: c" in report.problems  # type: ignore[union-attr]


async def test_rows_that_did_not_spend_the_same_get_a_note(tmp_path: Path) -> None:
    def said(*spent: dict[str, float]) -> list[str]:
        report = compare_runs([base, *paths[: len(spent)]])
        rows = [r for r in report.rows if r.ledger]
        for row, ledger in zip(rows, spent, strict=True):
            row.ledger.clear()
            row.ledger.update(ledger)
        return unequal_budgets(report.rows)

    base = await make(tmp_path / "base", 0.4)
    paths = [await make(tmp_path / n, 0.6, trained(n, 0)) for n in ("one", "two")]
    assert compare_runs([base, *paths]).problems == ()
    assert said({"total_tokens": 100.0}) == []
    assert said({"total_tokens": 100.0}, {"total_tokens": 104.0}) == []
    found = said({"total_tokens": 100_000.0, "plays_plain": 9}, {"total_tokens": 1000.0, "plays_plain": 5})
    assert len(found) == 1 and "one 100,000, two 1,000 tokens" in found[0]
    assert said({"total_tokens": 900.0, "plays_plain": 50}, {"total_tokens": 100.0, "plays_plain": 50}) == []


async def test_a_report_compares_a_run_once_and_with_the_row_that_is_named(tmp_path: Path) -> None:
    """`--beside` a folder that holds the run itself."""
    await make(tmp_path / "set" / "zero", 0.4)
    run = run_folder(tmp_path / "set" / "demo-s0", "demo", 0).path
    await make(run / "eval", 0.6, origin_of(run, 8))
    run_folder(tmp_path / "set" / "unseen", "unseen", 0)
    found = report_verb._comparison([run], [str(tmp_path / "set")], "zero")
    assert [claim.split(":")[0] for claim in found.claims] == ["demo"]
    assert "against zero" in found.claims[0]
    assert "given twice" not in str(found.tables)


def test_detectable_effect_over_seeds_uses_the_t_distribution() -> None:
    """By simulation: an effect of that size is found about four times in five."""
    size, spread, rng = 5, 0.3, np.random.default_rng(0)
    effect = stats.detectable_effect(spread / math.sqrt(size), df=size - 1)
    drawn = rng.normal(effect, spread, (20_000, size))
    found = scipy_stats.ttest_1samp(drawn, 0.0, axis=1).pvalue < 0.05
    assert 0.77 < found.mean() < 0.88
    assert stats.detectable_effect(1.0, df=10_000) == pytest.approx(stats.detectable_effect(1.0), rel=1e-3)


async def test_the_detectable_difference_stands_in_every_table(tmp_path: Path) -> None:
    base, other = await make(tmp_path / "base", 0.4), await make(tmp_path / "new", 0.6)
    report = compare_runs([base, other])
    pairs = paired(load(other), [load(base)])
    interval = stats.paired_bootstrap({part: diff for part, (diff, _) in pairs.items()})[stats.SCORE]
    smallest = report.rows[1].tests[stats.SCORE].detectable
    assert smallest == pytest.approx(stats.detectable_effect(interval.stderr))
    assert f"{smallest:.3f}" in str(report) and "detectable" in str(report)
    rows = list(csv.DictReader(to_csv(report).splitlines()))
    assert float(rows[-1]["detectable"]) == pytest.approx(smallest)
    assert claims(report)[0].endswith("for this one checkpoint.")
    same = compare_runs([base, await make(tmp_path / "same", 0.41)])
    least = same.rows[1].tests[stats.SCORE].detectable
    assert claims(same)[0].endswith(f"shown (one of {least:.3f} would be found 4 times in 5).")
    few = compare_runs([base, *[await make(tmp_path / f"s{k}", 0.6, trained("s", k)) for k in range(3)]])
    assert math.isnan(few.rows[1].tests[stats.SCORE].detectable)
