"""A model hub on this machine: the few addresses that `huggingface_hub` and `datasets` ask for a data set."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REPO = re.compile(r"/(?:api/)?datasets/(?P<repo>[^/]+/[^/]+)(?P<rest>/.*)?")


class Hub:
    """Folders by (data set, revision). `gated` data sets want a token; `asked` are the paths asked for."""

    def __init__(self, folders: dict[tuple[str, str], Path], gated: frozenset[str] = frozenset()) -> None:
        self.folders, self.gated = folders, gated
        self.asked: list[str] = []

    def answer(self, path: str, token: str | None) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        self.asked.append(path)
        found = REPO.fullmatch(path.partition("?")[0])
        if found is None:
            return 404, {}, b"{}"
        repo, rest = found["repo"], found["rest"] or ""
        if repo in self.gated and not token:
            say = f"Access to dataset {repo} is restricted. You must have access to it."
            return 401, {"X-Error-Code": "GatedRepo", "X-Error-Message": say}, b"{}"
        if rest.startswith("/resolve/"):
            return self._file(repo, *rest.removeprefix("/resolve/").split("/", 1))
        where = re.fullmatch(r"/(?:revision|tree|paths-info)/([^/]+)/?(.*)", rest)
        folder = self._folder(repo, where[1] if where else "main")
        if folder is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        if where is not None and rest.startswith("/tree/"):
            below, deep = folder / where[2], "recursive=true" in path.lower()
            listed: Any = [_listed(p, folder) for p in sorted(below.rglob("*") if deep else below.iterdir())]
        else:
            names = [_listed(p, folder)["path"] for p in sorted(folder.rglob("*")) if p.is_file()]
            listed = {
                "id": repo, "sha": where[1] if where else "main", "private": False, "gated": False,
                "disabled": False, "downloads": 0, "likes": 0, "tags": [],
                "siblings": [{"rfilename": name} for name in names],
            }  # fmt: skip
        return 200, {"Content-Type": "application/json"}, json.dumps(listed).encode()

    def _folder(self, repo: str, revision: str) -> Path | None:
        return self.folders.get((repo, revision))

    def _file(self, repo: str, revision: str, name: str) -> tuple[int, dict[str, str], bytes]:
        folder = self._folder(repo, revision)
        if folder is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        path = folder / name
        if not path.is_file():
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": revision}, b"{}"
        body = path.read_bytes()
        return 200, {"ETag": f'"{_oid(path)}"', "X-Repo-Commit": revision}, body


def _oid(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


def _listed(path: Path, folder: Path) -> dict[str, Any]:
    name = path.relative_to(folder).as_posix()
    if path.is_dir():
        return {"type": "directory", "path": name, "size": 0, "oid": "0" * 40}
    return {"type": "file", "path": name, "size": path.stat().st_size, "oid": _oid(path)}


@contextmanager
def serving(hub: Hub) -> Iterator[str]:
    """The address of the hub while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(size)
            status, headers, body = hub.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = _reply

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
