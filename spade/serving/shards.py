"""One model on several engines of a Ray cluster (`serving.shards`, extra `ray`).

Every engine is an actor that serves the whole checkpoint. A conversation stays with the engine that began it,
where its beginning is cached; new ones go to the engine with the fewest. A sequence is answered once: when an
engine or its node is lost, what it had not answered is asked of the others. On engines whose rows do not
depend on their company (`serving.deterministic`) the answers are those of one engine, bit for bit; those of
conversations that had to move are so up to rounding, since what was cached is computed anew.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from spade.cluster import actor_on, connect, ray_errors
from spade.errors import BackendError, SpadeError
from spade.serving.policy import Completion, PolicyStats, SamplingParams, TokenScores
from spade.types import StopReason

if TYPE_CHECKING:
    from spade.config import ServingConfig


PRIME = (1 << 61) - 1


class ShardEngine:
    """One engine, as an actor."""

    def __init__(self, path: str, cfg: ServingConfig) -> None:
        from spade.serving.launch import engine_for

        self.policy: Any = engine_for(Path(path), cfg.model_copy(update={"shards": 0}))

    async def facts(self) -> dict[str, Any] | Failed:
        """What callers ask a policy about itself."""
        names = ("exact_tokens", "lockstep", "context_length", "max_rows")
        known = {name: getattr(self.policy, name) for name in names}
        return {
            **known,
            "dtype": str(getattr(self.policy, "dtype", "")),
            "engine": type(self.policy).__name__,
        }

    async def call(self, name: str, *args: Any) -> Any:
        """A method of the policy; an error of SPADE's own as a value, since its class must survive."""
        try:
            return await getattr(self.policy, name)(*args)
        except SpadeError as error:
            return Failed.of(error)

    async def load(self, named: Any, version: int) -> None:
        """Take new weights."""
        await self.policy.load_weights(named.items(), version)


class Failed:
    """An error that an engine answered with."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind, self.text = kind, text

    @classmethod
    def of(cls, error: SpadeError) -> Failed:
        """An error as a value."""
        return cls(type(error).__name__, str(error))

    def error(self) -> SpadeError:
        """The error, to be raised."""
        import spade.errors as errors

        kind = getattr(errors, self.kind, BackendError)
        made: SpadeError = kind(self.text)
        return made


class ShardedPolicy:
    """See `spade.serving.policy.Policy`. Made by `open`.

    What ends a row early (`SamplingParams.stop_when`) is looked for when the row is there: it is cut where it
    would have ended.
    """

    privileged = False

    def __init__(self, engines: Sequence[Any], facts: dict[str, Any]) -> None:
        self._engines = dict(enumerate(engines))
        self._homes = Homes()
        self.exact_tokens = bool(facts["exact_tokens"])
        self.lockstep = bool(facts["lockstep"])
        self.context_length = int(facts["context_length"])
        self.engine_rows = int(facts["max_rows"])
        self.max_rows = self.engine_rows * len(engines)
        self.dtype, self.engine_name = str(facts["dtype"]), str(facts["engine"])
        self.stats = PolicyStats()
        self.version = 0

    @classmethod
    async def open(cls, path: Path, cfg: ServingConfig, kind: type = ShardEngine, *more: Any) -> Self:
        """Start `cfg.shards` engines, spread over the nodes; each is a `kind(path, cfg, *more)`.

        Raises InputError without Ray or a cluster, and what opening the checkpoint raises.
        """
        nodes = await asyncio.to_thread(connect, f"serving.shards={cfg.shards}")
        gpus = 1.0 if cfg.device == "cuda" else 0.0
        engines = [
            actor_on(kind, nodes[i % len(nodes)], str(path), cfg, *more, gpus=gpus) for i in range(cfg.shards)
        ]
        try:
            facts = await asyncio.gather(*(engine.facts.remote() for engine in engines))
        except ray_errors() as error:
            last = str(error).strip().splitlines()[-1]
            raise BackendError(f"An engine of serving.shards={cfg.shards} does not start: {last}") from error
        if failed := [fact for fact in facts if isinstance(fact, Failed)]:
            raise failed[0].error()
        return cls(engines, facts[0])

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        n: int = 1,
    ) -> list[list[Completion]]:
        """See `Policy.generate`. Raises BackendError when every engine is lost."""
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        plain = [replace(s, stop_when=None) for s in each]
        rows = await self._divided("generate", n, [tuple(p) for p in prompts], plain)
        out = [[_ended(c, s) for c in row] for row, s in zip(rows, each, strict=True)]
        self._count(prompts, out)
        return out

    async def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], top: int = 0
    ) -> list[TokenScores]:
        """See `LocalPolicy.score`."""
        return await self._divided("score", top, [tuple(p) for p in prompts], [tuple(c) for c in completions])

    async def load_weights(self, named: Iterable[tuple[str, Any]], version: int) -> None:
        """See `Policy.load_weights`; the weights travel once a node."""
        import ray

        shared = ray.put({name: tensor.cpu() for name, tensor in named})
        for number, result in await self._each(lambda engine: engine.load.remote(shared, version)):
            if isinstance(result, ray_errors()):
                self._lose(number, result)
            elif isinstance(result, BaseException):
                raise BackendError(f"An engine does not take the new weights: {result}") from result
        self.version, self._homes = version, Homes()

    async def sleep(self) -> None:
        """See `Policy.sleep`."""
        await self._all("sleep")

    async def wake(self) -> None:
        """See `Policy.wake`."""
        await self._all("wake")

    async def close(self) -> None:
        """End the engines."""
        import ray

        engines, self._engines = self._engines, {}
        for engine in engines.values():
            ray.kill(engine)

    # --- dividing ------------------------------------------------------------------------------------

    async def _divided(self, name: str, last: int, *columns: Sequence[Any]) -> list[Any]:
        """Rows of `name(*columns, last)`, each from one engine; rows of a lost engine go to the others. The
        first column are the prompts."""
        answers: dict[int, Any] = {}
        while missing := [i for i in range(len(columns[0])) if i not in answers]:
            blocks = self._placed(missing, columns[0])
            calls = [
                _call(self._engines[number], name, [[column[i] for i in block] for column in columns], last)
                for number, block in blocks.items()
            ]
            results = await asyncio.gather(*calls, return_exceptions=True)
            for (number, block), result in zip(blocks.items(), results, strict=True):
                if isinstance(result, ray_errors()):
                    self._lose(number, result)
                elif isinstance(result, Failed):
                    raise result.error()
                elif isinstance(result, BaseException):
                    raise result
                else:
                    answers |= dict(zip(block, result, strict=True))
        return [answers[i] for i in range(len(columns[0]))]

    def _placed(self, rows: Sequence[int], prompts: Sequence[Sequence[int]]) -> dict[int, list[int]]:
        """The rows by the number of the engine that is asked."""
        blocks: dict[int, list[int]] = {number: [] for number in self._engines}
        for row in rows:
            number = self._homes.find(prompts[row])
            if number not in self._engines:
                number = min(self._engines, key=lambda k: len(blocks[k]))
                self._homes.keep(prompts[row], number)
            blocks[number].append(row)
        return {number: block for number, block in blocks.items() if block}

    def _lose(self, number: int, error: BaseException) -> None:
        """Go on without an engine. Raises BackendError when it was the last."""
        known = self._engines.pop(number, None) is not None
        if not self._engines:
            last = str(error).strip().splitlines()[0]
            raise BackendError(f"Every engine of the Ray cluster is lost: {last}") from error
        if known:
            left = len(self._engines)
            print(
                f"serving: engine {number} of the Ray cluster is lost; {left} left.",
                file=sys.stderr,
                flush=True,
            )

    async def _each(self, ask: Callable[[Any], Any]) -> list[tuple[int, Any]]:
        """What every engine answers, errors as values."""
        numbers = list(self._engines)
        calls = (ask(self._engines[number]) for number in numbers)
        return list(zip(numbers, await asyncio.gather(*calls, return_exceptions=True), strict=True))

    async def _all(self, name: str) -> None:
        for number, result in await self._each(lambda engine: engine.call.remote(name)):
            if isinstance(result, ray_errors()):
                self._lose(number, result)

    def _count(self, prompts: Sequence[Sequence[int]], rows: Sequence[Sequence[Completion]]) -> None:
        self.stats.requests += sum(map(len, rows))
        self.stats.prompt_tokens += sum(len(p) * len(r) for p, r in zip(prompts, rows, strict=True))
        self.stats.sampled_tokens += sum(len(c.token_ids) for row in rows for c in row)


class Homes:
    """Which engine began a sequence, by its beginning."""

    def __init__(self) -> None:
        self._engine: dict[int, int] = {}
        self._lengths: set[int] = set()

    def find(self, prompt: Sequence[int]) -> int:
        """Number of the engine that was given the longest known beginning of `prompt`; -1 for none."""
        found, value = -1, 0
        for length, token in enumerate(prompt, start=1):
            value = _mixed(value, token)
            if length in self._lengths:
                found = self._engine.get(value, found)
        return found

    def keep(self, prompt: Sequence[int], number: int) -> None:
        """Remember a beginning."""
        value = 0
        for token in prompt:
            value = _mixed(value, token)
        self._engine[value] = number
        self._lengths.add(len(prompt))


def _mixed(value: int, token: int) -> int:
    """A hash of tokens, one more at a time."""
    return (value * 1_000_003 + token + 1) % PRIME


async def _call(engine: Any, name: str, columns: Sequence[Any], last: int) -> Any:
    return await engine.call.remote(name, *columns, last)


def _ended(completion: Completion, params: SamplingParams) -> Completion:
    """A completion, cut where `stop_when` would have ended it."""
    if params.stop_when is None:
        return completion
    seen: list[int] = []
    for token in completion.token_ids:
        seen.append(token)
        if params.stop_when(seen):
            n = len(seen)
            return replace(
                completion,
                token_ids=completion.token_ids[:n],
                logprobs_T=completion.logprobs_T[:n],
                top_T=completion.top_T[:n],
                stop=StopReason.STOP,
            )
    return completion
