"""The deadline of plays: what has ended by then is kept, whatever the rest waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio

from spade.config import PlayConfig, SandboxConfig
from spade.envs.sandbox import Sandbox
from spade.errors import FaultKind
from spade.play.schedule import play
from spade.serving.chat import ChatPolicy
from spade.serving.policy import Completion
from spade.serving.scripted import ScriptedPolicy
from spade.types import EnvProgram, Fault, Instance, Scored
from tests.play.programs import COUNT

COUNTING = EnvProgram.of(COUNT)
LIMITS = PlayConfig(max_turns=4, max_tokens=24, seconds=5000)


class Clock:
    """The time of the event loop; jumps past the deadline once `finished` plays have ended and `hanging`
    calls hang."""

    def __init__(self, finished: int, hanging: int = 0) -> None:
        self.wanted, self.finished, self.hanging, self.ahead = finished, finished, hanging, 0.0
        self.loop = asyncio.get_running_loop()
        self.loop.time = lambda: time.monotonic() + self.ahead  # type: ignore[method-assign]

    def on_done(self, count: int, total: int) -> None:
        self.finished = min(self.finished, self.wanted - count)
        self.look()

    def on_hang(self) -> None:
        self.hanging -= 1
        self.look()

    def look(self) -> None:
        if self.finished <= 0 and self.hanging <= 0:
            self.ahead = LIMITS.seconds


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig(cpu_seconds=0.5, max_workers=4)) as box:
        yield box


class Engine(ScriptedPolicy):
    """Wins in two turns; the calls numbered in `hangs` never return. Counts those that were cancelled."""

    def __init__(self, lockstep: bool, hangs: set[int]) -> None:
        super().__init__("null", max_rows=4)
        self.lockstep, self.hangs = lockstep, hangs
        self.calls = self.cancelled = 0
        self.on_hang: Callable[[], None] = lambda: None
        self._reply = lambda prompt, params, sample: self._word(self.renderer.prompt_text(prompt))

    def _word(self, prompt: str) -> str:
        return r"\boxed{win}" if "turn 1" in prompt else r"\boxed{on}"

    async def generate(
        self, prompts: Sequence[Sequence[int]], params: Any, n: int = 1
    ) -> list[list[Completion]]:
        self.calls += 1
        if self.calls in self.hangs:
            self.on_hang()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
        return await super().generate(prompts, params, n)


async def played(
    sandbox: Sandbox, engine: Engine, count: int, finished: int
) -> tuple[list[Scored], list[Fault]]:
    instances = [Instance(COUNTING.id, seed) for seed in range(count)]
    programs, chat = {COUNTING.id: COUNTING}, ChatPolicy(engine.renderer, engine)
    clock = Clock(finished, len(engine.hangs))
    engine.on_hang = clock.on_hang
    episodes = await play(instances, programs, chat, sandbox, LIMITS, seed=1, on_done=clock.on_done)
    assert [e.instance.seed for e in episodes] == list(range(count))
    outcomes = [e.outcome for e in episodes]
    return [o for o in outcomes if isinstance(o, Scored)], [o for o in outcomes if isinstance(o, Fault)]


@pytest.mark.parametrize(("lockstep", "hangs", "lost"), [(False, {3, 8}, 2), (True, {3}, 8), (True, {6}, 4)])
async def test_finished_plays_survive_calls_that_never_return(
    sandbox: Sandbox, lockstep: bool, hangs: set[int], lost: int
) -> None:
    """In lockstep the hanging call holds up its chunk of four plays and those after it."""
    engine = Engine(lockstep, hangs)
    scored, faults = await played(sandbox, engine, 12, 12 - lost)
    assert (len(scored), len(faults)) == (12 - lost, lost)
    assert {s.value for s in scored} == {1.0}
    assert {(f.kind, f.where) for f in faults} == {(FaultKind.INFRASTRUCTURE, "deadline")}
    assert "play.seconds (5000 s)" in faults[0].detail
    assert engine.cancelled == len(hangs), "the calls were given up, not only forgotten"
    assert sandbox.processes == 0 or await _gone(sandbox)


async def _gone(sandbox: Sandbox) -> bool:
    for _ in range(500):
        if sandbox.processes == 0:
            return True
        await asyncio.sleep(0.01)
    return False


async def test_a_worker_that_stalls_costs_only_its_own_plays(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spade.envs.loaded import Worker

    other = EnvProgram.of(COUNT + "\n# another text of the same game\n")
    batch = Worker.batch

    async def stalling(self: Worker, ops: Any) -> Any:
        if self.code == other.code:
            await asyncio.Event().wait()
        return await batch(self, ops)

    monkeypatch.setattr(Worker, "batch", stalling)
    engine = Engine(False, set())
    programs = {p.id: p for p in (COUNTING, other)}
    instances = [Instance(p, seed) for seed in range(3) for p in programs]
    chat, on_done = ChatPolicy(engine.renderer, engine), Clock(3).on_done
    episodes = await play(instances, programs, chat, sandbox, LIMITS, seed=1, on_done=on_done)
    for episode in episodes:
        stalled = episode.instance.program_id == other.id
        assert isinstance(episode.outcome, Fault if stalled else Scored)
