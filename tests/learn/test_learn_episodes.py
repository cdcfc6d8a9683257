"""From plays to credits: streams of one episode, and which tokens and episodes are left out of the loss."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spade.learn.episodes import MaskTruncated, episode_credits, masked_out, trained_streams
from spade.types import (
    Credit,
    Episode,
    EpisodeEnd,
    GameType,
    Instance,
    Scored,
    StopReason,
    Trajectory,
    Turn,
)


def turn(ids: Sequence[int], malformed: bool = False) -> Turn:
    logprobs = tuple(-0.1 * i for i in ids)
    return Turn(tuple(ids), logprobs, "", "", "", 0.0, StopReason.STOP, malformed)


def stream(prompt: Sequence[int], *parts: tuple[Sequence[int], int]) -> Trajectory:
    """`parts`: token ids with mask 1 (sampled) or 0."""
    ids = [i for part, _ in parts for i in part]
    mask = [m for part, m in parts for _ in part]
    logprobs = tuple(-0.1 * i if m else 0.0 for i, m in zip(ids, mask, strict=True))
    return Trajectory("agent", tuple(prompt), tuple(ids), tuple(mask), logprobs)


def play(end: EpisodeEnd = EpisodeEnd.TERMINATED, malformed: tuple[bool, ...] = (False,) * 3) -> Episode:
    """Three turns; the template dropped a thought before the last one, which is a stream of its own."""
    turns = tuple(turn(ids, bad) for ids, bad in zip(([1, 2], [3], [4, 5, 6]), malformed, strict=True))
    first = stream([90, 91], ([1, 2], 1), ([80], 0), ([3], 1))
    last = stream([90, 91, 2, 80, 3, 81], ([4, 5, 6], 1))
    return Episode(Instance("p", 7), first, turns, "", Scored(1.0, True), end, later=(last,))


def credits(
    episode: Episode, game: GameType = "multi_turn", truncated: MaskTruncated = "none", malformed: bool = True
) -> list[Credit]:
    return episode_credits(
        episode, 0.5, "g", 3, game_type=game, mask_truncated=truncated, mask_malformed=malformed
    )


def test_every_stream_carries_the_full_advantage_and_the_id_of_its_episode() -> None:
    got = credits(play())
    assert [c.trajectory for c in got] == list(play().trajectories)
    assert {(c.advantage, c.group, c.episode, c.weight) for c in got} == {(0.5, "g", "g/3", 1.0)}


def test_tokens_of_a_malformed_turn_stay_as_context_without_loss() -> None:
    episode = play(malformed=(False, True, False))
    first, last = trained_streams(episode, mask_malformed=True)
    assert first.completion_ids == (1, 2, 80, 3) and first.mask == (1, 1, 0, 0)
    assert first.logprobs == (-0.1, -0.2, 0.0, 0.0)
    assert last == episode.later[0]
    assert trained_streams(episode, mask_malformed=False) == list(episode.trajectories)


def test_a_stream_without_a_trained_token_is_left_out() -> None:
    got = credits(play(malformed=(False, False, True)))
    assert [c.trajectory.completion_ids for c in got] == [(1, 2, 80, 3)]
    assert credits(play(malformed=(True, True, True))) == []
    assert len(credits(play(malformed=(True, True, True)), malformed=False)) == 2


@pytest.mark.parametrize("end", list(EpisodeEnd))
def test_masking_of_episodes_that_a_limit_cut_short(end: EpisodeEnd) -> None:
    cut = end not in (EpisodeEnd.TERMINATED, EpisodeEnd.FAULT)
    episode = play(end)
    assert not masked_out(episode, "tool_use", "none")
    assert masked_out(episode, "tool_use", "tool_use") is cut
    assert not masked_out(episode, "multi_turn", "tool_use")
    assert masked_out(episode, "single_turn", "all") is cut
    assert (credits(episode, "tool_use", "tool_use") == []) is cut
