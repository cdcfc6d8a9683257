"""`LocalPolicy`: a checkpoint folder in this process, on the built-in decoder or through transformers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spade.errors import BackendError, InputError
from spade.serving.checkpoint_files import ModelSpec, read_config, read_spec, read_weights
from spade.serving.device import is_out_of_memory, memory_for_caches, pick_device, pick_dtype
from spade.serving.engine import Engine, SlotEngine
from spade.serving.policy import Completion, PolicyStats, SamplingParams, TokenScores
from spade.serving.sampling import Batch, Request, uniforms
from spade.types import StopReason

if TYPE_CHECKING:
    from spade.config import ServingConfig

PAD_ROWS = 8
"""Batches shrink in steps of this many rows."""


class LocalPolicy:
    """Serves one checkpoint folder. See `spade.serving.policy.Policy` for the methods.

    With `deterministic` the result of a row depends on weights, prompt and seed only: batches are padded to
    a multiple of eight rows, calls are not merged, and every kernel used gives a row the same bits in any
    company (checked by the tests on the machine at hand; on a GPU this is not promised).
    Without it, calls that arrive while the engine is busy share the next batch.
    """

    exact_tokens = True
    privileged = False

    def __init__(self, engine: Engine, cfg: ServingConfig) -> None:
        self._engine = engine
        self.deterministic = _is_deterministic(cfg, engine.device)
        self.lockstep = self.deterministic
        self.context_length = min(engine.context, cfg.context_length or engine.context)
        self.max_rows = cfg.max_rows
        self.stats = PolicyStats()
        self.version = 0
        self._rows = cfg.max_rows
        self._said_oom = False
        self._running: list[Request] = []
        self._waiting: list[tuple[list[Request], asyncio.Future[list[Completion]]]] = []
        self._drain: asyncio.Task[None] | None = None
        threads = max(1, cfg.threads)
        # torch keeps its thread count per thread, so it is set where the work happens.
        self._pool = ThreadPoolExecutor(1, "spade-serving", lambda: torch.set_num_threads(threads))

    @property
    def dtype(self) -> torch.dtype:
        """The type the weights are served in."""
        return self._engine.dtype

    @classmethod
    def from_folder(cls, folder: Path, cfg: ServingConfig) -> LocalPolicy:
        """Load a checkpoint. Raises `InputError` (bad checkpoint) or `ConfigError` (no such device)."""
        config = read_config(folder)
        device = pick_device(cfg.device)
        spec = read_spec(config)
        state = read_weights(folder)
        dtype = pick_dtype(cfg.dtype, device, sum(t.numel() for t in state.values()))
        if spec is None:
            from spade.serving.hf_engine import HFEngine

            return cls(HFEngine.from_folder(folder, device, dtype), cfg)
        return cls(_slot_engine(folder, spec, state, device, dtype, cfg), cfg)

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        n: int = 1,
    ) -> list[list[Completion]]:
        """See `Policy.generate`. Greedy rows report log-probs at temperature 1."""
        if not prompts:
            return []
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        if len(each) != len(prompts):
            raise BackendError(f"generate got {len(prompts)} prompts but {len(each)} sampling parameters.")
        requests = [self._request(p, s, j) for p, s in zip(prompts, each, strict=True) for j in range(n)]
        future: asyncio.Future[list[Completion]] = asyncio.get_running_loop().create_future()
        self._waiting.append((requests, future))
        if self._drain is None or self._drain.done():
            self._drain = asyncio.create_task(self._serve())
        try:
            flat = await future
        except asyncio.CancelledError:
            for request in requests:
                request.cancelled = True
            raise
        return [flat[i : i + n] for i in range(0, len(flat), n)]

    async def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], top: int = 0
    ) -> list[TokenScores]:
        """Log-probs of given completions, in order; `top` asks for the most likely tokens beside.

        Raises `InputError` for an empty prompt, or when a prompt and its completion exceed the context by
        more than the last token, which is not fed. The result of a row does not depend on its company.
        """
        for prompt, completion in zip(prompts, completions, strict=True):
            if not prompt:
                raise InputError("Tokens without a prompt before them cannot be scored.")
            if len(prompt) + len(completion) - 1 > self.context_length:
                raise InputError(
                    f"{len(prompt)} + {len(completion)} tokens do not fit a context of "
                    f"{self.context_length}; shorten them or raise serving.context_length."
                )
        scores: list[TokenScores] = await self._in_thread(self._score, prompts, completions, top)
        return scores

    async def load_weights(self, named: Iterable[tuple[str, Any]], version: int) -> None:
        """See `Policy.load_weights`."""
        state = dict(named)
        await self._in_thread(self._load, state)
        self.version = version

    async def sleep(self) -> None:
        """Drop every key-value cache."""
        await self._in_thread(self._engine.clear)

    async def wake(self) -> None:
        """Nothing to do: caches grow on use."""

    async def close(self) -> None:
        """End what is running, stop the worker thread and drop the caches."""
        for request in [*self._running, *(r for rs, _ in self._waiting for r in rs)]:
            request.cancelled = True
        if self._drain is not None and not self._drain.done():
            await asyncio.wait([self._drain])
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._engine.clear()

    # --- batching ------------------------------------------------------------------------------------

    def _request(self, prompt: Sequence[int], params: SamplingParams, sample: int) -> Request:
        if not prompt:
            raise InputError("A prompt without tokens cannot be continued.")
        if len(prompt) >= self.context_length:
            raise InputError(
                f"A prompt of {len(prompt)} tokens leaves no room in a context of {self.context_length}; "
                "shorten it or raise serving.context_length."
            )
        if params.max_tokens < 1:
            raise InputError(f"max_tokens must be at least 1, got {params.max_tokens}.")
        return Request(tuple(prompt), params, uniforms(params.seed, sample, params.max_tokens))

    async def _in_thread(self, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    async def _serve(self) -> None:
        """Run waiting calls one batch at a time until none is left."""
        while self._waiting:
            taken = [self._waiting.pop(0)]
            while not self.deterministic and self._waiting:
                if sum(len(r) for r, _ in taken) + len(self._waiting[0][0]) > self.max_rows:
                    break
                taken.append(self._waiting.pop(0))
            self._running = [r for rs, _ in taken for r in rs]
            try:
                done = await self._in_thread(self._run, self._running)
            except Exception as err:  # fault boundary: whatever failed belongs to the waiting callers
                for _, future in taken:
                    if not future.done():
                        future.set_exception(err)
                continue
            for rs, future in taken:
                mine, done = done[: len(rs)], done[len(rs) :]
                if not future.done():
                    future.set_result(mine)

    # --- in the worker thread ------------------------------------------------------------------------

    def _load(self, state: Mapping[str, torch.Tensor]) -> None:
        with torch.inference_mode():
            try:
                self._engine.load(state)
            except (KeyError, RuntimeError) as err:
                raise BackendError(f"The new weights do not fit the served model: {err}.") from err

    def _score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], top: int
    ) -> list[TokenScores]:
        with torch.inference_mode():
            try:
                return self._engine.score(prompts, completions, top)
            except (RuntimeError, MemoryError) as err:
                raise BackendError(f"The serving engine failed: {err}") from err

    def _run(self, requests: list[Request]) -> list[Completion]:
        """All requests, in chunks that fit; halves the chunk when memory runs out."""
        if all(r.cancelled for r in requests):
            return [Completion((), (), StopReason.CANCELLED, self.version)] * len(requests)
        out: list[Completion] = []
        longest = max(len(r.prompt) + r.params.max_tokens for r in requests)
        fit = self._engine.rows_for(min(longest, self.context_length))
        while len(out) < len(requests):
            size = max(1, min(self._rows, self.max_rows, fit))
            chunk = requests[len(out) : len(out) + size]
            try:
                with torch.inference_mode():
                    out.extend(self._chunk(chunk))
            except (RuntimeError, MemoryError) as err:
                self._shrink(err, len(chunk))
        return out

    def _shrink(self, err: Exception, rows: int) -> None:
        """Halve the rows of a pass after an out-of-memory error; anything else is the engine's failure."""
        if not is_out_of_memory(err):
            raise BackendError(f"The serving engine failed: {err}") from err
        self._engine.clear()
        if self.device_type == "cuda":
            torch.cuda.empty_cache()
        if rows <= 1:
            raise BackendError("Out of memory with one row; shorten prompts or use a smaller model.") from err
        self._rows = rows // 2
        if not self._said_oom:
            self._said_oom = True
            print(f"serving: out of memory with {rows} rows; going on with {self._rows}.", file=sys.stderr)

    @property
    def device_type(self) -> str:
        """`cpu` or `cuda`."""
        return self._engine.device.type

    def _chunk(self, requests: list[Request]) -> list[Completion]:
        """Prefill and decode one chunk to the end."""
        engine, count = self._engine, len(requests)
        batch = Batch(requests, self.context_length, engine.vocab, engine.device)
        rows = self._padded(count)
        where, logits, computed = engine.begin([r.prompt for r in requests], rows)
        owner = np.full(rows, -1, dtype=np.int64)
        owner[where] = np.arange(count)
        tokens, finished = batch.sample(np.arange(count), logits)
        sampled = torch.zeros(rows, dtype=torch.long, device=engine.device)
        sampled[torch.from_numpy(where)] = tokens
        who = np.arange(count)
        while True:
            self._retire(batch, owner, who[finished])
            sampled, owner = self._compact(sampled, owner)
            live = owner >= 0
            if not live.any():
                break
            logits = engine.step(sampled, live)
            at = np.flatnonzero(live)
            who = owner[at]
            index = torch.from_numpy(at).to(engine.device)
            tokens, finished = batch.sample(who, logits if live.all() else logits[index])
            sampled[index] = tokens
        engine.end()
        self._count(requests, batch, computed)
        return batch.completions(self.version)

    def _retire(self, batch: Batch, owner: np.ndarray, finished: np.ndarray) -> None:
        if not len(finished):
            return
        row_of = {int(r): i for i, r in enumerate(owner) if r >= 0}
        for r in finished.tolist():
            self._engine.keep(row_of[r], batch.requests[r].prompt + batch.tokens(r))
            owner[row_of[r]] = -1

    def _compact(self, sampled: torch.Tensor, owner: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
        """Shrink the batch to the padded number of live rows, moving live rows into the gaps."""
        live = int((owner >= 0).sum())
        rows = self._padded(live)
        if rows >= len(owner) or live == 0:
            return sampled, owner
        tail = [rows + i for i in np.flatnonzero(owner[rows:] >= 0).tolist()]
        gaps = np.flatnonzero(owner[:rows] < 0).tolist()[: len(tail)]
        if tail:
            self._engine.swap(gaps, tail)
            sampled[gaps] = sampled[tail]
            owner[gaps] = owner[tail]
        return sampled[:rows], owner[:rows]

    def _padded(self, live: int) -> int:
        """Batch rows for `live` rows: a function of that number alone."""
        if not self.deterministic and live <= PAD_ROWS:
            return live
        return -(-live // PAD_ROWS) * PAD_ROWS

    def _count(self, requests: Sequence[Request], batch: Batch, computed: int) -> None:
        self.stats.requests += len(requests)
        self.stats.prompt_tokens += sum(len(r.prompt) for r in requests)
        self.stats.prefilled_tokens += computed
        self.stats.sampled_tokens += int(batch.done.sum())


def _slot_engine(
    folder: Path, spec: ModelSpec, state: Mapping[str, torch.Tensor], device: torch.device,
    dtype: torch.dtype, cfg: ServingConfig,
) -> SlotEngine:  # fmt: skip
    rows = -(-cfg.max_rows // PAD_ROWS) * PAD_ROWS
    linger = not _is_deterministic(cfg, device)
    try:
        return SlotEngine(spec, state, device, dtype, rows, linger, memory_for_caches(device))
    except (KeyError, RuntimeError) as err:
        raise InputError(f"The weights in {folder} do not fit its config.json: {err}.") from err


def _is_deterministic(cfg: ServingConfig, device: torch.device) -> bool:
    return device.type == "cpu" if cfg.deterministic is None else bool(cfg.deterministic)
