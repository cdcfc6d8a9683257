"""The tracking sinks of a training run, found by name and opened beside its metrics file."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from spade import registry
from spade.config import Config
from spade.errors import ConfigError, InputError
from spade.report.sinks import SinkRun, Sinks
from spade.runs import EVENTS

if TYPE_CHECKING:
    from spade.runs import RunFolder


def check_sinks(cfg: Config) -> None:
    """Find what would be wrong with `track.sinks` before a run starts: an unknown or a repeated name, or a
    package that is not installed. Raises ConfigError or InputError."""
    names = cfg.track.sinks
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"track.sinks names {min(twice)} twice; leave one out")
    for name in names:
        needed = getattr(registry.resolve("sink", name), "packages", ())
        if missing := [one for one in needed if find_spec(one) is None]:
            raise InputError(
                f"track.sinks: {name} needs {' and '.join(missing)}, which is not installed; "
                "install the extra with pip install 'spade-rl[track]'"
            )


def sink_failures(folder: RunFolder, sinks: Sinks) -> dict[str, str]:
    """What to say at the end of a run of closed sinks that failed; noted in the run's events as well."""
    for name, count, why in sinks.failures():
        folder.append(EVENTS, {"event": "sink failed", "sink": name, "times": count, "first": why})
    return sinks.summary()


def open_sinks(cfg: Config, folder: RunFolder) -> Sinks:
    """The sinks of `track.sinks`, each already opening in its thread. Raises as `check_sinks` does."""
    record = folder.record
    run = SinkRun(
        id=record.id,
        name=f"{cfg.name}-s{cfg.seed}",
        folder=folder.path,
        project=cfg.track.project,
        config=record.config,
        resumed=folder.resumed,
    )
    return Sinks({name: registry.resolve("sink", name) for name in cfg.track.sinks}, run)
