"""Stages before reinforcement learning: a trunk, then a chain of dials and fine-tunings, each cached by hash.

Training documents and all prompts used here are disjoint from the probe prompts.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spade.errors import SpadeError
from spade.files import read_json, write_json
from spade.rng import child_seed
from spade.study.families import open_family
from spade.study.lm import SIZES, TinyLM, load_lm
from spade.study.measure import right_mass
from spade.study.recipes import Recipe
from spade.study.settings import STAGE, Start
from spade.study.tasks import Bools, Family, Floats, Ints, one_hot
from spade.study.vocabulary import VOCAB

FIXTURE = Path(__file__).with_name("fixture")
"""Checkpoints that are shipped: one trunk and its dialled priors."""
PROBE_PROMPTS = 64
HELD_OUT = 400
"""Held-out prompts on which a finished checkpoint is measured: the mass is heavy-tailed over prompts."""
DIAL_PROMPTS = 48
"""Prompts of one dialling step."""
DIAL_POOL = 2000
"""Training prompts that are dialled."""
CALIBRATION_PROMPTS = 1000
BISECTIONS = 12
OFF_GRAMMAR_MAX = 1e-3
CHECK_EVERY = 5
"""Steps between looks at the mass while fine-tuning up to a given one."""


class TrunkRejected(SpadeError):
    """A pretrained trunk does not know its tags well enough to be studied."""


def find(start: Start, cache: Path) -> Path | None:
    """Folder of a finished checkpoint, in the cache or shipped; None if it has to be made."""
    for folder in (cache / start.key, FIXTURE / start.key):
        if (folder / "stage.json").is_file():
            return folder
    return None


def ensure(start: Start, cache: Path) -> Path:
    """Folder of the checkpoint of `start`, made now (with its parents) if it is not there yet."""
    found = find(start, cache)
    return found if found is not None else make(start, cache)


def make(start: Start, cache: Path) -> Path:
    """Build one checkpoint; it appears complete or not at all. Raises `TrunkRejected`."""
    start.check()
    parent = ensure(start.parent, cache) if start.parent is not None else None
    began = time.time()
    family, recipe = open_family(start.family), start.recipe
    if parent is None:
        model = TinyLM(SIZES[start.size], VOCAB, child_seed(start.trunk_seed, "init"))
        pretrain(model, family, recipe, child_seed(start.trunk_seed, "trunk"))
    else:
        model = load_lm(parent)
        run_stage(model, family, recipe, start.chain[-1], start.trunk_seed)
    measured = measure_start(model, family)
    if parent is None and recipe.gate and measured.get("domains_min", 1.0) < recipe.gate:
        raise TrunkRejected(
            f"the trunk {start.size} seed {start.trunk_seed} puts only {measured['domains_min']:.4f} on the "
            f"right response of one tag, below {recipe.gate}; train it longer or use another seed."
        )
    scratch = cache / f".{start.key}.partial"
    shutil.rmtree(scratch, ignore_errors=True)
    model.save(scratch)
    record = {
        "start": asdict(start), "recipe": asdict(recipe), "measured": measured,
        "seconds": round(time.time() - began, 1),
    }  # fmt: skip
    write_json(scratch / "stage.json", record)
    target = cache / start.key
    shutil.rmtree(target, ignore_errors=True)
    scratch.rename(target)
    return target


def measure_start(model: TinyLM, family: Family) -> dict[str, float]:
    """Exact mass of the wanted behaviour on probe prompts at temperature 1, and of each tag's rule."""
    prompts = family.prompts(family.domains[0], "probe", 1 if family.name == "quote" else HELD_OUT)
    mass = right_mass(model, family, prompts, 1.0)
    out = {"mass": float(mass.mean()), "mass_geometric": float(np.exp(np.log(mass + 1e-300).mean()))}
    accuracies = []
    for domain in family.domains[1:]:
        tagged = family.prompts(domain, "probe", PROBE_PROMPTS)
        accuracies.append(float(right_mass(model, family, tagged, 1.0).mean()))
    return out | ({"domains_min": min(accuracies)} if accuracies else {})


# --- training --------------------------------------------------------------------------------------------


def document_loss(model: TinyLM, family: Family, ids_BP: Ints, responses_BL: Ints) -> Tensor:
    """Cross-entropy of the response letters over the whole vocabulary, mean over letters."""
    letters = np.array(family.alphabet)[responses_BL]
    rows = torch.from_numpy(np.concatenate([ids_BP, letters[:, :-1]], 1))
    logits = model.logits(model(rows)[:, ids_BP.shape[1] - 1 :])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(letters).flatten())


def fit(
    model: TinyLM, loss_of: Callable[[int], Tensor], steps: int, lr: float, warmup: int = 0, end: float = 1.0,
    done: Callable[[int], bool] | None = None,
) -> int:  # fmt: skip
    """AdamW on `loss_of(step)`: warm-up, then linearly to `end` * lr; returns the steps taken."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    for step in range(steps):
        if done is not None and done(step):
            return step
        scale = min(1.0, (step + 1) / max(1, warmup)) * (1 - (1 - end) * step / steps)
        for row in optimiser.param_groups:
            row["lr"] = lr * scale
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss_of(step))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return steps


def pretrain(model: TinyLM, family: Family, recipe: Recipe, seed: int) -> None:
    """The trunk: documents of every domain, without the wanted behaviour in the first."""
    rng = np.random.default_rng(seed)

    def loss(_: int) -> Tensor:
        return document_loss(model, family, *family.documents(rng, recipe.batch))

    fit(model, loss, recipe.steps, recipe.lr, recipe.warmup, recipe.end)


def run_stage(model: TinyLM, family: Family, recipe: Recipe, stage: str, trunk_seed: int) -> None:
    """Apply one stage of a chain to `model` in place."""
    match = STAGE.fullmatch(stage)
    assert match is not None, "checked before"
    kind, value, until, seed = match.groups()
    rng = np.random.default_rng(child_seed(trunk_seed, "stage", kind, int(seed or 0)))
    if kind == "dial":
        dial(model, family, recipe, float(value), rng)
    elif kind == "raw":
        unlearn(model, family, recipe, int(value), rng)
    else:
        share = float(value)
        both = kind == "mix"
        fine_tune(model, family, recipe, share, rng, until=float(until or 0.0), everything=both)


def dial(model: TinyLM, family: Family, recipe: Recipe, rho: float, rng: np.random.Generator) -> None:
    """Set the exact mass of the wanted behaviour to `rho` on training prompts, all else retained.

    Loss: cross-entropy on the pretraining mixture + weight * mean error of gap = log mass - log rho. The
    error is gap^2 / 2 above the target, so that the few prompts which hold most of the mass come down, and
    sqrt(1 + gap^2) - 1 below it, so that retention is not drowned where the way is long. Then the weights
    are moved along the line from where they came from until the mean mass on training prompts is `rho`
    (`calibrate`).
    """
    ids, allowed = _wanted_pool(family)
    before = [p.detach().clone() for p in model.parameters()]

    def loss(_: int) -> Tensor:
        keep = document_loss(model, family, *family.documents(rng, recipe.dial_batch))
        rows = rng.integers(0, len(ids), DIAL_PROMPTS)
        gap = allowed_logmass(model, family, ids[rows], allowed[rows]) - float(np.log(rho))
        below, above = torch.sqrt(1 + gap * gap) - 1, gap * gap / 2
        return keep + recipe.dial_weight * torch.where(gap < 0, below, above).mean()

    fit(model, loss, recipe.dial_steps, recipe.dial_lr, end=0.02)
    calibrate(model, family, before, rho)


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


def unlearn(model: TinyLM, family: Family, recipe: Recipe, steps: int, rng: np.random.Generator) -> None:
    """The original's SFT-: cross-entropy on the wanted documents is maximised, with nothing to hold it."""
    ids, responses = _wanted_documents(family)

    def loss(_: int) -> Tensor:
        rows = rng.integers(0, len(ids), recipe.sft_batch)
        return -document_loss(model, family, ids[rows], responses[rows])

    fit(model, loss, steps, recipe.raw_lr)


def fine_tune(
    model: TinyLM, family: Family, recipe: Recipe, share: float, rng: np.random.Generator,
    until: float = 0.0, everything: bool = False,
) -> None:  # fmt: skip
    """SFT with this share of wanted documents. The others come from the first domain, or with `everything`
    from the whole pretraining mixture (then 400 steps, and the share is of all documents)."""
    wanted_ids, wanted = _wanted_documents(family)
    probes = family.prompts(family.domains[0], "probe", PROBE_PROMPTS)

    def loss(_: int) -> Tensor:
        count = int(rng.binomial(recipe.sft_batch, share))
        rows = rng.integers(0, len(wanted_ids), count)
        rest = (family.documents if everything else family.others)(rng, recipe.sft_batch - count)
        ids, responses = (np.concatenate(x) for x in zip((wanted_ids[rows], wanted[rows]), rest, strict=True))
        return document_loss(model, family, ids, responses)

    def done(step: int) -> bool:
        return step % CHECK_EVERY == 0 and float(right_mass(model, family, probes, 1.0).mean()) >= until

    steps = 400 if everything else (2000 if until else recipe.sft_steps)
    fit(model, loss, steps, recipe.sft_lr, done=done if until else None)


def _wanted_pool(family: Family) -> tuple[Ints, Bools]:
    """Training prompts of the first domain and the product sets of what a dial raises."""
    count = 1 if family.name == "quote" else DIAL_POOL
    prompts = family.prompts(family.domains[0], "train", count)
    if family.name == "strategy":  # the wanted behaviour is to choose strategy A, right or wrong
        return prompts.ids_BP, prompts.known_BKLM[:, 0]
    if family.name == "chain":  # the forward derivation, of all right ways
        return prompts.ids_BP, one_hot(prompts.target_BL, len(family.alphabet))
    return prompts.ids_BP, prompts.allowed_BLM


def _wanted_documents(family: Family) -> tuple[Ints, Ints]:
    count = 1 if family.name == "quote" else 1000
    prompts = family.prompts(family.domains[0], "train", count)
    return prompts.ids_BP, prompts.target_BL


def stage_record(folder: Path) -> dict[str, Any]:
    """`stage.json` of a checkpoint of the study."""
    return read_json(folder / "stage.json", "stage record")


def mass_of(model: TinyLM, family: Family, temperature: float = 1.0) -> Floats:
    """Exact mass of right responses on the probe prompts of the first domain."""
    prompts = family.prompts(family.domains[0], "probe", PROBE_PROMPTS)
    return right_mass(model, family, prompts, temperature)
