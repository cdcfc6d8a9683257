"""`check_policy` over every kind of policy, and over policies that break one promise each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spade.serving.chat import ChatPolicy
from spade.serving.launch import open_chat
from spade.serving.policy import Completion, SamplingParams
from spade.serving.remote import RemotePolicy
from spade.serving.scripted import ScriptedPolicy
from spade.testing import check_policy
from spade.types import StopReason

from . import tiny
from .served import served

ALL = ["greedy", "seeds", "logprobs", "stop", "turns", "cancel"]
TEXT_ONLY = [name for name in ALL if name != "logprobs"]


@pytest.fixture(scope="session")
def neox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that the built-in decoder does not know: it is served through transformers."""
    folder = tmp_path_factory.mktemp("neox")
    tiny.write_model(folder, "gpt_neox")
    return folder


@asynccontextmanager
async def opened(ref: str, **serving: Any) -> AsyncIterator[ChatPolicy]:
    chat = await open_chat(ref, tiny.serving(**serving))
    try:
        yield chat
    finally:
        await chat.close()


@pytest.mark.parametrize("kind", ["null", "echo", "random", "constant:a longer reply"])
async def test_scripted(kind: str) -> None:
    async with opened(f"scripted:{kind}") as chat:
        assert await check_policy(chat) == TEXT_ONLY


@pytest.mark.parametrize("deterministic", [True, False])
async def test_built_in_decoder(llama: tuple[Path, Any], deterministic: bool) -> None:
    async with opened(str(llama[0]), deterministic=deterministic) as chat:
        assert await check_policy(chat) == ALL


async def test_through_transformers(neox: Path) -> None:
    async with opened(str(neox)) as chat:
        assert type(chat.policy._engine).__name__ == "HFEngine"  # type: ignore[attr-defined]
        assert await check_policy(chat) == ALL


async def test_an_endpoint_over_our_own_server(roomy: Path) -> None:
    chat = await open_chat(str(roomy), tiny.serving(deterministic=False))
    async with served(chat) as (service, url):
        remote = await open_chat(f"openai:m@{url}", tiny.serving())
        assert isinstance(remote.policy, RemotePolicy)
        assert str(remote.policy.able) == "takes n, logprobs, top_k, tools, seed"
        assert await check_policy(remote) == TEXT_ONLY
        await remote.close()
        assert service.active == 0


class Broken(ScriptedPolicy):
    """Keeps its promises but one."""

    def __init__(self, broken: str) -> None:
        super().__init__("constant:one two three four")
        self.broken = broken
        self.calls = 0

    async def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams | Sequence[SamplingParams], n: int = 1
    ) -> list[list[Completion]]:
        self.calls += 1
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        if self.broken == "stop":
            each = [replace(s, stop_when=None) for s in each]
        if self.broken == "stop token":
            each = [replace(s, stop_token_ids=(256,)) for s in each]
        rows = await super().generate(prompts, each, n)
        return [[self.spoil(c, s, len(rows)) for c in row] for row, s in zip(rows, each, strict=True)]

    def spoil(self, c: Completion, s: SamplingParams, company: int) -> Completion:
        extra = {
            "company": (company > 1,),
            "seed": (s.temperature > 0 and self.calls % 2,),
            "cache": (self.calls % 2 and s.temperature == 0 and s.seed is None and company == 1,),
        }.get(self.broken, (False,))[0]
        ids = (65, *c.token_ids) if extra else c.token_ids
        stop = StopReason.CANCELLED if self.broken == "lost" else c.stop
        return replace(c, token_ids=ids, logprobs_T=(0.0,) * len(ids), stop=stop)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("company", "depends on its company"),
        ("seed", "same seeds"),
        ("lost", "lost"),
        ("stop", "stop text"),
        ("stop token", "stop token ends the row"),
    ],
)
async def test_a_broken_promise_is_found(broken: str, says: str) -> None:
    policy = Broken(broken)
    with pytest.raises(AssertionError, match=says):
        await check_policy(ChatPolicy(policy.renderer, policy))


async def test_wrong_logprobs_are_found(llama: tuple[Path, Any]) -> None:
    async with opened(str(llama[0])) as chat:
        with pytest.raises(AssertionError, match="off a plain forward pass"):
            await check_policy(chat, reference=lambda prompt, completion, heat: [-9.0] * len(completion))


async def test_a_call_that_cannot_be_cancelled_is_found(llama: tuple[Path, Any]) -> None:
    async with opened(str(llama[0])) as chat:
        generate = chat.policy.generate

        async def deaf(*args: Any) -> Any:
            return await asyncio.shield(asyncio.ensure_future(generate(*args)))

        chat.policy.generate = deaf  # type: ignore[method-assign]
        with pytest.raises(AssertionError, match="generated to its end"):
            await check_policy(chat)
