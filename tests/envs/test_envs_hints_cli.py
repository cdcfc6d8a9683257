"""Hint checks, and the `spade envs` verbs as a user types them."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from envs_programs import ECHO, game

from spade.cli.main import main
from spade.config import SandboxConfig
from spade.envs.hintcheck import HintFacts, check_hint, check_hint_play, hint_facts, source_literals
from spade.envs.sandbox import Sandbox
from spade.types import EnvProgram

SECRET = game(
    reset="n = r.randint(100, 999)\n        self.x = str(n * 37)\n        return f'{n} in old measure', {}",
    step="won = a == self.x\n        say = 'right' if won else 'no' if self.t < 9 else 'platypus'\n        "
    "return say, float(won), won, self.t >= self.max_turns, {}",
)


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig()) as running:
        yield running


async def test_hints_of_a_real_program(sandbox: Sandbox) -> None:
    facts = await hint_facts(EnvProgram.of(SECRET), sandbox)
    assert len(facts.solutions) == 8 and "37" in facts.literals and "measure" in facts.shown
    assert check_hint("turn the old measure into the new one by a fixed factor", facts, 40).ok
    assert check_hint("", facts, 40).code == "hint_empty"
    assert check_hint("word " * 41, facts, 40).code == "hint_too_long"
    assert check_hint("multiply by 37", facts, 40).code == "hint_leaks_code"
    assert check_hint("beware of the platypus", facts, 40).code == "hint_leaks_code"
    answer = facts.solutions[2][0]
    assert check_hint(f"try {answer} first", facts, 40).code == "hint_leaks_answer"
    assert check_hint(f"try {answer}0 first", facts, 40).ok


def facts_of(*solutions: tuple[str, ...], first: str = "a puzzle", shown: str = "") -> HintFacts:
    return HintFacts(solutions, (first,) * len(solutions), frozenset(shown.split()), frozenset())


def test_answers_in_hints() -> None:
    plan = facts_of(("up", "left", "up"))
    assert not check_hint("go up then left and up again", plan, 40).ok
    assert check_hint("go left first, then up", plan, 40).ok
    assert check_hint("go up", facts_of(("up",), first="say up or down"), 40).ok  # shown to everybody
    assert not check_hint("it is up", facts_of(("up",)), 40).ok
    assert check_hint("a letter of the row", facts_of(("A",)), 40).ok
    assert not check_hint("the letter A", facts_of(("A",)), 40).ok


def test_literals_of_the_code() -> None:
    found = source_literals(
        '"""doc words"""\nx = "blue whale"\ny = 4711\nz = 3\nok = True\ndef f():\n    "more doc"'
    )
    assert found == {"blue", "whale", "4711"}
    assert source_literals("not python (") == frozenset()


async def test_hint_only_play(sandbox: Sandbox) -> None:
    program = EnvProgram.of(
        game(reset="self.x = 'swordfish'\n        return f'{r.random()} say the word', {}")
    )
    assert (await check_hint_play("think of swordfish", program, sandbox, 0.34)).code == "hint_wins_alone"
    assert (await check_hint_play("think of fish", program, sandbox, 0.34)).ok


# --- the command line ----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(game())
    (tmp_path / "bad.py").write_text("import os\n" + game())
    return tmp_path


def test_validate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "validate", str(folder), "--json"]) == 1
    bad, good = json.loads(capsys.readouterr().out)
    assert set(bad) == {"file", "accepted", "stage", "code", "reason", "seconds"}
    assert (bad["accepted"], bad["stage"], bad["code"]) == (False, "screen", "import_refused")
    assert (good["accepted"], good["stage"], good["code"]) == (True, None, "accepted")
    assert main(["envs", "validate", str(folder / "good.py")]) == 0
    assert "1 of 1 accepted" in capsys.readouterr().out
    assert main(["envs", "validate", str(folder / "missing.py")]) == 2
    assert "missing.py" in capsys.readouterr().err


def test_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "echo.py").write_text(ECHO)
    files = [str(folder / name) for name in ("echo.py", "bad.py")]
    assert main(["envs", "run", *files, "--seed", "4", "--action", "go", "--level", "L2s", "--json"]) == 0
    echo, bad = json.loads(capsys.readouterr().out)
    assert set(echo) == {"file", "level", "stage", "outcome", "detail", "observation", "seconds"}
    assert (echo["outcome"], echo["observation"], echo["level"], echo["stage"]) == (
        "ok",
        "4:go",
        "L2s",
        "step",
    )
    assert bad["outcome"] == "ok"  # importing os is harmless; only the validator minds
    for action, outcome in (("loop", "killed"), ("exit", "crashed"), ("raise", "refused")):
        assert main(["envs", "run", files[0], "--action", action, "--deadline", "0.2", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["outcome"] == outcome
    assert main(["envs", "run", str(folder / "missing.py")]) == 2


def test_play(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    good = str(folder / "good.py")
    assert main(["envs", "play", good, "--policy", "oracle", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["won"] is True
    assert main(["envs", "play", good, "--policy", "noop", "--hint"]) == 0
    out = capsys.readouterr().out
    assert "no hint" in out and "not won" in out
    monkeypatch.setattr("sys.stdin", io.StringIO("12\n"))
    assert main(["envs", "play", good]) == 0
    assert "after 1 turn (given up)" in capsys.readouterr().out
