"""Text to ids with the structure kept apart: names of special tokens in a text are never those tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SAID = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|python_tag|>")
"""Tokens that are part of what an assistant says, even where a tokenizer flags them as special."""


@dataclass(frozen=True, slots=True)
class Token:
    """An added token: its id, and whether it swallows whitespace on either side."""

    id: int
    special: bool
    lstrip: bool
    rstrip: bool


class Encoder:
    """A tokenizer without the tokens that carry structure. `split` matches the names of `tokens`."""

    def __init__(self, tokenizer: Any, tokens: Mapping[str, Token], split: re.Pattern[str]) -> None:
        from tokenizers import Tokenizer

        data = json.loads(tokenizer.backend_tokenizer.to_str())
        data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] not in tokens]
        data["post_processor"] = data["padding"] = data["truncation"] = None
        self._plain = Tokenizer.from_str(json.dumps(data))
        self._tokenizer = tokenizer
        self.tokens, self.split = tokens, split
        self.by_id = {t.id: t for t in tokens.values()}

    def encode(self, text: str) -> list[int]:
        """Ids of a text without any structure: a token's name is spelled out like any other text."""
        if not text:
            return []
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        if self.by_id.keys().isdisjoint(ids):
            return ids
        out: list[int] = []  # a vocabulary that holds the names as words: break them up
        for k, word in enumerate(self.split.split(text)):
            for run in (word[:1], word[1:]) if k % 2 else (word,):
                out += self._plain.encode(run, add_special_tokens=False).ids if run else []
        return out

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Where each token of a text begins and ends, in characters."""
        return list(self._plain.encode(text, add_special_tokens=False).offsets)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included."""
        text = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return str(text)


class Stream:
    """Ids in the making: neighbouring texts are encoded together, tokens and sampled ids end a run."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._out: list[int] = []
        self._run = ""
        self._strip = False

    def text(self, text: str) -> None:
        """Text without structure."""
        self._run += text.lstrip() if self._strip and not self._run else text
        self._strip = self._strip and not self._run

    def own(self, text: str) -> None:
        """What the assistant said: its markup (thoughts, calls) is made of tokens, what ends turns is not."""
        tokens = self._encoder.tokens
        for word in self._encoder.split.split(text):
            if word in tokens and (word in SAID or not tokens[word].special):
                self.token(tokens[word].id)
            else:
                self.text(word)

    def token(self, index: int) -> None:
        """One token that the template wrote."""
        token = self._encoder.by_id[index]
        if token.lstrip:
            self._run = self._run.rstrip()
        self.ids([index])
        self._strip = token.rstrip

    def ids(self, ids: Sequence[int]) -> None:
        """Ids as they are."""
        self._out += [*self._encoder.encode(self._run), *ids]
        self._run, self._strip = "", False

    def close(self) -> list[int]:
        """All ids."""
        self.ids([])
        return self._out
