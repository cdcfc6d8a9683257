"""From the harness' samples to ours: an `Answer` a question, by the task's first metric and first filter.

A value is one question's share of the score only if it is a number from 0 to 1; a task whose metrics are of
the whole set (perplexity, BLEU) has none, and no score here beside the harness' own figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from spade.types import Scored
from spade_evals.answers import Answer
from spade_evals.harness.responses import Response
from spade_evals.question import GradeVerdict

INVALID = "[invalid]"
"""What the harness' filters leave of a text that they find nothing in."""

Said = Callable[[Any, int], Sequence[Response]]
"""Takes the responses to the next so many requests with these arguments."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The samples of one task. `metric` is `name,filter` as in the harness' tables, or "" without values."""

    metric: str
    answers: tuple[Answer, ...]


def rows_of(task: str, samples: Sequence[Mapping[str, Any]], said: Said, show: Callable[[str], str]) -> Rows:
    """The answers to one task. `show` makes a prompt readable."""
    if not samples:
        return Rows("", ())
    first = samples[0]["filter"]
    own = [sample for sample in samples if sample["filter"] == first]
    metric = next((m for m in own[0]["metrics"] if all(_share(s.get(m)) is not None for s in own)), None)
    if metric is None:
        return Rows("", ())
    seen: dict[str, int] = {}
    answers = []
    for sample in sorted(own, key=lambda s: int(s["doc_id"])):
        digest = str(sample["doc_hash"])[:16]
        seen[digest] = seen.get(digest, 0) + 1
        copy = f"~{seen[digest]}" if seen[digest] > 1 else ""
        answers.append(_answer(task, f"{task}/{digest}{copy}", sample, metric, said, show))
    return Rows(f"{metric},{first}", tuple(answers))


def _share(value: Any) -> float | None:
    return float(value) if isinstance(value, Real) and 0 <= float(value) <= 1 else None


def _answer(
    task: str, item: str, sample: Mapping[str, Any], metric: str, said: Said, show: Callable[[str], str]
) -> Answer:
    value = _share(sample[metric]) or 0.0
    pairs = zip(sample["arguments"], sample["resps"], strict=True)
    responses = [response for arguments, resps in pairs for response in said(arguments, len(resps))]
    filtered = sample["filtered_resps"]
    unread = bool(filtered) and all(text == INVALID for text in filtered)
    ends = {response.end for response in responses}
    end = next((kind for kind in ("length", "context") if kind in ends), "stop")
    return Answer(
        item_id=item, part=task, cluster=item, sample=0,
        outcome=Scored(value, value == 1.0),
        end=end, tokens=sum(response.tokens for response in responses),
        text=_text(sample), verdict=_verdict(value, unread, end),
        extracted=_chosen(sample), detail=f"{metric} {value:g}", expected=_short(sample["target"]),
        prompt=show(str(sample["arguments"][0][0])), name=f"{task}/{sample['doc_id']}", defective=False,
        prompt_tokens=0, seconds=0.0,
    )  # fmt: skip


def _verdict(value: float, unread: bool, end: str) -> str:
    if value == 1.0:
        return GradeVerdict.CORRECT.value
    if value == 0.0 and unread:
        return (GradeVerdict.NO_ANSWER if end == "stop" else GradeVerdict.TRUNCATED).value
    return GradeVerdict.WRONG.value


def _text(sample: Mapping[str, Any]) -> str:
    """What was said; of log-likelihoods a line for each text that was scored."""
    lines = []
    for arguments, responses in zip(sample["arguments"], sample["resps"], strict=False):
        for response in responses:
            if isinstance(response, str):
                lines.append(response)
            else:
                scored = arguments[1] if len(arguments) > 1 else ""
                lines.append(f"{_number(response)} {scored}".rstrip())
    return "\n".join(lines)


def _chosen(sample: Mapping[str, Any]) -> str:
    """What the filter left; of several scored texts the most likely one."""
    filtered, arguments = sample["filtered_resps"], sample["arguments"]
    if filtered and isinstance(filtered[0], (tuple, list)) and len(filtered[0]) == 2:
        best = max(range(len(filtered)), key=lambda i: float(filtered[i][0]))
        return str(arguments[best][1]).strip()
    return _short(filtered)


def _number(response: Any) -> str:
    value = response[0] if isinstance(response, (tuple, list)) else response
    return f"{float(value):.4f}"


def _short(value: Any) -> str:
    """Filtered responses or a target as text for people."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) else str(value)
