"""`tokens.jsonl`: a few plays of each step token by token, so that a report can show what was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spade.types import Episode, Group, Sample, Trajectory

if TYPE_CHECKING:
    from spade.serving.chat import ChatRenderer

MAX_TOKENS = 2000
"""Tokens of a play's streams that are kept; the rest is counted in `left_out`."""


def token_rows(
    step: int, groups: Sequence[Group], samples: Sequence[Sample], renderer: ChatRenderer, programs: int
) -> list[dict[str, Any]]:
    """Rows for the first `programs` programs of a step: one plain play of each and the hinted one beside it.

    The two share a seed where both exist. `streams` holds `[prompt, [[text, logprob], ...]]` for each token
    stream, the log-probability null on tokens the model did not sample. `advantage` is what the play's
    tokens were trained with in this step, null where they were not.
    """
    if not programs:
        return []
    advantages = {(s.prompt_ids, s.completion_ids): s.advantage for s in samples if s.role == "agent"}
    rows = []
    for group in groups[:programs]:
        hinted = next(iter(group.hinted), None)
        plain = next(iter(group.plain), None)
        if hinted is not None:
            plain = next((e for e in group.plain if e.instance.seed == hinted.instance.seed), plain)
        rows += [_row(step, e, renderer, advantages) for e in (plain, hinted) if e is not None]
    return rows


def _row(
    step: int, episode: Episode, renderer: ChatRenderer, advantages: Mapping[tuple[Any, Any], float]
) -> dict[str, Any]:
    room, streams, left_out = MAX_TOKENS, [], 0
    for trajectory in episode.trajectories:
        size = len(trajectory.completion_ids)
        kept = min(size, room)
        room, left_out = room - kept, left_out + size - kept
        if kept:
            streams.append([renderer.shown(trajectory.prompt_ids), _tokens(trajectory, kept, renderer)])
    first = episode.trajectory
    return {
        "step": step,
        "program": episode.instance.program_id,
        "seed": episode.instance.seed,
        "hinted": episode.instance.hint is not None,
        "advantage": advantages.get((first.prompt_ids, first.completion_ids)),
        "streams": streams,
        "left_out": left_out,
    }


def _tokens(trajectory: Trajectory, kept: int, renderer: ChatRenderer) -> list[list[Any]]:
    """`[text, logprob]` of the first `kept` tokens."""
    columns = (trajectory.completion_ids, trajectory.mask, trajectory.logprobs)
    return [
        [renderer.shown([token]), round(logprob, 4) if sampled else None]
        for token, sampled, logprob in zip(*(column[:kept] for column in columns), strict=True)
    ]
