"""`spade envs` as a user types it: files of every kind, overrides, tables, exit codes, play by hand."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from envs_programs import ECHO, game

from spade.cli.main import main
from spade.config import SandboxConfig
from spade.envs import cli_run, cli_validate
from spade.envs.cli_play import describe_tool, typed_turn
from spade.envs.cli_validate import plain_table
from spade.envs.pool import Pool, write_pool
from spade.envs.reading import MAX_SOURCE_BYTES, printable, program_files, settings, split_overrides
from spade.envs.sandbox import Sandbox
from spade.envs.wire import Op
from spade.errors import ConfigError, FaultCode, InputError, ProgramFault, SandboxError
from spade.types import EnvProgram

Capture = pytest.CaptureFixture[str]
SPADE = [sys.executable, "-m", "spade.cli.main"]
ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
PATIENT = ["--deadline", "60", "--json"]
"""For programs that harm nothing: a busy machine may not decide a test."""
SHORT = game(reset="self.x = r.choice(['up', 'down'])\n        return f'{r.random()}: up or down?', {}")
"""Half of all guesses win."""
NUMPY = "import numpy as np\n" + game(
    reset="n = int(np.random.default_rng(seed).integers(100, 9999))\n        self.x = str(37 * n + 11)\n"
    "        return f'what is {n} times 37 plus 11?', {}"
)
TOOLS = """
class LampEnv(ToolEnv):
    max_turns = 4
    tools = {"switch": {"description": "switch a lamp", "parameters": {
        "lamp": {"type": "string", "enum": ["hall", "attic"]}, "on": "boolean"}}}

    def setup(self, rng):
        self.state = {"on": False}
        self.tasks = [("Light the hall.", lambda s: s["on"])]

    def tool_switch(self, lamp, on):
        self.state["on"] = on and lamp == "hall"
        return f"{lamp} {on}"

    def solution(self):
        return [self.call("switch", lamp="hall", on=True), self.answer]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a few programs."""
    (tmp_path / "good.py").write_text(game())
    (tmp_path / "echo.py").write_text(ECHO)
    (tmp_path / "lamp.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(capsys: Capture) -> Any:
    return json.loads(capsys.readouterr().out)


def spade(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SPADE, *arguments], capture_output=True, text=True, env=ENVIRONMENT, timeout=120, **options
    )


# --- what is named -------------------------------------------------------------------------------------


def test_files_folders_and_manifests(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "inner game.py").write_text(game())
    names = [p.as_posix() for p in program_files(["deep", "good.py", ".", "./good.py"])]
    assert names == ["deep/inner game.py", "good.py", "echo.py", "lamp.py"]
    (folder / "list.json").write_text(json.dumps([{"file": "good.py"}, {"file": "deep/inner game.py"}]))
    assert len(program_files([".", "list.json"])) == 4
    (folder / "bare").mkdir()
    for bad, words in (
        ("bare", "no Python file in the folder bare"),
        ("gone", "no file or folder gone"),
    ):
        with pytest.raises(InputError, match=words):
            program_files([bad])
    for text, words in (
        ("{}", "not a manifest"),
        ("[1]", "not a manifest"),
        ("no json", "not a manifest"),
        ('[{"file": "../x.py"}]', "outside its folder"),
        ('[{"file": "gone.py"}]', "lists gone.py, which is missing"),
    ):
        (folder / "list.json").write_text(text)
        with pytest.raises(InputError, match=words):
            program_files(["list.json"])


def test_a_pool_and_its_manifest(folder: Path, capsys: Capture) -> None:
    write_pool(folder / "pool", Pool((EnvProgram.of(game()), EnvProgram.of(SHORT))))
    assert main(["envs", "validate", "pool", "pool/manifest.json", "--json"]) == 1
    verdicts = rows(capsys)
    assert len(verdicts) == 2 and sorted(v["accepted"] for v in verdicts) == [False, True]
    assert all(v["file"].startswith("pool/programs/") for v in verdicts)


def test_overrides_and_their_mistakes(folder: Path) -> None:
    (folder / "a=b.py").write_text("")
    named = ["a=b.py", "sandbox.memory_mb=99", "x.py", "c=d.py"]
    assert split_overrides(named) == (["a=b.py", "x.py"], ["sandbox.memory_mb=99", "c=d.py"])
    cfg = settings(["validator.floor_max=0.2", "sandbox.memory_mb=99"], "L2", cpu_seconds=0.5)
    assert cfg.validator.floor_max == 0.2
    assert (cfg.sandbox.memory_mb, cfg.sandbox.force_level, cfg.sandbox.min_level) == (99, "L2", "L2")
    assert cfg.sandbox.cpu_seconds == 0.5
    for bad, words in (
        ("learner.lr=1", "sandbox and validator only"),
        ("floor_max=1", "sandbox and validator only"),
        ("validator.floor=1", "did you mean"),
        ("validator.floor_max=7", "floor_max"),
        ("validator.floor_max=", "floor_max"),
    ):
        with pytest.raises(ConfigError, match=words):
            settings([bad], None)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("validate gone.py", "There is no file or folder gone.py"),
        ("validate sandbox.memory_mb=99", "No program is named"),
        ("validate good.py validator.stages.nonsense=true", "nonsense"),
        ("run gone.py", "There is no file gone.py"),
        ("run good.py .", "is a folder"),
        ("play good.py echo.py", "2 are named"),
        ("play gone.py", "There is no file gone.py"),
    ],
)
def test_wrong_input_ends_with_2(command: str, words: str, folder: Path, capsys: Capture) -> None:
    assert main(["envs", *command.split()]) == 2
    captured = capsys.readouterr()
    assert words in captured.err and captured.out == "" and captured.err.count("\n") == 1


@pytest.mark.parametrize("flags", ["--seed -1", "--seed x", "--deadline 0", "--deadline nan", "--memory 3"])
def test_wrong_numbers_end_with_2(flags: str, folder: Path, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["envs", "run", "good.py", *flags.split()])
    assert caught.value.code == 2
    assert flags.split()[0] in capsys.readouterr().err


# --- validate ------------------------------------------------------------------------------------------


def test_files_that_are_no_programs_get_a_row(folder: Path, capsys: Capture) -> None:
    bad = {
        "a latin.py": ("not_utf8", b"# caf\xe9\n" + game().encode()),
        "b big.py": ("too_big", b"#" * (MAX_SOURCE_BYTES + 1)),
        "c null.py": ("syntax", b"x = 1\0"),
        "d empty.py": ("no_env_class", b""),
    }
    for name, (_, data) in bad.items():
        (folder / name).write_bytes(data)
    os.mkfifo(folder / "e pipe.py")
    (folder / "f loop.py").symlink_to("f loop.py")
    (folder / "f nowhere.py").symlink_to("gone.py")
    (folder / "g bom.py").write_bytes(b"\xef\xbb\xbf" + game().encode())
    assert main(["envs", "validate", ".", "--json"]) == 1
    found = {row["file"]: row for row in rows(capsys)}
    assert [row["code"] for name, row in found.items() if name in bad] == [code for code, _ in bad.values()]
    assert found["a latin.py"]["stage"] == found["b big.py"]["stage"] == "read"
    assert "byte 5" in found["a latin.py"]["reason"]
    assert [found[name]["code"] for name in ("e pipe.py", "f loop.py", "f nowhere.py")] == ["unreadable"] * 3
    assert found["g bom.py"]["accepted"] and found["good.py"]["accepted"]
    assert all(row["reason"].endswith(".") for row in found.values() if row["stage"] == "read")


def test_options_stand_anywhere_and_overrides_count(folder: Path, capsys: Capture) -> None:
    (folder / "short.py").write_text(SHORT)
    assert main(["envs", "validate", "short.py", "--json", "good.py", "--level", "L2s"]) == 1
    short, good = rows(capsys)
    assert list(short) == ["file", "accepted", "stage", "code", "reason", "seconds"]
    assert (short["accepted"], good["accepted"]) == (False, True)
    assert (good["stage"], good["code"], good["reason"]) == (None, "accepted", "")
    loose = ["--floor-max", "1", "validator.stages.crossed=false", "validator.stages.late=false"]
    main(["envs", "validate", "short.py", *loose, "--json"])
    assert rows(capsys)[0]["stage"] != short["stage"]
    assert main(["envs", "validate", "good.py", "--min-oracle-turns", "3", "--json"]) == 1
    assert rows(capsys)[0]["code"] == "too_few_turns"


def test_the_type_can_be_overridden(folder: Path, capsys: Capture) -> None:
    assert main(["envs", "validate", "good.py", "--type", "single_turn", "--json"]) in (0, 1)
    as_one_turn = rows(capsys)[0]
    assert main(["envs", "validate", "good.py", "--type", "tool_use", "--json"]) == 1
    assert rows(capsys)[0]["code"] != as_one_turn["code"]


def test_the_plain_table(folder: Path, capsys: Capture) -> None:
    (folder / "bad.py").write_text("import os\n" + game())
    assert main(["envs", "validate", "bad.py", "good.py"]) == 1
    head, bad, good, summary = capsys.readouterr().out.splitlines()
    assert head.split() == ["file", "verdict", "stage", "time", "reason"]
    assert bad.split()[:3] == ["bad.py", "rejected", "screen"] and "import_refused: Line 1: `os`" in bad
    assert good.split()[:2] == ["good.py", "accepted"] and good.endswith(" s")
    assert summary == "1 of 2 accepted"
    row = {"file": "x.py", "accepted": False, "stage": "load", "code": "exception", "seconds": 0.1}
    assert "a \\u001b[2J b" in plain_table([{**row, "reason": "a \x1b[2J\nb"}])


def test_many_files_show_progress_on_standard_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Shown:
        def __enter__(self) -> Shown:
            return self

        def __exit__(self, *_: object) -> None: ...

        def update(self, done: int) -> None:
            seen.append(done)

    monkeypatch.setattr("spade.report.progress.counter", lambda total, title: Shown())
    for number in range(6):
        (folder / f"{number}.py").write_text("x = (")
    assert main(["envs", "validate", *(f"{n}.py" for n in range(6))]) == 1
    assert seen == [1, 2, 3, 4, 5, 6]


def test_a_failing_sandbox_is_no_verdict(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["envs", "validate", "good.py", "--level", "L0"]) == 3
    assert "allow_unsafe" in capsys.readouterr().err

    async def lost(*args: Any, **kwargs: Any) -> None:
        raise SandboxError("Validation lost its worker 3 times.")

    for limit in ("7", "14"):  # too few descriptors to start, or to go on
        limited = f"ulimit -n {limit}; {shlex.join(SPADE)} envs validate good.py"
        done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, env=ENVIRONMENT)
        assert done.returncode == 3 and done.stdout == "", (done.stdout, done.stderr)
        assert done.stderr.startswith("spade: ") and done.stderr.count("\n") == 1
    monkeypatch.setattr(cli_validate, "validate", lost)
    assert main(["envs", "validate", "good.py", "echo.py", "--json"]) == 3
    captured = capsys.readouterr()
    assert "good.py has no verdict: Validation lost" in captured.err and captured.out == ""


# --- run -----------------------------------------------------------------------------------------------


def test_run_reports_one_row_a_file(folder: Path, capsys: Capture) -> None:
    (folder / "latin.py").write_bytes(b"# caf\xe9\n" + ECHO.encode())
    (folder / "big.py").write_text("#" * (MAX_SOURCE_BYTES + 1) + ECHO)
    files = ["echo.py", "latin.py", "big.py", "echo.py"]
    assert main(["envs", "run", *files, "--seed", "4", "--action", "go", *PATIENT]) == 0
    first, latin, big, again = rows(capsys)
    assert list(first) == ["file", "level", "stage", "outcome", "detail", "observation", "seconds"]
    assert (first["outcome"], first["observation"], first["stage"]) == ("ok", "4:go", "step")
    assert {**first, "seconds": 0} == {**again, "seconds": 0}
    assert (latin["outcome"], latin["stage"]) == (big["outcome"], big["stage"]) == ("refused", "load")
    assert "UTF-8" in latin["detail"] and str(MAX_SOURCE_BYTES) in big["detail"]


def test_the_deadline_is_one_of_processor_and_of_wall_time(folder: Path, capsys: Capture) -> None:
    sleeping = ECHO.replace("while True:\n                pass", "import time; time.sleep(60)")
    (folder / "sleep.py").write_text(sleeping)
    command = ["envs", "run", "echo.py", "sleep.py", "--action", "loop", "--deadline", "0.2", "--json"]
    assert main(command) == 0
    for row in rows(capsys):
        assert (row["outcome"], row["stage"]) == ("killed", "step")
        assert "0.2 s" in row["detail"]


def test_a_terminal_is_not_steered_by_a_program(folder: Path, capsys: Capture) -> None:
    assert main(["envs", "run", "echo.py", "--action", "\x1b[2J\u202eevil\nline", *PATIENT[:2]]) == 0
    out = capsys.readouterr().out
    assert "\\u001b[2J\\u202eevil\n  line" in out and "\x1b" not in out
    assert printable("é☃𝄞\ttab\n") == "é☃𝄞\ttab\n"


def test_a_lost_worker_is_tried_again_and_then_settled(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Sandbox.open, []

    async def losing(self: Sandbox, code: str, **options: Any) -> Any:
        calls.append(code)
        lost_times, healthy, *_ = case
        if "class EchoEnv" in code and len(calls) <= lost_times:
            raise ProgramFault(FaultCode.LOST, "killed from outside")
        if not healthy:
            raise ProgramFault(FaultCode.LOST, "nothing starts")
        return await real(self, code, **options)

    monkeypatch.setattr(Sandbox, "open", losing)
    for case in ((2, True, 0, "ok"), (9, True, 0, "killed"), (9, False, 3, None)):
        calls.clear()
        assert main(["envs", "run", "echo.py", *PATIENT]) == case[2]
        captured = capsys.readouterr()
        assert calls.count(ECHO) == cli_run.RETRIES + 1
        if outcome := case[3]:
            assert json.loads(captured.out)[0]["outcome"] == outcome
        else:
            assert "lost the worker of echo.py" in captured.err


async def test_a_death_that_is_reported_late_is_still_a_crash() -> None:
    """As on a busy machine: the channel is closed long before the zygote says how the worker ended."""
    async with await Sandbox.start(SandboxConfig(cpu_seconds=60)) as sandbox:
        worker = await sandbox.open(ECHO)
        await worker.reset(0, 1)
        zygotes = [pid for pid in descendants(os.getpid()) if pid != worker.pid]
        assert zygotes and worker.pid in descendants(os.getpid())
        try:
            for pid in zygotes:
                os.kill(pid, signal.SIGSTOP)
            step = asyncio.create_task(worker.batch([Op.step(0, "exit")]))
            await asyncio.sleep(1.0)
        finally:
            for pid in zygotes:
                os.kill(pid, signal.SIGCONT)
        (fault,) = await step
    assert isinstance(fault, ProgramFault) and fault.code is FaultCode.CRASH, fault


def descendants(pid: int) -> list[int]:
    """Sandbox processes below a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, children(task)):
            if b"zygote.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                found += [child, *descendants(child)]
    return found


def test_numpy_by_override(folder: Path, capsys: Capture) -> None:
    (folder / "np.py").write_text(NUMPY)
    assert main(["envs", "run", "np.py", *PATIENT]) == 0
    assert "numpy" in (row := rows(capsys)[0])["detail"] and row["outcome"] == "refused"
    assert main(["envs", "run", "np.py", "sandbox.numpy=true", *PATIENT]) == 0
    assert rows(capsys)[0]["outcome"] == "ok"
    assert main(["envs", "validate", "np.py", "--json"]) == 1
    assert rows(capsys)[0]["code"] == "import_refused"
    main(["envs", "validate", "np.py", "sandbox.numpy=true", "--json"])
    assert rows(capsys)[0]["code"] == "accepted"


# --- play ----------------------------------------------------------------------------------------------


def test_tools_are_shown_and_calls_may_be_typed_as_json(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = json.dumps({"name": "switch", "arguments": {"lamp": "hall", "on": True}})
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{{\n[{call}]\ndone\n"))
    assert main(["envs", "play", "lamp.py"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "tool  switch(lamp: hall|attic, on: boolean): switch a lamp"
    assert lines[1] == "Light the hall." and "hall True" in lines
    assert lines[-1] == "won: return 1 after 3 turns (terminated)"
    assert "turn 1/4> " in captured.err


def test_what_is_typed() -> None:
    assert typed_turn("done") == "<answer>done</answer>"
    assert typed_turn("") == ""
    assert typed_turn('{"name": 1}') == '<tool_call>{"name": 1}</tool_call>'
    assert (
        typed_turn('[{"a": 1}, {"b": 2}]') == '<tool_call>{"a": 1}</tool_call><tool_call>{"b": 2}</tool_call>'
    )
    assert typed_turn("{nonsense") == "<tool_call>{nonsense</tool_call>"
    assert typed_turn("<answer>x</answer>") == "<answer>x</answer>"
    for odd in ({}, {"function": 3}, {"function": {"parameters": {"properties": {"a": 1}}}}):
        assert describe_tool(odd).startswith("tool  ?(")  # whatever a program calls its tools


@pytest.mark.parametrize("name", ["good.py", "echo.py", "lamp.py"])
@pytest.mark.parametrize("policy", ["oracle", "random", "noop"])
def test_scripts_play(name: str, policy: str, folder: Path, capsys: Capture) -> None:
    assert main(["envs", "play", name, "--policy", policy, "--seed", "3", "--json"]) == 0
    row = rows(capsys)
    assert list(row) == ["file", "seed", "return", "won", "turns", "end"] and row["seed"] == 3
    assert row["won"] is (policy == "oracle" and name != "echo.py")
    assert row["end"] == {"good.py": "terminated"}.get(name, row["end"]) or policy != "oracle"


def test_a_program_that_breaks_while_it_is_played(folder: Path, capsys: Capture) -> None:
    (folder / "broken.py").write_text(ECHO.replace('action == "raise"', "True"))
    assert main(["envs", "play", "broken.py", "--policy", "noop"]) == 2
    assert "broken.py broke while it was played (exception: ValueError: as asked" in capsys.readouterr().err


def test_playing_in_a_terminal_until_the_end_of_the_input(folder: Path) -> None:
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [*SPADE, "envs", "play", "good.py"], stdin=theirs, stdout=theirs, stderr=theirs, env=ENVIRONMENT
    )
    os.close(theirs)
    shown = wait_for(ours, b"turn 1/3> ")
    os.write(ours, b"12\n")
    shown += wait_for(ours, b"turn 2/3> ")
    os.write(ours, b"\x04")
    shown += wait_for(ours, b"(given up)")
    assert running.wait(30) == 0
    os.close(ours)
    assert b"wrong" in shown and b"not won: return 0 after 1 turn (given up)" in shown


def wait_for(descriptor: int, words: bytes) -> bytes:
    seen = b""
    with contextlib.suppress(OSError):  # the other side of a terminal is gone
        while words not in seen and (data := os.read(descriptor, 4096)):
            seen += data
    assert words in seen, seen
    return seen


def test_ctrl_c_while_a_line_is_awaited(folder: Path) -> None:
    running = subprocess.Popen(
        [*SPADE, "envs", "play", "good.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert running.stderr is not None
    wait_for(running.stderr.fileno(), b"turn 1/3> ")
    started = [pid for task in Path(f"/proc/{running.pid}/task").iterdir() for pid in children(task)]
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert err.decode().strip() == "spade: interrupted"
    assert started and not any(Path("/proc", pid).exists() for pid in started)


def children(task: Path) -> list[str]:
    return (task / "children").read_text().split()


# --- through the real command --------------------------------------------------------------------------


def test_the_command_from_another_folder_with_relative_names_and_spaces(folder: Path) -> None:
    (folder / "my games").mkdir()
    (folder / "my games" / "a game.py").write_text(ECHO)
    (folder / "elsewhere").mkdir()
    done = spade("envs", "run", "../my games/a game.py", *PATIENT, cwd=folder / "elsewhere")
    assert done.returncode == 0 and done.stderr == ""
    (row,) = json.loads(done.stdout)
    assert (row["file"], row["outcome"], row["observation"]) == ("../my games/a game.py", "ok", "1:go")
    done = spade("envs", "validate", "../my games", "../good.py", "--json", cwd=folder / "elsewhere")
    assert done.returncode == 1
    assert [r["file"] for r in json.loads(done.stdout)] == ["../my games/a game.py", "../good.py"]
    done = spade("envs", "run", "missing.py", "--json", cwd=folder)
    assert done.returncode == 2 and done.stdout == "" and "missing.py" in done.stderr


# --- doctor --------------------------------------------------------------------------------------------


def test_doctor_shows_the_level_how_it_was_made_and_every_attempt(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spade.cli.doctor._embedded_model", lambda: "somewhere")
    assert main(["doctor", "--json"]) == 0
    report = rows(capsys)
    sandbox = report["sandbox"]
    assert report["sandbox_level"] == sandbox["level"] in ("L2s", "L2", "L3")
    assert (sandbox["namespaces"] is not None) == (sandbox["level"] == "L3")
    assert sandbox["limits"]["memory_mb"] == 128 and sandbox["numpy"] is False
    assert len(sandbox["self_test"]) > 10 and all(sandbox["self_test"].values())
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert f"sandbox    {sandbox['level']}" in out and "python 3." in out and "torch " in out
    assert all(name.removeprefix("witness: ") in out for name in sandbox["self_test"])
    assert "  refused    fork\n" in out and "numpy " in out and out.endswith("no problems found\n")


def test_doctor_names_what_was_allowed() -> None:
    from spade.cli.doctor import _sandbox_text

    limits = {"cpu_seconds": 1, "wall_seconds": 10, "memory_mb": 1, "max_workers": 1, "min_level": "L2s"}
    found = {"level": "L0", "namespaces": None, "stronger": ["L3 is out."], "limits": limits, "numpy": False}
    tried = {"fork": False, "witness: no file changed": False, "open a socket": True}
    text = _sandbox_text({**found, "self_test": tried}, None)
    assert "self-test  1 of 3 hold:" in text and "weaker     L3 is out." in text
    assert [line.split() for line in text[-3:]] == [
        ["ALLOWED", "fork"],
        ["WRONG", "no", "file", "changed"],
        ["refused", "open", "a", "socket"],
    ]
