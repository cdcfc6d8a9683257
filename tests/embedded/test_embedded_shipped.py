"""The shipped model keeps what its card promises."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from spade.config_load import load_config
from spade.embedded.card import KINDS, measure, read_cards
from spade.embedded.tokenizer import CONTEXT, SPECIAL

LIMIT = 16 * 2**20


@pytest.fixture(scope="module")
def carded(shipped_model: Path) -> Path:
    if not (shipped_model / "card.json").is_file() and os.environ.get("SPADE_TEST_MODEL"):
        pytest.skip(f"SPADE_TEST_MODEL={shipped_model} has no card.json: not a released model")
    return shipped_model


def test_size_and_files(shipped_model: Path) -> None:
    files = [p for p in shipped_model.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) <= LIMIT
    assert [p.name for p in files if p.suffix in (".bin", ".pt", ".pth", ".pkl", ".py")] == []
    assert not any(p.is_symlink() for p in files)


def test_card_figures_hold_and_the_readme_mentions_them(carded: Path) -> None:
    text = (carded / "README.md").read_text()
    cards = read_cards(carded)
    assert set(cards) == set(KINDS)
    assert "Not all bars are met" not in text
    for card in cards.values():
        assert card.holds(), card
        assert card.samples >= 500
        assert card.hint_only_return < card.plain_return, "hints must not win by themselves"
        figures = (card.accept_rate, card.plain_return, card.hinted_return, card.hint_only_return)
        for figure in (*(f"{f:.3f}" for f in figures), str(card.distinct), str(card.samples)):
            assert figure in text
    assert "/tmp" not in text and "/work" not in text


def test_recipe_beside_the_weights_is_the_committed_one(carded: Path) -> None:
    from dataclasses import asdict

    from spade.embedded.build import Recipe

    assert json.loads((carded / "recipe.json").read_text())["recipe"] == asdict(Recipe())


def test_transformers_loads_it(shipped_model: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, info = AutoModelForCausalLM.from_pretrained(
        shipped_model, local_files_only=True, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert 1_000_000 <= sum(p.numel() for p in model.parameters()) <= 8_000_000
    assert model.config.max_position_embeddings >= CONTEXT
    tokenizer = AutoTokenizer.from_pretrained(shipped_model, local_files_only=True)
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL)) == list(range(len(SPECIAL)))
    assert len(tokenizer) == model.config.vocab_size


@pytest.mark.parametrize("config", KINDS.values())
async def test_a_fresh_small_measurement_is_in_range(shipped_model: Path, config: str) -> None:
    cfg = load_config(config, ["serving.max_rows=48", "seed=77"])
    card = await measure(str(shipped_model), cfg, samples=40, programs=10, log=lambda text: None)
    assert card.accept_rate >= 0.35, card
    assert card.distinct >= 10
    assert 0.05 <= card.plain_return <= 0.9
    assert card.hinted_return >= card.plain_return - 0.15
    assert card.hint_pass_rate >= 0.4
    assert card.hint_only_return <= max(0.35, card.plain_return)
