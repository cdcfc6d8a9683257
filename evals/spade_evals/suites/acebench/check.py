"""The two scores of ACEBench-Agent: the end state, and how many milestones were passed on the way.

`official` follows the published checker with its gaps: a class it does not find is skipped, and of an
attribute that is a mapping (messages, reminders, users) only the annotated keys are compared. `strict`
compares everything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from spade_evals.suites.acebench.audit import mended, renamed

State = list[dict[str, dict[str, Any]]]
"""One mapping a class: its name -> its compared attributes, in the order of the item's classes."""


def stored(state: State) -> State:
    """A state after a round trip through JSON, as which it is compared: keys become texts."""
    return json.loads(json.dumps(state))  # type: ignore[no-any-return]


def differences(annotated: State, reached: State, strict: bool) -> list[str]:
    """What is wrong with the end state, one phrase each; empty = as annotated."""
    if strict:
        annotated = renamed(annotated)
    if len(annotated) != len(reached):
        return [f"{len(reached)} classes instead of {len(annotated)}"]
    found = {name: kept for part in reached for name, kept in part.items()}
    wrong = []
    for part in annotated:
        [(name, wanted)] = part.items()
        if name in found:
            wrong += _part_differences(name, wanted, found[name], strict)
        elif strict:
            wrong.append(f"{name} is missing")
    return wrong


def _part_differences(name: str, wanted: dict[str, Any], found: dict[str, Any], strict: bool) -> list[str]:
    wrong = []
    for key, value in found.items():
        if key not in wanted:
            wrong.append(f"{name}.{key} is not annotated")
        elif isinstance(wanted[key], dict) and not strict:
            wrong += [
                f"{name}.{key}[{inner}]"
                for inner, expected in wanted[key].items()
                if inner not in value or value[inner] != expected
            ]
        elif wanted[key] != value:
            wrong.append(f"{name}.{key}")
    return wrong


def process_score(milestones: Sequence[str] | Sequence[Sequence[str]], sent: Sequence[str]) -> float:
    """Share of milestones among what the agent sent, verbatim and in order; the best of alternative lists.

    As published: the search goes on where the last milestone was found, so that nothing counts after a
    milestone that was left out.
    """
    if not milestones:
        return 1.0
    if isinstance(milestones[0], str):
        return _in_order([str(stone) for stone in milestones], sent)
    return max(round(_in_order(stones, sent), 3) for stones in milestones)


def _in_order(stones: Sequence[str], sent: Sequence[str]) -> float:
    at = found = 0
    for stone in stones:
        while at < len(sent) and sent[at].strip() != stone.strip():
            at += 1
        if at == len(sent):
            break
        found, at = found + 1, at + 1
    return found / len(stones) if stones else 1.0


def strict_process_score(
    milestones: Sequence[Sequence[Any]],
    sent: Sequence[Any],
) -> float:
    """The same on calls instead of texts, each list of calls a message: the longest run of milestones in
    order, so that one that was left out, or written with other quotes, does not cost the rest."""
    scores = [_common(stones, sent) / len(stones) for stones in milestones if stones]
    return max(scores, default=1.0)


def _common(stones: Sequence[Any], sent: Sequence[Any]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(sent) + 1)
    for stone in stones:
        before = row
        row = [0]
        for at, (diagonal, above) in enumerate(pairwise(before)):
            row.append(diagonal + 1 if sent[at] == stone else max(above, row[-1]))
    return row[-1]


def milestone_lists(published: list[Any]) -> list[list[str]]:
    """The alternatives, mended; one list where the item has no alternatives."""
    lists = published if published and isinstance(published[0], list) else [published]
    return [[mended(stone) for stone in stones] for stones in lists]
