"""From logits to tokens: inverse transform sampling with noise that belongs to the row alone."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from spade.serving.policy import Completion, SamplingParams, TopTokens
from spade.types import StopReason


def uniforms(seed: int | None, sample: int, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) for one completion, a function of (seed, sample) only; fresh for None."""
    root = secrets.randbits(63) if seed is None else seed
    key = np.array([root & (2**64 - 1), sample], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count)


@dataclass(slots=True)
class Request:
    """One row to generate: prompt ids, parameters, its noise (max_tokens,).

    `cancelled` is set from outside when nobody waits for the row any more; it then ends at its next token.
    """

    prompt: tuple[int, ...]
    params: SamplingParams
    noise: np.ndarray
    cancelled: bool = False


class Batch:
    """What the rows of one chunk have sampled so far. Row arrays are indexed by request."""

    def __init__(self, requests: Sequence[Request], context: int, vocab: int, device: torch.device) -> None:
        self.requests, self.device = requests, device
        count = len(requests)
        self.limit = np.array([r.params.max_tokens for r in requests])
        room = np.array([context - len(r.prompt) for r in requests])
        self.clipped = room < self.limit
        self.limit = np.minimum(self.limit, room)
        longest = int(self.limit.max())
        self.noise = np.zeros((count, longest))
        for i, r in enumerate(requests):
            self.noise[i, : self.limit[i]] = r.noise[: self.limit[i]]
        self.ids = np.zeros((count, longest), dtype=np.int64)
        self.logprobs = np.zeros((count, longest))
        self.done = np.zeros(count, dtype=np.int64)
        self.stopped = np.zeros(count, dtype=bool)
        sets = sorted({r.params.stop_token_ids for r in requests})
        self.stop_set = np.array([sets.index(r.params.stop_token_ids) for r in requests])
        self.stop_table = np.zeros((len(sets), vocab), dtype=bool)
        for i, stops in enumerate(sets):
            self.stop_table[i, [t for t in stops if 0 <= t < vocab]] = True
        self.filter = Filter(requests, device)
        watched = {i: r.params.stop_when for i, r in enumerate(requests)}
        self._watched = {i: stop for i, stop in watched.items() if stop is not None}
        self._seen: dict[int, list[int]] = {i: [] for i in self._watched}
        wanted = {i: r.params.top_logprobs for i, r in enumerate(requests)}
        self._wanted = {i: k for i, k in wanted.items() if k is not None}
        self._top: dict[int, list[TopTokens]] = {i: [] for i in self._wanted}

    def sample(self, which: np.ndarray, logits: torch.Tensor) -> tuple[torch.Tensor, np.ndarray]:
        """Sample one token for the requests `which` (n,) from logits (n, vocab).

        Returns the token ids (n,) on the device and a mask (n,) of requests that are now finished.
        """
        noise = torch.from_numpy(self.noise[which, self.done[which]])
        tokens, logprobs = self.filter.sample(which, logits, noise)
        ids = tokens.cpu().numpy()
        at = self.done[which]
        self.ids[which, at] = ids
        self.logprobs[which, at] = logprobs.cpu().numpy()
        self.done[which] = at + 1
        stopped = self.stop_table[self.stop_set[which], ids]
        if self._wanted:
            self._note_top(which, logits, ids)
        if self._watched:
            stopped |= self._watch(which, ids)
        self.stopped[which] = stopped
        gone = np.fromiter((self.requests[i].cancelled for i in which), bool, len(which))
        return tokens, stopped | gone | (at + 1 >= self.limit[which])

    def _watch(self, which: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Ask the `stop_when` of the rows that have one; a mask (n,) of rows that it ends."""
        ended = np.zeros(len(which), dtype=bool)
        for k, (row, token) in enumerate(zip(which.tolist(), ids.tolist(), strict=True)):
            stop_when = self._watched.get(row)
            if stop_when is not None:
                self._seen[row].append(token)
                ended[k] = stop_when(self._seen[row])
        return ended

    def _note_top(self, which: np.ndarray, logits: torch.Tensor, ids: np.ndarray) -> None:
        """Keep what `top_logprobs` asks for, at temperature 1."""
        rows = [(k, row) for k, row in enumerate(which.tolist()) if row in self._wanted]
        if not rows:
            return
        index = torch.tensor([k for k, _ in rows], device=logits.device)
        pairs = top_tokens(logits[index], max(self._wanted[row] for _, row in rows))
        logprobs = torch.log_softmax(logits[index], -1)
        for at, (k, row) in enumerate(rows):
            own = (int(ids[k]), float(logprobs[at, int(ids[k])]))
            self._top[row].append((own, *pairs[at][: self._wanted[row]]))

    def tokens(self, request: int) -> tuple[int, ...]:
        """Ids sampled for one request."""
        return tuple(self.ids[request, : self.done[request]].tolist())

    def completions(self, version: int) -> list[Completion]:
        """One completion per request, in order."""
        out = []
        for i in range(len(self.requests)):
            cut = StopReason.CONTEXT if self.clipped[i] else StopReason.LENGTH
            stop = StopReason.STOP if self.stopped[i] else cut
            if self.requests[i].cancelled and not self.stopped[i] and self.done[i] < self.limit[i]:
                stop = StopReason.CANCELLED
            logprobs = tuple(self.logprobs[i, : self.done[i]].tolist())
            out.append(Completion(self.tokens(i), logprobs, stop, version, tuple(self._top.get(i, ()))))
        return out


def top_tokens(logits: torch.Tensor, count: int) -> list[TopTokens]:
    """The `count` most likely ids and log-probs of each row of logits (n, vocab), most likely first."""
    count = min(count, logits.shape[-1])
    if count == 0:
        return [()] * len(logits)
    values, ids = torch.log_softmax(logits, -1).topk(count, -1)
    return [tuple(zip(i, v, strict=True)) for i, v in zip(ids.tolist(), values.tolist(), strict=True)]


class Filter:
    """Temperature, top-k and top-p of every request, as arrays."""

    def __init__(self, requests: Sequence[Request], device: torch.device) -> None:
        heat = np.array([r.params.temperature for r in requests], dtype=np.float32)
        self.greedy = heat <= 0
        self.heat = np.where(self.greedy, 1.0, heat).astype(np.float32)
        self.top_p = np.array([r.params.top_p for r in requests], dtype=np.float32)
        self.top_k = np.array([r.params.top_k for r in requests])
        self.plain = not ((self.top_p < 1).any() or (self.top_k > 0).any())
        self.device = device

    def sample(
        self, which: np.ndarray, logits: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and log-probs (n,). Log-probs are over the full vocabulary at the row's temperature
        (temperature 1 for greedy rows), whatever top-k and top-p leave out."""
        heat = torch.from_numpy(self.heat[which]).to(self.device)[:, None]
        logprobs = torch.log_softmax(logits / heat, -1)
        weights = logprobs.exp()
        if not self.plain:
            weights = self._truncate(which, weights)
        total = weights.cumsum(-1)
        # Scaling by the last entry keeps the point below the total, so a token of weight 0 is never hit.
        point = (noise.to(self.device) * total[:, -1]).float()[:, None]
        point = torch.minimum(point, torch.nextafter(total[:, -1:], torch.zeros_like(point)))
        tokens = torch.searchsorted(total, point, right=True)[:, 0]
        greedy = self.greedy[which]
        if greedy.any():
            mask = torch.from_numpy(greedy).to(self.device)
            tokens = torch.where(mask, logits.argmax(-1), tokens)
        return tokens, logprobs.gather(1, tokens[:, None])[:, 0]

    def _truncate(self, which: np.ndarray, weights: torch.Tensor) -> torch.Tensor:
        """Zero what top-k and top-p exclude; the most likely token always stays."""
        ordered, order = weights.sort(stable=True, dim=-1, descending=True)
        rank = torch.arange(weights.shape[1], device=self.device)
        top_k = torch.from_numpy(np.where(self.top_k[which] > 0, self.top_k[which], weights.shape[1]))
        top_p = torch.from_numpy(self.top_p[which]).to(self.device)[:, None]
        before = ordered.cumsum(-1) - ordered
        keep = (rank < top_k.to(self.device)[:, None]) & ((before < top_p) | (top_p >= 1))
        keep[:, 0] = True
        return torch.zeros_like(weights).scatter_(1, order, ordered * keep)
