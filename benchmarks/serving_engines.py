"""The engines of the serving benchmark, one process each: `python serving_engines.py ENGINE FOLDER OPTIONS`.

Reads one piece of work a line (JSON) from standard input and answers with one line that begins with `@`.
Started by `serving.py`, with the Python that has the engine: nothing but the engine itself is imported.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving_work import Ids, timed

CONTEXT = 1024


class Local:
    """The built-in engine, free running or deterministic."""

    def __init__(self, folder: Path, options: dict[str, Any], deterministic: bool) -> None:
        from spade.config import ServingConfig
        from spade.serving.local import LocalPolicy

        cfg = {
            "device": "cpu",
            "dtype": options["dtype"],
            "max_rows": options["rows"],
            "context_length": CONTEXT,
        }
        cfg |= {"threads": options["threads"], "deterministic": deterministic}
        self.policy = LocalPolicy.from_folder(folder, ServingConfig.model_validate(cfg))
        self.loop = asyncio.new_event_loop()

    def generate(self, prompts: Sequence[Ids], counts: Sequence[int]) -> list[Ids]:
        """See `serving_work.Generator`; log-probs come along."""
        from spade.serving.policy import SamplingParams

        params = [SamplingParams(max_tokens=n) for n in counts]
        out = self.loop.run_until_complete(self.policy.generate(prompts, params))
        return [list(c.token_ids) for (c,) in out]


class Transformers:
    """`model.generate` on a left-padded batch; a turn computes the whole conversation again."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(options["threads"])
        dtype = getattr(torch, options["dtype"])
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    def generate(self, prompts: Sequence[Ids], counts: Sequence[int]) -> list[Ids]:
        """See `serving_work.Generator`."""
        import torch

        width, new = max(map(len, prompts)), max(counts)
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        with torch.inference_mode():
            out = self.model.generate(
                ids, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=new, min_new_tokens=new,
                eos_token_id=None, pad_token_id=0,
            )  # fmt: skip
        return [row[:n] for row, n in zip(out[:, width:].tolist(), counts, strict=True)]


class VLLM:
    """vLLM in this process, with prefix caching; log-probs come along as they do from the built-in engine."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "2"}
        os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
        if options["threads"] == 1:
            os.environ["VLLM_CPU_OMP_THREADS_BIND"] = str(min(os.sched_getaffinity(0)))
        from vllm import LLM

        self.llm = LLM(
            model=str(folder), dtype=options["dtype"], max_model_len=CONTEXT, max_num_seqs=options["rows"],
            enforce_eager=True, enable_prefix_caching=True, skip_tokenizer_init=True, disable_log_stats=True,
        )  # fmt: skip

    def generate(self, prompts: Sequence[Ids], counts: Sequence[int]) -> list[Ids]:
        """See `serving_work.Generator`."""
        from vllm import SamplingParams

        params = [
            SamplingParams(max_tokens=n, min_tokens=n, ignore_eos=True, logprobs=0, detokenize=False)
            for n in counts
        ]
        out = self.llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
        return [list(o.outputs[0].token_ids) for o in out]


class LlamaCpp:
    """llama.cpp through llama-cpp-python's low-level calls: one sequence a row, batched, caches kept.

    What rows have in common is computed for each: sharing needs the one cache for all, which costs more.
    """

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        import ctypes

        import llama_cpp as lib

        self.lib, self.rows = lib, options["rows"]
        lib.llama_backend_init()
        self._quiet = lib.llama_log_callback(lambda *_: None)
        lib.llama_log_set(self._quiet, ctypes.c_void_p(0))
        model = lib.llama_model_default_params()
        model.n_gpu_layers = 0
        self.model = lib.llama_model_load_from_file(str(options["gguf"]).encode(), model)
        context = lib.llama_context_default_params()
        context.n_ctx, context.n_seq_max = CONTEXT // 2 * self.rows, self.rows
        context.n_batch = context.n_ubatch = 512
        context.n_threads = context.n_threads_batch = options["threads"]
        context.kv_unified = False  # one cache for all rows was five times slower at 64 of them
        self.context = lib.llama_init_from_model(self.model, context)
        self.memory = lib.llama_get_memory(self.context)
        self.vocab = options["vocab"]
        self.batch = lib.llama_batch_init(512, 0, 1)
        self.held: dict[int, Ids] = {}
        self.samplers: list[Any] = []
        for seed in range(self.rows):
            chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_temp(1.0))
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_dist(seed))
            self.samplers.append(chain)

    def generate(self, prompts: Sequence[Ids], counts: Sequence[int]) -> list[Ids]:
        """See `serving_work.Generator`."""
        where, starts = self._place(prompts)
        out: list[Ids] = [[] for _ in prompts]
        feed = [(i, p[s:]) for i, (p, s) in enumerate(zip(prompts, starts, strict=True))]
        live = list(range(len(prompts)))
        while live:
            tokens = [(i, t, k == len(ids) - 1) for i, ids in feed for k, t in enumerate(ids)]
            for at in range(0, len(tokens), 512):
                self._decode(tokens[at : at + 512], where, out)
            live = [i for i in live if len(out[i]) < counts[i]]
            feed = [(i, [out[i][-1]]) for i in live]
        for i, seat in enumerate(where):
            self.held[seat] = [*prompts[i], *out[i]][:-1]
        return out

    def _place(self, prompts: Sequence[Ids]) -> tuple[list[int], list[int]]:
        """A sequence for each prompt, and how much of it is cached there."""
        free, where, starts = dict(self.held), [], []
        for p in prompts:
            seat = next((s for s, ids in free.items() if p[: len(ids)] == ids), -1)
            where.append(seat)
            starts.append(len(free.pop(seat)) if seat >= 0 else 0)
        unused = [s for s in range(self.rows) if s not in where]
        for i, seat in enumerate(where):
            if seat < 0:
                where[i] = unused.pop(0)
                self.lib.llama_memory_seq_rm(self.memory, where[i], -1, -1)
                self.held.pop(where[i], None)
        for seat in unused:
            self.lib.llama_memory_seq_rm(self.memory, seat, -1, -1)
            self.held.pop(seat, None)
        self.position = dict(zip(where, starts, strict=True))
        return where, starts

    def _decode(self, tokens: Sequence[tuple[int, int, bool]], where: list[int], out: list[Ids]) -> None:
        """One pass over (row, token, whether it is the row's last); samples after the last ones."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for k, (i, token, last) in enumerate(tokens):
            seat = where[i]
            batch.token[k], batch.pos[k], batch.n_seq_id[k] = token, self.position[seat], 1
            batch.seq_id[k][0], batch.logits[k] = seat, last
            self.position[seat] += 1
        if self.lib.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed; the context is too small")
        for k, (i, _, last) in enumerate(tokens):
            if last:
                out[i].append(self.lib.llama_sampler_sample(self.samplers[where[i]], self.context, k))


def open_engine(name: str, folder: Path, options: dict[str, Any]) -> Any:
    """An engine by its name in the benchmark."""
    if name.startswith("local"):
        return Local(folder, options, deterministic=name == "local, deterministic")
    return {"transformers": Transformers, "vllm": VLLM, "llama.cpp": LlamaCpp}[name](folder, options)


def main() -> int:
    """Open the engine, then answer until standard input ends."""
    name, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    if options["threads"] == 1:
        os.sched_setaffinity(0, {options["core"]})
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the engine prints goes to standard error
    engine = open_engine(name, folder, options)
    print("@ready", file=answer)
    for line in sys.stdin:
        work = json.loads(line)
        try:
            result: dict[str, Any] = timed(engine, work, work["salt"])
        except Exception as error:  # a rival's failure is a line of the report, not the end of the run
            result = {"error": f"{type(error).__name__}: {error}"[:200]}
        print("@" + json.dumps(result), file=answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
