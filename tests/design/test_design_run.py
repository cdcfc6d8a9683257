"""The design phase inside a run: what lies on disk, what is remembered, and who pays for a repair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spade.envs.pool import needs_validation, read_pool
from spade.envs.pool_run import ROW_FILES
from tests.train.scripted_world import World, guess_program, number_of, rows, small_config, train

BROKEN = "```python\nclass BrokenEnv:\n    pass\n```"


class Repairing(World):
    """Designs of a third of the prompts are broken at first; told so, they are put right."""

    def design(self, prompt: str) -> str:
        last = prompt.rpartition("[user]\n")[2]
        if "Rejected" not in last and number_of(prompt, 3) == 0:
            return BROKEN
        return f"```python\n{guess_program(20 + number_of(prompt, 60), 4)}```"


def config(out: Path, **changes: Any) -> Any:
    base = {"validator__floor_max": 0.34, "design__repair_turns": 1, "design__invalid_reward": -0.5}
    return small_config(out, **{**base, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return train(config(tmp_path_factory.mktemp("run") / "whole"), Repairing())


def test_every_design_lies_on_disk_with_its_verdict(run: Any) -> None:
    _, folder, _ = run
    designs = rows(folder, "designs.jsonl")
    accepted = {d["program"] for d in designs if d["accepted"]}
    pool = read_pool(folder.path / "pool")
    assert {p.id for p in pool.programs} == accepted and accepted
    assert not any(needs_validation(p, pool.provenance[p.id]) for p in pool.programs)
    hints = {d["program"]: d["hint"] for d in designs if d["accepted"] and d["hint_code"] == "ok"}
    for program in pool.programs:
        assert program.hint == hints.get(program.id)
        hint = folder.path / "pool" / f"{program.id}.hint.txt"
        assert (hint.read_text() == f"{program.hint}\n") if program.hint else not hint.exists()
        known = pool.provenance[program.id]
        assert known.brief["skill"] == program.skill and known.verdict is not None
    refused = {d["program"]: d["code"] for d in designs if not d["accepted"] and d["program"]}
    found = [json.loads(x) for x in (folder.path / ROW_FILES[1]).read_text().splitlines()]
    assert {row["program"]["id"]: row["reason"] for row in found} == refused
    assert all((folder.path / "rejected" / row["program"]["file"]).is_file() for row in found)


def test_statistics_lie_beside_the_programs_and_in_the_memory(run: Any) -> None:
    _, folder, _ = run
    pool = read_pool(folder.path / "pool")
    plays: dict[str, list[float]] = {}
    for row in rows(folder, "episodes.jsonl"):
        if not row["hinted"] and row["value"] is not None:
            plays.setdefault(row["program"], []).append(row["value"])
    measured = {i: k.stats for i, k in pool.provenance.items() if k.stats is not None}
    assert set(measured) == set(plays) & {p.id for p in pool.programs}
    for program_id, stats in measured.items():
        first = plays[program_id][:4]
        assert stats.plays == 4 and stats.mean_return == pytest.approx(sum(first) / 4)
        assert stats.return_stderr is not None and stats.turns is not None
        if len(set(first)) == 1:
            assert stats.return_stderr == 0.0


def test_a_repaired_design_is_played_but_paid_as_rejected(run: Any) -> None:
    _, folder, learner = run
    designs = rows(folder, "designs.jsonl")
    repaired = [d for d in designs if d["repaired"]]
    assert repaired and all(d["accepted"] and d["repaired"] == "missing_method" for d in repaired)
    assert all(d["text"] == BROKEN and d["tokens"] > len(BROKEN) + 1 for d in repaired)
    played = {row["program"] for row in rows(folder, "episodes.jsonl")}
    assert {d["program"] for d in repaired} <= played
    trained = [s for s in learner.seen if s.role == "designer"]
    assert len(trained) == len(designs)  # the first turn of every attempt, and nothing else
    broken = [s for s in trained if bytes(t for t in s.completion_ids if t < 256).decode() == BROKEN]
    assert len(broken) == len([d for d in designs if d["text"] == BROKEN]) and repaired
    assert all(s.advantage <= 0 for s in broken)  # -0.5 is the least a design can earn here
    assert sum(d["tokens"] for d in designs) == run[0]["tokens_design"]


def test_an_interrupted_run_leaves_the_same_pool(run: Any, tmp_path: Path) -> None:
    from tests.train.scripted_world import DigestLearner

    cfg = config(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(cfg, Repairing(), DigestLearner(fail_at=4))
    _, again, _ = train(cfg, Repairing())
    _, whole, _ = run

    def kept(folder: Any, name: str) -> list[Any]:
        lines = [json.loads(x) for x in (folder.path / name).read_text().splitlines()]
        for row in lines:
            for stage in row.get("program", {}).get("verdict", {}).get("stages", []):
                stage["seconds"] = 0.0
        return lines

    for name in ROW_FILES:
        assert kept(again, name) == kept(whole, name)
    assert read_pool(again.path / "pool").digest == read_pool(whole.path / "pool").digest
