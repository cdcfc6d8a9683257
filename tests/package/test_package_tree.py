"""The shape of the checkout, its install files, and what its Makefile says to a user."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = {"pyproject.toml", "README.md", "Makefile", "LICENSE", "CHANGELOG.md", "constraints.txt"}
TOP_LEVEL = FILES | {"spade", "evals", "baselines", "configs", "results", "tests", "benchmarks", "docs"}
MADE_BY_TOOLS = {"runs", "build", "dist", "__pycache__"}
MAKE = shutil.which("make")


def test_top_level_is_exactly_the_agreed_list() -> None:
    found = {p.name for p in ROOT.iterdir() if not p.name.startswith(".") and p.suffix != ".egg-info"}
    assert found - MADE_BY_TOOLS == TOP_LEVEL
    assert (ROOT / ".ci" / "run").is_file()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is not a git checkout")
def test_published_results_are_not_ignored_by_git() -> None:
    names = ["results/runs/a/b/run.json", "results/records/a", "results/tables/a/x.md", "runs/a/run.json"]
    done = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["runs/a/run.json"]


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert script.startswith("#!/usr/bin/env bash\n") and "set -euo pipefail" in script
    assert re.findall(r"^\s*make .*$", script, re.M) == ["make test"]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(row) == 2 for row in rows), rows
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in rows}


def test_constraints_pin_every_direct_dependency_once_and_for_every_platform() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[<>=!~;\[ ]", text)[0]).lower() for text in wanted}
    assert names - set(pins()) == set()
    assert [v for v in pins().values() if "+" in v] == []  # +cpu and the like exist on one platform only
    assert [n for n in pins() if n.startswith(("nvidia-", "triton", "spade"))] == []


def test_installed_versions_are_the_tested_ones() -> None:
    """A warning in test form: numbers published from another set of versions are not reproducible."""
    from importlib.metadata import PackageNotFoundError, version

    def installed(name: str) -> str | None:
        try:
            return version(name).split("+")[0]
        except PackageNotFoundError:
            return None

    core = ("torch", "transformers", "tokenizers", "numpy", "pydantic", "scipy")
    assert {n: installed(n) for n in core} == {n: pins()[n] for n in core}


def make(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    assert MAKE is not None
    return subprocess.run(
        [MAKE, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, env={**os.environ, **env}
    )


@pytest.mark.skipif(MAKE is None, reason="there is no make on the PATH")
def test_make_without_a_target_explains_the_targets() -> None:
    done = make()
    assert done.returncode == 0
    named = re.findall(r"^make ([a-z-]+)", done.stdout, re.M)
    assert named == [
        "demo", "arms", "test", "lint", "results", "soak", "test-extras", "test-vllm", "test-interop",
        "clean", "distclean",
    ]  # fmt: skip


@pytest.mark.skipif(MAKE is None, reason="there is no make on the PATH")
def test_an_old_python_is_refused_in_one_sentence(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    pretend = "import sys; sys.version_info = (3, 9, 2); exec(sys.argv[1])"
    old.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{pretend}' \"$2\"\n")
    old.chmod(0o755)
    done = make(f"VENV={tmp_path / 'venv'}", f"PYTHON={old}", f"{tmp_path / 'venv'}/bin/python")
    assert done.returncode != 0 and "SPADE needs Python 3.11 or newer" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.skipif(MAKE is None, reason="there is no make on the PATH")
def test_no_python_at_all_is_refused_in_one_sentence(tmp_path: Path) -> None:
    done = make(f"VENV={tmp_path / 'venv'}", "PYTHON=", f"{tmp_path / 'venv'}/bin/python")
    assert done.returncode != 0 and "no such python3 is on the PATH" in done.stderr


@pytest.mark.skipif(MAKE is None, reason="there is no make on the PATH")
def test_the_demo_recipe_uses_existing_verbs_and_configs() -> None:
    from spade.cli.main import VERBS
    from spade.config_load import config_names

    recipe = make("--dry-run", "--always-make", "demo").stdout
    commands = re.findall(r"^\S*bin/spade (\S+) (\S+)", recipe, re.M)
    assert [verb for verb, _ in commands] == ["eval", "train", "train", "eval", "eval", "compare"]
    assert {verb for verb, _ in commands} <= set(VERBS)
    assert {config for verb, config in commands if verb == "train"} <= set(config_names())


@pytest.mark.skipif(MAKE is None, reason="there is no make on the PATH")
def test_the_recipe_of_all_arms_takes_keys_and_ends_with_tables_and_report() -> None:
    done = make(
        "--dry-run", "--always-make", "arms", "SEEDS=3 4", "ARMS=a", "ARMS_FLAGS=budget.total_tokens=9"
    )
    text = done.stdout
    assert done.returncode == 0, done.stderr
    assert "train demo seed=$s budget.total_tokens=9 out=$run --with-baselines" in text
    assert "train demo-fixed-pool-replay seed=$s budget.total_tokens=9" in text
    assert "compare a --suite heldout --reference $row --out a/compare-to-$row" in text
    assert "report a/demo-s3 a/demo-s4 --beside a --reference embedded -o a/report.html" in text


@pytest.mark.skipif(MAKE is None, reason="there is no make on the PATH")
def test_the_makefile_keeps_to_what_make_3_81_knows() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert not re.search(r"\.ONESHELL|\$\(file |^\w+ *!=|::=|^define \w+ *=", text, re.M)


@pytest.mark.skipif(sys.platform != "linux", reason="the soak reads /proc")
def test_a_short_soak_leaves_nothing_behind() -> None:
    command = [sys.executable, "benchmarks/soak.py", "--programs", "63", "--at-once", "8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    good = [n for name, n in report["outcomes"].items() if name.startswith("good ")]
    assert sum(good) > 0 and report["wrong"] == []
    assert set(report["left"].values()) == {0}
