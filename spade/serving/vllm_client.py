"""One vLLM server over HTTP: rows become requests of `/v1/completions`; and its developer's routes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import httpx

from spade.errors import BackendError
from spade.serving.endpoint import Endpoint, Refused
from spade.serving.policy import TokenScores, TopTokens
from spade.serving.vllm_rows import Answer, Row, most_likely

TOKEN = "token_id:"
"""How a server writes an id where others write a token's text (`return_tokens_as_token_ids`)."""


class VllmClient:
    """Requests to one server. `socket` is a Unix socket in place of the address."""

    def __init__(
        self, url: str, model: str, *, key: str | None = None, parallel: int = 192, timeout: float = 600.0,
        socket: str | None = None, transport: httpx.AsyncBaseTransport | None = None, pause: float = 0.5,
    ) -> None:  # fmt: skip
        def carrier() -> httpx.AsyncBaseTransport:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=parallel)
            return transport or httpx.AsyncHTTPTransport(uds=socket, limits=limits)

        self.url, self.model = url.rstrip("/"), model
        self.busy = 0
        """Rows that it works on."""
        self._endpoint = Endpoint(
            self.url, key=key, parallel=parallel, timeout=timeout, transport=carrier(), pause=pause
        )
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._streams = httpx.AsyncClient(headers=headers, timeout=timeout, transport=carrier())

    async def answer(self, row: Row, in_thread: Callable[..., Any]) -> Answer:
        """Sample one row. A row that is watched comes token by token, and ends when its watcher says so;
        `in_thread` calls the watcher."""
        self.busy += 1
        try:
            if row.params.stop_when is not None:
                return await self._watched(row, in_thread)
            data = await self._endpoint.post("/v1/completions", self._body(row), "a row")
            answer = Answer(cached=_cached(data))
            _extend(answer, data["choices"][0], row)
            return answer
        except (KeyError, TypeError, IndexError, ValueError, AttributeError) as err:
            raise BackendError(
                f"The vLLM server {self.url} sent an answer without token ids ({err!r})."
            ) from err
        finally:
            self.busy -= 1

    async def scores(self, ids: Sequence[int], start: int, top: int) -> TokenScores:
        """Log-probs of `ids` from number `start` on, as `Engine.score`."""
        body = {
            "model": self.model, "prompt": list(ids), "max_tokens": 1, "temperature": 0.0,
            "prompt_logprobs": max(1, top), "add_special_tokens": False,
        }  # fmt: skip
        data = await self._endpoint.post("/v1/completions", body, "a text")
        try:
            rows = data["choices"][0]["prompt_logprobs"][start:]
            found = [{int(token): float(v["logprob"]) for token, v in row.items()} for row in rows]
            best = [most_likely(list(row.items()), max(1, top)) for row in found]
            own = ids[start:]
            return TokenScores(
                tuple(min(0.0, row[token]) for row, token in zip(found, own, strict=True)),
                tuple(most[0][0] == token for most, token in zip(best, own, strict=True)),
                tuple(best) if top else (),
            )
        except (KeyError, TypeError, IndexError, ValueError, AttributeError) as err:
            raise BackendError(f"The vLLM server {self.url} sent no scores ({err!r}).") from err

    async def reload(self, folder: str) -> None:
        """Load the safetensors of a folder that the server sees, and drop its cache.

        Raises `BackendError`, also when the server was started without its developer's routes.
        """
        try:
            call = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
            await self._endpoint.post("/collective_rpc", call, "new weights")
        except Refused as err:
            if err.status == 404:
                raise BackendError(
                    f"The vLLM server {self.url} takes no new weights; start it with VLLM_SERVER_DEV_MODE=1."
                ) from None
            raise
        await self.clear()

    async def clear(self) -> None:
        """Drop the cache. Raises `BackendError` when the server does not."""
        done = await self._endpoint.post("/reset_prefix_cache", {}, "its cache")
        if not done.get("success", True):
            raise BackendError(
                f"The vLLM server {self.url} did not drop its cache; does somebody else use it?"
            )

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()
        await self._streams.aclose()

    def _body(self, row: Row) -> dict[str, Any]:
        asked = row.params
        return {
            "model": self.model, "prompt": list(row.prompt), "max_tokens": row.limit,
            "temperature": asked.temperature, "top_p": asked.top_p, "top_k": asked.top_k, "seed": row.seed,
            "stop_token_ids": list(asked.stop_token_ids), "ignore_eos": True, "logprobs": row.top,
            "return_token_ids": True, "return_tokens_as_token_ids": True, "add_special_tokens": False,
        }  # fmt: skip

    async def _watched(self, row: Row, in_thread: Callable[..., Any]) -> Answer:
        """Read a stream until the row or its watcher ends it; the server ends rows whose stream closes."""
        answer = Answer()
        watch = row.params.stop_when
        assert watch is not None
        body = self._body(row) | {"stream": True, "stream_options": {"include_usage": True}}
        async for data in self._stream(body):
            answer.cached = answer.cached or _cached(data)
            for choice in data.get("choices") or ():
                seen = len(answer.token_ids)
                _extend(answer, choice, row)
                for end in range(seen + 1, len(answer.token_ids) + 1):
                    if await in_thread(watch, answer.token_ids[:end]):
                        _cut(answer, end)
                        return answer
        if not answer.finish:
            raise BackendError(f"The vLLM server {self.url} broke off in the middle of a row.")
        return answer

    async def _stream(self, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        try:
            async with self._streams.stream("POST", f"{self.url}/v1/completions", json=body) as reply:
                if reply.status_code != 200:
                    said = " ".join((await reply.aread()).decode("utf-8", "replace").split())[:200]
                    message = f"The vLLM server {self.url} refuses a row ({said})."
                    raise Refused(message, reply.status_code, said, "")
                async for line in reply.aiter_lines():
                    if line.startswith("data: ") and line != "data: [DONE]":
                        data = json.loads(line.removeprefix("data: "))
                        if "error" in data:
                            raise BackendError(f"The vLLM server {self.url} failed ({data['error']}).")
                        yield data
        except httpx.HTTPError as err:
            raise BackendError(
                f"The vLLM server {self.url} does not answer ({type(err).__name__})."
            ) from None


def _extend(answer: Answer, choice: Mapping[str, Any], row: Row) -> None:
    """Add one choice, or one piece of it."""
    ids = [int(token) for token in choice.get("token_ids") or ()]
    answer.finish = str(choice.get("finish_reason") or "")
    if not ids:
        return
    told = choice["logprobs"]
    values = [float(x) for x in told["token_logprobs"]]
    beside = told.get("top_logprobs") or [None] * len(ids)
    for token, value, others in zip(ids, values, beside, strict=True):
        answer.token_ids.append(token)
        answer.logprobs.append(value)
        answer.top.append(_top(token, value, others or {}, row.top))


def _top(token: int, value: float, others: Mapping[str, float], count: int) -> TopTokens:
    pairs = [(int(name.removeprefix(TOKEN)), float(x)) for name, x in others.items()]
    return ((token, value), *most_likely(pairs, count))


def _cut(answer: Answer, end: int) -> None:
    """The row ended with its token number `end`."""
    del answer.token_ids[end:], answer.logprobs[end:], answer.top[end:]
    answer.finish = "stop"


def _cached(data: Mapping[str, Any]) -> int:
    details = (data.get("usage") or {}).get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens") or 0)


def in_pool(pool: Any) -> Callable[..., Any]:
    """A function that calls others in a thread of `pool` and waits for them."""

    async def call(function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, function, *args)

    return call
