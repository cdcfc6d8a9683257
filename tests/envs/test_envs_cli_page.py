"""The commands and snippets of docs/environments.md do what the page shows; `check_env`; light imports."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from envs_programs import ECHO, game

from spade import testing
from spade.cli.main import main
from spade.config import SandboxConfig, ValidateConfig
from spade.envs import check_env
from spade.errors import InputError, SandboxError
from spade.types import EnvProgram

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
USERS = PAGE.partition("## For users")[2].partition("## Validation")[0]
SESSIONS = [block for block in re.findall(r"```text\n(.*?)```", USERS, re.S) if block.startswith("$ spade ")]
SNIPPETS = re.findall(r"```python\n(.*?)```", USERS, re.S)


@pytest.fixture
def games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's example programs in games/, and one that calls eval."""
    folder = tmp_path / "games"
    folder.mkdir()
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        if found := re.search(r"^class (\w+)Env", code, re.M):
            name = re.sub(r"(?<!^)([A-Z])", r"_\1", found.group(1)).lower()
            (folder / f"{name}.py").write_text(code)
    (folder / "calculator.py").write_text((folder / "later_term.py").read_text().replace("int(f", "eval(f"))
    monkeypatch.chdir(tmp_path)
    return folder


def normal(text: str) -> list[list[str]]:
    """Words of each line without what differs from run to run: times and the level."""
    text = re.sub(r"\d+\.\d+ s\b", "T s", text)
    return [re.sub(r"\(L\w+,", "(L,", line).split() for line in text.strip().splitlines()]


def test_the_page_has_a_session_of_each_command() -> None:
    assert [block.split()[3] for block in SESSIONS] == ["validate", "run", "play"]
    assert len(SNIPPETS) == 2


@pytest.mark.parametrize("block", SESSIONS, ids=lambda block: block.split()[3])
def test_sessions_are_real(block: str, games: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, _, shown = block.partition("\n")
    patience = ["--deadline", "60"] if command.startswith("$ spade envs run") else []
    main([*shlex.split(command.removeprefix("$ spade ")), *patience])
    assert normal(capsys.readouterr().out) == normal(shown)


@pytest.mark.parametrize("code", SNIPPETS, ids=["check_env", "gymnasium"])
def test_snippets_run(code: str, games: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "docs/environments.md", "exec"), {})
    assert "gymnasium" not in code or "> run 1\nThe level is 10 litres." in capsys.readouterr().out


# --- check_env -----------------------------------------------------------------------------------------


def test_check_env_takes_a_path_text_or_record(games: Path) -> None:
    verdict = check_env("games/tank.py")
    assert verdict.accepted and verdict.failed is None
    assert check_env(Path("games/tank.py")).program_id == verdict.program_id
    assert check_env((games / "tank.py").read_text()).program_id == verdict.program_id
    assert check_env(EnvProgram.of((games / "tank.py").read_text())).program_id == verdict.program_id
    assert testing.check_env is check_env


def test_check_env_says_why(games: Path) -> None:
    with pytest.raises(
        AssertionError, match=r"^games/calculator.py is rejected at 'screen' .forbidden_name."
    ):
        check_env("games/calculator.py")
    with pytest.raises(AssertionError, match=r"^the program is rejected at 'load' .exception.: ZeroDivision"):
        check_env("class AEnv:\n    x = 1 / 0\n    def reset(self, seed): ...\n    def step(self, a): ...\n")
    with pytest.raises(InputError, match="There is no file games/gone"):
        check_env("games/gone.py")
    with pytest.raises(SandboxError):
        check_env(ECHO, sandbox=SandboxConfig(force_level="L0"))
    with pytest.raises(AssertionError, match="rejected at"):
        check_env(game(), game_type="tool_use")
    with pytest.raises(AssertionError, match="too_few_turns"):
        check_env(game(), None, ValidateConfig(min_oracle_turns=3))


async def test_check_env_inside_a_running_event_loop() -> None:
    assert check_env(game()).accepted


# --- imports -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["spade", "spade.envs"])
def test_the_packages_are_light(package: str) -> None:
    loaded = "import sys, typing, __future__; old = set(sys.modules)"
    code = f"{loaded}; import {package}; print(*set(sys.modules) - old)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert set(done.stdout.split()) == {"spade", "spade._gymnasium", package}, done.stderr
    code = f"import {package}; import spade.envs; print(spade.envs.check_env.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout == "check_env\n", done.stderr


def test_unknown_names_of_the_package_are_attribute_errors() -> None:
    import spade.envs

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        spade.envs.nonsense  # noqa: B018
