"""Causal attention for training short rows on a CPU: blocks of queries, plain matrix products.

The fused CPU kernel of torch spends most of its time in the backward pass at 30 to 500 tokens a row (see
`benchmarks/learn.py`). Here the probabilities of each block are kept in the compute type, so that backward
is four matrix products and one softmax derivative, and no work is done above the diagonal block.

Rows must be padded on the right: a causal row never looks at its own padding, so no padding mask is needed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NAME = "spade_causal"
"""Name under which `register` announces the function to transformers."""

BLOCK = 64
"""Queries a block: small enough to skip most of the upper triangle, large enough to hide Python's cost."""

PLAIN_MODELS = frozenset({"llama", "qwen2", "qwen3"})
"""Model types whose attention is nothing but softmax(q k^T * scale) v with grouped heads."""


class _BlockCausal(torch.autograd.Function):
    """softmax(q k^T + causal mask) v for `N` = batch x key-value heads and `G` query heads per key head.

    Shapes: `q_NRD` with rows R = T*G ordered (token, head), `k_NTD`, `v_NTD`; `q` is already scaled.
    """

    @staticmethod
    def forward(ctx: Any, q_NRD: Tensor, k_NTD: Tensor, v_NTD: Tensor) -> Tensor:
        tokens = k_NTD.shape[1]
        group = q_NRD.shape[1] // tokens
        out_NRD = torch.empty_like(q_NRD)
        probs = []
        for start in range(0, tokens, BLOCK):
            end = min(start + BLOCK, tokens)
            rows = slice(start * group, end * group)
            scores = torch.bmm(q_NRD[:, rows], k_NTD[:, :end].transpose(1, 2))
            scores[:, :, start:].add_(_diagonal_mask(end - start, group, scores))
            weights = torch.softmax(scores, -1)
            out_NRD[:, rows] = torch.bmm(weights, v_NTD[:, :end])
            probs.append(weights)
        ctx.save_for_backward(q_NRD, k_NTD, v_NTD, *probs)
        return out_NRD

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, Tensor]:
        q_NRD, k_NTD, v_NTD, *probs = ctx.saved_tensors
        grad_NRD = grads[0].contiguous()
        tokens = k_NTD.shape[1]
        group = q_NRD.shape[1] // tokens
        dq_NRD = torch.empty_like(q_NRD)
        # Several blocks add into the same keys; fp32 sums keep the order of blocks harmless.
        dk_NTD = torch.zeros_like(k_NTD, dtype=torch.float32)
        dv_NTD = torch.zeros_like(v_NTD, dtype=torch.float32)
        for weights, start in zip(probs, range(0, tokens, BLOCK), strict=True):
            end = min(start + BLOCK, tokens)
            rows = slice(start * group, end * group)
            grad = grad_NRD[:, rows]
            dv_NTD[:, :end] += torch.bmm(weights.transpose(1, 2), grad)
            dweights = torch.bmm(grad, v_NTD[:, :end].transpose(1, 2))
            dscores = torch._softmax_backward_data(dweights, weights, -1, weights.dtype)
            dq_NRD[:, rows] = torch.bmm(dscores, k_NTD[:, :end])
            dk_NTD[:, :end] += torch.bmm(dscores.transpose(1, 2), q_NRD[:, rows])
        return dq_NRD, dk_NTD.to(k_NTD.dtype), dv_NTD.to(v_NTD.dtype)


def _diagonal_mask(size: int, group: int, like: Tensor) -> Tensor:
    """(size*group, size) of 0 and -inf: the query of row r, token r // group, sees keys up to itself."""
    mask = torch.full((size, size), float("-inf"), dtype=like.dtype, device=like.device).triu(1)
    return mask.repeat_interleave(group, 0)


def causal_attention(q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor, scale: float) -> Tensor:
    """Grouped-query causal attention, (B, T, H, D).

    `H` query heads share `K` key-value heads (`H` a multiple of `K`). Under CPU autocast the products run in
    the autocast type and the softmax sums in fp32.
    """
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        q_BHTD, k_BKTD, v_BKTD = q_BHTD.to(dtype), k_BKTD.to(dtype), v_BKTD.to(dtype)
    batch, heads, tokens, dim = q_BHTD.shape
    kv = k_BKTD.shape[1]
    group = heads // kv
    q = (q_BHTD * scale).view(batch, kv, group, tokens, dim).transpose(2, 3)
    with torch.autocast("cpu", enabled=False):
        out: Tensor = _BlockCausal.apply(  # type: ignore[no-untyped-call]
            q.reshape(batch * kv, tokens * group, dim),
            k_BKTD.reshape(batch * kv, tokens, dim),
            v_BKTD.reshape(batch * kv, tokens, dim),
        )
    return out.view(batch, kv, tokens, group, dim).transpose(1, 2).reshape(batch, tokens, heads, dim)


def _interface(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The signature transformers calls. Masks and dropout are never passed by the learner."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return causal_attention(query, key, value, scale), None


def register() -> str:
    """Announce the function to transformers and return its name. Idempotent."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _interface)
    return NAME


def fits(config: Any) -> bool:
    """True if every layer of the model config is plain full causal attention."""
    layers = getattr(config, "layer_types", None) or ["full_attention"]
    sliding = getattr(config, "use_sliding_window", False)
    return config.model_type in PLAIN_MODELS and not sliding and set(layers) == {"full_attention"}
