"""The question baseline: reinforcement learning on a data set of questions with verifiable answers (RLVR)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spade.config import Config
from spade.errors import ConfigError, InputError
from spade.rng import child_rng
from spade.train.source import World, agent_credits, running_baselines
from spade.types import Credit, EnvProgram, Group, content_id
from spade_baselines.question_program import question_program

HUB = "hub:"
HUB_QUESTIONS = 20_000
"""Questions taken of a hub data set unless `dataset.sample` says otherwise."""


def read_questions(path: str, question: str, answer: str, sample: int | None = None) -> list[tuple[str, str]]:
    """(question, answer) pairs of a file, a folder or a hub data set, without repeated questions.

    Raises InputError naming the file and line that lacks a field, or when there is nothing.
    """
    found: dict[str, str] = {}
    for where, row in _rows(path, question, sample):
        try:
            asked, said = str(row[question]).strip(), final_answer(str(row[answer]))
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{where} has no field {error}; name the fields with dataset.question and dataset.answer"
            ) from error
        if asked and said:
            found.setdefault(asked, said)
    if not found:
        raise InputError(f"dataset.path: {path} holds no questions with answers")
    return list(found.items())


def final_answer(text: str) -> str:
    """What is to be matched: after `####` (GSM8K), else in the last box (MATH), else the text itself."""
    if "####" in text:
        return text.rsplit("####", 1)[1].strip()
    at = text.rfind("\\boxed{")
    if at < 0:
        return text.strip()
    depth = 0
    for place in range(at + 6, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[at + 7 : place].strip()
    return ""


def _rows(path: str, question: str, sample: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    if not path:
        raise ConfigError("dataset.path is not set; give a .jsonl file, a folder or hub:OWNER/NAME")
    if path.startswith(HUB):
        from spade.design.corpus_hub import saved_sample

        file = saved_sample(path, sample or HUB_QUESTIONS, text_key=question)
        for where, row in _file_rows(file):
            yield where, {question: row["text"], **row}
        return
    place = Path(path)
    if not place.exists():
        raise InputError(f"dataset.path: there is no {path}")
    files = (
        sorted(p for p in place.rglob("*") if p.suffix in (".jsonl", ".json")) if place.is_dir() else [place]
    )
    for file in files:
        yield from _file_rows(file)


def _file_rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            tree = json.loads(text)
            rows = tree if isinstance(tree, list) else [tree]
            yield from ((f"{file} (row {number})", row) for number, row in enumerate(rows, 1))
            return
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield f"{file}:{number}", json.loads(line)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{file} cannot be read as questions ({error})") from error


class DatasetSource:
    """Questions in shuffled epochs, one program each. See `spade.train.source.EnvSource`."""

    def __init__(self, world: World) -> None:
        self.world, self.cfg = world, world.cfg
        own = world.cfg.dataset
        rows = read_questions(own.path, own.question, own.answer, own.sample)
        if own.sample is not None and own.sample < len(rows):
            rows = child_rng(world.cfg.seed, "dataset-sample").sample(rows, own.sample)
        self.questions = rows
        self.digest = content_id(json.dumps(rows))
        self.baselines = running_baselines(world.cfg)
        self._epoch = self._position = 0
        self._asked = 0
        world.folder.update_record(data={**world.folder.record.data, "dataset": self.digest})

    @staticmethod
    def check(cfg: Config) -> None:
        """Raise ConfigError without a data set, InputError for a local one that cannot be read."""
        own = cfg.dataset
        if not own.path.startswith(HUB):
            read_questions(own.path, own.question, own.answer)

    async def begin_step(self, step: int) -> list[tuple[EnvProgram, bool]]:
        """The next `play.programs` questions of the epoch, without hints."""
        wanted = min(self.cfg.play.programs, len(self.questions))
        chosen: dict[str, EnvProgram] = {}
        while len(chosen) < wanted:
            if self._position >= len(self.questions):
                self._epoch, self._position = self._epoch + 1, 0
            order = list(range(len(self.questions)))
            child_rng(self.cfg.seed, "dataset", self._epoch).shuffle(order)
            program = question_program(*self.questions[order[self._position]], "dataset", "dataset")
            self._position += 1
            chosen.setdefault(program.id, program)
        self._asked += len(chosen)
        return [(program, False) for program in chosen.values()]

    async def observe(self, step: int, groups: Sequence[Group]) -> list[Credit]:
        """Credits for the Agent alone."""
        return agent_credits(step, groups, self.cfg, self.baselines)

    def flush(self) -> list[Credit]:
        """Nothing ever waits."""
        return []

    @property
    def owes_play(self) -> bool:
        """Never."""
        return False

    def metrics(self) -> dict[str, float]:
        """Size of the set, epoch, and questions asked so far."""
        return {
            "dataset/questions": float(len(self.questions)),
            "dataset/epoch": float(self._epoch),
            "dataset/asked": float(self._asked),
        }

    def state_dict(self) -> dict[str, Any]:
        """Position in the set, and which set it is."""
        return {
            "epoch": self._epoch,
            "position": self._position,
            "asked": self._asked,
            "digest": self.digest,
            "baselines": self.baselines.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`. Raises InputError when the questions are others."""
        if state["digest"] != self.digest:
            raise InputError(
                f"dataset.path: {self.cfg.dataset.path} is not what this run was started with; restore it"
            )
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._asked = int(state["asked"])
        self.baselines.load_state_dict(state["baselines"])
