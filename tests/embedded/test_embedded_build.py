"""A build of a few thousand tokens writes a checkpoint like any other."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from spade.config import ServingConfig
from spade.embedded.build import Recipe, batches, loss_of, new_model, sharpen
from spade.embedded.samples import Encoded, SampleMaker
from spade.embedded.tokenizer import CONTEXT
from spade.serving.launch import open_chat, resolve_ref
from spade.serving.policy import SamplingParams
from spade.types import Message

Built = tuple[Path, list[str]]


def test_folder_holds_safetensors_and_nothing_pickled(built: Built) -> None:
    names = {p.name for p in built[0].iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "recipe.json"} <= names
    assert [n for n in names if n.endswith((".bin", ".pt", ".pth", ".pkl", ".ckpt"))] == []
    recipe = json.loads((built[0] / "recipe.json").read_text())
    assert recipe["recipe"]["pretrain_tokens"] == 3000 and recipe["minutes"] > 0
    assert "parameters" in built[1][0] and "mechanics" in built[1][0]


def test_transformers_loads_it_without_missing_weights(built: Built) -> None:
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(
        built[0], local_files_only=True, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert model.config.model_type == "llama"
    assert model.config.max_position_embeddings >= CONTEXT == 2048
    assert model.dtype == torch.float32
    assert bool(torch.isfinite(model(torch.tensor([[2, 7, 9]])).logits).all())


def test_the_phases_are_kept_on_the_way(built: Built) -> None:
    """Three models that differ; the last one, sharpened, is the result."""
    stages = built[0].parent / "stages"
    weights = {n: load_file(stages / n / "model.safetensors") for n in ("pretrain", "skill", "sft")}
    embed = "model.embed_tokens.weight"
    assert not torch.equal(weights["pretrain"][embed], weights["skill"][embed])
    assert not torch.equal(weights["skill"][embed], weights["sft"][embed])
    final, norm = load_file(built[0] / "model.safetensors"), "model.norm.weight"
    assert torch.equal(final[embed], weights["sft"][embed])
    assert torch.allclose(final[norm], 1.25 * weights["sft"][norm])
    assert (stages / "pretrain" / "tokenizer.json").read_bytes() == (built[0] / "tokenizer.json").read_bytes()


async def test_local_policy_opens_and_samples(built: Built) -> None:
    ref = resolve_ref(str(built[0]))
    assert ref.kind == "local" and ref.path == built[0]
    chat = await open_chat(ref, ServingConfig(device="cpu", max_rows=4))
    try:
        params = SamplingParams(max_tokens=5, temperature=1.0, seed=1)
        reply = await chat.chat([Message("user", "guess a number")], params=params)
        again = await chat.chat([Message("user", "guess a number")], params=params)
        assert chat.policy.exact_tokens and reply == again
    finally:
        await chat.close()


def test_recipe_shape_and_size() -> None:
    """The default recipe stays in the promised range of parameters, with tied embeddings."""
    model = new_model(Recipe())
    count = sum(p.numel() for p in model.parameters())
    assert 1_000_000 <= count <= 8_000_000
    assert 4 * count <= 16 * 2**20, "float32 weights must fit the size limit of the package"


def test_batches_respect_the_token_limit_and_end(maker: SampleMaker) -> None:
    """The end may overshoot by one pool of 256 samples, which is what is drawn and sorted together."""
    samples, last = 0, 0
    for group, drawn in batches(maker, random.Random(0), 4000, 800):
        width = max(len(s.ids) for s in group)
        assert width * len(group) <= 800 or len(group) == 1
        last += sum(len(s.ids) for s in group)
        assert drawn == last
        samples += len(group)
    assert samples == 256 and last >= 4000


def test_loss_counts_only_trained_tokens_unless_pretraining() -> None:
    model = new_model(Recipe(hidden=32, layers=1, heads=2, feed_forward=64))
    short = Encoded([2, 10, 11, 1], [0, 0, 1, 1], "x")
    long = Encoded([2, 10, 11, 1, 9, 8], [0, 0, 1, 1, 0, 0], "x")
    alone = loss_of(model, [short], every_token=False)
    assert torch.allclose(alone, loss_of(model, [long], every_token=False), atol=1e-5)
    assert torch.allclose(alone, loss_of(model, [short, long], every_token=False), atol=1e-5)
    assert not torch.allclose(alone, loss_of(model, [short], every_token=True), atol=1e-4)


def test_training_lowers_the_loss(built: Built, maker: SampleMaker) -> None:
    from transformers import AutoModelForCausalLM

    trained: Any = AutoModelForCausalLM.from_pretrained(built[0], local_files_only=True)
    fresh = new_model(Recipe(hidden=32, layers=1, heads=2, feed_forward=64))
    group = [maker.draw() for _ in range(8)]
    with torch.no_grad():
        assert loss_of(trained, group, True) < loss_of(fresh, group, True)


def test_sharpening_multiplies_the_logits() -> None:
    model = new_model(Recipe(hidden=32, layers=1, heads=2, feed_forward=64))
    ids = torch.tensor([[2, 7, 9]])
    with torch.no_grad():
        before = model(ids).logits
        sharpen(model, 1.25)
        assert torch.allclose(model(ids).logits, 1.25 * before, rtol=1e-4, atol=1e-6)
