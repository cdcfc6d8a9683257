"""Exact metrics of a model on frozen probe prompts. Entropies in nats; definitions: docs/study.md."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spade.learn.entropy import (
    coverage,
    divergence,
    entropy,
    grouped,
    mutual_information,
    pass_at_k,
    support,
    total_variation,
)
from spade.study.exact import Outputs, enumerate_outputs, response_logprobs
from spade.study.lm import TinyLM
from spade.study.mixture import training_mixture
from spade.study.tasks import Bools, Family, Floats, Ints, Prompts, all_responses, joined, members

PASS_K = (1, 4, 16, 64, 256, 1024, 4096)
SUPPORT = (1e-2, 1e-4, 1e-6)
"""Probabilities above which an output counts as supported."""
COVERAGE = (10, 100, 1000)
"""Ratios of training mixture to model at which the coverage profile is read."""
DOMAIN_PROBES = 16
"""Probe prompts of every other domain."""
ENTROPY_PROBES = 4
"""Those of them whose outputs are enumerated."""
FEW = 8
"""Right responses up to which scoring each is cheaper than enumerating all."""


@dataclass(frozen=True)
class Probes:
    """Frozen prompts, and what is right on them: the domain asked about, and all others for forgetting."""

    family: Family
    prompts: Prompts
    right_BY: Bools
    labels_BY: Ints
    """Behaviour of every output, the first that fits; K for none."""
    answers_Y: Ints
    """Answer of every output."""
    others: Prompts | None
    mixture_BY: Floats | None = None
    """Probability of every output among the training documents."""

    @classmethod
    def of(cls, family: Family, count: int) -> Probes:
        """The first `count` probe prompts of the family's first domain, 16 of every other."""
        prompts = family.prompts(family.domains[0], "probe", count)
        known_BKLM = prompts.known_BKLM
        kinds = known_BKLM.shape[1]
        labels = np.full((len(prompts), len(family.alphabet) ** prompts.target_BL.shape[1]), kinds)
        for kind in reversed(range(kinds)):
            labels[members(known_BKLM[:, kind])] = kind
        responses = all_responses(len(family.alphabet))[:, list(family.answer_places)]
        powers = len(family.alphabet) ** np.arange(len(family.answer_places))
        rest = [family.prompts(d, "probe", DOMAIN_PROBES) for d in family.domains[1:]]
        others = joined(rest) if rest else None
        answers = (responses * powers).sum(-1)
        right, mixture = members(prompts.allowed_BLM), training_mixture(family, prompts)
        return cls(family, prompts, right, labels, answers, others, mixture)

    def outputs(self, model: TinyLM, temperature: float = 1.0) -> Outputs:
        """The exact distribution on the probe prompts."""
        length = self.prompts.target_BL.shape[1]
        return enumerate_outputs(model, self.prompts.ids_BP, self.family.alphabet, length, temperature)

    def mass(self, outputs: Outputs) -> Floats:
        """Probability of a right output, by prompt."""
        return np.asarray(np.where(self.right_BY, np.exp(outputs.logprobs_BY), 0.0).sum(-1))


def distribution_metrics(probes: Probes, outputs: Outputs) -> dict[str, float]:
    """Mass and entropies of one distribution."""
    logp, mass = outputs.logprobs_BY, probes.mass(outputs)
    kinds = probes.prompts.known_BKLM.shape[1]
    behaviour = grouped(logp, probes.labels_BY, kinds + 1)
    answers = grouped(logp, np.broadcast_to(probes.answers_Y, logp.shape), int(probes.answers_Y.max()) + 1)
    within = np.where(probes.right_BY, logp - np.log(np.maximum(mass, 1e-300))[:, None], -np.inf)
    top = max(1, len(mass) // 100)
    out = {
        "mass": float(mass.mean()),
        "mass_geometric": float(np.exp(np.log(np.maximum(mass, 1e-300)).mean())),
        "mass_min": float(mass.min()),
        "mass_top_share": float(np.sort(mass)[-top:].sum() / max(mass.sum(), 1e-300)),
        "greedy": float(np.take_along_axis(probes.right_BY, logp.argmax(-1)[:, None], 1).mean()),
        "H_seq": float(entropy(logp).mean()),
        "H_beh": _entropy_of(behaviour),
        "H_ans": _entropy_of(answers),
        "H_correct": float(entropy(within).mean()),
        "MI": mutual_information(logp),
        "other": float(behaviour[:, -1].mean()),
        "off_grammar": float(outputs.off_grammar_B.mean()),
    }
    out |= {f"H_tok/{i + 1}": float(h) for i, h in enumerate(outputs.place_entropy_BL.mean(0))}
    out |= {f"pass@{k}": pass_at_k(mass, k) for k in PASS_K}
    if (mixture := probes.mixture_BY) is not None:
        out |= {f"coverage@{n}": coverage(mixture, logp, n) for n in COVERAGE}
    return out | {f"support@{eps:g}": float((logp > np.log(eps)).sum(-1).mean()) for eps in SUPPORT}


def change_metrics(probes: Probes, base: Outputs, outputs: Outputs) -> dict[str, float]:
    """What differs from a base distribution on the same probes."""
    before, after = base.logprobs_BY, outputs.logprobs_BY
    out = {
        "KL": float(divergence(after, before).mean()),
        "KL_reverse": float(divergence(before, after).mean()),
        "TV": float(total_variation(after, before).mean()),
    }
    for eps in SUPPORT:
        moved = support(before, after, probes.right_BY, eps)
        out |= {f"{name}@{eps:g}": n / len(probes.prompts) for name, n in moved.items()}
    crossing = next((k for k in PASS_K if _passes(probes, base, k) > _passes(probes, outputs, k)), None)
    return out | ({"crossing_k": float(crossing)} if crossing is not None else {})


def other_domains(probes: Probes, model: TinyLM) -> dict[str, float]:
    """Exact mass of the right response in each other domain, and their mean; empty without other domains."""
    others = probes.others
    if others is None:
        return {}
    mass = np.exp(response_logprobs(model, others.ids_BP, others.target_BL, probes.family.alphabet))
    names = np.array(others.domains)
    by_domain = {f"domain/{d}": float(mass[names == d].mean()) for d in probes.family.domains[1:]}
    return by_domain | {"others": float(mass.mean()), "others_min": min(by_domain.values())}


def other_entropy(probes: Probes, model: TinyLM) -> float | None:
    """Mean exact entropy over a few prompts of every other domain."""
    others = probes.others
    if others is None:
        return None
    chosen = others.take([i for i in range(len(others)) if i % DOMAIN_PROBES < ENTROPY_PROBES])
    length = others.target_BL.shape[1]
    outputs = enumerate_outputs(model, chosen.ids_BP, probes.family.alphabet, length)
    return float(entropy(outputs.logprobs_BY).mean())


def right_mass(model: TinyLM, family: Family, prompts: Prompts, temperature: float) -> Floats:
    """Exact mass of right responses by prompt; by plain scoring of each where only a few are right."""
    if prompts.allowed_BLM.sum(-1).prod(-1).max() <= FEW:
        owner, place = np.nonzero(members(prompts.allowed_BLM))
        right = all_responses(len(family.alphabet), prompts.target_BL.shape[1])[place]
        logp = response_logprobs(model, prompts.ids_BP[owner], right, family.alphabet, temperature)
        return np.asarray(np.bincount(owner, np.exp(logp), len(prompts)), np.float64)
    length = prompts.target_BL.shape[1]
    outputs = enumerate_outputs(model, prompts.ids_BP, family.alphabet, length, temperature)
    return np.asarray(np.where(members(prompts.allowed_BLM), np.exp(outputs.logprobs_BY), 0.0).sum(-1))


def _passes(probes: Probes, outputs: Outputs, k: int) -> float:
    return pass_at_k(probes.mass(outputs), k) - 1e-9


def _entropy_of(p_BK: Floats) -> float:
    return float(-(p_BK * np.log(np.maximum(p_BK, 1e-300))).sum(-1).mean())
