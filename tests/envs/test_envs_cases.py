"""Every case in the shared folder: hostile programs at every level, planted defects through the validator."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from envs_programs import CASES, ECHO, needs_cases

from spade.config import SandboxConfig, ValidateConfig
from spade.envs.cli import run_once
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate_many
from spade.errors import SandboxError
from spade.types import EnvProgram

OUTCOMES = {
    "refused": {"refused"},
    "killed_at_deadline": {"killed"},
    "worker_died_noticed": {"crashed"},
    "killed_bad_frames": {"bad_frames"},
    "harmless_capped": {"ok"},
    "repaired_text": {"ok"},
    "own_worker_only": {"ok", "refused", "killed", "crashed", "bad_frames"},
}


def manifest(kind: str) -> list[dict[str, Any]]:
    path = CASES / kind / "manifest.json"
    return json.loads(path.read_text()) if path.exists() else []  # type: ignore[no-any-return]


def program(kind: str, file: str) -> EnvProgram:
    return EnvProgram.of((CASES / kind / file).read_text())


@needs_cases
@pytest.mark.parametrize("level", ["L3", "L2", "L2s"])
async def test_hostile_programs_end_as_listed(level: str, canary: Path) -> None:
    cfg = SandboxConfig(force_level=level, min_level=level, cpu_seconds=0.6, wall_factor=4.0)
    canary.write_text("canary")
    try:
        sandbox = await Sandbox.start(cfg)
    except SandboxError as error:
        pytest.skip(str(error))
    gate = asyncio.Semaphore(4)

    async def one(file: str) -> dict[str, Any]:
        async with gate:
            return await run_once(file, program("hostile", file), sandbox, 1, "go")

    async with sandbox:
        rows = await asyncio.gather(*(one(c["file"]) for c in manifest("hostile")))
        worker = await sandbox.open(ECHO)  # a fresh sibling works and sees nothing of the others
        assert await worker.reset(0, 7) == "seed 7"
    wrong = [
        (case["file"], case["expect"], row["outcome"], row["detail"])
        for case, row in zip(manifest("hostile"), rows, strict=True)
        if row["outcome"] not in OUTCOMES[case["expect"]]
    ]
    assert rows and not wrong
    assert all(row["level"] == level for row in rows)
    assert canary.read_text() == "canary"
    assert not Path("/tmp/spade_pwn").exists()
    by_file = {row["file"]: row for row in rows}
    assert len(by_file["gigantic_observation.py"]["observation"]) == 64 * 1024
    probes = [r["observation"] for f, r in by_file.items() if f in ("read_files.py", "kill_everybody.py")]
    assert all("!" in part for text in probes for part in text.split(" | "))


@needs_cases
@pytest.mark.parametrize("floor_max", [0.34, 0.05])
async def test_planted_programs_are_judged_as_listed(floor_max: float) -> None:
    cases = manifest("planted")
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        programs = [program("planted", c["file"]) for c in cases]
        verdicts = await validate_many(programs, sandbox, ValidateConfig(floor_max=floor_max))
    wrong = [
        (case["file"], case["expect"], verdict.code, verdict.failed)
        for case, verdict in zip(cases, verdicts, strict=True)
        if verdict.accepted != (case["expect"] == "accept")
    ]
    assert verdicts and not wrong
    codes = {case["file"]: v.code for case, v in zip(cases, verdicts, strict=True)}
    assert codes["answer_in_observation.py"] == "answer_in_observation"
    assert codes["answer_in_feedback.py"] == "answer_in_feedback"
    assert codes["seed_ignored.py"] == "seed_ignored"
    assert codes["special_tokens_in_observation.py"] == "markup"
    assert codes["reward_farm_never_ends.py"] == "never_ends"
    assert codes["substring_grader.py"] == "lenient_grader"
    assert codes["unsolvable_type_mismatch.py"] == "unsolved"
    assert codes["player_plays_the_grader_eval.py"] == "forbidden_name"
