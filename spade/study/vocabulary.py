"""The 32 tokens of the study's world, and their tokenizer file."""

from __future__ import annotations

import json
from pathlib import Path

RULES = ("copy", "reverse", "plus1", "plus3", "swap", "rotate", "negate", "negrev")
"""Names of the rules of the family `rules`; each has a tag."""

DIGITS = tuple("01234567")

WORDS = (
    "<pad>", "<bos>", "<eos>", "<sep>", "<?>",
    *(f"<{rule}>" for rule in RULES),
    "<quote>", "<chain>", "<strategy>", "<A>", "<B>", "<#>",
    *DIGITS,
    *(f"<spare{i}>" for i in range(5)),
)  # fmt: skip
"""Token of every id. The spare ones fill up to 32 and never occur."""

IDS = {word: number for number, word in enumerate(WORDS)}
VOCAB = len(WORDS)
PAD, BOS, EOS, SEP = 0, 1, 2, 3
DIGIT_IDS = tuple(IDS[d] for d in DIGITS)


def encode(text: str) -> list[int]:
    """Token ids of words separated by blanks. Raises KeyError for an unknown word."""
    return [IDS[word] for word in text.split()]


def decode(ids: list[int]) -> str:
    """Words of token ids, separated by blanks."""
    return " ".join(WORDS[i] for i in ids)


def write_tokenizer(folder: Path) -> None:
    """A word-level tokenizer any Hugging Face tool reads: words are separated by blanks."""
    special = [
        {
            "id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True,
        }
        for i, word in enumerate(WORDS[:4])
    ]  # fmt: skip
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": IDS, "unk_token": "<pad>"},
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<pad>",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "model_max_length": 64,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
