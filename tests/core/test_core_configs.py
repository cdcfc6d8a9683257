"""Shipped configs: each loads, and an ablation changes exactly what its name says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from spade.config_load import config_names, config_roots, diff_configs, load_config

ROOT = config_roots()[0]
ABLATIONS = [name for name in config_names() if name.startswith("ablations/")]
BASES = {"games-30b-a3b": "published/games-30b-a3b", "embedded": "embedded/games"}


def named_keys(tree: Any, prefix: str = "") -> set[str]:
    """Dotted keys a YAML file sets itself."""
    if not isinstance(tree, dict):
        return {prefix.rstrip(".")}
    return {key for name, value in tree.items() for key in named_keys(value, f"{prefix}{name}.")}


def changes_of(name: str) -> set[str]:
    """Keys of the change files an ablation is put together from, and its own."""
    tree = yaml.safe_load((ROOT / f"{name}.yaml").read_text())
    parents = tree.pop("extends")
    keys = named_keys(tree) if tree else set()
    for parent in [parents] if isinstance(parents, str) else parents:
        if parent.startswith("changes/"):
            keys |= named_keys(yaml.safe_load((ROOT / f"{parent}.yaml").read_text()))
    return keys


@pytest.mark.parametrize("name", config_names())
def test_every_shipped_config_loads(name: str) -> None:
    assert load_config(name).name == Path(name).name


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_changes_exactly_what_it_says(name: str) -> None:
    base = BASES[name.split("/")[1]]
    changed = {key for key, _, _ in diff_configs(load_config(base), load_config(name))} - {"name"}
    assert changed and changed <= changes_of(name)  # a base may have one of the values already


def test_the_two_by_two_of_frozen_designer_and_memory_is_there() -> None:
    for family, base in BASES.items():
        cells = {
            (cfg.design.policy, cfg.design.memory.enabled)
            for cfg in map(
                load_config,
                (
                    base,
                    f"ablations/{family}/no-memory",
                    f"ablations/{family}/frozen-designer",
                    f"ablations/{family}/frozen-designer-no-memory",
                ),
            )
        }
        assert cells == {(p, m) for p in ("shared", "frozen") for m in (True, False)}


def test_ablations_share_no_copied_text() -> None:
    """Composition only: an ablation file is a line of `extends` and at most one setting of its own."""
    for name in ABLATIONS:
        lines = [row for row in (ROOT / f"{name}.yaml").read_text().splitlines() if not row.startswith("#")]
        assert len(lines) <= 3 and re.match(r"extends: ", lines[0])
