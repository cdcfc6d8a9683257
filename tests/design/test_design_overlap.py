"""What overlaps in a design step, what changes nothing by it, and what is late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from spade.config import HintConfig, SandboxConfig, ValidateConfig
from spade.design import hints as hinting
from spade.design.admission import Admission
from spade.design.designer import Designer
from spade.design.hints import INFRASTRUCTURE, write_hints
from spade.envs import validate as validating
from spade.envs.sandbox import Sandbox, Worker
from spade.envs.validate import DEADLINE, validate_many
from spade.serving.chat import ChatPolicy
from spade.serving.policy import Completion
from spade.serving.scripted import END, ScriptedPolicy
from spade.types import EnvProgram, Verdict
from tests.design.phase import BROKEN, RENAMED, chat_of, config, fence, game, replies
from tests.design.test_design_phase import codes


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig()) as box:
        yield box


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when the first program of a design step is being judged."""
    event, judge = asyncio.Event(), Admission._judge

    async def noting(self: Admission, program: EnvProgram) -> Verdict:
        event.set()
        return await judge(self, program)

    monkeypatch.setattr(Admission, "_judge", noting)
    return event


class Endpoint(ScriptedPolicy):
    """Answers side by side; every answer but the first waits for the event `go`."""

    lockstep = False
    go: asyncio.Event
    calls = 0

    async def generate(
        self, prompts: Sequence[Sequence[int]], params: Any, n: int = 1
    ) -> list[list[Completion]]:
        self.calls += 1
        if self.calls > 1:
            await self.go.wait()
        return await super().generate(prompts, params, n)


class Batch(ScriptedPolicy):
    """Answers all in one batch, whose rows are watched token by token; it ends when the event `go` is set."""

    go: asyncio.Event

    async def generate(
        self, prompts: Sequence[Sequence[int]], params: Any, n: int = 1
    ) -> list[list[Completion]]:
        plain = [replace(s, stop_when=None) for s in params]
        rows = await super().generate(prompts, plain, n)
        ids = list(rows[0][0].token_ids)
        assert ids[-1] == END
        for size in range(1, len(ids) + 1):
            assert not params[0].stop_when(ids[:size])
        await self.go.wait()
        return rows


@pytest.mark.parametrize("kind", [Endpoint, Batch])
async def test_a_design_is_validated_while_others_are_still_written(
    sandbox: Sandbox, begun: asyncio.Event, kind: type[Any]
) -> None:
    """The other answers wait until the first program is being judged; one by one, they would never come."""
    said = iter([fence(game(20)), fence(BROKEN), fence(game(21))])
    policy = kind.from_function(lambda prompt: next(said))
    policy.go = begun
    designer = Designer(config(), ChatPolicy(policy.renderer, policy), sandbox)
    designs = await asyncio.wait_for(designer.round(0, 3, needed=3), 120)
    assert codes(designs)[0] == codes(designs)[2] == "accepted" != codes(designs)[1]


async def test_early_validation_changes_no_verdict(sandbox: Sandbox, begun: asyncio.Event) -> None:
    """Of two that are alike the first is admitted, whichever was there first."""
    texts = [fence(game(20)), fence(RENAMED), "nothing", fence(game(20)), fence(game(22))]
    plain, _ = replies(*texts)
    expected = codes(await Designer(config(), plain, sandbox).round(0, 5, needed=5))
    said = iter(texts)
    policy: Any = Endpoint.from_function(lambda prompt: next(said))
    policy.go = begun
    designer = Designer(config(), ChatPolicy(policy.renderer, policy), sandbox)
    assert codes(await designer.round(0, 5, needed=5)) == expected
    assert designer.admission._early == {}


async def test_accepted_programs_are_known_before_failed_slots_are_tried_again(sandbox: Sandbox) -> None:
    told: list[int] = []
    said = iter([fence(game(20)), "nothing", fence(game(21))])
    seen: list[int] = []

    def answer(prompt: str) -> str:
        seen.append(len(told))
        return next(said)

    designer = Designer(config(attempts=2), chat_of(answer), sandbox)
    await designer.round(0, 2, needed=2, on_accepted=lambda programs: told.append(len(programs)))
    assert told == [1, 1] and seen == [0, 0, 1], "the third answer was asked for after the first report"


class Clock:
    """The time of the event loop, which can jump past any deadline."""

    def __init__(self) -> None:
        self.ahead = 0.0
        asyncio.get_running_loop().time = self.monotonic  # type: ignore[method-assign]

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def jump(self) -> None:
        self.ahead = 10_000.0


def stall(monkeypatch: pytest.MonkeyPatch, when: Callable[[str], bool]) -> None:
    """Workers of programs whose text fits never answer."""
    batch = Worker.batch

    def stalling(self: Worker, ops: Any) -> Any:
        return asyncio.Event().wait() if when(self.code) else batch(self, ops)

    monkeypatch.setattr(Worker, "batch", stalling)


async def test_a_validation_that_is_late_is_nobodys_verdict(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = [EnvProgram.of(game(20)), EnvProgram.of(game(21))]
    stall(monkeypatch, lambda code: code == programs[1].code)
    cfg = ValidateConfig(floor_max=0.34, seconds=5000)
    good, late = await validate_many(programs, sandbox, cfg, on_done=Clock().jump)
    assert good.accepted and good.judged
    assert (late.code, late.accepted, late.judged) == (DEADLINE, False, False)
    assert late.failed is not None and "validator.seconds (5000 s)" in late.failed.detail


async def test_a_design_without_a_verdict_in_time_is_lost_and_not_trained(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    validate, clock = validating.validate, Clock()

    async def slow(program: EnvProgram, *args: Any, **more: Any) -> Verdict:
        if program.code.strip() == game(21).strip():
            await asyncio.Event().wait()
        verdict = await validate(program, *args, **more)
        asyncio.get_running_loop().call_later(0.1, clock.jump)
        return verdict

    monkeypatch.setattr(validating, "validate", slow)
    chat, _ = replies(fence(game(20)), fence(game(21)))
    designer = Designer(config({"seconds": 5000}), chat, sandbox)
    designs = await designer.round(0, 2, needed=2)
    assert codes(designs) == ["accepted"] and designer.metrics()["designs_lost"] == 1.0


async def test_a_hint_that_is_not_checked_in_time_is_no_hint(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = [EnvProgram.of(game(16)), EnvProgram.of(game(17))]
    stall(monkeypatch, lambda code: code == programs[0].code)
    calls: list[str] = []

    def answer(prompt: str) -> str:
        calls.append(prompt)
        return "halve the range after each reply"

    clock, check = Clock(), hinting._Judge._check

    async def checked(self: Any, program: EnvProgram, hint: Any) -> Any:
        result = await check(self, program, hint)
        asyncio.get_running_loop().call_later(0.1, clock.jump)
        return result

    monkeypatch.setattr(hinting._Judge, "_check", checked)
    monkeypatch.setattr(hinting, "time", clock)
    chat, cfg = chat_of(answer), HintConfig(phase_seconds=5000)
    late, good = await write_hints(programs, chat, sandbox, cfg, seed=1, floor_max=0.34, template="short")
    assert good.usable is not None and late.usable is None
    assert late.check.code == INFRASTRUCTURE and "in time" in late.check.detail
    assert len(calls) == 2, "no further try is begun after the deadline"
