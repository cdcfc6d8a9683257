"""A world without a model: a scripted policy designs, hints and plays; a learner that digests its samples.

Replies depend on the prompt and on the weight version, so that a run that resumed with wrong weights, a wrong
corpus position or a wrong archive would not repeat.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spade.config import Config
from spade.interrupt import StopFlag
from spade.runs import RunFolder
from spade.serving.chat import ChatPolicy, ModelRef
from spade.serving.scripted import ScriptedPolicy
from spade.train.loop import run_training
from spade.types import Sample
from tests.play.programs import GUESS


def number_of(text: str, n: int) -> int:
    """A stable pseudo-random number below `n`."""
    return hashlib.sha256(text.encode()).digest()[0] % n


def guess_program(top: int, turns: int) -> str:
    """The bisecting game with other numbers."""
    return (
        GUESS.replace("1 to 8", f"1 to {top}")
        .replace("1, 8", f"1, {top}")
        .replace("max_turns = 6", f"max_turns = {turns}")
    )


class World:
    """The scripted policy's mind. `calls` counts requests by kind."""

    def __init__(self, hint: str = "halve the range after each reply") -> None:
        self.policy = ScriptedPolicy.from_function(self.reply)
        self.hint = hint
        self.calls = {"design": 0, "hint": 0, "play": 0}

    def reply(self, prompt: str) -> str:
        if "Skill:" in prompt:
            self.calls["design"] += 1
            return self.design(prompt)
        if "strategy in a few words" in prompt:
            self.calls["hint"] += 1
            return self.hint
        self.calls["play"] += 1
        return self.play(prompt)

    def design(self, prompt: str) -> str:
        kind = number_of(f"{prompt}{self.policy.version}", 8)
        if kind == 0:
            return "I have no idea."
        if kind == 1:
            return "```python\nclass BrokenEnv:\n    pass\n```"
        return f"```python\n{guess_program(8 + number_of(prompt, 9), 4)}```"

    def play(self, prompt: str) -> str:
        top = int((re.findall(r"1 to (\d+)", prompt) or ["9"])[0])
        if "HINT" not in prompt:
            return f"\\boxed{{{1 + number_of(f'{prompt}{self.policy.version}', top)}}}"
        low, high = 1, top
        for guess, answer in re.findall(r"boxed\{(\d+)\}\n\[user\]\n(higher|lower)", prompt):
            low, high = (int(guess) + 1, high) if answer == "higher" else (low, int(guess) - 1)
        return f"\\boxed{{{(low + high) // 2}}}"


class DigestLearner:
    """Its one weight is a hash of everything it was ever trained on."""

    def __init__(self, fail_at: int | None = None) -> None:
        import torch

        self.version = 0
        self.fail_at = fail_at
        self.seen: list[Sample] = []
        self.digest = torch.zeros(32, dtype=torch.uint8)

    def step(self, samples: Sequence[Sample], temperature: Any, lr_scale: float = 1.0) -> dict[str, float]:
        import torch

        if self.fail_at is not None and self.version + 1 == self.fail_at:
            raise KeyboardInterrupt
        self.seen.extend(samples)
        text = (
            bytes(self.digest.tolist())
            + repr([(s.completion_ids, s.advantage, s.role) for s in samples]).encode()
        )
        self.digest = torch.tensor(list(hashlib.sha256(text).digest()), dtype=torch.uint8)
        self.version += 1
        return {"samples": float(len(samples))}

    def named_weights(self) -> Iterable[tuple[str, Any]]:
        yield "digest", self.digest

    def state_dict(self) -> dict[str, Any]:
        return {"version": self.version, "weights": {"digest": self.digest}, "optimizers": {}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.version, self.digest = int(state["version"]), state["weights"]["digest"]

    def save(self, folder: Path) -> None:
        from safetensors.torch import save_file

        (folder / "config.json").write_text("{}")
        save_file({"digest": self.digest}, folder / "model.safetensors")

    def close(self) -> None:
        pass


def small_config(out: Path, **changes: Any) -> Config:
    """A self-play run of a second; `changes` use dotted keys with `__`."""
    tree: dict[str, Any] = {
        "name": "scripted",
        "out": str(out),
        "design": {"designs": 4, "every": 2, "attempts": 1, "template": "short", "memory": {"enabled": True}},
        "play": {"plays": 4, "hinted_plays": 2, "programs": 3, "max_turns": 6},
        "train": {"steps": 6, "checkpoint_every": 2},
        "validator": {"seeds": 8, "floor_max": 0.34},
        "hints": {"max_tokens": 64},
    }
    for key, value in changes.items():
        *path, last = key.split("__")
        at = tree
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return Config.model_validate(tree)


def train(
    cfg: Config,
    world: World | None = None,
    learner: DigestLearner | None = None,
    stop: StopFlag | None = None,
) -> tuple[dict[str, Any], RunFolder, DigestLearner]:
    """Run (or resume) in the folder of `cfg`."""
    world, learner = world or World(), learner or DigestLearner()
    folder = RunFolder.create_or_resume(cfg, "train", "test")
    tokenizer = folder.path / "start"
    tokenizer.mkdir(exist_ok=True)
    (tokenizer / "tokenizer.json").write_text("{}")
    chat = ChatPolicy(world.policy.renderer, world.policy, ModelRef("local", "scripted", tokenizer))
    try:
        summary = run_training(cfg, folder, stop or StopFlag(), chat=chat, learner=learner)  # type: ignore[arg-type]
    finally:
        folder.finish()
    return summary, folder, learner


def rows(folder: RunFolder, name: str) -> list[dict[str, Any]]:
    """Rows of a file without wall-clock fields."""
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in folder.rows(name)]


def decisions(folder: RunFolder) -> dict[str, str]:
    """Everything a run recorded, by file, for comparison."""
    names = ("metrics.jsonl", "episodes.jsonl", "designs.jsonl", "rewards.jsonl")
    return {name: json.dumps(rows(folder, name)) for name in names}
