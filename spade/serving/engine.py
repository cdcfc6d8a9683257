"""Rows and caches: which row sits in which slot, what it has seen, and which prompts can go on from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from spade.serving.arena import KVArena
from spade.serving.checkpoint_files import ModelSpec
from spade.serving.decoder import Decoder, Job
from spade.serving.policy import TokenScores, TopTokens
from spade.serving.sampling import top_tokens

SCORE_ROWS = 64
"""Rows whose keys and values are held at once while given texts are scored."""


class Engine(Protocol):
    """What the sampling loop needs. Rows are positions 0 ... n-1 of the current batch."""

    vocab: int
    context: int
    dtype: torch.dtype
    device: torch.device

    def begin(self, prompts: Sequence[tuple[int, ...]], rows: int) -> tuple[np.ndarray, torch.Tensor, int]:
        """Prefill. Returns the row of each prompt, logits (prompts, vocab), and tokens computed."""
        ...

    def step(self, tokens: torch.Tensor, live: np.ndarray) -> torch.Tensor:
        """Feed one token to the first len(tokens) rows; `live` marks those that count. Logits (n, vocab)."""
        ...

    def swap(self, one: Sequence[int], other: Sequence[int]) -> None:
        """Exchange rows pairwise."""
        ...

    def keep(self, row: int, ids: tuple[int, ...]) -> None:
        """The row is finished and holds `ids` (prompt plus completion); a later prompt may extend it."""
        ...

    def end(self) -> None:
        """The batch is over."""
        ...

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """New weights; drops every cache."""
        ...

    def clear(self) -> None:
        """Drop every cache and give its memory back."""
        ...

    def rows_for(self, tokens: int) -> int:
        """How many rows of this length fit in memory."""
        ...

    def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], top: int
    ) -> list[TokenScores]:
        """Log-probs of given completions; no cache is used or kept."""
        ...


class ScoreBook:
    """Collects the log-probs of one given completion while logits come in, piece by piece and in order."""

    def __init__(self, completion: Sequence[int], top: int) -> None:
        self._ids, self._top = completion, top
        self._logprobs: list[float] = []
        self._greedy: list[bool] = []
        self._most: list[TopTokens] = []

    def note(self, start: int, logits: torch.Tensor) -> None:
        """Logits (n, vocab) that predict the completion's tokens from number `start` on."""
        ids = torch.tensor(list(self._ids[start : start + len(logits)]), device=logits.device)
        logprobs = torch.log_softmax(logits, -1)
        self._logprobs += logprobs.gather(1, ids[:, None])[:, 0].tolist()
        self._greedy += (logits.argmax(-1) == ids).tolist()
        if self._top:
            self._most += top_tokens(logits, self._top)

    def scores(self) -> TokenScores:
        """What was noted."""
        return TokenScores(tuple(self._logprobs), tuple(self._greedy), tuple(self._most))


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
    used goes first, without it every row that a call did not continue is dropped.
    """

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
        self.call = 0

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """See `Engine.load`."""
        self.decoder.load(state)
        self.clear()

    def clear(self) -> None:
        """See `Engine.clear`."""
        self.kept.clear()
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

    def begin(self, prompts: Sequence[tuple[int, ...]], rows: int) -> tuple[np.ndarray, torch.Tensor, int]:
        """See `Engine.begin`. Equal new prompts are computed once and copied."""
        self.call += 1
        self._reserve(rows, max(map(len, prompts)) + 1)
        packed = [_pack(p) for p in prompts]
        where, twin = self._place(packed, rows)
        jobs = [
            Job(int(where[i]), int(self.lens[where[i]]), p[self.lens[where[i]] :])
            for i, p in enumerate(prompts)
            if twin[i] == i
        ]
        jobs.sort(key=lambda j: j.slot)
        logits = self.decoder.prefill(self.arena, jobs)
        at = {job.slot: k for k, job in enumerate(jobs)}
        copies = [(int(where[twin[i]]), int(where[i])) for i in range(len(prompts)) if twin[i] != i]
        if copies:
            longest = max(map(len, prompts))
            self.arena.copy([s for s, _ in copies], [t for _, t in copies], longest)
        self.lens[where] = [len(p) for p in prompts]
        pick = [at[int(where[twin[i]])] for i in range(len(prompts))]
        return where, logits[torch.tensor(pick, device=self.device)], sum(len(j.tokens) for j in jobs)

    def step(self, tokens: torch.Tensor, live: np.ndarray) -> torch.Tensor:
        """See `Engine.step`. Rows that do not count write beyond their end, which nothing reads."""
        pos = self.lens[: len(tokens)]
        self._reserve(len(self.lens), int(pos.max()) + 1)
        logits = self.decoder.step(self.arena, tokens, torch.from_numpy(pos.copy()).to(self.device))
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

    def keep(self, row: int, ids: tuple[int, ...]) -> None:
        """See `Engine.keep`."""
        self.kept[row] = Slot(_pack(ids), self.call)

    def end(self) -> None:
        """See `Engine.end`."""

    # --- placing -------------------------------------------------------------------------------------

    def _reserve(self, rows: int, columns: int) -> None:
        self.arena.reserve(rows, columns)
        if rows > len(self.lens):
            self.lens = np.concatenate([self.lens, np.zeros(rows - len(self.lens), dtype=np.int64)])

    def _place(self, packed: Sequence[bytes], rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Give every prompt a slot below `rows`. Returns slots, and for each prompt the one it equals."""
        where = self._continue(packed)
        taken = {int(s) for s in where if s >= 0}
        for s in [s for s in self.kept if s in taken or not self.linger]:
            del self.kept[s]
        holes = [s for s in range(rows) if s not in taken and s not in self.kept]
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
        idle = set(range(rows)).difference(where.tolist(), self.kept)
        self.lens[[*where[fresh].tolist(), *idle]] = 0
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
            self._reserve(self.max_rows, self.arena.columns)
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
