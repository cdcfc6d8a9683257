"""A small decoder for Llama, Qwen2 and Qwen3 checkpoints, written for many short rows.

Why not `model.generate`: on a CPU most of its time goes into attention for one query. Here keys are kept
transposed and both attention products are plain batched matrix products, q, k, v and gate, up are one
product each, and rows of different length share a batch without padding in the linear layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from spade.serving.arena import KVArena
from spade.serving.checkpoint_files import ModelSpec
from spade.serving.linear import linear, pack

PIECE = 512
"""Longest stretch of one row prefilled at once; bounds attention memory."""
MAX_TOKENS = 4096
"""Most tokens in one prefill pass over several rows."""
MAX_SCORES = 1 << 24
"""Most attention scores (rows x heads x queries x keys) held at once."""


@dataclass(slots=True)
class Layer:
    """Weights of one block, fused. Linear weights are (out, in) as in the checkpoint. A norm is None where
    the linear layer after it has taken it in."""

    norm1: torch.Tensor | None
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    qk_norm: torch.Tensor | None
    out: torch.Tensor
    out_bias: torch.Tensor | None
    norm2: torch.Tensor | None
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Job:
    """Prefill `tokens` into `slot` after `start` cached tokens."""

    slot: int
    start: int
    tokens: Sequence[int]


Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Decoder:
    """Weights and two forward passes; `load` raises KeyError or RuntimeError on weights that do not fit."""

    def __init__(self, spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> None:
        self.spec, self.device, self.dtype = spec, device, dtype
        self.layers: list[Layer] = []
        self._cos, self._sin = torch.empty(0, 0), torch.empty(0, 0)
        self._scale = spec.head_dim**-0.5

    # --- weights -------------------------------------------------------------------------------------

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take weights under their Hugging Face names; always copies."""
        spec = self.spec

        def get(name: str) -> torch.Tensor:
            return state[name].detach().to(self.device, self.dtype, copy=True)

        embed = get("model.embed_tokens.weight")
        if embed.shape != (spec.vocab, spec.hidden):
            raise RuntimeError(f"embedding is {tuple(embed.shape)}, expected {(spec.vocab, spec.hidden)}")
        head = embed if spec.tied else get("lm_head.weight")
        norm = get("model.norm.weight")
        layers = [self._layer(state, get, f"model.layers.{i}.") for i in range(spec.layers)]
        head, self.norm = self._fold(head, norm)
        self.embed, self.head, self.layers = embed, pack(head), layers

    def _fold(self, weight: torch.Tensor, norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """A linear weight that has taken in the norm before it, which saves an operation a norm.

        Only in float32: in a narrower type the product would be rounded once more than in training.
        """
        if self.dtype != torch.float32:
            return weight, norm
        return weight * norm, None

    def _layer(self, state: Mapping[str, torch.Tensor], get: Callable[[str], torch.Tensor], at: str) -> Layer:
        spec = self.spec
        attn, mlp = at + "self_attn.", at + "mlp."

        def fused(*names: str, kind: str = "weight") -> torch.Tensor:
            return torch.cat([get(f"{n}.{kind}") for n in names])

        def bias(*names: str) -> torch.Tensor | None:
            return fused(*names, kind="bias") if f"{names[0]}.bias" in state else None

        qkv_names = (attn + "q_proj", attn + "k_proj", attn + "v_proj")
        ffn_names = (mlp + "gate_proj", mlp + "up_proj")
        qkv = fused(*qkv_names)
        width = (spec.heads + 2 * spec.kv_heads) * spec.head_dim
        if qkv.shape != (width, spec.hidden):
            raise RuntimeError(f"{attn}* is {tuple(qkv.shape)}, expected {(width, spec.hidden)}")
        qk_norm = None
        if spec.qk_norm:
            q = get(attn + "q_norm.weight").expand(spec.heads, -1)
            qk_norm = torch.cat([q, get(attn + "k_norm.weight").expand(spec.kv_heads, -1)])
        qkv, norm1 = self._fold(qkv, get(at + "input_layernorm.weight"))
        gate_up, norm2 = self._fold(fused(*ffn_names), get(at + "post_attention_layernorm.weight"))
        return Layer(
            norm1=norm1,
            qkv=pack(qkv),
            qkv_bias=bias(*qkv_names),
            qk_norm=qk_norm,
            out=pack(get(attn + "o_proj.weight")),
            out_bias=bias(attn + "o_proj"),
            norm2=norm2,
            gate_up=pack(gate_up),
            gate_up_bias=bias(*ffn_names),
            down=pack(get(mlp + "down_proj.weight")),
            down_bias=bias(mlp + "down_proj"),
        )

    # --- forward -------------------------------------------------------------------------------------

    def step(self, arena: KVArena, tokens_N: torch.Tensor, pos_N: torch.Tensor, longest: int) -> torch.Tensor:
        """One token for each of the first N slots; returns logits (N, vocab) in float32.

        The key-value pair of row i goes to column `pos_N[i]`; the row attends to columns up to it, but to
        none beyond `longest`.
        """
        n, spec = len(tokens_N), self.spec
        total = min(arena.columns, -(-longest // 32) * 32)
        slots = torch.arange(n, device=self.device)
        hidden = torch.arange(total, device=self.device) > pos_N[:, None]
        bias = torch.zeros(hidden.shape, device=self.device, dtype=self.dtype)
        bias = bias.masked_fill_(hidden, float("-inf")).repeat_interleave(spec.kv_heads, 0)
        bias = bias[:, None].expand(-1, spec.heads // spec.kv_heads, -1)

        # Views of all layers at once: a view costs as much as a small kernel.
        lead = (spec.layers, n * spec.kv_heads)
        keys = arena.k[:, :n, :, :, :total].view(*lead, spec.head_dim, total).unbind()
        values = arena.v[:, :n, :, :total].view(*lead, total, spec.head_dim).unbind()
        all_k, all_v = arena.k.unbind(), arena.v.unbind()

        def attend(i: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            all_k[i][slots, :, :, pos_N] = k
            all_v[i][slots, :, pos_N] = v
            q = q.reshape(n * spec.kv_heads, -1, spec.head_dim)
            scores = torch.baddbmm(bias, q, keys[i], alpha=self._scale)
            return torch.bmm(torch.softmax(scores, -1), values[i]).view(n, -1)

        return self._logits(self._forward(tokens_N, pos_N, attend))

    def prefill(self, arena: KVArena, jobs: Sequence[Job]) -> torch.Tensor:
        """Run every job; returns the logits (jobs, vocab) after each job's last token, float32."""
        last: list[torch.Tensor | None] = [None] * len(jobs)
        for at, _, hidden in self._passes(arena, jobs):
            last[at] = hidden[-1].clone()  # not a view, which would keep all of them
        return self._logits(torch.stack([x for x in last if x is not None]))

    def logits_of(
        self, arena: KVArena, jobs: Sequence[Job], first: Sequence[int]
    ) -> Iterator[tuple[int, int, torch.Tensor]]:
        """Run every job and give the logits after its tokens from number `first[job]` on, piece by piece.

        Yields (job, number of the first token, logits (n, vocab) float32) with n <= `PIECE`; the pieces of a
        job come in order.
        """
        for at, offset, hidden in self._passes(arena, jobs):
            skip = max(0, first[at] - offset)
            if skip < len(hidden):
                yield at, offset + skip, self._logits(hidden[skip:])

    def _passes(self, arena: KVArena, jobs: Sequence[Job]) -> Iterator[tuple[int, int, torch.Tensor]]:
        """(job, number of the first token, hidden states) of every job, at most `PIECE` tokens at a time."""
        done = 0
        for group in _groups(jobs, self.spec.heads):
            for offset in range(0, max(len(j.tokens) for j in group), PIECE):
                live = [r for r, j in enumerate(group) if len(j.tokens) > offset]
                parts = [
                    Job(group[r].slot, group[r].start + offset, group[r].tokens[offset : offset + PIECE])
                    for r in live
                ]
                hidden = torch.split(self._piece(arena, parts), [len(p.tokens) for p in parts])
                for r, states in zip(live, hidden, strict=True):
                    yield done + r, offset, states
            done += len(group)

    def _piece(self, arena: KVArena, parts: Sequence[Job]) -> torch.Tensor:
        """One packed pass; returns the hidden states of all tokens, part after part (N, hidden)."""
        spec, count = self.spec, len(parts)
        sizes = torch.tensor([len(p.tokens) for p in parts])
        width, total_N = int(sizes.max()), int(sizes.sum())
        row = torch.repeat_interleave(torch.arange(count), sizes)
        col = torch.arange(total_N) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
        starts, slots = torch.tensor([p.start for p in parts]), torch.tensor([p.slot for p in parts])
        tokens = torch.tensor([t for p in parts for t in p.tokens])
        total = min(arena.columns, -(-int((starts + sizes).max()) // 32) * 32)
        row, col, tokens, starts, slots = (t.to(self.device) for t in (row, col, tokens, starts, slots))
        pos = starts[row] + col
        query_pos = starts[:, None] + torch.arange(width, device=self.device)
        hidden = torch.arange(total, device=self.device) > query_pos[..., None]
        groups = spec.heads // spec.kv_heads
        run = _is_range(parts)

        def attend(i: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            arena.k[i][slots[row], :, :, pos] = k
            arena.v[i][slots[row], :, pos] = v
            take = slice(parts[0].slot, parts[0].slot + count) if run else slots
            keys = arena.k[i][take][..., :total].reshape(count * spec.kv_heads, spec.head_dim, total)
            values = arena.v[i][take][:, :, :total].reshape(count * spec.kv_heads, total, spec.head_dim)
            padded = q.new_zeros(count, width, spec.heads, spec.head_dim)
            padded[row, col] = q
            padded = padded.view(count, width, spec.kv_heads, groups, spec.head_dim).permute(0, 2, 3, 1, 4)
            padded = padded.reshape(count * spec.kv_heads, groups * width, spec.head_dim)
            scores = torch.bmm(padded, keys).mul_(self._scale)
            scores.view(count, spec.heads, width, total).masked_fill_(hidden[:, None], float("-inf"))
            mixed = torch.bmm(torch.softmax(scores, -1), values)
            mixed = mixed.view(count, spec.heads, width, spec.head_dim).transpose(1, 2)
            return mixed[row, col].reshape(total_N, -1)

        return self._forward(tokens, pos, attend)

    def _forward(self, tokens_N: torch.Tensor, pos_N: torch.Tensor, attend: Attend) -> torch.Tensor:
        """All blocks over N packed tokens; returns hidden states (N, hidden) before the last norm."""
        spec = self.spec
        cut = (spec.heads + spec.kv_heads) * spec.head_dim
        cos, sin = self._rope(pos_N)
        x = F.embedding(tokens_N, self.embed)
        for i, layer in enumerate(self.layers):
            qkv = linear(self._norm(x, layer.norm1), layer.qkv, layer.qkv_bias)
            qk = qkv[:, :cut].view(len(x), -1, spec.head_dim)
            if layer.qk_norm is not None:
                qk = self._norm(qk, layer.qk_norm)
            qk = torch.addcmul(qk * cos, torch.roll(qk, spec.head_dim // 2, -1), sin)
            v = qkv[:, cut:].view(len(x), -1, spec.head_dim)
            mixed = attend(i, qk[:, : spec.heads], qk[:, spec.heads :], v)
            x = x + linear(mixed, layer.out, layer.out_bias)
            gate, up = linear(self._norm(x, layer.norm2), layer.gate_up, layer.gate_up_bias).chunk(2, -1)
            x = x + linear(F.silu(gate) * up, layer.down, layer.down_bias)
        return x

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        return linear(self._norm(x, self.norm), self.head).float()

    def _norm(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        if self.dtype == torch.float32:
            x = F.rms_norm(x, x.shape[-1:], None, self.spec.eps)
            return x if weight is None else x * weight
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.spec.eps)
        wide = wide.to(x.dtype)
        return wide if weight is None else wide * weight

    def _rope(self, pos_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines (N, 1, head_dim): x * cos + roll(x) * sin rotates halves."""
        need = int(pos_N.max()) + 1
        if need > len(self._cos):
            size = max(need, 2 * len(self._cos), 512)
            freq = torch.tensor(self.spec.inv_freq, device=self.device)
            angle = torch.arange(size, device=self.device).float()[:, None] * freq
            self._cos = torch.cat([angle.cos(), angle.cos()], -1).to(self.dtype)[:, None]
            self._sin = torch.cat([-angle.sin(), angle.sin()], -1).to(self.dtype)[:, None]
        return self._cos[pos_N], self._sin[pos_N]


def _is_range(parts: Sequence[Job]) -> bool:
    return all(p.slot == parts[0].slot + i for i, p in enumerate(parts))


def _groups(jobs: Sequence[Job], heads: int) -> list[list[Job]]:
    """Cut jobs into runs that fit one pass, in order: bounded tokens and bounded attention scores."""
    out: list[list[Job]] = []
    tokens = width = total = 0
    for job in jobs:
        size = min(len(job.tokens), PIECE)
        tokens += size
        width, total = max(width, size), max(total, job.start + len(job.tokens))
        cells = (len(out[-1]) + 1 if out else 1) * heads * width * total
        if not out or tokens > MAX_TOKENS or cells > MAX_SCORES:
            out.append([])
            tokens, width, total = size, size, job.start + len(job.tokens)
        out[-1].append(job)
    return out
