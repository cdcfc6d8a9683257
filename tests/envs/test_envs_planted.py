"""The bank of planted programs: every defect is refused with its own reason, every good program accepted.

Data in `planted/`: one program a file, and a manifest that says what the validator must make of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spade.config import SandboxConfig, ValidateConfig
from spade.envs import samples
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate_many
from spade.types import EnvProgram, Verdict

PLANTED = Path(__file__).parent / "planted"
ROWS: list[dict[str, Any]] = json.loads((PLANTED / "manifest.json").read_text())
GOOD = [r for r in ROWS if r["expect"] == "accept"]
BAD = [r for r in ROWS if r["expect"] == "reject"]


def program(row: dict[str, Any]) -> EnvProgram:
    return EnvProgram.of((PLANTED / row["file"]).read_text())


async def verdicts(rows: list[dict[str, Any]], **sandbox: float) -> list[Verdict]:
    async with await Sandbox.start(SandboxConfig(**sandbox)) as running:
        return await validate_many([program(r) for r in rows], running, ValidateConfig())


def test_the_manifest_lists_every_file_once() -> None:
    assert sorted(r["file"] for r in ROWS) == sorted(p.name for p in PLANTED.glob("*.py"))
    assert len(GOOD) >= 25 and len(BAD) >= 100
    assert len({(PLANTED / r["file"]).read_text() for r in ROWS}) == len(ROWS)


async def test_good_programs_are_accepted() -> None:
    found = zip(GOOD, await verdicts(GOOD), strict=True)
    assert [(r["file"], v.code, v.failed) for r, v in found if not v.accepted] == []


async def test_good_programs_do_not_owe_it_to_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "BATTERY_ROOT", 7)
    found = zip(GOOD, await verdicts(GOOD), strict=True)
    assert [(r["file"], v.code, v.failed) for r, v in found if not v.accepted] == []


async def test_every_defect_is_refused_with_its_reason() -> None:
    found = list(zip(BAD, await verdicts(BAD, cpu_seconds=0.5), strict=True))
    wrong = [(r["file"], r["code"], v.code, v.failed) for r, v in found if v.code not in codes(r)]
    assert wrong == []
    assert all(v.failed and v.failed.detail for _, v in found)


def codes(row: dict[str, Any]) -> list[str]:
    """One reason, or two where the machine's load decides which limit is hit first."""
    return [row["code"]] if isinstance(row["code"], str) else list(row["code"])
