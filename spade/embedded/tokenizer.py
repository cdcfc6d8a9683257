"""The embedded model's own tokenizer: byte-level BPE in which a code line is one chunk and a number is one.

Short programs matter at this size: with word-level splits a program is about 250 tokens, with line-level
splits about a third of that, and a difficulty parameter is exactly one token, so a Designer decision is one
sampled token.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

VOCABULARY = 3072
SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
CONTEXT = 2048

CALL = (
    r'<tool_call>\{"name": "|", "arguments": \{(?:"[a-z]+": "?)?|"?, "[a-z]+": "?|"?\}\}</tool_call>'
    r"|<answer>done</answer>"
)
"""The fixed parts of a tool call as JSON, so that a call is a token a name or value and one between."""
SPLIT = rf"\n(?: {{4}})+[^\n0-9]*|{CALL}|\\boxed\{{|[0-9]+| ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|\s"
"""Chunks that merges never cross: an indented code line up to its next number, a number, a word, marks."""

CHAT_TEMPLATE = (
    "{%- if tools %}<|system|>"
    "{%- for t in tools %}{{ t.function.name }}({{ t.function.parameters.properties | join(', ') }}): "
    "{{ t.function.description }}\n{% endfor %}<|end|>{% endif -%}"
    "{%- for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor -%}"
    "{%- if add_generation_prompt %}<|assistant|>{% endif -%}"
)


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> Any:
    """Train the BPE on plain texts and wrap it as a `PreTrainedTokenizerFast` with the chat template."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        max_token_length=160,
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        additional_special_tokens=list(SPECIAL[2:]),
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write the tokenizer files of a Hugging Face checkpoint folder."""
    tokenizer.save_pretrained(str(folder))
