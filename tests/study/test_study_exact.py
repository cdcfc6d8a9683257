"""The enumerator against brute force, and the tiny models against the Hugging Face and serving layers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from spade.errors import InputError
from spade.learn.entropy import entropy
from spade.study.exact import enumerate_outputs, response_logprobs
from spade.study.families import open_family
from spade.study.lm import TinyLM, load_lm
from spade.study.measure import right_mass
from spade.study.packed import group_logprobs, sample_groups
from spade.study.tasks import all_responses, members

FAMILIES = ["rules", "quote", "chain", "strategy"]


def brute_force(
    model: TinyLM, ids: np.ndarray, alphabet: tuple[int, ...], temperature: float
) -> tuple[np.ndarray, float]:
    """Log-probability of every response of one prompt, and the mass outside the alphabet, row by row."""
    letters = np.array(alphabet)
    every = all_responses(len(letters))
    rows = torch.from_numpy(np.concatenate([np.repeat(ids[None], len(every), 0), letters[every]], 1))
    with torch.no_grad():
        logits = model.logits(model(rows))[:, len(ids) - 1 : -1].double()
    targets = torch.from_numpy(every)[..., None]
    inside = torch.log_softmax(logits[..., torch.from_numpy(letters)] / temperature, -1)
    raw = torch.log_softmax(logits, -1)[..., torch.from_numpy(letters)]
    mass = raw.gather(-1, targets)[..., 0].sum(-1).exp().sum()
    return inside.gather(-1, targets)[..., 0].sum(-1).numpy(), 1.0 - float(mass)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_enumeration_equals_brute_force(tiny: Callable[..., TinyLM], name: str, temperature: float) -> None:
    family, model = open_family(name), tiny(3)
    prompts = family.prompts(family.domains[0], "probe", 2)
    found = enumerate_outputs(model, prompts.ids_BP, family.alphabet, 4, temperature)
    assert np.abs(np.exp(found.logprobs_BY).sum(-1) - 1).max() < 1e-5
    for row, ids in enumerate(prompts.ids_BP):
        expected, outside = brute_force(model, ids, family.alphabet, temperature)
        # single precision of the logits, which a temperature below 1 multiplies
        assert np.abs(found.logprobs_BY[row] - expected).max() < 1e-5 / temperature
        assert found.off_grammar_B[row] == pytest.approx(outside, abs=1e-5)
    assert found.place_entropy_BL.sum(-1) == pytest.approx(entropy(found.logprobs_BY), abs=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_mass_of_right_responses_equals_the_sum_over_all_outputs(
    tiny: Callable[..., TinyLM], name: str
) -> None:
    """One, two or 512 right responses a prompt: scored one by one, or enumerated."""
    family, model = open_family(name), tiny(2)
    prompts = family.prompts(family.domains[0], "probe", 3)
    found = enumerate_outputs(model, prompts.ids_BP, family.alphabet, 4, 0.7)
    slow = (np.exp(found.logprobs_BY) * members(prompts.allowed_BLM)).sum(-1)
    assert right_mass(model, family, prompts, 0.7) == pytest.approx(slow, rel=1e-4)


def test_conditional_entropies_equal_a_slow_sum(tiny: Callable[..., TinyLM]) -> None:
    family = open_family("rules")
    found = enumerate_outputs(tiny(1), family.prompts("?", "probe", 1).ids_BP, family.alphabet, 4)
    p = np.exp(found.logprobs_BY[0]).reshape(8, 8, 8, 8)
    for place in range(4):
        heads = p.sum(tuple(range(place + 1, 4))).reshape(-1, 8)
        slow = sum(node.sum() * -sum(q * np.log(q) for q in node / node.sum() if q > 0) for node in heads)
        assert found.place_entropy_BL[0, place] == pytest.approx(slow, abs=1e-9)


def test_a_shipped_model_is_enumerated_as_it_is_scored(shipped: Callable[..., Path]) -> None:
    family, model = open_family("rules"), load_lm(shipped("dial=1e-3"))
    prompts = family.prompts("?", "probe", 8)
    found = enumerate_outputs(model, prompts.ids_BP, family.alphabet, 4)
    codes = (prompts.target_BL * 8 ** np.arange(3, -1, -1)).sum(-1)
    direct = response_logprobs(model, prompts.ids_BP, prompts.target_BL, family.alphabet)
    assert found.logprobs_BY[np.arange(8), codes] == pytest.approx(direct, abs=1e-5)
    assert found.off_grammar_B.mean() < 1e-3


def test_too_many_responses_are_refused(tiny: Callable[..., TinyLM]) -> None:
    with pytest.raises(InputError, match="more than the 65536"):
        enumerate_outputs(tiny(), np.array([[1, 2]]), tuple(range(17)), 4)


def test_groups_are_scored_as_plain_rows_and_sampled_from_the_exact_distribution(
    tiny: Callable[..., TinyLM],
) -> None:
    family, model = open_family("rules"), tiny(2)
    prompts = family.prompts("?", "train", 3)
    ids = torch.from_numpy(prompts.ids_BP)
    y, logp = sample_groups(model, ids, family.alphabet, 4, 2000, 0.7, torch.Generator().manual_seed(0))
    few = y[:, :5]
    packed = group_logprobs(model, ids, few, family.alphabet, 0.7).gather(-1, few[..., None])[..., 0]
    assert (packed - logp[:, :5]).abs().max() < 1e-5
    rows = np.repeat(prompts.ids_BP, 5, 0)
    plain = response_logprobs(model, rows, few.numpy().reshape(-1, 4), family.alphabet, 0.7)
    assert packed.detach().sum(-1).flatten().numpy() == pytest.approx(plain, abs=1e-5)
    exact = np.exp(enumerate_outputs(model, prompts.ids_BP, family.alphabet, 4, 0.7).logprobs_BY)
    first = exact.reshape(3, 8, -1).sum(-1)
    seen = np.stack([np.bincount(row[:, 0], minlength=8) / 2000 for row in y.numpy()])
    assert np.abs(seen - first).max() < 5 * np.sqrt(0.25 / 2000)


def test_folders_are_plain_llama_checkpoints(tiny: Callable[..., TinyLM], tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = tiny(5)
    model.save(tmp_path)
    ids = torch.randint(0, 32, (3, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        mine = model.logits(model(ids))
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path)(ids).logits
        again = load_lm(tmp_path)
        assert (mine - theirs).abs().max() < 1e-5
        assert torch.equal(mine, again.logits(again(ids)))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("<bos> <?> 1 2 3 4 <sep>").input_ids == [1, 4, 20, 21, 22, 23, 3]


def test_trainer_and_serving_layer_read_the_same_folder(shipped: Callable[..., Path]) -> None:
    from spade.config import LearnerConfig, ServingConfig
    from spade.learn.trainer import CompactLearner
    from spade.serving.local import LocalPolicy
    from spade.serving.policy import SamplingParams
    from spade.types import Sample

    folder = shipped("dial=1e-2")
    family, model = open_family("rules"), load_lm(folder)
    prompts = family.prompts("?", "probe", 4)
    rows = [tuple(ids) for ids in prompts.ids_BP.tolist()]
    policy = LocalPolicy.from_folder(folder, ServingConfig())
    drawn = asyncio.run(policy.generate(rows, SamplingParams(max_tokens=4, seed=1), n=4))
    flat = [(p, c) for p, cs in zip(rows, drawn, strict=True) for c in cs]
    samples = [Sample(p, c.token_ids, (1,) * 4, c.logprobs_T, 0.0, "agent") for p, c in flat]
    learner = CompactLearner(folder, LearnerConfig(autocast="off"))
    with torch.no_grad():
        full = torch.tensor([p + c.token_ids for p, c in flat])
        logp = torch.log_softmax(model.logits(model(full[:, :-1]))[:, 6:], -1)
        mine = logp.gather(-1, full[:, 7:, None])[..., 0].numpy()
        exact = -(logp.exp() * logp).sum(-1).numpy()
    logprobs, entropies = learner.entropies(samples)
    for row, sample in enumerate(samples):
        assert np.abs(mine[row] - np.array(sample.logprobs)).max() < 1e-4
        assert np.abs(mine[row] - logprobs[row]).max() < 1e-4
        assert np.abs(exact[row] - entropies[row]).max() < 1e-4


def test_a_folder_of_something_else_is_refused(shipped_model: Path) -> None:
    with pytest.raises(InputError, match="not a model of the study"):
        load_lm(shipped_model)
