"""Requests to an endpoint: bounded in number and time, repeated where that helps, silent about the key."""

from __future__ import annotations

import asyncio
import email.utils
import random
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from spade.errors import BackendError, InputError

ATTEMPTS = 8
LONGEST_PAUSE = 30.0
"""Seconds between attempts at most, unless the endpoint asks for more: 0.5, 1, 2, ... add up to a minute."""
CONNECT_SECONDS = 10.0
AGAIN = (408, 409, 425, 429, 500, 502, 503, 504)
"""Status codes worth another attempt."""
GONE = 8
"""Requests lost in a row after which further ones get one attempt each, until one is answered again."""
LOCAL = ("localhost", "127.0.0.1", "::1")
SHARED_KEY = "SPADE_API_KEY"
OPENAI_KEY = "OPENAI_API_KEY"

_SPEC = re.compile(r"(.+?)@(https?://.+)")
_SECRET = re.compile(r"key|token|secret|passw|sig|auth", re.I)


class Refused(BackendError):
    """The endpoint answered with a 4xx status that another attempt will not change."""

    def __init__(self, message: str, status: int, said: str, code: str) -> None:
        super().__init__(message)
        self.status, self.said, self.code = status, said, code

    @property
    def too_long(self) -> bool:
        """Whether the prompt did not fit the model's context."""
        return self.code == "context_length_exceeded" or "context length" in self.said.lower()


def parse_spec(spec: str) -> tuple[str, str]:
    """`MODEL@URL` in two. Raises InputError for anything else, and for an address that carries a secret: it
    would end up in the files of a run. The message never repeats the address."""
    found = _SPEC.fullmatch(spec)
    if found is None:
        raise InputError("An endpoint is named openai:MODEL@URL, with an http(s) address after the '@'.")
    model, url = found.groups()
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise InputError(f"The address behind 'openai:{model}@' is not a usable http(s) address.")
    if parts.username or parts.password or any(_SECRET.search(k) for k, _ in parse_qsl(parts.query)):
        raise InputError(
            f"The address behind 'openai:{model}@' carries a user, password or key, which would be written "
            f"to disk; leave it out and set {SHARED_KEY}."
        )
    return model, url.rstrip("/")


def key_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The API key of an endpoint, from the environment alone.

    `SPADE_API_KEY_<HOST>` (host in capitals, other characters as `_`) is for one endpoint, `SPADE_API_KEY`
    for all of them; OPENAI_API_KEY goes to OpenAI and to this machine, and to nobody else.
    """
    host = urlsplit(url).hostname or ""
    own = environ.get(f"{SHARED_KEY}_{re.sub('[^A-Z0-9]', '_', host.upper())}")
    trusted = host in LOCAL or f".{host}".endswith(".openai.com")
    return own or environ.get(SHARED_KEY) or (environ.get(OPENAI_KEY) if trusted else None) or None


class Endpoint:
    """One address with its connections. `timeout` is seconds for one answer, all attempts together."""

    def __init__(
        self, url: str, *, key: str | None = None, parallel: int = 16, timeout: float = 600.0,
        pause: float = 0.5, transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        self.url, self.timeout = url.rstrip("/"), timeout
        self._key, self._pause = key, pause
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout), pool=None)
        self._client = httpx.AsyncClient(headers=headers, timeout=limits, transport=transport)
        self._gate = asyncio.Semaphore(parallel)
        self._lost_in_row = 0

    async def post(self, path: str, body: Mapping[str, Any], what: str) -> dict[str, Any]:
        """The JSON object that answers; `what` is named in errors.

        Raises `Refused` for a 4xx answer that is final, `BackendError` when there is no answer in time.
        """
        async with self._gate:
            try:
                answer = await self._until_deadline(path, body, what)
            except Refused:
                self._lost_in_row = 0
                raise
            except BackendError:
                self._lost_in_row += 1
                raise
            self._lost_in_row = 0
            return answer

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _until_deadline(self, path: str, body: Mapping[str, Any], what: str) -> dict[str, Any]:
        """Attempt until an answer, a refusal or the deadline."""
        end = asyncio.get_running_loop().time() + self.timeout
        why, asked = "", 0.0
        for attempt in range(1 if self._lost_in_row >= GONE else ATTEMPTS):
            if attempt:
                left = end - asyncio.get_running_loop().time()
                pause = max(self._backoff(attempt), asked)
                if pause >= left:
                    why += f", and it asks to wait {asked:.0f} s" if asked >= left else ""
                    break
                await asyncio.sleep(pause)
            try:
                async with asyncio.timeout_at(end):
                    reply = await self._client.post(f"{self.url}{path}", json=body)
            except TimeoutError:
                why = f"no answer within {self.timeout:g} s"
                break
            except (httpx.HTTPError, httpx.InvalidURL) as err:
                why, asked = type(err).__name__, 0.0
                continue
            if reply.status_code == 200:
                answer = _object_of(reply)
                if answer is not None:
                    return answer
                why, asked = "an answer that is not a JSON object", 0.0
                continue
            if reply.status_code not in AGAIN:
                raise self._refused(reply, what)
            why, asked = f"status {reply.status_code}", retry_after(reply.headers.get("retry-after"))
        raise BackendError(f"The endpoint {self.url} does not answer for {what} ({why}).")

    def _backoff(self, attempt: int) -> float:
        """Seconds before an attempt: doubling, and spread so that many requests do not return at once."""
        return min(LONGEST_PAUSE, self._pause * 2.0 ** (attempt - 1)) * random.uniform(0.75, 1.25)

    def _refused(self, reply: httpx.Response, what: str) -> Refused:
        said, code = _error_of(reply)
        status = reply.status_code
        hint = f"; set {SHARED_KEY}" if status in (401, 403) else ""
        shown = "" if status in (401, 403) else f": {self._without_key(said)[:200]}" if said else ""
        message = f"The endpoint {self.url} does not answer for {what} (status {status}{shown}){hint}."
        return Refused(message, status, said, code)

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _object_of(reply: httpx.Response) -> dict[str, Any] | None:
    try:
        answer = reply.json()
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _error_of(reply: httpx.Response) -> tuple[str, str]:
    """What an error answer says, in one line, and its code."""
    try:
        value: Any = reply.json()
    except ValueError:
        return " ".join(reply.text.split()), ""
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return " ".join(str(error).split()), ""
    said = error.get("message") or error.get("detail") or ""
    return " ".join(str(said).split()), str(error.get("code") or "")


def retry_after(header: str | None) -> float:
    """Seconds that a Retry-After header asks to wait: a number or a date; 0 without a readable one."""
    if header is None:
        return 0.0
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, TypeError):
        return 0.0
