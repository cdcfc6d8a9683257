"""Evaluations inside a training run: the curve of its checkpoints on a few items of a suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spade import registry
from spade.cli.evaluate import HARNESS, known
from spade.cli.main import lazy
from spade.config import Config
from spade.errors import ConfigError
from spade.runs import CHECKPOINT_SCORES


def check_in_loop(cfg: Config) -> None:
    """Find what would fail at the first checkpoint. Raises ConfigError."""
    if not cfg.eval.every:
        return
    if suite_of(cfg).startswith(HARNESS):
        raise ConfigError(
            "eval.every: tasks of lm-evaluation-harness open the model themselves and cannot run inside the "
            "loop; name another eval.checkpoint_suite, or set eval.every=0"
        )
    registry.target("suite", suite_of(cfg))


def suite_of(cfg: Config) -> str:
    """The suite of the evaluations in the loop."""
    return cfg.eval.checkpoint_suite or cfg.eval.suite


def in_loop(cfg: Config, run: Path) -> Any:
    """What the loop calls at checkpoints (`spade.train.loop.OnCheckpoint`), or None when `eval.every` is 0.

    The start model is evaluated before the first step, then each `eval.every`-th checkpoint. Finished
    evaluations are found on disk, so a resumed run asks for none twice.
    """
    if not cfg.eval.every:
        return None
    evaluate_open = lazy("spade_evals.runner:evaluate_open")
    name = suite_of(cfg)

    async def look(chat: Any, sandbox: Any, step: int) -> str:
        n, between = divmod(step, cfg.train.checkpoint_every)
        if not between and n % cfg.eval.every:  # a checkpoint between two is the last one: always of interest
            return ""
        ref = f"{run}@{step}" if step else cfg.model
        more = {"seed": cfg.eval.seed, "limit": cfg.eval.checkpoint_items}
        result = await evaluate_open(chat, sandbox, name, ref, run / CHECKPOINT_SCORES, **more)
        mean, stderr, count = result.score
        score = "no score" if mean is None else f"{mean:.3f}" + (f" ± {stderr:.3f}" if known(stderr) else "")
        return f"{cfg.name}: {name} at step {step}: {score} (n = {count})"

    return look
