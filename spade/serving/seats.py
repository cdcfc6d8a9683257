"""What the rows in flight have sampled so far: a seat each, taken when let in and freed at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from spade.serving.policy import Completion, SamplingParams, TopTokens
from spade.serving.sampling import Heat, sample, top_tokens
from spade.types import StopReason


@dataclass(slots=True)
class Request:
    """One row to generate: prompt ids, parameters, its noise (max_tokens,).

    `cancelled` is set from outside when nobody waits for the row any more; it then ends at its next token.
    `deliver` takes the finished row and `fail` an error, both in the engine's thread. `sampled` is not empty
    only for a row that had to be interrupted: it goes on from there.
    """

    prompt: tuple[int, ...]
    params: SamplingParams
    noise: np.ndarray
    deliver: Callable[[Completion], None] = field(default=lambda _: None, repr=False)
    fail: Callable[[Exception], None] = field(default=lambda _: None, repr=False)
    call: int = 0
    cancelled: bool = False
    sampled: tuple[tuple[int, float], ...] = ()
    top: list[TopTokens] = field(default_factory=list)


@dataclass(slots=True)
class _Extra:
    """What only some rows need: their ids as a list for `stop_when`, their most likely tokens."""

    seen: list[int] | None
    top: list[TopTokens] | None


class Seats:
    """Arrays (seats, ...) to sample on, so that a step costs the same Python for any number of rows."""

    def __init__(self, context: int, vocab: int, device: torch.device) -> None:
        self.context, self.vocab, self.device = context, vocab, device
        self.requests: list[Request | None] = []
        self._free: list[int] = []
        self.need = np.zeros(0, dtype=np.int64)
        """Most tokens a row may come to, its prompt included."""
        self.limit = np.zeros(0, dtype=np.int64)
        self.done = np.zeros(0, dtype=np.int64)
        self.stopped = np.zeros(0, dtype=bool)
        self.noise = np.zeros((0, 0))
        self.ids = np.zeros((0, 0), dtype=np.int64)
        self.logprobs = np.zeros((0, 0))
        self.heat = Heat()
        self._stop_sets: dict[tuple[int, ...], int] = {}
        self._stop_set = np.zeros(0, dtype=np.int64)
        self._stop_table = np.zeros((0, vocab), dtype=bool)
        self._extra: dict[int, _Extra] = {}

    # --- coming and going ----------------------------------------------------------------------------

    def take(self, requests: Sequence[Request]) -> np.ndarray:
        """Seat new rows; returns their seats (n,)."""
        longest = max(self._limit(r) for r in requests)
        self._grow(len(requests), longest)
        seats = [self._free.pop() for _ in requests]
        for seat, request in zip(seats, requests, strict=True):
            self._seat(seat, request)
        return np.array(seats, dtype=np.int64)

    def fed(self, seat: int) -> tuple[int, ...]:
        """Prompt and sampled ids of a row."""
        return self.request(seat).prompt + tuple(self.ids[seat, : self.done[seat]].tolist())

    def finish(self, seat: int, version: int) -> Completion:
        """The completion of a row; frees its seat."""
        request, done = self.request(seat), int(self.done[seat])
        stop = StopReason.LENGTH
        if self.stopped[seat]:
            stop = StopReason.STOP
        elif request.cancelled and done < self.limit[seat]:
            stop = StopReason.CANCELLED
        elif self.limit[seat] < request.params.max_tokens:
            stop = StopReason.CONTEXT
        extra = self._extra.get(seat)
        top = tuple(extra.top) if extra is not None and extra.top is not None else ()
        ids, logprobs = self.ids[seat, :done].tolist(), self.logprobs[seat, :done].tolist()
        self._release(seat)
        return Completion(tuple(ids), tuple(logprobs), stop, version, top)

    def interrupt(self, seat: int) -> Request:
        """Take a row out unfinished; what it has sampled stays part of it."""
        request, done = self.request(seat), int(self.done[seat])
        pairs = zip(self.ids[seat, :done].tolist(), self.logprobs[seat, :done].tolist(), strict=True)
        request.sampled = tuple(pairs)
        extra = self._extra.get(seat)
        request.top = extra.top if extra is not None and extra.top is not None else []
        self._release(seat)
        return request

    def _release(self, seat: int) -> None:
        self.requests[seat] = None
        self._extra.pop(seat, None)
        self._free.append(seat)
        if len(self._free) == len(self.requests):
            self._stop_sets.clear()

    def request(self, seat: int) -> Request:
        """The row in a seat."""
        request = self.requests[seat]
        assert request is not None
        return request

    def _limit(self, request: Request) -> int:
        return min(request.params.max_tokens, self.context - len(request.prompt))

    def _grow(self, rows: int, longest: int) -> None:
        """Room for `rows` more rows of up to `longest` tokens."""
        more = max(0, rows - len(self._free))
        old, width = self.ids.shape
        size, wider = old + more, max(width, longest)
        if more:
            self.requests += [None] * more
            self._free += range(size - 1, old - 1, -1)
            for name in ("need", "limit", "done", "stopped", "_stop_set"):
                array = getattr(self, name)
                setattr(self, name, np.concatenate([array, np.zeros(more, dtype=array.dtype)]))
            self.heat.grow(more)
        if more or wider > width:
            for name in ("noise", "ids", "logprobs"):
                array = getattr(self, name)
                grown = np.zeros((size, wider), dtype=array.dtype)
                grown[:old, :width] = array
                setattr(self, name, grown)

    def _seat(self, seat: int, request: Request) -> None:
        params, before = request.params, request.sampled
        limit = self._limit(request)
        self.requests[seat] = request
        self.need[seat], self.limit[seat] = len(request.prompt) + limit, limit
        self.done[seat], self.stopped[seat] = len(before), False
        self.noise[seat, :limit] = request.noise[:limit]
        if before:
            self.ids[seat, : len(before)] = [t for t, _ in before]
            self.logprobs[seat, : len(before)] = [p for _, p in before]
        self.heat.put(seat, params)
        self._stop_set[seat] = self._stops(params.stop_token_ids)
        if params.stop_when is not None or params.top_logprobs is not None:
            seen = [t for t, _ in before] if params.stop_when is not None else None
            top = request.top if params.top_logprobs is not None else None
            self._extra[seat] = _Extra(seen, top)

    def _stops(self, ids: tuple[int, ...]) -> int:
        """Row of the table that marks these ids."""
        if ids not in self._stop_sets:
            at = self._stop_sets[ids] = len(self._stop_sets)
            if at >= len(self._stop_table):
                more = np.zeros((max(4, at), self.vocab), dtype=bool)
                self._stop_table = np.concatenate([self._stop_table, more])
            self._stop_table[at] = False
            self._stop_table[at, [t for t in ids if 0 <= t < self.vocab]] = True
        return self._stop_sets[ids]

    # --- sampling ------------------------------------------------------------------------------------

    def sample(self, which: np.ndarray, logits: torch.Tensor) -> tuple[torch.Tensor, np.ndarray]:
        """Sample one token for the rows in seats `which` (n,) from logits (n, vocab).

        Returns the token ids (n,) on the device and a mask (n,) of rows that are now finished.
        """
        at = self.done[which]
        noise = torch.from_numpy(self.noise[which, at])
        tokens, logprobs = sample(self.heat, which, logits, noise)
        ids = tokens.cpu().numpy()
        self.ids[which, at] = ids
        self.logprobs[which, at] = logprobs.cpu().numpy()
        self.done[which] = at + 1
        stopped = self._stop_table[self._stop_set[which], ids]
        if self._extra:
            stopped |= self._look(which, ids, logits)
        self.stopped[which] = stopped
        gone = [r is not None and r.cancelled for r in map(self.requests.__getitem__, which.tolist())]
        return tokens, stopped | np.array(gone) | (at + 1 >= self.limit[which])

    def _look(self, which: np.ndarray, ids: np.ndarray, logits: torch.Tensor) -> np.ndarray:
        """Serve the rows with a `stop_when` or a `top_logprobs`; a mask (n,) of rows that are ended."""
        ended = np.zeros(len(which), dtype=bool)
        wanted: list[tuple[int, int, int]] = []
        for k, (seat, token) in enumerate(zip(which.tolist(), ids.tolist(), strict=True)):
            extra = self._extra.get(seat)
            if extra is None:
                continue
            params = self.request(seat).params
            if extra.seen is not None and params.stop_when is not None:
                extra.seen.append(token)
                ended[k] = params.stop_when(extra.seen)
            if params.top_logprobs is not None:
                wanted.append((k, seat, params.top_logprobs))
        if wanted:
            self._note_top(wanted, logits, ids)
        return ended

    def _note_top(
        self, wanted: Sequence[tuple[int, int, int]], logits: torch.Tensor, ids: np.ndarray
    ) -> None:
        """Keep what `top_logprobs` asks for, at temperature 1: (position, seat, number) of each row."""
        index = torch.tensor([k for k, _, _ in wanted], device=logits.device)
        pairs = top_tokens(logits[index], max(count for _, _, count in wanted))
        logprobs = torch.log_softmax(logits[index], -1)
        for at, (k, seat, count) in enumerate(wanted):
            own = (int(ids[k]), float(logprobs[at, int(ids[k])]))
            top = self._extra[seat].top
            if top is not None:
                top.append((own, *pairs[at][:count]))
