"""The dial: set the mass of the wanted behaviour on every prompt, and keep all else.

Where every known behaviour is one response, what is to be kept has an exact form (`Keeper`); elsewhere the
documents of pretraining alone hold it. A dialled start is judged by exact figures before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spade.errors import SpadeError
from spade.study.lm import TinyLM
from spade.study.packed import group_logprobs
from spade.study.recipes import Recipe
from spade.study.settings import Start
from spade.study.tasks import Bools, Family, Ints, one_hot
from spade.study.training import document_loss, fit

DIAL_PROMPTS = 48
"""Prompts of one dialling step."""
DIAL_POOL = 2000
"""Training prompts that are dialled."""
CALIBRATION_PROMPTS = 1000
BISECTIONS = 12
KEEPER_CHUNK = 250
"""Prompts in one pass of the parent."""
OFF_GRAMMAR_MAX = 1e-3
"""Most mass that the unrestricted model may put outside the alphabet, mean over held-out prompts."""
OUTSIDE_MAX = 0.12
"""Most mass outside every known behaviour, mean over held-out prompts, with which a dialled start is kept."""
CALIBRATED = 1.25
"""Most factor between the mass that was asked for and the mean over the calibration prompts."""


class DialRejected(SpadeError):
    """A dialled start missed its mass, forgot a tag, or says what belongs to no behaviour."""


def single_behaviours(family: Family) -> bool:
    """Whether every known behaviour of the first domain is one response, with more than one prompt."""
    return family.name == "rules"


def judge_dial(start: Start, measured: dict[str, float]) -> None:
    """Refuse a dialled start by what was measured on it. Raises `DialRejected`."""
    rho = float(start.chain[-1].partition("=")[2].partition("~")[0])
    faults = []
    if measured.get("outside", 0.0) > OUTSIDE_MAX:
        faults.append(f"{measured['outside']:.3f} of the mass is outside every known behaviour")
    if measured["off_grammar"] > OFF_GRAMMAR_MAX:
        faults.append(f"{measured['off_grammar']:.2g} of the mass is outside the alphabet")
    if measured.get("domains_min", 1.0) < start.recipe.gate:
        faults.append(f"the right response of one tag has {measured['domains_min']:.4f}")
    if not 1 / CALIBRATED <= measured.get("mass_train", rho) / rho <= CALIBRATED:
        faults.append(f"the mass over training prompts is {measured['mass_train']:.2g}, not {rho:g}")
    if faults:
        raise DialRejected(
            f"the start {'/'.join(start.chain)} of {start.size} seed {start.trunk_seed} is not clean: "
            f"{'; '.join(faults)}. Use more dial steps or more weight on `dial_keep`."
        )


def dial(model: TinyLM, family: Family, recipe: Recipe, rho: float, rng: np.random.Generator) -> None:
    """Set the exact mass of the wanted behaviour to `rho` on training prompts, all else retained.

    Loss: cross-entropy on the pretraining mixture + dial_keep * divergence from the parent on the dialled
    prompts (`Keeper`, where every behaviour is one response) + dial_weight * mean error of
    gap = log mass - log rho. The error is gap^2 / 2 above the target, so that the few prompts which hold
    most of the mass come down, and sqrt(1 + gap^2) - 1 below it, so that retention is not drowned where the
    way is long. Then the weights are moved along the line from where they came from until the mean mass on
    training prompts is `rho` (`calibrate`).
    """
    ids, allowed = _wanted_pool(family)
    before = [p.detach().clone() for p in model.parameters()]
    keeper = Keeper.of(model, family, rho) if single_behaviours(family) and recipe.dial_keep else None

    def loss(_: int) -> Tensor:
        keep = document_loss(model, family, *family.documents(rng, recipe.dial_batch))
        rows = rng.integers(0, len(ids), DIAL_PROMPTS)
        gap = allowed_logmass(model, family, ids[rows], allowed[rows]) - float(np.log(rho))
        if keeper is not None:
            keep = keep + recipe.dial_keep * keeper.divergence(model, rows)
        below, above = torch.sqrt(1 + gap * gap) - 1, gap * gap / 2
        return keep + recipe.dial_weight * torch.where(gap < 0, below, above).mean()

    fit(model, loss, recipe.dial_steps, recipe.dial_lr, end=0.02)
    calibrate(model, family, before, rho)


def calibrate(model: TinyLM, family: Family, before: list[Tensor], rho: float) -> None:
    """Move the weights along the line from `before` through the present ones (0.8 to 1.2 of the way) to
    where the mean mass on training prompts is `rho`; the nearest end if it is not on the way."""
    ids, allowed = _wanted_pool(family)
    ids, allowed = ids[:CALIBRATION_PROMPTS], allowed[:CALIBRATION_PROMPTS]
    after = [p.detach().clone() for p in model.parameters()]

    def place(share: float) -> float:
        with torch.no_grad():
            for p, a, b in zip(model.parameters(), before, after, strict=True):
                p.copy_(a + share * (b - a))
            return float(allowed_logmass(model, family, ids, allowed).double().exp().mean())

    low, high = 0.8, 1.2
    rising = place(high) > place(low)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if (place(middle) < rho) == rising:
            low = middle
        else:
            high = middle
    place((low + high) / 2)


def allowed_logmass(model: TinyLM, family: Family, ids_BP: Ints, allowed_BLM: Bools) -> Tensor:
    """Log-probability (B,) that every letter is allowed at its place, along the first allowed response.

    Exact where at most one place after the first leaves a choice that matters: one response, or a choice of
    the first letter.
    """
    letters = np.array(family.alphabet)
    rows = np.concatenate([ids_BP, letters[allowed_BLM.argmax(-1)[:, :-1]]], 1)
    logits = model.logits(model(torch.from_numpy(rows))[:, ids_BP.shape[1] - 1 :])
    logp = torch.log_softmax(logits[..., torch.from_numpy(letters)], -1)
    return torch.logsumexp(logp.masked_fill(~torch.from_numpy(allowed_BLM), float("-inf")), -1).sum(-1)


@dataclass(frozen=True)
class Keeper:
    """What a dialled model is to say on the dialled prompts, at all places along every known response.

    The teacher is the parent with the wanted response taken out, renormalised, and put back at `rho`:
    q(y) = (1 - rho) p(y) / (1 - p(wanted)) for all others. `joint_BKLM` is the mass under q of all responses
    that go along known response k up to a place and on with a letter; a prefix that several known responses
    share counts once (`share_BKL`). First exits from the known responses are all among these places.
    """

    ids_BP: Tensor
    known_BKL: Tensor
    joint_BKLM: Tensor
    share_BKL: Tensor
    letters: tuple[int, ...]

    @classmethod
    def of(cls, parent: TinyLM, family: Family, rho: float) -> Keeper:
        """The teacher on the pool of prompts that is dialled, from the present weights of `parent`."""
        prompts = family.prompts(family.domains[0], "train", DIAL_POOL)
        ids, letters = torch.from_numpy(prompts.ids_BP), family.alphabet
        known = torch.from_numpy(prompts.known_BKLM.argmax(-1))
        target = torch.from_numpy(prompts.target_BL)
        with torch.no_grad():
            parts = zip(torch.split(ids, KEEPER_CHUNK), torch.split(known, KEEPER_CHUNK), strict=True)
            logp = torch.cat([group_logprobs(parent, i, k, letters, 1.0) for i, k in parts]).double()
        taken = logp.gather(-1, known[..., None])[..., 0].cumsum(-1)
        reached = torch.cat([torch.zeros_like(taken[..., :1]), taken[..., :-1]], -1)
        joint = (reached[..., None] + logp).exp()
        wanted = (known == target[:, None]).all(-1)
        mass = taken[..., -1].exp()[wanted][:, None, None, None]
        on_way = _agreeing(known, target[:, None])
        to_wanted = on_way[..., None] & torch.nn.functional.one_hot(target, len(letters)).bool()[:, None]
        others = (joint - mass * to_wanted).clamp(min=0.0) / (1 - mass)
        shared = torch.stack([_agreeing(known, known[:, k : k + 1]) for k in range(known.shape[1])]).sum(0)
        q = (1 - rho) * others + rho * to_wanted
        return cls(ids, known, q.float(), 1.0 / shared.float(), letters)

    def divergence(self, model: TinyLM, rows: Ints) -> Tensor:
        """KL(teacher, model) along the known responses, nats a response, mean over the prompts `rows`."""
        at = torch.from_numpy(rows)
        vocabulary = range(model.vocab)  # what is outside the alphabet is not to grow
        letters = torch.tensor(self.letters)
        tokens = letters[self.known_BKL[at]]
        logp = group_logprobs(model, self.ids_BP[at], tokens, vocabulary, 1.0)[..., letters]
        joint = self.joint_BKLM[at]
        wanted_logp = (joint / joint.sum(-1, keepdim=True)).clamp(min=1e-12).log()
        return ((joint * (wanted_logp - logp)).sum(-1) * self.share_BKL[at]).sum((1, 2)).mean()


def _agreeing(some: Tensor, other: Tensor) -> Tensor:
    """Whether two responses (..., L) have the same letters before each place."""
    same = (some == other).cumprod(-1).bool()
    return torch.cat([torch.ones_like(same[..., :1]), same[..., :-1]], -1)


def _wanted_pool(family: Family) -> tuple[Ints, Bools]:
    """Training prompts of the first domain and the product sets of what a dial raises."""
    count = 1 if family.name == "quote" else DIAL_POOL
    prompts = family.prompts(family.domains[0], "train", count)
    if family.name == "strategy":  # the wanted behaviour is to choose strategy A, right or wrong
        return prompts.ids_BP, prompts.known_BKLM[:, 0]
    if family.name == "chain":  # the forward derivation, of all right ways
        return prompts.ids_BP, one_hot(prompts.target_BL, len(family.alphabet))
    return prompts.ids_BP, prompts.allowed_BLM
