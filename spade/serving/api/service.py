"""What both kinds of request need: the policy, the limits, and work that ends when nobody waits for it."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from spade.errors import BackendError, InputError
from spade.serving.api.errors import ApiError
from spade.serving.api.recall import Recall
from spade.serving.chat import ChatPolicy, SpeaksChat

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may cost: bytes of a body, seconds of a request once it is read, requests at once."""

    body_bytes: int = 8 << 20
    seconds: float = 600.0
    waiting: int = 256


class Gone(Exception):
    """The client has hung up."""


class Service:
    """One policy under one name."""

    def __init__(self, chat: ChatPolicy, name: str, limits: Limits, key: str | None = None) -> None:
        self.chat, self.name, self.limits, self.key = chat, name, limits, key
        self.recall = Recall()
        self.active = 0

    @property
    def speaks_chat(self) -> bool:
        """Whether the policy is an endpoint itself: texts only."""
        return isinstance(self.chat.policy, SpeaksChat)

    def check_model(self, name: str) -> None:
        """Raise ApiError 404 for a model that is not served here."""
        if name != self.name:
            raise ApiError(
                f"There is no model '{name}' here; this server has '{self.name}'.", 404,
                param="model", code="model_not_found",
            )  # fmt: skip

    def check_room(self) -> None:
        """Raise ApiError 429 when too many requests are at work."""
        if self.active >= self.limits.waiting:
            raise ApiError("Too many requests are waiting; try again.", 429, headers={"Retry-After": "1"})

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among the requests at work. Raises ApiError 429 when there are too many."""
        self.check_room()
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1

    async def attend(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """Do the work, unless the client hangs up (`Gone`) or the time is over (ApiError 504) first."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_hung_up(request))
        try:
            await asyncio.wait({task, gone}, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise Gone
            raise self.late()
        finally:
            await end(task, gone)

    def late(self) -> ApiError:
        """The error of a request that took too long."""
        return ApiError(f"The answer took longer than {self.limits.seconds:g} s.", 504, code="timeout")


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what is not done and wait until it has ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def as_api_error(error: BaseException) -> ApiError:
    """Any failure as an answer; what nobody foresaw is printed here and not shown to the client."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, InputError):
        code = "context_length_exceeded" if "context" in str(error) else None
        return ApiError(str(error), 400, code=code)
    if isinstance(error, BackendError):
        return ApiError(str(error), 503)
    traceback.print_exception(error, file=sys.stderr)
    return ApiError("The server failed; its log says why.", 500)
