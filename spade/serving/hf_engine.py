"""The same sampling loop on any causal language model of transformers; slower, nothing kept across calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from spade.errors import InputError
from spade.serving.engine import ScoreBook
from spade.serving.policy import TokenScores

SCORE_PIECE = 512
"""Positions whose log-probs over the vocabulary are held at once."""


class HFEngine:
    """See `spade.serving.engine.Engine`. Rows are left-padded; finished rows are forgotten."""

    joins = False

    def __init__(self, model: Any, device: torch.device, dtype: torch.dtype) -> None:
        config = model.config.get_text_config()
        self.model = model.to(device).eval()
        self.vocab = int(config.vocab_size)
        self.context = int(getattr(config, "max_position_embeddings", None) or 2048)
        self.dtype, self.device = dtype, device
        self._per_token = 4 * int(config.hidden_size) * int(config.num_hidden_layers)
        self.clear()

    @classmethod
    def from_folder(cls, folder: Path, device: torch.device, dtype: torch.dtype) -> HFEngine:
        """Load without running any code of the checkpoint. Raises `InputError` when that is not possible."""
        from transformers import AutoModelForCausalLM

        try:
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, use_safetensors=True, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError, RuntimeError, ImportError) as err:
            why = str(err).strip().splitlines()[0]
            raise InputError(
                f"{folder} cannot be served: {why} (code inside a checkpoint is never run)"
            ) from None
        return cls(model, device, dtype)

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """See `Engine.load`."""
        missing, unexpected = self.model.load_state_dict(dict(state), strict=False)
        tied = set(getattr(self.model, "_tied_weights_keys", None) or ())
        lost = [k for k in missing if k not in tied]
        if lost or unexpected:
            raise RuntimeError(f"missing {lost[:3]}, unexpected {list(unexpected)[:3]}")
        self.clear()

    def clear(self) -> None:
        """See `Engine.clear`."""
        self._cache: Any = None
        self._mask = torch.zeros(0, 0, dtype=torch.long)
        self._lens = np.zeros(0, dtype=np.int64)
        self._order = np.zeros(0, dtype=np.int64)

    def rows_for(self, tokens: int) -> int:
        """See `Engine.rows_for`; assumes 8 GiB for caches, with all heads kept."""
        return max(1, (8 << 30) // max(1, self._per_token * tokens))

    def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], top: int
    ) -> list[TokenScores]:
        """See `Engine.score`. Each row has a pass of its own, so that none depends on its company."""
        out = []
        for prompt, completion in zip(prompts, completions, strict=True):
            book = ScoreBook(completion, top)
            if len(completion):
                ids = torch.tensor([[*prompt, *completion][:-1]], device=self.device)
                logits = self.model(input_ids=ids, use_cache=False, logits_to_keep=len(completion)).logits[0]
                for at in range(0, len(completion), SCORE_PIECE):
                    book.note(at, logits[at : at + SCORE_PIECE].float())
            out.append(book.scores())
        return out

    def begin(
        self, prompts: Sequence[tuple[int, ...]], rows: int, busy: Collection[int] = ()
    ) -> tuple[np.ndarray, torch.Tensor, int]:
        """See `Engine.begin`. Padded rows repeat the first prompt."""
        full = [*prompts, *[prompts[0]] * (rows - len(prompts))]
        width = max(map(len, full))
        ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in full], device=self.device)
        self._lens = np.array([len(p) for p in full])
        self._order = np.arange(rows)
        lens = torch.from_numpy(self._lens).to(self.device)[:, None]
        place = torch.arange(width, device=self.device) - (width - lens)
        self._mask, self._cache = (place >= 0).long(), None
        logits = self._run(ids, place.clamp(min=0))
        return np.arange(len(prompts)), logits[: len(prompts)], sum(map(len, prompts))

    def step(self, tokens: torch.Tensor, live: np.ndarray) -> torch.Tensor:
        """See `Engine.step`."""
        count = len(tokens)
        if count < len(self._order) or (self._order != np.arange(count)).any():
            index = torch.from_numpy(self._order[:count].copy()).to(self.device)
            self._cache.batch_select_indices(index)
            self._mask, self._lens = self._mask[index], self._lens[self._order[:count]]
            self._order = np.arange(count)
        self._mask = torch.cat([self._mask, self._mask.new_ones(count, 1)], 1)
        place = torch.from_numpy(self._lens.copy()).to(self.device)[:, None]
        self._lens += 1
        return self._run(tokens[:, None], place.clamp(max=self.context - 1))

    def swap(self, one: Sequence[int], other: Sequence[int]) -> None:
        """See `Engine.swap`; carried out at the next step."""
        self._order[[*one, *other]] = self._order[[*other, *one]]

    def keep(self, row: int, ids: tuple[int, ...]) -> None:
        """Nothing is kept."""

    def end(self) -> None:
        """Free the batch."""
        self.clear()

    def _run(self, ids: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        out = self.model(
            input_ids=ids, attention_mask=self._mask, position_ids=place, past_key_values=self._cache,
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        self._cache = out.past_key_values
        logits: torch.Tensor = out.logits[:, -1].float()
        return logits
