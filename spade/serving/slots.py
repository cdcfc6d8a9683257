"""Rows and caches: which row sits in which slot, what it has seen, and which prompts can go on from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from spade.serving.arena import KVArena
from spade.serving.checkpoint_files import ModelSpec
from spade.serving.decoder import Decoder, Job
from spade.serving.engine import ScoreBook
from spade.serving.policy import TokenScores
from spade.serving.prefixes import Donors, shares

SCORE_ROWS = 64
"""Rows whose keys and values are held at once while given texts are scored."""
GROW_ROWS = 8
"""Slots are added in multiples of this, and by half of what is there, because adding copies all of them."""


@dataclass(slots=True)
class Slot:
    """One finished row that may be continued. `used` is the call that touched it last."""

    ids: bytes
    used: int


def _pack(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, dtype=np.int32).tobytes()


class SlotEngine:
    """Continues rows across calls on the built-in decoder.

    A row of the batch is a slot of the arena, and a batch of n rows uses slots 0 ... n-1, so that attention
    reads the arena in place. Finished rows keep their slot until evicted: with `linger` the least recently
    used goes first, without it every row that a call did not continue is dropped, and beginnings are shared
    within a call only.
    """

    joins = True

    def __init__(
        self, spec: ModelSpec, state: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype,
        max_rows: int, linger: bool, memory: int,
    ) -> None:  # fmt: skip
        self.vocab, self.context, self.dtype, self.device = spec.vocab, spec.context, dtype, device
        self.decoder = Decoder(spec, device, dtype)
        self.decoder.load(state)
        self.arena = KVArena(spec, device, dtype)
        self.max_rows, self.linger, self.memory = max_rows, linger, memory
        self.lens = np.zeros(0, dtype=np.int64)
        self.kept: dict[int, Slot] = {}
        self.held: dict[int, bytes] = {}
        """Ids whose keys and values a slot holds, as far as known: of a row under way, its prompt."""
        self.call = 0

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """See `Engine.load`."""
        self.decoder.load(state)
        self.clear()

    def clear(self) -> None:
        """See `Engine.clear`."""
        self.kept.clear()
        self.held.clear()
        self.arena.clear()
        self.lens = np.zeros(0, dtype=np.int64)

    def rows_for(self, tokens: int) -> int:
        """See `Engine.rows_for`."""
        return max(1, self.memory // max(1, self.arena.bytes_per_token * tokens))

    def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], top: int
    ) -> list[TokenScores]:
        """See `Engine.score`. Rows share passes as in prefill, in an arena of their own."""
        arena = KVArena(self.decoder.spec, self.device, self.dtype)
        books = [ScoreBook(c, top) for c in completions]
        fed = [(*p, *c)[:-1] for p, c in zip(prompts, completions, strict=True)]
        todo = [i for i, c in enumerate(completions) if len(c)]
        while todo:
            size = min(len(todo), SCORE_ROWS, self.rows_for(max(len(fed[i]) for i in todo)))
            now, todo = todo[:size], todo[size:]
            arena.reserve(len(now), max(len(fed[i]) for i in now))
            jobs = [Job(slot, 0, fed[i]) for slot, i in enumerate(now)]
            first = [len(prompts[i]) - 1 for i in now]
            for at, number, logits in self.decoder.logits_of(arena, jobs, first):
                books[now[at]].note(number - first[at], logits)
        return [book.scores() for book in books]

    def begin(
        self, prompts: Sequence[tuple[int, ...]], rows: int, busy: Collection[int] = ()
    ) -> tuple[np.ndarray, torch.Tensor, int]:
        """See `Engine.begin`. Equal new prompts, and what unequal ones have in common, are computed once."""
        self.call += 1
        self._reserve(rows, max(map(len, prompts)) + 1)
        packed = [_pack(p) for p in prompts]
        where, twin = self._place(packed, rows, set(busy))
        new = [i for i in range(len(prompts)) if twin[i] == i and not self.lens[where[i]]]
        groups = shares([packed[i] for i in new])
        late = {new[f] for g in groups for f in g.followers}
        if self.linger:
            self._borrow(packed, where, [i for i in new if i not in late])
        row_of: dict[int, int] = {}
        logits: list[torch.Tensor] = []
        computed = 0
        for turn in (False, True):
            if turn:
                for g in groups:
                    self._copy(int(where[new[g.leader]]), [int(where[new[f]]) for f in g.followers], g.length)
            jobs = [
                Job(int(where[i]), int(self.lens[where[i]]), p[self.lens[where[i]] :])
                for i, p in enumerate(prompts)
                if twin[i] == i and (i in late) == turn
            ]
            if jobs:
                jobs.sort(key=lambda j: j.slot)
                row_of |= {job.slot: len(row_of) + k for k, job in enumerate(jobs)}
                logits.append(self.decoder.prefill(self.arena, jobs))
                computed += sum(len(j.tokens) for j in jobs)
        for i, p in enumerate(prompts):
            if twin[i] != i:
                self._copy(int(where[twin[i]]), [int(where[i])], len(p))
            self.lens[where[i]], self.held[int(where[i])] = len(p), packed[i]
        pick = [row_of[int(where[twin[i]])] for i in range(len(prompts))]
        return where, torch.cat(logits)[torch.tensor(pick, device=self.device)], computed

    def step(self, tokens: torch.Tensor, live: np.ndarray) -> torch.Tensor:
        """See `Engine.step`. Rows that do not count write beyond their end, which nothing reads."""
        pos = self.lens[: len(tokens)]
        self._reserve(len(self.lens), int(pos.max()) + 1)
        longest = int(pos[live].max()) + 1
        logits = self.decoder.step(self.arena, tokens, torch.from_numpy(pos.copy()).to(self.device), longest)
        self.lens[: len(tokens)] += live
        return logits

    def swap(self, one: Sequence[int], other: Sequence[int]) -> None:
        """See `Engine.swap`."""
        pair = [*one, *other]
        self.arena.swap(one, other, int(self.lens[pair].max()))
        self.lens[pair] = self.lens[[*other, *one]]
        for a, b in zip(one, other, strict=True):
            slots = self.kept.pop(a, None), self.kept.pop(b, None)
            for at, slot in zip((b, a), slots, strict=True):
                if slot is not None:
                    self.kept[at] = slot
            ids = self.held.pop(a, None), self.held.pop(b, None)
            self.held |= {at: one for at, one in zip((b, a), ids, strict=True) if one is not None}

    def keep(self, row: int, ids: tuple[int, ...]) -> None:
        """See `Engine.keep`."""
        packed = _pack(ids)
        self.kept[row] = Slot(packed, self.call)
        self.held[row] = packed[: 4 * int(self.lens[row])]

    def end(self) -> None:
        """See `Engine.end`."""

    # --- placing -------------------------------------------------------------------------------------

    def _copy(self, source: int, targets: Sequence[int], length: int) -> None:
        """Give other slots the first `length` tokens of a slot."""
        self.arena.copy([source] * len(targets), targets, length)
        self.lens[list(targets)] = length

    def _borrow(self, packed: Sequence[bytes], where: np.ndarray, fresh: Sequence[int]) -> None:
        """Copy the beginnings of new prompts from rows under way or kept."""
        mine = {int(w) for w in where}
        donors = Donors({slot: ids for slot, ids in self.held.items() if slot not in mine})
        for i in fresh:
            slot, length = donors.find(packed[i])
            if length:
                self._copy(slot, [int(where[i])], length)

    def _reserve(self, rows: int, columns: int) -> None:
        if self.linger and rows > len(self.lens):  # rows come one by one: make room for more than one
            grown = -(-(len(self.lens) * 3 // 2 + 1) // GROW_ROWS) * GROW_ROWS
            rows = max(rows, min(grown, self.max_rows, self.rows_for(max(columns, self.arena.columns))))
        self.arena.reserve(rows, columns)
        if rows > len(self.lens):
            self.lens = np.concatenate([self.lens, np.zeros(rows - len(self.lens), dtype=np.int64)])

    def _place(self, packed: Sequence[bytes], rows: int, busy: set[int]) -> tuple[np.ndarray, np.ndarray]:
        """Give every prompt a slot below `rows` that is not busy. Returns slots, and for each prompt the one
        it equals."""
        where = self._continue(packed)
        taken = {int(s) for s in where if s >= 0}
        for s in [s for s in self.kept if s in taken or not self.linger]:
            del self.kept[s]
        holes = [s for s in range(rows) if s not in taken and s not in self.kept and s not in busy]
        need = len(packed) - sum(s < rows for s in taken)
        holes += self._evict([s for s in range(rows) if s in self.kept], rows, need - len(holes), taken)
        far = [i for i, s in enumerate(where) if s >= rows]
        if far:
            self.swap([int(where[i]) for i in far], holes[: len(far)])
            where[far] = holes[: len(far)]
            del holes[: len(far)]
        first: dict[bytes, int] = {}
        twin = np.arange(len(packed))
        fresh = [i for i, s in enumerate(where) if s < 0]
        for i in fresh:
            twin[i] = first.setdefault(packed[i], i)
        # Prompts that are computed get neighbouring slots: their attention then needs no gather.
        fresh.sort(key=lambda i: (twin[i] != i, i))
        where[fresh] = holes[: len(fresh)]
        idle = set(range(rows)).difference(where.tolist(), self.kept, busy)
        for s in (*where[fresh].tolist(), *idle):
            self.lens[s] = 0
            self.held.pop(s, None)
        return where, twin

    def _continue(self, packed: Sequence[bytes]) -> np.ndarray:
        """The kept slot each prompt extends, or -1. In the usual case the next unclaimed slot fits."""
        where = np.full(len(packed), -1, dtype=np.int64)
        open_slots = list(self.kept.items())
        for i, ids in enumerate(packed):
            for at, (slot, kept) in enumerate(open_slots):
                if len(ids) > len(kept.ids) and ids.startswith(kept.ids):
                    where[i] = slot
                    del open_slots[at]
                    break
        return where

    def _evict(self, inside: Sequence[int], rows: int, want: int, taken: set[int]) -> list[int]:
        """Free `want` of the kept slots `inside` the batch, moving rows out of it while there is room."""
        out: list[int] = []
        moves: list[tuple[int, int]] = []
        if want > 0 and len(self.lens) < self.max_rows:
            fit = min(self.max_rows, self.rows_for(self.arena.columns))
            self._reserve(max(len(self.lens), fit), self.arena.columns)
        room = [s for s in range(rows, len(self.lens)) if s not in self.kept and s not in taken]
        older = sorted((s for s in self.kept if s >= rows), key=lambda s: self.kept[s].used)
        for s in sorted(inside, key=lambda s: -self.kept[s].used)[: max(0, want)]:
            if not room and older and self.kept[older[0]].used < self.kept[s].used:
                room.append(older[0])
                del self.kept[older.pop(0)]
            if room:
                moves.append((s, room.pop()))
            else:
                del self.kept[s]
            out.append(s)
        if moves:
            self.swap([a for a, _ in moves], [b for _, b in moves])
        return out
