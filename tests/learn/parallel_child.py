"""One of two processes of the tests of parallel learning: `parallel_child.py JOB OUT MODEL`, with RANK set.

Each writes what it ended with to `OUT/rank-R/`, so that the test can compare.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from learn_data import make

from spade.config import LearnerConfig
from spade.learn.parallel import Team, join

STEPS = 2
SETTINGS: dict[str, dict[str, Any]] = {
    "per-role": {"lr": 1e-3, "micro_tokens": 300},
    "shared": {"lr": 1e-3, "optimizer_per_role": False, "weight_decay": 0.1, "kl": 0.1, "loss": "grpo"},
    "several": {"lr": 1e-3, "epochs": 2, "minibatches": 2, "loss": "gspo", "micro_tokens": 300},
    "one-row": {"lr": 1e-3, "micro_tokens": 1},
}
"""Settings of the compact learner, by the name of the result."""


def settings(name: str) -> LearnerConfig:
    quiet = {"autocast": "off", "mismatch_alarm": 0.0, "ratio_alarm": 0.0}
    return LearnerConfig(**{**quiet, **SETTINGS[name]})


def write(folder: Path, name: str, tensors: Mapping[str, torch.Tensor], numbers: Any = None) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    whole = {key: tensor.detach().clone().contiguous() for key, tensor in tensors.items()}
    save_file(whole, folder / f"{name}.safetensors")
    (folder / f"{name}.json").write_text(json.dumps(numbers))


def train(learner: Any, steps: int = STEPS) -> list[dict[str, float]]:
    """Steps on samples of which some earn nothing; an odd number, so that shares differ."""
    return [learner.step(make(13, seed), lr_scale=1.0 - 0.2 * seed) for seed in range(steps)]


def compact(out: Path, model: Path) -> None:
    """All settings of the compact learner; the last one resumed from a state in the middle."""
    from spade.learn.trainer import CompactLearner

    team = join()
    learners = {name: CompactLearner(model, settings(name), team=team) for name in SETTINGS}
    resumed = CompactLearner(model, settings("shared"), team=team)
    metrics: dict[str, Any] = {}
    if team.leads:
        for name, learner in learners.items():
            metrics[name] = train(learner)
        again = CompactLearner(model, settings("shared"))
        train(again, STEPS - 1)
        resumed.load_state_dict(again.state_dict())
        resumed.step(make(13, STEPS - 1), lr_scale=1.0 - 0.2 * (STEPS - 1))
        team.dismiss()
    else:
        team.follow()
    for name, learner in {**learners, "resumed": resumed}.items():
        write(out, name, dict(learner.named_weights()), metrics.get(name))


def shard(out: Path, model: Path) -> None:
    """torch's `fully_shard` over a gloo mesh: train, gather, export, load into a fresh model, go on."""
    from spade.learn import shards

    team = join()
    first, parameters, optimizer = sharded_model(model, team)
    assert shards.is_sharded(first) == (team.size > 1)
    for seed in range(2):
        update(first, optimizer, seed)
    middle = {n: t.clone() for n, t in shards.named_whole(first)}
    moments = shards.moments_of(optimizer, parameters)
    write(out, "middle", middle)
    for name in shards.MOMENTS:
        write(out, f"middle-{name}", moments[name], moments["step"])
    named = shards.named_whole(first)
    if team.leads:
        shards.write_model(first, named, out / "export")
    else:
        for _ in named:
            pass
    fresh, parameters, optimizer = sharded_model(model, team)
    shards.load_weights(fresh, middle)
    shards.load_moments(optimizer, parameters, moments)
    update(fresh, optimizer, 2)
    write(out, "end", dict(shards.named_whole(fresh)))


def sharded_model(path: Path, team: Team) -> tuple[Any, dict[str, Any], torch.optim.AdamW]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from spade.learn.checkpoint import load_causal_lm

    model = load_causal_lm(path, torch.device("cpu"))
    if team.size > 1:
        mesh = init_device_mesh("cpu", (team.size,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    parameters = dict(model.named_parameters())
    return model, parameters, torch.optim.AdamW(parameters.values(), lr=1e-2)


def update(model: Any, optimizer: torch.optim.Optimizer, seed: int) -> None:
    ids = torch.randint(0, 64, (4, 12), generator=torch.Generator().manual_seed(seed))
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    torch.autograd.backward(loss)
    optimizer.step()
    optimizer.zero_grad()


def trl(out: Path, model: Path) -> None:
    """TRL's learner: whole steps, several updates a step, LoRA, and a resumed one."""
    from trl_cases import run_cases

    run_cases(out, model)


def sft(out: Path, model: Path) -> None:
    """Fine-tuning in one go; and stopped after its first step by the last process alone, then resumed."""
    from spade.interrupt import StopFlag
    from spade.sft.rows import IGNORED, Row
    from spade.sft.train import Settings, fine_tune

    drawn = torch.Generator().manual_seed(0)
    ids = [torch.randint(5, 60, (8 + k % 16,), generator=drawn).tolist() for k in range(16)]
    rows = [Row(row, [IGNORED] * 4 + row[4:]) for row in ids]
    settings = Settings(batch=4, micro_batch=2, lr=1e-2, device="cpu", dtype="float32")
    summaries = []
    for name, stops in (("whole", False), ("halves", True), ("halves", False)):
        stop = StopFlag()
        stop.requested = stops and join().rank == join().size - 1
        summaries.append(fine_tune(model, rows, out.parent / name, settings, {"data": "rows"}, stop))
    write(out, "sft", {}, summaries)


JOBS: dict[str, Callable[[Path, Path], None]] = {"compact": compact, "shard": shard, "trl": trl, "sft": sft}

if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[2])
    for job in sys.argv[1].split(","):
        JOBS[job](folder / f"rank-{join().rank}", Path(sys.argv[3]))
