"""Start a server, and stop it cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import uvicorn

from spade.errors import InputError
from spade.serving.api.app import build_app
from spade.serving.api.service import Limits, Service
from spade.serving.launch import open_chat

if TYPE_CHECKING:
    from spade.config import ServingConfig

GRACE = 10
"""Seconds that requests at work get to finish after the first signal; a second signal ends them at once."""
KEY = "SPADE_SERVE_KEY"
"""Environment variable that holds the API key clients must send; unset means none is asked for."""


class _Server(uvicorn.Server):
    """Leaves signals to `serve`, which ends with exit code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises InputError when the address is not to be had."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(1024)
    except (OSError, OverflowError) as error:
        code = getattr(error, "errno", None)
        why = "the port is taken; use another --port" if code == errno.EADDRINUSE else str(error)
        raise InputError(f"Cannot listen on {host} port {port}: {why}.") from None
    return sock


def is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def serve_model(
    ref: str, cfg: ServingConfig, host: str, port: int, name: str | None, limits: Limits,
    environ: Mapping[str, str], ready: Callable[[str, str], None],
) -> None:  # fmt: skip
    """Open a model and serve it; `ready(name, url)` is called when requests are answered.

    Raises InputError for an address or a reference that cannot be used.
    """
    key = environ.get(KEY) or None
    with bind(host, port) as sock:
        chat = await open_chat(ref, cfg)
        service = Service(chat, name or ref, limits, key)
        if key is None and not is_local(host):
            print(f"serve: whoever reaches {host} can use this model; set {KEY}", file=sys.stderr)
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{sock.getsockname()[1]}/v1"
        await serve(service, sock, lambda: ready(service.name, url))


def make_server(service: Service) -> uvicorn.Server:
    """A server that knows no signals; `should_exit` ends it."""
    config = uvicorn.Config(
        build_app(service), log_level="warning", access_log=False, lifespan="off", server_header=False,
        timeout_graceful_shutdown=GRACE, timeout_keep_alive=75,
    )  # fmt: skip
    return _Server(config)


async def serve(service: Service, sock: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
    """Answer requests until SIGINT or SIGTERM; then finish what is at work, and close the policy."""
    server = make_server(service)

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        ready()
        await server.serve(sockets=[sock])
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await service.chat.close()
