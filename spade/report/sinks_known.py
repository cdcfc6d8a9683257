"""Adapters to the dashboards behind the extra `track`. Each is local unless its own settings say otherwise.

    trackio        a local SQLite project (TRACKIO_DIR), shown by `trackio show`
    wandb          offline into the run folder; WANDB_MODE=online sends it (then `wandb sync` is not needed)
    tensorboard    event files in RUN/tensorboard
    mlflow         RUN/mlflow.db, or where MLFLOW_TRACKING_URI points

An adapter is made in the thread in which it is used (`spade.report.sinks`). `packages` names what has to be
installed, so that a run that lacks it says so before it starts.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from spade.report.sinks import SinkRun, numbers

PARAMETER_CHARS = 500
"""Longest parameter value that mlflow takes in all its versions."""
BATCH = 500
"""Parameters or metrics in one request to mlflow; its limits are 100 and 1000."""


def package(name: str) -> Any:
    """The module of a dashboard, imported when it is used."""
    return importlib.import_module(name)


class TrackioSink:
    """A run in a local trackio project; a resumed run goes on in the same one."""

    packages = ("trackio",)

    def __init__(self, run: SinkRun) -> None:
        trackio = self._package = package("trackio")
        config = json.loads(json.dumps(dict(run.config), default=str))
        with contextlib.redirect_stdout(sys.stderr):  # it greets on standard output, which may be JSON
            self._run: Any = trackio.init(
                run.project, name=run.id, config=config, resume="allow", embed=False,
                auto_log_gpu=False, auto_log_cpu=False,
            )  # fmt: skip

    def log(self, row: Mapping[str, Any]) -> None:
        """One row at its step."""
        self._run.log(numbers(row), step=int(row["step"]))

    def close(self) -> None:
        """Flush; later calls do nothing."""
        if self._run is not None:
            with contextlib.redirect_stdout(sys.stderr):
                self._package.finish()  # the run of this thread; `self._run.finish` would be repeated at exit
            self._run = None


class WandbSink:
    """A wandb run, offline below the run folder unless WANDB_MODE says otherwise."""

    packages = ("wandb",)

    def __init__(self, run: SinkRun) -> None:
        wandb = package("wandb")
        self._run: Any = wandb.init(
            project=run.project, name=run.name, id=run.id, dir=str(run.folder), resume="allow",
            config=dict(run.config), mode=os.environ.get("WANDB_MODE", "offline"),
            settings=wandb.Settings(console="off", silent=True),
        )  # fmt: skip

    def log(self, row: Mapping[str, Any]) -> None:
        """One row at its step."""
        self._run.log(numbers(row), step=int(row["step"]))

    def close(self) -> None:
        """Flush; later calls do nothing."""
        if self._run is not None:
            self._run.finish()
            self._run = None


class TensorboardSink:
    """TensorBoard event files in `RUN/tensorboard`, written without TensorFlow and torch."""

    packages = ("tensorboard",)

    def __init__(self, run: SinkRun) -> None:
        self._writer: Any = package("tensorboard.summary").Writer(str(run.folder / "tensorboard"))

    def log(self, row: Mapping[str, Any]) -> None:
        """One scalar a number, on disk when this returns."""
        for key, value in numbers(row).items():
            self._writer.add_scalar(key, value, int(row["step"]))
        self._writer.flush()

    def close(self) -> None:
        """Close the file; later calls do nothing."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class MlflowSink:
    """An mlflow run, tagged with the run's id so that a resumed one goes on in it."""

    packages = ("mlflow", "sqlalchemy", "alembic")

    def __init__(self, run: SinkRun) -> None:
        tracking, self._entities = package("mlflow.tracking"), package("mlflow.entities")
        where = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.folder.resolve() / 'mlflow.db'}"
        self._client: Any = tracking.MlflowClient(tracking_uri=where)
        known = self._client.get_experiment_by_name(run.project)
        experiment = known.experiment_id if known else self._client.create_experiment(run.project)
        wanted = f"tags.`spade.run` = '{run.id}'"
        found = self._client.search_runs([experiment], filter_string=wanted, max_results=1) if known else []
        self._id = found[0].info.run_id if found else self._new(run, experiment)
        self._open = True

    def _new(self, run: SinkRun, experiment: str) -> str:
        made = self._client.create_run(experiment, run_name=run.name, tags={"spade.run": run.id})
        rows = [(key, str(value)[:PARAMETER_CHARS]) for key, value in _flat(run.config)]
        for at in range(0, len(rows), 100):
            params = [self._entities.Param(key, value) for key, value in rows[at : at + 100]]
            self._client.log_batch(made.info.run_id, params=params)
        return str(made.info.run_id)

    def log(self, row: Mapping[str, Any]) -> None:
        """All numbers of a row in one request (several beyond `BATCH`)."""
        now, step = int(time.time() * 1000), int(row["step"])
        metrics = [self._entities.Metric(_name(k), v, now, step) for k, v in numbers(row).items()]
        for at in range(0, len(metrics), BATCH):
            self._client.log_batch(self._id, metrics=metrics[at : at + BATCH])

    def close(self) -> None:
        """Mark the run as ended; later calls do nothing."""
        if self._open:
            self._client.set_terminated(self._id)
            self._open = False


def _flat(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Leaves of a nested mapping by dotted key."""
    out: list[tuple[str, Any]] = []
    for key, value in tree.items():
        inner = isinstance(value, Mapping) and value
        out += _flat(value, f"{prefix}{key}.") if inner else [(f"{prefix}{key}", value)]
    return out


def _name(key: str) -> str:
    """`key` with what mlflow refuses in a metric's name replaced."""
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in key)
