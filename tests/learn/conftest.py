"""A tiny random Llama on disk, plain samples, and settings without the config loader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from spade.config import LearnerConfig
from spade.types import Sample

VOCAB = 64


def save_llama(folder: Path, *, tied: bool = True, kv_heads: int = 1, seed: int = 0) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=8,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def make_samples() -> Callable[..., list[Sample]]:
    """`make(n, seed=0, roles=(...))`: multi-turn rows of 20 to 90 tokens with observation gaps."""

    def make(n: int, seed: int = 0, roles: tuple[str, ...] = ("agent", "designer")) -> list[Sample]:
        rng = np.random.default_rng(seed)
        return [_sample(rng, roles[i % len(roles)], f"g{i // 4}") for i in range(n)]

    return make


def _sample(rng: np.random.Generator, role: str, group: str) -> Sample:
    prompt = tuple(int(t) for t in rng.integers(0, VOCAB, rng.integers(5, 30)))
    length = int(rng.integers(15, 60))
    mask = tuple(int(i % 11 < 7) for i in range(length))
    logprobs = tuple(-float(rng.uniform(2, 6)) if m else 0.0 for m in mask)
    completion = tuple(int(t) for t in rng.integers(0, VOCAB, length))
    return Sample(prompt, completion, mask, logprobs, float(rng.normal()), role, group=group)


@pytest.fixture
def cfg() -> Callable[..., LearnerConfig]:
    """`cfg(lr=1e-2)`: learner settings in float32 without alarm unless said otherwise."""
    return lambda **changes: LearnerConfig(**{"autocast": "off", "mismatch_alarm": 0.0, **changes})
