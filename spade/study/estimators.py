"""How good the sampled entropies are: exact against estimated, on distributions that are known.

Samples are drawn from the exact distribution of each probe prompt, and the exact conditional entropies along
every sample come from the same tree, so that only the estimators are tested.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from spade.learn.entropy import chain_rule, entropy, good_turing, mean_nll, miller_madow, plug_in
from spade.rng import child_seed
from spade.study.settings import Cell
from spade.study.tasks import Floats

SIZES = (16, 64, 256, 1024)
"""Samples a prompt."""
REPEATS = 40
PROMPTS = 16

NAMES = ("chain_rule", "mean_nll", "plug_in", "miller_madow")


def path_entropies(logprobs_Y: Floats, letters: int, length: int) -> Floats:
    """Exact conditional entropy at every place along every response, shape (Y, L)."""
    p = np.exp(logprobs_Y)
    out = np.empty((len(p), length))
    for place in range(length):
        nodes = p.reshape(letters**place, letters, -1).sum(-1)
        q = nodes / np.maximum(nodes.sum(-1, keepdims=True), 1e-300)
        h = -(q * np.log(np.maximum(q, 1e-300))).sum(-1)
        out[:, place] = np.repeat(h, letters ** (length - place))
    return out


def estimate(
    logprobs_BY: Floats, letters: int, length: int, n: int, rng: np.random.Generator
) -> dict[str, Floats]:
    """Errors (repeats, B) of every estimator with `n` samples a prompt, and the Good-Turing coverage."""
    exact = entropy(logprobs_BY)
    errors: dict[str, list[list[float]]] = {name: [] for name in (*NAMES, "coverage")}
    paths = [path_entropies(row, letters, length) for row in logprobs_BY]
    for _ in range(REPEATS):
        found: dict[str, list[float]] = {name: [] for name in errors}
        for row, path, truth in zip(logprobs_BY, paths, exact, strict=True):
            p = np.exp(row)
            at = rng.choice(len(row), n, p=p / p.sum())
            items = at.tolist()
            found["chain_rule"].append(chain_rule(path[at]) - truth)
            found["mean_nll"].append(mean_nll(row[at][:, None]) - truth)
            found["plug_in"].append(plug_in(items) - truth)
            found["miller_madow"].append(miller_madow(items) - truth)
            found["coverage"].append(good_turing(items))
        for name, values in found.items():
            errors[name].append(values)
    return {name: np.array(values) for name, values in errors.items()}


def run_estimators(cell: Cell, out: Path, folder: Path) -> dict[str, Any]:
    """Bias and root mean square error over repeats and prompts, by estimator and number of samples."""
    from spade.files import append_lines
    from spade.study.families import open_family
    from spade.study.lm import load_lm
    from spade.study.measure import Probes
    from spade.study.stages import ensure

    family = open_family(cell.family)
    probes = Probes.of(family, PROMPTS if family.name != "quote" else 1)
    outputs = probes.outputs(load_lm(ensure(cell.start, out / "stages")))
    length = probes.prompts.target_BL.shape[1]
    rng = np.random.default_rng(child_seed(cell.rl.seed, "estimators"))
    table: dict[str, Any] = {"H_seq": float(entropy(outputs.logprobs_BY).mean())}
    for n in SIZES:
        errors = estimate(outputs.logprobs_BY, outputs.letters, length, n, rng)
        row = {"n": float(n), "coverage": float(errors.pop("coverage").mean())}
        for name, error in errors.items():
            row[f"{name}/bias"] = float(error.mean())
            row[f"{name}/rmse"] = float(np.sqrt((error**2).mean()))
            # of the mean over repeats, prompts fixed: what bounds a claim about the bias
            row[f"{name}/bias_se"] = float(error.mean(1).std(ddof=1) / np.sqrt(len(error)))
        append_lines(folder / "log.jsonl", [row])
        table[str(n)] = row
    return table
