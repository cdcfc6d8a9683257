"""The one serving signature: token ids in, token ids and log-probs out.

Training and evaluation share it. Kinds: `scripted | local | vllm | openai`. Whatever turns messages into
tokens lives in `spade.serving.render`; a `ChatPolicy` is a renderer plus a `Policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from spade.types import StopReason

TopTokens = tuple[tuple[int, float], ...]
"""Token ids with their log-probs at one position."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample one completion.

    `temperature` 0 means greedy, as does one below 1e-6. `seed` makes the completion depend on (weights,
    prompt, params) only; None draws a fresh one. `stop_token_ids` end the completion and are kept as its last
    token.
    `top_logprobs` asks for `Completion.top_T`: 0 for the sampled tokens alone, k for the k most likely, too.
    `stop_when` is called in the engine's thread after each token of a row with all its ids so far (a list
    that grows: neither keep nor change it); True ends the row with `StopReason.STOP`. Endpoints ignore it.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    top_logprobs: int | None = None
    stop_when: Callable[[Sequence[int]], bool] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled continuation. `logprobs_T` is at the sampling temperature, one number a token.

    `top_T`, only when asked for, has one entry a token: (id, log-prob) pairs at temperature 1 whatever the
    sampling temperature, the sampled token first, then the most likely ones in order.
    """

    token_ids: tuple[int, ...]
    logprobs_T: tuple[float, ...]
    stop: StopReason
    weight_version: int = 0
    top_T: tuple[TopTokens, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Given tokens under the model: log-probs at temperature 1, and whether each was the most likely one.

    `top_T`, only when asked for, holds the most likely (id, log-prob) pairs of each position, in order.
    """

    logprobs_T: tuple[float, ...]
    greedy_T: tuple[bool, ...]
    top_T: tuple[TopTokens, ...] = ()


@dataclass(slots=True)
class PolicyStats:
    """Running totals a policy keeps: what a ledger needs."""

    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    sampled_tokens: int = 0
    requests: int = 0
    extra: dict[str, float] = field(default_factory=dict)


@runtime_checkable
class Policy(Protocol):
    """A language model behind an engine.

    `exact_tokens` is False for endpoints that only speak text: they may evaluate, they never train.
    `lockstep` is True when the caller should advance all episodes turn by turn in item order, so that the
    rows of every forward pass do not depend on arrival time (`serving.deterministic`).
    """

    exact_tokens: bool
    lockstep: bool
    context_length: int
    max_rows: int

    @property
    def stats(self) -> PolicyStats:
        """Running totals."""
        ...

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        n: int = 1,
    ) -> list[list[Completion]]:
        """`n` completions per prompt, in prompt order. `params` is one for all, or one a prompt.

        A prompt that extends an earlier prompt plus its completion reuses that row's key-value cache. A
        caller that is cancelled while it waits ends its rows at their next token.
        Raises `BackendError` when the engine fails, `InputError` when a prompt leaves no room to answer.
        """
        ...

    async def load_weights(self, named: Iterable[tuple[str, Any]], version: int) -> None:
        """Replace the weights (names as in the Hugging Face state dict); drops every cache."""
        ...

    async def sleep(self) -> None:
        """Free what training needs (caches, on some engines the weights)."""
        ...

    async def wake(self) -> None:
        """Undo `sleep`."""
        ...

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...
