"""`spade serve` as a process: it says where it listens, answers, and ends cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from spade.cli import main
from spade.errors import InputError
from spade.serving.api.run import bind, is_local

SPADE = [sys.executable, "-m", "spade.cli.main", "serve"]
ASK = {"model": "scripted:echo", "messages": [{"role": "user", "content": "x"}]}


def has_ipv6() -> bool:
    try:
        with bind("::1", 0):
            return True
    except InputError:
        return False


@contextmanager
def process(*arguments: str, **environ: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A running server and the document that it prints."""
    command = [*SPADE, "--ckpt", "scripted:echo", "--port", "0", "--json", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environ
    ) as server:
        assert server.stdout is not None
        try:
            lines: list[str] = []
            while not lines or lines[-1] != "}\n":
                lines.append(server.stdout.readline())
                assert lines[-1], server.stderr.read() if server.stderr else ""
            yield server, json.loads("".join(lines))
        finally:
            if server.poll() is None:
                server.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal(number: signal.Signals) -> None:
    with process() as (server, ready):
        assert ready["model"] == "scripted:echo" and ready["url"].startswith("http://127.0.0.1:")
        with httpx.Client() as http:
            got = http.post(f"{ready['url']}/chat/completions", json=ASK, timeout=60)
        assert got.json()["choices"][0]["message"]["content"] == "\\boxed{x}"
        server.send_signal(number)
        assert server.wait(60) == 0
        assert server.stderr is not None and server.stderr.read() == ""


def test_a_key_from_the_environment_and_a_name() -> None:
    host = "::1" if has_ipv6() else "127.0.0.1"
    with process("--name", "player", "--host", host, SPADE_SERVE_KEY="s3cret") as (server, ready):
        assert ready["model"] == "player" and ("[::1]" in ready["url"] or not has_ipv6())
        url = f"{ready['url']}/models"
        assert httpx.get(url, timeout=60).status_code == 401
        good = httpx.get(url, headers={"Authorization": "Bearer s3cret"}, timeout=60)
        assert good.json()["data"][0]["id"] == "player"
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        assert server.stderr is not None and "s3cret" not in server.stderr.read()


def test_wrong_input_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        assert main.main(["serve", "--ckpt", "scripted:echo", "--port", str(port)]) == 2
        assert f"port {port}: the port is taken; use another --port." in capsys.readouterr().err
    assert main.main(["serve", "--ckpt", "nobody", "--port", "0"]) == 2
    assert "No model or run called 'nobody'" in capsys.readouterr().err
    assert main.main(["serve", "--ckpt", "scripted:echo", "--host", "not a host", "--port", "0"]) == 2
    assert "Cannot listen on not a host" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main.main(["serve", "--ckpt", "scripted:echo", "--port", "70000"])
    assert "is not a port" in capsys.readouterr().err


def test_whoever_can_reach_it_is_told_to_need_a_key() -> None:
    assert is_local("127.0.0.1") and is_local("::1") and is_local("localhost")
    assert not is_local("0.0.0.0") and not is_local("::") and not is_local("example.org")
    with process("--host", "0.0.0.0") as (server, _):
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        assert server.stderr is not None and "set SPADE_SERVE_KEY" in server.stderr.read()
