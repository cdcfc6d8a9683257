"""Progress lines, curves and Markdown."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from spade.report.columns import COLUMNS
from spade.report.curves import RunSeries, draw_curves, smooth
from spade.report.markdown import escape
from spade.report.progress import Counter, Pace, Progress, clock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ROW = {
    "step": 2,
    "tokens_total": 4200,
    "return_plain": 0.41,
    "regret": None,
    "accept_rate": 0.75,
    "seconds": 1.5,
}


def test_clock_and_cells() -> None:
    assert [clock(s) for s in (-1, 41.6, 185, 7620)] == ["0s", "42s", "3m05s", "2h07m"]
    by_head = {column.head: column for column in COLUMNS}
    assert by_head["plain"].text({}) == by_head["plain"].text({"return_plain": float("nan")}) == "–"
    assert by_head["tokens"].text({"tokens_total": 12345.0}) == "12,345"
    assert by_head["regret"].text({"regret": 0.12, "regret_stderr": 0.031}) == "+0.120 ±0.031"
    assert by_head["regret"].text({"regret": -0.12}) == "-0.120"
    row = {"share/frontier": 0.5, "share/mastered": 1 / 3, "share/intractable": 1 / 6}
    assert by_head["front/mast/intract %"].text(row) == "50/33/17"
    refused = {"accept_rate": 0.6, "rejected/unsolved": 2, "rejected/duplicate": 5, "rejected/syntax": 1}
    assert by_head["accepted"].text(refused) == "60% (duplicate 5, unsolved 2)"
    spent = {"seconds": 2.0, "seconds/play": 0.5, "seconds/learn": 1.2, "seconds/floor": 0.1}
    assert by_head["time %"].text(spent) == "learn 60 play 25 floor 5"


def test_pace_follows_the_recent_speed() -> None:
    pace = Pace()
    assert pace.remaining(10) is None
    for now in range(0, 100):
        pace.mark(now * 0.1, float(now))
    assert pace.remaining(19.9) == pytest.approx(100.0)


def test_plain_lines_without_a_terminal() -> None:
    stream = io.StringIO()
    with Progress(10, "demo", stream=stream) as progress:
        progress.row({**ROW, "step": 1})
        progress.row(ROW)
    first, second = stream.getvalue().splitlines()
    assert second.startswith(
        "demo: step 2/10 · tokens 4,200 · plain 0.410 · accepted 75% · s/step 1.5 · left "
    )
    assert "regret" not in first
    assert "\x1b" not in stream.getvalue()


def test_a_resumed_run_does_not_look_faster_than_it_is() -> None:
    progress = Progress(60, "demo", stream=io.StringIO())
    progress.row({"step": 50, "seconds": 3.0})
    assert progress.remaining() == pytest.approx(30.0, abs=0.1)


def test_live_table_on_a_terminal() -> None:
    stream = Terminal()
    with Progress(10, "demo", stream=stream) as progress:
        progress.row(ROW)
        progress.row({"step": 3})
    text = stream.getvalue()
    assert "demo (10 steps)" in text
    assert "0.410" in text


def test_token_budget_ends_the_run_sooner() -> None:
    stream = io.StringIO()
    progress = Progress(1000, "demo", total_tokens=10_000, stream=stream)
    progress._by_step.mark(0, 0.0)
    progress._by_tokens.mark(0, 0.0)
    progress._by_step.mark(1, 1.0)
    progress._by_tokens.mark(5000, 1.0)
    assert progress.remaining() == pytest.approx(1.0)


def test_the_first_step_of_a_run_on_a_token_budget_knows_the_end_and_a_resumed_one_waits() -> None:
    new = Progress(100_000, "demo", total_tokens=10_000, stream=io.StringIO())
    new.row({"step": 1, "seconds": 3.0, "tokens_total": 2500})
    assert new.remaining() == pytest.approx(9.0, abs=0.1)
    resumed = Progress(100_000, "demo", total_tokens=10_000, stream=io.StringIO())
    resumed.row({"step": 50, "seconds": 3.0, "tokens_total": 8000})
    assert resumed.remaining() is None


def test_counter_lines_and_bar() -> None:
    stream = io.StringIO()
    counter = Counter(10, "heldout", stream, every=0.0)
    counter.start()
    counter.update(5)
    counter.update(10)
    counter.stop()
    assert [line.split(" ·")[0] for line in stream.getvalue().splitlines()] == [
        "heldout: 5/10",
        "heldout: 10/10",
    ]
    terminal = Terminal()
    bar = Counter(10, "heldout", terminal)
    bar.start()
    bar.update(10)
    bar.stop()
    assert "10/10" in terminal.getvalue()


def test_smoothing_is_a_trailing_mean() -> None:
    assert smooth(np.array([1.0, 3.0, 5.0, 7.0]), 2).tolist() == [1.0, 2.0, 4.0, 6.0]
    assert smooth(np.array([])).size == 0


def test_curves_tolerate_missing_metrics_and_odd_names(tmp_path: Path) -> None:
    rows = ({"step": 1}, {"step": 2, "regret": 0.1, "tokens_total": 10}, {"step": 3, "regret": None})
    bare = RunSeries("_a$b$", 0, rows, ())
    several = [
        RunSeries(
            "two", k, ({"step": 1, "return_plain": 0.2}, {"step": 2, "return_plain": 0.3}), ((0, 0.3, 0.1),)
        )
        for k in range(2)
    ]
    path = draw_curves([bare, *several], tmp_path / "curves.png")
    assert path is not None
    assert path.stat().st_size > 10_000
    assert draw_curves([RunSeries("x", 0, (), ())], tmp_path / "none.png") is None
    assert not (tmp_path / "none.png").exists()


def test_curves_are_reproducible(tmp_path: Path) -> None:
    series = [RunSeries("x", 0, ({"step": 1, "return_plain": 0.2}, {"step": 2, "return_plain": 0.4}), ())]
    one, two = draw_curves(series, tmp_path / "1.png"), draw_curves(series, tmp_path / "2.png")
    assert one is not None and two is not None
    assert one.read_bytes() == two.read_bytes()


def test_names_from_configs_are_inert_in_markdown() -> None:
    assert escape("<script>|a_b`\n# x") == "&lt;script&gt;\\|a\\_b\\` # x"
