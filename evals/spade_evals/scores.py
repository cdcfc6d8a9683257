"""What the answers to one task say: means with their errors, pass@k, and how answers ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from spade.types import Fault, Scored
from spade_evals import stats
from spade_evals.answers import Answer
from spade_evals.question import GradeVerdict


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean over samples with its clustered standard error and bootstrap interval over clusters; NaN where
    undefined. `items` counts questions, `samples` their answers."""

    mean: float
    stderr: float
    low: float
    high: float
    items: int
    samples: int


@dataclass(frozen=True, slots=True)
class TaskScore:
    """One task on one checkpoint. Rates are over scored samples; a fault is not a score."""

    n: int
    """Samples per question that were asked for; `all.mean` is the avg@n."""
    all: Mean
    sound: Mean
    """Without questions that are known to be defective."""
    pass_at: dict[int, float]
    """Unbiased pass@k; a sample passes when its verdict is `correct`."""
    verdicts: dict[str, int]
    faults: dict[str, int]
    missing: int
    """Samples without an answer."""
    no_answer: float
    truncated: float
    """Share of answers that a limit cut, whatever their verdict."""
    tokens: int
    tokens_per_answer: float
    seconds: float
    """Wall clock that this command spent on the task; of a resumed run, its last part."""
    parts: dict[str, Mean] = field(default_factory=dict)
    """Further numbers of the grader by name, over the scored samples that have them."""


def task_score(answers: Sequence[Answer], n: int, missing: int, seconds: float) -> TaskScore:
    """Summarise the answers to one task; the order of `answers` does not matter."""
    ordered = sorted(answers, key=lambda a: a.key)
    scored = [a for a in ordered if isinstance(a.outcome, Scored)]
    kinds = Counter(a.outcome.kind.value for a in ordered if isinstance(a.outcome, Fault))
    verdicts = Counter(a.verdict for a in scored)
    unread = verdicts[GradeVerdict.NO_ANSWER] + verdicts[GradeVerdict.TRUNCATED]
    tokens = sum(a.tokens for a in ordered)
    return TaskScore(
        n=n,
        all=mean_of(scored),
        sound=mean_of([a for a in scored if not a.defective]),
        pass_at=pass_at_ks(scored, n),
        verdicts={v.value: verdicts[v] for v in GradeVerdict if verdicts[v]},
        faults=dict(sorted(kinds.items())),
        missing=missing,
        no_answer=_rate(unread, len(scored)),
        truncated=_rate(sum(a.cut for a in scored), len(scored)),
        tokens=tokens,
        tokens_per_answer=_rate(tokens, len(ordered)),
        seconds=round(seconds, 2),
        parts=means_of_parts(scored),
    )


def mean_of(scored: Sequence[Answer]) -> Mean:
    """Mean of scored answers."""
    return _mean(scored, [a.outcome.value for a in scored if isinstance(a.outcome, Scored)])


def means_of_parts(scored: Sequence[Answer]) -> dict[str, Mean]:
    """Mean of each further number of the grader, in the order of their names."""
    names = sorted({name for a in scored for name in a.parts})
    having = {name: [a for a in scored if name in a.parts] for name in names}
    return {name: _mean(answers, [a.parts[name] for a in answers]) for name, answers in having.items()}


def _mean(answers: Sequence[Answer], values: Sequence[float]) -> Mean:
    clusters = [a.cluster for a in answers]
    mean, stderr, samples = stats.clustered_mean(values, clusters)
    low, high = stats.cluster_bootstrap(values, clusters)
    return Mean(mean, stderr, low, high, len({a.item_id for a in answers}), samples)


def pass_at_ks(scored: Sequence[Answer], n: int) -> dict[int, float]:
    """Mean pass@k over questions for k = 1..n; a question with fewer than k answers is left out of that k."""
    total: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for answer in scored:
        total[answer.item_id] += 1
        right[answer.item_id] += answer.verdict == GradeVerdict.CORRECT
    out = {}
    for k in range(1, n + 1):
        values = [stats.pass_at_k(total[i], right[i], k) for i in total if total[i] >= k]
        if values:
            out[k] = sum(values) / len(values)
    return out


def powers(ks: Iterable[int]) -> list[int]:
    """The ks worth a column: powers of two, and the largest."""
    known = sorted(ks)
    return [k for k in known if k & (k - 1) == 0 or k == known[-1]]


def _rate(count: float, total: int) -> float:
    return count / total if total else float("nan")
