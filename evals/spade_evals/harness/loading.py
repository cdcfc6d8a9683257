"""Finding the harness' tasks, and what is said when one cannot be had."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.registry import suggestion
from spade_evals.harness.options import PREFIX


@dataclass(frozen=True, slots=True)
class Loaded:
    """The harness' own objects for the tasks that were named, by name."""

    names: list[str]
    tasks: dict[str, Any]
    groups: dict[str, Any]

    def prepare(self, num_fewshot: int | None) -> None:
        """What the harness does to tasks before it evaluates: seeds, and the number of examples."""
        import random

        import numpy as np
        from lm_eval.defaults import DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED
        from lm_eval.utils import set_torch_seed

        random.seed(DEFAULT_RANDOM_SEED)
        np.random.seed(DEFAULT_OTHER_SEED)
        set_torch_seed(DEFAULT_OTHER_SEED)
        for task in self.tasks.values():
            own = task.get_config("num_fewshot")
            if num_fewshot is not None and own != 0:  # a task that says 0 has no place for examples
                task.set_config(key="num_fewshot", value=num_fewshot)
            elif own is None:
                task.set_config(key="num_fewshot", value=0)
            task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)


def load_tasks(text: str, include_path: Path | None) -> Loaded:
    """Find and load what `lm-eval:TASK,...` names. Raises InputError.

    The harness' own tasks are thousands of files, so they are read only if the user's folder lacks a name.
    """
    from lm_eval.tasks import TaskManager

    names = [name.strip().removeprefix(PREFIX) for name in text.split(",")]
    names = [name for name in names if name]
    if not names:
        raise InputError(f"{PREFIX} names no task, as in {PREFIX}gsm8k")
    if include_path is not None and not include_path.is_dir():
        raise InputError(f"there is no folder {include_path} (--include-path)")
    where = str(include_path) if include_path else None
    manager = TaskManager(include_path=where, include_defaults=False) if where else None
    if manager is None or not set(names) <= set(manager.all_tasks):
        manager = TaskManager(include_path=where)
    unknown = next((name for name in names if name not in manager.all_tasks), None)
    if unknown is not None:
        raise InputError(f"the harness has no task '{unknown}'{_near(unknown, manager.all_tasks)}")
    tasks: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for name in names:
        found = _loaded(manager, name)
        tasks |= found["tasks"]
        groups |= found.get("groups") or {}
    unsafe = next((name for name, task in tasks.items() if getattr(task, "UNSAFE_CODE", False)), None)
    if unsafe is not None:
        raise InputError(
            f"{unsafe} runs a model's code outside of any sandbox; the suites code and evalplus grade such "
            "tasks inside one"
        )
    return Loaded(names, tasks, groups)


def _near(name: str, known: Sequence[str]) -> str:
    near = suggestion(name, known)
    return near if near.startswith("; did you mean") else "; lm-eval ls tasks shows all"


def _loaded(manager: Any, name: str) -> Any:
    """What one name stands for. Loading fetches data, which may fail in many ways."""
    try:
        return manager.load([name])
    except Exception as error:  # foreign task definitions and data sets: anything may be raised
        why = " ".join(str(error).split())[:200]
        raise InputError(
            f"the harness cannot load {name} ({type(error).__name__}: {why}); its data comes from the hub or "
            "from files that its definition names"
        ) from error


@contextlib.contextmanager
def quiet_harness() -> Iterator[None]:
    """Keep the harness' log to what is wrong; its bars would fight with ours."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    logger = logging.getLogger("lm_eval")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
