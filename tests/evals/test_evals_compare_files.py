"""What a comparison writes: every format, published rows, changed items, several suites, pass@k."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import pytest
from evals_fakes import FakeSuite, fake_chat
from test_evals_compare import coin, make, trained

from spade.errors import InputError
from spade.files import append_lines, read_json, read_jsonl, write_json
from spade_evals.compare import compare_runs, compare_suites
from spade_evals.comparison import CompareList, CompareReport
from spade_evals.passk import draw_pass_at_k, pass_curve
from spade_evals.published import folder, published
from spade_evals.render import to_html, to_latex, to_markdown
from spade_evals.results import load
from spade_evals.runner import Subject, evaluate


async def test_changed_items_are_those_whose_value_differs(tmp_path: Path) -> None:
    base, other = await make(tmp_path / "base", 0.4), await make(tmp_path / "new", 0.6)
    row = compare_runs([base, other]).rows[1]
    a, b = load(base).items, load(other).items
    assert {c.item_id for c in row.gained} == {i for i in a if b[i].value > a[i].value}
    assert {c.item_id for c in row.lost} == {i for i in a if b[i].value < a[i].value}
    assert (len(row.gained), len(row.lost)) == (row.tests["score"].gained, row.tests["score"].lost)
    assert row.gained[0].item_id in to_markdown(compare_runs([base, other]))


async def test_changed_items_of_several_seeds_are_means_by_size(tmp_path: Path) -> None:
    base = await make(tmp_path / "base", 0.5)
    paths = [await make(tmp_path / f"t{seed}", 0.6, trained("t", seed)) for seed in range(3)]
    row = compare_runs([base, *paths]).rows[1]
    one = row.gained[0]
    runs = [load(path).items[one.item_id].value for path in paths]
    assert one.difference == pytest.approx(sum(runs) / 3 - load(base).items[one.item_id].value)
    sizes = [change.difference for change in row.gained]
    assert sizes == sorted(sizes, reverse=True)


async def test_hostile_names_stay_text_in_latex_and_html(tmp_path: Path) -> None:
    base = await make(tmp_path / "base", 0.4)
    other = await make(tmp_path / "x", 0.6)
    report = compare_runs([base, f"<script>alert(1)</script>_50%={other}"])
    page = to_html(report, {})
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "default-src" in page  # loads nothing
    latex = to_latex(report)
    assert "\\_50\\%" in latex
    assert "\\toprule" in latex
    assert "±" not in latex


async def test_a_folder_of_runs_stands_for_its_runs(tmp_path: Path) -> None:
    for name, p in (("a", 0.4), ("b", 0.6)):
        await make(tmp_path / "set" / name, p)
    report = compare_suites([tmp_path / "set"])
    assert isinstance(report, CompareReport)
    assert [row.label for row in report.rows] == ["a", "b"]


async def test_every_shared_suite_is_compared(tmp_path: Path) -> None:
    for name, p in (("a", 0.4), ("b", 0.6), ("c", 0.5)):
        for suite_name in ("fake", "other") if name != "c" else ("fake",):
            suite = FakeSuite(coin(p, name))
            suite.name = suite_name
            subject = Subject(name, f"hash-{name}")
            out = tmp_path / name
            await evaluate(fake_chat(), suite, None, out, subject, quiet=True)  # type: ignore[arg-type]
    paths: list[Path | str] = [tmp_path / name for name in "abc"]
    found = compare_suites(paths, out=tmp_path / "out")
    assert isinstance(found, CompareList)
    assert [(r.suite, len(r.rows)) for r in found.reports] == [("fake", 3), ("other", 2)]
    assert (tmp_path / "out" / "other" / "compare.html").is_file()
    only = compare_suites(paths[:2], suite="other")
    assert isinstance(only, CompareReport)
    with pytest.raises(InputError, match="c holds no evaluation"):
        compare_suites(paths, suite="other")


async def test_runs_without_an_untrained_model_are_said_so(tmp_path: Path) -> None:
    paths = [await make(tmp_path / n, 0.5, trained(n, 0)) for n in "ab"]
    assert any("no untrained model" in p for p in compare_runs(paths).problems)
    base = await make(tmp_path / "base", 0.4)
    assert not any("no untrained model" in p for p in compare_runs([base, *paths]).problems)


def test_published_rows_are_complete_and_in_fractions() -> None:
    rows = published("paper-games")
    spade = next(row for row in rows if row.label == "30B SPADE")
    eight = [value for column, value in spade.scores.items() if column != "score"]
    assert len(eight) == 8
    assert spade.scores["score"] == pytest.approx(sum(eight) / 8, abs=6e-4)
    for row in rows:  # as printed, rounded to a tenth of a percent (three ablation rows are off by more)
        if row.source.endswith("table 1"):
            eight = [value for column, value in row.scores.items() if column != "score"]
            assert sum(eight) / 8 == pytest.approx(row.scores["score"], abs=1.1e-3)
    assert published("no-such-suite") == []


def test_published_columns_exist_in_the_suites_they_belong_to() -> None:
    from spade_evals.suites.paper_games import make_suite

    names = {task.name for task in make_suite().tasks} | {"score"}
    assert all(set(row.scores) == names for row in published("paper-games"))


async def test_published_rows_stand_apart(tmp_path: Path) -> None:
    place = tmp_path / "published"
    place.mkdir()
    table = {
        "format": "spade-published-1", "source": "somebody", "suite": "fake", "unit": "percent",
        "rows": [{"label": "theirs", "scores": {"b": 12.5, "unknown": 1.0}}],
    }  # fmt: skip
    write_json(place / "t.json", table)
    rows = published("fake", place)
    assert rows[0].scores == {"b": 0.125, "unknown": 0.01}
    write_json(place / "t.json", {**table, "unit": "stones"})
    with pytest.raises(InputError, match="no table of published scores"):
        published("fake", place)
    assert folder().is_dir()


async def test_pass_at_k_against_enumeration(tmp_path: Path) -> None:
    base = await make(tmp_path / "base", 0.5)
    rows = read_jsonl(base / "fake.jsonl")
    more = []
    for row in rows:  # four samples an item, the k-th right when the item's number says so
        number = int(row["item_id"].rsplit("/", 1)[1])
        for sample in range(4):
            right = (number >> sample) % 2 == 0
            outcome = {"is": "Scored", "value": float(right), "solved": right}
            more.append({**row, "sample": sample, "outcome": outcome})
    (base / "fake.jsonl").unlink()
    append_lines(base / "fake.jsonl", more)
    run = load(base)
    curve = pass_curve(run, "b")
    for k, value in enumerate(curve, start=1):
        total = 0.0
        for number in range(60):
            right = [(number >> sample) % 2 == 0 for sample in range(4)]
            total += sum(map(any, combinations(right, k))) / math.comb(4, k)
        assert value == pytest.approx(total / 60)
    assert len(curve) == 4
    assert draw_pass_at_k([run], tmp_path / "p.png") == tmp_path / "p.png"
    assert pass_curve(run, "nothing") == []


async def test_one_sample_an_item_has_no_pass_curve(tmp_path: Path) -> None:
    assert draw_pass_at_k([load(await make(tmp_path / "base", 0.5))], tmp_path / "p.png") is None


def test_published_tables_agree_with_their_records(tmp_path: Path) -> None:
    """`make results` would write what lies in `results/tables/`: texts, scores, differences and intervals."""
    root = folder().parent
    sets = [place for place in sorted((root / "runs").iterdir()) if place.is_dir()]
    assert sets
    for place in sets:
        marks = place / "reference"
        for reference in marks.read_text().split() if marks.is_file() else [None]:
            name = place.name if reference is None else f"{place.name}-vs-{reference}"
            kept = read_json(root / "tables" / name / "compare.json", "published comparison")
            found = compare_suites([place], reference)
            assert isinstance(found, CompareReport)
            assert (root / "tables" / name / "compare.txt").read_text() == f"{found}\n"
            assert (root / "tables" / name / "compare.md").read_text() == to_markdown(found)
            assert [row["label"] for row in kept["rows"]] == [row.label for row in found.rows]
            for old, new in zip(kept["comparisons"], found.comparisons, strict=True):
                assert (old["name"], old["column"]) == (new.name, new.column)
                for key in ("score", "stderr", "difference", "low", "high"):
                    assert math.isclose(old[key], getattr(new, key), abs_tol=1e-9), (name, key)
            for old, row in zip(kept["rows"], found.rows, strict=True):
                assert set(old["cells"]) == set(row.cells)
                for column, cell in row.cells.items():
                    assert old["cells"][column] == pytest.approx(list(cell))
