"""Running means of returns, the baselines of the `ema` and `rae` advantages. State of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

CAPACITY = 4096
"""Keys remembered; the one that was not updated for longest leaves first."""


class Baselines:
    """b(key) <- decay * b(key) + (1 - decay) * mean of the step's returns; the first step initialises.

    A step updates every key once, with the mean of all its plays, and the advantages of that same step use
    the new value, as in the paper of SPIRAL. So at its first step a key's baseline is the plain mean.

    * `ema`: key = program and arm, decay 0.5. Source: SPADE (arXiv 2608.19197), public code.
    * `rae`: key = arm and skill, decay 0.95. Source: role-conditioned advantage estimation, SPIRAL
      (arXiv 2506.24119), whose roles are the players of a game; ours are the plain and the hinted player of a
      skill. SPIRAL starts at 0 and updates after each play; the mean of a step does not depend on its order.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.means: dict[str, float] = {}
        self.latest: dict[str, float] = {}
        """Those moved in the latest step, for the metrics; not part of the state."""

    def update(self, returns: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Take the returns of one step by key; the new baselines of these keys. Keys without plays are
        left."""
        for key, values in returns.items():
            if not len(values):
                continue
            mean = float(np.mean(values))
            old = self.means.pop(key, None)
            self.means[key] = mean if old is None else self.decay * old + (1.0 - self.decay) * mean
        for key in list(self.means)[: max(0, len(self.means) - CAPACITY)]:
            if key not in returns:
                del self.means[key]
        self.latest = {key: self.means[key] for key in returns if key in self.means}
        return self.latest

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON values, in order of the latest update."""
        return dict(self.means)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.means = {key: float(value) for key, value in state.items()}
