"""Experiments as grids, resuming, records that verify, jobs side by side."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from spade.errors import BackendError, InputError
from spade.files import read_json, write_json
from spade.interrupt import StopFlag
from spade.study import report as reporting
from spade.study.cells import run_cell
from spade.study.figures import figures_of
from spade.study.grid import Planned, experiment_names, load_experiment, plan
from spade.study.layouts import tables_of
from spade.study.runner import missing_starts, run_plans, write_plan
from spade.study.settings import Cell, RLSettings, Start, cell_as_settings, cell_from
from spade.study.stages import ensure
from spade.study.verdicts import judge

TINY = {
    "size": "XS",
    "trunk_steps": 12,
    "steps": 2,
    "batch": 2,
    "group": 2,
    "probes": 2,
    "evals": 1,
    "prompts": 4,
}
"""Settings of a cell that takes a fraction of a second."""


@pytest.fixture(autouse=True)
def few_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished checkpoint is measured on few prompts; nothing else depends on that."""
    monkeypatch.setattr("spade.study.stages.HELD_OUT", 16)
    monkeypatch.setattr("spade.study.stages.PROBE_PROMPTS", 16)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of `grid_file`, made once."""
    folder = tmp_path_factory.mktemp("study") / "made"
    cells = plan(load_experiment(str(grid_file(folder.parent))), "quick")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("stages.HELD_OUT", "stages.PROBE_PROMPTS", "stages.CALIBRATION_PROMPTS"):
            patch.setattr(f"spade.study.{name}", 16)
        patch.setattr("spade.study.dials.DIAL_POOL", 64)
        for start in missing_starts([p.cell for p in cells], folder):
            ensure(start, folder)
    return folder


def grid_file(folder: Path, **changes: object) -> Path:
    grid = {
        "id": "E1", "title": "t", "question": "q", "source": "s", "settings": {**TINY, "reward": "partial"},
        "factors": {"prior": {"never": {"chain": []}, "1e-2": {"chain": ["dial=1e-2~{seed}"]}}},
        "presets": {"quick": {"seeds": 2}}, **changes,
    }  # fmt: skip
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump(grid))
    return path


def test_every_shipped_experiment_plans_in_every_preset_and_arms_are_paired() -> None:
    assert experiment_names() == [f"E{i}" for i in range(1, 14)]
    for name in experiment_names():
        experiment = load_experiment(name)
        assert experiment.question.endswith("?") and set(experiment.default) <= set(experiment.presets)
        for preset in experiment.presets:
            planned = plan(experiment, preset)
            seeds: dict[str, list[int]] = {}
            for p in planned:
                seeds.setdefault(json.dumps(p.labels, sort_keys=True), []).append(p.seed)
                assert p.cell.rl.seed == p.seed
            assert len({tuple(s) for s in seeds.values()}) == 1
            assert len({p.cell.key for p in planned}) == len(planned)


def test_the_quick_preset_has_what_was_promised() -> None:
    quick = [n for n in experiment_names() if "quick" in load_experiment(n).default]
    assert quick == ["E1", "E3", "E5", "E7", "E13"]
    arms = {n: plan(load_experiment(n), "quick") for n in quick}
    assert {p.labels["prior"] for p in arms["E1"]} == {"never", "1e-5", "1e-4", "1e-3", "1e-2"}
    assert {n: 1 + max(p.seed for p in x) for n, x in arms.items()} == {
        "E1": 5,
        "E3": 3,
        "E5": 6,
        "E7": 3,
        "E13": 3,
    }
    assert {(p.labels["prior"], p.labels["reward"]) for p in arms["E3"]} == {
        (a, b) for a in ("never", "1e-2") for b in ("exact", "partial", "step")
    }
    assert {(p.labels["prompts"], p.labels["breadth"]) for p in arms["E5"]} == {
        (a, b) for a in ("1", "100") for b in ("1", "9")
    }


def test_the_published_study_is_the_quick_preset_of_these_recipes() -> None:
    """Who changes a recipe or a setting has to run the preset again, or publish nothing."""
    folder = Path(__file__).parents[2] / "results" / "study"
    names = [n for n in experiment_names() if "quick" in load_experiment(n).default]
    wanted = {p.cell.key for n in names for p in plan(load_experiment(n), "quick")}
    assert {f.name for f in (folder / "cells").iterdir()} == wanted
    assert set(reporting.read_plan(folder)) == set(names) and reporting.verify(folder) == []


def test_settings_and_hash_are_one_to_one() -> None:
    cell = Cell(chain=("dial=1e-3",), rl=RLSettings(reward="lev", seed=3), until=0.9)
    assert cell_from(cell_as_settings(cell)) == cell
    keys = {cell.key, replace(cell, until=0.8).key, replace(cell, rl=replace(cell.rl, seed=4)).key,
            replace(cell, chain=()).key, replace(cell, trunk_steps=9).key}  # fmt: skip
    assert len(keys) == 5
    assert cell.key == cell_from(json.loads(json.dumps(cell_as_settings(cell)))).key


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"colour": 1}, "'colour' is no setting"),
        ({"chain": ["dial"]}, "'dial' is no stage"),
        ({"reward": "fame"}, "no reward 'fame'"),
        ({"algorithm": "magic"}, "no algorithm 'magic'"),
        ({"kind": "poem"}, "'poem' is no kind"),
        ({"size": "S9"}, "no size 'S9'"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        cell_from(settings)


def test_wrong_experiments_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no experiment 'E99'"):
        load_experiment("E99")
    with pytest.raises(InputError, match="has no preset 'huge'"):
        plan(load_experiment("E1"), "huge")
    bad = grid_file(tmp_path, presets={"quick": {"seeds": 1, "levels": {"prior": ["1e-9"]}}})
    with pytest.raises(InputError, match="no level '1e-9'"):
        plan(load_experiment(str(bad)), "quick")


def planned(tmp_path: Path, made: Path) -> tuple[list[Planned], Path]:
    experiment = load_experiment(str(grid_file(tmp_path)))
    cells = plan(experiment, "quick")
    out = tmp_path / "out"
    write_plan(out, {"E1": experiment}, {"E1": cells}, "quick")
    shutil.copytree(made, out / "stages", dirs_exist_ok=True)
    return cells, out


def test_a_study_runs_resumes_reports_and_verifies(tmp_path: Path, made: Path) -> None:
    cells, out = planned(tmp_path, made)
    wanted = [p.cell for p in cells]
    first = run_plans(wanted[:2], out, 1, StopFlag())
    assert first == {"cells": 2, "finished": 2, "already": 0}
    stamps = {p: p.stat().st_mtime_ns for p in out.glob("cells/*/*")}
    assert run_plans(wanted, out, 1, StopFlag()) == {"cells": 4, "finished": 4, "already": 2}
    assert all(p.stat().st_mtime_ns == t for p, t in stamps.items())
    assert missing_starts(wanted, out / "stages") == []
    names = {"cell.json", "config.yaml", "log.jsonl", "final.safetensors", "dist.npz", "env.json"}
    assert all({f.name for f in folder.iterdir()} == names for folder in out.glob("cells/*"))
    verdicts = reporting.write_study_report(out)
    assert verdicts["E1"]["numbers"]["runs"] == 4 and verdicts["E1"]["rule"]
    page = (out / "report.md").read_text()
    assert "original, for comparison" in page and "Qwen2-7B" in page and "E1-prior.png" in page
    for name in ("tables/T1.csv", "tables/T1.md", "figures/E1-prior.png", "figures/E1-prior.svg"):
        assert (out / name).stat().st_size > 200
    assert reporting.verify(out) == []


def test_verify_finds_what_was_changed(tmp_path: Path, made: Path) -> None:
    cells, out = planned(tmp_path, made)
    run_plans([p.cell for p in cells], out, 1, StopFlag())
    reporting.write_study_report(out)
    folder = out / "cells" / cells[0].cell.key
    record = read_json(folder / "cell.json", "record")
    record["summary"]["end"]["mass"] += 0.1
    write_json(folder / "cell.json", record)
    with (out / "cells" / cells[1].cell.key / "log.jsonl").open("a") as file:
        file.write("{}\n")
    verdicts = read_json(out / "verdicts.json", "verdicts")
    verdicts["E1"]["verdict"] = "reproduced"
    write_json(out / "verdicts.json", verdicts)
    found = "\n".join(reporting.verify(out))
    assert "mass differs" in found and "log.jsonl: the file was changed" in found
    assert "the verdict is" in found


def test_a_published_copy_is_small_and_verifies(tmp_path: Path, made: Path) -> None:
    cells, out = planned(tmp_path, made)
    run_plans([p.cell for p in cells[:2]], out, 1, StopFlag())
    copy = tmp_path / "published"
    assert reporting.publish(out, copy) == 2
    assert not list(copy.rglob("*.npz")) and not list(copy.rglob("*.safetensors"))
    assert (copy / "report.md").is_file() and reporting.verify(copy) == []
    with pytest.raises(InputError, match="exists"):
        reporting.publish(out, copy)


def test_jobs_side_by_side_give_what_one_gives(tmp_path: Path, made: Path) -> None:
    cells, out = planned(tmp_path, made)
    wanted = [p.cell for p in cells]
    run_plans(wanted[:2], out, 1, StopFlag())
    other = tmp_path / "other"
    shutil.copytree(made, other / "stages")
    run_plans(wanted[:2], other, 2, StopFlag())
    for cell in wanted[:2]:
        a, b = (read_json(x / "cells" / cell.key / "cell.json", "record") for x in (out, other))
        assert a["summary"] == b["summary"]


def test_a_crash_is_reported_and_the_other_cells_are_kept(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, out = planned(tmp_path, made)
    broken = cells[0].cell.key

    def sometimes(cell: Cell, folder: Path) -> dict[str, object]:
        if cell.key == broken:
            raise RuntimeError("the disk is on fire")
        return run_cell(cell, folder)

    monkeypatch.setattr("spade.study.runner.run_cell", sometimes)
    with pytest.raises(BackendError, match=r"1 of 4 jobs failed.*on fire.*3 cells are finished"):
        run_plans([p.cell for p in cells], out, 1, StopFlag())
    monkeypatch.undo()
    assert run_plans([p.cell for p in cells], out, 1, StopFlag())["already"] == 3


def test_a_stop_starts_nothing_more(tmp_path: Path, made: Path) -> None:
    cells, out = planned(tmp_path, made)
    stop = StopFlag()
    stop.request()
    assert run_plans([p.cell for p in cells], out, 1, stop)["finished"] == 0


def test_another_folder_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(InputError, match="not a folder of the study"):
        write_plan(tmp_path, {}, {}, "quick")


def test_a_start_is_named_by_its_whole_chain() -> None:
    start = Start(chain=("dial=1e-2", "sft=0.2~1"))
    assert start.parent == Start(chain=("dial=1e-2",)) and start.parent.parent == Start()
    assert len({start.key, Start(chain=("dial=1e-2", "sft=0.2~2")).key, Start().key}) == 3


def miniature(cell: Cell) -> Cell:
    """The same kind of cell in a fraction of a second."""
    rl = replace(cell.rl, steps=2, batch=2, group=2, prompts=min(cell.rl.prompts, 4), breadth=1)
    chain = tuple(stage for stage in cell.chain if not stage.startswith("dial"))
    base = None if cell.base is None else ()
    return replace(
        cell, size="XS", trunk_steps=12, probes=2, evals=1, chain=chain, base=base, until=None, rl=rl
    )


def nothing_empty(figure: Any, folder: Path, name: str) -> list[Path]:
    """In place of `save`, which takes most of the time: something is shown, and every panel says what."""
    assert any(axis.lines or axis.patches for axis in figure.axes), name
    assert all(axis.get_title() and axis.get_ylabel() for axis in figure.axes), name
    return [folder / name]


def test_every_experiment_runs_in_miniature_and_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First and last arm of each: all families, kinds, stages other than dials, and rungs of the ladder."""
    for module in ("figures", "panels"):
        monkeypatch.setattr(f"spade.study.{module}.save", nothing_empty)
    experiments = {n: load_experiment(n) for n in experiment_names() if n not in ("E1", "E3", "E5", "E13")}
    plans = {}
    for name, experiment in experiments.items():
        arms = [p for p in plan(experiment, "full", 1) if not any("@" in stage for stage in p.cell.chain)]
        plans[name] = [replace(arm, cell=miniature(arm.cell)) for arm in (arms[0], arms[-1])]
    out = tmp_path / "out"
    write_plan(out, experiments, plans, "full")
    cells = [p.cell for planned in plans.values() for p in planned]
    counts = run_plans(cells, out, 1, StopFlag())
    assert counts["finished"] == counts["cells"] == len({c.key for c in cells})
    for name, entry in reporting.read_plan(out).items():
        runs, rows = reporting.load_runs(out, entry)
        assert {r.status for r in runs} == {"finished"} and len(rows) == len({r.summary["key"] for r in runs})
        verdict = judge(name, runs, len(entry["cells"]))
        assert (verdict is None) == (name == "E10")
        tables = tables_of(name, entry["title"], runs)
        assert all(len(row) == len(table.header) for table in tables for row in table.rows)
        assert all(table.rows for table in tables) and tables[0].name == f"T{name[1:]}"
        (drawn,) = figures_of(name, runs, rows, out)
        assert drawn.name.startswith(f"{name}-")
    assert reporting.verify(out) == []
