"""Pools on disk: they keep what is known of their programs, and trust nothing that they read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from spade.config import SandboxConfig, ValidateConfig
from spade.envs.battery import BATTERY_VERSION
from spade.envs.pool import (
    PlayStats,
    Pool,
    Provenance,
    brief_note,
    needs_validation,
    read_pool,
    revalidate,
    save_program,
    write_pool,
)
from spade.envs.pool_run import ROW_FILES, record_designs, record_plays
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate
from spade.errors import InputError
from spade.files import append_lines
from spade.types import Brief, Design, EnvProgram, StageResult, Trajectory, Verdict
from tests.design.phase import BROKEN, game
from tests.play.programs import COUNT, GUESS

BRIEF = Brief("b1", "Optimization", "tool_use", "hard", "d1", ("e1",), 7, (), "banking", "plain")
STATS = PlayStats(16, 0.5, 0.1, 0.25, None, 3.5)
LOOSE = ValidateConfig(floor_max=0.34)


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig()) as box:
        yield box


def verdict(program: EnvProgram, accepted: bool = True, **fields: Any) -> Verdict:
    import platform

    stage = StageResult("floor", accepted, "ok" if accepted else "floor_echo", "Echo wins.", 0.25)
    row: dict[str, Any] = {"battery": BATTERY_VERSION, "level": "L2", "python": platform.python_version()}
    return Verdict(program.id, accepted, (stage,), **{**row, **fields})


@pytest.fixture
def pool() -> Pool:
    guess = EnvProgram.of(GUESS, skill="A", source="pool")
    count = EnvProgram.of(COUNT, hint="go on", game_type="single_turn", step=3, source="pool")
    known = {guess.id: Provenance(brief_note(BRIEF), verdict(guess), STATS)}
    return Pool((guess, count), 123, {"model": "m"}, known)


def test_a_pool_survives_the_disk(tmp_path: Path, pool: Pool) -> None:
    write_pool(tmp_path, pool)
    assert read_pool(tmp_path) == pool
    guess, count = pool.programs
    assert save_program(tmp_path / "programs", guess).read_text() == GUESS
    assert (tmp_path / "programs" / f"{count.id}.hint.txt").read_text() == "go on\n"
    assert not (tmp_path / "programs" / f"{guess.id}.hint.txt").exists()
    row = json.loads((tmp_path / "manifest.json").read_text())["programs"][0]
    assert row["sha256"] == guess.id and row["verdict"]["level"] == "L2"
    assert row["verdict"]["battery"] == BATTERY_VERSION and row["verdict"]["python"]
    assert row["brief"] == {
        "id": "b1",
        "skill": "Optimization",
        "difficulty": "hard",
        "document": "d1",
        "exemplars": ["e1"],
        "seed": 7,
        "domain": "banking",
        "variant": "plain",
    }
    assert row["stats"]["regret"] == 0.25 and row["stats"]["regret_stderr"] is None


def test_a_pool_without_provenance_is_read_as_before(tmp_path: Path, pool: Pool) -> None:
    bare = replace(pool, provenance={})
    write_pool(tmp_path, bare)
    assert read_pool(tmp_path) == bare and read_pool(tmp_path).digest == pool.digest


def edit(folder: Path, **changes: object) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["programs"][0] |= changes
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["../outside.py", "/etc/hostname", "programs/link.py", "programs/none.py"])
def test_a_manifest_cannot_leave_its_folder(tmp_path: Path, pool: Pool, name: str) -> None:
    folder = tmp_path / "pool"
    folder.mkdir()
    write_pool(folder, pool)
    (tmp_path / "outside.py").write_text("x")
    (folder / "programs" / "link.py").symlink_to(tmp_path / "outside.py")
    edit(folder, file=name)
    with pytest.raises(InputError):
        read_pool(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"game_type": "shell"}, "which is none"),
        ({"verdict": {"accepted": True}}, "is damaged"),
        ({"verdict": "yes"}, "is damaged"),
        ({"stats": {"plays": 1, "mean": 2}}, "is damaged"),
        ({"brief": "text"}, "is damaged"),
        ({"file": 3}, "without a file name"),
    ],
)
def test_a_damaged_row_is_one_sentence(
    tmp_path: Path, pool: Pool, changes: dict[str, object], message: str
) -> None:
    write_pool(tmp_path, pool)
    edit(tmp_path, **changes)
    with pytest.raises(InputError, match=message):
        read_pool(tmp_path)


def test_an_altered_program_is_noticed(tmp_path: Path, pool: Pool) -> None:
    write_pool(tmp_path, pool)
    (tmp_path / "programs" / f"{pool.programs[0].id}.py").write_text("x = 1\n")
    with pytest.raises(InputError, match="does not match its sha256"):
        read_pool(tmp_path)


def test_an_empty_or_absent_pool_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pool manifest"):
        read_pool(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 1, "programs": []}')
    with pytest.raises(InputError, match="lists no programs"):
        read_pool(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 9}')
    with pytest.raises(InputError, match="format 9"):
        read_pool(tmp_path)


# --- believing a verdict -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        ({}, False),
        ({"battery": "0"}, True),
        ({"python": "3.9.1"}, True),
        ({"python": ""}, True),
        ({"accepted": False}, True),
        ({"program_id": "another"}, True),
        ({"level": "L3"}, False),
    ],
)
def test_a_verdict_is_believed_for_this_text_battery_and_python(change: dict[str, Any], needed: bool) -> None:
    program = EnvProgram.of(GUESS)
    known = Provenance(verdict=replace(verdict(program), **change))
    assert needs_validation(program, known) is needed


def test_no_verdict_or_another_text_needs_validation() -> None:
    program = EnvProgram.of(GUESS)
    assert needs_validation(program, None) and needs_validation(program, Provenance())
    known = Provenance(verdict=verdict(program))
    assert needs_validation(replace(program, code=COUNT), known)


async def test_revalidation_judges_only_what_needs_it(sandbox: Sandbox) -> None:
    sound, other = EnvProgram.of(game(20)), EnvProgram.of(game(21))
    broken, trusted = EnvProgram.of(BROKEN), EnvProgram.of(COUNT)
    known = {
        sound.id: Provenance({"id": "b"}, verdict(sound, battery="0"), STATS),
        trusted.id: Provenance(verdict=verdict(trusted)),  # would be rejected if it were looked at
    }
    made, refused = await revalidate(Pool((sound, broken, trusted, other), 5, {}, known), sandbox, LOOSE)
    assert made.programs == (sound, trusted, other) and set(refused) == {broken.id}
    assert refused[broken.id].code == "missing_method" and made.tokens == 5
    assert made.provenance[sound.id].stats == STATS and made.provenance[sound.id].brief == {"id": "b"}
    assert not any(needs_validation(p, made.provenance[p.id]) for p in made.programs)


# --- the pool of a run ---------------------------------------------------------------------------------


class Folder:
    """As much of a run folder as is written to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def path_of(self, name: str) -> Path:
        return self.path / name

    def append_many(self, name: str, rows: list[dict[str, Any]]) -> None:
        append_lines(self.path / name, rows)


def design(code: str | None, accepted: bool) -> Design:
    program = None if code is None else EnvProgram.of(code, skill="A", step=4)
    made = verdict(program, accepted) if program is not None else None
    return Design(BRIEF, Trajectory("designer", (1,), (2,), (1,), (0.0,)), "text", program, made)


async def test_a_run_keeps_admitted_and_rejected_programs_apart(tmp_path: Path, sandbox: Sandbox) -> None:
    folder: Any = Folder(tmp_path)
    good, bad = design(GUESS, True), design(COUNT, False)
    assert good.program is not None and bad.program is not None
    record_designs(folder, 5, [good, bad, design(None, False)], {good.program.id: "halve it"})
    record_plays(folder, 5, {good.program.id: PlayStats(4, 0.25)})
    record_plays(folder, 6, {good.program.id: STATS})
    made = read_pool(tmp_path / "pool")
    (program,) = made.programs
    assert program.code == GUESS and program.hint == "halve it" and program.step == 4
    known = made.provenance[program.id]
    assert known.stats == STATS and known.verdict == good.verdict and known.brief["domain"] == "banking"
    assert not needs_validation(program, known)
    assert (tmp_path / "rejected" / f"{bad.program.id}.py").read_text() == COUNT
    (row,) = [json.loads(x) for x in (tmp_path / ROW_FILES[1]).read_text().splitlines()]
    assert (row["step"], row["reason"], row["detail"]) == (5, "floor_echo", "Echo wins.")
    assert row["program"]["verdict"]["stages"][0]["code"] == "floor_echo"
    real = await validate(program, sandbox, LOOSE)
    assert needs_validation(program, Provenance(verdict=replace(real, accepted=False)))


def test_rows_of_a_step_can_be_dropped(tmp_path: Path) -> None:
    folder: Any = Folder(tmp_path)
    record_designs(folder, 1, [design(GUESS, True)], {})
    record_designs(folder, 3, [design(COUNT, True)], {})
    rows = [json.loads(x) for x in (tmp_path / ROW_FILES[0]).read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 3] and ROW_FILES[0] == "pool/programs.jsonl"
    (tmp_path / ROW_FILES[0]).write_text(json.dumps(rows[0]) + "\n")
    assert [p.code for p in read_pool(tmp_path / "pool").programs] == [GUESS]
