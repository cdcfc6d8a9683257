"""Every shared case through the real `spade envs` command, at every level, from other folders too."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from envs_programs import CASES, ECHO, needs_cases

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "canary-58213"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "SECRET": TOKEN}
EXPECTED = {
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


def spade(arguments: Sequence[str], cwd: Path) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and rows of `spade ARGUMENTS --json` run in a folder."""
    command = [sys.executable, "-m", "spade.cli.main", *arguments, "--json"]
    done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def hostile(names: Sequence[str], level: str, deadline: str, cwd: Path) -> list[dict[str, Any]]:
    options = ["--level", level, "--seed", "1", "--action", "go", "--deadline", deadline, "--memory", "128"]
    code, rows = spade(["envs", "run", *names, *options], cwd)
    assert code == 0 and [row["file"] for row in rows] == list(names)
    return rows


def listed(row: dict[str, Any], cases: dict[str, str]) -> bool:
    """Whether a program ended as the manifest says."""
    return row["outcome"] in EXPECTED[cases[row["file"]]]


@needs_cases
@pytest.mark.parametrize("level", ["L3", "L2", "L2s"])
def test_hostile_programs_end_as_listed(level: str, tmp_path: Path, canary: Path) -> None:
    """All files in one command, a harmless sibling before and behind."""
    siblings = [str(tmp_path / "first.py"), str(tmp_path / "last.py")]
    for name in siblings:
        Path(name).write_text(ECHO)
    listing = {str(CASES / "hostile" / c["file"]): c["expect"] for c in manifest("hostile")}
    cases = {siblings[0]: "harmless_capped", **listing, siblings[1]: "harmless_capped"}
    canary.write_text(TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        rows = hostile(list(cases), level, "1", tmp_path)
        with pytest.raises(BlockingIOError):
            listener.accept()
    # A busy machine may take the wall time of a program that does no harm: such a one gets more of it, once.
    slow = [row["file"] for row in rows if row["outcome"] == "killed" and not listed(row, cases)]
    again = {row["file"]: row for row in hostile(slow, level, "10", tmp_path)} if slow else {}
    rows = [again.get(row["file"], row) for row in rows]
    wrong = [(row, cases[row["file"]]) for row in rows if not listed(row, cases)]
    assert len(rows) > 2 and not wrong
    assert canary.read_text() == TOKEN
    assert {row["level"] for row in rows} == {level}
    assert rows[0]["observation"] == rows[-1]["observation"] == "1:go"
    assert TOKEN not in json.dumps(rows)
    assert all(isinstance(row["seconds"], float) and row["detail"] for row in rows)


@needs_cases
def test_names_with_spaces_relative_to_another_folder(tmp_path: Path) -> None:
    (tmp_path / "some where" / "deep").mkdir(parents=True)
    chosen = ["sys_exit_at_import.py", "os_exit_in_step.py", "deeply_nested_json_reply.py", "inf_reward.py"]
    for name in chosen:
        shutil.copy(CASES / "hostile" / name, tmp_path / "some where" / f"a {name}")
    cases = {f"../a {c['file']}": c["expect"] for c in manifest("hostile")}
    rows = hostile([f"../a {name}" for name in chosen], "L2", "10", tmp_path / "some where" / "deep")
    assert rows and [row for row in rows if not listed(row, cases)] == []


@needs_cases
def test_planted_programs_are_judged_as_listed_given_folder_and_manifest() -> None:
    code, rows = spade(["envs", "validate", "planted", "planted/manifest.json"], CASES)
    assert code == 1
    expected = {f"planted/{c['file']}": c["expect"] == "accept" for c in manifest("planted")}
    assert {row["file"]: row["accepted"] for row in rows} == expected
    assert [row["file"] for row in rows] == sorted(expected)
    for row in rows:
        assert list(row) == ["file", "accepted", "stage", "code", "reason", "seconds"]
        accepted = row["accepted"]
        assert (row["stage"] is None) == (row["code"] == "accepted") == (row["reason"] == "") == accepted
