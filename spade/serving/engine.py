"""What the sampling loop needs of an engine, and the log-probs of given texts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch

from spade.serving.policy import TokenScores, TopTokens
from spade.serving.sampling import top_tokens


class Engine(Protocol):
    """What the sampling loop needs. Rows are positions 0 ... n-1 of the current batch.

    `joins`: prompts may be added while rows are under way.
    """

    joins: bool

    vocab: int
    context: int
    dtype: torch.dtype
    device: torch.device

    def begin(
        self, prompts: Sequence[tuple[int, ...]], rows: int, busy: Collection[int] = ()
    ) -> tuple[np.ndarray, torch.Tensor, int]:
        """Prefill into a batch of `rows` rows, of which `busy` are under way (only where the engine `joins`).

        Returns the row of each prompt, logits (prompts, vocab), and tokens computed.
        """
        ...

    def step(self, tokens: torch.Tensor, live: np.ndarray) -> torch.Tensor:
        """Feed one token to the first len(tokens) rows; `live` marks those that count. Logits (n, vocab)."""
        ...

    def swap(self, one: Sequence[int], other: Sequence[int]) -> None:
        """Exchange rows pairwise."""
        ...

    def keep(self, row: int, ids: tuple[int, ...]) -> None:
        """The row is finished and holds `ids` (prompt plus completion); a later prompt may extend it."""
        ...

    def end(self) -> None:
        """The batch is over."""
        ...

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """New weights; drops every cache."""
        ...

    def clear(self) -> None:
        """Drop every cache and give its memory back."""
        ...

    def rows_for(self, tokens: int) -> int:
        """How many rows of this length fit in memory."""
        ...

    def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], top: int
    ) -> list[TokenScores]:
        """Log-probs of given completions; no cache is used or kept."""
        ...


class ScoreBook:
    """Collects the log-probs of one given completion while logits come in, piece by piece and in order."""

    def __init__(self, completion: Sequence[int], top: int) -> None:
        self._ids, self._top = completion, top
        self._logprobs: list[float] = []
        self._greedy: list[bool] = []
        self._most: list[TopTokens] = []

    def note(self, start: int, logits: torch.Tensor) -> None:
        """Logits (n, vocab) that predict the completion's tokens from number `start` on."""
        ids = torch.tensor(list(self._ids[start : start + len(logits)]), device=logits.device)
        logprobs = torch.log_softmax(logits, -1)
        self._logprobs += logprobs.gather(1, ids[:, None])[:, 0].tolist()
        self._greedy += (logits.argmax(-1) == ids).tolist()
        if self._top:
            self._most += top_tokens(logits, self._top)

    def scores(self) -> TokenScores:
        """What was noted."""
        return TokenScores(tuple(self._logprobs), tuple(self._greedy), tuple(self._most))
