"""The verbs that look at one checkpoint: preflight, entropy, prior, dial."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spade.errors import InputError
from spade.files import write_json
from spade.study.families import open_family
from spade.study.preflight import Preflight, preflight
from spade.study.settings import Start
from spade.study.tables import Table, num
from spade.study.tasks import Floats

FAMILIES = ("rules", "quote", "chain", "strategy")
POOL = 1000
"""Training prompts over which a prior is summed."""
SAMPLED_PROMPTS = 256


def check_temperature(*values: float) -> None:
    """Raise `InputError` for a temperature that cannot be sampled at."""
    for value in values:
        if not 0 < value < math.inf:
            raise InputError(f"a temperature of {value:g} cannot be sampled at; give one above 0.")


def study_folder(ref: str, family: str = "rules") -> Path:
    """Folder of a study model: a path, `trunk`, or a prior such as 1e-3 among the shipped ones.

    Raises `InputError` when there is none.
    """
    path = Path(ref).expanduser()
    if (path / "config.json").is_file():
        return path
    found = shipped(ref, family)
    if found is None:
        raise InputError(f"there is no study model '{ref}'; give a folder, trunk, or one of 1e-5 ... 1e-2.")
    return found


def shipped(ref: str, family: str = "rules") -> Path | None:
    """Folder of a shipped checkpoint by its name: `trunk` (or `never`), or a prior such as 1e-3."""
    from spade.study.stages import FIXTURE, find

    start = Start(family, chain=() if ref in ("trunk", "never") else (f"dial={ref}",))
    return find(start, FIXTURE)


def is_study_model(ref: str) -> bool:
    """Whether a reference names a model of the study: a folder with its vocabulary, or a shipped one."""
    from spade.study.hf import has_study_vocabulary

    path = Path(ref).expanduser()
    if path.is_dir():
        return has_study_vocabulary(path)
    return shipped(ref) is not None or re.fullmatch(r"[0-9.]+e-?[0-9]+", ref) is not None


def preflight_of(ckpt: str, task: str, rollouts: int, group: int, temperature: float, n: int) -> Preflight:
    """`spade study preflight`: exact for a study task, by listed targets for a file of prompts.

    Raises `InputError` for a task, checkpoint, temperature or number of samples that cannot be used.
    """
    check_temperature(temperature)
    if n < 0:
        raise InputError(f"--n {n} samples a prompt cannot be drawn; give 0 or more.")
    if task.partition(":")[0] in FAMILIES:
        mass_at, sampled = _study_prior(ckpt, task, temperature, n)
    elif Path(task).is_file():
        mass_at, sampled = _file_prior(ckpt, task, temperature, n)
    else:
        raise InputError(f"there is no task '{task}'; use {', '.join(FAMILIES)}, or a file of prompts.")
    return preflight(mass_at, rollouts, group, temperature, sampled)


def _study_prior(
    ckpt: str, task: str, temperature: float, n: int
) -> tuple[Callable[[float], Floats], tuple[int, int] | None]:
    import torch

    from spade.study.lm import load_lm
    from spade.study.measure import right_mass
    from spade.study.packed import sample_groups
    from spade.study.tasks import is_right

    family = open_family(task)
    model = load_lm(study_folder(ckpt, task))
    pool = family.prompts(family.domains[0], "train", 1 if family.name == "quote" else POOL)
    sampled = None
    if n > 0:
        some = pool.take(np.arange(min(len(pool), SAMPLED_PROMPTS)))
        length = some.target_BL.shape[1]
        generator = torch.Generator().manual_seed(0)
        ids = torch.from_numpy(some.ids_BP)
        y, _ = sample_groups(model, ids, family.alphabet, length, n, temperature, generator)
        right = is_right(np.repeat(some.allowed_BLM, n, 0), y.numpy().reshape(-1, length))
        sampled = (int(right.sum()), right.size)
    return lambda heat: right_mass(model, family, pool, heat), sampled


def _file_prior(
    ckpt: str, task: str, temperature: float, n: int
) -> tuple[Callable[[float], Floats], tuple[int, int] | None]:
    from spade.study.hf import open_checkpoint, profile, read_prompts, target_mass

    opened = open_checkpoint(ckpt)
    prompts = read_prompts(opened, task)
    sampled = None
    if n > 0:
        longest = max(len(opened.chat.renderer.encode(t)) for p in prompts for t in p.targets) + 1
        share = profile(opened, prompts, n, longest, temperature, 0).figures.get("wanted", 0.0)
        sampled = (round(share * n * len(prompts)), n * len(prompts))
    return lambda heat: target_mass(opened, prompts, heat), sampled


def prior_of(ckpt: str, target: str, temperatures: Sequence[float]) -> list[dict[str, float]]:
    """`spade study prior`: exact mass of the listed targets at each temperature."""
    from spade.study.hf import open_checkpoint, read_prompts, target_mass

    check_temperature(*temperatures)
    if not Path(target).is_file():
        raise InputError(f"there is no file {target}; it holds JSON lines with 'prompt' and 'targets'.")
    opened = open_checkpoint(ckpt)
    prompts = read_prompts(opened, target)
    rows = []
    for heat in temperatures:
        mass = target_mass(opened, prompts, heat)
        geometric = float(np.exp(np.log(np.maximum(mass, 1e-300)).mean()))
        row = {
            "temperature": heat,
            "mean": float(mass.mean()),
            "geometric": geometric,
            "min": float(mass.min()),
        }
        rows.append(row)
    return rows


def entropy_of(
    ckpts: Sequence[str], what: str | None, target: str | None, n: int, max_tokens: int | None,
    temperature: float, seed: int, out: Path | None,
) -> tuple[str, list[dict[str, Any]]]:  # fmt: skip
    """`spade study entropy`: a table of all checkpoints, changes against the first; files into `out`."""
    from spade.study.hf import compare, open_checkpoint, profile, read_prompts, target_mass

    check_temperature(temperature)
    first: Any = None
    rows: list[dict[str, Any]] = []
    for ref in ckpts:
        opened = open_checkpoint(ref)
        prompts = read_prompts(opened, what)
        limit = max_tokens or (4 if opened.is_study else 48)
        mine = profile(opened, prompts, n, limit, temperature, seed)
        row: dict[str, Any] = {"checkpoint": ref, **mine.figures}
        if target is not None:
            row["target mass"] = float(target_mass(opened, read_prompts(opened, target), temperature).mean())
        if first is None:
            first = (opened, mine)
        else:
            row |= compare(first, (opened, mine))
        rows.append(row)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    header = ["figure", *(row["checkpoint"] for row in rows)]
    body = [[key, *(num(row.get(key)) for row in rows)] for key in columns if key != "checkpoint"]
    title = f"Entropy of {len(rows)} checkpoint{'s' if len(rows) > 1 else ''}, changes against the first"
    table = Table("entropy", title, header, body, (), "nats; H_seq by the chain rule; divergences a token.")
    if out is not None:
        from spade.study.figures import draw_profiles

        out.mkdir(parents=True, exist_ok=True)
        table.write(out)
        write_json(out / "entropy.json", {"rows": rows})
        draw_profiles(rows, out)
    return table.markdown(), rows


def dial_to(ckpt: str, task: str, rho: float, method: str, seed: int, out: Path) -> dict[str, float]:
    """`spade study dial`: apply one stage to a study model and write the result; returns what it measures."""
    from spade.study.lm import load_lm
    from spade.study.recipes import Recipe, recipe_for
    from spade.study.stages import measure_start, run_stage

    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty; choose another folder with --out.")
    if not (0 < rho < 1) and method != "raw":
        raise InputError(f"--rho {rho} is no share; give a number between 0 and 1.")
    if method == "raw" and (rho < 1 or rho != int(rho)):
        raise InputError(f"--rho {rho:g} is no number of steps, which --method raw takes; give 1 or more.")
    family = open_family(task)
    model = load_lm(study_folder(ckpt, task))
    recipe = next((recipe_for(n) for n in ("XS", "S0", "S1", "S2", "S3") if _has_size(model, n)), Recipe())
    stage = {"hinge": f"dial={rho:g}", "mix": f"mix={rho:g}", "raw": f"raw={int(rho)}"}[method]
    run_stage(model, family, recipe, f"{stage}~{seed}", 0)
    measured = measure_start(model, family)
    model.save(out)
    write_json(
        out / "stage.json", {"from": ckpt, "task": task, "stage": stage, "seed": seed, "measured": measured}
    )
    return measured


def _has_size(model: Any, name: str) -> bool:
    from spade.study.lm import SIZES

    return bool(model.shape == SIZES[name])
