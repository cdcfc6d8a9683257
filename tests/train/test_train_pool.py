"""The fixed-pool baseline: same loop, pool order, token cost; and a real tiny model killed and resumed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spade.config import Config
from spade.envs.pool import Pool, read_pool, write_pool
from spade.errors import InputError
from spade.interrupt import StopFlag
from spade.runs import RunFolder
from spade.train.loop import run_training
from spade.types import EnvProgram
from tests.play.programs import COUNT
from tests.train.scripted_world import (
    DigestLearner,
    World,
    decisions,
    guess_program,
    rows,
    small_config,
    train,
)

PARITY = """class ParityEnv:
    max_turns = {turns}

    def reset(self, seed=None):
        self.t = 0
        return "say something", {{}}

    def step(self, action):
        self.t += 1
        won = len(action) % 2 == 0
        return "next", float(won), self.t >= self.max_turns, False, {{}}
"""


def make(folder: Path, codes: list[str], tokens: int = 500) -> Path:
    write_pool(folder, Pool(tuple(EnvProgram.of(code) for code in codes), tokens))
    return folder


def pool_config(out: Path, pool: Path | None, **changes: Any) -> Config:
    """Some programs here are bad on purpose, so they are not judged."""
    tree = {"train__pool": str(pool) if pool else None, "train__pool_validate": False, **changes}
    return small_config(out, train__source="fixed_pool", **tree)


def test_epochs_are_without_replacement_and_the_pools_tokens_count(tmp_path: Path) -> None:
    pool = make(tmp_path / "pool", [guess_program(top, 4) for top in range(8, 15)])
    summary, folder, _ = train(pool_config(tmp_path / "run", pool, train__steps=7))
    played = Counter((e["program"], e["step"]) for e in rows(folder, "episodes.jsonl"))
    assert set(played.values()) == {4}
    assert set(Counter(program for program, _ in played).values()) == {
        3
    }  # 7 steps x 3 programs = 3 epochs of 7
    assert summary["tokens_pool_design"] == 500 and summary["tokens_design"] == 0
    assert summary["plays_hinted"] == 0
    assert summary["total_tokens"] == 500 + summary["tokens_plain"]
    assert folder.record.data["pool"] == read_pool(pool).digest


def test_a_program_that_breaks_is_retired(tmp_path: Path) -> None:
    crash = COUNT.replace('"crash" in action', "True")
    pool = make(tmp_path / "pool", [crash, guess_program(9, 4), guess_program(10, 4)])
    _, folder, _ = train(pool_config(tmp_path / "run", pool, train__steps=3))
    steps = {e["step"] for e in rows(folder, "episodes.jsonl") if e["end"] == "fault"}
    assert steps == {1}
    assert rows(folder, "metrics.jsonl")[-1]["pool_programs"] == 2


def test_a_run_has_its_own_copy_of_the_pool_and_notices_another(tmp_path: Path) -> None:
    pool = make(tmp_path / "pool", [guess_program(top, 4) for top in range(8, 12)])
    cfg = pool_config(tmp_path / "run", pool)
    with pytest.raises(KeyboardInterrupt):
        train(cfg, learner=DigestLearner(fail_at=4))
    (pool / "manifest.json").unlink()
    make(pool, [guess_program(20, 4)])
    copy = tmp_path / "run" / "pool"
    kept = (copy / "manifest.json").read_text()
    (copy / "manifest.json").unlink()
    make(copy, [guess_program(20, 4)])
    with pytest.raises(InputError, match="not the pool that this run was started with"):
        train(cfg)
    (copy / "manifest.json").write_text(kept)
    _, folder, _ = train(cfg)
    assert len({e["program"] for e in rows(folder, "episodes.jsonl")}) == 4


def test_a_run_without_a_pool_samples_one_from_its_start_model(tmp_path: Path) -> None:
    cfg = pool_config(tmp_path / "run", None, train__steps=2, train__pool_size=3)
    summary, folder, _ = train(cfg)
    pool = read_pool(folder.path / "pool")
    assert len(pool.programs) == 3 and pool.origin["attempts"] >= 3
    assert summary["tokens_pool_design"] == pool.tokens > 0


def test_a_model_that_repeats_itself_is_given_up(tmp_path: Path) -> None:
    world = World()
    world.design = lambda prompt: f"```python\n{guess_program(16, 4)}```"  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"only 1 of 64 distinct .* \(duplicate"):
        train(pool_config(tmp_path / "run", None), world)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.serving.tiny import write_model

    folder = tmp_path_factory.mktemp("tiny")
    write_model(folder)
    # a random model seldom ends its turn; with a third of the vocabulary as end tokens it does
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": list(range(0, 360, 3))}))
    return folder


def run_model(cfg: Config, stop: StopFlag | None = None) -> RunFolder:
    folder = RunFolder.create_or_resume(cfg, "train", "test")
    try:
        run_training(cfg, folder, stop or StopFlag())
    finally:
        folder.finish()
    return folder


def test_a_real_model_killed_and_resumed_has_the_same_weights(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    from spade.learn.trainer import CompactLearner

    pool = make(tmp_path / "pool", [PARITY.format(turns=t) for t in (1, 2, 3)])
    changes = {"model": str(model), "train__steps": 4, "play__max_tokens": 6, "train__checkpoint_every": 1}
    changes |= {"play__plays": 6, "learner__lr": 1e-3}
    straight = run_model(pool_config(tmp_path / "a", pool, **changes))

    cfg = pool_config(tmp_path / "b", pool, **changes)
    step = CompactLearner.step

    def dying(self: Any, *args: Any, **fields: Any) -> dict[str, float]:
        if self.version == 2:
            raise KeyboardInterrupt
        return step(self, *args, **fields)

    monkeypatch.setattr(CompactLearner, "step", dying)
    with pytest.raises(KeyboardInterrupt):
        run_model(cfg)
    monkeypatch.undo()
    resumed = run_model(cfg)
    assert decisions(resumed) == decisions(straight)
    last = "checkpoints/step-000004/model.safetensors"
    mine, theirs = load_file(resumed.path / last), load_file(straight.path / last)
    start = load_file(model / "model.safetensors")
    assert all(bool((mine[k] == theirs[k]).all()) for k in theirs)
    assert any(bool((mine[k] != start[k]).any()) for k in mine)
    metrics = rows(straight, "metrics.jsonl")
    assert all(m["learner/grad_norm/agent"] > 0 for m in metrics)
