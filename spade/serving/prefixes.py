"""Prompts that begin alike: what is computed once for several, and what is copied from a row at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEAST = 16
"""Common tokens from which on copying is considered; a power of two keeps chat headers alone out."""
WORTH = 64
"""Prompt tokens that sharing must save in all: it takes a second pass."""
CANDIDATES = 16
"""Rows at hand that are compared with one prompt."""


@dataclass(frozen=True, slots=True)
class Share:
    """The first `length` tokens of prompt `leader` are those of the `followers`, too."""

    leader: int
    followers: tuple[int, ...]
    length: int


def common(one: bytes, other: bytes) -> int:
    """Number of leading tokens two packed prompts (int32) have in common."""
    a, b = np.frombuffer(one, dtype=np.int32), np.frombuffer(other, dtype=np.int32)
    size = min(len(a), len(b))
    differ = a[:size] != b[:size]
    return int(differ.argmax()) if differ.any() else size


def shares(packed: Sequence[bytes]) -> list[Share]:
    """Groups of different prompts worth computing the common beginning of once.

    A prompt joins the group before it in sorted order while that saves more tokens in all. At least one token
    of each follower is left to compute, since its logits are needed.
    """
    order = sorted(range(len(packed)), key=lambda i: packed[i])
    found: list[Share] = []
    leader, followers, length = -1, list[int](), 0

    def close() -> None:
        if followers:
            found.append(Share(leader, tuple(followers), length))

    for i in order:
        size = 0
        if leader >= 0:
            size = min(common(packed[leader], packed[i]), len(packed[i]) // 4 - 1)
            size = min(size, length) if followers else size
        if size >= LEAST and size * (len(followers) + 1) >= length * len(followers):
            followers.append(i)
            length = size
        else:
            close()
            leader, followers, length = i, [], 0
    close()
    return found if sum(s.length * len(s.followers) for s in found) >= WORTH else []


class Donors:
    """Rows at hand, by their first tokens."""

    def __init__(self, held: Mapping[int, bytes]) -> None:
        self._held = held
        self._by_head: dict[bytes, list[int]] = {}
        for slot, ids in held.items():
            self._by_head.setdefault(ids[: 4 * LEAST], []).append(slot)

    def find(self, ids: bytes) -> tuple[int, int]:
        """(slot, tokens) of the row with the longest common beginning, the last token of `ids` left out;
        0 tokens if there is none worth it."""
        best = (-1, 0)
        if len(ids) <= 4 * LEAST:
            return best
        for slot in self._by_head.get(ids[: 4 * LEAST], [])[-CANDIDATES:]:
            size = min(common(self._held[slot], ids), len(ids) // 4 - 1)
            if size > best[1]:
                best = (slot, size)
        return best
