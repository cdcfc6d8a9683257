"""`VllmPolicy`: a checkpoint folder on vLLM, in this process or in processes of its own.

    VllmPolicy          what both have in common: the promises of `Policy`, on top of rows and answers
      InProcessPolicy   one engine in this process (`vllm_local`, `vllm_engine`)
      ServerPolicy      one or more servers over HTTP (`vllm_remote`, `vllm_client`, `vllm_process`)

vLLM is imported only when an engine is opened here, and never for a server that runs elsewhere.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.errors import BackendError
from spade.serving.policy import Completion, PolicyStats, SamplingParams, TokenScores, TopTokens
from spade.serving.vllm_rows import Answer, Row, check_scored, completion_of, rows_of

if TYPE_CHECKING:
    from spade.config import ServingConfig

SPARE_TOKENS = 2
"""Tokens by which `context_length` is less than the engine's: given texts are scored as a prompt, behind
which vLLM always samples one token, and the last token of a text may lie outside the context."""


class Turnstile:
    """Many may generate at once; who changes the weights is alone."""

    def __init__(self) -> None:
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._alone = asyncio.Lock()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[None]:
        """Wait until nobody is alone, then go in beside the others."""
        async with self._alone:
            self._inside += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Let nobody in, wait until everybody has left, then go in."""
        async with self._alone:
            await self._empty.wait()
            yield


class VllmPolicy(ABC):
    """Serves one checkpoint folder. See `spade.serving.policy.Policy` for the methods.

    Where the engine's workers lack SPADE's extension (`whole` is False: servers that others have started),
    log-probs of rows sampled with top-k or top-p are NaN, and an error once weights have been loaded.
    `lockstep` (in process, `serving.deterministic`) means: the same calls in the same order from the last
    `load_weights` on give the same bits. Unlike with the `local` engine, a row may depend on its company.
    """

    exact_tokens = True
    privileged = False

    def __init__(self, cfg: ServingConfig, model_length: int, dtype: str, lockstep: bool) -> None:
        room = model_length - SPARE_TOKENS
        self.context_length = min(room, cfg.context_length or room)
        self.max_rows = cfg.max_rows
        self.dtype, self.lockstep = dtype, lockstep
        self.stats = PolicyStats()
        self.version = 0
        self.whole = True
        self._trains = False
        self._gate = Turnstile()
        self._closed = False

    @classmethod
    def from_folder(cls, folder: Path, cfg: ServingConfig) -> VllmPolicy:
        """Start the engine that `cfg.vllm` asks for.

        Raises `InputError` (bad checkpoint), `ConfigError` (settings, no vLLM) or `BackendError` (it does not
        start).
        """
        from spade.serving.checkpoint_files import read_config, weight_files
        from spade.serving.vllm_settings import check_settings

        read_config(folder)
        weight_files(folder)
        check_settings(cfg)
        if cfg.vllm.mode == "server":
            from spade.serving.vllm_remote import ServerPolicy

            return ServerPolicy.open(folder, cfg)
        from spade.serving.vllm_local import InProcessPolicy

        return InProcessPolicy.open(folder, cfg)

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        n: int = 1,
    ) -> list[list[Completion]]:
        """See `Policy.generate`. Greedy rows report log-probs at temperature 1."""
        rows = rows_of(prompts, params, n, self.context_length, self.whole)
        if self._trains and any(row.untold for row in rows):
            raise BackendError(
                "The vLLM servers tell no log-probs to train on where top_p or top_k is set; start them with "
                "--worker-extension-cls spade.serving.vllm_worker.WholeLogprobs."
            )
        if not rows:
            return [[] for _ in prompts]
        async with self._gate.use():
            self._check_open()
            answers = await self._answers(rows)
            tops = await self._tops(rows, answers)
            flat = [
                completion_of(row, answer, self.version, top)
                for row, answer, top in zip(rows, answers, tops, strict=True)
            ]
        self._count(rows, answers)
        return [flat[i : i + n] for i in range(0, len(flat), n)]

    async def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], top: int = 0
    ) -> list[TokenScores]:
        """Log-probs of given completions, in order; `top` asks for the most likely tokens beside.

        Raises `InputError` for an empty prompt, or when a prompt and its completion exceed the context by
        more than the last token.
        """
        check_scored(prompts, completions, self.context_length)
        async with self._gate.use():
            self._check_open()
            return await self._scored(prompts, completions, top)

    async def load_weights(self, named: Iterable[tuple[str, Any]], version: int) -> None:
        """See `Policy.load_weights`. Waits for the rows that run."""
        async with self._gate.alone():
            self._check_open()
            await self._load(named)
            self.version, self._trains = version, True

    async def sleep(self) -> None:
        """Drop every cache and, where the engine can, give its memory back. Waits for the rows that run."""
        async with self._gate.alone():
            self._check_open()
            await self._sleep()

    async def wake(self) -> None:
        """Undo `sleep`."""
        async with self._gate.alone():
            self._check_open()
            await self._wake()

    async def close(self) -> None:
        """End what runs and the engine with it. Idempotent."""
        if not self._closed:
            self._closed = True
            await self._close()

    # --- what the two kinds do each in their way --------------------------------------------------------

    @abstractmethod
    async def _answers(self, rows: Sequence[Row]) -> list[Answer]:
        """Sample the rows; one answer each, in order."""

    @abstractmethod
    async def _scores(
        self, prompts: Sequence[tuple[int, ...]], starts: Sequence[int], top: int
    ) -> list[TokenScores]:
        """Log-probs of `prompts[i]` from token `starts[i]` (at least 1) on."""

    @abstractmethod
    async def _load(self, named: Iterable[tuple[str, Any]]) -> None:
        """New weights, and no cache of the old ones."""

    @abstractmethod
    async def _sleep(self) -> None: ...

    @abstractmethod
    async def _wake(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    # ----------------------------------------------------------------------------------------------------

    async def _scored(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], top: int
    ) -> list[TokenScores]:
        out = [TokenScores((), ())] * len(prompts)
        some = [i for i, c in enumerate(completions) if len(c)]
        whole = [(*prompts[i], *completions[i]) for i in some]
        found = await self._scores(whole, [len(prompts[i]) for i in some], top) if some else []
        for i, scores in zip(some, found, strict=True):
            out[i] = scores
        return out

    async def _tops(self, rows: Sequence[Row], answers: Sequence[Answer]) -> list[Sequence[TopTokens]]:
        """`Completion.top_T` of each row: from the sampler where it has them, else from a scoring pass."""
        asked = [row.params.top_logprobs is not None for row in rows]
        tops: list[Sequence[TopTokens]] = [
            answer.top if row.plain and wanted else ()
            for row, answer, wanted in zip(rows, answers, asked, strict=True)
        ]
        again = [i for i, row in enumerate(rows) if asked[i] and not row.plain]
        if not again:
            return tops
        most = max(rows[i].params.top_logprobs or 0 for i in again)
        ids = [answers[i].token_ids for i in again]
        for i, scores in zip(
            again, await self._scored([rows[i].prompt for i in again], ids, most), strict=True
        ):
            count = rows[i].params.top_logprobs or 0
            own = zip(answers[i].token_ids, scores.logprobs_T, strict=True)
            beside = scores.top_T or [()] * len(scores.logprobs_T)
            tops[i] = [(pair, *top[:count]) for pair, top in zip(own, beside, strict=True)]
        return tops

    def _count(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        prompt = sum(len(row.prompt) for row in rows)
        self.stats.requests += len(rows)
        self.stats.prompt_tokens += prompt
        self.stats.prefilled_tokens += prompt - sum(answer.cached for answer in answers)
        self.stats.sampled_tokens += sum(len(answer.token_ids) for answer in answers)

    def _check_open(self) -> None:
        if self._closed:
            raise BackendError("The vLLM engine is closed.")
