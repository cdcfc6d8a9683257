"""Texts as vectors, by a small encoder in the transformers format: mean of the last layer over the tokens.

That is how sentence encoders such as all-MiniLM-L6-v2 are used (Reimers and Gurevych 2019, arXiv 1908.10084).
Long texts are cut into pieces of the encoder's length, and their vector is the mean over pieces, weighted by
tokens: programs are longer than the 256 to 512 tokens that such encoders read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spade.errors import InputError

BATCH = 32
"""Pieces encoded at once."""


class Embedder:
    """A folder with `config.json`, weights and a tokenizer. Raises InputError when it cannot be loaded."""

    def __init__(self, folder: Path | str, *, max_tokens: int | None = None) -> None:
        from transformers import AutoModel, AutoTokenizer

        if not (Path(folder) / "config.json").is_file():
            raise InputError(f"{folder} is no model folder: it has no config.json")
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
            self.model: Any = AutoModel.from_pretrained(str(folder), local_files_only=True).eval()
        except (OSError, ValueError, KeyError) as error:
            why = str(error).splitlines()[0][:200]
            raise InputError(f"{folder} cannot be loaded as an encoder ({why})") from error
        longest = int(getattr(self.model.config, "max_position_embeddings", 512) or 512)
        self.max_tokens = min(longest, max_tokens or 256)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Vectors of length 1, shape (texts, width)."""
        found = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=self.max_tokens,
            return_overflowing_tokens=True,
            padding=True,
            return_tensors="pt",
        )
        owners = found.pop("overflow_to_sample_mapping").tolist()
        sums = np.zeros((len(texts), int(self.model.config.hidden_size)))
        for at in range(0, len(owners), BATCH):
            batch = {key: values[at : at + BATCH] for key, values in found.items()}
            for number, vector in zip(owners[at:], self._sums(batch), strict=False):
                sums[number] += vector
        return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12))

    def _sums(self, batch: dict[str, Any]) -> NDArray[np.float64]:
        """Sum of the last layer over the tokens of each piece; shape (pieces, width)."""
        import torch

        with torch.inference_mode():
            hidden = self.model(**batch).last_hidden_state.float()
        mask = batch["attention_mask"].unsqueeze(-1)
        return np.asarray((hidden * mask).sum(1).double().numpy())
