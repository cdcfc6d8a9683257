"""Chat formats of five model families, restated by us, each with a small stand-in tokenizer.

What `formats/*.jinja` restates are the facts of a format: its special tokens, their order, where newlines
go, where tools and their results are written, what happens to thoughts. The wording of instructions is our
own, and the vocabularies are made of a few lines, so that streams are readable and no weights are needed.

* qwen3: hybrid thinking; thoughts stay only after the user's last message; an empty one switches them off;
* qwen3_instruct: the variant without thinking;
* smollm2: ChatML with a system message of its own where there is none; no place for tools;
* llama3: tools stand in the first user message, results come in the role `ipython` as JSON strings;
* gemma: two roles that must alternate; the system message stands in the first user turn; no place for tools.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMATS = Path(__file__).with_name("formats")
TEXTS = (
    "guess a number between 1 and 9", "the door is locked; find the key", " lower right \\boxed{4}",
    "user assistant system tool model ipython", '{"name": "set_stock", "arguments": {"good": "milk"}}',
    " HINT: halve the range. Set the milk and tea to 4, then answer done.",
    "Put your action in \\boxed{}.\n\n",
    '{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}',
    "call these functions with JSON tools Environment: Cutting Knowledge Date: December 2023 Today",
    "user\n\nassistant\n\nYou can use these tools write a line several calls in one reply are run in order",
)  # fmt: skip
"""Every word of these becomes a token, and all its beginnings with it."""


@dataclass(frozen=True)
class Family:
    """One format. `tokens` are its added tokens; those in `ordinary` are not flagged as special."""

    name: str
    tokens: tuple[str, ...]
    stop: str
    ordinary: tuple[str, ...] = ()
    bos: str | None = None
    extra_stops: tuple[str, ...] = ()
    spaces: bool = False
    """Words marked by U+2581 with byte fallback, instead of byte-level pieces."""
    split: str = ""
    """How byte-level text is cut before merging; the pattern of GPT-2 when empty."""


NEWLINES_TOGETHER = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
THINK = ("<think>", "</think>")
CALL_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
FAMILIES = {
    f.name: f
    for f in (
        Family(
            "qwen3", CHATML, "<|im_end|>", (*CALL_TAGS, *THINK), split=NEWLINES_TOGETHER,
            extra_stops=("<|endoftext|>",),
        ),
        Family("qwen3_instruct", CHATML, "<|im_end|>", (*CALL_TAGS, *THINK), split=NEWLINES_TOGETHER),
        Family("smollm2", CHATML, "<|im_end|>"),
        Family(
            "llama3",
            ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
             "<|eot_id|>", "<|python_tag|>"),
            "<|eot_id|>", bos="<|begin_of_text|>", split=NEWLINES_TOGETHER,
            extra_stops=("<|eom_id|>", "<|end_of_text|>"),
        ),
        Family(
            "gemma", ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"),
            "<end_of_turn>", ("\n\n", "<table>"), bos="<bos>", extra_stops=("<eos>",), spaces=True,
        ),
    )
}  # fmt: skip


def tokenizer(family: Family) -> Any:
    """The stand-in tokenizer of a family, as transformers loads one."""
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    core = _spaced(family) if family.spaces else _byte_level(family)
    core.add_special_tokens([AddedToken(t, normalized=False) for t in family.tokens])
    core.add_tokens([AddedToken(t, normalized=False) for t in family.ordinary])
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=family.stop, pad_token=family.tokens[0], bos_token=family.bos,
        additional_special_tokens=list(family.tokens), clean_up_tokenization_spaces=False,
    )  # fmt: skip
    made.chat_template = (FORMATS / f"{family.name}.jinja").read_text(encoding="utf-8")
    return made


def _byte_level(family: Family) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not family.split)
    split: Any = bytes_
    if family.split:
        split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(family.split), "isolated"), bytes_])
    words = [word for text in TEXTS for word, _ in split.pre_tokenize_str(text)]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(*_vocabulary([*family.tokens, *alphabet], words)))
    core.pre_tokenizer, core.decoder = split, decoders.ByteLevel()
    return core


def _spaced(family: Family) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers

    pieces = [
        *family.tokens,
        *(f"<0x{i:02X}>" for i in range(256)),
        *map(chr, range(33, 127)),
        "\n",
        "\u2581",
    ]
    words = [word for text in TEXTS for word in re.findall(r"\w+|\u2581\w+", text.replace(" ", "\u2581"))]
    vocabulary, merges = _vocabulary(pieces, words)
    core = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    core.normalizer = normalizers.Replace(" ", "\u2581")
    core.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return core


def _vocabulary(pieces: list[str], words: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Pieces, and the merges that build each word from its first letter on; the same in every version."""
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    merges: list[tuple[str, str]] = []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append((word[: end - 1], word[end - 1]))
    return vocabulary, merges
