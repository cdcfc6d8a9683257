"""What the training loop needs of a learner. `CompactLearner` and `TrlLearner` are the two there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from spade.types import Sample

Temperatures = float | Mapping[str, float]
"""Sampling temperature: one number, or one a role."""
Logprobs = Sequence[npt.ArrayLike]
"""One array a sample, one number a completion token."""


class Learner(Protocol):
    """Owns the trainable policy and its optimiser. Knows samples, not roles' meaning nor environments.

    With several processes only that of rank 0 is called; the others are told (`spade.learn.parallel`).
    """

    version: int
    """Optimiser steps that moved a weight."""

    @property
    def model(self) -> Any:
        """The Hugging Face model."""
        ...

    def step(
        self,
        samples: Sequence[Sample],
        temperature: Temperatures = 1.0,
        lr_scale: float = 1.0,
        *,
        old: Logprobs | None = None,
        reference: Logprobs | None = None,
    ) -> dict[str, float]:
        """Train on `samples` as `LearnerConfig` says; returns flat metrics. See `CompactLearner.step`."""
        ...

    def score(
        self, samples: Sequence[Sample], temperature: Temperatures = 1.0
    ) -> list[npt.NDArray[np.float32]]:
        """Present log-probs: per sample an array over completion tokens, 0.0 where unmasked."""
        ...

    def entropies(
        self, samples: Sequence[Sample], temperature: Temperatures = 1.0
    ) -> tuple[list[npt.NDArray[np.float32]], list[npt.NDArray[np.float32]]]:
        """Log-probs and exact entropies in nats at the sampled tokens, per sample."""
        ...

    def named_weights(self) -> Iterator[tuple[str, Any]]:
        """(name, tensor) as in the Hugging Face state dict: what a serving engine loads."""
        ...

    def save(self, folder: str | Path) -> None:
        """Write the model into `folder` so that Hugging Face tools can load it."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything `load_state_dict` needs, as plain tensors and numbers."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there, as if nothing had happened."""
        ...

    def close(self) -> None:
        """Release threads and other processes. Idempotent."""
        ...
