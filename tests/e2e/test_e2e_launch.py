"""`spade train --launch 2` from the shell: a run of one step by both learners.

With the extras only: it takes a minute, and what several processes compute is tested in tests/learn.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from spade.learn.checkpoint import latest_checkpoint, load_checkpoint

try:
    import trl
except ModuleNotFoundError:
    trl = None
    warnings.warn("tests of --launch DID NOT RUN: no module trl", stacklevel=1)

pytestmark = pytest.mark.skipif(trl is None, reason="NOT RUN: needs the extra trl (make test-extras)")

ONE_STEP = [
    "train",
    "smoke",
    "train.steps=1",
    "train.lens.every=0",
    "learner.autocast=off",
    "serving.device=cpu",
]


def spade(work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "spade.cli.main", *ONE_STEP, *words]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    return subprocess.run(argv, cwd=work, env=env, capture_output=True, text=True, timeout=900)


@pytest.mark.parametrize("kind", ["compact", "trl"])
def test_two_processes_make_one_run(tmp_path: Path, model: list[str], kind: str) -> None:
    learner = [f"learner.type={kind}", "learner.optimizer_per_role=false", *model]
    runs = [tmp_path / "one", tmp_path / "two"]
    for run, launch in zip(runs, ([], ["--launch", "2"]), strict=True):
        done = spade(tmp_path, *launch, *learner, f"out={run}", "--json")
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout)["status"] == "finished"
    one, two = (json.loads((run / "metrics.jsonl").read_text()) for run in runs)
    for key in ("learner/loss", "learner/grad_norm/shared", "learner/tokens", "tokens_total", "return_plain"):
        assert two[key] == pytest.approx(one[key], rel=1e-4, abs=1e-5), key
    checkpoint = latest_checkpoint(runs[1])
    assert checkpoint is not None and load_checkpoint(checkpoint).learner["version"] == 1
