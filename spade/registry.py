"""Names to things that are imported only when used.

Six kinds: `suite` (an evaluation), `source` (where programs come from), `backend` (a policy), `stage`
(of the validator), `sink` (for metrics), `codec` (how a reply is read). In-tree members are the rows below.
Other distributions add theirs with entry points in the group `spade.<kind>s` (suites also in `spade.evals`);
for a quick try, any name may be `file.py:Thing`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from spade.errors import ConfigError, InputError

KINDS = ("suite", "source", "backend", "stage", "sink", "codec")

SHOWN = 20
"""Names that an error message lists."""

ALSO = {"suite": ("spade.evals",)}
"""Further entry-point groups of a kind."""

_ROWS: dict[str, dict[str, str]] = {
    "suite": {
        "games": "spade_evals.suites.games:make_suite",
        "games-reasoning": "spade_evals.suites.games_reasoning:make_suite",
        "games-textarena": "spade_evals.suites.games_textarena:make_suite",
        "heldout": "spade_evals.suites.heldout:make_suite",
        "validation": "spade_evals.suites.heldout:make_validation",
        "math": "spade_evals.suites.math:make_suite",
        "science": "spade_evals.suites.science:make_suite",
        "paper-games": "spade_evals.suites.paper_games:make_suite",
        "smoke": "spade_evals.suites.smoke:make_suite",
        "code": "spade_evals.suites.code:make_suite",
        "code-extra": "spade_evals.suites.code:make_extra",
        "evalplus": "spade_evals.suites.code:make_plus",
        "reasoning": "spade_evals.suites.reasoning:make_suite",
        "bfcl": "spade_evals.suites.bfcl.suite:make_suite",
        "bfcl-single": "spade_evals.suites.bfcl.suite:make_single",
        "acebench": "spade_evals.suites.acebench.suite:make_suite",
        "acebench-full": "spade_evals.suites.acebench.suite:make_full",
        "tau2": "spade_evals.suites.tau2.suite:make_suite",
    },
    "source": {
        "self_play": "spade.train.selfplay:SelfPlaySource",
        "fixed_pool": "spade_baselines.fixed_pool:FixedPoolSource",
        "procedural": "spade_baselines.procedural:ProceduralSource",
        "dataset": "spade_baselines.dataset_rlvr:DatasetSource",
    },
    "backend": {
        "local": "spade.serving.local:LocalPolicy",
        "openai": "spade.serving.remote:RemotePolicy",
        "scripted": "spade.serving.scripted:ScriptedPolicy",
        "vllm": "spade.serving.vllm:VllmPolicy",
    },
    "stage": {},
    "sink": {
        "mlflow": "spade.report.sinks_known:MlflowSink",
        "tensorboard": "spade.report.sinks_known:TensorboardSink",
        "trackio": "spade.report.sinks_known:TrackioSink",
        "wandb": "spade.report.sinks_known:WandbSink",
    },
    "codec": {
        "boxed": "spade.play.actions:BoxedCodec",
        "tool_calls": "spade.play.toolcalls:ToolCodec",
    },
}


def closest(name: str, options: Iterable[str]) -> str | None:
    """The option most like `name`, or None when nothing is near."""
    found = difflib.get_close_matches(name, list(options), n=1, cutoff=0.5)
    return found[0] if found else None


def suggestion(name: str, options: Iterable[str]) -> str:
    """The tail of an error message: "; did you mean 'x'?" or "; known: a, b" (the first of many)."""
    known = sorted(options)
    best = closest(name, known)
    if best:
        return f"; did you mean '{best}'?"
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return f"; known: {', '.join(known[:SHOWN]) or 'none'}{more}"


def register(kind: str, name: str, target: str) -> None:
    """Add a row `name -> "module:attr"`. Raises ConfigError when the name belongs to another target."""
    rows = _ROWS[_kind(kind)]
    owner = rows.get(name, target)
    if owner != target:
        raise ConfigError(
            f"the {kind} name '{name}' is claimed by both {owner} and {target}; rename one of them"
        )
    rows[name] = target


def names(kind: str) -> list[str]:
    """All names of a kind, sorted; nothing is imported."""
    return sorted(_table(kind))


def target(kind: str, name: str) -> str:
    """The "module:attr" (or "file.py:Thing") behind a name. Raises ConfigError for an unknown name."""
    if ":" in name:
        return name
    table = _table(kind)
    if name not in table:
        raise ConfigError(f"unknown {kind} '{name}'{suggestion(name, table)}")
    return table[name]


def resolve(kind: str, name: str) -> Any:
    """Import the thing behind a name.

    Raises ConfigError for an unknown name, InputError when its module or attribute cannot be imported.
    """
    where = target(kind, name)
    module_name, _, attribute = where.rpartition(":")
    module = _load(module_name, f"{kind} '{name}'")
    if not hasattr(module, attribute):
        raise InputError(f"{kind} '{name}' points to {where}, but {module_name} has no '{attribute}'")
    return getattr(module, attribute)


def _kind(kind: str) -> str:
    if kind not in KINDS:
        raise ConfigError(f"unknown kind '{kind}'{suggestion(kind, KINDS)}")
    return kind


def _table(kind: str) -> dict[str, str]:
    table = dict(_ROWS[_kind(kind)])
    points = [p for group in (f"spade.{kind}s", *ALSO.get(kind, ())) for p in entry_points(group=group)]
    for point in points:
        owner = table.setdefault(point.name, point.value)
        if owner != point.value:
            raise ConfigError(
                f"the {kind} name '{point.name}' is claimed by both {owner} and {point.value}; uninstall one"
            )
    return table


def _load(module_name: str, wanted: str) -> ModuleType:
    if module_name.endswith(".py"):
        return _load_file(Path(module_name), wanted)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InputError(f"{wanted} needs the module '{error.name}', which is not installed") from error


def _load_file(path: Path, wanted: str) -> ModuleType:
    if not path.is_file():
        raise InputError(f"{wanted}: there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"spade_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{wanted}: {path} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(f"{wanted}: {path} line {error.lineno} is not valid Python ({error.msg})") from error
    except Exception as error:  # whatever the user's module does when it is imported
        raise InputError(f"{wanted}: {path} fails when imported ({type(error).__name__}: {error})") from error
    return module
