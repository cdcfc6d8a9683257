"""A server of the real kind on a free port, inside the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from spade.serving.api.run import bind, make_server
from spade.serving.api.service import Limits, Service
from spade.serving.chat import ChatPolicy


@asynccontextmanager
async def served(
    chat: ChatPolicy, name: str = "m", key: str | None = None, **limits: Any
) -> AsyncIterator[tuple[Service, str]]:
    """The service and its address (.../v1); the policy is closed at the end."""
    service = Service(chat, name, Limits(**limits), key)
    with bind("127.0.0.1", 0) as sock:
        server = make_server(service)
        task = asyncio.create_task(server.serve(sockets=[sock]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield service, f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
        finally:
            server.should_exit = server.force_exit = True
            await task
            await chat.close()
