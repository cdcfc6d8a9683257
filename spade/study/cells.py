"""One cell: a start, a reinforcement-learning run (or none), and exact measurements along the way.

    cells/KEY/cell.json             config, hash, status, seconds, summary; written last
              config.yaml           every setting
              log.jsonl             one row an evaluation
              final.safetensors     weights at the end (plain names, as in the checkpoint folder)
              dist.npz              exact log-probabilities on the frozen probe prompts, before and after
              env.json              versions, machine, threads

A cell is named by the hash of its settings: equal settings are one cell, whichever experiment asks for them.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from spade.files import append_lines, atomic_write, file_sha256, write_json
from spade.study.settings import Cell, cell_as_settings, finished
from spade.study.tally import Tally

STATUS = ("finished", "diverged")
"""How a cell can end: as planned, or with numbers that are not finite. Both are results."""
STOP_EVERY = 2
"""Steps between looks at the mass when a run stops at a given one."""


def run_cell(cell: Cell, out: Path) -> dict[str, Any]:
    """Run a cell into `out/cells/KEY` and return its record; a finished one is only read.

    Its checkpoints are taken from `out/stages`, or made there.
    """
    from spade.files import read_json

    folder = out / "cells" / cell.key
    if finished(folder):
        return read_json(folder / "cell.json", "cell record")
    import torch

    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.jsonl").unlink(missing_ok=True)
    _write_settings(cell, folder)
    began = time.time()
    if cell.kind == "estimators":
        from spade.study.estimators import run_estimators

        status, summary = "finished", run_estimators(cell, out, folder)
    else:
        status, summary = _run(cell, out, folder)
    files = {f.name: file_sha256(f) for f in sorted(folder.iterdir()) if f.name != "env.json"}
    record = {
        "key": cell.key, "cell": cell_as_settings(cell), "status": status,
        "seconds": round(time.time() - began, 2), "summary": summary, "sha256": files,
    }  # fmt: skip
    write_json(folder / "cell.json", record)
    return record


def _write_settings(cell: Cell, folder: Path) -> None:
    import yaml

    from spade.machine import hardware, versions

    settings = {k: list(v) if isinstance(v, tuple) else v for k, v in cell_as_settings(cell).items()}
    recipe = asdict(cell.start.recipe)
    atomic_write(folder / "config.yaml", yaml.safe_dump({**settings, "recipe": recipe}, sort_keys=False))
    write_json(folder / "env.json", {"versions": versions(), "hardware": hardware(), "threads": 1})


def _run(cell: Cell, out: Path, folder: Path) -> tuple[str, dict[str, Any]]:
    """Measure, train, measure."""
    from safetensors.torch import save_file

    from spade.study.families import open_family
    from spade.study.lm import load_lm
    from spade.study.measure import Probes, right_mass
    from spade.study.rl import RLRun
    from spade.study.stages import ensure

    family = open_family(cell.family)
    probes = Probes.of(family, cell.probes if family.name != "quote" else 1)
    model = load_lm(ensure(cell.start, out / "stages"))
    base_model = model if cell.base is None else load_lm(ensure(cell.starts[1], out / "stages"))
    base = probes.outputs(base_model)
    run = RLRun(model, family, cell.rl)
    log = _Log(cell, folder, probes, base, run.expected_hits())
    if base_model is model:
        log.now = base
    log.measure(0, model)
    status = "finished"
    every = max(1, cell.rl.steps // max(1, cell.evals))
    for step in range(1, cell.rl.steps + 1 if cell.kind == "rl" else 1):
        stats = run.step()
        log.note(step, stats)
        if not stats.finite:
            status = "diverged"
            break
        reached = False
        if cell.until is not None and step % STOP_EVERY == 0:
            reached = float(right_mass(model, family, probes.prompts, 1.0).mean()) >= cell.until
        if step % every == 0 or step == cell.rl.steps or reached:
            log.measure(step, model)
        if reached:
            break
    save_file(model.hf_state(), folder / "final.safetensors")
    last = log.outputs(model)
    np.savez_compressed(
        folder / "dist.npz",
        before=base.logprobs_BY.astype(np.float32),
        after=last.logprobs_BY.astype(np.float32),
        ids=probes.prompts.ids_BP,
    )
    trained_on = run.expected_hits() / cell.rl.rollouts
    return status, log.outcome(model) | {"pool_mass": trained_on}  # of the start: lambda / rollouts


class _Log(Tally):
    """Rows of `log.jsonl` and the summary made of them.

    What was measured holds until the weights are touched: a run without a signal is measured once.
    """

    def __init__(self, cell: Cell, folder: Path, probes: Any, base: Any, expected: float) -> None:
        super().__init__()
        self.cell, self.folder, self.probes, self.base = cell, folder, probes, base
        self.expected, self.began = expected, time.time()
        self._since: list[Any] = []
        self.now: Any = None
        """Distribution of the policy as it is; None after a step that touched the weights."""
        self._metrics: dict[str, float] | None = None

    def outputs(self, model: Any) -> Any:
        """The exact distribution on the probe prompts."""
        if self.now is None:
            self.now = self.probes.outputs(model)
        return self.now

    def note(self, step: int, stats: Any) -> None:
        """Count one training step."""
        self.count(step, stats)
        self._since.append(stats)
        if stats.moved:
            self.now = self._metrics = None

    def metrics(self, model: Any) -> dict[str, float]:
        """Exact metrics of the policy as it is."""
        from spade.study.measure import change_metrics, distribution_metrics, other_domains

        if self._metrics is None:
            outputs, heat = self.outputs(model), self.cell.rl.temperature
            found = distribution_metrics(self.probes, outputs)
            found |= change_metrics(self.probes, self.base, outputs)
            if heat != 1.0:
                warm = self.probes.outputs(model, heat)
                found["mass_rollout"] = float(self.probes.mass(warm).mean())
            self._metrics = found | other_domains(self.probes, model)
        return self._metrics

    def measure(self, step: int, model: Any) -> None:
        """Append the exact metrics at this step, and means of training since the last row."""
        row: dict[str, float] = {"step": step, "rollouts": step * self.cell.rl.batch * self.cell.rl.group}
        row |= self.metrics(model) | self.row()
        if self._since:
            for name in ("reward", "grad_norm", "clipped_low", "clipped_high", "covariance"):
                row[f"train/{name}"] = float(np.mean([getattr(s, name) for s in self._since]))
        self._since = []
        self.rows.append(row)
        append_lines(self.folder / "log.jsonl", [{**row, "seconds": round(time.time() - self.began, 2)}])

    def outcome(self, model: Any) -> dict[str, Any]:
        """What tables and verdicts read of a cell."""
        from spade.study.measure import other_entropy

        out = self.summary() | {"lambda": self.expected}
        if (h := other_entropy(self.probes, model)) is not None:
            out["others_H"] = h
        return out
