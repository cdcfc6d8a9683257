"""Hostile programs of our own, whole kinds of them: each ends as the manifest says, at every level.

`hostile/manifest.json` lists the outcomes that may follow (more than one where speed or version decides); a
case with `probe` reports attempts in its observation, and each must show an error (`name!Error`); `call`
names a method that is called instead of `step`; `machine` is given where system call numbers are used.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from envs_programs import ECHO
from hypothesis import given, settings
from hypothesis import strategies as st

from spade.config import SandboxConfig
from spade.envs.cli_run import OUTCOMES as OUTCOME_OF_FAULT
from spade.envs.cli_run import run_once
from spade.envs.plain import equals
from spade.envs.sandbox import Sandbox
from spade.envs.solution_check import _question, _sanitized
from spade.envs.solution_peer import Failed
from spade.envs.wire import (
    Criteria,
    Op,
    PlayTrace,
    ProgramInfo,
    ProtocolError,
    StepResult,
    check_results,
    decode_answer,
)
from spade.errors import FaultKind, ProgramFault, SandboxError
from spade.types import EnvProgram

FOLDER = Path(__file__).parent / "hostile"
LISTED: list[dict[str, Any]] = json.loads((FOLDER / "manifest.json").read_text())
CASES = [c for c in LISTED if c.get("machine", platform.machine()) == platform.machine()]
LEVELS = ("L3", "L2", "L2s")
OUTCOMES = {
    "refused": {"refused"},
    "killed_at_deadline": {"killed"},
    "worker_died_noticed": {"crashed"},
    "killed_bad_frames": {"bad_frames"},
    "harmless_capped": {"ok"},
    "repaired_text": {"ok"},
    "own_worker_only": {"ok", "refused", "killed", "crashed", "bad_frames"},
}
CANARY = Path("/tmp/spade_hostile_canary")
PORT_LINE = "PORT = 1 "


def program(file: str, port: int) -> EnvProgram:
    text = (FOLDER / file).read_text(encoding="utf-8", errors="replace")
    return EnvProgram.of(text.replace(PORT_LINE, f"PORT = {port} "))


def endless(case: dict[str, Any]) -> bool:
    """Whether the case should end at a limit; those get a short one, the others all the time they need."""
    return bool(case["expect"][0] == "killed_at_deadline")


@contextlib.contextmanager
def listener() -> Iterator[socket.socket]:
    """A TCP listener on this machine; nobody may connect."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


async def called(sandbox: Sandbox, code: str, method: str) -> dict[str, Any]:
    """The row of a program whose `solution` or `hint` is called after a reset."""
    op = {"solution": Op.solution, "hint": Op.hint}[method](0)
    worker = await sandbox.open(code, strict=False)
    _, result = await worker.batch([Op.reset(0, 1), op])
    await worker.close()
    if not isinstance(result, ProgramFault):
        return {"outcome": "ok", "detail": "", "observation": str(result)}
    return {"outcome": OUTCOME_OF_FAULT.get(result.code, "refused"), "detail": str(result), "observation": ""}


async def run_case(case: dict[str, Any], sandbox: Sandbox, port: int) -> dict[str, Any]:
    code = program(case["file"], port)
    if "call" in case:
        return await called(sandbox, code.code, case["call"])
    return await run_once(case["file"], code, sandbox, 1, "go")


def complaint(case: dict[str, Any], row: dict[str, Any]) -> str | None:
    """What is wrong with a row, or None."""
    allowed = set().union(*(OUTCOMES[e] for e in case["expect"]))
    if row["outcome"] not in allowed:
        return f"{case['file']}: expected {case['expect']}, got {row['outcome']} ({row['detail']})"
    if row["detail"].startswith("lost"):
        return f"{case['file']}: blamed on the machine ({row['detail']})"
    if len(row["detail"]) > 2000 or len(row["observation"].encode()) > 64 * 1024:
        return f"{case['file']}: a text is too long"
    if case.get("probe") and row["observation"] not in ("", "obs"):
        done = [part for part in row["observation"].split(" | ") if "!" not in part]
        return f"{case['file']}: {done}" if done else None
    return None


def leftovers() -> list[str]:
    return sorted(
        p for folder in ("/tmp", "/dev/shm", "/") for p in os.listdir(folder) if "spade_hostile_pwn" in p
    )


@pytest.mark.parametrize("level", LEVELS)
async def test_own_hostile_programs_end_as_listed(level: str) -> None:
    CANARY.write_text("canary")
    rows: dict[str, dict[str, Any]] = {}
    gate = asyncio.Semaphore(4)
    try:
        sandboxes = {
            short: await Sandbox.start(
                SandboxConfig(
                    force_level=level,
                    min_level=level,
                    cpu_seconds=0.15 if short else 1.0,
                    wall_factor=6.0 if short else 60.0,
                    memory_mb=64,
                )
            )
            for short in (True, False)
        }
    except SandboxError as error:
        pytest.skip(f"NOT RUN: {error}")
    with listener() as server:
        port = server.getsockname()[1]

        async def one(case: dict[str, Any]) -> None:
            async with gate:
                rows[case["file"]] = await run_case(case, sandboxes[endless(case)], port)

        await asyncio.gather(*(one(case) for case in CASES))
        for sandbox in sandboxes.values():
            worker = await sandbox.open(ECHO)  # a fresh sibling works and sees nothing of the others
            assert await worker.reset(0, 7) == "seed 7"
            assert (await worker.step(0, "x")).observation == "7:x" and not worker.violations
            await worker.close()
            while sandbox.processes:
                await asyncio.sleep(0.01)
            await sandbox.close()
        with pytest.raises(BlockingIOError):
            server.accept()
    complaints = [text for case in CASES if (text := complaint(case, rows[case["file"]]))]
    assert not complaints, "\n".join(complaints)
    assert CANARY.read_text() == "canary" and leftovers() == []
    CANARY.unlink()


def test_the_manifest_lists_every_program_and_known_outcomes() -> None:
    assert sorted(c["file"] for c in LISTED) == sorted(p.name for p in FOLDER.glob("*.py"))
    assert {e for c in LISTED for e in c["expect"]} == set(OUTCOMES)
    assert len(CASES) > 200


async def test_repaired_text_is_what_is_left() -> None:
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        row = await run_once("x", program("output_surrogates.py", 1), sandbox, 1, "go")
    assert row["observation"] == "\ufffd" * 10


# --- whatever a worker may send ------------------------------------------------------------------------

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.sampled_from(["f", "d", "s", "w", "e", "r", "v", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
OPS = [
    Op.load("x = 1"),
    Op.reset(0, 1),
    Op.step(0, "go"),
    Op.play(0, 1, ["a", "b"], after=["c"]),
    Op.play(0, 1, ["a"], brief=True),
    Op.solution(0),
    Op.hint(0),
    Op.tools(0),
    Op.results(0),
    Op.criteria(0),
    Op.exchange("call", ""),
    Op.drop(0),
]


KINDS: dict[str, tuple[type, ...]] = {
    "l": (ProgramInfo,),
    "r": (str,),
    "s": (StepResult,),
    "p": (PlayTrace,),
    "o": (str, list),
    "h": (str,),
    "t": (list,),
    "c": (list,),
    "q": (Criteria,),
    "x": (str,),
    "d": (type(None),),
}


@given(ops=st.lists(st.sampled_from(OPS), min_size=1, max_size=3), raw=st.lists(junk, max_size=4))
@settings(max_examples=150, deadline=None)
def test_any_answer_is_a_checked_value_or_a_broken_protocol(ops: list[Any], raw: list[Any]) -> None:
    with contextlib.suppress(ProtocolError):
        results = check_results(ops, 0, raw)
        assert len(results) <= len(ops)
        for op, result in zip(ops, results, strict=False):
            if isinstance(result, ProgramFault):
                assert result.kind is FaultKind.PROGRAM
            else:
                assert type(result) in KINDS[op[0]]
            if isinstance(result, StepResult):
                assert type(result.reward) is float and result.reward - result.reward == 0.0


@given(answer=junk, tail=st.binary(max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_frame_is_decoded_or_a_broken_protocol(answer: Any, tail: bytes) -> None:
    for body in (json.dumps(answer).encode(), json.dumps({"r": [answer]}).encode() + tail, tail):
        with contextlib.suppress(ProtocolError):
            results, notes = decode_answer(body)
            assert type(results) is list and all(type(note) is str for note in notes)


@given(answer=junk, expected=junk)
@settings(max_examples=60, deadline=None)
def test_any_answer_of_a_solution_worker_is_judged_without_an_error(answer: Any, expected: Any) -> None:
    assert equals(expected, answer) in (True, False)
    for part in (answer, {"verb": "call", "request": answer}, {"verb": answer, "request": {}}):
        with contextlib.suppress(Failed):
            _question(part, 0)
    if type(answer) is dict:
        for forged in (answer, {"error": answer}, {"value": answer, "changed": answer}):
            with contextlib.suppress(Failed):
                assert set(_sanitized(forged)) <= {"error", "detail", "raised", "value", "changed"}
