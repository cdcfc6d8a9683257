"""From finished plays and their advantages to credits: what is trained on, and which tokens count.

An episode whose chat template drops earlier thoughts has one token stream for each turn instead of one for
all (`spade.types.Episode.later`). Each stream then becomes a sample of its own; all carry the episode's full
advantage and its id, by which the loss lets the episode count once (`spade.learn.batch.token_weights`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from spade.types import Credit, Episode, GameType, Trajectory

MaskTruncated = Literal["tool_use", "all", "none"]


def masked_out(episode: Episode, game_type: GameType, policy: MaskTruncated) -> bool:
    """Whether an episode that a limit cut short is left out of the loss.

    Its return still counts in the baseline of its group: the others are compared with it. Source: the
    "compact filter" of SPADE's tool-use runs (arXiv 2608.19197, public code); running out of budget is not a
    failure.
    """
    return episode.truncated and (policy == "all" or (policy == "tool_use" and game_type == "tool_use"))


def trained_streams(episode: Episode, mask_malformed: bool) -> list[Trajectory]:
    """The episode's token streams; tokens of malformed turns are kept as context but masked if so asked."""
    streams = list(episode.trajectories)
    if not mask_malformed or not any(t.malformed for t in episode.turns):
        return streams
    # Sampled tokens of the streams, in order, are those of the turns, in order.
    keep = iter([not turn.malformed for turn in episode.turns for _ in turn.completion_ids])
    return [_masked(stream, [bool(m) and next(keep) for m in stream.mask]) for stream in streams]


def _masked(stream: Trajectory, keep: Sequence[bool]) -> Trajectory:
    return dataclasses.replace(
        stream,
        mask=tuple(int(k) for k in keep),
        logprobs=tuple(p if k else 0.0 for p, k in zip(stream.logprobs, keep, strict=True)),
    )


def episode_credits(
    episode: Episode,
    advantage: float,
    group: str,
    number: int,
    *,
    game_type: GameType,
    mask_truncated: MaskTruncated,
    mask_malformed: bool,
) -> list[Credit]:
    """Credits of one scored episode, the `number`-th of `group`: one a stream that has a sampled token
    left."""
    if masked_out(episode, game_type, mask_truncated):
        return []
    return [
        Credit(stream, advantage, group=group, episode=f"{group}/{number}")
        for stream in trained_streams(episode, mask_malformed)
        if stream.sampled_tokens
    ]
