"""Read a configuration: file, `extends`, `key=value` overrides, and one good error sentence for each mistake.

Nothing read from YAML is used before pydantic has checked it: YAML 1.1 gives `1e-6` as text and `off` as a
boolean, and the models know which of them is meant.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from spade.config import Config
from spade.errors import ConfigError
from spade.registry import closest, suggestion

_NOT_PART_OF_THE_EXPERIMENT = ("out", "track")
_PACKAGE = Path(__file__).resolve().parent


COMMAND_LINE = "the command line"


def config_roots() -> list[Path]:
    """Folders of shipped configs: the checkout's `configs/` first, else those inside the wheel."""
    return [p for p in (_PACKAGE.parent / "configs", _PACKAGE / "_configs") if p.is_dir()][:1]


def config_names() -> list[str]:
    """Names of the shipped configs, such as `demo` or `ablations/no-memory`."""
    return sorted(
        p.relative_to(root).with_suffix("").as_posix()
        for root in config_roots()
        for p in root.rglob("*.yaml")
    )


def load_config(name_or_path: str, overrides: Sequence[str] = ()) -> Config:
    """Resolve a shipped name or a YAML file plus `a.b=value` overrides into a checked `Config`.

    Raises ConfigError with one sentence that names the file, the dotted key and what to write instead.
    """
    path = _find(name_or_path, None)
    tree, origin = _read(path, ())
    tree.setdefault("name", path.stem)
    for text in overrides:
        _override(tree, origin, text)
    return _validate(tree, origin, str(path))


def config_from_dict(tree: Mapping[str, Any], where: str) -> Config:
    """Check a plain dict (for example the `config` of a run record). Raises ConfigError naming `where`."""
    return _validate(dict(tree), {}, where)


def with_overrides(cfg: Config, overrides: Sequence[str], where: str = "the configuration") -> Config:
    """`cfg` with `a.b=value` overrides applied. Raises ConfigError as `load_config` does."""
    tree: dict[str, Any] = cfg.model_dump(mode="json")
    origin: dict[str, str] = {}
    for text in overrides:
        _override(tree, origin, text)
    return _validate(tree, origin, where)


def config_digest(cfg: Config) -> str:
    """SHA-256 over the resolved values except `out` and `track`, whatever key order, layout and spelling."""
    tree = cfg.model_dump(mode="json", exclude=set(_NOT_PART_OF_THE_EXPERIMENT))
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def flatten(cfg: Config) -> dict[str, Any]:
    """Dotted key -> value, in declaration order; an empty dict counts as a value."""
    return dict(_leaves(cfg.model_dump(mode="json"), ""))


def diff_configs(a: Config, b: Config) -> list[tuple[str, Any, Any]]:
    """Rows (dotted key, value in a, value in b) that differ; None where a key is absent. `out` counts."""
    left, right = flatten(a), flatten(b)
    keys = list(left) + [k for k in right if k not in left]
    return [(k, left.get(k), right.get(k)) for k in keys if left.get(k) != right.get(k)]


def dump_yaml(cfg: Config) -> str:
    """The resolved configuration as YAML that `load_config` reads back to an equal `Config`."""
    return yaml.safe_dump(cfg.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def json_schema() -> dict[str, Any]:
    """JSON schema of `Config` with every field's documentation."""
    return Config.model_json_schema()


# --- files -----------------------------------------------------------------------------------------------


def _find(name: str, parent: Path | None) -> Path:
    """A path wins over a shipped name; an `extends` entry is looked up beside its file first."""
    bases = [Path(), *config_roots()] if parent is None else [parent.parent, *config_roots()]
    for base in bases:
        for candidate in (base / name, base / f"{name}.yaml"):
            if candidate.is_file() and candidate.suffix in (".yaml", ".yml"):
                return _short(candidate)
    asked = f"{parent} extends '{name}', but there is" if parent else "there is"
    near = suggestion(name, config_names()) if closest(name, config_names()) else "; see spade list configs"
    raise ConfigError(f"{asked} no config file or shipped config '{name}'{near}")


def _short(path: Path) -> Path:
    """Relative to the current folder when inside it: what a user would type."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path


def _read(path: Path, chain: tuple[Path, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """The merged tree of a file and all it extends, and which file set each dotted key."""
    here = path.resolve()
    if here in chain:
        loop = " -> ".join(p.name for p in (*chain[chain.index(here) :], here))
        raise ConfigError(f"{path}: 'extends' goes round in a circle ({loop}); remove one of the links")
    tree = _parse_file(path)
    parents = tree.pop("extends", [])
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for parent in [parents] if isinstance(parents, str) else parents or []:
        if not isinstance(parent, str):
            raise ConfigError(f"{path}: 'extends' takes a config name or a list of names, not {parent!r}")
        below, below_origin = _read(_find(parent, path), (*chain, here))
        below.pop("name", None)  # a name says which file this is, so it is never inherited
        merged = _merge(merged, below)
        origin |= below_origin
    return _merge(merged, tree), origin | {key: str(path) for key, _ in _leaves(tree, "")}


def _parse_file(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line} is not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a UTF-8 YAML text file: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must hold 'key: value' lines at the top, not a {type(tree).__name__}")
    return tree


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key written twice, which YAML would silently resolve to the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key '{key.value}' appears twice", problem_mark=key.start_mark
                )
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for key, value in above.items():
        old = out.get(key)
        out[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def _leaves(tree: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        rows += _leaves(value, f"{dotted}.") if isinstance(value, dict) and value else [(dotted, value)]
    return rows


def _override(tree: dict[str, Any], origin: dict[str, str], text: str) -> None:
    key, sep, raw = text.partition("=")
    parts = key.strip().split(".")
    if not sep or not all(parts):
        raise ConfigError(f"override '{text}' must look like section.key=value")
    try:
        value = yaml.load(raw, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"override '{text}': the value is not valid YAML; quote it") from error
    for part in parts[:-1]:
        below = tree.get(part)
        tree[part] = dict(below) if isinstance(below, dict) else {}
        tree = tree[part]
    tree[parts[-1]] = value
    for dotted, _ in _leaves({key.strip(): value}, ""):
        origin[dotted] = COMMAND_LINE


# --- errors ----------------------------------------------------------------------------------------------


def _validate(tree: dict[str, Any], origin: Mapping[str, str], where: str) -> Config:
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_sentence(error.errors()[0], origin, where)) from error


def _sentence(error: ErrorDetails, origin: Mapping[str, str], where: str) -> str:
    """One pydantic error as one sentence: key, file, what is wrong, what is right."""
    parts = [str(p) for p in error["loc"]]
    dotted = ".".join(parts)
    source = _source(dotted, origin) or where
    model, doc = _model_at(parts)
    if error["type"] == "extra_forbidden":
        options = [".".join([*parts[:-1], name]) for name in model.model_fields]
        return f"unknown key '{dotted}' in {source}{suggestion(dotted, options)}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "invalid_key":
        return f"key '{dotted}' in {source} is not text; write section names and field names only"
    if error["type"] == "missing":
        return f"'{'.'.join(parts[:-1])}' in {source} has too few values{doc}"
    if error["type"] == "value_error":
        return f"'{dotted}' in {source}: {message}" if dotted else f"{source}: {message}"
    return (
        f"'{dotted}' in {source} is {error['input']!r}, but should be {_wanted(error['type'], message)}{doc}"
    )


def _wanted(kind: str, message: str) -> str:
    plain = {
        "tuple_type": "a list",
        "model_type": "a section of 'key: value' lines",
        "dict_type": "key: value pairs",
    }
    return plain.get(kind) or message.removeprefix("Input should be ").replace(
        "a valid integer", "an integer"
    ).replace("a valid ", "a ")


def _source(dotted: str, origin: Mapping[str, str]) -> str | None:
    """Who set a key: itself, else the nearest key above (`learner` for `learner.betas.1`), else one below."""
    above = dotted
    while above:
        if above in origin:
            return origin[above]
        above = above.rpartition(".")[0]
    below = [f for k, f in origin.items() if k.startswith(f"{dotted}.")]
    # Overrides come last, so a contradiction inside a section is theirs before it is a file's.
    return COMMAND_LINE if COMMAND_LINE in below else next(iter(below), None)


def _model_at(parts: Sequence[str]) -> tuple[type[BaseModel], str]:
    """The innermost model on the path, and in brackets the start of the doc of the field reached in it."""
    model: type[BaseModel] = Config
    doc = ""
    for part in parts:
        field = model.model_fields.get(part)
        if field is None:
            break
        text = re.split(r"[;:.]\s", (field.description or "").replace("\n", " "))[0].strip().rstrip(".")
        doc = f" ({text})" if text else ""
        inner = next((a for a in (field.annotation, *get_args(field.annotation)) if _is_model(a)), None)
        if inner is None:
            break
        model = inner
    return model, doc


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
