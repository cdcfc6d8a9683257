"""A tiny random Llama on disk and plain samples, for tests and for the processes they start."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spade.types import Sample

VOCAB = 64


def save_llama(folder: Path, *, tied: bool = True, kv_heads: int = 1, seed: int = 0) -> Path:
    """A Llama of some 20,000 weights; its tokenizer files are placeholders."""
    import torch
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


def save_tokenizer(folder: Path) -> None:
    """A tokenizer of that vocabulary that loads: one word a token."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t1", pad_token="t2").save_pretrained(folder)


def make(n: int, seed: int = 0, roles: tuple[str, ...] = ("agent", "designer")) -> list[Sample]:
    """Multi-turn rows of 20 to 90 tokens with observation gaps, the roles in turn."""
    rng = np.random.default_rng(seed)
    return [_sample(rng, roles[i % len(roles)], f"g{i // 4}") for i in range(n)]


def _sample(rng: np.random.Generator, role: str, group: str) -> Sample:
    prompt = tuple(int(t) for t in rng.integers(0, VOCAB, rng.integers(5, 30)))
    length = int(rng.integers(15, 60))
    mask = tuple(int(i % 11 < 7) for i in range(length))
    logprobs = tuple(-float(rng.uniform(2, 6)) if m else 0.0 for m in mask)
    completion = tuple(int(t) for t in rng.integers(0, VOCAB, length))
    return Sample(prompt, completion, mask, logprobs, float(rng.normal()), role, group=group)
