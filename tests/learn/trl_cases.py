"""What one and two processes do with TRL's learner, so that the test can compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from learn_data import make
from parallel_child import write

from spade.config import LearnerConfig
from spade.config_trl import TrlConfig

CASES: dict[str, dict[str, Any]] = {
    "plain": {"micro_tokens": 300, "weight_decay": 0.1},
    "several": {"micro_tokens": 300, "loss": "gspo", "epochs": 2, "minibatches": 2},
    "reference": {"kl": 0.1, "loss": "grpo"},
    "lora": {"trl": TrlConfig(lora_rank=4)},
}


def settings(**changes: Any) -> LearnerConfig:
    quiet = {"autocast": "off", "mismatch_alarm": 0.0, "ratio_alarm": 0.0}
    return LearnerConfig(**{**quiet, "type": "trl", "optimizer_per_role": False, "lr": 1e-3, **changes})


def run_cases(out: Path, model: Path) -> None:
    """Two steps of every case; `resumed` takes the second one after loading the state of the first."""
    from spade.learn.parallel import join
    from spade.learn.trl import TrlLearner

    learners = {name: TrlLearner(model, settings(**changes)) for name, changes in CASES.items()}
    resumed = TrlLearner(model, settings(**CASES["plain"]))
    team, metrics = join(), {}
    if team.leads:
        for name, learner in learners.items():
            metrics[name] = [learner.step(make(13, 0))]
            if name == "plain":
                state = learner.state_dict()
                resumed.load_state_dict(_copy(state))
                resumed.step(make(13, 1), lr_scale=0.5)
            metrics[name].append(learner.step(make(13, 1), lr_scale=0.5))
        team = resumed.team
        team.dismiss()
    else:
        team.follow()
    for name, learner in {**learners, "resumed": resumed}.items():
        write(out, name, dict(learner.named_weights()), metrics.get(name))
        learner.close()


def _copy(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _copy(value) for key, value in state.items()}
    return state.clone() if hasattr(state, "clone") else state
