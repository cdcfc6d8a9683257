"""Tables and figure of experiment R1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spade.study.figures import Rows, curves, label, new_figure, save
from spade.study.layouts import granularity, prior_table
from spade.study.tables import Table, cells_of, end, every, mean, of, start
from spade.study.verdicts import Run, chosen

LAMBDA = "lambda: right rollouts to be expected of the whole budget if the policy did not move; exact."


def real_tables(runs: Sequence[Run]) -> list[Table]:
    """T1 (sparse reward by prior), T3 (sparse and graded by start), and entropies by arm."""
    tables = []
    if sparse := chosen(runs, reward="exact"):
        title = "T1 on a real model. Sparse reward: exact mass of the target before and after, by prior"
        tables.append(replace(prior_table(sparse), name="R1-T1", title=title, notes=LAMBDA))
    title = "T3 on a real model. Reward granularity: exact mass after, by target"
    tables.append(replace(granularity(runs), name="R1-T3", title=title))
    return [*tables, entropies(runs)]


def entropies(runs: Sequence[Run]) -> Table:
    """One row an arm: its target, and what happened to mass, entropy and divergence."""
    header = [
        "target", "reward", "text", "runs", "p0", "right rollouts", "mass, end", "H_seq, start", "H_seq, end",
        "H_tok, start", "H_tok, end", "distinct responses, end", "KL to start",
    ]  # fmt: skip
    rows = []
    for labels, here in cells_of(runs):
        rows.append(
            [
                labels["prior"], labels["reward"], str(here[0].summary["target"]), str(len(here)),
                mean(here, of("p0")), every(here, of("hits")), every(here, end("mass")),
                mean(here, start("H_seq")), every(here, end("H_seq")), mean(here, start("H_tok")),
                mean(here, end("H_tok")), mean(here, end("distinct")), every(here, end("KL")),
            ]
        )  # fmt: skip
    notes = "Mass and p0 are exact; entropies (whole vocabulary) and KL: nats, along responses of one step."
    return Table("R1-entropy", "Entropy and divergence on a real model", header, rows, (), notes)


def draw_real(runs: Sequence[Run], rows: Rows, folder: Path) -> list[Path]:
    """Exact mass, entropy and divergence at every step, by arm."""
    figure, (first, second, third) = new_figure(3)
    curves(first, runs, rows, "mass", log=True)
    curves(second, runs, rows, "H_seq")
    curves(third, runs, rows, "KL")
    label(first, "exact mass of the target", "step", "mass")
    label(second, "sequence entropy", "step", "nats")
    label(third, "divergence from the start", "step", "nats a response")
    return save(figure, folder, "R1-real")
