"""From logits to tokens: inverse transform sampling with noise that belongs to the row alone."""

from __future__ import annotations

import secrets

import numpy as np
import torch
import torch.nn.functional as F

from spade.serving.policy import SamplingParams, TopTokens

BLOCK = 128
"""Weights are summed in blocks of this size, and only the block that is hit is looked at token by token."""
COOLEST = 1e-6
"""Temperatures below this are taken for 0: quotients would leave the range of float32."""
LARGEST = 1 << 31
"""No vocabulary is larger; a larger top-k leaves nothing out."""


def uniforms(seed: int | None, sample: int, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) for one completion, a function of (seed, sample) only; fresh for None."""
    root = secrets.randbits(63) if seed is None else seed
    key = np.array([root & (2**64 - 1), sample], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count)


def top_tokens(logits: torch.Tensor, count: int) -> list[TopTokens]:
    """The `count` most likely ids and log-probs of each row of logits (n, vocab), most likely first."""
    count = min(count, logits.shape[-1])
    if count == 0:
        return [()] * len(logits)
    values, ids = torch.log_softmax(logits, -1).topk(count, -1)
    return [tuple(zip(i, v, strict=True)) for i, v in zip(ids.tolist(), values.tolist(), strict=True)]


class Heat:
    """Temperature, top-k and top-p of every seat, as arrays (seats,)."""

    def __init__(self) -> None:
        self.greedy = np.zeros(0, dtype=bool)
        self.temperature = np.ones(0, dtype=np.float32)
        self.top_p = np.ones(0, dtype=np.float32)
        self.top_k = np.zeros(0, dtype=np.int64)

    def grow(self, more: int) -> None:
        """Append seats."""
        for name in ("greedy", "temperature", "top_p", "top_k"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros(more, dtype=array.dtype)]))

    def put(self, seat: int, params: SamplingParams) -> None:
        """Take the parameters of a row. Temperature 0 is greedy, and then log-probs are at temperature 1."""
        greedy = params.temperature < COOLEST
        self.greedy[seat] = greedy
        self.temperature[seat] = 1.0 if greedy else params.temperature
        self.top_p[seat], self.top_k[seat] = params.top_p, min(LARGEST, max(0, params.top_k))


def sample(
    heat: Heat, which: np.ndarray, logits: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token for the rows in seats `which` (n,) from logits (n, vocab) float32 and noise (n,) in [0, 1).

    Returns ids and log-probs (n,). Log-probs are over the full vocabulary at the row's temperature (1 for
    greedy rows), whatever top-k and top-p leave out.
    """
    device = logits.device
    temperature, greedy = heat.temperature[which], heat.greedy[which]
    if (temperature != 1).any():
        logits = logits / torch.from_numpy(temperature).to(device)[:, None]
    most = logits.amax(-1, keepdim=True)
    weights = (logits - most).exp_()
    total = weights.sum(-1)
    if greedy.all():
        tokens = logits.argmax(-1)
    else:
        chosen = weights
        if (heat.top_p[which] < 1).any() or (heat.top_k[which] > 0).any():
            chosen = _truncate(heat, which, weights / total[:, None])
        tokens = _draw(chosen, noise.to(device))
        if greedy.any():
            tokens = torch.where(torch.from_numpy(greedy).to(device), logits.argmax(-1), tokens)
    picked = logits.gather(1, tokens[:, None])[:, 0]
    return tokens, picked - most[:, 0] - total.log()


def _draw(weights: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Ids (n,) drawn in proportion to weights (n, vocab); a token of weight 0 is never drawn."""
    n, vocab = weights.shape
    if vocab % BLOCK:
        weights = F.pad(weights, (0, BLOCK - vocab % BLOCK))
    blocks = weights.view(n, -1, BLOCK)
    sums = blocks.sum(-1).cumsum(-1)
    point = (noise * sums[:, -1]).float()
    block = _locate(sums, point)
    before = F.pad(sums, (1, 0)).gather(1, block)[:, 0]
    inside = blocks[torch.arange(n, device=weights.device), block[:, 0]].cumsum(-1)
    return (block * BLOCK + _locate(inside, (point - before).clamp_(min=0)))[:, 0]


def _locate(rising: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
    """Index (n, 1) of the first entry of rising (n, m) beyond point (n,).

    The point is kept below the last entry, so that neither rounding nor trailing zeros lead past the end.
    """
    last = rising[:, -1:]
    below = torch.minimum(point[:, None], torch.nextafter(last, torch.zeros_like(last)))
    return torch.searchsorted(rising, below, right=True)


def _truncate(heat: Heat, which: np.ndarray, probs: torch.Tensor) -> torch.Tensor:
    """Zero what top-k and top-p exclude; the most likely token always stays."""
    ordered, order = probs.sort(stable=True, dim=-1, descending=True)
    rank = torch.arange(probs.shape[1], device=probs.device)
    top_k = torch.from_numpy(np.where(heat.top_k[which] > 0, heat.top_k[which], probs.shape[1]))
    top_p = torch.from_numpy(heat.top_p[which]).to(probs.device)[:, None]
    before = ordered.cumsum(-1) - ordered
    keep = (rank < top_k.to(probs.device)[:, None]) & ((before < top_p) | (top_p >= 1))
    keep[:, 0] = True
    return torch.zeros_like(probs).scatter_(1, order, ordered * keep)
