"""The contract with TRL, checked on stand-ins for its trainer; and what of a config TRL cannot do."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from spade.config import Config
from spade.errors import InputError
from spade.learn.trl_args import trl_problem
from spade.learn.trl_seam import check_seam
from spade.train.checks import check_run


class Trainer:
    """The methods TRL 1.16 has, and a loss that reads what TRL's reads."""

    def _generate_and_score_completions(self, inputs: Any) -> Any: ...

    def _prepare_inputs(self, generation_batch: Any) -> Any: ...

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any) -> Any: ...

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Any,
        attention_mask: Any,
        logits_to_keep: Any,
        batch_size: Any = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
    ) -> Any: ...

    def log(self, logs: Any, start_time: Any = None) -> None: ...

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        ids = inputs["prompt_ids"], inputs["prompt_mask"], inputs["completion_ids"]
        mask = inputs["completion_mask"] if "tool_mask" not in inputs else inputs["tool_mask"]
        old = inputs.get("old_per_token_logps"), inputs.get("sampling_per_token_logps", None)
        more = inputs["ref_per_token_logps"], inputs["importance_sampling_ratio"], inputs["advantages"]
        steps = self.current_gradient_accumulation_steps / self.args.steps_per_generation  # type: ignore[attr-defined]
        count = inputs["num_items_in_batch"] / self.accelerator.num_processes * steps  # type: ignore[attr-defined]
        return ids, mask, old, more, count, self.loss_type  # type: ignore[attr-defined]


class Renamed(Trainer):
    _prepare_inputs = None  # type: ignore[assignment]


class OtherArguments(Trainer):
    def _generate_and_score_completions(self, batch: Any, mode: Any = None) -> Any: ...


class NewKey(Trainer):
    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        """inputs["advantages"] and the like are read in the parent; here only the new one."""
        return inputs["importance_weights"], super()._compute_loss(model, inputs)


class GoneKey(Trainer):
    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        return inputs["prompt_ids"]


def test_the_seam_that_is_known_passes() -> None:
    check_seam(Trainer)


@pytest.mark.parametrize(
    ("trainer", "why"),
    [
        (Renamed, "no method _prepare_inputs"),
        (OtherArguments, "_generate_and_score_completions takes self, batch"),
        (NewKey, "reads the new key 'importance_weights'"),
        (GoneKey, "no longer reads 'advantages'"),
    ],
)
def test_a_seam_that_moved_is_one_clear_sentence(trainer: type[Any], why: str) -> None:
    with pytest.raises(InputError) as caught:
        check_seam(trainer)
    text = str(caught.value)
    assert why in text and "pip install 'trl>=1.16,<1.17'" in text and "\n" not in text


def test_the_installed_trl_has_the_seam() -> None:
    pytest.importorskip("trl", reason="NOT RUN: needs the extra trl (make test-extras)")
    check_seam()


def test_a_missing_trl_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(InputError, match=r"module 'trl' is not installed; run pip install 'spade-rl\[trl\]'"):
        check_seam()


def config(**changes: Any) -> Config:
    learner = {"type": "trl", "optimizer_per_role": False, **changes.pop("learner", {})}
    return Config.model_validate({"learner": learner, **changes})


@pytest.mark.parametrize(
    ("cfg", "why"),
    [
        (config(learner={"optimizer_per_role": True}), "optimizer_per_role=false"),
        (config(design={"temperature": 0.7}), "set design.temperature=1"),
        (config(learner={"loss": "sapo", "kl": 0.1}), "set learner.kl=0"),
        (config(learner={"dual_clip": 1.1}), "above 1 + learner.clip_high"),
        (config(learner={"type": "compact", "loss": "cispo"}), "set learner.type=trl"),
    ],
)
def test_what_trl_cannot_do_is_refused_before_a_run(cfg: Config, why: str) -> None:
    with pytest.raises(Exception, match=why.replace("+", r"\+")):
        check_run(cfg)


@pytest.mark.parametrize(
    "changes",
    [{}, {"learner": {"loss": "vespo"}}, {"design": {"policy": "frozen", "temperature": 0.7}}],
)
def test_what_trl_can_do_passes(changes: dict[str, Any]) -> None:
    assert trl_problem(config(**changes)) == ""
