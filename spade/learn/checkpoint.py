"""Checkpoints: plain Hugging Face folders that also hold what training needs to go on. Nothing is pickled.

    runs/X/checkpoints/step-000010/
        config.json, model.safetensors       float32 master weights; any HF tool loads them
        tokenizer files, chat template       copied from the folder the run started with
        trainer.safetensors                  optimiser moments, "optimizers/ROLE/exp_avg/PARAMETER"
        adapter/                             the LoRA adapter by itself, if one is trained
        state.json                           version, step counts, file digests, the caller's own state

A checkpoint is written next to its final place, flushed to disk and renamed, so that a folder called
`step-*` is always whole; what a crash leaves behind is called `.partial-*` and is removed on the next load.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spade.errors import InputError
from spade.files import file_sha256, read_json, write_json

FORMAT = 1
"""Raised when a checkpoint of an older release can no longer be read."""

STATE_FILE = "state.json"
TRAINER_FILE = "trainer.safetensors"
WEIGHTS_FILE = "model.safetensors"
ADAPTER = "adapter/"
"""Prefix of the tensors of a LoRA adapter in `TRAINER_FILE`; `WEIGHTS_FILE` holds them merged."""

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)
"""Copied from the start model when present."""

_STEP_NAME = re.compile(r"step-(\d{6,})")
_PARTIAL_NAME = re.compile(r"\.partial-(\d+)-.+")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint: `learner` is for `CompactLearner.load_state_dict`, `extra` is the caller's."""

    path: Path
    learner: dict[str, Any]
    extra: dict[str, Any]


def checkpoint_path(run_dir: str | Path, step: int) -> Path:
    """`RUN/checkpoints/step-000010`."""
    return Path(run_dir) / "checkpoints" / f"step-{step:06d}"


def save_checkpoint(
    folder: str | Path, learner: Any, tokenizer_dir: str | Path, extra_state: Mapping[str, Any]
) -> Path:
    """Write a whole checkpoint to `folder`, replacing an earlier one of that name; returns the folder.

    `learner` offers `save(folder)` and `state_dict()`; `extra_state` is JSON-ready (records are turned into
    JSON). Raises `InputError` when the disk refuses; nothing half-written is left under the final name.
    """
    from safetensors import SafetensorError

    final = Path(folder)
    partial, replaced = (final.parent / f".partial-{os.getpid()}-{final.name}{end}" for end in ("", "-old"))
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        learner.save(partial)
        copy_tokenizer(Path(tokenizer_dir), partial)
        _write_state(partial, learner.state_dict(), extra_state)
        for file in partial.rglob("*"):
            _sync(file)
        _sync(partial)
        if final.exists():
            os.replace(final, replaced)
        os.replace(partial, final)
        _sync(final.parent)
    except (OSError, SafetensorError) as error:
        reason = str(getattr(error, "strerror", None) or error).splitlines()[0]
        raise InputError(
            f"cannot write the checkpoint {final}: {reason}; free some space or choose another run folder, "
            "then run the same command again to resume."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
    return final


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Read and verify a checkpoint; also removes what crashed writers left beside it.

    Raises `InputError` naming the file when one is missing, damaged, pickled, or of another format.
    """
    path = Path(folder)
    clean_partial(path.parent)
    check_model_folder(path)
    state = read_json(path / STATE_FILE, "checkpoint state")
    if state.get("format") != FORMAT:
        raise InputError(f"{path} has checkpoint format {state.get('format')}, this release reads {FORMAT}.")
    for name, digest in state["sha256"].items():
        if not (path / name).is_file():
            raise InputError(f"{path / name} is missing; use an earlier checkpoint of the run.")
        if file_sha256(path / name) != digest:
            raise InputError(f"{path / name} is damaged (its digest differs); use an earlier checkpoint.")
    optimizers: dict[str, Any] = {role: dict(entry) for role, entry in state["optimizers"].items()}
    adapter: dict[str, Tensor] = {}
    for key, tensor in _read_tensors(path / TRAINER_FILE).items():
        if key.startswith(ADAPTER):
            adapter[key.removeprefix(ADAPTER)] = tensor
            continue
        role, moment, name = key.split("/", 3)[1:]
        optimizers[role].setdefault(moment, {})[name] = tensor
    learner: dict[str, Any] = {
        "version": state["version"],
        "weights": _read_tensors(path / WEIGHTS_FILE),
        "optimizers": optimizers,
        "path": str(path),
    }
    if adapter:
        learner["adapter"] = adapter
    return Checkpoint(path=path, learner=learner, extra=state["extra"])


def latest_checkpoint(run_dir: str | Path) -> Path | None:
    """The whole checkpoint with the highest step, or None. Reads only; partial folders are ignored."""
    found = _checkpoints(run_dir)
    return found[-1] if found else None


def prune(run_dir: str | Path, keep: int) -> list[Path]:
    """Delete all but the newest `keep` (at least 1) checkpoints; returns the deleted folders."""
    doomed = _checkpoints(run_dir)[: -max(1, keep)]
    for path in doomed:
        # Renamed first: a deletion cut short must not leave half a checkpoint under a valid name.
        grave = path.parent / f".partial-{os.getpid()}-{path.name}"
        os.replace(path, grave)
        shutil.rmtree(grave, ignore_errors=True)
    return doomed


def clean_partial(checkpoints_dir: str | Path) -> int:
    """Remove `.partial-PID-*` folders whose writer no longer runs; returns how many."""
    folder = Path(checkpoints_dir)
    removed = 0
    for path in folder.glob(".partial-*") if folder.is_dir() else ():
        match = _PARTIAL_NAME.fullmatch(path.name)
        if match and (int(match[1]) == os.getpid() or not _runs(int(match[1]))):
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
    return removed


def check_model_folder(path: Path) -> None:
    """Raise `InputError` unless `path` is a Hugging Face folder with readable safetensors weights."""
    if not path.is_dir():
        raise InputError(f"there is no model folder at {path}.")
    read_json(path / "config.json", "model config")
    weights = sorted(path.glob("*.safetensors"))
    weights = [w for w in weights if w.name != TRAINER_FILE]
    if not weights:
        pickled = sorted(p.name for p in path.iterdir() if p.suffix in _PICKLED)
        if pickled:
            raise InputError(
                f"{path} holds pickled weights ({pickled[0]}), which can run code when loaded; "
                "convert them to safetensors first."
            )
        raise InputError(f"{path} holds no safetensors weights; give the folder of a saved model.")
    for file in weights:
        _check_tensors(file)


def load_causal_lm(path: Path, device: torch.device, dtype: torch.dtype = torch.float32) -> Any:
    """The causal language model in `path`, from local safetensors only, dropout off.

    Uses block attention on a CPU where the model allows it (`spade.learn.attention`). Raises `InputError`
    when the folder cannot be used or lacks weights the model needs.
    """
    check_model_folder(path)
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    from spade.learn import attention

    disable_progress_bar()

    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        blocks = device.type == "cpu" and attention.fits(config)
        model, info = AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            attn_implementation=attention.register() if blocks else "sdpa",
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"the model in {path} cannot be loaded: {first}") from error
    if info["missing_keys"]:
        raise InputError(
            f"the weights in {path} lack '{sorted(info['missing_keys'])[0]}'; the model is damaged."
        )
    return model.to(device).eval()


def save_model(model: Any, folder: Path) -> None:
    """Write `config.json` and one float32 `model.safetensors`; tied tensors are stored once."""
    model.save_pretrained(folder, safe_serialization=True, max_shard_size="1TB")


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy tokenizer files and chat template. Raises `InputError` when `source` has no tokenizer."""
    found = [source / name for name in TOKENIZER_FILES if (source / name).is_file()]
    if not any(f.name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt") for f in found):
        raise InputError(f"{source} holds no tokenizer files to copy into the checkpoint.")
    for file in found:
        shutil.copyfile(file, target / file.name)


def _write_state(folder: Path, state: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    for role, moments in state["optimizers"].items():
        for moment in ("exp_avg", "exp_avg_sq"):
            for name, tensor in moments[moment].items():
                tensors[f"optimizers/{role}/{moment}/{name}"] = tensor.contiguous()
    for name, tensor in state.get("adapter", {}).items():
        tensors[ADAPTER + name] = tensor.contiguous()
    save_file(tensors, folder / TRAINER_FILE)
    digests = {name: file_sha256(folder / name) for name in (WEIGHTS_FILE, TRAINER_FILE)}
    optimizers = {role: {"step": moments["step"]} for role, moments in state["optimizers"].items()}
    record = {"format": FORMAT, "version": state["version"], "optimizers": optimizers, "sha256": digests}
    write_json(folder / STATE_FILE, {**record, "extra": dict(extra)})


def _checkpoints(run_dir: str | Path) -> list[Path]:
    folder = Path(run_dir) / "checkpoints"
    if not folder.is_dir():
        return []
    steps = [(int(m[1]), p) for p in folder.iterdir() if (m := _STEP_NAME.fullmatch(p.name))]
    return [p for _, p in sorted(steps) if (p / STATE_FILE).is_file() and (p / WEIGHTS_FILE).is_file()]


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    _check_tensors(path)
    tensors: dict[str, Tensor] = load_file(path)
    return tensors


def _check_tensors(path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is missing or damaged ({error}); use another checkpoint.") from error


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
