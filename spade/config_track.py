"""Configuration of what follows a run from outside: it changes nothing and is not in the digest."""

from __future__ import annotations

from pydantic import Field

from spade.config_base import Section


class TrackConfig(Section):
    """Where the rows of `metrics.jsonl` go besides that file. It is not part of the experiment: a run may be
    resumed with other sinks."""

    sinks: tuple[str, ...] = ()
    """`trackio`, `wandb`, `tensorboard`, `mlflow`, another name of `spade list sinks`, or `file.py:Thing`."""
    project: str = Field(default="spade", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Project (trackio, wandb) or experiment (mlflow) that the run is shown under."""
