"""Where an evaluated checkpoint comes from: its content hash, and the training run it belongs to."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade import __version__
from spade.files import read_json, read_jsonl
from spade.runs import RECORD, read_record
from spade.types import Message, RunRecord, content_id

if TYPE_CHECKING:
    from spade.serving.launch import ChatPolicy

WHOLE = 512 * 2**20
"""Weight files up to this many bytes are hashed whole; of larger ones the two ends and the size."""

END = 8 * 2**20

CHECKPOINTS = "checkpoints"

PROBE = (Message("user", "u"), Message("assistant", "a"), Message("user", "v"))
"""Rendered, its first message alone and with thinking on and off too, to tell chat templates apart."""

PACKAGES = ("numpy", "math-verify", "sympy", "reasoning-gym", "datasets")
"""Versions noted with a result: they load data and grade."""

REPEATED = ("seed", "out", "budget", "eval", "track")
"""Config sections that may differ between repetitions of one recipe. So may the pool's folder, and its size,
which follows the run it is matched to."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The training behind a checkpoint. All fields stay at their defaults for an untrained model."""

    name: str = ""
    """Name of the training config."""
    seed: int | None = None
    step: int | None = None
    tokens: float | None = None
    """Sampled tokens spent up to `step`."""
    recipe: str = ""
    """Hash of the run's config without what differs between repetitions; see `REPEATED`."""
    folder: str = ""
    """The run folder."""
    model: str = ""
    """The start checkpoint of that run."""
    ledger: dict[str, float] = field(default_factory=dict)


def checkpoint_hash(path: Path | None, spec: str) -> str:
    """A hash of the weights and the config in `path`; of the words `spec` when there is no folder."""
    if path is None or not path.is_dir():
        return content_id(spec)[:16]
    digest = hashlib.sha256()
    for file in sorted(path.iterdir()):
        if file.suffix != ".safetensors" and file.name not in ("config.json", "tokenizer.json"):
            continue
        if file.name.startswith(("trainer", "optim")):
            continue  # optimiser state does not change what the model answers
        digest.update(f"{file.name}:{file.stat().st_size}\n".encode())
        digest.update(_content(file))
    return digest.hexdigest()[:16]


def _content(file: Path) -> bytes:
    size = file.stat().st_size
    with file.open("rb") as handle:
        if size <= WHOLE:
            return hashlib.file_digest(handle, "sha256").digest()
        first = handle.read(END)
        handle.seek(size - END)
        return hashlib.sha256(first + handle.read(END)).digest()


def run_of(path: Path | None) -> Path | None:
    """The run folder that `path` (a run or one of its checkpoints) belongs to, or None.

    The record of an evaluation has the same file name and says its format; it is no training run.
    """
    if path is None:
        return None
    above = path.absolute().parents
    inside = [above[1]] if len(above) > 1 and above[0].name == CHECKPOINTS else []
    return next((folder for folder in (path, *inside) if _is_run(folder / RECORD)), None)


def _is_run(record: Path) -> bool:
    return record.is_file() and "format" not in read_json(record, "run record")


def step_of(path: Path | None) -> int | None:
    """The step in a checkpoint's folder name, or None."""
    match = re.fullmatch(r"step-(\d+)", path.name) if path is not None else None
    return int(match.group(1)) if match else None


def origin_of(run: Path | None, step: int | None) -> Origin:
    """Read the record and the metrics of a run folder. `step` None means its last step."""
    if run is None:
        return Origin()
    record = read_record(run)
    rows = [row for row in read_jsonl(run / "metrics.jsonl") if "step" in row]
    if step is not None:
        rows = [row for row in rows if row["step"] <= step]
    return Origin(
        name=str(record.config.get("name", run.name)),
        seed=record.seed,
        step=step if step is not None else (rows[-1]["step"] if rows else None),
        tokens=_tokens(rows, record, step),
        recipe=recipe_of(record.config),
        folder=_relative(run),
        model=str(record.config.get("model", "")),
        ledger=dict(record.ledger),
    )


def _relative(path: Path) -> str:
    """A folder below the present one is named from here, so that a published result names no one's disk."""
    whole, here = path.absolute(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


def recipe_of(config: dict[str, Any]) -> str:
    """12 hex digits that are equal for runs that differ in seed, folders and budget only."""
    kept = {key: value for key, value in config.items() if key not in REPEATED}
    if isinstance(kept.get("train"), dict):
        kept["train"] = {k: v for k, v in kept["train"].items() if k not in ("pool", "pool_size")}
    return content_id(json.dumps(kept, sort_keys=True, default=str))[:12]


def _tokens(rows: list[dict[str, float]], record: RunRecord, step: int | None) -> float | None:
    known = [row["tokens_total"] for row in rows if row.get("tokens_total") is not None]
    if known:
        return float(known[-1])
    total = record.ledger.get("total_tokens")
    return float(total) if total is not None and step is None else None


def _template_hash(chat: ChatPolicy) -> str:
    start = chat.renderer.start
    shown = [start(PROBE), *(start(PROBE[:1], thinking=thinking) for thinking in (None, True, False))]
    return content_id(repr(shown))[:16]


def setup_of(chat: ChatPolicy) -> dict[str, Any]:
    """What produces the answers besides weights and protocol: engine, versions, number type, chat template.

    `key` hashes it; `notes` says what the engine leaves out of the sampling that it is asked for.
    """
    policy = chat.policy
    known: dict[str, Any] = {
        "engine": getattr(policy, "engine_name", type(policy).__name__),
        "spade": __version__,
        "dtype": str(getattr(policy, "dtype", "")),
        "context_length": policy.context_length,
        "template": _template_hash(chat),
    }
    if known["dtype"]:
        known |= {name: version(name) for name in ("torch", "transformers")}
    dropped: tuple[str, ...] = getattr(policy, "dropped", ())
    notes = [] if policy.exact_tokens else ["the tokens of an endpoint are counted in bytes of text"]
    if dropped:
        known["dropped"] = list(dropped)
        notes.append(f"the endpoint is not sent {', '.join(dropped)}")
    packages = {name: version(name) for name in PACKAGES if find_spec(name.replace("-", "_"))}
    return {
        **known,
        "key": content_id(json.dumps(known, sort_keys=True))[:16],
        "packages": packages,
        "notes": notes,
    }
