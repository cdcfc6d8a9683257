"""Continuous batching: rows are let in whenever there is room, stepped together, and retired one by one."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from spade.errors import BackendError
from spade.serving.device import is_out_of_memory
from spade.serving.engine import Engine
from spade.serving.policy import Completion, PolicyStats
from spade.serving.seats import Request, Seats
from spade.types import StopReason

PAD_ROWS = 8
"""Batches shrink in steps of this many rows."""
CROWD = 8
"""While more rows wait than fit, they are let in when one in CROWD is free: each time costs a pass."""
PATIENCE = 2
"""Steps between two admissions to a batch of more than `PAD_ROWS` rows, for the same reason."""


class Call:
    """One call of `generate`: collects its rows and settles, once, with all of them or with an error."""

    def __init__(
        self, number: int, requests: Sequence[Request], settle: Callable[[list[Completion] | Exception], None]
    ) -> None:
        self.requests, self._settle = requests, settle
        self._done: list[Completion | None] = [None] * len(requests)
        self._left = len(requests)
        for i, request in enumerate(requests):
            request.call, request.fail = number, self.fail
            request.deliver = partial(self._take, i)

    def cancel(self) -> None:
        """Nobody waits any more: rows end at their next token."""
        for request in self.requests:
            request.cancelled = True

    def _take(self, i: int, completion: Completion) -> None:
        self._done[i] = completion
        self._left -= 1
        if self._left == 0:
            self._settle([c for c in self._done if c is not None])

    def fail(self, error: Exception) -> None:
        """End the call with an error."""
        self.cancel()
        if self._left > 0:
            self._left = -1
            self._settle(error)


class Rows:
    """The rows in flight on one engine, and those that wait. Everything here runs in the engine's thread.

    With `deterministic` a call has the engine to itself: what it finds in the caches, and so the last bits of
    its results, then depend on the calls before it, not on when others arrive.
    """

    def __init__(self, engine: Engine, context: int, max_rows: int, deterministic: bool) -> None:
        self.engine, self.context, self.deterministic = engine, context, deterministic
        self.max_rows = self._fit = max_rows
        self.queue: deque[Request] = deque()
        self.stats = PolicyStats()
        self.version = 0
        self._said_oom = False
        self._reset()

    def _reset(self) -> None:
        self.seats = Seats(self.context, self.engine.vocab, self.engine.device)
        self.owner = np.zeros(0, dtype=np.int64)
        """Seat of each row of the batch, -1 for a row that does not count."""
        self.live = 0
        """Rows under way."""
        self.sampled = torch.zeros(0, dtype=torch.long, device=self.engine.device)
        """The latest token of each row."""
        self._call = -1
        """The call that rows were let in of last."""
        self._steps = 0
        """Steps since then."""

    def advance(self) -> None:
        """Let in what fits, or else make one step. Errors go to the callers concerned."""
        new: list[Request] = []
        try:
            with torch.inference_mode():
                new = self._choose()
                if new:
                    self._admit(new)
                elif self.live:
                    self._step()
        except (RuntimeError, MemoryError) as error:
            self._recover(error, new)
        except Exception as error:  # fault boundary: whatever failed belongs to the waiting callers
            self._fail(error, new)
        if not self.live and len(self.owner):
            self.engine.end()
            self.owner, self.sampled = self.owner[:0], self.sampled[:0]

    # --- letting in ----------------------------------------------------------------------------------

    def _choose(self) -> list[Request]:
        """The waiting rows to let in now, in order of arrival."""
        while self.queue and self.queue[0].cancelled:
            self.queue.popleft().deliver(Completion((), (), StopReason.CANCELLED, self.version))
        if not self.queue or (self.live and not self.engine.joins):
            return []
        if self.live and self.deterministic and self.queue[0].call != self._call:
            return []
        if self.live > PAD_ROWS and self._steps < PATIENCE:
            return []
        longest = int(self.seats.need[self.owner[self.owner >= 0]].max()) if self.live else 0
        chosen: list[Request] = []
        for request in self.queue:
            if self.deterministic and request.call != self.queue[0].call:
                break
            longest = max(longest, min(len(request.prompt) + request.params.max_tokens, self.context))
            limit = max(1, min(self._fit, self.max_rows, self.engine.rows_for(longest)))
            if self.live + len(chosen) >= limit:
                if self.live and len(chosen) < limit // CROWD:
                    return []
                break
            chosen.append(request)
        return chosen

    def _admit(self, requests: list[Request]) -> None:
        """Prefill new rows, the first of the queue, beside those under way; sample their first token."""
        busy = np.flatnonzero(self.owner >= 0)
        rows = max(len(self.owner), self._padded(len(busy) + len(requests)))
        prompts = [(*r.prompt, *(t for t, _ in r.sampled)) for r in requests]
        where, logits, computed = self.engine.begin(prompts, rows, busy.tolist())
        self._call, self._steps = requests[0].call, 0
        seats = self.seats.take(requests)
        for _ in requests:
            self.queue.popleft()
        more = rows - len(self.owner)
        self.owner = np.concatenate([self.owner, np.full(more, -1, dtype=np.int64)])
        self.sampled = torch.cat([self.sampled, self.sampled.new_zeros(more)])
        self.owner[where] = seats
        self.live += len(requests)
        tokens, finished = self.seats.sample(seats, logits)
        self.sampled[torch.from_numpy(where).to(self.engine.device)] = tokens
        self.stats.requests += len(requests)
        self.stats.prompt_tokens += sum(len(r.prompt) for r in requests)
        self.stats.prefilled_tokens += computed
        self._retire(seats[finished])

    # --- going on ------------------------------------------------------------------------------------

    def _step(self) -> None:
        live = self.owner >= 0
        self._steps += 1
        logits = self.engine.step(self.sampled, live)
        if self.live == len(live):
            who = self.owner
            self.sampled, finished = self.seats.sample(who, logits)
        else:
            at = np.flatnonzero(live)
            who, index = self.owner[at], torch.from_numpy(at).to(self.engine.device)
            self.sampled[index], finished = self.seats.sample(who, logits[index])
        self._retire(who[finished])

    def _retire(self, finished: np.ndarray) -> None:
        """Hand over finished rows and close the gaps they leave."""
        if not len(finished):
            return
        row_of = {int(seat): row for row, seat in enumerate(self.owner) if seat >= 0}
        for seat in finished.tolist():
            self.engine.keep(row_of[seat], self.seats.fed(seat))
            self.owner[row_of[seat]] = -1
            request = self.seats.request(seat)
            completion = self.seats.finish(seat, self.version)
            self.stats.sampled_tokens += len(completion.token_ids)
            request.deliver(completion)
        self.live -= len(finished)
        self._compact()

    def _compact(self) -> None:
        """Shrink the batch to the padded number of live rows, moving live rows into the gaps."""
        rows = self._padded(self.live)
        if rows >= len(self.owner) or self.live == 0:
            return
        tail = [rows + i for i in np.flatnonzero(self.owner[rows:] >= 0).tolist()]
        gaps = np.flatnonzero(self.owner[:rows] < 0).tolist()[: len(tail)]
        if tail:
            self.engine.swap(gaps, tail)
            self.sampled[gaps] = self.sampled[tail]
            self.owner[gaps] = self.owner[tail]
        self.sampled, self.owner = self.sampled[:rows], self.owner[:rows]

    def _padded(self, live: int) -> int:
        """Batch rows for `live` rows: a function of that number alone."""
        if not self.deterministic and live <= PAD_ROWS:
            return live
        return -(-live // PAD_ROWS) * PAD_ROWS

    # --- when something breaks -----------------------------------------------------------------------

    def _recover(self, error: Exception, new: Sequence[Request]) -> None:
        """After running out of memory, go on with half the rows; anything else is the engine's failure."""
        rows = max(self.live, int(self.live + len(new)))
        if not is_out_of_memory(error):
            failed = BackendError(f"The serving engine failed: {error}")
        elif rows <= 1:
            failed = BackendError("Out of memory with one row; shorten prompts or use a smaller model.")
        else:
            self._halve(rows)
            return
        failed.__cause__ = error
        self._fail(failed, new)

    def _halve(self, rows: int) -> None:
        """Put the rows under way back to the front of the queue, as far as they got, and start afresh."""
        self._fit = rows // 2
        if not self._said_oom:
            self._said_oom = True
            print(f"serving: out of memory with {rows} rows; going on with {self._fit}.", file=sys.stderr)
        under_way = [self.seats.interrupt(seat) for seat in self.owner[self.owner >= 0].tolist()]
        self.queue.extendleft(reversed(under_way))
        self._clear()

    def _fail(self, error: Exception, new: Sequence[Request]) -> None:
        """End every call that has a row under way or among `new`, and start afresh."""
        hit = [*new, *(self.seats.request(seat) for seat in self.owner[self.owner >= 0].tolist())]
        for request in hit:
            request.fail(error)
        self._clear()

    def abandon(self) -> None:
        """Forget every row."""
        self.queue.clear()
        self._reset()

    def _clear(self) -> None:
        self.engine.clear()
        self._reset()
        if self.engine.device.type == "cuda":
            torch.cuda.empty_cache()
