"""The table about the Designer's collapse, from run folders made up for it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.collapse import effective, figures, hint_gaps, main, read_run, windows
from spade.config import Config
from spade.errors import ConfigError, InputError
from spade.files import append_lines
from spade.runs import RunFolder
from spade.train.checks import check_run
from tests.train.scripted_world import World, rows, small_config, train


def code(mechanic: int, constant: int) -> str:
    """Programs of one mechanic differ in a constant and a name only."""
    line = ("        return x + {}", "        return x * x - {}", "        return [x] * {}")[mechanic]
    return f"class A{constant}Env:\n    def step(self, x):\n{line.format(constant)}\n"


def write(folder: Path, name: str, seed: int, mechanics: list[list[int]], gap: float) -> Path:
    """A run of `len(mechanics)` steps whose step k accepts programs of the mechanics `mechanics[k]`; one more
    is refused by a blind policy and one is a syntax error."""
    run = RunFolder.create_or_resume(Config(name=name, seed=seed, out=str(folder)), "train", "made up")
    (folder / "pool").mkdir()
    number = 0
    for step, kinds in enumerate(mechanics, 1):
        for kind in kinds:
            number += 1
            program = f"{name}{seed}p{number}"
            (folder / "pool" / f"{program}.py").write_text(code(kind, number))
            row = {"step": step, "program": program, "accepted": True, "code": "accepted", "skill": "S"}
            hint = {"hint": "look", "hint_code": "ok" if number % 2 else "hint_wins_alone", "text": ""}
            append_lines(folder / "designs.jsonl", [{**row, **hint}])
            arms = [(True, gap), (True, gap), (False, 0.0)]
            plays = [{"step": step, "program": program, "hinted": h, "value": v} for h, v in arms]
            append_lines(folder / "episodes.jsonl", [*plays, {**plays[0], "value": None}])
        for reason, kind in (("floor_constant", 0), ("syntax", 0), ("duplicate", kinds[0])):
            text = f"```python\n{code(kind, 1)}```"
            row = {"step": step, "program": "x", "accepted": False, "code": reason, "skill": "S"}
            append_lines(folder / "designs.jsonl", [{**row, "hint": None, "hint_code": None, "text": text}])
        metrics = {"step": step, "regret": gap, "return_plain": 0.5}
        append_lines(folder / "metrics.jsonl", [metrics if step % 2 else {"step": step, "return_plain": 0.5}])
    (folder / "eval-2").mkdir()
    result = {"suite": "heldout", "score": [0.4 + seed / 10, 0.01, 100]}
    full = {"complete": True, "origin": {"step": 2}, "result": result}
    (folder / "eval-2" / "heldout@000002.json").write_text(json.dumps(full))
    (folder / "eval-2" / "other.json").write_text(json.dumps({**full, "complete": False}))
    run.finish()
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    varied = [[0, 1, 2], [1, 2, 0], [0, 1, 2], [2, 1, 0]]
    falling = [[0, 1, 2], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    return [
        *(write(tmp_path / f"g{s}", "games", s, varied, 0.25) for s in (0, 1)),
        *(write(tmp_path / f"c{s}", "collapse", s, falling, 1.0) for s in (0, 1)),
    ]


def test_figures_by_hand(folders: list[Path]) -> None:
    run = read_run(folders[2])
    first, last = (figures(run, *span) for span in (windows(run, 2)[0], windows(run, 2)[-1]))
    assert (first["mechanics"], last["mechanics"]) == (3, 1)
    shares = (3 / 6, 2 / 6, 1 / 6)
    assert first["effective"] == pytest.approx(math.exp(-sum(s * math.log(s) for s in shares)))
    assert (last["effective"], first["most frequent"], last["most frequent"]) == (1.0, 0.5, 1.0)
    counted = (5 / 8, 2 / 8, 1 / 8)  # the two repeats are of mechanic 0
    entropy = -sum(s * math.log(s) for s in counted)
    assert first["effective, repeats counted"] == pytest.approx(math.exp(entropy))
    assert first["most frequent, repeats counted"] == 5 / 8
    assert first["accepted"] == 6 / 12 and first["refused: luck"] == first["repeats"] == 2 / 12
    assert first["refused: hint"] == 0.5 and first["hint decides"] == 1.0
    assert (first["regret"], first["return"]) == (1.0, 0.5)
    assert run.scores == {2: 0.4} and run.steps == 4
    assert len(run.programs) == 12 and {p.hint for p in run.programs.values()} == {"look", None}


def test_small_pieces() -> None:
    rows = [
        {"program": "a", "step": 1, "hinted": True, "value": 1.0},
        {"program": "a", "step": 1, "hinted": False, "value": 0.25},
        {"program": "a", "step": 2, "hinted": False, "value": 1.0},
        {"program": "b", "step": 1, "hinted": False, "value": 1.0},
        {"program": "b", "step": 1, "hinted": True, "value": None},
    ]
    assert hint_gaps(rows) == {"a": 0.75}
    assert effective(["x", "y", "x", "y"]) == pytest.approx(2.0) and math.isnan(effective([]))


def test_windows_cover_every_step_once(folders: list[Path]) -> None:
    run = read_run(folders[0])
    assert windows(run, 2) == [(1, 2), (3, 4)]
    assert windows(run, 3) == [(1, 4)] == windows(run, 9)
    assert windows(run, 1) == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_table_and_plot(folders: list[Path], tmp_path: Path, capsys: Any, suffix: str) -> None:
    out = tmp_path / "out"
    main([*map(str, folders), "--out", str(out), "--window", "2", "--format", suffix])
    text = (out / "collapse.md").read_text()
    assert text in capsys.readouterr().out
    lines = [[c.strip() for c in line.split("|")] for line in text.splitlines() if line.startswith("|")]
    cells = {line[1]: line[2:-1] for line in lines}
    settings = ["games, first", "games, last", "collapse, first", "collapse, last"]
    assert cells["mean over seeds (range)"] == settings
    assert cells["mechanics"] == ["3.00 (3.00 to 3.00)"] * 3 + ["1.00 (1.00 to 1.00)"]
    assert cells["hint decides"][:2] == ["0.00 (0.00 to 0.00)"] * 2
    assert cells["games"] == ["0.450 (0.400 to 0.500)"]
    assert "games: seeds 0, 1; collapse: seeds 0, 1" in text
    assert (out / f"collapse.{suffix}").stat().st_size > 5000
    assert cells["collapse: effective"][0].startswith("-")
    assert cells["collapse: mechanics"] == ["-2.00 [-2.00, -2.00]"]
    assert cells["collapse: held-out return, step 2"] == ["+0.00 [+0.00, +0.00]"]
    again = tmp_path / "again"
    main([str(out / "figures.json"), "--out", str(again), "--format", suffix])
    for name in ("collapse.md", "figures.json"):
        assert (again / name).read_text() == (out / name).read_text()


def test_solutions_as_hints_make_every_game_pay(tmp_path: Path) -> None:
    """What the collapse is made of: with the answer as hint the regret of a game is what the Agent lacks."""
    world = World()
    world.play = lambda p: p[p.index("is \\boxed") + 3 :].split()[0] if "HINT" in p else r"\boxed{1}"  # type: ignore[method-assign]
    cfg = small_config(tmp_path / "a", hints__source="solution", hints__checks=False, train__steps=1)
    _, folder, _ = train(cfg, world)
    hinted = [e for e in rows(folder, "episodes.jsonl") if e["hinted"]]
    assert hinted and all(e["value"] == 1.0 and len(e["observations"]) == 1 for e in hinted)
    with pytest.raises(ConfigError, match=r"hints\.source is solution.*hints\.checks=false"):
        check_run(small_config(tmp_path / "b", hints__source="solution"))


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_run(tmp_path)
