"""One minute of the soak: what `make soak` does to 10,000 programs, to as many as there is time for."""

from __future__ import annotations

import sys

import pytest
from envs_programs import CASES

from benchmarks.soak import Record, run
from benchmarks.soak_programs import BROKEN, GOOD, HOSTILE, Sample

SECONDS = 36.0


def test_the_judgement_of_the_soak_can_fail() -> None:
    record = Record()
    record.add(Sample("good sum", ""), "floor_silence")
    record.add(Sample("broken syntax", ""), "accepted")
    record.add(Sample("hostile exit", "", frozenset({"crash"})), "harmless")
    record.add(Sample("hostile exit", "", frozenset({"crash"})), "crash")
    record.add(Sample("good sum", ""), "accepted")
    assert record.wrong == ["good sum: floor_silence", "broken syntax: accepted", "hostile exit: harmless"]
    record.memory = [(n, 10.0 if n < 400 else n / 100) for n in range(0, 1201, 20)]
    record.outcomes["filler"] = 1195
    slope, growth = record.slope()
    assert slope == pytest.approx(10.24) and growth == pytest.approx(8.0)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the soak reads /proc")
def test_nothing_is_left_after_a_minute_of_programs() -> None:
    report = run(2_000, SECONDS, 8, CASES if CASES.is_dir() else None)
    assert report["left"] == {"children": 0, "descriptors": 0, "temporary_files": 0}
    assert report["wrong"] == []
    assert report["ok"], report
    kinds = len(GOOD) + len(BROKEN) + len(HOSTILE)
    assert report["programs"] > kinds, "too few programs to mean anything"
