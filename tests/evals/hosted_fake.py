"""A hosted process for tests: does what it is told, the last thing included. `python -m hosted_fake`."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from spade_evals.hosting import serve


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """One request; `do` names what happens."""
    do = request.get("do", "echo")
    if do == "raise":
        raise LookupError("it is not here")
    if do == "spin":
        while True:
            pass
    if do == "sleep":
        time.sleep(60.0)
    if do == "exit":
        os._exit(3)
    if do == "abort":
        os.abort()
    if do == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if do == "memory":
        return {"length": len(bytearray(1 << 40))}
    if do == "write":
        with open(request["path"], "w") as file:
            file.write("words")
    if do == "long":
        return {"text": "x" * request["length"]}
    if do == "set":
        return {"value": {1, 2}}  # no JSON
    if do == "look":
        print("printed by the library")
        os.write(1, b"and past Python's own stream\n")
        return {"input": sys.stdin.read(), "environment": sorted(os.environ)}
    return request


if __name__ == "__main__":
    serve.serve(lambda: answer, memory=8 << 30)
