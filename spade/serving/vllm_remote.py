"""`ServerPolicy`: rows over HTTP to one vLLM server started here, or to several that run already."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import zlib
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from spade.errors import BackendError, InputError
from spade.serving.endpoint import Refused, key_for
from spade.serving.policy import TokenScores
from spade.serving.vllm import VllmPolicy
from spade.serving.vllm_client import VllmClient, in_pool
from spade.serving.vllm_rows import UNKNOWN_SAMPLER, Answer, Row
from spade.serving.vllm_weights import written

if TYPE_CHECKING:
    from spade.config import ServingConfig
    from spade.serving.vllm_process import ServerProcess

T = TypeVar("T")
HERE = "http://vllm"
"""The address of a server behind a socket; nothing looks it up."""
PREFIX = 64
"""Tokens by which prompts are sent to the server that knows their beginning."""
UNEVEN = 16
"""Rows by which a server may be busier than the idlest one before it gets no more of them."""


class ServerPolicy(VllmPolicy):
    """See `VllmPolicy`. With several servers, prompts that begin alike go to the same one while none is much
    busier than another; rows of one that does not answer go to the others, and it is not asked again."""

    def __init__(
        self, cfg: ServingConfig, clients: Sequence[VllmClient], length: int, dtype: str,
        process: ServerProcess | None = None,
    ) -> None:  # fmt: skip
        super().__init__(cfg, length, dtype, lockstep=False)
        self._clients, self._process = list(clients), process
        self._weights_dir = cfg.vllm.weights_dir
        self._watchers = ThreadPoolExecutor(1, "spade-watch")

    @classmethod
    def open(cls, folder: Path, cfg: ServingConfig) -> ServerPolicy:
        """Start a server, or look up those of `serving.vllm.servers`; errors as those of
        `VllmPolicy.from_folder`."""
        from spade.serving.vllm_settings import served_dtype

        dtype = served_dtype(folder, cfg)
        if cfg.vllm.servers:
            asked = [_about(url) for url in cfg.vllm.servers]
            clients = [_client(url, a.model, cfg) for url, a in zip(cfg.vllm.servers, asked, strict=True)]
            policy = cls(cfg, clients, min(a.length for a in asked), dtype)
            policy.whole = all(a.whole for a in asked)
            return policy
        from spade.serving.vllm_process import ServerProcess

        process = ServerProcess.start(folder, cfg)
        socket = str(process.socket)
        try:
            about = _about(HERE, socket)
            if not about.whole:
                raise BackendError(UNKNOWN_SAMPLER)
        except BaseException:
            process.close()
            raise
        return cls(cfg, [_client(HERE, about.model, cfg, socket)], about.length, dtype, process)

    async def _answers(self, rows: Sequence[Row]) -> list[Answer]:
        """Rows that are lost for good while others are answered come back as aborted."""
        found = await _all([self._answer(row) for row in rows])
        lost = [x for x in found if isinstance(x, BackendError)]
        if len(lost) == len(found):
            raise lost[0]
        return [Answer(finish="abort") if isinstance(x, BackendError) else x for x in found]

    async def _answer(self, row: Row) -> Answer:
        while True:
            client = self._pick(row.prompt)
            try:
                return await client.answer(row, in_pool(self._watchers))
            except BackendError as err:
                self._drop(client, err)

    async def _scores(
        self, prompts: Sequence[tuple[int, ...]], starts: Sequence[int], top: int
    ) -> list[TokenScores]:
        one = [self._score(p, s, top) for p, s in zip(prompts, starts, strict=True)]
        found = await _all(one)
        for x in found:
            if isinstance(x, BackendError):
                raise x
        return [x for x in found if isinstance(x, TokenScores)]

    async def _score(self, ids: tuple[int, ...], start: int, top: int) -> TokenScores:
        while True:
            client = self._pick(ids)
            try:
                return await client.scores(ids, start, top)
            except BackendError as err:
                self._drop(client, err)

    async def _load(self, named: Iterable[tuple[str, Any]]) -> None:
        """All servers or none go on with the new weights: one that does not take them is not asked again."""
        writing = written(named, self._weights_dir, self.dtype)
        folder = await asyncio.to_thread(writing.__enter__)
        try:
            clients = list(self._clients)
            for client, done in zip(
                clients, await _all([c.reload(str(folder)) for c in clients]), strict=True
            ):
                if isinstance(done, BackendError):
                    self._drop(client, done)
        finally:
            await asyncio.to_thread(writing.__exit__, None, None, None)

    async def _sleep(self) -> None:
        for client in self._clients:
            await client.clear()

    async def _wake(self) -> None:
        """Nothing to do: a server has its memory to itself."""

    async def _close(self) -> None:
        for client in self._clients:
            await client.close()
        self._watchers.shutdown(wait=False)
        if self._process is not None:
            await asyncio.to_thread(self._process.close)

    def _pick(self, prompt: Sequence[int]) -> VllmClient:
        """The server that prompts with this beginning go to, or the idlest one if that is far busier."""
        at = zlib.crc32(repr(prompt[:PREFIX]).encode()) % len(self._clients)
        idlest = min(self._clients, key=lambda c: c.busy)
        return self._clients[at] if self._clients[at].busy <= idlest.busy + UNEVEN else idlest

    def _drop(self, client: VllmClient, err: BackendError) -> None:
        """Do without a server that failed, if there is another. Raises its error where there is none, and
        where the server is not to blame."""
        if isinstance(err, Refused):
            raise err
        if self._process is not None and not self._process.running:
            from spade.serving.vllm_settings import start_failure

            why = str(start_failure(self._process.last_words()))
            raise BackendError(f"The vLLM server has died: {why.partition(': ')[2] or why}") from err
        if client not in self._clients:  # another row was faster
            return
        if len(self._clients) == 1:
            raise err
        self._clients.remove(client)
        print(f"serving: going on without {client.url}: {err}", file=sys.stderr)


async def _all(work: Sequence[Coroutine[Any, Any, T]]) -> list[T | BackendError]:
    """Results or `BackendError`s in order; any other error, and a cancelled caller, ends all of them."""
    tasks = [asyncio.create_task(one) for one in work]

    async def settled(task: asyncio.Task[T]) -> T | BackendError:
        try:
            return await task
        except BackendError as err:
            return err

    try:
        return list(await asyncio.gather(*map(settled, tasks)))
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


def _client(url: str, model: str, cfg: ServingConfig, socket: str | None = None) -> VllmClient:
    key = None if socket else key_for(url, os.environ)
    return VllmClient(
        url, model, key=key, parallel=cfg.max_rows, timeout=cfg.vllm.request_seconds, socket=socket
    )


@dataclass(frozen=True, slots=True)
class _About:
    """A server's model, its context length, and whether its workers have SPADE's extension."""

    model: str
    length: int
    whole: bool


def _about(url: str, socket: str | None = None) -> _About:
    """Ask a server, before there is an event loop to do it in.

    Raises `InputError` for an address that cannot be used, `BackendError` for a server that does not answer
    like one of vLLM.
    """
    import httpx

    key = None if socket else key_for(url, os.environ)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx.Client(transport=httpx.HTTPTransport(uds=socket), timeout=30.0, headers=headers) as client:
            row = client.get(f"{url.rstrip('/')}/v1/models").json()["data"][0]
            call = {"method": "spade_whole_logprobs"}
            told = client.post(f"{url.rstrip('/')}/collective_rpc", json=call)
        switched = list(told.json().get("results") or ()) if told.status_code == 200 else []
        whole = bool(switched) and all(str(x) == "True" for x in switched)
        return _About(str(row["id"]), int(row["max_model_len"]), whole)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise InputError(f"serving.vllm.servers: {url} is not a usable http(s) address.") from None
    except httpx.HTTPError as err:
        raise BackendError(f"The vLLM server {url} does not answer ({type(err).__name__}).") from None
    except (ValueError, KeyError, TypeError, IndexError):
        raise BackendError(f"{url} does not answer like a vLLM server; check the address.") from None
