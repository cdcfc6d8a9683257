"""One vLLM engine in this process, stepped by hand.

vLLM's `LLM` would start a process for the engine; `VLLM_ENABLE_V1_MULTIPROCESSING=0` keeps it here. There are
three reasons: new weights are handed over as tensors, without files or copies between processes; each token
is seen as it is sampled, so that a stop text or a cancelled caller ends a row at once; and nothing can
outlive us. The price is that the engine takes its turns in a thread beside the rest of the program.

Everything here must be called from one and the same thread.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from spade.errors import BackendError, SpadeError
from spade.serving.policy import TokenScores, TopTokens
from spade.serving.vllm_rows import UNKNOWN_SAMPLER, Row, most_likely
from spade.serving.vllm_settings import engine_arguments, environment, require_vllm, start_failure
from spade.serving.vllm_weights import model_alone, written

if TYPE_CHECKING:
    from spade.config import ServingConfig

_opened = 0
"""Engines that are open in this process."""
_retired: list[Any] = []
"""Engines that are closed and will be ended with the last open one."""
_opened_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step brought a row: its new tokens, and why it ended if it did. Of a row that nobody watches
    only the end is told. `scores` are those of a text that was to be scored."""

    row: int
    token_ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    top: Sequence[TopTokens] = ()
    finish: str = ""
    cached: int = 0
    scores: TokenScores | None = None


class VllmEngine:
    """vLLM's `LLMEngine` behind the few calls that the policy needs."""

    def __init__(self, folder: Path, cfg: ServingConfig) -> None:
        """Start it. Raises `ConfigError` (settings, no vLLM) or `BackendError` (it does not start)."""
        global _opened
        require_vllm()
        self._open = contextlib.ExitStack()
        folder = self._open.enter_context(model_alone(folder))
        args = {
            **engine_arguments(folder, cfg), "skip_tokenizer_init": True, "disable_log_stats": True,
        }  # fmt: skip
        if cfg.vllm.tensor_parallel == 1 and cfg.vllm.executor == "auto":
            args["distributed_executor_backend"] = "uni"
        self._in_files = cfg.vllm.tensor_parallel > 1 or cfg.vllm.executor in ("mp", "ray")
        self._weights_dir = cfg.vllm.weights_dir
        self._sleeps = bool(args.get("enable_sleep_mode"))
        self._scored: dict[int, tuple[tuple[int, ...], int, int]] = {}
        self._with_top: set[int] = set()
        """Rows that want the most likely tokens beside."""
        torch.set_num_threads(max(1, cfg.threads))  # of this thread alone
        os.environ.update(environment(cfg))
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        try:
            with _as_it_was():
                self._engine = _start(args)
        except BaseException:
            self._open.close()
            raise
        with _opened_lock:
            _opened += 1
        if not all(self._engine.collective_rpc("spade_whole_logprobs")):
            self.close()
            raise BackendError(UNKNOWN_SAMPLER)
        config = self._engine.model_config
        self.length = int(config.max_model_len)
        self.dtype = str(config.dtype).removeprefix("torch.")

    def add(self, number: int, row: Row) -> None:
        """Queue a row under a number of its own. Raises `BackendError` when vLLM refuses it."""
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        asked = row.params
        kind = RequestOutputKind.FINAL_ONLY if asked.stop_when is None else RequestOutputKind.DELTA
        params = SamplingParams(
            max_tokens=row.limit, temperature=asked.temperature, top_p=asked.top_p, top_k=asked.top_k,
            seed=row.seed, stop_token_ids=list(asked.stop_token_ids), ignore_eos=True, logprobs=row.top,
            flat_logprobs=True, detokenize=False, output_kind=kind, skip_clone=True,
        )  # fmt: skip
        if asked.top_logprobs is not None:
            self._with_top.add(number)
        self._add(number, row.prompt, params)

    def add_scored(self, number: int, ids: tuple[int, ...], start: int, top: int) -> None:
        """Queue a text whose log-probs from token `start` on are wanted."""
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        params = SamplingParams(
            max_tokens=1, temperature=0.0, prompt_logprobs=max(1, top), flat_logprobs=True, detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY, ignore_eos=True, skip_clone=True,
        )  # fmt: skip
        self._scored[number] = (ids, start, top)
        self._add(number, ids, params)

    def _add(self, number: int, ids: Sequence[int], params: Any) -> None:
        from vllm.inputs.engine import tokens_input

        try:
            self._engine.add_request(str(number), tokens_input(list(ids)), params)
        except ValueError as err:
            raise BackendError(f"vLLM refuses a prompt of {len(ids)} tokens: {err}") from err

    def step(self) -> list[Progress]:
        """Advance every row by a token, or prompts by a piece."""
        return [self._read(out) for out in self._engine.step()]

    def abort(self, numbers: Iterable[int]) -> None:
        """Forget rows."""
        some = list(numbers)
        for number in some:
            self._scored.pop(number, None)
            self._with_top.discard(number)
        self._engine.abort_request([str(number) for number in some])

    def load(self, named: Iterable[tuple[str, Any]]) -> None:
        """New weights, names as in the Hugging Face state dict; drops the cache. No row may be running."""
        if self._in_files:
            with written(named, self._weights_dir, self.dtype) as folder:
                self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
        else:
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(named)})
        self.clear()

    def clear(self) -> None:
        """Drop the cache. No row may be running."""
        if not self._engine.reset_prefix_cache():
            raise BackendError("vLLM did not drop its cache; are rows still running?")

    def sleep(self) -> None:
        """Drop the cache, and give the GPU's memory back if `serving.vllm.sleep` says so."""
        self.clear()
        if self._sleeps:
            self._engine.sleep(level=1)

    def wake(self) -> None:
        """Take the memory again."""
        if self._sleeps:
            self._engine.wake_up()

    def close(self) -> None:
        """End the engine and its workers; while another is open in this process, only when that one closes,
        since vLLM's shutdown takes the process groups from all of them."""
        global _opened
        engine, self._engine = self._engine, None
        if engine is None:
            return
        self._open.close()
        with _opened_lock:
            _retired.append(engine)
            _opened -= 1
            ending = [] if _opened else [_retired.pop() for _ in list(_retired)]
        if not ending:
            return
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        while ending:
            engine = ending.pop()
            engine.engine_core.shutdown()
        del engine
        gc.collect()
        cleanup_dist_env_and_memory()

    def _read(self, out: Any) -> Progress:
        number, said = int(out.request_id), out.outputs[0]
        if number in self._scored:
            scores = _scores(out.prompt_logprobs, *self._scored.pop(number))
            return Progress(number, finish="stop", scores=scores)
        flat, finish = said.logprobs, said.finish_reason or ""
        logprobs = [flat.logprobs[at] for at in flat.start_indices]
        top: list[TopTokens] = [()] * len(logprobs)
        if number in self._with_top:
            found = [_pairs(flat, at) for at in range(len(logprobs))]
            top = [(pairs[0], *most_likely(pairs[1:], len(pairs) - 1)) for pairs in found]
            if finish:
                self._with_top.discard(number)
        return Progress(number, said.token_ids, logprobs, top, finish, out.num_cached_tokens or 0)


def _pairs(flat: Any, position: int) -> list[tuple[int, float]]:
    """(id, log-prob) at one position of vLLM's `FlatLogprobs`: the token, then the most likely ones."""
    span = slice(flat.start_indices[position], flat.end_indices[position])
    return list(zip(flat.token_ids[span], flat.logprobs[span], strict=True))


def _scores(flat: Any, ids: Sequence[int], start: int, top: int) -> TokenScores:
    found = [_pairs(flat, at) for at in range(start, len(ids))]
    best = [most_likely(pairs, max(1, top)) for pairs in found]
    return TokenScores(
        tuple(pairs[0][1] for pairs in found),
        tuple(most[0][0] == token for most, token in zip(best, ids[start:], strict=True)),
        tuple(best) if top else (),
    )


def _start(args: dict[str, Any]) -> Any:
    """vLLM's engine, or one sentence why there is none."""
    try:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            # vLLM compiles one small function of its sampler, which would need a C++ compiler and seconds.
            type(current_platform).simple_compile_backend = "eager"
        from vllm.v1.engine.llm_engine import LLMEngine

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return LLMEngine.from_engine_args(EngineArgs(**args))
    except SpadeError:
        raise
    except Exception as err:  # whatever vLLM or torch raise while they start
        raise start_failure(_chain(err)) from err


def _chain(err: BaseException) -> str:
    """The messages of an error and of what caused it, the cause last."""
    lines = [f"{type(err).__name__}: {' '.join(str(err).split())}"]
    while (cause := err.__cause__ or err.__context__) is not None:
        err = cause
        lines.append(f"{type(err).__name__}: {' '.join(str(err).split())}")
    return "\n".join(lines)


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Undo what a starting engine does to its process: torch's thread setting is replaced by one that does
    nothing, the global generators are seeded, and the environment is changed for processes to come."""
    environ, set_threads, threads = dict(os.environ), torch.set_num_threads, torch.get_num_threads()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_num_threads = set_threads
        torch.set_num_threads(threads)
        for name in set(os.environ) - set(environ):
            if not name.startswith("VLLM_"):  # the engine reads its own again
                del os.environ[name]
        os.environ.update({k: v for k, v in environ.items() if not k.startswith("VLLM_")})
