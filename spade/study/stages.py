"""Stages before reinforcement learning: a trunk, then a chain of dials and fine-tunings, each cached by hash.

Training documents and all prompts used here are disjoint from the probe prompts.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from spade.errors import SpadeError
from spade.files import read_json, write_json
from spade.rng import child_seed
from spade.study.dials import (
    CALIBRATION_PROMPTS,
    OFF_GRAMMAR_MAX,
    dial,
    judge_dial,
    single_behaviours,
)
from spade.study.families import open_family
from spade.study.lm import SIZES, TinyLM, load_lm
from spade.study.measure import Probes, distribution_metrics, right_mass
from spade.study.recipes import Recipe
from spade.study.settings import STAGE, Start
from spade.study.tasks import Family, Ints
from spade.study.training import document_loss, fit
from spade.study.vocabulary import VOCAB

FIXTURE = Path(__file__).with_name("fixture")
"""Checkpoints that are shipped: one trunk and its dialled priors."""
PROBE_PROMPTS = 64
HELD_OUT = 400
"""Held-out prompts on which a finished checkpoint is measured: the mass is heavy-tailed over prompts."""
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
    """Build one checkpoint; it appears complete or not at all. Raises `TrunkRejected`
    or `DialRejected`; recipes with a gate of 0 (tests, smoke runs) are not judged."""
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
    if recipe.gate and parent is None:
        judge_trunk(start, measured)
    elif recipe.gate and start.chain[-1].startswith("dial="):
        judge_dial(start, measured)
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


def judge_trunk(start: Start, measured: dict[str, float]) -> None:
    """Refuse a trunk by what was measured on it. Raises `TrunkRejected`."""
    faults = []
    if measured.get("domains_min", 1.0) < start.recipe.gate:
        faults.append(f"puts only {measured['domains_min']:.4f} on the right response of one tag")
    if measured["off_grammar"] > OFF_GRAMMAR_MAX:
        faults.append(f"puts {measured['off_grammar']:.2g} outside the alphabet")
    if faults:
        raise TrunkRejected(
            f"the trunk {start.size} seed {start.trunk_seed} {' and '.join(faults)}; train it longer or use "
            "another seed."
        )


def measure_start(model: TinyLM, family: Family) -> dict[str, float]:
    """Exact figures of a start at temperature 1: mass of the wanted behaviour on held-out prompts, mass the
    unrestricted model puts outside the alphabet, and the least mass of any tag's own rule.

    Where every known behaviour is one response: also the mass over the calibration prompts, the mass outside
    every known behaviour and the entropy of the sequence in nats.
    """
    single = family.name == "quote"
    prompts = family.prompts(family.domains[0], "probe", 1 if single else HELD_OUT)
    mass = right_mass(model, family, prompts, 1.0)
    probes = Probes.of(family, 1 if single else PROBE_PROMPTS)
    metrics = distribution_metrics(probes, probes.outputs(model))
    out = {
        "mass": float(mass.mean()),
        "mass_geometric": float(np.exp(np.log(mass + 1e-300).mean())),
        "off_grammar": metrics["off_grammar"],
    }
    if single_behaviours(family):
        pool = family.prompts(family.domains[0], "train", CALIBRATION_PROMPTS)
        out |= {
            "mass_train": float(right_mass(model, family, pool, 1.0).mean()),
            "outside": metrics["other"],
            "entropy": metrics["H_seq"],
        }
    accuracies = []
    for domain in family.domains[1:]:
        tagged = family.prompts(domain, "probe", PROBE_PROMPTS)
        accuracies.append(float(right_mass(model, family, tagged, 1.0).mean()))
    return out | ({"domains_min": min(accuracies)} if accuracies else {})


# --- training --------------------------------------------------------------------------------------------


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


def _wanted_documents(family: Family) -> tuple[Ints, Ints]:
    count = 1 if family.name == "quote" else 1000
    prompts = family.prompts(family.domains[0], "train", count)
    return prompts.ids_BP, prompts.target_BL


def stage_record(folder: Path) -> dict[str, Any]:
    """`stage.json` of a checkpoint of the study."""
    return read_json(folder / "stage.json", "stage record")
