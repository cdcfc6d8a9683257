"""The model card: which figures hold, and what is written."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from spade.cli import main
from spade.embedded import cli
from spade.embedded.card import BARS, KINDS, Card, read_cards, write_card

GOOD = Card(500, 0.7, 150, 0.4, 0.6, 0.1, 0.9, 100, 800, "L3", {"syntax": 3}, {"GuessEnv": 40})


def test_good_figures_hold() -> None:
    assert GOOD.holds()
    edge = dataclasses.replace(GOOD, accept_rate=0.6, distinct=100, plain_return=0.25, hinted_return=0.40)
    assert edge.holds()
    assert dataclasses.replace(GOOD, plain_return=0.65, hinted_return=0.81).holds()


@pytest.mark.parametrize(
    "change",
    [
        {"accept_rate": 0.59},
        {"distinct": 99},
        {"plain_return": 0.24},
        {"plain_return": 0.66, "hinted_return": 0.9},
        {"hinted_return": 0.54},
        {"hinted_return": 0.3},
    ],
)
def test_each_bar_alone_can_fail(change: dict[str, float]) -> None:
    assert not dataclasses.replace(GOOD, **change).holds()


def test_bars_are_the_promised_ones() -> None:
    assert BARS == {"accept_rate": 0.60, "distinct": 100, "plain_low": 0.25, "plain_high": 0.65, "gain": 0.15}


def test_card_files_say_what_was_measured(built: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(built[0], folder)
    other = dataclasses.replace(GOOD, accept_rate=0.812, families={"StoreEnv": 9})
    write_card(folder, {"games": GOOD, "tool use": other})
    assert read_cards(folder) == {"games": GOOD, "tool use": other}
    text = (folder / "README.md").read_text()
    figures = ("0.700", "150", "0.400", "0.600", "0.100", "0.900")
    for part in (*figures, "0.812", "L3", "syntax 3", "GuessEnv 40", "StoreEnv 9", "3072-entry"):
        assert part in text
    assert "parameters" in text and "{" not in text


@pytest.mark.parametrize(("card", "code"), [(GOOD, 0), (dataclasses.replace(GOOD, distinct=3), 1)])
def test_card_verb_exits_with_the_verdict(
    card: Card, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured(*args: object, **kwargs: object) -> Card:
        cli.log("measuring")
        return card

    monkeypatch.setattr("spade.embedded.card.measure", measured)
    assert main.main(["embedded", "card", "--ckpt", "scripted:null", "--json"]) == code
    captured = capsys.readouterr()
    assert {kind: Card(**row) for kind, row in json.loads(captured.out).items()} == dict.fromkeys(KINDS, card)
    assert captured.err == "measuring\n" * len(KINDS)
