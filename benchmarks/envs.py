"""Speed, memory and promptness of the sandbox, in one run, with the load of the machine beside each figure.

    python benchmarks/envs.py [--json | --markdown] [--quick] [--level L2] [--only steps,kills] [--check]

Programs come from `$SPADE_SHARED/cases/planted`, or from `benchmarks/programs` without it. Wall times count
on an idle machine only: a section during which others used more than a tenth of a core is marked busy, and
then the CPU time per operation (of this process, of the workers) is the figure to read. `--quick` does a
tenth of the work, `--check` exits with 1 if a bar is missed. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs_figures import FAST, SLOW, Setting
from envs_sections import SECTIONS
from machine import Load, machine
from tabulate import tabulate

from spade.config import SandboxConfig
from spade.envs.sandbox import Sandbox

OWN = Path(__file__).parent / "programs"


def read_programs() -> tuple[Path, dict[str, str]]:
    """The folder the programs come from, and their texts by name."""
    shared = Path(os.environ.get("SPADE_SHARED", "")) / "cases" / "planted"
    folder = shared if (shared / f"{FAST}.py").is_file() and (shared / f"{SLOW}.py").is_file() else OWN
    return folder, {path.stem: path.read_text() for path in sorted(folder.glob("*.py"))}


async def measure(setting: Setting, only: set[str]) -> list[dict[str, Any]]:
    """All figures as rows, each with the load during its section."""
    rows = []
    for section in SECTIONS:
        name = getattr(section, "__name__", "")
        if only and name not in only:
            continue
        print(f"measuring {name} ...", file=sys.stderr)
        average = os.getloadavg()[0]
        with Load() as load:
            figures = await section(setting)
        for figure in figures:
            rows.append(
                asdict(figure)
                | {"section": name, "missed": figure.missed, "busy": load.busy}
                | {"other_cores": round(load.others, 2), "load_average": round(average, 2)}
            )
    return rows


async def level(setting: Setting) -> str:
    """The isolation level that is measured."""
    async with await Sandbox.start(SandboxConfig(force_level=setting.level)) as sandbox:
        return sandbox.level


def shown(row: dict[str, Any]) -> list[str]:
    """One line of the table."""
    digits = 0 if row["value"] >= 1000 else 2
    bar = "" if row["bar"] is None else f"{'<=' if row['lower'] else '>='} {row['bar']:,.0f}"
    judged = "" if row["bar"] is None else "missed" if row["missed"] else "met"
    load = f"{row['other_cores']:.2f}{' busy' if row['busy'] else ''}"
    return [row["name"], f"{row['value']:,.{digits}f} {row['unit']}", bar, judged, load, row["note"]]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="speed, memory and promptness of the sandbox")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is missed")
    parser.add_argument("--level", help="isolation level (default: the strongest there is)")
    parser.add_argument("--only", default="", help="sections by name, with commas between")
    args = parser.parse_args()
    if sys.platform != "linux":
        parser.error("the benchmark reads /proc and runs on Linux only")
    only = set(filter(None, args.only.split(",")))
    if unknown := only - {getattr(s, "__name__", "") for s in SECTIONS}:
        parser.error(f"there is no section {', '.join(sorted(unknown))}")
    folder, programs = read_programs()
    setting = Setting(programs, args.level, 0.1 if args.quick else 1.0)
    facts = machine() | {"level": asyncio.run(level(setting)), "programs": folder.name}
    rows = asyncio.run(measure(setting, only))
    if args.json:
        print(json.dumps({"machine": facts, "figures": rows}, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in facts.items()))
        headers = ["figure", "value", "bar", "", "others' cores", ""]
        style = "github" if args.markdown else "simple"
        print(tabulate([shown(row) for row in rows], headers, style, disable_numparse=True))
        if any(row["busy"] for row in rows):
            print("busy: others used more than 0.1 cores; wall times of these rows mean little.")
    return 1 if args.check and any(row["missed"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
