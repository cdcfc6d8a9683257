"""Fitting a tiny model to documents: the loss and the loop that every stage uses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from spade.study.lm import TinyLM
from spade.study.tasks import Family, Ints


def document_loss(model: TinyLM, family: Family, ids_BP: Ints, responses_BL: Ints) -> Tensor:
    """Cross-entropy of the response letters over the whole vocabulary, mean over letters."""
    letters = np.array(family.alphabet)[responses_BL]
    rows = torch.from_numpy(np.concatenate([ids_BP, letters[:, :-1]], 1))
    logits = model.logits(model(rows)[:, ids_BP.shape[1] - 1 :])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(letters).flatten())


def fit(
    model: TinyLM, loss_of: Callable[[int], Tensor], steps: int, lr: float, warmup: int = 0, end: float = 1.0,
    done: Callable[[int], bool] | None = None,
) -> int:  # fmt: skip
    """AdamW on `loss_of(step)`: warm-up, then linearly to `end` * lr; returns the steps taken."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    for step in range(steps):
        if done is not None and done(step):
            return step
        scale = min(1.0, (step + 1) / max(1, warmup)) * (1 - (1 - end) * step / steps)
        for row in optimiser.param_groups:
            row["lr"] = lr * scale
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss_of(step))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return steps
