"""Rows of a vLLM engine: what is asked, what comes back, and what that means in `Completion`s.

Nothing here knows vLLM; the engines translate.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from spade.errors import BackendError, InputError
from spade.rng import child_seed
from spade.serving.policy import Completion, SamplingParams, TopTokens
from spade.types import StopReason

SEED_SPACE = 2**63
"""vLLM's seeds are signed 64-bit numbers."""
UNKNOWN_SAMPLER = "vLLM samples in a way that SPADE does not know; use serving.type=local."


@dataclass(slots=True, eq=False)
class Row:
    """One completion to sample. `limit` is `max_tokens` or the room that is left, whichever is less. `whole`:
    the engine tells log-probs over the whole vocabulary whatever top-k and top-p leave out."""

    prompt: tuple[int, ...]
    params: SamplingParams
    limit: int
    seed: int
    whole: bool = True

    @property
    def untold(self) -> bool:
        """Whether the engine has no log-probs over the whole vocabulary for this row."""
        cut = self.params.top_p < 1 or self.params.top_k > 0
        return cut and self.params.temperature > 0 and not self.whole

    @property
    def plain(self) -> bool:
        """Whether the sampler's log-probs are those at temperature 1 over the whole vocabulary."""
        return not self.untold and self.params.temperature in (0.0, 1.0)

    @property
    def top(self) -> int:
        """How many of the most likely tokens to ask the sampler for."""
        return (self.params.top_logprobs or 0) if self.plain else 0


@dataclass(slots=True)
class Answer:
    """What an engine says of a row: ids, log-probs and most likely tokens, one each; why it ended (`stop`,
    `length` or `abort`); and how many tokens of the prompt were cached."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[TopTokens] = field(default_factory=list)
    finish: str = ""
    cached: int = 0


def rows_of(
    prompts: Sequence[Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams],
    n: int,
    context: int,
    whole: bool = True,
) -> list[Row]:
    """`n` rows a prompt, in order. Raises `InputError` for a prompt that is empty or leaves no room."""
    each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
    if len(each) != len(prompts):
        raise BackendError(f"generate got {len(prompts)} prompts but {len(each)} sampling parameters.")
    rows = [_row(tuple(p), s, j, context) for p, s in zip(prompts, each, strict=True) for j in range(n)]
    for row in rows:
        row.whole = whole
    return rows


def _row(prompt: tuple[int, ...], params: SamplingParams, sample: int, context: int) -> Row:
    if not prompt:
        raise InputError("A prompt without tokens cannot be continued.")
    room = context - len(prompt)
    if room < 1:
        raise InputError(
            f"A prompt of {len(prompt)} tokens leaves no room in a context of {context}; "
            "shorten it or raise serving.context_length."
        )
    if params.max_tokens < 1:
        raise InputError(f"max_tokens must be at least 1, got {params.max_tokens}.")
    # Always a seed: without one vLLM draws from a generator that starts alike in every process.
    seed = secrets.randbits(62) if params.seed is None else params.seed
    own = child_seed(seed, "sample", sample) if sample else seed
    return Row(prompt, params, min(params.max_tokens, room), own % SEED_SPACE)


def completion_of(row: Row, answer: Answer, version: int, top: Sequence[TopTokens] = ()) -> Completion:
    """The completion of a row. Log-probs that the engine does not tell are NaN."""
    if answer.finish == "abort":
        stop = StopReason.CANCELLED
    elif answer.finish == "stop":
        stop = StopReason.STOP
    else:
        stop = StopReason.CONTEXT if row.limit < row.params.max_tokens else StopReason.LENGTH
    count = len(answer.token_ids)
    # Rounding in the softmax can lift a log-prob a hair above 0.
    logprobs = (math.nan,) * count if row.untold else tuple(min(0.0, x) for x in answer.logprobs)
    return Completion(tuple(answer.token_ids), logprobs, stop, version, tuple(top))


def check_scored(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], context: int
) -> None:
    """Raise `InputError` for what cannot be scored: no prompt, or more tokens than the context and one."""
    for prompt, completion in zip(prompts, completions, strict=True):
        if not prompt:
            raise InputError("Tokens without a prompt before them cannot be scored.")
        if len(prompt) + len(completion) - 1 > context:
            raise InputError(
                f"{len(prompt)} + {len(completion)} tokens do not fit a context of {context}; shorten them, "
                "or raise serving.context_length."
            )


def most_likely(pairs: Sequence[tuple[int, float]], count: int) -> TopTokens:
    """The `count` most likely of (id, log-prob) pairs, most likely first, none twice."""
    return tuple(sorted(dict(pairs).items(), key=lambda pair: -pair[1])[:count])
