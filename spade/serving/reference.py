"""Log-probs from a plain forward pass of transformers: what an engine's own are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

Reference = Callable[[Sequence[int], Sequence[int], float], list[float]]
"""(prompt, completion, temperature) to one log-prob per token of the completion."""


def plain_forward(folder: Path, dtype: str = "float32") -> Reference:
    """The reference for a checkpoint folder, on the CPU."""
    from transformers import AutoModelForCausalLM

    kind = torch.bfloat16 if "bfloat16" in dtype else torch.float32
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=kind, use_safetensors=True, local_files_only=True, trust_remote_code=False
    ).eval()

    def logprobs(prompt: Sequence[int], completion: Sequence[int], temperature: float) -> list[float]:
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *completion]])).logits[0].float()
        rows = torch.log_softmax(logits[len(prompt) - 1 : -1] / (temperature or 1.0), -1)
        found: list[float] = rows.gather(1, torch.tensor([list(completion)]).T)[:, 0].tolist()
        return found

    return logprobs
