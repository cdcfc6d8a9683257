"""The families: what is right, what is known, what is never shown, and that splits do not touch."""

from __future__ import annotations

import numpy as np
import pytest

from spade.errors import InputError
from spade.study.families import OPERATIONS, Chain, Quote, Rules, Strategy, open_family
from spade.study.mixture import training_mixture
from spade.study.tasks import all_responses, is_right, members
from spade.study.vocabulary import RULES, decode, encode

FAMILIES = ["rules", "quote", "chain", "strategy"]


def slow_rule(rule: str, x: list[int]) -> list[int]:
    return {
        "copy": list(x),
        "reverse": [x[3], x[2], x[1], x[0]],
        "plus1": [(a + 1) % 8 for a in x],
        "plus3": [(a + 3) % 8 for a in x],
        "swap": [x[1], x[0], x[3], x[2]],
        "rotate": [x[1], x[2], x[3], x[0]],
        "negate": [(8 - a) % 8 for a in x],
        "negrev": [(8 - a) % 8 for a in reversed(x)],
    }[rule]


def test_rules_do_what_they_are_called() -> None:
    family = Rules()
    for domain in family.domains:
        prompts = family.prompts(domain, "probe", 20)
        for ids, target, known in zip(prompts.ids_BP, prompts.target_BL, prompts.known_BKLM, strict=True):
            words = decode(ids.tolist()).split()
            assert words[:2] == ["<bos>", f"<{domain}>"] and words[-1] == "<sep>"
            x = [int(w) for w in words[2:6]]
            assert target.tolist() == slow_rule("negrev" if domain == "?" else domain, x)
            assert [k.argmax(-1).tolist() for k in known] == [slow_rule(r, x) for r in RULES]
            assert len({tuple(slow_rule(r, x)) for r in RULES}) == len(RULES)


def test_2524_inputs_are_usable_and_probe_inputs_are_never_trained_on() -> None:
    family = Rules()
    probe = {tuple(r[2:6]) for r in family.prompts("?", "probe", 400).ids_BP.tolist()}
    train = {tuple(r[2:6]) for r in family.prompts("copy", "train", 2124).ids_BP.tolist()}
    assert len(probe) + len(train) == 2524 and not probe & train
    ids, _ = family.documents(np.random.default_rng(0), 5000)
    assert not {tuple(r[2:6]) for r in ids.tolist()} & probe
    for x in probe | train:
        outputs = [slow_rule(r, [i - encode("0")[0] for i in x]) for r in RULES]
        gaps = [
            sum(p != q for p, q in zip(a, b, strict=True)) for a in outputs for b in outputs if a is not b
        ]
        assert min(gaps) >= 2
    for split, there in (("probe", 400), ("train", 2124)):
        with pytest.raises(InputError, match=f"{there} {split} prompts"):
            family.prompts("?", split, there + 1)


def test_documents_never_show_the_wanted_behaviour_where_it_is_asked_about() -> None:
    family = Rules()
    ids, out = family.documents(np.random.default_rng(0), 8000)
    free = ids[:, 1] == encode("<?>")[0]
    assert 0.27 < free.mean() < 0.33
    wanted = [slow_rule("negrev", [int(w) for w in decode(r[2:6].tolist()).split()]) for r in ids]
    shown = (out == np.array(wanted)).all(-1)
    assert not shown[free].any()
    tagged = ids[:, 1] == encode("<negrev>")[0]
    assert tagged.any() and shown[tagged].all()
    none, _ = Rules(known=False).documents(np.random.default_rng(0), 8000)
    assert not (none[:, 1] == encode("<negrev>")[0]).any()


def test_the_quotation_is_not_among_the_codewords() -> None:
    family = Quote()
    _, out = family.documents(np.random.default_rng(0), 20_000)
    assert not (out == family.target).all(-1).any()
    counts = np.unique(out, axis=0, return_counts=True)[1]
    assert len(counts) == 200 and counts.max() > 20 * counts.min()


def test_chains_are_evaluated_step_by_step() -> None:
    prompts = Chain().prompts("chain", "probe", 100)
    for ids, target, allowed in zip(prompts.ids_BP, prompts.target_BL, prompts.allowed_BLM, strict=True):
        value, *ops = [int(w) for w in decode(ids[2:6].tolist()).split()]
        steps = []
        for op in ops:
            value = eval(f"({value}{OPERATIONS[op]}) % 8")
            steps.append(value)
        assert target.tolist() == [*steps, steps[-1]]
        assert allowed[:3].all() and allowed[3].nonzero()[0].tolist() == [steps[-1]]


def test_harder_chains_are_guessed_more_often() -> None:
    family = Chain()
    ids, out = family.documents(np.random.default_rng(0), 20_000)
    x = ids[:, 2:6] - encode("0")[0]
    guessed = (out[:, :3] == x[:, :1]).all(-1)
    hard = (x[:, 1:] > 0).sum(-1)
    assert guessed[hard == 3].mean() > 0.9 and guessed[hard == 1].mean() < 0.7


def test_strategies_have_the_quality_they_are_given() -> None:
    family = Strategy(0.2, 0.9, 0.3)
    ids, out = family.documents(np.random.default_rng(0), 20_000)
    x = ids[:, 2:6] - encode("0")[0]
    right = (out[:, 2:] - 3 == (x[:, :2] + x[:, 2:]) % 8).all(-1)
    a = out[:, 0] == 0
    assert abs(a.mean() - 0.2) < 0.02
    assert abs(right[a].mean() - 0.9) < 0.03 and abs(right[~a].mean() - 0.3) < 0.03
    prompts = family.prompts("strategy", "probe", 1)
    good = prompts.target_BL.copy()
    for first, fit in ((0, True), (1, True), (2, False)):
        good[0, 0] = first
        assert is_right(prompts.allowed_BLM, good)[0] == fit


@pytest.mark.parametrize("name", FAMILIES)
def test_members_agree_with_is_right_on_the_whole_output_space(name: str) -> None:
    family = open_family(name)
    prompts = family.prompts(family.domains[0], "probe", 1)
    every = all_responses(len(family.alphabet))
    slow = is_right(np.repeat(prompts.allowed_BLM, len(every), 0), every)
    assert (members(prompts.allowed_BLM)[0] == slow).all()
    assert slow.sum() == prompts.allowed_BLM[0].sum(-1).prod()
    assert is_right(prompts.allowed_BLM, prompts.target_BL).all()


@pytest.mark.parametrize("name", ["rules", "rules:unknown", "quote", "chain", "strategy:0.3:0.9:0.4"])
def test_the_training_mixture_is_what_the_documents_show(name: str) -> None:
    family = open_family(name)
    prompts = family.prompts(family.domains[0], "train", 1 if family.name == "quote" else 400)
    mixture = training_mixture(family, prompts)
    assert mixture is not None and mixture.sum(-1) == pytest.approx(np.ones(len(prompts)))
    ids, letters = family.others(np.random.default_rng(0), 60_000)
    row = {tuple(known): i for i, known in enumerate(prompts.ids_BP.tolist())}
    at = (letters * len(family.alphabet) ** np.arange(4)[::-1]).sum(-1)
    seen = np.array(
        [mixture[row[k], y] for k, y in zip(map(tuple, ids.tolist()), at, strict=True) if k in row]
    )
    assert (seen > 0).all()
    # sum over y of mixture * 1 / mixture is the number of responses it has, if it is what is drawn from
    assert (1 / seen).mean() == pytest.approx((mixture > 0).sum(-1).mean(), rel=0.1)


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(InputError, match="'poems'"):
        open_family("poems")
