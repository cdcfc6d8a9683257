"""Where the real benchmark files are, and asking a task everything with a scripted policy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from question_fakes import ask, scripted

from spade_evals.question import Task
from spade_evals.question_run import SuiteReport

DATA = Path(os.environ.get("SPADE_SHARED", "SPADE_SHARED-is-not-set")) / "data"


def needs(*folders: str) -> pytest.MarkDecorator:
    """Skip, and say so, where a benchmark's folder is not there."""
    absent = [folder for folder in folders if not (DATA / folder).is_dir()]
    return pytest.mark.skipif(bool(absent), reason=f"NOT RUN: no {absent} in {DATA}; set SPADE_SHARED")


async def all_of(task: Task, kind: str, out: Path, samples: int = 1) -> SuiteReport:
    """All questions of a task on the real data, answered by the scripted policy `kind`."""
    return await ask(scripted(kind, rows=64), [task], DATA, out, samples=samples)
