"""How different the programs of a pool are, as numbers over their texts.

Words are the program's tokens without layout, weighted by TF-IDF: what all programs share (the contract's
names) counts next to nothing. Two measures of one similarity matrix K of cosines:

    mean pairwise cosine      0 nothing in common, 1 all alike
    Vendi score               exp(entropy of the eigenvalues of K / n): an effective number of different
                              programs, between 1 and n (Friedman and Dieng 2023, arXiv 2210.02410)
"""

from __future__ import annotations

import io
import math
import tokenize
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Embed = Callable[[Sequence[str]], NDArray[np.float64]]

LSA_RANK = 128
"""Dimensions of the published measure by LSA."""
TWIN = 0.99
"""Cosine from which two programs count as near duplicates (as in audits of the published pool)."""
MOST = 2000
"""Programs compared with each other; of more, every k-th is taken: the matrix grows with their square."""


@dataclass(frozen=True, slots=True)
class Diversity:
    """Measures over `compared` programs."""

    compared: int
    vendi: float
    mean_cosine: float
    nearest_cosine: float
    """Mean over programs of the cosine to the most similar other one."""
    twins: int
    """Programs with another one at a cosine of `TWIN` or more: the same but for details."""


def words(code: str) -> list[str]:
    """Names, numbers, strings and operators of a program, comments and layout left out."""
    kinds = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP)
    try:
        return [t.string for t in tokenize.generate_tokens(io.StringIO(code).readline) if t.type in kinds]
    except (tokenize.TokenError, SyntaxError):
        return code.split()


def similarities(texts: Sequence[Sequence[str]], rank: int | None = None) -> NDArray[np.float64]:
    """Cosines of TF-IDF vectors, shape (n, n); a text without words of its own is like nothing but itself.

    With `rank` the vectors are first reduced to that many dimensions by a truncated SVD (latent semantic
    analysis), as the second measure of arXiv 2608.19197 does with 128.
    """
    n = len(texts)
    counts = [Counter(text) for text in texts]
    spread = Counter(word for count in counts for word in count)
    index = {word: place for place, word in enumerate(sorted(spread))}
    vectors = np.zeros((n, len(index)))
    for row, count in enumerate(counts):
        for word, number in count.items():
            vectors[row, index[word]] = (1 + math.log(number)) * math.log(n / spread[word])
    if rank is not None:
        left, values, _ = np.linalg.svd(_unit(vectors), full_matrices=False)
        vectors = left[:, :rank] * values[:rank]
    return cosines_of(vectors)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 1e-12))


def cosines_of(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cosines of the rows of `vectors` (n, d), shape (n, n), with ones on the diagonal."""
    vectors = _unit(vectors)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, 1.0)
    return np.asarray(cosines, dtype=np.float64)


def vendi_score(kernel: NDArray[np.float64]) -> float:
    """The effective number behind a positive semi-definite kernel with ones on the diagonal."""
    values = np.linalg.eigvalsh(kernel / len(kernel))
    values = values[values > 1e-12]
    return float(np.exp(-(values * np.log(values)).sum()))


def diversity(codes: Sequence[str], embed: Embed | None = None, rank: int | None = None) -> Diversity:
    """Measures of a pool; of a single program they are 1 and NaN. Raises ValueError without programs.

    `embed` gives one vector a text, shape (n, d), in place of TF-IDF; `rank` is that of `similarities`.
    """
    if not codes:
        raise ValueError("no programs")
    step = -(-len(codes) // MOST)
    texts = codes[::step]
    kernel = (
        similarities([words(code) for code in texts], rank) if embed is None else cosines_of(embed(texts))
    )
    n = len(kernel)
    if n == 1:
        return Diversity(1, 1.0, math.nan, math.nan, 0)
    mean = (float(kernel.sum()) - n) / (n * (n - 1))
    nearest = (kernel - 2 * np.eye(n)).max(axis=1)
    return Diversity(n, vendi_score(kernel), mean, float(nearest.mean()), int((nearest >= TWIN).sum()))
