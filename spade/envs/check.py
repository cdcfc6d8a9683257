"""`check_env`: the whole validator in one call, for test suites of programs and pools."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spade.config import SandboxConfig, ValidateConfig
from spade.envs.reading import as_program
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate
from spade.types import EnvProgram, GameType, Verdict


def check_env(
    program: EnvProgram | Path | str,
    sandbox: SandboxConfig | None = None,
    validator: ValidateConfig | None = None,
    *,
    game_type: GameType | None = None,
) -> Verdict:
    """Judge an environment program; returns the verdict of an accepted one.

    `program` is a record, a path, or source text: a string with a line break is text, any other names a file.
    `game_type` judges it as that type whatever it says itself. Raises AssertionError with stage, code and
    reason when it is rejected, InputError when the file cannot be used, SandboxError when nothing could be
    judged. It works with and without a running event loop.
    """
    subject = as_program(program)
    work = _judge(subject, sandbox or SandboxConfig(), validator or ValidateConfig(), game_type)
    with ThreadPoolExecutor(1) as own:  # a thread of its own: the caller's may be running an event loop
        verdict = own.submit(asyncio.run, work).result()
    failed = verdict.failed
    if failed is not None:
        name = subject.source if isinstance(program, Path | str) and subject.source else "the program"
        raise AssertionError(f"{name} is rejected at '{failed.stage}' ({failed.code}): {failed.detail}")
    if not verdict.accepted:
        raise AssertionError("No stage judged the program; switch stages on in `validator.stages`.")
    return verdict


async def _judge(
    program: EnvProgram, sandbox: SandboxConfig, validator: ValidateConfig, game_type: GameType | None
) -> Verdict:
    async with await Sandbox.start(sandbox) as running:
        return await validate(program, running, validator, game_type=game_type)
