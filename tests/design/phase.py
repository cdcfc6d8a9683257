"""A scripted Designer for tests of the design phase: policies that give fixed replies, and small games."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from spade.config import Config
from spade.errors import BackendError
from spade.serving.chat import ChatPolicy
from spade.serving.policy import Completion, SamplingParams
from spade.serving.scripted import ScriptedPolicy
from tests.play.programs import GUESS


def config(validator: dict[str, Any] | None = None, **design: Any) -> Config:
    """A small design phase; the floor is that of worlds as small as these."""
    base = {"template": "short", "attempts": 1, "skills_per_step": 2}
    return Config.model_validate(
        {"design": {**base, **design}, "validator": {"floor_max": 0.34, **(validator or {})}}
    )


def replies(*texts: str) -> tuple[ChatPolicy, list[str]]:
    """A policy that gives these replies in order (the last one for ever), and the prompts it saw."""
    seen: list[str] = []

    def answer(prompt: str) -> str:
        seen.append(prompt)
        return texts[min(len(seen), len(texts)) - 1]

    return chat_of(answer), seen


def chat_of(answer: Callable[[str], str], **options: Any) -> ChatPolicy:
    """A chat policy from a function of the prompt's text."""
    policy = ScriptedPolicy.from_function(answer, **options)
    return ChatPolicy(policy.renderer, policy)


class Unreliable(ScriptedPolicy):
    """Answers each request on its own, as an endpoint does; `HANG` never comes, `FAIL` is an error."""

    lockstep = False

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        n: int = 1,
    ) -> list[list[Completion]]:
        answers = await super().generate(prompts, params, n)
        said = self.renderer.text(list(answers[0][0].token_ids))
        if said == "HANG":
            await asyncio.Event().wait()
        if said == "FAIL":
            raise BackendError("the endpoint answered 500")
        return answers


def unreliable(answer: Callable[[str], str]) -> ChatPolicy:
    """A chat policy whose requests can hang or fail one by one."""
    policy = Unreliable.from_function(answer)
    return ChatPolicy(policy.renderer, policy)


def fence(code: str) -> str:
    return f"```python\n{code}```"


def game(top: int) -> str:
    """The bisecting game in another size."""
    return GUESS.replace("1, 8", f"1, {top}").replace("1 to 8", f"1 to {top}").replace("= 6", "= 4")


RENAMED = game(20).replace("self.x", "self.secret").replace("GuessEnv", "OtherEnv")
"""The same game as `game(20)` under other names."""
BROKEN = "class BrokenEnv:\n    pass\n"
