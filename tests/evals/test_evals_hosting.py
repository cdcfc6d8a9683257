"""Hosted processes: every way a request can end, who is to blame for it, and what comes after."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spade_evals.hosting import supervisor
from spade_evals.hosting.serve import FRAME
from spade_evals.hosting.supervisor import Crashed, Expired, Host, Lost, NotStarted, Pool, Raised, Stalled

FAKE = "hosted_fake"


@pytest.fixture
def host() -> Iterator[Host]:
    opened = Host(FAKE)
    yield opened
    opened.close()


def test_a_request_is_answered_and_nothing_of_ours_is_seen(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\ud800 \u2028 é\n" * 3
    assert host.ask({"text": text, "list": [1, 2.5, None]}, 60.0) == {"text": text, "list": [1, 2.5, None]}
    monkeypatch.setenv("SPADE_API_KEY", "secret")
    with_key = Host(FAKE)
    seen = with_key.ask({"do": "look"}, 60.0)
    with_key.close()
    assert seen["input"] == ""
    assert "SPADE_API_KEY" not in seen["environment"] and "PATH" in seen["environment"]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"do": "raise"}, "LookupError: it is not here"),
        ({"do": "memory"}, "MemoryError"),
        ({"do": "set"}, "TypeError: Object of type set"),
        ({"do": "long", "length": FRAME + 1}, "ValueError: a reply of .* bytes is too long"),
    ],
)
def test_what_the_code_raises_is_told_and_the_process_goes_on(
    host: Host, request_: dict[str, Any], words: str
) -> None:
    with pytest.raises(Raised, match=words):
        host.ask(request_, 60.0)
    assert host.ask({"still": "there"}, 60.0) == {"still": "there"}


def test_nothing_is_written_to_files(host: Host, tmp_path: Path) -> None:
    with pytest.raises(Raised, match="OSError"):
        host.ask({"do": "write", "path": str(tmp_path / "made")}, 60.0)
    assert not (tmp_path / "made").exists() or (tmp_path / "made").read_bytes() == b""


@pytest.mark.parametrize(
    ("do", "seconds", "wall", "kind", "words"),
    [
        ("spin", 0.1, 600.0, Expired, "more than 0.1 s of processor time"),
        ("exit", 60.0, None, Crashed, "exit code 3"),
        ("abort", 60.0, None, Crashed, f"exit code -{int(signal.SIGABRT)}"),
        ("killed", 60.0, None, Lost, "ended by signal 9 from outside"),
        ("sleep", 60.0, 0.2, Stalled, "no reply within 0.2 s of wall clock"),
        ("stop", 60.0, 0.2, Stalled, "no reply"),
    ],
)
def test_how_a_process_ends_says_who_is_to_blame_and_it_is_replaced(
    do: str, seconds: float, wall: float | None, kind: type[Exception], words: str
) -> None:
    pool = Pool(FAKE, 1)
    assert pool.pids() == []
    assert pool.ask({"n": 1}, 60.0) == {"n": 1}
    before = pool.pids()
    with pytest.raises(kind, match=words) as found:
        pool.ask({"do": do}, seconds, wall)
    assert type(found.value) is kind
    assert pool.pids() == []
    assert pool.ask({"n": 2}, 60.0) == {"n": 2}
    assert len(pool.pids()) == 1 and pool.pids() != before
    pool.close()
    assert pool.pids() == []


def test_one_that_was_killed_between_requests_is_replaced_without_a_word() -> None:
    pool = Pool(FAKE, 1)
    pool.ask({}, 60.0)
    (pid,) = pool.pids()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert pool.ask({"n": 2}, 60.0) == {"n": 2}
    assert pool.pids() != [pid]
    pool.close()


def test_a_long_request_to_one_that_does_not_read_comes_back(host: Host) -> None:
    long = {"text": "x" * (1 << 20)}
    assert host.ask(long, 60.0) == long
    os.kill(host.pid, signal.SIGSTOP)
    with pytest.raises(Stalled):
        host.ask(long, 60.0, 0.2)
    assert not host.alive


def test_a_request_that_is_too_long_is_not_sent(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FRAME", 1_000)
    with pytest.raises(Raised, match=r"a request of .* bytes is too long"):
        host.ask({"text": "x" * 1_000}, 60.0)
    assert host.ask({"n": 1}, 60.0) == {"n": 1}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("no JSON", "no reply"),
        ("no reply", "no reply"),
        ("two replies", "more than one reply"),
        ("long", "more than 1,000 bytes"),
        ("closes", "closed its output"),
    ],
)
def test_one_that_does_not_keep_the_protocol_has_crashed(
    how: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FRAME", 1_000)
    monkeypatch.setattr(supervisor, "ENDING_SECONDS", 0.1)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "odd").write_text(how)
    odd = Host("hosted_odd")
    with pytest.raises(Crashed, match=words):
        odd.ask({}, 60.0)
    assert not odd.alive


@pytest.mark.parametrize(
    ("how", "words"),
    [("no library", r"\(ModuleNotFoundError: No module named 'textarena'\)"), ("exits", "7")],
)
def test_one_that_does_not_start_says_why_and_what_to_try(
    how: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "odd").write_text(how)
    with pytest.raises(NotStarted, match=f"hosted_odd does not start .*{words}.*; try: ") as found:
        Pool("hosted_odd", 1).ask({}, 60.0)
    assert "\n" not in str(found.value)


def test_processes_end_with_their_pool() -> None:
    pool = Pool(FAKE, 2)
    pool.ask({}, 60.0)
    (pid,) = pool.pids()
    del pool
    gc.collect()
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} is still there")
