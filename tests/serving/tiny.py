"""Tiny random checkpoints and a byte-level tokenizer, written into a temporary folder."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = [
    "guess a number between 1 and 9", "the door is locked; find the key", "higher lower \\boxed{4}",
    "user assistant system", "def step(self, action): return 'ok', 1.0, True, False, {}",
] * 4  # fmt: skip


def serving(**changes: Any) -> Any:
    """A stand-in for `ServingConfig` with test values."""
    base = dict(
        type="local", device="cpu", dtype="float32", deterministic=True, max_rows=16, threads=1,
        context_length=None, shards=0, endpoint=SimpleNamespace(parallel=16, timeout=600.0, drop=()),
    )  # fmt: skip
    return SimpleNamespace(**{**base, **changes})


def write_tokenizer(folder: Path, template: str | None = TEMPLATE) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(CORPUS, trainer)
    tok = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )  # fmt: skip
    if template is not None:
        tok.chat_template = template
    tok.save_pretrained(folder)
    return tok


def write_model(folder: Path, kind: str = "llama", **changes: Any) -> Any:
    """Write a random checkpoint with its tokenizer; returns the transformers model (float32, eval)."""
    import torch
    import transformers as tf

    torch.manual_seed(1)
    tok = write_tokenizer(folder)
    base: dict[str, Any] = dict(
        vocab_size=len(tok), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=True, initializer_range=0.4,
    )  # fmt: skip
    if kind == "qwen3":
        base["head_dim"] = 16
    config_class, model_class = {
        "llama": (tf.LlamaConfig, tf.LlamaForCausalLM),
        "qwen2": (tf.Qwen2Config, tf.Qwen2ForCausalLM),
        "qwen3": (tf.Qwen3Config, tf.Qwen3ForCausalLM),
        "gpt_neox": (tf.GPTNeoXConfig, tf.GPTNeoXForCausalLM),
    }[kind]
    if kind == "gpt_neox":
        del base["num_key_value_heads"]
    model = model_class(config_class(**{**base, **changes})).eval()
    for name, p in model.named_parameters():  # biases and norms start trivial; make them count
        if name.endswith("bias") or "norm" in name:
            p.data += 0.3 * torch.randn_like(p)
    model.save_pretrained(folder)
    return model
