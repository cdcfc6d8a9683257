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
from spade.train.made import Made
from spade.train.source import EnvSource
from spade.types import from_json, to_json

ROW_FILES = (
    "metrics.jsonl", "episodes.jsonl", "designs.jsonl", "rewards.jsonl", "tokens.jsonl", *POOL_FILES
)  # fmt: skip
"""Files whose rows carry the step (counted from 1) that wrote them."""
WHOLE = "metrics.jsonl"
"""The file whose row is written when the step has been trained on; the others are, when it is generated."""


def train_state(steps: int, source: EnvSource, ledger: Ledger, made: Made | None = None) -> dict[str, Any]:
    """State after `steps` finished steps; `made` is the next one if it is generated already."""
    state = {"steps": steps, "source": source.state_dict(), "ledger": ledger.state_dict()}
    return state if made is None else {**state, "made": to_json(made)}


def restore_state(state: dict[str, Any], source: EnvSource, ledger: Ledger) -> tuple[int, Made | None]:
    """Load `train_state`; returns the number of finished steps and the step that was generated beyond."""
    source.load_state_dict(state["source"])
    ledger.load_state_dict(state["ledger"])
    made = state.get("made")
    return int(state["steps"]), None if made is None else from_json(Made, made)


def drop_rows_after(folder: RunFolder, steps: int, made: int) -> None:
    """Drop rows of steps that are going to be done again: `steps` are finished, `made` are generated."""
    for name in ROW_FILES:
        folder.truncate_after(name, steps if name == WHOLE else made)
