"""`--launch`: the words of the command, the variables of the processes, and how they end."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from spade.cli import launch as module
from spade.cli.launch import _end, _environment, _wait, launch, without_launch
from spade.errors import InputError


def start(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", code])


@pytest.mark.parametrize(
    "argv",
    [
        ["train", "demo", "--launch", "2", "seed=1"],
        ["train", "--launch=2", "demo", "seed=1"],
        ["train", "demo", "seed=1", "--launch", "2"],
    ],
)
def test_children_get_the_command_without_what_launched_it(argv: list[str]) -> None:
    assert without_launch(argv) == ["train", "demo", "seed=1"]


def test_children_get_what_torchrun_would_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = _environment(1, 2, 29500)
    wanted = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    wanted |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "OMP_NUM_THREADS": "1"}
    assert wanted.items() <= found.items()


def test_a_launch_inside_a_launch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(InputError, match="inside a launcher"):
        launch("spade train demo --launch 2", 2)


@pytest.mark.parametrize(
    ("codes", "wanted"),
    [(("0", "0"), 0), (("2", "0"), 2), (("0", "3"), 3)],
)
def test_the_exit_code_is_the_first_ones_or_that_of_a_failure(codes: tuple[str, str], wanted: int) -> None:
    children = [start(f"raise SystemExit({code})") for code in codes]
    for child in children:
        child.wait()
    assert _wait(children) == wanted


def test_a_process_that_was_killed_has_the_code_a_shell_gives_it() -> None:
    children = [start("import os, signal; os.kill(os.getpid(), signal.SIGTERM)"), start("")]
    assert _wait(children) == 143
    _end(children)


def test_the_others_are_ended_when_they_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.2)
    children = [start(""), start("import time; time.sleep(600)")]
    assert _wait(children) == 0
    _end(children)
    assert children[1].returncode == -9


def test_the_first_is_stopped_when_another_one_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.2)
    children = [start("import time; time.sleep(600)"), start("raise SystemExit(5)")]
    began = time.monotonic()
    assert _wait(children) == 5
    _end(children)
    assert children[0].returncode is not None and time.monotonic() - began < 60
