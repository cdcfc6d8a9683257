"""The levels under the conditions of other machines: an ordinary user, a container, an older kernel."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from envs_prison import HERE, NOBODY, ROOT, SITE, make_folder, mirror_python, open_to_all, probe, skip_loudly
from levels_probe import assert_contained

from spade.envs import bwrap

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="levels of Linux")
OWN = Path(sys.executable)


@pytest.fixture(scope="module")
def nobodys_python() -> Iterator[Path]:
    """An interpreter that user 65534 can start, with the package and its dependencies in reach."""
    if os.geteuid() != 0:
        skip_loudly("only root can become another user; the other tests ran as an ordinary user already")
    closed = [str(p) for p in (ROOT / "spade", HERE, SITE) if not open_to_all(p)]
    if closed:
        skip_loudly(f"other users cannot read {', '.join(closed)}")
    folder = make_folder(0o755)
    yield mirror_python(folder)
    shutil.rmtree(folder)


def assert_all_contained(results: dict[str, Any], levels: list[str]) -> None:
    for level in levels:
        assert_contained(results[level])
        assert level == "any" or results[level]["level"] == level


def available(levels: list[str], results: dict[str, Any]) -> list[str]:
    return [level for level in levels if "error" not in results[level]]


# --- an ordinary user ----------------------------------------------------------------------------------


def test_as_an_unprivileged_user(nobodys_python: Path) -> None:
    results = probe(nobodys_python, ["L3", "L2", "L2s"], "--uid", str(NOBODY))
    assert results["uid"] == NOBODY
    there = available(["L3", "L2", "L2s"], results)
    assert "L2s" in there
    assert_all_contained(results, there)
    assert "L2" in there or "Landlock" in results["L2"]["error"]
    assert "L3" in there or "unshare" in results["L3"]["error"]


def test_python_below_a_closed_home() -> None:
    """Workers that become another user could not reach this interpreter any more; they need not."""
    folder = make_folder(0o700)
    try:
        python = mirror_python(folder / "home" / "python")
        results = probe(python, ["L3", "L2", "L2s"])
        assert not open_to_all(python.parent)
        assert_all_contained(results, available(["L3", "L2", "L2s"], results))
        assert "error" not in results["L2s"]
    finally:
        shutil.rmtree(folder)


# --- a container ---------------------------------------------------------------------------------------


def docker(python: Path, *more: str) -> None:
    results = probe(python, ["any", "L3", "L2s"], "--docker", *more)
    assert "unshare" in results["L3"]["error"]
    chosen = results["any"]
    if "Landlock" in " ".join(chosen["refused"]):
        skip_loudly("this kernel has no Landlock")
    assert chosen["level"] == "L2"
    assert_all_contained(results, ["any", "L2s"])


def test_docker_as_whoever_we_are() -> None:
    docker(OWN)


def test_docker_as_root_without_any_capability() -> None:
    """Nobody can become somebody else there; the workers stay root by name."""
    if os.geteuid() != 0:
        skip_loudly("only root can be a root without capabilities")
    docker(OWN, "--no-capability")


def test_docker_as_an_unprivileged_user(nobodys_python: Path) -> None:
    docker(nobodys_python, "--uid", str(NOBODY))


def test_docker_refuses_bwrap_too(tmp_path: Path) -> None:
    if bwrap.find() is None:
        script = tmp_path / "bwrap"  # as far as a container lets it come
        script.write_text('#!/bin/sh\nexec unshare --user --pid --net --mount --fork "$@"\n')
        script.chmod(0o755)
    results = probe(OWN, ["any", "L3"], "--docker", path=f"{tmp_path}:{os.environ['PATH']}")
    assert "(namespaces: own)" in results["L3"]["error"] and "(namespaces: bwrap)" in results["L3"]["error"]
    assert results["any"]["level"] in ("L2", "L2s") and len(results["any"]["refused"]) >= 2


def test_a_policy_that_leaves_namespaces_to_bwrap() -> None:
    if bwrap.find() is None:
        pytest.skip("bwrap is not installed")
    result = probe(OWN, ["any"], "--no-unshare")["any"]
    if result["level"] != "L3":
        pytest.skip(f"bwrap does not work here: {result['refused']}")
    assert result["place"] == "L3 (namespaces: bwrap)"
    assert_all_contained({"any": result}, ["any"])


# --- an older kernel -----------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", ["--no-landlock", "--landlock-off"])
def test_without_landlock_the_strict_filter_alone(condition: str) -> None:
    results = probe(OWN, ["any", "L2"], condition)
    assert "Landlock" in results["L2"]["error"]
    assert results["any"]["level"] == "L2s"
    assert any("Landlock" in reason for reason in results["any"]["refused"])
    assert_all_contained(results, ["any"])
