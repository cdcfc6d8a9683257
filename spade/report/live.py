"""`spade report --live`: the report of a run that goes on, served on this machine alone."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from spade.errors import InputError

HOST = "127.0.0.1"


class LiveServer(ThreadingHTTPServer):
    """Serves `/` (the page) and `/version` (changes when a run's metrics did); everything else is absent.

    `make(version)` renders the page. Raises InputError when the port is taken.
    """

    daemon_threads = True

    def __init__(self, port: int, folders: list[Path], make: Callable[[str], str]) -> None:
        self.folders, self.make = folders, make
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise InputError(
                f"cannot serve on port {port}: {error.strerror}; choose another --port"
            ) from error

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def version(self) -> str:
        """Sizes of the runs' metrics, as text."""
        files = [folder / "metrics.jsonl" for folder in self.folders]
        return "-".join(str(file.stat().st_size) if file.is_file() else "0" for file in files)


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        # A page elsewhere may not read a run by giving its own name to this address.
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in (HOST, "localhost"):
            self._send(403, "text/plain", "open this page as localhost")
        elif self.path == "/version":
            self._send(200, "text/plain", self.server.version())
        elif self.path == "/":
            self._send(200, "text/html", self.server.make(self.server.version()))
        else:
            self._send(404, "text/plain", "there is nothing here")

    def _send(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: the terminal belongs to the user."""
