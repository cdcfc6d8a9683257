"""A vLLM server process of our own: started behind a socket that only this user can open, watched, ended.

vLLM's routes for new weights let their caller run any method of the engine, and no API key guards them. So a
server that is started here listens on no port, but on a Unix socket in a private folder.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from spade.errors import BackendError
from spade.serving.vllm_settings import (
    engine_arguments,
    environment,
    flags,
    require_vllm,
    start_failure,
)
from spade.serving.vllm_weights import model_alone

if TYPE_CHECKING:
    from spade.config import ServingConfig

GUARD = Path(__file__).with_name("vllm_guard.py")
MODEL = "spade"
"""The model's name on servers started here."""
GRACE_SECONDS = 10.0
"""How long a server may take to end before it is killed."""
STOP_SECONDS = 20.0
"""How much longer its guard may take, which kills what is left, before the guard is killed."""
TAIL_BYTES = 20_000
"""Of a log, to find out why a server died."""


def server_command(folder: Path, cfg: ServingConfig, socket: Path) -> list[str]:
    """The command line of a server. The module and not the command `vllm`, which the CPU build lacks."""
    args = engine_arguments(folder, cfg) | {"served_model_name": MODEL, "uds": str(socket)}
    if cfg.vllm.data_parallel > 1:
        args["data_parallel_size"] = cfg.vllm.data_parallel
    args |= {"enable_prompt_tokens_details": True, "disable_uvicorn_access_log": True}
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *flags(args)]


class ServerProcess:
    """One running server. `close` ends it and everything it started; so does the end of this process."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="spade-vllm-"))
        self.socket, self.log = self.folder / "socket", self.folder / "log"
        command = [part.replace(str(SOCKET), str(self.socket)) for part in command]
        with self.log.open("wb") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), str(GRACE_SECONDS), *command],
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environ},
                start_new_session=True,
            )  # fmt: skip
        self.resources = contextlib.ExitStack()
        """Closed with the server."""
        _running.add(self)

    @classmethod
    def start(cls, folder: Path, cfg: ServingConfig) -> ServerProcess:
        """Start a server for a checkpoint and wait until it answers.

        Raises `ConfigError` (settings, no vLLM) or `BackendError` (it does not start, or not in time).
        """
        require_vllm()
        environ = environment(cfg) | {"VLLM_SERVER_DEV_MODE": "1"}
        if cfg.vllm.devices is not None:
            environ["CUDA_VISIBLE_DEVICES"] = cfg.vllm.devices
        stack = contextlib.ExitStack()
        folder = stack.enter_context(model_alone(folder))
        try:
            server = cls(server_command(folder, cfg, SOCKET), environ)
        except BaseException:
            stack.close()
            raise
        server.resources = stack
        try:
            server.wait(cfg.vllm.start_seconds)
        except BaseException:
            server.close()
            raise
        return server

    @property
    def running(self) -> bool:
        """Whether the server has not ended."""
        return self._guard.poll() is None

    def wait(self, seconds: float) -> None:
        """Wait until the server answers; errors as those of `start`."""
        until = time.monotonic() + seconds
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.socket)), timeout=10.0) as client:
            while time.monotonic() < until:
                if not self.running:
                    raise start_failure(self.last_words())
                with contextlib.suppress(httpx.HTTPError):
                    if client.get("http://vllm/health").status_code == 200:
                        return
                time.sleep(0.25)
        raise BackendError(
            f"The vLLM server did not answer within {seconds:g} s; raise serving.vllm.start_seconds."
        )

    def last_words(self) -> str:
        """The end of the server's log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def close(self) -> None:
        """End the server. Idempotent."""
        _running.discard(self)
        if self._guard.stdin is not None and not self._guard.stdin.closed:
            self._guard.stdin.close()
        try:
            self._guard.wait(GRACE_SECONDS + STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        self.resources.close()
        shutil.rmtree(self.folder, ignore_errors=True)


SOCKET = Path("<socket>")
"""Stands for the socket in a command line until the folder for it exists."""

_running: weakref.WeakSet[ServerProcess] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for server in list(_running):
        server.close()
