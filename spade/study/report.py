"""From finished cells to tables, figures, verdicts and one page; and the checks of `spade study verify`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spade.errors import InputError
from spade.files import atomic_write, file_sha256, read_json, read_jsonl, write_json
from spade.study.figures import Rows, figures_of
from spade.study.grid import load_experiment
from spade.study.layouts import tables_of
from spade.study.pairs import drive
from spade.study.real import cell_key
from spade.study.settings import cell_from, finished
from spade.study.verdicts import Run, Verdict, judge

PUBLISHED = ("cell.json", "config.yaml", "log.jsonl", "env.json")
"""Files of a cell that a published copy holds."""
TOLERANCE = 1e-4
"""Differences that single precision in `dist.npz` explains."""


def read_plan(out: Path) -> dict[str, Any]:
    """`plan.json` of a study folder. Raises `InputError` when it is none."""
    entries: dict[str, Any] = read_json(out / "plan.json", "study plan")["experiments"]
    return entries


def load_runs(out: Path, entry: dict[str, Any]) -> tuple[list[Run], Rows]:
    """Finished runs of one planned experiment, in planned order, and their log rows by cell."""
    runs, rows = [], {}
    for planned in entry["cells"]:
        folder = out / "cells" / planned["key"]
        if not finished(folder):
            continue
        record = read_json(folder / "cell.json", "cell record")
        summary = {**record["summary"], "key": planned["key"], "seconds": record["seconds"]}
        trunk = int(record["cell"].get("trunk_seed", 0))
        runs.append(Run(planned["labels"], planned["seed"], trunk, summary, record["status"]))
        rows[planned["key"]] = read_jsonl(folder / "log.jsonl")
    return runs, rows


def write_study_report(out: Path) -> dict[str, Any]:
    """Write tables/, figures/, verdicts.json and report.md into a study folder; returns the verdicts."""
    plan = read_plan(out)
    for name in ("tables", "figures"):
        (out / name).mkdir(exist_ok=True)
    verdicts: dict[str, Any] = {}
    blocks = ["# Study: what reinforcement learning does to an output distribution", _environment(out)]
    body: list[str] = []
    for name in sorted(plan, key=lambda n: (n[0] != "E", int(n[1:]) if n[1:].isdigit() else 99)):
        entry = plan[name]
        runs, rows = load_runs(out, entry)
        if not runs:
            verdicts[name] = {
                "verdict": "inconclusive",
                "numbers": {"runs": 0, "planned": len(entry["cells"])},
            }
            body.append(
                f"## {name}. {entry['title']}\n\nNo finished cell yet, of {len(entry['cells'])} planned."
            )
            continue
        verdict = judge(name, runs, len(entry["cells"]))
        if verdict is not None:
            verdicts[name] = {"rule": verdict.rule, "verdict": verdict.verdict, "numbers": verdict.numbers}
        tables = tables_of(name, entry["title"], runs)
        for table in tables:
            table.write(out / "tables")
        figures = figures_of(name, runs, rows, out / "figures")
        body.append(_section(out, name, entry, runs, verdict, [t.markdown() for t in tables], figures))
        body += [text] if (text := drive(rows.values())) else []
    write_json(out / "verdicts.json", verdicts)
    blocks += [_overview(plan, verdicts), *body]
    atomic_write(out / "report.md", "\n\n".join(b.strip() for b in blocks if b) + "\n")
    return verdicts


def _section(
    out: Path, name: str, entry: dict[str, Any], runs: Sequence[Run], verdict: Verdict | None,
    tables: Sequence[str], figures: Sequence[Path],
) -> str:  # fmt: skip
    try:
        question = load_experiment(name).question
    except InputError:
        question = ""  # a grid of the user's own: its file may be gone
    failed = [f"{r.labels} seed {r.seed}" for r in runs if r.status != "finished"]
    seconds = sum(r.summary["seconds"] for r in runs)
    lines = [f"## {name}. {entry['title']}", question]
    lines.append(
        f"Preset {entry['preset']}: {len(runs)} of {len(entry['cells'])} cells finished, in "
        f"{seconds / 60:.1f} minutes of one process."
    )
    if failed:
        lines.append(f"Diverged, counted as failures: {'; '.join(failed)}.")
    if verdict is not None:
        lines.append(f"**Verdict: {verdict.verdict}.** Rule: {verdict.rule}")
    for figure in figures:
        if figure.suffix == ".png":
            lines.append(f"![{name}]({figure.relative_to(out).as_posix()})")
    return "\n\n".join([*(x for x in lines if x), *tables])


def _overview(plan: dict[str, Any], verdicts: dict[str, Any]) -> str:
    lines = ["| experiment | question | verdict |", "| --- | --- | --- |"]
    for name, entry in plan.items():
        verdict = verdicts.get(name, {}).get("verdict", "describes only")
        lines.append(f"| {name} | {entry['title']} | {verdict} |")
    return "\n".join(lines)


def _environment(out: Path) -> str:
    """Where the first finished cell ran."""
    for path in sorted((out / "cells").glob("*/env.json")):
        env = read_json(path, "cell environment")
        hardware, versions = env["hardware"], env["versions"]
        return (
            f"{hardware.get('cpu')}, {hardware.get('cores')} cores, one thread a cell; Python "
            f"{versions.get('python')}, torch {versions.get('torch')}."
        )
    return ""


def check_target(target: Path) -> None:
    """Raise `InputError` if nothing can be published in this folder."""
    if target.is_file() or (target / "plan.json").exists():
        raise InputError(f"{target} exists and holds a study; choose another folder, or remove it first.")


def publish(out: Path, target: Path) -> int:
    """Copy what a repository keeps of a study: report, tables, figures, verdicts, and the records of all
    finished cells without weights and distributions. Returns the number of cells.

    Raises `InputError` when `target` holds a study already; other folders in it are left alone.
    """
    check_target(target)
    write_study_report(out)
    return copy_records(out, target)


def copy_records(out: Path, target: Path) -> int:
    """The copying part of `publish`, for a folder whose report is written."""
    plan = read_plan(out)
    names = ["plan.json", "verdicts.json", "report.md"]
    names += [f"{d}/{p.name}" for d in ("tables", "figures") for p in sorted((out / d).iterdir())]
    keys = {cell["key"] for entry in plan.values() for cell in entry["cells"]}
    done = [key for key in sorted(keys) if finished(out / "cells" / key)]
    names += [f"cells/{key}/{name}" for key in done for name in PUBLISHED]
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out / name, target / name)
    return len(done)


# --- verify ----------------------------------------------------------------------------------------------


def verify(out: Path) -> list[str]:
    """Recompute what the records claim; returns what does not hold.

    Hashes of settings and files, sums of the stored distributions, the final mass, entropy and divergence
    from `dist.npz`, and the verdicts. Files that a published copy leaves out (`*.npz`, `*.safetensors`) are
    not missed. Raises `InputError` when `out` is no study folder.
    """
    read_plan(out)
    wrong: list[str] = []
    for folder in sorted(p for p in (out / "cells").glob("*") if finished(p)):
        record = read_json(folder / "cell.json", "cell record")
        if cell_key(record["cell"]) != folder.name:
            wrong.append(f"{folder.name}: the settings have another hash")
        for name, digest in record["sha256"].items():
            path = folder / name
            if path.is_file() and file_sha256(path) != digest:
                wrong.append(f"{folder.name}/{name}: the file was changed")
        if (folder / "dist.npz").is_file():
            wrong += [f"{folder.name}: {text}" for text in _check_distribution(folder, record)]
    stored = out / "verdicts.json"
    if stored.is_file():
        before = read_json(stored, "verdicts")
        for name, entry in read_plan(out).items():
            runs, _ = load_runs(out, entry)
            found = judge(name, runs, len(entry["cells"])) if runs else None
            if found is not None and before.get(name, {}).get("verdict") != found.verdict:
                wrong.append(f"{name}: the verdict is {found.verdict}, stored is {before.get(name)}")
    return wrong


def _check_distribution(folder: Path, record: dict[str, Any]) -> list[str]:
    from spade.learn.entropy import divergence, entropy
    from spade.study.families import open_family
    from spade.study.measure import Probes

    cell = cell_from(record["cell"])
    family = open_family(cell.family)
    probes = Probes.of(family, cell.probes if family.name != "quote" else 1)
    with np.load(folder / "dist.npz") as data:
        before, after = data["before"].astype(np.float64), data["after"].astype(np.float64)
    end = record["summary"]["end"]
    mass = np.where(probes.right_BY, np.exp(after), 0.0).sum(-1).mean()
    checks = {
        "probabilities do not sum to 1": float(np.abs(np.exp(after).sum(-1) - 1).max()),
        "mass": abs(float(mass) - end["mass"]),
        "entropy": abs(float(entropy(after).mean()) - end["H_seq"]),
        "divergence": abs(float(divergence(after, before).mean()) - end["KL"]) / max(1.0, end["KL"]),
    }
    return [f"{name} differs by {value:.2g}" for name, value in checks.items() if not value <= TOLERANCE]
