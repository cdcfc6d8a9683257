"""Figures of the experiments outside the quick preset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from spade.study.figures import FLOOR, Rows, curves, label, look, new_figure, points, save
from spade.study.tables import end, levels, of, start
from spade.study.verdicts import Run, chosen


def proxy(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """E4: exact mass, and what the reward pays, over training."""
    figure, (first, second) = new_figure(2)
    curves(first, runs, rows, "mass")
    curves(second, runs, rows, "train/reward")
    label(first, "exact mass of the wanted behaviour", "step", "mass")
    label(second, "what the reward pays", "step", "mean reward")
    return save(figure, folder, "E4-proxy")


def quality(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """E6: change of accuracy under a random reward, by prior and number of prompts."""
    figure, (axis,) = new_figure(1)
    names = levels(runs, "prior")
    for number, count in enumerate(levels(runs, "prompts")):
        dots(axis, runs, "prior", names, lambda r: end("mass")(r) - start("mass")(r), number,
             f"prompts: {count}", prompts=count)  # fmt: skip
    axis.axhline(0, color="#888888", linewidth=0.8)
    axis.set_xticks(range(len(names)), names, rotation=20, fontsize=8)
    label(
        axis, "random reward: change of accuracy", "share of strategy A, and whether it is better", "change"
    )
    return save(figure, folder, "E6-quality")


def ladder(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """E9: entropy over training, a row of panels for each prior, one panel for each reward."""
    rewards, priors = levels(runs, "reward"), levels(runs, "prior")
    figure, axes = new_figure(len(rewards), rows=len(priors))
    for axis, (prior, reward) in zip(axes, product(priors, rewards), strict=True):
        curves(axis, chosen(runs, reward=reward, prior=prior), rows, "H_seq")
        label(axis, f"reward: {reward}, prior {prior}", "step", "H_seq, nats")
    return save(figure, folder, "E9-ladder")


def size(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """E10: take-off and final mass by size, one series for each prior."""
    figure, (first, second) = new_figure(2)
    names = levels(runs, "size")
    for number, prior in enumerate(levels(runs, "prior")):
        risen = [r for r in runs if r.summary["takeoff"] is not None]
        dots(first, risen, "size", names, of("takeoff"), number, f"prior {prior}", prior=prior)
        dots(second, runs, "size", names, end("mass"), number, f"prior {prior}", prior=prior)
    for axis in (first, second):
        axis.set_xticks(range(len(names)), names)
    label(first, "take-off by size", "size", "first step with mass >= .5")
    label(second, "exact mass at the end", "size", "mass")
    return save(figure, folder, "E10-size")


def prompts(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """E11: mass on the prompts trained on and on held-out ones, by number of prompts."""
    figure, (axis,) = new_figure(1)
    names = levels(runs, "prompts")
    dots(axis, runs, "prompts", names, end("mass"), 0, "held out")
    trained = [r for r in runs if "pool_mass" in r.summary]
    dots(axis, trained, "prompts", names, of("pool_mass"), 1, "trained on")
    axis.set_xticks(range(len(names)), names)
    label(axis, "exact mass at the end", "prompts trained on", "mass")
    return save(figure, folder, "E11-prompts")


def heat(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """E12: success against the prior at the temperature of the rollouts."""
    figure, (axis,) = new_figure(1)
    for number, level in enumerate(levels(runs, "temperature")):
        here = chosen(runs, temperature=level)
        x = [max(of("p0")(r), FLOOR) for r in here]
        axis.plot(x, [max(end("mass")(r), FLOOR) for r in here], label=f"T = {level}", **points(number))
    axis.axhline(0.5, color="#888888", linewidth=0.8)
    axis.set_xscale("log")
    axis.set_yscale("log")
    label(axis, "final mass (line: success)", "prior at the temperature of the rollouts", "exact mass, T = 1")
    return save(figure, folder, "E12-temperature")


def dots(
    axis: Any, runs: Sequence[Run], factor: str, names: Sequence[str], value: Callable[[Run], float],
    number: int, text: str, **rest: str,
) -> None:  # fmt: skip
    """Every run as a dot over its level of `factor`, and a line through the means."""
    x, y = [], []
    for place, name in enumerate(names):
        found = [value(r) for r in chosen(runs, **{factor: name, **rest})]
        if found:
            axis.plot([place] * len(found), found, **{**points(number), "markersize": 3, "alpha": 0.5})
            x.append(place)
            y.append(float(np.mean(found)))
    axis.plot(x, y, label=text, **look(number))


PANELS = {"E4": proxy, "E6": quality, "E9": ladder, "E10": size, "E11": prompts, "E12": heat}
