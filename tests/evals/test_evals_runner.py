"""The runner: resume, faults, protocol fingerprints. No model and no sandbox."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from evals_fakes import PARTS, FakeSuite, fake_chat, fake_items

from spade.config import PlayConfig
from spade.errors import FaultKind
from spade.types import SuiteResult
from spade_evals.provenance import Origin
from spade_evals.runner import Subject, evaluate
from spade_evals.suite import take

TOTAL = sum(size for _, size in PARTS)


def half(item_id: str) -> float:
    return float(int(item_id.rsplit("/", 1)[1]) % 2)


async def run(out: Path, suite: FakeSuite, subject: Subject | None = None, **options: Any) -> SuiteResult:
    subject = subject or Subject("ckpt", "abc")
    return await evaluate(fake_chat(), suite, None, out, subject, quiet=True, **options)  # type: ignore[arg-type]


async def test_scores_parts_and_files(tmp_path: Path) -> None:
    result = await run(tmp_path, FakeSuite(lambda i: 1.0 if i.startswith("a/easy") else half(i)))
    assert result.parts["a/easy"][0] == 1.0
    assert result.parts["a/hard"][0] == 0.5
    assert result.parts["a"][0] == pytest.approx(0.75)
    assert result.score[0] == pytest.approx((0.75 + 0.5) / 2)
    assert result.score[2] == TOTAL
    assert result.tokens == 3 * TOTAL
    document = json.loads((tmp_path / "fake.json").read_text())
    assert document["complete"] is True
    assert document["fingerprint"] == result.protocol
    assert len((tmp_path / "fake.jsonl").read_text().splitlines()) == TOTAL


async def test_resume_plays_only_what_is_missing_and_equals_one_go(tmp_path: Path) -> None:
    first = FakeSuite(half, crash_after=40)
    with pytest.raises(KeyboardInterrupt):
        await run(tmp_path / "x", first)
    assert len(first.played) == 48
    samples = tmp_path / "x" / "fake.jsonl"
    samples.write_bytes(samples.read_bytes()[:-25])  # the crash also tore the last line
    second = FakeSuite(half)
    resumed = await run(tmp_path / "x", second)
    assert len(second.played) == TOTAL - 47
    assert not set(second.played) & set(first.played[:47])
    assert resumed == await run(tmp_path / "y", FakeSuite(half))
    third = FakeSuite(half)
    assert await run(tmp_path / "x", third) == resumed
    assert third.played == []


async def test_another_protocol_or_checkpoint_never_mixes(tmp_path: Path) -> None:
    one = await run(tmp_path, FakeSuite(half))
    hot = await run(tmp_path, FakeSuite(lambda i: 1.0), play=PlayConfig(temperature=0.5))
    assert hot.protocol != one.protocol
    assert hot.score[0] == 1.0
    assert len(list(tmp_path.glob("*.old.jsonl"))) == 1
    other = await run(
        tmp_path, FakeSuite(lambda i: 0.0), Subject("ckpt", "other"), play=PlayConfig(temperature=0.5)
    )
    assert other.score[0] == 0.0
    assert other.protocol == hot.protocol


async def test_faults_are_not_scores_and_infrastructure_is_retried(tmp_path: Path) -> None:
    def broken(item_id: str) -> float | FaultKind:
        if item_id.endswith("/3"):
            return FaultKind.INFRASTRUCTURE
        return FaultKind.PROGRAM if item_id.endswith("/7") else 1.0

    first = await run(tmp_path, FakeSuite(broken))
    assert first.score[0] == 1.0
    assert first.faults == {"infrastructure": 3, "program": 3}
    assert first.score[2] == TOTAL - 6
    assert json.loads((tmp_path / "fake.json").read_text())["complete"] is False
    again = FakeSuite(lambda i: 0.0)
    second = await run(tmp_path, again)
    assert {i.rsplit("/", 1)[1] for i in again.played} == {"3"}
    assert second.faults == {"program": 3}
    assert second.score[0] < 1.0


async def test_a_part_without_scores_gives_no_score(tmp_path: Path) -> None:
    result = await run(tmp_path, FakeSuite(lambda i: FaultKind.PROGRAM if i.startswith("b") else 1.0))
    assert math.isnan(result.score[0])
    assert json.loads((tmp_path / "fake.json").read_text())["result"]["score"][0] is None


async def test_task_name_tells_step_seed_and_limit(tmp_path: Path) -> None:
    subject = Subject("run@40", "abc", Origin(name="demo", seed=1, step=40))
    await run(tmp_path, FakeSuite(half), subject, seed=2, limit=12)
    assert (tmp_path / "fake@000040-s2-limit12.json").exists()


def test_limit_spreads_over_programs() -> None:
    items = fake_items()
    chosen = take(items, 12)
    assert len({item.cluster for item in chosen}) == 12
    assert [item.id for item in chosen] == [i.id for i in items if i in chosen]
    assert take(items, None) == items
    assert len(take(items, 13)) == 13
