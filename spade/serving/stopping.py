"""Text of a row while its tokens arrive, and stop texts that look at what is visible of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spade.serving.thoughts import CLOSE_THOUGHT, OPEN_THOUGHT

if TYPE_CHECKING:
    from spade.serving.chat import ChatRenderer

UNFINISHED = "\ufffd"
"""What decoding gives for the first bytes of a character whose other bytes are still to come."""
WAIT = 8
"""Tokens after which such bytes are taken to be no character."""


class Detokenizer:
    """Decodes a growing list of ids; each call gives the text that is new.

    A token is decoded behind the tokens before it, since tokenizers join and space neighbours. Bytes that may
    be the beginning of a character are held back until the character is whole, `WAIT` tokens at most.
    """

    def __init__(self, renderer: ChatRenderer) -> None:
        self._renderer = renderer
        self._from = 0
        self._read = 0

    def feed(self, ids: Sequence[int], last: bool = False) -> str:
        """Text of `ids` beyond what earlier calls gave. `ids` extends the list of the earlier call; `last`
        gives everything that was held back."""
        before = self._renderer.text(ids[self._from : self._read])
        text = self._renderer.text(ids[self._from :])
        held = text.endswith(UNFINISHED) and len(ids) - self._read < WAIT
        if len(text) <= len(before) or (held and not last):
            return ""
        self._from, self._read = self._read, len(ids)
        return text[len(before) :]


class Visible:
    """Splits a growing reply into what is thought and what is visible.

    `opened`: the prompt has opened the thought. A tag that may still be coming is held back.
    """

    def __init__(self, opened: bool = False) -> None:
        self.thinking = opened
        self._held = ""

    def feed(self, text: str, last: bool = False) -> list[tuple[bool, str]]:
        """(is a thought, text) of what is new, in order."""
        text, self._held = self._held + text, ""
        out: list[tuple[bool, str]] = []
        while text:
            tag = CLOSE_THOUGHT if self.thinking else OPEN_THOUGHT
            at = text.find(tag)
            if at < 0:
                cut = len(text) if last else len(text) - overlap(text, tag)
                text, self._held = text[:cut], text[cut:]
                if text:
                    out.append((self.thinking, text))
                break
            if at:
                out.append((self.thinking, text[:at]))
            self.thinking = not self.thinking
            text = text[at + len(tag) :]
        return out


def overlap(text: str, mark: str) -> int:
    """Length of the longest end of `text` that is a beginning of `mark` and not all of it."""
    for size in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-size:]):
            return size
    return 0


class StopTexts:
    """A `SamplingParams.stop_when` for one row: ends it when what is visible holds one of `texts`.

    Nothing in a thought ends a row, unless `plain` says that there are no thoughts. Make a new one for every
    row, since it remembers what it has read.
    """

    def __init__(
        self, renderer: ChatRenderer, texts: Sequence[str], opened: bool = False, plain: bool = False
    ) -> None:
        self._plain = plain
        self._texts = [t for t in texts if t]
        self._reader = Detokenizer(renderer)
        self._visible = Visible(opened)
        self._tail = ""
        self._keep = max((len(t) for t in self._texts), default=1) - 1

    def __call__(self, ids: Sequence[int]) -> bool:
        """Whether the row ends with its last token."""
        new = self._reader.feed(ids)
        for thought, text in [(False, new)] if self._plain else self._visible.feed(new):
            if thought:
                continue
            text = self._tail + text
            if any(mark in text for mark in self._texts):
                return True
            self._tail = text[-self._keep :] if self._keep else ""
        return False


def cut_at(text: str, stop: Sequence[str]) -> str:
    """`text` before the first stop text."""
    ends = [at for mark in stop if mark and (at := text.find(mark)) >= 0]
    return text[: min(ends)] if ends else text
