"""The key-value store of the built-in decoder: one slot per row, columns are token positions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from spade.serving.checkpoint_files import ModelSpec

STEP = 64
"""Columns are added in multiples of this."""


class KVArena:
    """Keys `(layers, slots, kv, head_dim, T)` and values `(layers, slots, kv, T, head_dim)`.

    Keys are stored transposed so that one query against all of them is a plain matrix product. Unused
    cells are zero, never uninitialised: a masked column still takes part in the product with weight 0.
    """

    def __init__(self, spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> None:
        self.spec, self.device, self.dtype = spec, device, dtype
        self.slots = 0
        self.columns = 0
        self.k = self._zeros(0, 0)[0]
        self.v = self._zeros(0, 0)[1]

    @property
    def bytes_per_token(self) -> int:
        """Memory of one cached token."""
        return 2 * self.spec.layers * self.spec.kv_heads * self.spec.head_dim * self.k.element_size()

    def reserve(self, slots: int, columns: int) -> None:
        """Make room for `slots` rows of `columns` tokens, keeping what is stored."""
        if slots <= self.slots and columns <= self.columns:
            return
        slots = max(slots, self.slots)
        if columns > self.columns:
            grown = max(columns, self.columns + self.columns // 2)
            columns = min(-(-grown // STEP) * STEP, max(columns, self.spec.context))
        else:
            columns = self.columns
        k, v = self._zeros(slots, columns)
        k[:, : self.slots, :, :, : self.columns] = self.k
        v[:, : self.slots, :, : self.columns] = self.v
        self.k, self.v, self.slots, self.columns = k, v, slots, columns

    def copy(self, source: Sequence[int], target: Sequence[int], columns: int) -> None:
        """Copy the first `columns` of the source slots into the target slots."""
        src, dst = self._index(source), self._index(target)
        self.k[:, dst, :, :, :columns] = self.k[:, src, :, :, :columns]
        self.v[:, dst, :, :columns] = self.v[:, src, :, :columns]

    def swap(self, one: Sequence[int], other: Sequence[int], columns: int) -> None:
        """Exchange pairs of slots (all slots distinct), first `columns` only."""
        self.copy([*one, *other], [*other, *one], columns)

    def clear(self) -> None:
        """Give the memory back."""
        self.slots = self.columns = 0
        self.k, self.v = self._zeros(0, 0)

    def _index(self, slots: Sequence[int]) -> torch.Tensor:
        return torch.as_tensor(slots, dtype=torch.long, device=self.device)

    def _zeros(self, slots: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        spec = self.spec
        lead = (spec.layers, slots, spec.kv_heads)
        k = torch.zeros(*lead, spec.head_dim, columns, device=self.device, dtype=self.dtype)
        v = torch.zeros(*lead, columns, spec.head_dim, device=self.device, dtype=self.dtype)
        return k, v
