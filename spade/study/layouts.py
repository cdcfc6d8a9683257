"""Tables with a layout of their own, with the original's figures as reference rows where it has any.

Reference figures are those of the authors' project page of arXiv 2608.24949.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spade.study.pairs import comparisons, slopes
from spade.study.stats import lambda_fifty
from spade.study.tables import (
    Table,
    average,
    cells_of,
    end,
    every,
    general,
    levels,
    mean,
    of,
    rate,
    spread,
    start,
)  # fmt: skip
from spade.study.verdicts import Run, chosen


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
    title = "T5. Random reward by number and breadth of prompts"
    return Table("T5", title, header, rows, reference, slopes(runs))


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
                bias = average(here, lambda r, n=n, k=name: float(r.summary[n][f"{k}/bias"]))  # type: ignore[misc]
                rmse = average(here, lambda r, n=n, k=name: float(r.summary[n][f"{k}/rmse"]))  # type: ignore[misc]
                cells.append(f"{bias:+.3f}, {rmse:.3f}")
            coverage = average(here, lambda r, n=n: float(r.summary[n]["coverage"]))  # type: ignore[misc]
            rows.append([labels["start"], n, *cells, f"{coverage:.2f}"])
    notes = "Bias and root mean square error in nats against the exact sequence entropy."
    return Table("T13", "T13. Estimators of the sequence entropy: bias, error", header, rows, (), notes)


def _before_after(runs: Sequence[Run]) -> str:
    if not runs:
        return "–"
    return f"{mean(runs, start('mass'))} -> {mean(runs, end('mass'))}"


Column = tuple[str, Callable[[Sequence[Run]], str]]


def by_arm(name: str, title: str, *columns: Column) -> Callable[[Sequence[Run]], Table]:
    """A layout with one row for each combination of levels: its labels, the runs, then `columns`."""

    def layout(runs: Sequence[Run]) -> Table:
        header = [*runs[0].labels, "runs", *(name for name, _ in columns)]
        rows = [
            [*labels.values(), str(len(here)), *(value(here) for _, value in columns)]
            for labels, here in cells_of(runs)
        ]
        return Table(name, f"{name}. {title}", header, rows)

    return layout


def all_of(value: Callable[[Run], float]) -> Callable[[Sequence[Run]], str]:
    """A column: mean and all values of the runs that have this figure."""

    def column(runs: Sequence[Run]) -> str:
        found = []
        for run in runs:
            try:
                found.append(value(run))
            except (KeyError, TypeError):  # not every run has it: no take-off, no first hit, one temperature
                continue
        return spread(found)

    return column


def change(key: str) -> Callable[[Run], float]:
    """What a metric gained from start to end."""
    return lambda r: end(key)(r) - start(key)(r)


SUCCESS: Column = ("success (mass >= .5)", rate)
MASS: Column = ("mass, end", all_of(end("mass")))
ENTROPY: Column = ("H_seq, change", all_of(change("H_seq")))
DIVERGENCE: Column = ("KL to start", all_of(end("KL")))
TAKEOFF: Column = ("take-off step", all_of(of("takeoff")))
LAMBDA: Column = ("lambda", all_of(of("lambda")))
HITS: Column = ("right rollouts", all_of(of("hits")))
P0: Column = ("p0 at the rollout temperature", all_of(of("p0")))

SPECIAL: dict[str, Callable[[Sequence[Run]], Table]] = {
    "E1": prior_table,
    "E2": stages_before_rl,
    "E3": granularity,
    "E4": by_arm(
        "T4", "The price of a proxy: exact mass beside what the reward pays", MASS,
        ("mean reward, last steps", all_of(end("train/reward"))), DIVERGENCE,
    ),
    "E5": spurious,
    "E6": by_arm(
        "T6", "Random reward by quality of the prior", ("accuracy, start", all_of(start("mass"))),
        ("accuracy, change", all_of(change("mass"))), ENTROPY, DIVERGENCE,
    ),
    "E7": stages,
    "E8": by_arm(
        "T8", "Right outputs above 1e-4, by prompt, and pass@k", MASS,
        *((f"{name}", all_of(end(f"{name}@0.0001"))) for name in ("kept", "gained", "lost")),
        ("pass@4096, change", all_of(change("pass@4096"))),
        ("k from which the start is better", all_of(end("crossing_k"))),
        ("entropy within right outputs", all_of(end("H_correct"))),
        ("training mix given 100 times too rarely", all_of(end("coverage@100"))),
    ),
    "E9": by_arm("T9", "What each piece of the algorithm adds", MASS, ENTROPY, DIVERGENCE),
    "E10": by_arm("T10", "Size at equal prior", P0, LAMBDA, SUCCESS, MASS, TAKEOFF),
    "E11": by_arm(
        "T11", "Number of prompts: held-out mass beside that on the prompts trained on", SUCCESS, MASS,
        ("mass on the prompts trained on, end", all_of(of("pool_mass"))), HITS,
    ),
    "E12": by_arm(
        "T12", "Rollout temperature", P0, LAMBDA, SUCCESS, MASS, HITS, TAKEOFF,
    ),
    "E13": estimators,
}  # fmt: skip


def tables_of(experiment: str, title: str, runs: Sequence[Run]) -> list[Table]:
    """The tables of one experiment: its own layout if it has one, all arms, and the paired comparisons."""
    if not runs:
        return []
    if experiment == "R1":
        from spade.study.real_report import real_tables  # uses what is above

        return [*real_tables(runs), *comparisons(experiment, title, runs)]
    own = [SPECIAL[experiment](runs)] if experiment in SPECIAL else []
    if experiment == "E13":
        return own
    rest = [general(f"{experiment}-all", f"{experiment}. {title}: all arms", runs)]
    return [*own, *rest, *comparisons(experiment, title, runs)]
