"""Tiny Llama models: one packed forward pass, read from and written to Hugging Face folders.

Tokens are one flat list (axis `_N`) with a position each; which token sees which is decided by an `attend`
function. Training rows, sampling with a cache, groups that share a prompt and whole prefix trees are the same
pass with another `attend`. Everything is differentiable and float32.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spade.errors import InputError
from spade.serving.checkpoint_files import read_config, read_weights

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q, k, v), each (N, heads, head_dim) -> mixed values (N, heads * head_dim)."""

CONTEXT = 64
"""Positions a model knows; the longest sequence of any task is 12."""
EPS = 1e-6
THETA = 10000.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a model. The feed-forward width is near 8/3 of `hidden`, as in Llama."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads


SIZES: dict[str, Shape] = {
    "XS": Shape(32, 2, 2, 88),
    "S0": Shape(64, 3, 4, 176),
    "S1": Shape(96, 4, 4, 256),
    "S2": Shape(128, 5, 4, 344),
    "S3": Shape(256, 4, 8, 688),
    "G1": Shape(512, 8, 8, 1368),
    "G2": Shape(768, 12, 12, 2048),
    "G3": Shape(1024, 16, 16, 2736),
}
"""Names of sizes: XS is for tests, S0 the default, S3 the limit of a CPU, G1 to G3 need a GPU."""


class Block(nn.Module):
    """One layer. Query, key and value are one matrix, gate and up another; `save` takes them apart."""

    norm1: nn.Parameter
    norm2: nn.Parameter

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d, f = shape.hidden, shape.feed_forward
        self.norm1 = nn.Parameter(torch.ones(d))
        self.qkv = nn.Parameter(torch.empty(3 * d, d))
        self.out = nn.Parameter(torch.empty(d, d))
        self.norm2 = nn.Parameter(torch.ones(d))
        self.gate_up = nn.Parameter(torch.empty(2 * f, d))
        self.down = nn.Parameter(torch.empty(d, f))


class TinyLM(nn.Module):
    """A decoder of `shape` over `vocab` tokens with tied embeddings; weights drawn from `seed`."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape, vocab: int, seed: int = 0) -> None:
        super().__init__()
        self.shape, self.vocab = shape, vocab
        self.embed = nn.Parameter(torch.empty(vocab, shape.hidden))
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.hidden))
        self._initialise(seed)
        angle = torch.arange(CONTEXT).float()[:, None] * _frequencies(shape.head_dim)
        self.register_buffer("cos", torch.cat([angle.cos(), angle.cos()], -1)[:, None], persistent=False)
        self.register_buffer("sin", torch.cat([-angle.sin(), angle.sin()], -1)[:, None], persistent=False)

    def _initialise(self, seed: int) -> None:
        """Normal weights of scale hidden^-1/2, smaller by depth where they write to the residual stream."""
        generator = torch.Generator().manual_seed(seed)
        scale = self.shape.hidden**-0.5
        thin = scale / math.sqrt(2 * self.shape.layers)
        with torch.no_grad():
            self.embed.normal_(0.0, scale, generator=generator)
            for block in self.layers:
                block.qkv.normal_(0.0, scale, generator=generator)
                block.out.normal_(0.0, thin, generator=generator)
                block.gate_up.normal_(0.0, scale, generator=generator)
                block.down.normal_(0.0, thin, generator=generator)

    @property
    def layers(self) -> list[Block]:
        """The layers, in order."""
        return cast(list[Block], list(self.blocks))

    def hidden(self, tokens_N: Tensor, positions_N: Tensor, attend: Attend) -> Tensor:
        """Hidden states (N, hidden) after the last norm."""
        heads, dim, width = self.shape.heads, self.shape.head_dim, self.shape.hidden
        cos, sin = self.cos[positions_N], self.sin[positions_N]
        x = F.embedding(tokens_N, self.embed)
        for number, block in enumerate(self.layers):
            qkv = F.linear(F.rms_norm(x, (width,), block.norm1, EPS), block.qkv)
            qk, v = torch.split(qkv, [2 * width, width], -1)
            qk = qk.view(-1, 2 * heads, dim)
            q, k = torch.split(qk * cos + torch.roll(qk, dim // 2, -1) * sin, heads, 1)
            x = x + F.linear(attend(number, q, k, v.view(-1, heads, dim)), block.out)
            gate, up = F.linear(F.rms_norm(x, (width,), block.norm2, EPS), block.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, block.down)
        return F.rms_norm(x, (width,), self.norm, EPS)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, shape (..., vocab)."""
        return F.linear(hidden, self.embed)

    def letter_logits(self, hidden: Tensor, letters: Tensor) -> Tensor:
        """Scores of the tokens `letters` (M,) alone, shape (..., M): what restricted decoding needs."""
        return F.linear(hidden, self.embed[letters])

    def forward(
        self, ids_BT: Tensor, mask_TT: Tensor | None = None, positions_T: Tensor | None = None
    ) -> Tensor:
        """Hidden states (B, T, hidden). `mask_TT` (True = sees) and positions are shared by all rows; without
        them a row is ordinary causal text."""
        batch, length = ids_BT.shape
        positions = torch.arange(length) if positions_T is None else positions_T
        attend = dense(batch, length, mask_TT)
        return self.hidden(ids_BT.reshape(-1), positions.repeat(batch), attend).view(batch, length, -1)

    # --- Hugging Face folders ------------------------------------------------------------------------

    def hf_state(self) -> dict[str, Tensor]:
        """Weights under the names of `LlamaForCausalLM`, detached copies."""
        state: dict[str, Tensor] = {"model.embed_tokens.weight": self.embed, "model.norm.weight": self.norm}
        for i, block in enumerate(self.layers):
            at = f"model.layers.{i}."
            q, k, v = block.qkv.chunk(3)
            gate, up = block.gate_up.chunk(2)
            state |= {
                f"{at}input_layernorm.weight": block.norm1,
                f"{at}self_attn.q_proj.weight": q,
                f"{at}self_attn.k_proj.weight": k,
                f"{at}self_attn.v_proj.weight": v,
                f"{at}self_attn.o_proj.weight": block.out,
                f"{at}post_attention_layernorm.weight": block.norm2,
                f"{at}mlp.gate_proj.weight": gate,
                f"{at}mlp.up_proj.weight": up,
                f"{at}mlp.down_proj.weight": block.down,
            }
        return {name: tensor.detach().clone().contiguous() for name, tensor in state.items()}

    def load_hf_state(self, state: dict[str, Tensor]) -> None:
        """Inverse of `hf_state`. Raises KeyError or RuntimeError for weights of another model."""
        with torch.no_grad():
            self.embed.copy_(state["model.embed_tokens.weight"])
            self.norm.copy_(state["model.norm.weight"])
            for i, block in enumerate(self.layers):
                at = f"model.layers.{i}."
                block.norm1.copy_(state[f"{at}input_layernorm.weight"])
                qkv = [state[f"{at}self_attn.{n}_proj.weight"] for n in "qkv"]
                block.qkv.copy_(torch.cat(qkv))
                block.out.copy_(state[f"{at}self_attn.o_proj.weight"])
                block.norm2.copy_(state[f"{at}post_attention_layernorm.weight"])
                block.gate_up.copy_(torch.cat([state[f"{at}mlp.{n}_proj.weight"] for n in ("gate", "up")]))
                block.down.copy_(state[f"{at}mlp.down_proj.weight"])

    def save(self, folder: Path) -> None:
        """Write config.json, model.safetensors and the tokenizer of the study's vocabulary."""
        from safetensors.torch import save_file

        from spade.study.vocabulary import write_tokenizer

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.hf_config(), indent=2) + "\n", encoding="utf-8")
        save_file(self.hf_state(), folder / "model.safetensors", metadata={"format": "pt"})
        write_tokenizer(folder)

    def hf_config(self) -> dict[str, Any]:
        """The fields of config.json."""
        s = self.shape
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab,
            "hidden_size": s.hidden,
            "intermediate_size": s.feed_forward,
            "num_hidden_layers": s.layers,
            "num_attention_heads": s.heads,
            "num_key_value_heads": s.heads,
            "head_dim": s.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": EPS,
            "rope_theta": THETA,
            "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "dtype": "float32",
        }


def load_lm(folder: Path) -> TinyLM:
    """A model written by `TinyLM.save`. Raises `InputError` for a folder that holds something else."""
    config = read_config(folder)
    try:
        shape = Shape(
            config["hidden_size"],
            config["num_hidden_layers"],
            config["num_attention_heads"],
            config["intermediate_size"],
        )
        if config["model_type"] != "llama" or config["num_key_value_heads"] != shape.heads:
            raise KeyError("num_key_value_heads")
        model = TinyLM(shape, config["vocab_size"])
        model.load_hf_state(read_weights(folder))
    except (KeyError, RuntimeError) as error:
        raise InputError(
            f"{folder} is not a model of the study ({error}); make one with spade study dial or run, or use "
            "spade study entropy, which reads any checkpoint."
        ) from error
    return model


def dense(batch: int, length: int, mask_TT: Tensor | None = None) -> Attend:
    """Rows of equal length; causal unless a mask says otherwise."""

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.view(batch, length, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, mask_TT, is_causal=mask_TT is None)
        return mixed.transpose(1, 2).reshape(batch * length, -1)

    return attend


def _frequencies(head_dim: int) -> Tensor:
    return THETA ** (-torch.arange(0, head_dim, 2).float() / head_dim)
