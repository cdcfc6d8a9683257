"""`InProcessPolicy`: rows of all callers share the steps of one vLLM engine in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from spade.errors import BackendError, SpadeError
from spade.serving.policy import TokenScores
from spade.serving.vllm import VllmPolicy
from spade.serving.vllm_rows import Answer, Row

if TYPE_CHECKING:
    from spade.config import ServingConfig
    from spade.serving.vllm_engine import Progress

T = TypeVar("T")
Scored = tuple[tuple[int, ...], int, int]
"""A text to score: its ids, from which token on, how many of the most likely tokens."""


class Stepped(Protocol):
    """What the policy needs of an engine; see `VllmEngine`, the real one."""

    length: int
    dtype: str

    def add(self, number: int, row: Row) -> None: ...
    def add_scored(self, number: int, ids: tuple[int, ...], start: int, top: int) -> None: ...
    def step(self) -> list[Progress]: ...
    def abort(self, numbers: Iterable[int]) -> None: ...
    def load(self, named: Iterable[tuple[str, Any]]) -> None: ...
    def sleep(self) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Call:
    """Work of one caller. `results` fills up while its rows end."""

    work: Sequence[Row | Scored]
    future: asyncio.Future[Any]
    results: dict[int, Any] = field(default_factory=dict)
    cancelled: bool = False


class InProcessPolicy(VllmPolicy):
    """See `VllmPolicy`. Calls that arrive while the engine works join at its next step; when deterministic,
    they wait for their turn instead."""

    def __init__(self, engine: Stepped, cfg: ServingConfig, pool: ThreadPoolExecutor, lockstep: bool) -> None:
        super().__init__(cfg, engine.length, engine.dtype, lockstep)
        self._engine, self._pool = engine, pool
        self._inbox: deque[_Call] = deque()
        self._waiting: set[_Call] = set()
        self._pump: asyncio.Task[None] | None = None
        self._numbers = itertools.count()
        self._live: dict[int, tuple[_Call, int, Answer]] = {}
        """Row number: its call, its place in it, and what it has so far. Of the engine's thread alone."""

    @classmethod
    def open(
        cls, folder: Path, cfg: ServingConfig, make: Callable[..., Stepped] | None = None
    ) -> InProcessPolicy:
        """Start the engine in a thread of its own; errors as those of `VllmPolicy.from_folder`."""
        from spade.serving.device import pick_device

        if make is None:
            from spade.serving.vllm_engine import VllmEngine as make  # type: ignore[assignment]
        assert make is not None
        on_cpu = pick_device(cfg.device).type == "cpu"
        pool = ThreadPoolExecutor(1, "spade-vllm")
        try:
            engine = pool.submit(make, folder, cfg).result()
        except BaseException:
            pool.shutdown(wait=False)
            raise
        return cls(engine, cfg, pool, on_cpu if cfg.deterministic is None else bool(cfg.deterministic))

    async def _answers(self, rows: Sequence[Row]) -> list[Answer]:
        answers: list[Answer] = await self._call(rows)
        return answers

    async def _scores(
        self, prompts: Sequence[tuple[int, ...]], starts: Sequence[int], top: int
    ) -> list[TokenScores]:
        scores: list[TokenScores] = await self._call(
            [(p, s, top) for p, s in zip(prompts, starts, strict=True)]
        )
        return scores

    async def _load(self, named: Iterable[tuple[str, Any]]) -> None:
        await self._in_thread(self._load_now, named)

    async def _sleep(self) -> None:
        await self._in_thread(self._engine.sleep)

    async def _wake(self) -> None:
        await self._in_thread(self._engine.wake)

    async def _close(self) -> None:
        for call in self._waiting:
            call.cancelled = True
        if self._pump is not None and not self._pump.done():
            await asyncio.wait([self._pump])
        await self._in_thread(self._engine.close)
        self._pool.shutdown(wait=False)

    # --- in the event loop -------------------------------------------------------------------------------

    async def _call(self, work: Sequence[Row | Scored]) -> Any:
        call = _Call(work, asyncio.get_running_loop().create_future())
        self._inbox.append(call)
        self._waiting.add(call)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._serve())
        try:
            return await call.future
        except asyncio.CancelledError:
            call.cancelled = True
            raise
        finally:
            self._waiting.discard(call)

    async def _serve(self) -> None:
        """Keep the engine stepping while there is work."""
        loop = asyncio.get_running_loop()
        while self._inbox:
            await self._in_thread(self._work, loop)

    async def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    # --- in the engine's thread ----------------------------------------------------------------------------

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Step until nothing is left. An engine that breaks fails everything that runs."""

        def tell(call: _Call, error: Exception | None = None) -> None:
            loop.call_soon_threadsafe(_settle, call, error)

        try:
            while self._take(tell) or self._live:
                self._drop_cancelled(tell)
                if self._live:
                    self._advance(tell)
        except Exception as err:  # fault boundary: whatever failed belongs to the callers that wait
            failed = {id(call): call for call, _, _ in self._live.values()}
            numbers = list(self._live)
            self._live.clear()
            with contextlib.suppress(Exception):  # it may be past that
                self._engine.abort(numbers)
            error = err if isinstance(err, SpadeError) else BackendError(f"The vLLM engine failed: {err}")
            error.__cause__ = err if error is not err else err.__cause__
            for call in failed.values():
                tell(call, error)

    def _take(self, tell: Callable[..., None]) -> bool:
        """Give the engine what has arrived: one call at a time when deterministic. Whether there was any."""
        taken = False
        while self._inbox and not (self.lockstep and self._live):
            call = self._inbox.popleft()
            taken = True
            numbers = [next(self._numbers) for _ in call.work]
            for at, number in enumerate(numbers):  # first, so that a refusal can find them
                self._live[number] = (call, at, Answer())
            try:
                for number, one in zip(numbers, call.work, strict=True):
                    if isinstance(one, Row):
                        self._engine.add(number, one)
                    else:
                        self._engine.add_scored(number, *one)
            except SpadeError as err:
                self._forget(numbers)
                tell(call, err)
        return taken

    def _drop_cancelled(self, tell: Callable[..., None]) -> None:
        gone = [number for number, (call, _, _) in self._live.items() if call.cancelled]
        if gone:
            calls = {id(self._live[n][0]): self._live[n][0] for n in gone}
            self._forget(gone)
            for call in calls.values():
                tell(call, BackendError("The vLLM engine was closed while a call ran."))

    def _forget(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            del self._live[number]
        self._engine.abort(numbers)

    def _advance(self, tell: Callable[..., None]) -> None:
        for news in self._engine.step():
            if news.row not in self._live:  # ended by us in this very step
                continue
            call, at, answer = self._live[news.row]
            done = self._note(news, call.work[at], answer)
            if done is None:
                continue
            del self._live[news.row]
            call.results[at] = done
            if len(call.results) == len(call.work):
                tell(call)

    def _note(self, news: Progress, work: Row | Scored, answer: Answer) -> Answer | TokenScores | None:
        """Add what is new; the result once the row has ended."""
        if not isinstance(work, Row):
            return news.scores
        watch = work.params.stop_when
        if watch is None:
            answer.token_ids, answer.logprobs, answer.top = (
                list(news.token_ids),
                list(news.logprobs),
                list(news.top),
            )
            answer.finish, answer.cached = news.finish, news.cached
            return answer if news.finish else None
        answer.cached = news.cached
        for token, logprob, top in zip(news.token_ids, news.logprobs, news.top, strict=True):
            answer.token_ids.append(token)
            answer.logprobs.append(logprob)
            answer.top.append(top)
            if watch(answer.token_ids):
                if not news.finish:
                    self._engine.abort([news.row])
                answer.finish = "stop"
                return answer
        answer.finish = news.finish
        return answer if news.finish else None

    def _load_now(self, named: Iterable[tuple[str, Any]]) -> None:
        try:
            self._engine.load(named)
        except SpadeError:
            raise
        except Exception as err:  # vLLM's loaders raise all sorts
            raise BackendError(f"The new weights do not fit the served model: {err}.") from err


def _settle(call: _Call, error: Exception | None) -> None:
    if call.future.done():
        return
    if error is not None:
        call.future.set_exception(error)
    else:
        call.future.set_result([call.results[at] for at in range(len(call.work))])
