"""The linear layer of the built-in decoder: packed weights where that pays, and stable rounding."""

from __future__ import annotations

import torch
import torch.nn.functional as F

MIN_TOKENS = 4
"""Matrix products with fewer rows take another code path on CPU and round differently."""
PACK_FROM = 256
"""Input width from which weights are packed for oneDNN on a CPU."""
PACK_SIZE = 1 << 18
"""Weights with fewer elements are not packed: a call of oneDNN costs about 35 us before it computes."""


def pack(weight: torch.Tensor) -> torch.Tensor:
    """The weight (out, in) in the layout that is fastest at 1 to 64 rows.

    On a CPU that is oneDNN's own for large weights (1.2 to 1.9 times faster where there is AVX-512, equal
    elsewhere). Small ones in float32 get contiguous columns, faster for most shapes (up to 1.3 times).
    """
    if weight.device.type != "cpu":
        return weight
    if weight.shape[1] < PACK_FROM or weight.numel() < PACK_SIZE:
        return weight.t().contiguous().t() if weight.dtype == torch.float32 else weight
    try:
        packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, 64)
        linear(torch.zeros(MIN_TOKENS, weight.shape[1], dtype=weight.dtype), packed)
    except (RuntimeError, AttributeError):  # a torch build without these operators, or a CPU without bfloat16
        return weight
    return packed


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`F.linear` on (N, in), padded to `MIN_TOKENS` rows so that a row does not depend on its company."""
    n = len(x)
    if n < MIN_TOKENS:
        x = F.pad(x, (0, 0, 0, MIN_TOKENS - n))
    if weight.is_mkldnn:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    else:
        out = F.linear(x, weight, bias)
    return out[:n]
