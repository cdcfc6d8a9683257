"""Configuration of the sources other than self-play: generated tasks and questions from a data set."""

from __future__ import annotations

from pydantic import Field

from spade.config_base import Fraction, Positive, Section


class ProceduralConfig(Section):
    """`train.source: procedural`: generated tasks whose difficulty follows the Agent (RLVE, see
    `spade_baselines.curriculum`)."""

    families: tuple[str, ...] = ("mechanics",)
    """`mechanics` (our parameterised programs), `mechanics:NAME`, `reasoning_gym` (all its tasks whose answer
    is unique), `reasoning_gym:TASK`, `rlve` (all environments of `rlve` that run in the sandbox), `rlve:16`
    (those of its main comparison), `rlve:NAME`."""
    rlve: str | None = None
    """Checkout of github.com/Zhiyuan-Zeng/RLVE, for the families of that name."""
    window: Positive = 4
    """Levels from which tasks are drawn: the highest reached and those just below."""
    attempts: Positive = 128
    """Plays at the highest level before it is judged."""
    accuracy: Fraction = 0.9
    """Share of them to be won for the next level to open."""
    max_level: Positive = 20
    """Highest level, where a family has that many."""


class DatasetConfig(Section):
    """`train.source: dataset`: questions with verifiable answers (RLVR)."""

    path: str = ""
    """A `.jsonl` or `.json` file, a folder of them, or `hub:OWNER/NAME[@REVISION][#SPLIT]`."""
    question: str = "question"
    """Field with the question."""
    answer: str = "answer"
    """Field with the answer. Of GSM8K's solutions the part after `####` counts, of MATH's the last box."""
    sample: Positive | None = Field(default=None)
    """Questions used, chosen by the seed; unset means all."""
