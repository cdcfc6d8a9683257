"""Tracking sinks: rows reach them, nothing they do reaches the run; what the real dashboards hold of it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

from spade import registry
from spade.config import Config
from spade.config_load import config_digest
from spade.errors import ConfigError, InputError
from spade.report.sinks import PATIENCE, QUEUED, SinkRun, Sinks, numbers
from spade.report.sinks_known import MlflowSink, TensorboardSink, WandbSink
from spade.testing import check_sink
from spade.train.tracking import check_sinks
from tests.train.scripted_world import small_config, train

for _name in ("tensorboard", "mlflow", "wandb", "trackio"):
    if find_spec(_name) is None:
        warnings.warn(f"the test of the real {_name} DID NOT RUN: no module {_name}", stacklevel=1)
MISSING = "NOT RUN: needs the extra track (make test-interop)"


class Memory:
    """A sink that keeps its rows; `broken` rows raise."""

    kept: ClassVar[list[Memory]] = []

    def __init__(self, run: SinkRun, broken: tuple[int, ...] = ()) -> None:
        self.run, self.broken = run, broken
        self.rows: list[dict[str, Any]] = []
        self.closed = 0
        self.threads = {threading.get_ident()}
        Memory.kept.append(self)

    def log(self, row: Mapping[str, Any]) -> None:
        self.threads.add(threading.get_ident())
        if row["step"] in self.broken:
            raise ConnectionError(f"no answer at {row['step']}\nmore")
        self.rows.append(dict(row))

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed += 1


def run_of(folder: Path) -> SinkRun:
    return SinkRun(
        "demo-s0-1", "demo-s0", folder, "tests", {"seed": 0, "play": {"plays": 4}, "model": "m" * 900}
    )


def row(step: int, **values: Any) -> dict[str, Any]:
    return {"step": step, "reward": step / 2, **values}


@pytest.fixture(autouse=True)
def no_memory() -> None:
    Memory.kept.clear()


def test_every_sink_gets_every_row_in_order_and_in_one_thread(tmp_path: Path) -> None:
    with Sinks({"a": Memory, "b": Memory}, run_of(tmp_path)) as sinks:
        for step in range(1, 40):
            sinks.log(row(step))
    assert [[r["step"] for r in sink.rows] for sink in Memory.kept] == [list(range(1, 40))] * 2
    assert all(sink.closed == 1 and len(sink.threads) == 1 for sink in Memory.kept)
    assert threading.get_ident() not in Memory.kept[0].threads | Memory.kept[1].threads
    assert sinks.summary() == {}
    sinks.close()


def test_a_failing_sink_is_counted_and_named_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(run: SinkRun) -> Memory:
        return Memory(run, broken=(2, 5))

    def never(run: SinkRun) -> Memory:
        raise RuntimeError("no server")

    with Sinks({"good": Memory, "bad": broken, "closed": never}, run_of(tmp_path)) as sinks:
        for step in range(1, 8):
            sinks.log(row(step))
    good, bad = sorted(Memory.kept, key=lambda sink: sink.broken)
    assert [r["step"] for r in good.rows] == list(range(1, 8))
    assert [r["step"] for r in bad.rows] == [1, 3, 4, 6, 7] and bad.closed == 1
    found = {name: (count, why) for name, count, why in sinks.failures()}
    assert found["bad"] == (2, "ConnectionError no answer at 2")
    assert found["closed"][0] >= 1 and "could not be opened: RuntimeError no server" in found["closed"][1]
    assert "bad failed 2 times (first: ConnectionError no answer at 2)" in sinks.summary()["sinks"]
    told = capsys.readouterr().err
    assert told.count("sink bad:") == 1 and "the run goes on" in told


def test_a_sink_that_always_fails_is_given_up(tmp_path: Path) -> None:
    def broken(run: SinkRun) -> Memory:
        return Memory(run, broken=tuple(range(1000)))

    with Sinks({"bad": broken}, run_of(tmp_path)) as sinks:
        for step in range(PATIENCE):
            sinks.log(row(step))
        deadline = time.monotonic() + 20
        while not sinks._lanes[0].given_up and time.monotonic() < deadline:
            time.sleep(0.01)
        for step in range(5):
            sinks.log(row(step))
    assert [count for _, count, _ in sinks.failures()] == [PATIENCE + 5]


def test_a_hanging_sink_neither_delays_rows_nor_the_end(tmp_path: Path) -> None:
    gate = threading.Event()

    class Hangs(Memory):
        def log(self, row: Mapping[str, Any]) -> None:
            gate.wait(60)

    with Sinks({"stuck": Hangs, "good": Memory}, run_of(tmp_path), closing=0.5) as sinks:
        for step in range(1, QUEUED + 60):
            sinks.log(row(step))
    gate.set()
    # On a busy machine the good one may lose rows too: rows are never waited for.
    count, why = {name: (count, why) for name, count, why in sinks.failures()}["stuck"]
    assert count >= 50 and "are waiting for it" in why


def test_only_finite_numbers_are_sent() -> None:
    mixed = {"step": 3, "a": 1, "b": float("nan"), "c": None, "d": "x", "e": True, "f": {"g": 1}, "h": 0.5}
    assert numbers(mixed) == {"a": 1.0, "e": 1.0, "h": 0.5}


def test_a_run_feeds_its_sinks_and_survives_them(tmp_path: Path) -> None:
    place = tmp_path / "sink_here.py"
    place.write_text(
        "import json\n"
        "class Lines:\n"
        "    def __init__(self, run):\n"
        "        self.file = open(run.folder / 'sink.jsonl', 'a')\n"
        "    def log(self, row):\n"
        "        self.file.write(json.dumps(row) + '\\n')\n"
        "        if row['step'] == 2: raise OSError('disk of the sink is full')\n"
        "    def close(self):\n"
        "        self.file.close()\n"
    )
    out = tmp_path / "run"
    name = f"{place}:Lines"
    plain = small_config(tmp_path / "plain", train__steps=3)
    cfg = small_config(out, train__steps=3, track__sinks=[name])
    assert config_digest(cfg) == config_digest(plain)
    summary, _, _ = train(cfg)
    assert f"{name} failed 1 times (first: OSError disk of the sink is full)" in summary["sinks"]
    sent = [json.loads(line) for line in (out / "sink.jsonl").read_text().splitlines()]
    kept = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert sent == kept and len(sent) == 3
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert [e["times"] for e in events if e["event"] == "sink failed"] == [1]


def test_wrong_sinks_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def cfg(*names: str) -> Config:
        return Config.model_validate({"track": {"sinks": names}})

    with pytest.raises(ConfigError, match="unknown sink 'trackoi'; did you mean 'trackio'"):
        check_sinks(cfg("trackoi"))
    with pytest.raises(ConfigError, match="names wandb twice"):
        check_sinks(cfg("wandb", "wandb"))
    monkeypatch.setattr("spade.train.tracking.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"wandb needs wandb, which is not installed; .*spade-rl\[track\]"):
        check_sinks(cfg("wandb"))


@pytest.mark.parametrize("name", ["mlflow", "tensorboard", "trackio", "wandb"])
def test_adapters_keep_their_promises_with_stand_ins(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shapes of the calls; the packages themselves are tried below where they are installed."""
    sent: list[tuple[str, float, int]] = []
    monkeypatch.setattr("spade.report.sinks_known.package", lambda module: STAND_INS[module](sent))
    sink = registry.resolve("sink", name)(run_of(tmp_path))
    check_sink(sink)
    assert ("reward", 0.5, 1) in sent and ("new", 1.0, 2) in sent
    assert all(value == value and abs(value) < 1e9 for _, value, _ in sent)


def _many(sent: list[tuple[str, float, int]]) -> Any:
    def log(values: Mapping[str, float], step: int) -> None:
        sent.extend((key, value, step) for key, value in values.items())

    run = types.SimpleNamespace(log=log, finish=lambda: None)
    return types.SimpleNamespace(init=lambda *a, **k: run, Settings=lambda **k: None, finish=run.finish)


def _writer(sent: list[tuple[str, float, int]]) -> Any:
    def add(key: str, value: float, step: int) -> None:
        sent.append((key, value, step))

    writer = types.SimpleNamespace(add_scalar=add, flush=lambda: None, close=lambda: None)
    return types.SimpleNamespace(Writer=lambda place: writer)


def _client(sent: list[tuple[str, float, int]]) -> Any:
    def batch(run: str, metrics: Any = (), params: Any = ()) -> None:
        assert run == "r1" and len(params) <= 100 and all(len(value) <= 500 for _, value in params)
        sent.extend((key, value, step) for key, value, _, step in metrics)

    client = types.SimpleNamespace(
        get_experiment_by_name=lambda name: None,
        create_experiment=lambda name: "e1",
        create_run=lambda *a, **k: types.SimpleNamespace(info=types.SimpleNamespace(run_id="r1")),
        log_batch=batch,
        set_terminated=lambda run: None,
    )
    return types.SimpleNamespace(MlflowClient=lambda tracking_uri: client)


STAND_INS: dict[str, Any] = {
    "trackio": _many,
    "wandb": _many,
    "tensorboard.summary": _writer,
    "mlflow.tracking": _client,
    "mlflow.entities": lambda sent: types.SimpleNamespace(Metric=lambda *row: row, Param=lambda *row: row),
}


# --- the real packages (extra `track`) ------------------------------------------------------------------


def test_tensorboard_holds_what_was_sent(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason=MISSING)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    check_sink(TensorboardSink(run_of(tmp_path)))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert "reward" in events.Tags()["tensors"]
    assert [event.step for event in events.Tensors("reward")] == [1]


def test_mlflow_holds_what_was_sent_also_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in MlflowSink.packages:
        pytest.importorskip(module, reason=MISSING)
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    check_sink(MlflowSink(run_of(tmp_path)))
    again = MlflowSink(run_of(tmp_path))
    again.log({"step": 4, "reward": 0.75})
    again.close()
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    (experiment,) = [e for e in client.search_experiments() if e.name == "tests"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["play.plays"] == "4" and len(run.data.params["model"]) == 500
    assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "reward")] == [
        (1, 0.5),
        (4, 0.75),
    ]
    assert client.get_metric_history(run.info.run_id, "seconds/play")[0].value == 1.0


def test_wandb_offline_writes_into_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason=MISSING)
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_sink(WandbSink(run_of(tmp_path)))
    (file,) = (tmp_path / "wandb").rglob("*.wandb")

    def written() -> bool:
        raw = file.read_bytes()
        return b"reward" in raw and b"seconds/play" in raw

    end = time.monotonic() + 120  # its service may still be at work when the run is finished
    while not written() and time.monotonic() < end:
        time.sleep(0.1)
    assert written()


def test_trackio_holds_what_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio", reason=MISSING)
    script = (
        "import sys; from pathlib import Path; from spade.report.sinks import SinkRun\n"
        "from spade.report.sinks_known import TrackioSink; from spade.testing import check_sink\n"
        "check_sink(TrackioSink(SinkRun('demo-s0-1', 'demo', Path(sys.argv[1]), 'tests', {'seed': 0})))\n"
    )
    env = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    (file,) = [p for p in (tmp_path / "trackio").rglob("*.db") if "tests" in p.name]
    with sqlite3.connect(file) as base:
        rows = base.execute("select step, metrics from metrics order by step").fetchall()
    assert [step for step, _ in rows][:2] == [1, 2] and json.loads(rows[0][1])["reward"] == 0.5
