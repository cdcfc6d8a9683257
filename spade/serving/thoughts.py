"""Thoughts in replies: `<think>...</think>` blocks, wherever they open, and what is left without them."""

from __future__ import annotations

OPEN_THOUGHT, CLOSE_THOUGHT = "<think>", "</think>"


def strip_thoughts(text: str) -> str:
    """Drop `<think>...</think>` blocks, an unopened thought before `</think>` and an unclosed one after."""
    return split_thoughts(text)[1]


def split_thoughts(text: str) -> tuple[str, str]:
    """The thoughts of a reply (their texts, joined by a newline) and the reply without them."""
    thoughts: list[str] = []
    kept: list[str] = []
    position = 0
    while (start := text.find(OPEN_THOUGHT, position)) >= 0:
        stop = text.find(CLOSE_THOUGHT, start)
        if stop < 0:
            thoughts.append(text[start + len(OPEN_THOUGHT) :])
            text = text[:start]
            break
        thoughts.append(text[start + len(OPEN_THOUGHT) : stop])
        kept.append(text[position:start])
        position = stop + len(CLOSE_THOUGHT)
    kept.append(text[position:])
    unopened, tag, visible = "".join(kept).rpartition(CLOSE_THOUGHT)
    if tag:
        thoughts.insert(0, unopened)
    return "\n".join(t.strip() for t in thoughts), visible
