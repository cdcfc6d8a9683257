"""Run folders and files: atomic, append-only, resumable, and shut against names that lead outside."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spade.config_load import load_config
from spade.errors import InputError
from spade.files import append_lines, atomic_write, cut_torn_line, read_jsonl, write_json
from spade.machine import gpus, hardware, require_device, versions
from spade.runs import RunFolder, open_inside, publish_record, read_record
from spade.types import Scored


def make(out: Path, *overrides: str, resume: bool | None = None) -> RunFolder:
    cfg = load_config("smoke", [f"out={out}", *overrides])
    return RunFolder.create_or_resume(cfg, "train", "spade train smoke", resume=resume)


def test_record_says_where_a_run_came_from(tmp_path: Path) -> None:
    folder = make(tmp_path / "r")
    record = read_record(folder.path)
    assert record == folder.record
    assert (record.kind, record.status, record.seed) == ("train", "running", 0)
    assert record.command == "spade train smoke"
    assert {"python", "spade", "torch", "transformers"} <= set(record.versions)
    assert record.hardware["cores"] >= 1 and record.hardware["memory_gib"] > 0
    folder.update_record(scores={"heldout": 0.5})
    folder.finish()
    assert read_record(folder.path).status == "finished"
    assert read_record(folder.path).scores == {"heldout": 0.5}
    (folder.path / "eval").mkdir()
    scores = {"score": [0.4, 0.1, 9], "parts": {"a": [0.4, 0.1, 9]}, "faults": {}}
    result = {"complete": True, "result": scores}
    (folder.path / "eval" / "heldout@000002.json").write_text(json.dumps(result))
    (folder.path / "eval" / "half.json").write_text(json.dumps({**result, "complete": False}))
    target = publish_record(folder, tmp_path / "results")
    assert target.parent.name == "records"
    published = json.loads(target.read_text())
    assert published["id"] == record.id
    assert published["scores"] == {"heldout": 0.5, "heldout@000002": result["result"]}


def test_default_folder_is_named_by_config_and_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.create_or_resume(load_config("smoke", ["seed=3"]), "train", "c")
    assert folder.path == Path("runs/smoke-s3")


def test_same_digest_resumes_and_cuts_the_torn_line(tmp_path: Path) -> None:
    folder = make(tmp_path / "r")
    folder.append("metrics.jsonl", {"step": 1})
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "los')
    assert folder.rows("metrics.jsonl") == [{"step": 1}]
    again = make(tmp_path / "r", resume=True)
    assert again.resumed and not folder.resumed
    again.append("metrics.jsonl", {"step": 2})
    assert again.rows("metrics.jsonl") == [{"step": 1}, {"step": 2}]
    assert [row["event"] for row in again.rows("events.jsonl")] == ["start", "resume"]


def test_other_configuration_is_refused_by_key(tmp_path: Path) -> None:
    make(tmp_path / "r")
    with pytest.raises(InputError) as caught:
        make(tmp_path / "r", "learner.lr=0.5", "seed=4")
    message = str(caught.value)
    assert "seed (0 there, 4 now)" in message and "learner.lr (0.0003 there, 0.5 now)" in message
    assert "out (" not in message


def test_resume_and_fresh_can_be_insisted_on(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run to resume"):
        make(tmp_path / "r", resume=True)
    make(tmp_path / "r", resume=False)
    with pytest.raises(InputError, match="already holds a run"):
        make(tmp_path / "r", resume=False)


def test_a_folder_with_other_things_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not a run folder"):
        make(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="not a run folder"):
        make(tmp_path / "file")


def test_damaged_record_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"id": ')
    with pytest.raises(InputError, match=r"run.json is not valid JSON"):
        make(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="not a run record"):
        make(tmp_path)


def test_second_process_is_refused_while_the_first_works(tmp_path: Path) -> None:
    folder = make(tmp_path / "r")
    code = (
        "import sys\nfrom spade.config_load import load_config\nfrom spade.runs import RunFolder\n"
        "RunFolder.create_or_resume(load_config('smoke', ['out=' + sys.argv[1]]), 'train', 'c')"
    )

    def other() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code, str(folder.path)], capture_output=True, text=True)

    assert "another process is working in" in other().stderr
    folder.finish()
    assert other().returncode == 0


def test_truncate_after_drops_later_steps_only(tmp_path: Path) -> None:
    folder = make(tmp_path / "r")
    folder.append_many("metrics.jsonl", [{"step": s, "x": s * 2} for s in range(5)])
    assert folder.truncate_after("metrics.jsonl", 2) == 2
    assert [row["step"] for row in folder.rows("metrics.jsonl")] == [0, 1, 2]
    assert folder.truncate_after("absent.jsonl", 2) == 0


def test_rows_carry_records_and_never_nan(tmp_path: Path) -> None:
    append_lines(tmp_path / "a.jsonl", [{"x": math.nan, "o": Scored(1.0, True), "t": (1, 2)}])
    assert read_jsonl(tmp_path / "a.jsonl") == [
        {"x": None, "o": {"is": "Scored", "value": 1.0, "solved": True}, "t": [1, 2]}
    ]


def test_damage_in_the_middle_is_not_silently_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"b": \n{"c": 3}\n')
    with pytest.raises(InputError, match="line 2"):
        read_jsonl(path)


def test_torn_line_is_cut_exactly(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b"')
    assert cut_torn_line(path) == 4
    assert path.read_bytes() == b'{"a": 1}\n'
    assert cut_torn_line(path) == 0


# --- full disk -------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with room for ten more bytes: writes are first cut short, then refused."""
    real, room = os.write, [10]

    def write(fd: int, data: Any) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = real(fd, bytes(data)[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr(os, "write", write)


def test_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, full_disk: None) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(InputError, match="the disk is full; free some space"):
        write_json(path, {"key": "a value that needs more than ten bytes"})
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_full_disk_leaves_no_half_row(tmp_path: Path, full_disk: None) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 1}\n')
    with pytest.raises(InputError, match="the disk is full"):
        append_lines(path, [{"step": 2, "text": "more than ten bytes"}])
    assert path.read_text() == '{"step": 1}\n'


def test_write_is_atomic_when_the_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(InputError, match="Read-only file system"):
        atomic_write(tmp_path / "a", b"x")
    assert list(tmp_path.iterdir()) == []


# --- names that lead outside -----------------------------------------------------------------------------

ESCAPES = [
    "../outside",
    "a/../../outside",
    "/etc/passwd",
    "",
    ".",
    "a//b",
    "./a",
    "a/./b",
    "a\0b",
    "link",
    "dir/x",
]


@pytest.fixture
def rooted(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "ok.txt").write_text("fine")
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").write_text("secret")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "dir").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize("name", ESCAPES)
def test_open_inside_refuses(rooted: Path, name: str) -> None:
    with pytest.raises(InputError):
        open_inside(rooted, name)


@pytest.mark.parametrize("name", ["sub", "pipe", "sub/absent", "sub/ok.txt/more"])
def test_open_inside_opens_plain_files_only(rooted: Path, name: str) -> None:
    with pytest.raises(InputError):
        open_inside(rooted, name)


def test_open_inside_reads(rooted: Path) -> None:
    with open_inside(rooted, "sub/ok.txt") as file:
        assert file.read() == b"fine"


@pytest.mark.parametrize("name", ESCAPES)
def test_run_folder_names_stay_inside(tmp_path: Path, rooted: Path, name: str) -> None:
    folder = make(tmp_path / "r")
    for link in ("link", "dir"):
        (folder.path / link).symlink_to(rooted)
    for action in (
        folder.path_of,
        folder.rows,
        lambda n: folder.write_json(n, {}),
        lambda n: folder.append(n, {}),
    ):
        with pytest.raises(InputError):
            action(name)


# --- the machine -----------------------------------------------------------------------------------------


def test_gpu_asked_for_and_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus() == []
    with pytest.raises(InputError, match=r"serving\.device=cuda was asked for, but no GPU is visible"):
        require_device("cuda")
    require_device("cpu")
    require_device("auto")


def test_versions_and_hardware_are_plain_json() -> None:
    json.dumps([versions(), hardware()])


def test_publish_refuses_an_id_that_leaves_the_folder(tmp_path: Path) -> None:
    folder = make(tmp_path / "r")
    folder.update_record(id="../../evil")
    with pytest.raises(InputError, match="does not stay inside"):
        publish_record(folder, tmp_path / "results")
