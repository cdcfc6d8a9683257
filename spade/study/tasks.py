"""What a task is. Every prompt has the grammar `<bos> <tag> x1 .. xn <sep>`, every response L letters.

What is right is a product of per-position sets, `allowed_BLM`, so that a response is right iff each of its
letters is allowed at its place; known behaviours have the same form. Axes: `_B` prompts, `_L` places of the
response, `_M` letters of the alphabet, `_K` behaviours. Responses are letter indices, not token ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from spade.errors import InputError
from spade.study.vocabulary import BOS, SEP

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


LENGTH = 4
"""Letters of a response, in every family."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """A batch of prompts of one family."""

    ids_BP: Ints
    domains: tuple[str, ...]
    allowed_BLM: Bools
    """What is right."""
    target_BL: Ints
    """One right response: the reference of graded rewards."""
    known_BKLM: Bools
    """Known behaviours."""

    def __len__(self) -> int:
        return len(self.domains)

    def take(self, rows: Sequence[int] | Ints) -> Prompts:
        """Some of the prompts, repeats allowed."""
        at = np.asarray(rows, np.int64)
        return Prompts(
            self.ids_BP[at],
            tuple(self.domains[int(i)] for i in at),
            self.allowed_BLM[at],
            self.target_BL[at],
            self.known_BKLM[at],
        )


class Family(Protocol):
    """One task family."""

    name: str
    alphabet: tuple[int, ...]
    """Token ids of the letters."""
    behaviours: tuple[str, ...]
    domains: tuple[str, ...]
    """The domain the study asks about first, then the others."""
    answer_places: tuple[int, ...]
    """Places that make up the answer; the rest of a response is how it was reached."""
    format_LM: Bools
    """Letters that the format allows at each place."""

    def prompts(self, domain: str, split: str, count: int) -> Prompts:
        """The first `count` prompts of a domain; `split` is train or probe, disjoint in their inputs where a
        family has more than one. Raises `InputError` when there are fewer."""
        ...

    def documents(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """Pretraining rows: prompt ids (count, P) and responses (count, L), without the wanted behaviour in
        the first domain."""
        ...

    def others(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """As `documents`, of the first domain only: what the model is to go on saying there."""
        ...


def one_hot(values: Ints, letters: int) -> Bools:
    """(..., L) letters to (..., L, M) sets of one."""
    return np.asarray(values[..., None] == np.arange(letters))


def joined(parts: Sequence[Prompts]) -> Prompts:
    """Several batches of one family as one."""
    return Prompts(
        np.concatenate([p.ids_BP for p in parts]),
        tuple(d for p in parts for d in p.domains),
        np.concatenate([p.allowed_BLM for p in parts]),
        np.concatenate([p.target_BL for p in parts]),
        np.concatenate([p.known_BKLM for p in parts]),
    )


def is_right(allowed_BLM: Bools, responses_BL: Ints) -> Bools:
    """Whether response b is right for prompt b, shape (B,)."""
    return np.asarray(np.take_along_axis(allowed_BLM, responses_BL[..., None], -1)[..., 0].all(-1))


def all_responses(letters: int, length: int = LENGTH) -> Ints:
    """Every response in the order of enumeration (last place fastest), shape (M^L, L)."""
    grid = np.indices((letters,) * length).reshape(length, -1)
    return np.ascontiguousarray(grid.T)


def members(allowed_BLM: Bools) -> Bools:
    """Which of all responses lie in each product set, shape (B, M^L)."""
    out = np.ones((len(allowed_BLM), 1), bool)
    for place in range(allowed_BLM.shape[1]):
        out = (out[:, :, None] & allowed_BLM[:, place][:, None, :]).reshape(len(allowed_BLM), -1)
    return out


def with_frame(tags: Ints, x: Ints) -> Ints:
    """Prompts `<bos> tag x.. <sep>` from tags (N,) and token ids (N, n)."""
    column = np.ones((len(tags), 1), np.int64)
    return np.concatenate([BOS * column, tags[:, None], x, SEP * column], 1)


def enough(wanted: int, there: int, family: str, split: str) -> None:
    """Raise `InputError` when a split has fewer prompts than wanted."""
    if wanted > there:
        raise InputError(f"the family {family} has {there} {split} prompts, {wanted} were asked for.")
