"""Runs a hostile set at given levels and reports what got through; also a script, for other conditions.

`python levels_probe.py LEVEL...` prints one JSON object: level (`any` for the strongest) to
`{"level", "place", "holes", "through", "faults", "sibling", "touched"}` or `{"error": text}`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from spade.config import SandboxConfig
from spade.envs.levels import missing
from spade.envs.sandbox import Sandbox
from spade.envs.wire import StepResult
from spade.envs.witness import Witness
from spade.errors import ProgramFault, SandboxError

ATTEMPTS = """
import os, socket, ctypes, resource, mmap

def tcp():
    socket.create_connection(("127.0.0.1", {tcp}), timeout=1)

def udp():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {udp}))

def unix():
    socket.socket(socket.AF_UNIX).connect({unix!r})

def fork():
    if os.fork() == 0:
        os._exit(0)

def raw_kill():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.kill({pid}, 0) < 0:
        raise OSError(ctypes.get_errno(), "refused")

TRIES = {{
    "read": lambda: open({file!r}).read(),
    "write": lambda: open({folder!r} + "/mine", "w"),
    "truncate": lambda: os.truncate({file!r}, 0),
    "unlink": lambda: os.unlink({file!r}),
    "rename": lambda: os.rename({file!r}, {file!r} + "2"),
    "link": lambda: os.symlink({file!r}, {folder!r} + "/link"),
    "list": lambda: os.listdir("/"),
    "stat": lambda: os.stat("/"),
    "environ": lambda: open("/proc/{pid}/environ").read(),
    "passwd": lambda: open("/etc/passwd").read(),
    "source": lambda: open({source!r}).read(),
    "tcp": tcp,
    "udp": udp,
    "unix": unix,
    "fork": fork,
    "exec": lambda: os.execv("/bin/sh", ["sh", "-c", "true"]),
    "kill": lambda: os.kill({pid}, 0),
    "kill by ctypes": raw_kill,
    "limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 12, 1 << 12)),
    "descriptor": lambda: os.fstat(4),
}}

class ProbeEnv:
    def reset(self, seed=None):
        return "ready", {{}}
    def step(self, action):
        through = []
        for name, attempt in TRIES.items():
            try:
                attempt()
            except (OSError, ValueError):
                continue
            through.append(name)
        return ", ".join(through), 0.0, False, False, {{}}
"""

STEP = """
import os, time, ctypes
class BadEnv:
    def reset(self, seed=None):
        return "ready", {{}}
    def step(self, action):
        {body}
        return "survived", 0.0, False, False, {{}}
"""
BODIES = {
    "loop": "while True: pass",
    "sleep": "time.sleep(1e6)",
    "memory": "x = bytearray(600 << 20)",
    "slow memory": "x = []\n        while True: x.append(bytearray(8 << 20))",
    "exit": "os._exit(0)",
    "frames": "os.write(3, b'xxxx' * 10)",
    "ptrace": "ctypes.CDLL(None).ptrace(0, 0, 0, 0)",
}
FAULTS = {
    "loop": ("cpu_limit", "wall_limit"),  # a busy machine may not give it its CPU time within the wall limit
    "sleep": ("wall_limit",),
    "memory": ("memory",),
    "slow memory": ("memory",),
    "exit": ("crash",),
    "frames": ("protocol",),
    "ptrace": ("policy",),
}
"""What must become of each body."""
SLEEP_LIMITS = (0.25, 0.5)
"""CPU and wall seconds of what only waits, so that the tests need not."""
SIBLING = STEP.format(body="pass")


def config(level: str | None, **changes: Any) -> SandboxConfig:
    """Short limits at one level."""
    return SandboxConfig.model_validate(
        {
            "force_level": level,
            "min_level": level or "L2s",
            "cpu_seconds": 0.25,
            "wall_factor": 60.0,  # on a busy machine only what never ends may reach it
            "memory_mb": 64,
            **changes,
        }
    )


async def _fault(sandbox: Sandbox, body: str) -> str:
    try:
        worker = await sandbox.open(STEP.format(body=body))
        await worker.reset(0, 1)
        if body.startswith("time.sleep"):
            worker._process.limits = SLEEP_LIMITS
        (result,) = await worker.batch([("s", 0, "go")])
    except ProgramFault as fault:
        return fault.code.value
    return result.code.value if isinstance(result, ProgramFault) else "none"


async def contained(cfg: SandboxConfig, bodies: dict[str, str] = BODIES) -> dict[str, Any]:
    """What the hostile set achieved under `cfg`; see the module's docstring."""
    with Witness() as witness:
        async with await Sandbox.start(cfg) as sandbox:
            worker = await sandbox.open(ATTEMPTS.format(**witness.probe(64), source=__file__), strict=False)
            await worker.reset(0, 1)
            through = await worker.step(0, "go")
            faults = dict(
                zip(bodies, await asyncio.gather(*(_fault(sandbox, b) for b in bodies.values())), strict=True)
            )
            sibling = await sandbox.open(SIBLING)
            await sibling.reset(0, 1)
            answer = await sibling.step(0, "go")
            assert isinstance(answer, StepResult)
            return {
                "level": sandbox.level,
                "place": str(sandbox.place),
                "refused": list(sandbox.refused),
                "holes": missing(sandbox.level, sandbox.self_test),
                "through": through.observation,
                "faults": faults,
                "sibling": answer.observation,
                "touched": sorted(name for name, well in witness.saw().items() if not well),
            }


def assert_contained(result: dict[str, Any], faults: dict[str, tuple[str, ...]] = FAULTS) -> None:
    """Nothing got through, every body met its end, and a sibling was left alone."""
    assert "error" not in result, result["error"]
    assert (result["holes"], result["through"], result["touched"]) == ([], "", [])
    wrong = {name: code for name, code in result["faults"].items() if code not in faults[name]}
    assert not wrong, wrong
    assert set(result["faults"]) == set(faults)
    assert result["sibling"] == "survived"


async def _all(levels: list[str]) -> dict[str, Any]:
    results: dict[str, Any] = {"uid": os.geteuid()}
    for level in levels:
        try:
            results[level] = await contained(config(None if level == "any" else level))
        except SandboxError as error:
            results[level] = {"error": str(error)}
    return results


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_all(sys.argv[1:]))))
