"""Workers that are reset for the next episode of their program instead of being replaced."""

from __future__ import annotations

import asyncio

from envs_programs import ECHO, game

from spade.config import SandboxConfig, ValidateConfig
from spade.envs.death import Ended
from spade.envs.sandbox import REUSE_STAGES, Sandbox, reusable
from spade.envs.validate import validate
from spade.envs.wire import Op
from spade.errors import ProgramFault
from spade.types import EnvProgram, StageResult, Verdict


async def test_a_worker_is_reset_for_the_next_episode_when_its_program_allows() -> None:
    async with await Sandbox.start(SandboxConfig(max_workers=2, episodes_per_worker=3)) as sandbox:
        verdict = await validate(EnvProgram.of(game()), sandbox, ValidateConfig())
        assert reusable(verdict)
        first = await sandbox.borrow(game())
        traces = [await first.play(0, 7, ["x"] * 3)]
        await sandbox.give_back(first)
        again = await sandbox.borrow(game())
        assert again is first and first.uses == 2
        traces.append(await again.play(0, 7, ["x"] * 3))
        assert traces[0] == traces[1]
        assert await sandbox.borrow(game()) is not first  # in use: another one
        await sandbox.give_back(again)
        assert (await sandbox.open(ECHO)).ended is None  # max_workers: the idle one gives way
        assert first.ended is Ended.CLOSED


async def test_a_worn_or_dead_worker_is_not_kept() -> None:
    async with await Sandbox.start(SandboxConfig(episodes_per_worker=2)) as sandbox:
        worker = await sandbox.borrow(ECHO)
        await sandbox.give_back(worker)
        assert await sandbox.borrow(ECHO) is worker
        await sandbox.give_back(worker)
        assert worker.ended is Ended.CLOSED
        worker = await sandbox.borrow(ECHO)
        await worker.reset(0, 1)
        assert isinstance((await worker.batch([Op.step(0, "exit")]))[0], ProgramFault)
        await sandbox.give_back(worker)
        assert await sandbox.borrow(ECHO) is not worker


async def test_who_waits_for_room_comes_before_an_idle_worker() -> None:
    async with await Sandbox.start(SandboxConfig(max_workers=1)) as sandbox:
        worker = await sandbox.borrow(ECHO)
        waiting = asyncio.create_task(sandbox.open(game()))
        await asyncio.sleep(0.05)
        await sandbox.give_back(worker)
        assert (await waiting).ended is None and worker.ended is Ended.CLOSED


def test_only_an_accepted_program_that_keeps_episodes_apart_is_reusable() -> None:
    def verdict(*stages: str, accepted: bool = True, failed: str = "") -> Verdict:
        results = [StageResult(s, s != failed, "ok" if s != failed else "x", "", 0.0) for s in stages]
        return Verdict("id", accepted, tuple(results), "1", "L2")

    assert reusable(verdict("load", *REUSE_STAGES))
    assert not reusable(None)
    assert not reusable(verdict(*REUSE_STAGES, accepted=False))
    for missing in REUSE_STAGES:
        assert not reusable(verdict(*(s for s in REUSE_STAGES if s != missing)))
        assert not reusable(verdict(*REUSE_STAGES, failed=missing))
