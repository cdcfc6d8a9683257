"""Reading a checkpoint folder: `config.json` plus safetensors, and nothing that could run code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.errors import InputError

if TYPE_CHECKING:
    import torch

DECODER_TYPES = ("llama", "qwen2", "qwen3")
"""`model_type` values the built-in decoder runs; everything else goes through transformers."""

PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Shape of a Llama-like decoder. `inv_freq` (head_dim / 2) already includes RoPE scaling."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    eps: float
    inv_freq: tuple[float, ...]
    tied: bool
    qk_norm: bool


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json` of a checkpoint folder. Raises `InputError` when missing or unreadable."""
    path = folder / "config.json"
    if not folder.is_dir():
        raise InputError(f"No checkpoint folder at {folder}; give a folder with config.json and safetensors.")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder} is not a checkpoint: it has no config.json.") from None
    except (OSError, ValueError) as err:
        raise InputError(f"{path} cannot be read as JSON ({err}); copy the checkpoint again.") from None
    if not isinstance(data, dict) or "model_type" not in data:
        raise InputError(f"{path} names no model_type, so it is not a language-model checkpoint.")
    return data


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint. Pickled weights are refused: loading them can run code."""
    found = sorted(folder.glob("model*.safetensors"))
    if found:
        return found
    pickled = [p.name for pattern in PICKLED for p in sorted(folder.glob(pattern))]
    if pickled:
        raise InputError(
            f"{folder} holds only pickled weights ({pickled[0]}), which can run code when loaded; "
            "convert them to safetensors first."
        )
    raise InputError(f"{folder} has no model*.safetensors file; the checkpoint is incomplete.")


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint on the CPU, by name. Raises `InputError` when a file is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    state: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        try:
            state.update(load_file(path))
        except (SafetensorError, OSError, ValueError) as err:
            raise InputError(f"{path} is damaged or cut short ({err}); copy the checkpoint again.") from None
    return state


def read_spec(config: Mapping[str, Any]) -> ModelSpec | None:
    """Shape for the built-in decoder, or None when the architecture has something it does not do."""
    if config["model_type"] not in DECODER_TYPES or config.get("hidden_act", "silu") != "silu":
        return None
    if config.get("use_sliding_window") or config.get("quantization_config"):
        return None
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    inv_freq = _inv_freq(config, head_dim)
    if inv_freq is None:
        return None
    return ModelSpec(
        hidden=int(config["hidden_size"]),
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        vocab=int(config["vocab_size"]),
        context=int(config["max_position_embeddings"]),
        eps=float(config["rms_norm_eps"]),
        inv_freq=inv_freq,
        # The library leaves defaults out of the file; Llama, Qwen2 and Qwen3 all default to untied.
        tied=bool(config.get("tie_word_embeddings", False)),
        qk_norm=config["model_type"] == "qwen3",
    )


def _inv_freq(config: Mapping[str, Any], head_dim: int) -> tuple[float, ...] | None:
    """RoPE frequencies; `rope_parameters` is the newer spelling of `rope_scaling` plus `rope_theta`."""
    import math

    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        return None
    base = [theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    if kind == "default":
        return tuple(base)
    factor = float(rope.get("factor", 1.0))
    if kind == "linear":
        return tuple(f / factor for f in base)
    if kind != "llama3":
        return None
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    old = float(rope["original_max_position_embeddings"])
    out = []
    for freq in base:
        wave = 2 * math.pi / freq
        smooth = min(1.0, max(0.0, (old / wave - low) / (high - low)))
        out.append((1 - smooth) * freq / factor + smooth * freq)
    return tuple(out)
