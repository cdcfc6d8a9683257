"""What an endpoint can do, found out by asking it once at the start."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from spade.errors import BackendError
from spade.serving.endpoint import Endpoint, Refused
from spade.serving.template import PROBE_TOOL

Support = Literal["yes", "ignored", "refused"]
NAMES = ("n", "logprobs", "top_k", "tools", "seed")
"""The parameters that are probed."""
QUESTION = "Write eight random words."


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Whether a parameter is taken, ignored (accepted without effect) or refused.

    `limit` is the endpoint's name for the token limit.
    """

    n: Support = "yes"
    logprobs: Support = "yes"
    top_k: Support = "yes"
    tools: Support = "yes"
    seed: Support = "yes"
    limit: str = "max_tokens"

    def __str__(self) -> str:
        words = {"yes": "", "ignored": " (ignored)", "refused": " (refused)"}
        able = [name for name in NAMES if getattr(self, name) == "yes"]
        unable = [name + words[getattr(self, name)] for name in NAMES if getattr(self, name) != "yes"]
        return "; ".join(
            f"{verb} {', '.join(names)}" for verb, names in (("takes", able), ("not", unable)) if names
        )


async def probe(endpoint: Endpoint, model: str) -> Capabilities:
    """Ask a handful of questions of a few tokens. Raises `BackendError` when the endpoint does not answer.

    An answer alone proves little, since many servers drop what they do not know. So `n` must bring two
    choices, `logprobs` numbers, `tools` a longer prompt, `top_k` 1 the same words under two seeds, and one
    `seed` the same words twice.
    """
    prober = _Prober(endpoint, model)
    await prober.start()
    found = await asyncio.gather(
        prober.try_n(), prober.try_logprobs(), prober.try_top_k(), prober.try_tools(), prober.try_seed()
    )
    return Capabilities(*found, limit=prober.limit)


class _Prober:
    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self.endpoint, self.model = endpoint, model
        self.limit = "max_tokens"
        self._prompt_tokens: int | None = None

    async def ask(self, **more: Any) -> dict[str, Any]:
        body = {"model": self.model, "messages": [{"role": "user", "content": QUESTION}], self.limit: 16}
        return await self.endpoint.post("/chat/completions", body | more, f"model {self.model}")

    async def start(self) -> None:
        try:
            answer = await self.ask()
        except Refused as error:
            if "max_completion_tokens" not in error.said:
                raise
            self.limit = "max_completion_tokens"
            answer = await self.ask()
        _choices(answer, self.endpoint)
        self._prompt_tokens = _prompt_tokens(answer)

    async def try_n(self) -> Support:
        answer = await self._answer(n=2)
        return _of(answer, lambda a: len(_choices(a, self.endpoint)) == 2)

    async def try_logprobs(self) -> Support:
        answer = await self._answer(logprobs=True)
        return _of(answer, lambda a: bool(_first(a, self.endpoint, "logprobs").get("content")))

    async def try_tools(self) -> Support:
        answer = await self._answer(tools=[PROBE_TOOL])
        return _of(
            answer,
            lambda a: (
                self._prompt_tokens is None
                or _prompt_tokens(a) is None
                or (_prompt_tokens(a) or 0) > self._prompt_tokens
            ),
        )

    async def try_top_k(self) -> Support:
        both = [await self._answer(top_k=1, temperature=1.0, seed=seed) for seed in (1, 2)]
        if None in both:  # perhaps because of the seed
            both = [await self._answer(top_k=1, temperature=1.0) for _ in range(2)]
        return self._same(both)

    async def try_seed(self) -> Support:
        return self._same([await self._answer(seed=7, temperature=1.0) for _ in range(2)])

    async def _answer(self, **more: Any) -> dict[str, Any] | None:
        """The answer, or None when the endpoint refuses the parameters."""
        try:
            return await self.ask(**more)
        except Refused as error:
            if error.status in (400, 404, 422):
                return None
            raise

    def _same(self, answers: list[dict[str, Any] | None]) -> Support:
        if None in answers:
            return "refused"
        words = {str(_choices(a or {}, self.endpoint)[0].get("message")) for a in answers}
        return "yes" if len(words) == 1 else "ignored"


def _of(answer: dict[str, Any] | None, shows: Any) -> Support:
    if answer is None:
        return "refused"
    return "yes" if shows(answer) else "ignored"


def _choices(answer: dict[str, Any], endpoint: Endpoint) -> list[dict[str, Any]]:
    rows = answer.get("choices")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise BackendError(f"The endpoint {endpoint.url} sent an answer without a chat message.")
    return rows


def _first(answer: dict[str, Any], endpoint: Endpoint, key: str) -> dict[str, Any]:
    value = _choices(answer, endpoint)[0].get(key)
    return value if isinstance(value, dict) else {}


def _prompt_tokens(answer: dict[str, Any]) -> int | None:
    usage = answer.get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) else None
