"""Routes, access, limits and error bodies."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from spade.serving.api.chat import ChatJob
from spade.serving.api.complete import CompletionJob
from spade.serving.api.errors import ApiError
from spade.serving.api.fields import ChatFields, CompletionFields, read_fields
from spade.serving.api.service import Gone, Limits, Service, as_api_error

HUNG_UP = 499
"""Status of a request whose client is gone; nobody reads it."""

Handler = Callable[[Request], Awaitable[Response]]


def build_app(service: Service) -> Starlette:
    """The ASGI application of a service."""
    started = int(time.time())
    card = {
        "id": service.name, "object": "model", "created": started, "owned_by": "spade",
        "max_model_len": service.chat.policy.context_length,
    }  # fmt: skip

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [card]})

    async def model(request: Request) -> Response:
        service.check_model(request.path_params["name"])
        return JSONResponse(card)

    async def chat(request: Request) -> Response:
        fields = read_fields(ChatFields, await read_body(request, service.limits))
        return await answer(service, request, ChatJob(service, fields), fields.stream)

    async def complete(request: Request) -> Response:
        fields = read_fields(CompletionFields, await read_body(request, service.limits))
        return await answer(service, request, CompletionJob(service, fields), fields.stream)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    routes = [
        Route("/health", health),
        Route("/v1/models", guarded(service, models)),
        Route("/v1/models/{name:path}", guarded(service, model)),
        Route("/v1/chat/completions", guarded(service, chat), methods=["POST"]),
        Route("/v1/completions", guarded(service, complete), methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _no_route})


def guarded(service: Service, handler: Handler) -> Handler:
    """A handler behind the API key, with every failure in the protocol's form."""

    async def run(request: Request) -> Response:
        try:
            check_key(service, request)
            return await handler(request)
        except Gone:
            return Response(status_code=HUNG_UP)
        except Exception as error:  # fault boundary: a client gets an answer whatever failed
            return _error(as_api_error(error))

    return run


def check_key(service: Service, request: Request) -> None:
    """Raise ApiError 401 unless the request carries the server's key, where it has one."""
    if service.key is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), service.key.encode()):
        raise ApiError("The API key is missing or wrong.", 401, code="invalid_api_key")


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body. Raises ApiError 415 for anything but JSON (which also keeps web pages out: a browser asks
    before it sends JSON elsewhere), 413 for one that is too large, 408 for one that takes too long."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError("Send the body as Content-Type: application/json.", 415)
    large = ApiError(f"The body is larger than {limits.body_bytes} bytes.", 413)
    if int(request.headers.get("content-length", "0") or 0) > limits.body_bytes:
        raise large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > limits.body_bytes:
                    raise large
    except TimeoutError:
        raise ApiError("The body takes too long to arrive.", 408) from None
    except ClientDisconnect:
        raise Gone from None
    return bytes(body)


async def answer(service: Service, request: Request, job: Any, stream: bool) -> Response:
    """Run a job: as one JSON answer, or as server-sent events."""
    if not stream:
        with service.place():
            return JSONResponse(await service.attend(request, job.whole()))
    service.check_room()
    chunks = job.stream()
    first = await anext(chunks)  # what cannot be asked fails here, while a status can still be sent
    return StreamingResponse(_events(service, first, chunks), media_type="text/event-stream")


async def _events(
    service: Service, first: dict[str, Any], chunks: AsyncIterator[dict[str, Any]]
) -> AsyncIterator[str]:
    """The chunks as events. An error in the middle is an event of its own, then the stream ends."""
    try:
        with service.place():
            yield _event(first)
            async with asyncio.timeout(service.limits.seconds):
                async for chunk in chunks:
                    yield _event(chunk)
        yield "data: [DONE]\n\n"
    except TimeoutError:
        yield _event(service.late().body)
    except Exception as error:  # fault boundary: the status line is already sent
        yield _event(as_api_error(error).body)
    finally:
        await chunks.aclose()  # type: ignore[attr-defined]


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def _error(error: ApiError) -> Response:
    return JSONResponse(error.body, error.status, error.headers)


async def _no_route(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    text = {404: f"There is no {request.url.path} here.", 405: f"{request.method} is not allowed here."}
    return _error(ApiError(text.get(status, "The request cannot be answered."), status))
