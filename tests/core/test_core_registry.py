"""Names to things: rows, entry points, files, and near misses."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from spade import registry
from spade.errors import ConfigError, InputError


@pytest.fixture(autouse=True)
def _own_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_ROWS", {kind: dict(rows) for kind, rows in registry._ROWS.items()})
    yield


@pytest.mark.parametrize(
    "where", [target for rows in registry._ROWS.values() for target in rows.values()], ids=str
)
def test_every_row_in_the_tree_points_to_something(where: str) -> None:
    module, _, attribute = where.partition(":")
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None, f"{module} does not exist"
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    assert attribute in {getattr(node, "name", None) for node in tree.body}


def test_register_and_resolve() -> None:
    registry.register("sink", "joiner", "os.path:join")
    registry.register("sink", "joiner", "os.path:join")
    assert "joiner" in registry.names("sink")
    assert registry.resolve("sink", "joiner")("a", "b") == "a/b"


def test_a_second_owner_is_refused_and_both_are_named() -> None:
    registry.register("sink", "x", "one:A")
    with pytest.raises(ConfigError, match=r"one:A and two:B"):
        registry.register("sink", "x", "two:B")


def test_unknown_names_and_kinds_suggest() -> None:
    with pytest.raises(ConfigError, match=r"unknown suite 'heldot'; did you mean 'heldout'\?"):
        registry.resolve("suite", "heldot")
    with pytest.raises(ConfigError, match="did you mean 'suite'"):
        registry.names("suit")


def test_missing_module_and_missing_attribute() -> None:
    registry.register("sink", "gone", "no_such_module_here:A")
    registry.register("sink", "half", "os.path:nothing")
    with pytest.raises(InputError, match="no_such_module_here"):
        registry.resolve("sink", "gone")
    with pytest.raises(InputError, match="no 'nothing'"):
        registry.resolve("sink", "half")


def test_file_form(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class Thing: value = 3\n")
    assert registry.resolve("source", f"{file}:Thing").value == 3
    with pytest.raises(InputError, match="no file"):
        registry.resolve("source", f"{tmp_path}/other.py:Thing")
    file.write_text("class Thing(:\n")
    with pytest.raises(InputError, match="line 1 is not valid Python"):
        registry.resolve("source", f"{file}:Thing")
    file.write_text("value = nothing\n")
    with pytest.raises(InputError, match="fails when imported"):
        registry.resolve("source", f"{file}:Thing")


def test_entry_points_join_and_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"spade.suites": [importlib.metadata.EntryPoint("extra", "os.path:join", "spade.suites")]}
    monkeypatch.setattr(registry, "entry_points", lambda group: points.get(group, []))
    assert {"extra", "heldout", "validation"} <= set(registry.names("suite"))
    points["spade.suites"] = [importlib.metadata.EntryPoint("heldout", "other:thing", "spade.suites")]
    with pytest.raises(ConfigError, match="claimed by both"):
        registry.names("suite")


def test_closest() -> None:
    assert registry.closest("lrr", ["lr", "kl"]) == "lr"
    assert registry.closest("zzz", ["lr", "kl"]) is None


def test_a_long_list_of_names_is_cut() -> None:
    names = [f"task-{n:02}" for n in range(30)]
    assert registry.suggestion("zzz", names).endswith("task-19 and 10 more")
    assert registry.suggestion("zzz", ["a", "b"]) == "; known: a, b"
