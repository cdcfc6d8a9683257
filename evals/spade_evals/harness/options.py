"""What the user may say about tasks of lm-evaluation-harness."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PREFIX = "lm-eval:"
"""Begins a list of its tasks where a suite is named."""


@dataclass(frozen=True, slots=True)
class HarnessOptions:
    """What the user may say about the harness' tasks; the names are those of its own command line."""

    include_path: Path | None = None
    """Folder of further task definitions."""
    num_fewshot: int | None = None
    """Instead of the tasks' own numbers."""
    apply_chat_template: bool = False
