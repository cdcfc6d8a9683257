"""From what the user typed to a policy that can chat: checkpoint references and `open_chat`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.errors import BackendError, ConfigError, InputError
from spade.serving.chat import ChatCompletion, ChatPolicy, ChatRequest, ModelRef
from spade.serving.policy import Policy

if TYPE_CHECKING:
    from spade.config import ServingConfig

__all__ = ["ChatCompletion", "ChatPolicy", "ChatRequest", "ModelRef", "open_chat", "resolve_ref"]

HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*(@[\w.-]+)?")
STEP_FOLDER = re.compile(r"step-(\d+)")
FORMS = (
    "embedded, a run folder (RUN or RUN@step), a checkpoint folder, a hub name such as org/name, "
    "smollm2-135m, scripted:KIND or openai:MODEL@URL"
)


def resolve_ref(ref: str) -> ModelRef:
    """Find out what a reference names.

    Raises `InputError` in one sentence when nothing fits. A path that exists wins over a hub name.
    """
    kind, _, rest = ref.partition(":")
    if kind == "scripted" and rest:
        return ModelRef("scripted", ref, spec=rest)
    if kind == "openai":
        from spade.serving.endpoint import parse_spec

        parse_spec(rest)
        return ModelRef("openai", ref, spec=rest)
    if ref == "embedded":
        return ModelRef("local", ref, _embedded())
    local = _local(ref)
    if local is not None:
        return local
    from spade.serving.models import MODELS, get_model

    if ref in MODELS:
        return ModelRef("local", ref, get_model(ref))
    if HUB_ID.fullmatch(ref):
        return ModelRef("local", ref, _from_hub(ref))
    raise InputError(f"No model or run called '{ref}'; use {FORMS}.")


def _embedded() -> Path:
    folder = Path(__file__).resolve().parents[1] / "embedded" / "model"
    if not (folder / "config.json").is_file():
        raise InputError(f"The embedded model is not built (no {folder}); run `spade embedded build`.")
    return folder


def _local(ref: str) -> ModelRef | None:
    """Run folder, `RUN@step` or checkpoint folder; None when the path does not exist."""
    base, _, wanted = ref.rpartition("@")
    path, step = Path(ref).expanduser(), None
    if not path.exists() and wanted.isdigit() and Path(base).expanduser().exists():
        path, step = Path(base).expanduser(), int(wanted)
    if not path.exists():
        return None
    if path.is_file():
        raise InputError(f"{path} is a file; a checkpoint is a folder with config.json and safetensors.")
    if step is None and (path / "config.json").is_file():
        return ModelRef("local", ref, path)
    if not (path / "checkpoints").is_dir():
        raise InputError(f"{path} is neither a checkpoint (no config.json) nor a run (no checkpoints).")
    found = {
        int(m.group(1)): p for p in (path / "checkpoints").iterdir() if (m := STEP_FOLDER.fullmatch(p.name))
    }
    complete = {s: p for s, p in found.items() if (p / "config.json").is_file()}
    if not complete:
        raise InputError(f"{path} has no complete checkpoint yet; train it further or use another run.")
    if step is None:
        step = max(complete)
    if step not in complete:
        raise InputError(f"{path} has no checkpoint of step {step}; there are {sorted(complete)}.")
    return ModelRef("local", ref, complete[step], step=step)


def _from_hub(ref: str) -> Path:
    """Download a model's safetensors, configuration and tokenizer; nothing else is ever fetched."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    repo, _, revision = ref.partition("@")
    allowed = ["*.json", "*.safetensors", "*.jinja", "merges.txt", "vocab.txt"]
    try:
        return Path(snapshot_download(repo, revision=revision or None, allow_patterns=allowed))
    except (OSError, ValueError, HfHubHTTPError, HFValidationError, RuntimeError) as err:
        why = type(err).__name__
        raise InputError(
            f"Cannot get '{repo}' from the model hub ({why}), and there is no such path; check the name and "
            "the network, or give a checkpoint folder."
        ) from None


async def open_chat(ref: str | ModelRef, cfg: ServingConfig) -> ChatPolicy:
    """Open a reference for generation.

    Raises `InputError` (nothing usable behind the reference) or `ConfigError` (device, backend).
    """
    if isinstance(ref, str):
        ref = resolve_ref(ref)
    if ref.kind == "scripted":
        from spade.serving.scripted import ScriptedPolicy

        policy = ScriptedPolicy(ref.spec, max_rows=cfg.max_rows)
        return ChatPolicy(policy.renderer, policy, ref)
    if ref.kind == "openai":
        from spade.serving.remote import RemotePolicy

        remote = RemotePolicy.from_spec(ref.spec, cfg, os.environ)
        try:
            await remote.start()
        except BaseException:
            await remote.close()
            raise
        return ChatPolicy(remote.renderer, remote, ref)
    if ref.path is None:
        raise BackendError(f"'{ref.ref}' has no checkpoint folder.")
    from spade.serving.checkpoint_files import read_config
    from spade.serving.render import Renderer

    read_config(ref.path)  # first, because the tokenizer's loader trips over a broken one without a sentence
    renderer = Renderer.from_folder(ref.path)
    if cfg.shards:
        from spade.serving.shards import ShardedPolicy

        return ChatPolicy(renderer, await ShardedPolicy.open(ref.path, cfg), ref)
    return ChatPolicy(renderer, engine_for(ref.path, cfg), ref)


def engine_for(path: Path, cfg: ServingConfig) -> Policy:
    """The local policy, or another registered backend that serves a checkpoint folder."""
    if cfg.type == "local":
        from spade.serving.local import LocalPolicy

        return LocalPolicy.from_folder(path, cfg)
    if cfg.type in ("scripted", "openai"):
        raise ConfigError(
            f"serving.type is {cfg.type} but the model is a checkpoint; "
            f"name the model {'scripted:KIND' if cfg.type == 'scripted' else 'openai:MODEL@URL'} instead."
        )
    from spade.registry import resolve

    backend: Any = resolve("backend", cfg.type)
    opened: Policy = backend.from_folder(path, cfg)
    return opened
