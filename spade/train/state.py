"""What a run must remember to go on as if it had never stopped.

The learner's tensors are saved by `spade.learn.checkpoint`; this is the rest, as plain JSON values: the
number of finished steps, the source with everything it holds (corpus position, memory, archive, novelty
index, designs that wait for their reward) and the ledger. Rows of files beyond the checkpoint are dropped.
"""

from __future__ import annotations

from typing import Any

from spade.envs.pool_run import ROW_FILES as POOL_FILES
from spade.runs import RunFolder
from spade.train.ledger import Ledger
from spade.train.source import EnvSource

ROW_FILES = (
    "metrics.jsonl", "episodes.jsonl", "designs.jsonl", "rewards.jsonl", "tokens.jsonl", *POOL_FILES
)  # fmt: skip
"""Files whose rows carry the step (counted from 1) that wrote them."""


def train_state(steps: int, source: EnvSource, ledger: Ledger) -> dict[str, Any]:
    """State after `steps` finished steps."""
    return {"steps": steps, "source": source.state_dict(), "ledger": ledger.state_dict()}


def restore_state(state: dict[str, Any], source: EnvSource, ledger: Ledger) -> int:
    """Load `train_state`; returns the number of finished steps."""
    source.load_state_dict(state["source"])
    ledger.load_state_dict(state["ledger"])
    return int(state["steps"])


def drop_rows_after(folder: RunFolder, steps: int) -> None:
    """Drop rows of steps that are going to be done again."""
    for name in ROW_FILES:
        folder.truncate_after(name, steps)
