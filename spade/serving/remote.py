"""Chat endpoints that speak the OpenAI protocol: text in, text out, for evaluation only.

Messages travel as byte tokens (`ByteRenderer`), so the callers need no second code path; log-probs are NaN.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx

from spade.errors import BackendError, InputError
from spade.serving.policy import Completion, PolicyStats, SamplingParams
from spade.serving.scripted import END, ByteRenderer
from spade.serving.toolblock import without_tool_role
from spade.types import StopReason

if TYPE_CHECKING:
    from spade.config import ServingConfig

ATTEMPTS = 5
PARALLEL = 16
"""Requests in flight at once."""
AGAIN = (408, 409, 429, 500, 502, 503, 504)
"""Status codes worth another attempt."""


class RemotePolicy:
    """A `Policy` over `POST URL/chat/completions`. Cannot be trained: it gives no exact tokens."""

    exact_tokens = False
    lockstep = False
    privileged = False

    def __init__(
        self, model: str, url: str, *, key: str | None = None, max_rows: int = PARALLEL,
        transport: httpx.AsyncBaseTransport | None = None, pause: float = 0.5,
    ) -> None:  # fmt: skip
        self.model, self.url = model, url.rstrip("/")
        self.context_length = 1 << 20  # in bytes of text; the endpoint has its own limit in tokens
        self.max_rows = max_rows
        self.stats = PolicyStats()
        self.renderer = ByteRenderer()
        self._pause = pause
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.AsyncClient(headers=headers, timeout=120.0, transport=transport)
        self._gate = asyncio.Semaphore(min(PARALLEL, max_rows))

    @classmethod
    def from_spec(cls, spec: str, cfg: ServingConfig, environ: Mapping[str, str]) -> RemotePolicy:
        """Parse `MODEL@URL`; the key comes from SPADE_API_KEY or OPENAI_API_KEY."""
        model, _, url = spec.rpartition("@")
        if not model or not url.startswith(("http://", "https://")):
            raise InputError(f"'openai:{spec}' is not openai:MODEL@URL with an http(s) address.")
        key = environ.get("SPADE_API_KEY") or environ.get("OPENAI_API_KEY")
        return cls(model, url, key=key, max_rows=cfg.max_rows)

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        n: int = 1,
    ) -> list[list[Completion]]:
        """See `Policy.generate`. Raises `BackendError` when the endpoint keeps failing."""
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        work = [self._one(p, s, j) for p, s in zip(prompts, each, strict=True) for j in range(n)]
        flat = await asyncio.gather(*work)
        return [flat[i : i + n] for i in range(0, len(flat), n)]

    async def load_weights(self, named: Iterable[tuple[str, Any]], version: int) -> None:
        """Always raises: an endpoint only evaluates."""
        raise BackendError(f"The endpoint {self.url} cannot be trained; use a local checkpoint.")

    async def sleep(self) -> None:
        """Nothing to free."""

    async def wake(self) -> None:
        """Nothing to undo."""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _one(self, prompt: Sequence[int], params: SamplingParams, sample: int) -> Completion:
        said = without_tool_role(self.renderer.messages(prompt))  # "tool" wants call ids, which text has not
        messages = [{"role": m.role, "content": m.content} for m in said]
        body: dict[str, Any] = {
            "model": self.model, "messages": messages, "max_tokens": params.max_tokens,
            "temperature": params.temperature, "top_p": params.top_p,
        }  # fmt: skip
        if params.seed is not None:
            body["seed"] = (params.seed + sample) % 2**31
        async with self._gate:
            data = await self._post(body)
        try:
            choice = data["choices"][0]
            text = choice["message"]["content"] or ""
            usage = data.get("usage") or {}
            cut = choice.get("finish_reason") == "length"
        except (KeyError, IndexError, TypeError, AttributeError):
            raise BackendError(f"The endpoint {self.url} sent an answer without a chat message.") from None
        ids = (*text.encode("utf-8", "replace"), *(() if cut else (END,)))
        self.stats.requests += 1
        self.stats.prompt_tokens += int(usage.get("prompt_tokens") or 0)
        self.stats.sampled_tokens += int(usage.get("completion_tokens") or 0)
        return Completion(ids, (math.nan,) * len(ids), StopReason.LENGTH if cut else StopReason.STOP)

    async def _post(self, body: dict[str, Any]) -> Any:
        why = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._pause * 2 ** (attempt - 1))
            try:
                reply = await self._client.post(f"{self.url}/chat/completions", json=body)
            except httpx.HTTPError as err:
                why = type(err).__name__
                continue
            if reply.status_code == 200:
                try:
                    return reply.json()
                except ValueError:
                    why = "an answer that is not JSON"
                    continue
            why = f"status {reply.status_code}"
            if reply.status_code not in AGAIN:
                break
        hint = "; set SPADE_API_KEY" if why in ("status 401", "status 403") else ""
        raise BackendError(f"The endpoint {self.url} does not answer for model {self.model} ({why}){hint}.")
