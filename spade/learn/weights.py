"""Give a serving policy the learner's new weights."""

from __future__ import annotations

import time
from collections.abc import Iterator

from torch import Tensor

from spade.learn.learner import Learner
from spade.serving.policy import Policy


async def publish(learner: Learner, policy: Policy) -> float:
    """Load the learner's weights into `policy` under the learner's version number; returns seconds.

    Every tensor is a fresh copy, made one at a time: the next optimiser step works in place and must not
    reach a policy that kept what it was given. Raises `BackendError` when the engine refuses.
    """
    started = time.perf_counter()
    await policy.load_weights(_copies(learner), learner.version)
    return time.perf_counter() - started


def _copies(learner: Learner) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in learner.named_weights():
        yield name, tensor.clone()
