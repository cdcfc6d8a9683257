"""The suite `games`: items, what an episode notes, tables, folders of programs, kills, twins in a run."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spade.cli import main
from spade.cli.evaluate import ALL
from spade.config import SandboxConfig
from spade.envs.pool import Pool, write_pool
from spade.envs.sandbox import Sandbox
from spade.errors import ConfigError, FaultKind, InputError
from spade.types import EnvProgram, Fault, ItemResult, Scored, StopReason, SuiteResult, Turn
from spade_evals.compare import compare_runs
from spade_evals.results import load
from spade_evals.runner import run_eval
from spade_evals.suites import games, games_check, games_pool, games_report
from spade_evals.task_report import SuiteReport

Capture = pytest.CaptureFixture[str]
GAMES = games_pool.shipped_games()

SUM = """
import random


class {name}Env:
    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.a, self.b = rng.randint(100, 999), rng.randint(100, 999)
        return f"How much are {{self.a}} and {{self.b}}?", {{}}

    def step(self, action):
        right = action == f"\\\\boxed{{{{{{self.a + self.b}}}}}}"
        return "Yes." if right else "Invalid sum.", float(right), True, False, {{}}

    def solution(self):
        return str(self.a + self.b)
"""
"""Ours, without levels."""


# --- items ---------------------------------------------------------------------------------------------


def test_items_are_the_same_for_every_checkpoint_and_a_limit_spreads() -> None:
    suite = games.make_suite()
    items = suite.items(0, None)
    assert len(items) == 3 * games.SEEDS * len({g.name for g in GAMES}) == len({i.id for i in items})
    assert items == games.make_suite().items(0, None)
    other = suite.items(1, None)
    assert [i.id for i in other] == [i.id for i in items]
    assert all(a.payload["seed"] != b.payload["seed"] for a, b in zip(items, other, strict=True))
    for limit in (42, 84, 126, 200):
        some = suite.items(0, limit)
        assert len(some) == limit
        assert max(Counter(i.cluster for i in some).values()) - limit // 42 <= 1
        levels = Counter(i.payload["level"] for i in some)
        assert max(levels.values()) - min(levels.values()) <= 4, limit
    assert {i.part.split("/")[0] for i in items} == {"games", "tools"}
    assert len({i.part for i in items}) == 12


# --- what an episode notes -----------------------------------------------------------------------------


def turn(action: str, observation: str, malformed: bool = False) -> Turn:
    return Turn((), (), action, action, observation, 0.0, StopReason.STOP, malformed)


def test_invalid_actions() -> None:
    boxed = EnvProgram.of("", game_type="multi_turn")
    assert games.is_invalid(turn("go", "You go."), boxed)
    assert games.is_invalid(turn("\\boxed{go}", "Invalid: go where?"), boxed)
    assert not games.is_invalid(turn("\\boxed{go}", "You go."), boxed)
    tools = EnvProgram.of("", game_type="tool_use")
    assert games.is_invalid(turn("hello", "call a tool", malformed=True), tools)
    assert games.is_invalid(turn("<tool_call>{}</tool_call>", "error: no such tool"), tools)
    assert not games.is_invalid(turn("<answer>done</answer>", "all done"), tools)
    assert not games.is_invalid(turn("<tool_call>{}</tool_call>", "refused: it is locked"), tools)


def row(part: str, cluster: str, value: float, k: int, **facts: float) -> ItemResult:
    outcome = Scored(value, value == 1.0)
    return ItemResult(f"{cluster}/{k}", part, cluster, 0, outcome, "terminated", 5, "", dict(facts))


def base(rows: list[ItemResult]) -> SuiteReport:
    return SuiteReport(SuiteResult("games", "x", "f", (0.5, 0.1, len(rows)), {}, {}, 1), folder="out")


def test_numbers_of_a_report_by_skill_and_level() -> None:
    rows = [
        row("games/a", "p", 1.0, 0, level=1, turns=4, invalid=1),
        row("games/a", "p", 0.0, 1, level=2, turns=6, invalid=2),
        row("games/a", "q", 0.5, 0, level=1, turns=2, invalid=0),
        row("tools/b", "r", 0.0, 0, level=2, turns=8, invalid=8, cut=1),
    ]
    broken = replace(rows[0], item_id="z", outcome=Fault(FaultKind.PROGRAM, "step", "x"))
    report = games_report.report_of(base(rows), [*rows, broken], ["a note"])
    skills, levels = dict(report.skills), dict(report.levels)
    assert list(skills) == ["games/a", "tools/b", "games", "tools"]
    first = skills["games/a"]
    assert (first.programs, first.episodes, first.mean, first.solved) == (2, 3, 0.5, pytest.approx(1 / 3))
    assert (first.turns, first.invalid, first.cut) == (4.0, 3 / 12, 0.0)
    # Residuals by program: p 0 (0.5 - 0.5), q 0.
    assert first.stderr == 0.0
    assert (skills["tools/b"].invalid, skills["tools/b"].cut) == (1.0, 1.0)
    assert math.isnan(skills["tools/b"].stderr)
    assert {name: (s.episodes, s.mean) for name, s in levels.items()} == {
        "level 1": (2, 0.75), "level 2": (2, 0.0),
    }  # fmt: skip
    assert dict(report.cells)["games/a level 1"].mean == 0.75
    assert set(report.details) == {"skills", "levels", "cells"}
    text = str(report)
    assert "a note" in text and "play.max_tokens" in text and text.endswith("samples: out")
    assert games_report.report_of(base([]), [], []).skills == ()


# --- through the whole stack ---------------------------------------------------------------------------


def test_oracle_null_and_the_same_seed_twice(tmp_path: Path) -> None:
    reports: dict[str, Any] = {}
    for name, kind in (("o", "oracle"), ("n", "null"), ("r", "random"), ("r2", "random")):
        reports[name] = run_eval(f"scripted:{kind}", "games", tmp_path / name, limit=84, quiet=True)
        assert reports[name].result.faults == {}
    assert reports["o"].result.score == (1.0, 0.0, 84)
    assert {score.solved for _, score in reports["o"].cells} == {1.0}
    assert reports["n"].result.score[0] == reports["r"].result.score[0] == 0.0
    assert {score.invalid for _, score in reports["n"].skills} == {1.0}
    files = [tmp_path / name / "games-limit84.jsonl" for name in ("r", "r2")]
    assert files[0].read_bytes() == files[1].read_bytes()
    document = json.loads((tmp_path / "o" / "games-limit84.json").read_text())
    assert document["details"]["levels"]["level 3"]["episodes"] == 28
    report = compare_runs([tmp_path / "n", tmp_path / "o"], None, tmp_path / "out")
    found = report.comparison("scripted:oracle")
    assert (found.difference, found.n) == (1.0, 84)
    assert {"games/optimization", "tools/error_recovery"} <= {c.column for c in report.comparisons}
    assert load(tmp_path / "o").items.keys() == load(tmp_path / "n").items.keys()


COMMAND = (sys.executable, "-m", "spade.cli.main", "eval", "--ckpt", "scripted:random", "--suite", "games")


def test_killed_and_taken_up_again_equals_one_go(tmp_path: Path) -> None:
    """SIGKILL in the middle, with a torn last line; the second command plays the rest and nothing twice."""
    options = ["--limit", "60", "serving.max_rows=12"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(
        [*COMMAND, "--out", str(tmp_path / "a"), *options],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    file = tmp_path / "a" / "games-limit60.jsonl"
    while run.poll() is None and not (file.exists() and file.read_bytes().count(b"\n") >= 24):
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    kept = file.read_bytes().count(b"\n")
    assert 24 <= kept < 60, "it finished before it was killed"
    with file.open("ab") as out:
        out.write(b'{"key": "torn')
    out_b = ["--out", str(tmp_path / "b")]
    for where in (["--out", str(tmp_path / "a")], out_b):
        subprocess.run([*COMMAND, *where, *options], env=env, check=True, capture_output=True)
    rows = [[json.loads(x) for x in (tmp_path / n / file.name).read_bytes().splitlines()] for n in "ab"]
    assert len(rows[0]) == len({r["item_id"] for r in rows[0]}) == 60
    assert rows[0] == rows[1]
    a, b = (json.loads((tmp_path / n / "games-limit60.json").read_text()) for n in "ab")
    assert a["result"] == b["result"] and a["details"] == b["details"] and a["complete"]


# --- any folder ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "my pool"
    (place / "sums").mkdir(parents=True)
    for name in ("First", "Second"):
        (place / "sums" / f"{name.lower()}.py").write_text(SUM.format(name=name))
    (place / "tools").mkdir()
    for name in ("mail_room", "stock_counter"):
        code = (games_pool.FOLDER / "tool_selection" / f"{name}.py").read_text()
        (place / "tools" / f"{name}.py").write_text(code)
    return place


def test_a_folder_of_programs_is_played_by_the_command(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    command = ["eval", "--ckpt", "scripted:oracle", "--suite", "games", "--pool", str(folder)]
    assert main.main([*command, "--out", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "games-my_pool on scripted:oracle" in text and "pool/tools" in text
    assert f"score 1.000 ± 0.000 (n = {4 * games.POOL_SEEDS})" in text
    assert "level" not in text
    stored = load(tmp_path / "out")
    assert stored.suite == "games-my_pool" and len(stored.items) == 4 * games.POOL_SEEDS
    assert main.main([*command, "--out", str(tmp_path / "out"), "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert {name for name, _ in tree["skills"]} == {"pool/sums", "pool/tools", "pool"}


def test_a_program_that_breaks_is_a_fault_and_no_score(folder: Path, tmp_path: Path) -> None:
    (folder / "sums" / "third.py").write_text(
        SUM.format(name="Third").replace("action ==", "1 / 0 or action ==")
    )
    report: Any = run_eval("scripted:oracle", "games", tmp_path / "out", pool=folder, quiet=True)
    assert report.result.faults == {"program": games.POOL_SEEDS}
    assert dict(report.skills)["pool/sums"].episodes == 2 * games.POOL_SEEDS
    assert report.result.score[0] == 1.0
    assert "faults: program 8" in str(report)


def test_pools_with_a_manifest_and_single_programs_of_a_skill(tmp_path: Path) -> None:
    programs = [
        EnvProgram.of(SUM.format(name=n), skill=s) for n, s in (("A", "Sums"), ("B", "Sums"), ("C", "X"))
    ]
    write_pool(tmp_path / "pool", Pool(tuple(programs)))
    found = games_pool.folder_games(tmp_path / "pool")
    assert [g.program.id for g in found] == [p.id for p in programs]
    # A part of one program would have no standard error.
    assert {g.part for g in found} == {"pool"}
    write_pool(tmp_path / "two", Pool((*programs, EnvProgram.of(SUM.format(name="D"), skill="X"))))
    assert {g.part for g in games_pool.folder_games(tmp_path / "two")} == {"pool/sums", "pool/x"}


def test_wrong_folders_and_other_suites_are_refused(tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        games_pool.folder_games(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no Python file"):
        games_pool.folder_games(tmp_path / "empty")
    with pytest.raises(ConfigError, match="the suite 'heldout' has its own items"):
        run_eval("scripted:null", "heldout", tmp_path / "out", pool=tmp_path, quiet=True)
    assert main.main(["eval", "--ckpt", "scripted:null", "--suite", "games", "--pool", "nowhere"]) == 2
    assert "there is no folder nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("class AEnv(ToolEnv):\n    max_turns = 3", "tool_use"),
        ("class AEnv:\n    game_type = 'single_turn'", "single_turn"),
        ("class AEnv:\n    game_type: str = 'tool_use'", "tool_use"),
        ("class AEnv:\n    game_type = 'unheard of'", "multi_turn"),
        ("class Helper:\n    game_type = 'single_turn'\nclass AEnv:\n    pass", "multi_turn"),
        ("class AEnv(", "multi_turn"),
        ("\0", "multi_turn"),
    ],
)
def test_the_type_is_read_from_the_text(code: str, kind: str) -> None:
    assert games_pool.game_type_of(code) == kind


def test_the_shipped_types_are_those_that_the_sandbox_sees() -> None:
    kinds = {g.program.game_type for g in GAMES}
    assert kinds == {"single_turn", "multi_turn", "tool_use"}
    assert sum(g.program.game_type == "tool_use" for g in GAMES) == 54


# --- did a run see it? ---------------------------------------------------------------------------------


def a_run(path: Path, *programs: str) -> Path:
    (path / "pool").mkdir(parents=True)
    for code in programs:
        program = EnvProgram.of(code)
        (path / "pool" / f"{program.id}.py").write_text(code)
    return path


def test_twins_in_pool_refused_programs_and_memory_are_named(tmp_path: Path) -> None:
    held = [game.program for game in GAMES]
    clean = a_run(tmp_path / "clean", SUM.format(name="A"))
    assert games_check.code_twins(clean, held) == [
        f"none of the 1 programs of {clean} is one of the held-out programs"
    ]
    assert games_check.code_twins(tmp_path / "nothing", held) == []
    stolen = GAMES[4].program.code.replace("rng", "generator")
    seen = a_run(tmp_path / "seen", SUM.format(name="A"), stolen)
    [warning] = games_check.code_twins(seen, held)
    assert warning.startswith("WARNING: 1 programs of") and GAMES[4].program.id[:12] in warning
    remembers = a_run(tmp_path / "remembers")
    (remembers / "checkpoints" / "step-000003").mkdir(parents=True)
    state = {
        "extra": {"source": {"designer": {"memory": {"records": [{"program_id": "x", "code": stolen}]}}}}
    }
    (remembers / "checkpoints" / "step-000003" / "state.json").write_text(json.dumps(state))
    [warning] = games_check.code_twins(remembers, held)
    assert warning.startswith("WARNING")
    (remembers / "checkpoints" / "step-000003" / "state.json").write_text("{")
    [warning] = games_check.code_twins(remembers, held)
    assert "could not be compared" in warning


async def test_a_rewritten_program_is_found_by_what_it_does() -> None:
    """Other names, another layout, a helper more: the code differs, the game does not."""
    game = next(g for g in GAMES if g.name == "bead_rows" and g.level == 1)
    code = game.program.code
    body = code[code.index("    def reset") :]
    rewritten = (
        "import random\nimport re\n\nMOST = 104\nLENGTHS = tuple(range(2, 8))\n\n\ndef unused(a, b):\n"
        "    total = 0\n    for k in range(a):\n        total += k * b\n    return total\n\n\n"
        f"class OtherEnv:\n    max_turns = 5\n\n{body.replace('LEVEL', 'ONE')}\n\nONE = 1\n"
    )
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        broken = EnvProgram.of("class XEnv:\n    def reset(self, s): 1 / 0\n    def step(self, a): pass")
        programs = [EnvProgram.of(rewritten), EnvProgram.of(SUM.format(name="A")), broken]
        found = await games_check.twins_by_behaviour(programs, [game.program], sandbox)
    assert found == [(programs[0].id, game.program.id)]


def test_the_report_of_a_run_says_whether_it_saw_them(tmp_path: Path) -> None:
    suite = games.GamesSuite(GAMES[:3])
    seen = a_run(tmp_path / "run", GAMES[0].program.code)
    rows = [row("games/a", "p", 1.0, 0, level=1, turns=1, invalid=0)]
    assert "WARNING" in str(suite.report(base(rows), rows, seen))
    assert "WARNING" not in str(suite.report(base(rows), rows, None))


# --- names ---------------------------------------------------------------------------------------------


def test_the_suite_is_listed_and_part_of_all(capsys: Capture) -> None:
    assert "games" in ALL
    assert main.main(["list", "suites"]) == 0
    text = capsys.readouterr().out
    for name in ("games", "games-reasoning", "games-textarena"):
        assert any(line.split()[:1] == [name] for line in text.splitlines()), name
