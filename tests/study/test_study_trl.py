"""A cell of the study whose updates are taken by TRL's trainer: the same gradient and the same outcome.

Needs the extra `trl`; `make test-extras` installs it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spade.study.families import Rules, open_family
from spade.study.lm import TinyLM, load_lm
from spade.study.measure import right_mass
from spade.study.packed import group_logprobs
from spade.study.rl import RLRun
from spade.study.settings import RLSettings
from spade.study.tasks import Family
from spade.types import Sample

try:
    import trl
except ModuleNotFoundError:
    trl = None
    warnings.warn("a cell of the study through TRL DID NOT RUN: no module trl", stacklevel=1)

pytestmark = pytest.mark.skipif(trl is None, reason="NOT RUN: needs the extra trl (make test-extras)")

CELL = RLSettings(reward="exact", algorithm="grpo", steps=48)
"""The arms of experiment E1, on fewer steps."""


class TrlRun(RLRun):
    """The same run, but TRL's trainer takes the updates; the policy is what the trainer hands over."""

    def __init__(self, model: TinyLM, family: Family, settings: RLSettings, learner: Any) -> None:
        super().__init__(model, family, settings)
        self.learner = learner
        self._every_group = True  # it leaves out groups without an advantage by itself

    def _update(
        self, ids_BP: Any, y_BGL: Any, old_BGL: Any, advantage_BGL: Any, groups: Any = None
    ) -> tuple[float, tuple[float, float], bool]:
        rows = samples_of(self.family, ids_BP, y_BGL, old_BGL, advantage_BGL)
        metrics = self.learner.step(rows, self.settings.temperature)
        self.model.load_hf_state(dict(self.learner.named_weights()))
        return metrics.get("grad_norm/shared", 0.0), (0.0, 0.0), True


def samples_of(family: Family, ids_BP: Any, y_BGL: Any, old_BGL: Any, advantage_BGL: Any) -> list[Sample]:
    letters = torch.tensor(list(family.alphabet))
    tokens_BGL = letters[y_BGL].tolist()
    return [
        Sample(
            tuple(ids_BP[b].tolist()), tuple(tokens), (1,) * len(tokens), tuple(old_BGL[b, g].tolist()),
            float(advantage_BGL[b, g, 0]), "agent", group=str(b),
        )
        for b, row in enumerate(tokens_BGL)
        for g, tokens in enumerate(row)
    ]  # fmt: skip


@pytest.fixture
def trl_learner() -> Iterator[Callable[[RLRun, Path], Any]]:
    """`trl_learner(run, folder)`: TRL's trainer on the run's model, with the run's own settings."""
    from spade.learn.trl import TrlLearner

    opened = []

    def make(run: RLRun, folder: Path) -> Any:
        run.model.save(folder)
        same = {"type": "trl", "lr": run.settings.lr, "betas": (0.9, 0.99), "optimizer_per_role": False}
        quiet = {"autocast": "off", "mismatch_alarm": 0.0, "ratio_alarm": 0.0}
        cfg = run.rung.learner().model_copy(update={**same, **quiet})
        opened.append(TrlLearner(folder, cfg, device="cpu", temperature=run.settings.temperature))
        return opened[-1]

    yield make
    for learner in opened:
        learner.close()


def moments(run: RLRun) -> dict[str, torch.Tensor]:
    """First moments of Adam under the names of the Hugging Face weights."""
    shadow = copy.deepcopy(run.model)
    with torch.no_grad():
        for copied, p in zip(shadow.parameters(), run.model.parameters(), strict=True):
            copied.copy_(run._optimiser.state[p]["exp_avg"])
    return shadow.hf_state()


class Wide(Rules):
    """Decoding over the whole vocabulary, as a trainer does it."""

    alphabet = tuple(range(32))


@pytest.mark.parametrize(("family", "apart"), [(Wide(), 1e-4), (Rules(), 0.05)], ids=["whole", "letters"])
def test_on_the_same_rollouts_trl_takes_the_step_of_the_study(
    shipped: Callable[..., Path],
    trl_learner: Callable[[RLRun, Path], Any],
    tmp_path: Path,
    family: Family,
    apart: float,
) -> None:
    """The same, but for what the study leaves out of the distribution: tokens that are no letters."""
    run = RLRun(load_lm(shipped("dial=1e-2")), family, CELL)
    ids = torch.from_numpy(run.pool.draw(8).ids_BP)
    rng = np.random.default_rng(0)
    length = family.prompts("?", "train", 1).target_BL.shape[1]
    first = 4 if len(family.alphabet) == 32 else 0  # special tokens; the trainer freezes the padding's row
    y = torch.from_numpy(rng.integers(first, len(family.alphabet), (8, 4, length)))
    advantage = np.broadcast_to(rng.normal(size=(8, 4, 1)), y.shape)
    with torch.no_grad():
        logp = group_logprobs(run.model, ids, y, family.alphabet, 1.0).gather(-1, y[..., None])[..., 0]
    learner = trl_learner(run, tmp_path)
    learner.step(samples_of(family, ids, y, logp, advantage), 1.0)
    run._update(ids, y, logp, advantage)
    (theirs,) = [state["exp_avg"] for state in learner.state_dict()["optimizers"].values()]
    mine = moments(run)
    assert set(theirs) <= set(mine) and len(theirs) > 20
    largest = max(float(t.abs().max()) for t in theirs.values())
    for name, tensor in theirs.items():
        assert (mine[name] - tensor).abs().max() < apart * largest, name


@pytest.mark.parametrize(("prior", "learns"), [("never", False), ("1e-2", True)])
def test_a_cell_of_e1_ends_the_same_way_with_either_trainer(
    shipped: Callable[..., Path],
    trl_learner: Callable[[RLRun, Path], Any],
    tmp_path: Path,
    prior: str,
    learns: bool,
) -> None:
    """A skill the start model never shows stays unseen; one with a mass of one per cent is learnt."""
    family = open_family("rules")
    start = shipped(*([] if prior == "never" else [f"dial={prior}"]))
    settings = CELL if learns else replace(CELL, steps=8)
    runs: dict[str, RLRun] = {"study": RLRun(load_lm(start), family, settings)}
    learner = trl_learner(runs["study"], tmp_path)
    runs["trl"] = TrlRun(load_lm(start), family, settings, learner)
    before = runs["trl"].model.hf_state()
    rewards = {name: [run.step().reward for _ in range(settings.steps)] for name, run in runs.items()}
    probe = family.prompts("?", "probe", 64)
    masses = {name: float(right_mass(run.model, family, probe, 1.0).mean()) for name, run in runs.items()}
    assert rewards["trl"][0] == rewards["study"][0], "the first rollouts are the same"
    if learns:
        assert masses["study"] > 0.5 and masses["trl"] > 0.5, masses
        assert abs(takeoff(rewards["trl"]) - takeoff(rewards["study"])) <= settings.steps // 4
    else:
        assert sum(rewards["trl"]) == sum(rewards["study"]) == 0.0
        assert all(torch.equal(before[n], t) for n, t in runs["trl"].model.hf_state().items())
        assert masses["trl"] == masses["study"] < 1e-3 and learner.version == 0


def test_token_entropies_are_those_of_trl(
    shipped: Callable[..., Path], trl_learner: Callable[[RLRun, Path], Any], tmp_path: Path
) -> None:
    """What `spade study entropy` and the lens report, at temperature 1 and another one."""
    from spade.learn.trainer import CompactLearner

    family = open_family("rules")
    run = RLRun(load_lm(shipped("dial=1e-2")), family, replace(CELL, temperature=0.7))
    ids = torch.from_numpy(run.pool.draw(4).ids_BP)
    length = family.prompts("?", "train", 1).target_BL.shape[1]
    y = torch.from_numpy(np.random.default_rng(1).integers(0, len(family.alphabet), (4, 2, length)))
    trainer = trl_learner(run, tmp_path).trainer
    samples = samples_of(family, ids, y, torch.zeros(y.shape), np.zeros(y.shape))
    rows = torch.tensor([[*s.prompt_ids, *s.completion_ids] for s in samples])
    with torch.no_grad():
        _, theirs, *_ = trainer._get_per_token_logps_and_entropies(
            trainer.model, rows, torch.ones_like(rows), length, compute_entropy=True
        )
    _, ours = CompactLearner(tmp_path, run.rung.learner().model_copy(update={"autocast": "off"})).entropies(
        samples, 0.7
    )
    assert np.stack(ours) == pytest.approx(theirs.numpy(), abs=1e-4)
    assert float(theirs.min()) < 0.1 < 1.0 < float(theirs.max())


def takeoff(rewards: list[float]) -> int:
    """First step at which half of the responses are right."""
    return next((k for k, reward in enumerate(rewards) if reward >= 0.5), len(rewards))
