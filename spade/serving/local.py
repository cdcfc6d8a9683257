"""`LocalPolicy`: a checkpoint folder in this process, on the built-in decoder or through transformers."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from spade.errors import BackendError, InputError
from spade.serving.checkpoint_files import ModelSpec, read_config, read_spec, read_weights
from spade.serving.device import memory_for_caches, pick_device, pick_dtype
from spade.serving.engine import Engine
from spade.serving.policy import Completion, PolicyStats, SamplingParams, TokenScores
from spade.serving.running import PAD_ROWS, Call, Rows
from spade.serving.sampling import uniforms
from spade.serving.seats import Request
from spade.serving.slots import SlotEngine

if TYPE_CHECKING:
    from spade.config import ServingConfig


@dataclass(frozen=True, slots=True)
class Errand:
    """Something else to do in the engine's thread; with `alone` when no row is under way."""

    run: Callable[[], None]
    alone: bool


class LocalPolicy:
    """Serves one checkpoint folder. See `spade.serving.policy.Policy` for the methods.

    Rows of all calls share one running batch: a call that arrives joins it at the next token, as far as
    there is room, and each row leaves at its own end. With `deterministic` a call has the batch to itself,
    which is padded to a multiple of eight rows: the result of a row then depends on weights, prompt and seed
    and on the calls before it only, because every kernel used gives a row the same bits in any company
    (checked by the tests on the machine at hand; on a GPU this is not promised).
    """

    exact_tokens = True
    privileged = False

    def __init__(self, engine: Engine, cfg: ServingConfig) -> None:
        self._engine = engine
        self.deterministic = _is_deterministic(cfg, engine.device)
        self.lockstep = self.deterministic
        self.context_length = min(engine.context, cfg.context_length or engine.context)
        self.max_rows = cfg.max_rows
        self._rows = Rows(engine, self.context_length, cfg.max_rows, self.deterministic)
        self._calls = 0
        self._inbox: deque[Call | Errand] = deque()
        self._open: set[Call] = set()
        self._lock = threading.Lock()
        self._working = self._closed = False
        threads = max(1, cfg.threads)
        # torch keeps its thread count per thread, so it is set where the work happens.
        self._pool = ThreadPoolExecutor(1, "spade-serving", lambda: torch.set_num_threads(threads))

    @property
    def dtype(self) -> torch.dtype:
        """The type the weights are served in."""
        return self._engine.dtype

    @property
    def stats(self) -> PolicyStats:
        """See `Policy.stats`."""
        return self._rows.stats

    @property
    def version(self) -> int:
        """Of the weights, as given to `load_weights`."""
        return self._rows.version

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
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Completion]] = loop.create_future()
        self._calls += 1
        call = Call(self._calls, requests, lambda result: _settle(loop, future, result))
        self._open.add(call)
        try:
            self._put(call)
            flat = await future
        except asyncio.CancelledError:
            call.cancel()
            raise
        finally:
            self._open.discard(call)
        return [flat[i : i + n] for i in range(0, len(flat), n)]

    async def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], top: int = 0
    ) -> list[TokenScores]:
        """Log-probs of given completions, in order; `top` asks for the most likely tokens beside.

        Raises `InputError` for an empty prompt, an id that the model does not have, or when a prompt and its
        completion exceed the context by more than the last token, which is not fed. The result of a row does
        not depend on its company.
        """
        for prompt, completion in zip(prompts, completions, strict=True):
            if not prompt:
                raise InputError("Tokens without a prompt before them cannot be scored.")
            self._check_ids(prompt)
            self._check_ids(completion)
            if len(prompt) + len(completion) - 1 > self.context_length:
                raise InputError(
                    f"{len(prompt)} + {len(completion)} tokens do not fit a context of "
                    f"{self.context_length}; shorten them or raise serving.context_length."
                )
        scores: list[TokenScores] = await self._do(
            lambda: self._engine.score(prompts, completions, top), alone=False
        )
        return scores

    async def load_weights(self, named: Iterable[tuple[str, Any]], version: int) -> None:
        """See `Policy.load_weights`. Rows under way end with the old weights; those that wait get the new."""
        state = dict(named)
        await self._do(lambda: self._load(state, version), alone=True)

    async def sleep(self) -> None:
        """Drop every key-value cache."""
        await self._do(self._engine.clear, alone=True)

    async def wake(self) -> None:
        """Nothing to do: caches grow on use."""

    async def close(self) -> None:
        """End what is running, stop the worker thread and drop the caches."""
        if self._closed:
            return
        for call in self._open:
            call.cancel()
        await self._do(self._engine.clear, alone=True)
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

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
        self._check_ids(prompt)
        room = min(params.max_tokens, self.context_length - len(prompt))
        return Request(tuple(prompt), params, uniforms(params.seed, sample, room))

    def _check_ids(self, ids: Sequence[int]) -> None:
        """Raise `InputError` for an id the model does not have: in a batch it would end everybody's rows."""
        vocab = self._engine.vocab
        if ids and not 0 <= min(ids) <= max(ids) < vocab:
            wrong = next(i for i in ids if not 0 <= i < vocab)
            raise InputError(f"The token id {wrong} is none of the model's, which are 0 to {vocab - 1}.")

    # --- the engine's thread -------------------------------------------------------------------------

    def _put(self, item: Call | Errand) -> None:
        """Hand something to the engine's thread."""
        if self._closed:
            raise BackendError("The policy is closed.")
        with self._lock:
            self._inbox.append(item)
            if not self._working:
                self._working = True
                self._pool.submit(self._work)

    async def _do(self, function: Callable[[], Any], alone: bool) -> Any:
        """Run a function in the engine's thread; its errors come back as `BackendError`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def run() -> None:
            try:
                with torch.inference_mode():
                    result = function()
            except (RuntimeError, MemoryError) as error:
                failed = BackendError(f"The serving engine failed: {error}")
                failed.__cause__ = error
                _settle(loop, future, failed)
            except Exception as error:  # fault boundary: it belongs to whoever asked
                _settle(loop, future, error)
            else:
                _settle(loop, future, result)

        self._put(Errand(run, alone))
        return await future

    def _work(self) -> None:
        """Serve until nothing is left: what arrived is taken up between two tokens."""
        rows = self._rows
        while True:
            with self._lock:
                if not (self._inbox or rows.queue or rows.live):
                    self._working = False
                    return
            while self._inbox:
                item = self._inbox[0]
                if isinstance(item, Call):
                    rows.queue.extend(item.requests)
                elif item.alone and (rows.live or rows.queue):
                    break
                else:
                    item.run()
                self._inbox.popleft()
            if rows.queue or rows.live:
                try:
                    rows.advance()
                except Exception as error:  # cleaning up after an error failed: nothing can be saved
                    for call in list(self._open):
                        call.fail(error)
                    self._rows.abandon()

    def _load(self, state: Mapping[str, torch.Tensor], version: int) -> None:
        try:
            self._engine.load(state)
        except (KeyError, RuntimeError) as err:
            raise BackendError(f"The new weights do not fit the served model: {err}.") from err
        self._rows.version = version


def _settle(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], result: Any) -> None:
    """Give a future its result or its error, from another thread."""

    def settle() -> None:
        if future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    if not loop.is_closed():  # else whoever waited is gone with its loop
        loop.call_soon_threadsafe(settle)


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
