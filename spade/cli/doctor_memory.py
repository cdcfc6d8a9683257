"""How much memory a config takes, part by part, against what the machine has.

An estimate for one process that samples and learns, from the shape in `config.json`; sizes are bytes.
Weights, gradients, moments and cache entries are counted; activations are what the layers of a Llama-like
model keep for the backward pass, within a quarter of what was measured on several shapes (`tests/core`). What
allocator and libraries take comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spade.config import Config

GIB = float(2**30)
CPU_MICRO_TOKENS = 2048
"""Cap of `learner.micro_tokens` on a CPU, as in the compact learner."""
BLOCK = 64
"""Queries that the learner's attention on a CPU takes at once."""
HALF = 0.7
"""Activations under bfloat16 autocast as a share of those in float32: sums and norms stay wide."""
LENS_WEIGHTS = 50_000_000
"""Largest model of which the entropy lens keeps a copy unless told to."""
LOGIT_LIMIT = 1 << 24
"""Most logits the learner holds at once."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What memory depends on in a model."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    tied: bool
    biased: bool = False
    qk_norm: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        """From a `config.json`. Raises KeyError for one that does not describe a decoder."""
        heads = int(config["num_attention_heads"])
        hidden = int(config["hidden_size"])
        kind = config.get("model_type")
        return cls(
            hidden=hidden,
            inner=int(config["intermediate_size"]),
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            vocab=int(config["vocab_size"]),
            context=int(config.get("max_position_embeddings", 0)),
            tied=bool(config.get("tie_word_embeddings", False)),
            biased=bool(config.get("attention_bias", kind == "qwen2")),
            qk_norm=kind == "qwen3",
        )

    @property
    def weights(self) -> int:
        """Parameters; a tied output matrix counts once."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden * (q + 2 * kv) + q * self.hidden + (q + 2 * kv if self.biased else 0)
        norms = 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        layer = attention + 3 * self.hidden * self.inner + norms
        tables = self.vocab * self.hidden * (1 if self.tied else 2)
        return self.layers * layer + tables + self.hidden

    def adapters(self, rank: int) -> int:
        """Parameters of LoRA adapters of this rank on every linear layer of the blocks."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        ends = 2 * (self.hidden + q) + 2 * (self.hidden + kv) + 3 * (self.hidden + self.inner)
        return self.layers * rank * ends

    @property
    def cached(self) -> int:
        """Numbers in the key-value cache for one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def kept(self, length: int = 0) -> int:
        """Numbers kept for the backward pass for one token, in all layers; the learner's attention on a CPU
        also keeps the probabilities of sequences of this `length`, half of which lie above the diagonal."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        probabilities = self.heads * (length + BLOCK) // 2 if length else 0
        return self.layers * (4 * self.inner + 6 * self.hidden + 2 * q + 4 * kv + probabilities)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes by part, of the sampling side and of the learning side."""

    parts: dict[str, int]

    @property
    def total(self) -> int:
        """All parts together."""
        return sum(self.parts.values())


def estimate(shape: Shape, cfg: Config, device: str, bf16: bool) -> Estimate:
    """Memory of a training run with `cfg`. `device` is cpu or cuda; `bf16`: it multiplies bfloat16 natively.

    `learner.type: trl` is counted as one process, before anything is sharded.
    """
    learner, n = cfg.learner, shape.weights
    sampled = _sampler_bytes(cfg, device)
    trl = learner.type == "trl"
    roles = 2 if cfg.train.source == "self_play" and learner.designer_weight > 0 and not trl else 1
    states = roles if learner.optimizer_per_role else 1
    lora = learner.trl.lora_rank if trl else 0
    trained = shape.adapters(lora) if lora else n
    width = 2 if trl and learner.trl.weights == "bfloat16" else 4
    parts = {
        "sampler: weights": n * sampled,
        "sampler: key-value cache": _cache_tokens(shape, cfg) * shape.cached * sampled,
        "learner: weights": n * width + (trained * 4 if lora else 0),
        "learner: gradients": trained * (4 if lora else width) * roles,
        "learner: optimiser": trained * 2 * (4 if lora else width) * states,
        "learner: activations": _activations(shape, cfg, device, bf16),
    }
    if learner.kl > 0:
        parts["learner: reference model"] = n * 4
    lens = cfg.train.lens
    if lens.every and (lens.reference if lens.reference is not None else n <= LENS_WEIGHTS):
        parts["lens: start model"] = n * 4
    if cfg.design.policy == "separate":
        parts["separate Designer"] = parts["sampler: weights"] + n * (4 + 4 + 8)
    return Estimate(parts)


def _sampler_bytes(cfg: Config, device: str) -> int:
    wide = cfg.serving.dtype == "float32" or (cfg.serving.dtype == "auto" and device == "cpu")
    return 4 if wide else 2


def _cache_tokens(shape: Shape, cfg: Config) -> int:
    """Tokens cached at once: a full batch of the longest rows."""
    play = cfg.play
    wanted = max(play.programs * (play.plays + play.hinted_plays), cfg.design.designs)
    return min(cfg.serving.max_rows, wanted) * _longest(shape, cfg)


def _longest(shape: Shape, cfg: Config) -> int:
    """Tokens of a long sequence: all turns of a play or a whole design, and as much that was not sampled."""
    play, design = cfg.play, cfg.design
    limits = [x for x in (shape.context, cfg.serving.context_length) if x]
    longest = max(play.max_turns * play.max_tokens, design.max_tokens + design.document_tokens)
    return min([2 * longest, *limits])


def _activations(shape: Shape, cfg: Config, device: str, bf16: bool) -> int:
    tokens, length = cfg.learner.micro_tokens, 0
    if device == "cpu":
        tokens, length = min(tokens, CPU_MICRO_TOKENS), _longest(shape, cfg)
    narrow = cfg.learner.autocast == "bf16" or (cfg.learner.autocast == "auto" and bf16)
    layers = tokens * shape.kept(length) * 4 * (HALF if narrow else 1.0)
    logits = 3 * min(tokens * shape.vocab, LOGIT_LIMIT) * 4
    return int(layers + logits + (shape.weights * 2 if narrow else 0))


def text_of(made: Estimate, there: float | None) -> list[str]:
    """Lines for people; `there` is the machine's memory in GiB."""
    lines = [f"  {_size(size):>10}  {name}" for name, size in made.parts.items()]
    have = f", of {there:g} GiB" if there else ""
    return [*lines, f"  {_size(made.total):>10}  in all{have}"]


def _size(size: int) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB / 10 else f"{size / 2**20:.1f} MiB"
