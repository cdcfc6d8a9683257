"""What a core could do at best on a checkpoint, and the checkpoint as a GGUF file for llama.cpp."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Llama-like checkpoint."""

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def weights(self) -> int:
        """Numbers read in one pass: all blocks and the head."""
        heads = (2 * self.heads + 2 * self.kv_heads) * self.head_dim
        return self.layers * (heads + 3 * self.inner) * self.hidden + self.vocab * self.hidden


def shape_of(folder: Path) -> Shape:
    """Read `config.json`."""
    c = json.loads((folder / "config.json").read_text())
    heads = c["num_attention_heads"]
    head_dim = c.get("head_dim") or c["hidden_size"] // heads
    kv_heads = c.get("num_key_value_heads", heads)
    sizes = c["vocab_size"], c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"]
    return Shape(*sizes, heads, kv_heads, head_dim)


@dataclass(frozen=True, slots=True)
class Limits:
    """Memory and arithmetic of one core (or of `threads`), and the model they are asked about."""

    shape: Shape
    bytes_each: int
    bytes_per_second: float
    flops_per_second: float

    def row(self) -> dict[str, float]:
        """As plain values."""
        return {
            "read_gb_per_s": round(self.bytes_per_second / 1e9, 1),
            "gflop_per_s": round(self.flops_per_second / 1e9, 1),
            "weights": self.shape.weights,
        }

    def pass_seconds(self, rows: int, length: float, logits: int) -> float:
        """Least time of a pass over `rows` tokens with `length` cached tokens each; `logits` are scored."""
        s = self.shape
        head = s.vocab * s.hidden
        cache = 2 * s.layers * s.kv_heads * s.head_dim * length * rows
        flops = 2 * rows * (s.weights - head) + 2 * logits * head
        flops += 4 * rows * length * s.layers * s.heads * s.head_dim
        read = (s.weights + cache) * self.bytes_each
        return max(read / self.bytes_per_second, flops / self.flops_per_second)

    def seconds(self, work: dict[str, Any]) -> float | None:
        """Least time of a batch: one pass for the prompts, one a token; None for other work."""
        if work["kind"] != "batch":
            return None
        rows, prompt, new = work["rows"], work["prompt"], work["new"]
        first = self.pass_seconds(rows * prompt, 0, rows)
        return first + sum(self.pass_seconds(rows, prompt + i, rows) for i in range(1, new))


def best(repeats: int, work: Callable[[], object]) -> float:
    """Least CPU seconds of a call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def measure_limits(folder: Path, dtype: str, core: int | None, threads: int) -> Limits:
    """Read speed over 256 MiB and the best matrix product of several shapes, on one core if it is given."""
    import torch

    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    torch.set_num_threads(threads)
    try:
        big = torch.ones(1 << 26)
        with torch.inference_mode():
            read = big.numel() * 4 / best(5, big.sum)
            number = getattr(torch, dtype)
            flops = 0.0
            for m, k, n in ((512, 576, 1536), (1024, 1024, 1024), (256, 576, 3072)):
                a, b = torch.randn(m, k, dtype=number), torch.randn(k, n, dtype=number)
                torch.mm(a, b)
                flops = max(flops, 2 * m * k * n / best(8, lambda a=a, b=b: torch.mm(a, b)))  # type: ignore[misc]
    finally:
        os.sched_setaffinity(0, before)
    return Limits(shape_of(folder), 4 if dtype == "float32" else 2, read, flops)


def write_gguf(folder: Path, scratch: Path, dtype: str) -> Path:
    """A Llama checkpoint as GGUF without a vocabulary, since token ids are all that the benchmark sends.

    Rotary halves are interleaved in the query and key weights, as llama.cpp wants them.
    """
    import gguf
    import torch
    from safetensors.torch import load_file

    config, s = json.loads((folder / "config.json").read_text()), shape_of(folder)
    state = {k: v for file in sorted(folder.glob("*.safetensors")) for k, v in load_file(file).items()}
    path = scratch / "model.gguf"
    w = gguf.GGUFWriter(path, "llama")
    kind = gguf.GGMLQuantizationType.F32 if dtype == "float32" else gguf.GGMLQuantizationType.BF16
    w.add_file_type(gguf.LlamaFileType.ALL_F32 if dtype == "float32" else gguf.LlamaFileType.MOSTLY_BF16)
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(s.hidden)
    w.add_block_count(s.layers)
    w.add_feed_forward_length(s.inner)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.kv_heads)
    w.add_key_length(s.head_dim)
    w.add_value_length(s.head_dim)
    w.add_rope_dimension_count(s.head_dim)
    w.add_rope_freq_base(float((config.get("rope_parameters") or config)["rope_theta"]))
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_vocab_size(s.vocab)
    w.add_tokenizer_model("none")

    def put(name: str, tensor: torch.Tensor) -> None:
        data = tensor.float().contiguous().numpy()
        if tensor.ndim > 1 and dtype != "float32":
            w.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
        else:
            w.add_tensor(name, data)

    def turned(tensor: torch.Tensor, heads: int) -> torch.Tensor:
        return tensor.view(heads, 2, tensor.shape[0] // heads // 2, -1).transpose(1, 2).reshape(tensor.shape)

    put("token_embd.weight", state["model.embed_tokens.weight"])
    put("output_norm.weight", state["model.norm.weight"])
    if not config.get("tie_word_embeddings"):
        put("output.weight", state["lm_head.weight"])
    names = {
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    for i in range(s.layers):
        old, new = f"model.layers.{i}.", f"blk.{i}."
        put(new + "attn_q.weight", turned(state[old + "self_attn.q_proj.weight"], s.heads))
        put(new + "attn_k.weight", turned(state[old + "self_attn.k_proj.weight"], s.kv_heads))
        for theirs, ours in names.items():
            put(f"{new}{ours}.weight", state[f"{old}{theirs}.weight"])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path
