"""Hints: written by the model or the program, checked, tried again, and never a number when they fail."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from spade.config import HintConfig, SandboxConfig
from spade.design.hints import INFRASTRUCTURE, HintDraft, clean_hint, solution_hints, write_hints
from spade.envs.sandbox import Sandbox
from spade.errors import BackendError, FaultCode, ProgramFault
from spade.serving.chat import ChatPolicy
from spade.types import EnvProgram
from tests.design.phase import chat_of, game, unreliable

GOOD = "halve the range after each reply"
LONG = "halve " * 60


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig()) as box:
        yield box


async def drafts(
    sandbox: Sandbox, chat: ChatPolicy, programs: list[EnvProgram], **cfg: Any
) -> list[HintDraft]:
    return await write_hints(
        programs, chat, sandbox, HintConfig(**cfg), seed=1, floor_max=0.34, template="short"
    )


async def hint(sandbox: Sandbox, reply: str | Callable[[str], str], **cfg: Any) -> HintDraft:
    fn = reply if callable(reply) else (lambda prompt: reply)
    program = EnvProgram.of(cfg.pop("code", game(16)))
    (draft,) = await drafts(sandbox, chat_of(fn), [program], **cfg)
    return draft


async def test_hints_are_cleaned_and_checked(sandbox: Sandbox) -> None:
    good = await hint(sandbox, f"<think>hm</think>HINT: {GOOD[:15]}\n{GOOD[15:]}")
    assert good.usable == GOOD and good.tokens > 30 and good.tries == 1
    long = await hint(sandbox, LONG)
    assert long.usable is None and long.check.code == "hint_too_long"
    assert (await hint(sandbox, "   ")).check.code == "no_hint"
    leak = await hint(sandbox, "try " + " ".join(map(str, range(1, 17))))
    assert leak.usable is None


async def test_a_refused_hint_is_tried_again_at_most_three_times(sandbox: Sandbox) -> None:
    said = iter([LONG, LONG, GOOD])
    draft = await hint(sandbox, lambda prompt: next(said))
    assert draft.usable == GOOD and draft.tries == 3
    assert draft.tokens == 2 * (len(LONG) + 1) + len(GOOD) + 1
    calls: list[str] = []
    failed = await hint(sandbox, lambda prompt: calls.append(prompt) or LONG)  # type: ignore[func-returns-value]
    assert failed.usable is None and len(calls) == 3
    calls.clear()
    await hint(sandbox, lambda prompt: calls.append(prompt) or LONG, tries=1)  # type: ignore[func-returns-value]
    assert len(calls) == 1
    calls.clear()
    await hint(sandbox, lambda prompt: calls.append(prompt) or LONG, temperature=0.0)  # type: ignore[func-returns-value]
    assert len(calls) == 1  # greedy sampling would say the same again


async def test_only_programs_without_a_hint_are_asked_about_again(sandbox: Sandbox) -> None:
    first, second = EnvProgram.of(game(16)), EnvProgram.of(game(18))
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append("18" if "1 to 18" in prompt else "16")
        return GOOD if "1 to 16" in prompt or len(asked) > 2 else LONG

    made = await drafts(sandbox, chat_of(answer), [second, first])
    assert asked == ["18", "16", "18"] and [d.tries for d in made] == [2, 1]
    assert [d.program_id for d in made] == [second.id, first.id]


async def test_a_hint_that_never_comes_is_a_fault_and_others_are_kept(sandbox: Sandbox) -> None:
    programs = [EnvProgram.of(game(16)), EnvProgram.of(game(18))]
    chat = unreliable(lambda prompt: "HANG" if "1 to 18" in prompt else GOOD)
    first, second = await drafts(sandbox, chat, programs, seconds=0.3, tries=2)
    assert first.usable == GOOD and second.usable is None
    assert second.check.code == INFRASTRUCTURE and second.tries == 2 and second.tokens == 0
    with pytest.raises(BackendError):
        await drafts(sandbox, unreliable(lambda prompt: "FAIL"), programs)


async def test_a_worker_lost_in_the_check_is_a_fault(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*args: Any) -> Any:
        raise ProgramFault(FaultCode.LOST, "killed from outside")

    monkeypatch.setattr("spade.design.hints.hint_facts", lost)
    assert (await hint(sandbox, GOOD, tries=1)).check.code == INFRASTRUCTURE


async def test_code_that_does_not_fit_the_context_gets_no_hint(sandbox: Sandbox) -> None:
    chat = chat_of(lambda prompt: GOOD, context_length=200)
    (draft,) = await drafts(sandbox, chat, [EnvProgram.of(game(16))])
    assert draft.usable is None and draft.check.code == "no_hint" and draft.tokens == 0


async def test_a_program_can_bring_its_own_hint(sandbox: Sandbox) -> None:
    own = game(16) + "\n    def hint(self):\n        return 'halve what is left'\n"
    draft = await hint(sandbox, "unused", source="program", code=own)
    assert draft.usable == "halve what is left" and draft.tokens == 0
    assert (await hint(sandbox, "unused", source="program")).check.code == "no_hint"
    secret = own.replace("self.t = 0", "self.t = 0\n        self.word = 'mellon'").replace(
        "what is left", "mellon"
    )
    assert (await hint(sandbox, "unused", source="program", code=secret)).check.code == "hint_leaks_code"


async def test_the_solution_as_a_hint_is_that_of_the_seed_and_refused_by_the_checks(sandbox: Sandbox) -> None:
    program = EnvProgram.of(game(16))
    seeds = [3, 4, 5, 3]
    hints = await solution_hints(program, seeds, sandbox)
    answers = [random.Random(seed).randint(1, 16) for seed in seeds]
    assert hints == [f"the solution is \\boxed{{{answer}}}" for answer in answers]
    assert len(set(hints)) > 1
    checked = await hint(sandbox, "unused", source="solution")
    assert checked.check.code == "hint_leaks_answer" and checked.tokens == 0
    shown = await hint(sandbox, "unused", source="solution", checks=False)
    assert shown.usable == checked.text
    broken = EnvProgram.of(game(16).replace("def solution(self):", "def solution(self, more):"))
    assert await solution_hints(broken, seeds, sandbox) == []
    lost = await hint(sandbox, "unused", source="solution", code=broken.code)
    assert lost.usable is None and lost.check.code == "no_hint"


async def test_tool_use_asks_for_a_plan_in_the_full_form(sandbox: Sandbox) -> None:
    seen: list[str] = []

    def answer(prompt: str) -> str:
        seen.append(prompt)
        return GOOD

    for game_type in ("tool_use", "multi_turn"):
        program = EnvProgram.of(game(16), game_type=game_type)
        settings = HintConfig(tries=1)
        await write_hints(
            [program], chat_of(answer), sandbox, settings, seed=1, floor_max=0.34, template="full"
        )
    assert "place-holders" in seen[0] and "place-holders" not in seen[1]


def test_labels_and_line_breaks_are_dropped() -> None:
    assert clean_hint("Hint:  look\n left ") == "look left"
