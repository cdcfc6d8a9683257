"""Tables of the study: Markdown and CSV, with the original's figures as reference rows where it has any.

Reference figures are those of the authors' project page of arXiv 2608.24949.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from spade.files import atomic_write
from spade.study.stats import lambda_fifty, wilson
from spade.study.verdicts import Run, chosen

Row = Sequence[str]


@dataclass(frozen=True)
class Table:
    """One table; `reference` rows come last, under a line that says whose they are."""

    name: str
    title: str
    header: Row
    rows: Sequence[Row]
    reference: Sequence[Row] = ()
    notes: str = ""

    def markdown(self) -> str:
        """A heading, the table and its notes."""
        lines = [f"### {self.title}", "", _line(self.header), _line(["---"] * len(self.header))]
        lines += [_line(row) for row in self.rows]
        if self.reference:
            width = len(self.header)
            lines.append(_line(["*original, for comparison*", *[""] * (width - 1)]))
            lines += [_line([f"*{row[0]}*", *row[1:], *[""] * (width - len(row))]) for row in self.reference]
        return "\n".join([*lines, *(["", self.notes] if self.notes else []), ""])

    def write(self, folder: Path) -> None:
        """`NAME.md` and `NAME.csv`."""
        atomic_write(folder / f"{self.name}.md", self.markdown())
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(["source", *self.header])
        writer.writerows(["study", *row] for row in self.rows)
        writer.writerows(["original", *row] for row in self.reference)
        atomic_write(folder / f"{self.name}.csv", buffer.getvalue())


def _line(cells: Row) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


# --- numbers as text -------------------------------------------------------------------------------------


def num(value: float | None) -> str:
    """Three significant digits; a dash for nothing."""
    return "–" if value is None or value != value else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """Mean, and all values in brackets when there are several."""
    if not values:
        return "–"
    shown = f" ({', '.join(num(v) for v in values)})" if 1 < len(values) <= 6 else ""
    return f"{num(float(np.mean(values)))}{shown}"


def rate(runs: Sequence[Run]) -> str:
    """`4/5 [0.38, 0.96]`, Wilson's interval."""
    interval = wilson(sum(r.success for r in runs), len(runs))
    return f"{sum(r.success for r in runs)}/{len(runs)} [{interval.low:.2f}, {interval.high:.2f}]"


def start(key: str) -> Callable[[Run], float]:
    """A metric at the start."""
    return lambda r: float(r.summary["start"][key])


def end(key: str) -> Callable[[Run], float]:
    """A metric at the end."""
    return lambda r: float(r.summary["end"][key])


def of(key: str) -> Callable[[Run], float]:
    """A figure of the whole run."""
    return lambda r: float(r.summary[key])


def mean(runs: Sequence[Run], value: Callable[[Run], float]) -> str:
    """The mean as text."""
    return num(_mean(runs, value))


def every(runs: Sequence[Run], value: Callable[[Run], float]) -> str:
    """Mean and all values as text."""
    return spread([value(r) for r in runs])


def levels(runs: Sequence[Run], factor: str) -> list[str]:
    """Levels of a factor in the order in which they were planned."""
    return list(dict.fromkeys(r.labels[factor] for r in runs))


def cells_of(runs: Sequence[Run]) -> list[tuple[dict[str, str], list[Run]]]:
    """Runs by combination of levels, those without runs left out."""
    factors = list(runs[0].labels) if runs else []
    out = []
    for combination in product(*(levels(runs, f) for f in factors)):
        labels = dict(zip(factors, combination, strict=True))
        if here := chosen(runs, **labels):
            out.append((labels, here))
    return out


# --- the tables ------------------------------------------------------------------------------------------


def general(name: str, title: str, runs: Sequence[Run]) -> Table:
    """What every experiment has: one row for each combination of levels."""
    factors = list(runs[0].labels)
    header = [
        *factors, "runs", "success (mass >= .5)", "mass, start", "mass, end", "H_seq, start", "H_seq, end",
        "outside known behaviours", "KL to start", "other domains, end",
    ]  # fmt: skip
    rows = []
    for labels, here in cells_of(runs):
        others = [r.summary["end"]["others"] for r in here if "others" in r.summary["end"]]
        rows.append(
            [
                *labels.values(), str(len(here)), rate(here),
                mean(here, start("mass")), every(here, end("mass")), mean(here, start("H_seq")),
                mean(here, end("H_seq")), mean(here, end("other")), mean(here, end("KL")), spread(others),
            ]
        )  # fmt: skip
    return Table(name, title, header, rows)


def prior_table(runs: Sequence[Run]) -> Table:
    """T1: mass before and after sparse reinforcement learning by prior mass."""
    header = [
        "start", "prior p0 (exact, at the rollout temperature)", "lambda", "success", "mass after",
        "take-off step", "right rollouts", "groups without signal", "H_seq start, peak, end", "KL",
    ]  # fmt: skip
    rows = []
    for labels, here in cells_of(runs):
        silent = sum(r.summary["silent_groups"] for r in here) / max(
            1, sum(r.summary["groups"] for r in here)
        )
        takeoff = [r.summary["takeoff"] for r in here]
        entropies = [mean(here, value) for value in (start("H_seq"), of("H_peak"), end("H_seq"))]
        rows.append(
            [
                " ".join(labels.values()), mean(here, of("p0")), every(here, of("lambda")),
                rate(here), every(here, end("mass")),
                " ".join("–" if t is None else str(t) for t in takeoff),
                " ".join(str(r.summary["hits"]) for r in here), f"{silent:.1%}",
                ", ".join(entropies), mean(here, end("KL")),
            ]
        )  # fmt: skip
    middle = lambda_fifty([r.summary["lambda"] for r in runs], [r.success for r in runs])
    notes = (
        "lambda: right rollouts to be expected of the whole budget if the policy did not move, computed "
        "exactly on the prompts trained on. "
        f"Half of the runs succeed at lambda = {middle} (logistic fit, bootstrap)."
    )
    reference = [
        ["Qwen3-8B base", "0.00 %", "", "1 run", "0.00 %"],
        ["Qwen2-7B base", "3.52 %", "", "1 run", "99.99 %"],
        ["Qwen3-1.7B base", "0.48 %", "", "1 run", "10.0 %"],
        ["Qwen2-1.5B base", "0.31 %", "", "1 run", "0.71 %"],
        ["Qwen3-8B SFT+", "43.12 %", "", "1 run", "100 %"],
        ["Qwen2-1.5B SFT+", "7.96 %", "", "1 run", "92.5 %"],
        ["all four SFT-", "0.00 %", "", "1 run", "0.00 %"],
    ]
    title = "T1. Sparse reward: exact mass of the wanted behaviour before and after, by prior"
    return Table("T1", title, header, rows, reference, notes)


def stages_before_rl(runs: Sequence[Run]) -> Table:
    """T2, laid out like the original's first table: before -> after by model and start."""
    starts, sizes = levels(runs, "start"), levels(runs, "size")
    rows = [[size, *(_before_after(chosen(runs, start=s, size=size)) for s in starts)] for size in sizes]
    reference = [
        ["Qwen3-8B", "43.12 -> 100 %", "0.00 -> 0.00 %", "", "0.00 -> 0.00 %"],
        ["Qwen2-7B", "28.75 -> 99.6 %", "3.52 -> 99.99 %", "", "0.00 -> 0.00 %"],
        ["Qwen3-1.7B", "14.04 -> 98.7 %", "0.48 -> 10.0 %", "", "0.00 -> 0.00 %"],
        ["Qwen2-1.5B", "7.96 -> 92.5 %", "0.31 -> 0.71 %", "", "0.00 -> 0.00 %"],
    ]
    title = "T2. Sparse reward, exact mass before -> after (mean over seeds)"
    return Table("T2", title, ["model", *starts], rows, reference if len(starts) == 4 else ())


SPARSE, DENSE = "exact", ("partial", "lev", "milestone", "step")


def granularity(runs: Sequence[Run]) -> Table:
    """T3: no RL, sparse, dense, by start; laid out like the original's second table."""
    starts = levels(runs, "prior")
    rewards = levels(runs, "reward")
    rows = [["no RL", *(mean(chosen(runs, prior=s), start("mass")) for s in starts)]]
    ordered = [r for r in rewards if r == SPARSE] + [r for r in rewards if r != SPARSE]
    for reward in ordered:
        kind = "sparse" if reward == SPARSE else "dense" if reward in DENSE else "other"
        cells = [chosen(runs, prior=s, reward=reward) for s in starts]
        rows.append(
            [f"{kind}: {reward}", *(f"{spread([end('mass')(r) for r in c])}; {rate(c)}" for c in cells)]
        )
    reference = [
        ["AIME 2025 problem 4, no RL", "SFT- 0.00 %", "base 3.92 %", "SFT+ 26.6 %"],
        ["sparse", "SFT- 0.00 %", "base 10.2 %", "SFT+ 85.9 %"],
        ["dense", "SFT- 0.00 %", "base 92.2 %", "SFT+ 86.7 %"],
    ]
    title = "T3. Reward granularity: exact mass after, by start"
    return Table("T3", title, ["reward", *starts], rows, [row[: len(starts) + 1] for row in reference])


def spurious(runs: Sequence[Run]) -> Table:
    """Random reward by number and breadth of prompts."""
    header = [
        "prompts", "domains", "update", "runs", "H_seq in the first domain, change", "mass, end",
        "outside known behaviours, end", "other domains: accuracy, end", "worst domain, end",
        "other domains: entropy, end", "KL",
    ]  # fmt: skip
    rows = []
    for labels, here in cells_of(runs):
        change = [end("H_seq")(r) - start("H_seq")(r) for r in here]
        rows.append(
            [
                labels["prompts"], labels["breadth"], labels["algorithm"], str(len(here)), spread(change),
                mean(here, end("mass")), mean(here, end("other")), every(here, end("others")),
                mean(here, end("others_min")), mean(here, of("others_H")), mean(here, end("KL")),
            ]
        )  # fmt: skip
    reference = [
        [
            "OLMo 3, 100 maths prompts",
            "1",
            "GRPO",
            "1",
            "falls",
            "",
            "",
            "GSM8K 86 -> ~32 %, MMLU and IFEval steady",
        ],
        ["OLMo 3, broad mix", "many", "GRPO", "1", "rises", "", "", "GSM8K, MMLU, IFEval collapse together"],
        ["Qwen2.5-Math, DeepScaleR", "1", "GRPO", "1", "falls", "", "", "accuracy rises"],
    ]
    return Table("T5", "T5. Random reward by number and breadth of prompts", header, rows, reference)


def stages(runs: Sequence[Run]) -> Table:
    """Entropies by stage, and what is forgotten."""
    header = [
        "stage", "mass", "H_seq", "H_beh", "H_tok by place", "outside known behaviours", "outputs above 1e-4",
        "KL to base", "other domains: accuracy", "other domains: entropy", "steps",
    ]  # fmt: skip
    rows = []
    for labels, here in cells_of(runs):
        places = [mean(here, end(f"H_tok/{i}")) for i in range(1, 5)]
        rows.append(
            [
                labels["stage"], every(here, end("mass")), every(here, end("H_seq")),
                mean(here, end("H_beh")), " ".join(places), mean(here, end("other")),
                mean(here, end("support@0.0001")), every(here, end("KL")), every(here, end("others")),
                mean(here, of("others_H")),
                " ".join(str(r.summary["steps"]) for r in here),
            ]
        )  # fmt: skip
    return Table("T7", "T7. Stages: exact entropies and forgetting", header, rows)


def estimators(runs: Sequence[Run]) -> Table:
    """Bias and error of the sampled entropies."""
    header = ["start", "n", "chain rule", "mean NLL", "plug-in", "Miller-Madow", "coverage (Good-Turing)"]
    rows = []
    for labels, here in cells_of(runs):
        for n in ("16", "64", "256", "1024"):
            cells = []
            for name in ("chain_rule", "mean_nll", "plug_in", "miller_madow"):
                bias = _mean(here, lambda r, n=n, k=name: float(r.summary[n][f"{k}/bias"]))  # type: ignore[misc]
                rmse = _mean(here, lambda r, n=n, k=name: float(r.summary[n][f"{k}/rmse"]))  # type: ignore[misc]
                cells.append(f"{bias:+.3f}, {rmse:.3f}")
            coverage = _mean(here, lambda r, n=n: float(r.summary[n]["coverage"]))  # type: ignore[misc]
            rows.append([labels["start"], n, *cells, f"{coverage:.2f}"])
    notes = "Bias and root mean square error in nats against the exact sequence entropy."
    return Table("T13", "T13. Estimators of the sequence entropy: bias, error", header, rows, (), notes)


SPECIAL: dict[str, Callable[[Sequence[Run]], Table]] = {
    "E1": prior_table, "E2": stages_before_rl, "E3": granularity, "E5": spurious, "E7": stages,
    "E13": estimators,
}  # fmt: skip


def tables_of(experiment: str, title: str, runs: Sequence[Run]) -> list[Table]:
    """The tables of one experiment, the one with a layout of its own first."""
    if not runs:
        return []
    own = [SPECIAL[experiment](runs)] if experiment in SPECIAL else []
    if experiment == "E13":
        return own
    return [*own, general(f"{experiment}-all", f"{experiment}. {title}: all arms", runs)]


def _before_after(runs: Sequence[Run]) -> str:
    if not runs:
        return "–"
    return f"{mean(runs, start('mass'))} -> {mean(runs, end('mass'))}"


def _mean(runs: Sequence[Run], value: Callable[[Run], float]) -> float:
    return float(np.mean([value(r) for r in runs])) if runs else float("nan")
