"""The design phase and hints with the real validator and sandbox, and a scripted Designer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest_asyncio

from spade.config import Config, HintConfig, SandboxConfig
from spade.design.designer import DUPLICATE, HELDOUT, NO_CODE, Designer, accepted, twin_id
from spade.design.hints import clean_hint, write_hints
from spade.envs.sandbox import Sandbox
from spade.serving.chat import ChatPolicy
from spade.serving.scripted import ScriptedPolicy
from spade.types import EnvProgram
from tests.play.programs import GUESS


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig()) as box:
        yield box


def config(**design: Any) -> Config:
    base = {"template": "short", "attempts": 1, "skills_per_step": 2}
    return Config.model_validate({"design": {**base, **design}})


def replies(*texts: str) -> tuple[ChatPolicy, list[str]]:
    """A policy that gives these replies in order (the last one for ever), and the prompts it saw."""
    seen: list[str] = []

    def answer(prompt: str) -> str:
        seen.append(prompt)
        return texts[min(len(seen), len(texts)) - 1]

    policy = ScriptedPolicy.from_function(answer)
    return ChatPolicy(policy.renderer, policy), seen


def fence(code: str) -> str:
    return f"```python\n{code}```"


def game(top: int) -> str:
    return GUESS.replace("1, 8", f"1, {top}").replace("1 to 8", f"1 to {top}").replace("= 6", "= 4")


RENAMED = game(9).replace("self.x", "self.secret").replace("GuessEnv", "OtherEnv")


async def test_every_attempt_has_a_verdict_with_its_reason(sandbox: Sandbox) -> None:
    chat, seen = replies(
        "nothing", fence("class AEnv:\n    pass\n"), fence(game(9)), fence(RENAMED), fence(game(12))
    )
    held = EnvProgram.of(game(12))
    designer = Designer(config(), chat, sandbox, {held.id: held})
    designs = await designer.round(0, 5, needed=5)
    codes = [d.verdict.code for d in designs if d.verdict]
    assert codes[0] == NO_CODE and codes[2:] == ["accepted", DUPLICATE, HELDOUT]
    assert codes[1] not in (NO_CODE, "accepted", DUPLICATE)
    assert designs[2].program is not None and twin_id(designs[3]) == designs[2].program.id
    assert twin_id(designs[4]) is None and not accepted(designs[4])
    assert [d.brief.skill for d in designs] == [designer.cfg.design.skills[i % 2] for i in range(5)]
    assert len({d.brief.document_id for d in designs}) == 5 and len(set(seen)) == 5
    t = designs[2].trajectory
    assert t.role == "designer" and t.sampled_tokens == len(t.completion_ids) == len(t.logprobs)


async def test_a_known_program_is_refused_later_and_after_a_reload(sandbox: Sandbox) -> None:
    chat, _ = replies(fence(game(9)))
    designer = Designer(config(), chat, sandbox)
    first = await designer.round(0, 1, needed=1)
    assert accepted(first[0])
    (second,) = await designer.round(2, 1, needed=1)
    copy = Designer(config(), replies(fence(RENAMED))[0], sandbox)
    copy.load_state_dict(json.loads(json.dumps(designer.state_dict())))
    (third,) = await copy.round(4, 1, needed=1)
    assert first[0].program is not None
    assert twin_id(second) == twin_id(third) == first[0].program.id
    assert copy.corpus.state_dict()["position"] == 3


async def test_failed_slots_are_tried_again_until_enough_are_accepted(sandbox: Sandbox) -> None:
    chat, seen = replies("no", "no", fence(game(9)), fence(game(10)), fence(game(11)))
    designs = await Designer(config(attempts=3), chat, sandbox).round(0, 2, needed=2)
    assert [accepted(d) for d in designs] == [False, False, True, True] and len(seen) == 4
    chat, seen = replies("no", fence(game(9)), fence(game(10)))
    assert len(await Designer(config(attempts=3), chat, sandbox).round(0, 2, needed=1)) == 2
    chat, seen = replies("no")
    assert len(await Designer(config(attempts=3), chat, sandbox).round(0, 2, needed=2)) == 6


async def hints(sandbox: Sandbox, reply: str | Callable[[str], str], **cfg: Any) -> Any:
    fn = reply if callable(reply) else (lambda prompt: reply)
    policy = ScriptedPolicy.from_function(fn)
    chat = ChatPolicy(policy.renderer, policy)
    program = EnvProgram.of(cfg.pop("code", game(16)))
    settings = HintConfig(**cfg)
    (draft,) = await write_hints([program], chat, sandbox, settings, seed=1, floor_max=0.34, template="short")
    return draft


async def test_hints_are_cleaned_and_checked(sandbox: Sandbox) -> None:
    good = await hints(sandbox, "<think>hm</think>HINT: halve the range\n after each reply")
    assert good.usable == "halve the range after each reply" and good.tokens > 30
    long = await hints(sandbox, "halve " * 60)
    assert long.usable is None and long.check.code == "hint_too_long"
    assert (await hints(sandbox, "   ")).check.code == "no_hint"
    leak = await hints(sandbox, "try " + " ".join(map(str, range(1, 17))))
    assert leak.usable is None


async def test_a_program_can_bring_its_own_hint(sandbox: Sandbox) -> None:
    own = game(16) + "\n    def hint(self):\n        return 'halve what is left'\n"
    draft = await hints(sandbox, "unused", source="program", code=own)
    assert draft.usable == "halve what is left" and draft.tokens == 0
    assert (await hints(sandbox, "unused", source="program")).check.code == "no_hint"
    secret = own.replace("self.t = 0", "self.t = 0\n        self.word = 'mellon'").replace(
        "what is left", "mellon"
    )
    assert (await hints(sandbox, "unused", source="program", code=secret)).check.code == "hint_leaks_code"


def test_labels_and_line_breaks_are_dropped() -> None:
    assert clean_hint("Hint:  look\n left ") == "look left"
