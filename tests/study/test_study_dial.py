"""The dial: what its teacher is, and which starts are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from spade.study.dials import DialRejected, Keeper, judge_dial
from spade.study.exact import enumerate_outputs
from spade.study.families import open_family
from spade.study.lm import TinyLM
from spade.study.packed import group_logprobs
from spade.study.settings import Start
from spade.study.stages import TrunkRejected, judge_trunk, measure_start
from spade.study.tasks import all_responses

CLEAN = {"outside": 0.07, "off_grammar": 5e-4, "domains_min": 0.998, "mass_train": 1.1e-2}


def test_the_teacher_is_the_parent_with_the_wanted_response_put_back_at_rho(
    tiny: Callable[..., TinyLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spade.study.dials.DIAL_POOL", 6)
    monkeypatch.setattr("spade.study.dials.KEEPER_CHUNK", 4)
    family, model, rho = open_family("rules"), tiny(3), 0.25
    keeper = Keeper.of(model, family, rho)
    prompts = family.prompts("?", "train", 6)
    p = np.exp(enumerate_outputs(model, prompts.ids_BP, family.alphabet, 4).logprobs_BY)
    responses = all_responses(8)
    for row in range(6):
        wanted = (responses == prompts.target_BL[row]).all(-1)
        q = np.where(wanted, rho, (1 - rho) * p[row] / (1 - p[row][wanted].sum()))
        seen = set()
        for k, known in enumerate(prompts.known_BKLM[row].argmax(-1)):
            for place in range(4):
                along = (responses[:, :place] == known[:place]).all(-1)
                expected = [q[along & (responses[:, place] == letter)].sum() for letter in range(8)]
                np.testing.assert_allclose(keeper.joint_BKLM[row, k, place], expected, rtol=1e-4, atol=1e-7)
                seen.add(tuple(known[:place]))
        assert float(keeper.share_BKL[row].sum()) == pytest.approx(len(seen))


def test_the_divergence_is_least_for_the_teacher_itself_and_has_a_gradient_elsewhere(
    tiny: Callable[..., TinyLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spade.study.dials.DIAL_POOL", 1)
    family, model = open_family("rules"), tiny(3)
    prompts = family.prompts("?", "train", 1)
    p = np.exp(enumerate_outputs(model, prompts.ids_BP, family.alphabet, 4).logprobs_BY[0])
    mass = float(p[(all_responses(8) == prompts.target_BL[0]).all(-1)].sum())
    rows = np.zeros(1, np.int64)
    itself = Keeper.of(model, family, mass)
    tokens = torch.tensor(family.alphabet)
    with torch.no_grad():  # what is left is the price of mass outside the alphabet
        known = itself.known_BKL
        inside = group_logprobs(model, itself.ids_BP, known, family.alphabet, 1.0)
        free = group_logprobs(model, itself.ids_BP, tokens[known], range(model.vocab), 1.0)[..., tokens]
        price = ((itself.joint_BKLM * (inside - free)).sum(-1) * itself.share_BKL).sum()
        assert itself.divergence(model, rows).item() == pytest.approx(price.item(), abs=1e-5)
    away = Keeper.of(model, family, 0.5).divergence(model, rows)
    assert away.item() > 0.01
    torch.autograd.backward(away)
    assert model.embed.grad is not None and float(model.embed.grad.abs().max()) > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"outside": 0.13}, "outside every known behaviour"),
        ({"off_grammar": 2e-3}, "0.002 of the mass is outside the alphabet"),
        ({"domains_min": 0.99}, "one tag has 0.9900"),
        ({"mass_train": 2e-2}, "0.02, not 0.01"),
    ],
)
def test_a_dial_that_is_not_clean_is_refused(change: dict[str, float], words: str) -> None:
    start = Start(chain=("dial=1e-2~1",))
    judge_dial(start, CLEAN)
    with pytest.raises(DialRejected, match=words):
        judge_dial(start, CLEAN | change)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"domains_min": 0.99}, "only 0.9900"), ({"off_grammar": 2e-3}, "puts 0.002 outside")],
)
def test_a_trunk_that_is_not_clean_is_refused(change: dict[str, float], words: str) -> None:
    judge_trunk(Start(), CLEAN)
    with pytest.raises(TrunkRejected, match=words):
        judge_trunk(Start(), CLEAN | change)


def test_what_a_start_is_judged_by_is_measured(
    tiny: Callable[..., TinyLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HELD_OUT", "PROBE_PROMPTS", "CALIBRATION_PROMPTS"):
        monkeypatch.setattr(f"spade.study.stages.{name}", 4)
    measured = measure_start(tiny(), open_family("rules"))
    assert measured["outside"] > 0.9 and measured["entropy"] > 5 and 0 < measured["mass_train"] < 1e-2
    other = measure_start(tiny(), open_family("chain"))
    assert "outside" not in other and other["off_grammar"] > 0.9
