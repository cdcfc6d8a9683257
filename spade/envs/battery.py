"""The battery: all stages in order, and which of them a configuration runs with which parameters.

`validator.stages` maps a stage's name to true, false, or `{enabled: ..., PARAMETER: ...}`. Parameters are the
keyword-only arguments of the stage's function. A name that is not built in is looked up among the registered
stages (entry points `spade.stages`, or `file.py:function`); such stages run after the built-in ones, in the
order they are named, and before the judge.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from spade import registry
from spade.envs.bench import Bench
from spade.envs.duplicates import near_duplicate
from spade.envs.exploits import crossed, decoys, floor, late
from spade.envs.judge import judge
from spade.envs.leaks import information, leak
from spade.envs.stages import (
    contract,
    ends,
    interleave,
    load,
    novelty,
    observations,
    oracle,
    replay,
    reset_twice,
    rewards,
    seeds,
    static_screen,
)
from spade.envs.tool_stages import tool_criteria, tool_schemas
from spade.errors import ConfigError

if TYPE_CHECKING:
    from spade.config import ValidateConfig

BATTERY_VERSION = "3"
"""Changes with any seed, policy, sample size or rule of the battery."""

Stage = Callable[..., Awaitable[None]]
"""`async def stage(bench, *, parameter=default)`: returns, or raises `Refused`."""

STAGES: dict[str, Stage] = {
    "screen": static_screen,
    "novelty": novelty,
    "load": load,
    "contract": contract,
    "reset_twice": reset_twice,
    "replay": replay,
    "interleave": interleave,
    "rewards": rewards,
    "observations": observations,
    "seeds": seeds,
    "ends": ends,
    "tool_schemas": tool_schemas,
    "tool_criteria": tool_criteria,
    "oracle": oracle,
    "near_duplicate": near_duplicate,
    "information": information,
    "leak": leak,
    "floor": floor,
    "crossed": crossed,
    "decoys": decoys,
    "late": late,
    "judge": judge,
}
"""All built-in stages in order. Each gathers what no stage before it did, so each can be left out."""

OFF_BY_DEFAULT = frozenset({"judge"})


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of a run of the battery, its parameters bound."""

    name: str
    run: Callable[[Bench], Awaitable[None]]


def plan(cfg: ValidateConfig) -> list[Step]:
    """The stages a configuration runs, in order. Raises ConfigError for unknown stages and parameters."""
    outside = [name for name in cfg.stages if name not in STAGES]
    names = [n for n in STAGES if n != "judge"] + outside + ["judge"]
    steps = []
    for name in names:
        enabled, parameters = _setting(name, cfg.stages.get(name, name not in OFF_BY_DEFAULT))
        if enabled:
            stage = STAGES.get(name) or _registered(name)
            if parameters:
                check_parameters(name, stage, parameters)
            steps.append(Step(name, partial(stage, **parameters)))
    return steps


def _setting(name: str, value: bool | dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    if isinstance(value, bool):
        return value, {}
    rest = dict(value)
    enabled = rest.pop("enabled", True)
    if not isinstance(enabled, bool):
        raise ConfigError(f"validator.stages.{name}.enabled must be true or false, not {enabled!r}.")
    return enabled, rest


def _registered(name: str) -> Stage:
    known = [*STAGES, *registry.names("stage")]
    if ":" not in name and name not in known:
        hint = registry.suggestion(name, known)
        raise ConfigError(f"There is no validation stage {name!r} (validator.stages){hint}.")
    stage = registry.resolve("stage", name)
    if not inspect.iscoroutinefunction(stage):
        raise ConfigError(f"The stage {name!r} is not an async function; docs/environments.md shows one.")
    found: Stage = stage
    return found


def parameters_of(stage: Stage) -> dict[str, Any]:
    """Names and defaults of a stage's parameters."""
    rows = inspect.signature(stage).parameters.values()
    return {p.name: p.default for p in rows if p.kind is p.KEYWORD_ONLY}


def check_parameters(name: str, stage: Stage, parameters: dict[str, Any]) -> None:
    """Raise ConfigError for a parameter the stage does not have, or one of another type than its default."""
    known = parameters_of(stage)
    for key, value in parameters.items():
        where = f"validator.stages.{name}.{key}"
        if key not in known:
            raise ConfigError(f"There is no setting {where}{registry.suggestion(key, [*known, 'enabled'])}.")
        default = known[key]
        if default is inspect.Parameter.empty or value is None:
            continue
        right = isinstance(value, bool) == isinstance(default, bool)
        if isinstance(default, int | float) or default is None:
            right = right and isinstance(value, int | float)
        else:
            right = right and isinstance(value, type(default))
        if not right:
            raise ConfigError(f"{where} cannot be {value!r}; its default is {default!r}.")
        if isinstance(default, int) and not isinstance(default, bool) and not isinstance(value, int):
            raise ConfigError(f"{where} must be a whole number, not {value!r}.")
