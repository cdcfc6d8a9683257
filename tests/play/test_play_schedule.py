"""Playing with a real sandbox and scripted policies: endings, values, masks, faults, drivers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from spade.config import PlayConfig, SandboxConfig
from spade.envs.sandbox import Sandbox, Worker
from spade.errors import FaultKind
from spade.play.episode import episode_return
from spade.play.schedule import play
from spade.serving.chat import ChatPolicy
from spade.serving.policy import Completion, SamplingParams
from spade.serving.scripted import ScriptedPolicy
from spade.types import EnvProgram, Episode, EpisodeEnd, Fault, Instance, Scored, StopReason
from tests.play.programs import COUNT, GUESS

LIMITS = PlayConfig(max_turns=4, max_tokens=24)
COUNTING = EnvProgram.of(COUNT)
GUESSING = EnvProgram.of(GUESS)


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig(cpu_seconds=0.5)) as box:
        yield box


def script(fn: Callable[[str], str], **fields: Any) -> ChatPolicy:
    policy = ScriptedPolicy.from_function(fn, **fields)
    return ChatPolicy(policy.renderer, policy)


async def play_one(
    sandbox: Sandbox, fn: Callable[[str], str], instance: Instance | None = None, **fields: Any
) -> Episode:
    chat = script(fn, **fields)
    instance = instance or Instance(COUNTING.id, 3)
    (episode,) = await play(
        [instance], {COUNTING.id: COUNTING, GUESSING.id: GUESSING}, chat, sandbox, LIMITS, seed=1
    )
    return episode


async def test_a_win_ends_the_episode_with_the_last_reward(sandbox: Sandbox) -> None:
    episode = await play_one(sandbox, lambda prompt: r"\boxed{win}" if "turn 1" in prompt else r"\boxed{on}")
    assert episode.outcome == Scored(1.0, True)
    assert episode.end is EpisodeEnd.TERMINATED
    assert episode.actions == (r"\boxed{on}", r"\boxed{win}")
    assert [t.observation for t in episode.turns] == ["turn 1", "won"]


async def test_values_are_clipped_and_unfinished_games_score_zero(sandbox: Sandbox) -> None:
    lost = await play_one(sandbox, lambda prompt: r"\boxed{stop}")
    assert lost.outcome == Scored(-1.0, False)
    cut = await play_one(sandbox, lambda prompt: r"\boxed{on}")
    assert (cut.end, cut.outcome) == (EpisodeEnd.TRUNCATED, Scored(0.0, False))


async def test_the_loops_own_turn_limit_scores_zero(sandbox: Sandbox) -> None:
    chat = script(lambda prompt: r"\boxed{on}")
    limits = PlayConfig(max_turns=2, max_tokens=24)
    (episode,) = await play(
        [Instance(COUNTING.id, 1)], {COUNTING.id: COUNTING}, chat, sandbox, limits, seed=1
    )
    assert (episode.end, len(episode.turns), episode.outcome) == (
        EpisodeEnd.TURN_LIMIT,
        2,
        Scored(0.0, False),
    )


async def test_exactly_the_sampled_tokens_are_masked(sandbox: Sandbox) -> None:
    episode = await play_one(sandbox, lambda prompt: r"\boxed{win}" if "turn 1" in prompt else r"\boxed{on}")
    t = episode.trajectory
    sampled = [i for i, m in zip(t.completion_ids, t.mask, strict=True) if m]
    assert sampled == [i for turn in episode.turns for i in turn.completion_ids]
    assert t.mask[-1] == 1 and len(t.mask) == len(t.logprobs) == len(t.completion_ids)
    renderer = script(lambda p: p).renderer
    shown = renderer.messages([*t.prompt_ids, *t.completion_ids])  # type: ignore[attr-defined]
    assert [m.role for m in shown] == ["user", "assistant", "user", "assistant"]
    assert shown[2].content == "turn 1"


async def test_the_hint_comes_last_in_the_opening(sandbox: Sandbox) -> None:
    seen: list[str] = []

    def reply(prompt: str) -> str:
        seen.append(prompt)
        return r"\boxed{win}"

    await play_one(sandbox, reply, Instance(COUNTING.id, 3, hint="count slowly"))
    await play_one(sandbox, reply, Instance(COUNTING.id, 3))
    assert seen[0].endswith("HINT: count slowly")
    assert "HINT" not in seen[1]
    assert seen[0].startswith(seen[1])


@pytest.mark.parametrize("word", ["crash", "spin"])
async def test_a_broken_program_is_a_fault_not_a_return(sandbox: Sandbox, word: str) -> None:
    episode = await play_one(sandbox, lambda prompt: f"\\boxed{{{word}}}")
    assert isinstance(episode.outcome, Fault)
    assert episode.outcome.kind is FaultKind.PROGRAM
    assert episode.end is EpisodeEnd.FAULT


async def test_a_killed_worker_blames_the_program_for_its_other_instances(sandbox: Sandbox) -> None:
    chat = script(lambda p: r"\boxed{spin}" if "from 5" in p and "turn" in p else r"\boxed{on}")
    instances = [Instance(COUNTING.id, seed) for seed in (1, 5, 2)]
    episodes = await play(instances, {COUNTING.id: COUNTING}, chat, sandbox, LIMITS, seed=1)
    kinds = {e.outcome.kind for e in episodes if isinstance(e.outcome, Fault)}
    assert isinstance(episodes[1].outcome, Fault) and kinds == {FaultKind.PROGRAM}


async def test_a_program_that_does_not_load_faults_all_its_plays(sandbox: Sandbox) -> None:
    bad = EnvProgram.of("class BadEnv:\n    import socket\n")
    instances = [Instance(bad.id, 1), Instance(COUNTING.id, 1)]
    chat = script(lambda p: r"\boxed{win}")
    episodes = await play(instances, {bad.id: bad, COUNTING.id: COUNTING}, chat, sandbox, LIMITS, seed=1)
    assert isinstance(episodes[0].outcome, Fault) and episodes[0].outcome.kind is FaultKind.PROGRAM
    assert episodes[1].outcome == Scored(1.0, True)


def bisect(prompt: str) -> str:
    low, high = 1, 8
    moves = re.findall(r"boxed\{(\d)\}\n\[user\]\n(\w+)", prompt)
    for number, answer in moves:
        if answer == "higher":
            low = int(number) + 1
        else:
            high = int(number) - 1
    return f"\\boxed{{{(low + high) // 2}}}"


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("lockstep", [True, False])
async def test_drivers_agree_and_keep_the_order(sandbox: Sandbox, shared: bool, lockstep: bool) -> None:
    chat = script(bisect, max_rows=5)
    chat.policy.lockstep = lockstep
    instances = [Instance(p.id, seed) for seed in range(6) for p in (GUESSING, COUNTING)]
    calls: list[tuple[int, int]] = []
    episodes = await play(
        instances,
        {GUESSING.id: GUESSING, COUNTING.id: COUNTING},
        chat,
        sandbox,
        LIMITS,
        seed=1,
        shared_workers=shared,
        on_done=lambda done, total: calls.append((done, total)),
    )
    assert [e.instance for e in episodes] == instances
    assert all(e.outcome == Scored(1.0, True) for e in episodes[::2])
    assert calls[-1] == (12, 12) and [c[0] for c in calls] == sorted(c[0] for c in calls)


async def test_a_program_keeps_its_worker_from_chunk_to_chunk(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    plain = sandbox.open

    async def counted(code: str, **options: bool) -> Worker:
        opened.append(code)
        return await plain(code, **options)

    monkeypatch.setattr(sandbox, "open", counted)
    programs = {GUESSING.id: GUESSING, COUNTING.id: COUNTING}
    instances = [Instance(p.id, seed) for seed in range(6) for p in (GUESSING, COUNTING)]
    played: list[list[Episode]] = []
    for rows, shared in ((64, True), (5, True), (5, False)):
        opened.clear()
        chat = script(bisect, max_rows=rows)
        chat.policy.lockstep = True
        episodes = await play(instances, programs, chat, sandbox, LIMITS, seed=1, shared_workers=shared)
        played.append([replace(e, seconds=0.0) for e in episodes])
        once = [COUNTING.code, GUESSING.code]
        assert sorted(opened) == sorted(once if shared else once * 6)
        assert all(p.ended is not None for p in list(sandbox._processes))  # nothing is kept for later
    assert played[0] == played[1] == played[2]


async def test_a_worker_that_breaks_is_replaced_in_the_next_chunk(sandbox: Sandbox) -> None:
    chat = script(lambda p: r"\boxed{crash}" if "from 1" in p else r"\boxed{win}", max_rows=2)
    chat.policy.lockstep = True
    instances = [Instance(COUNTING.id, seed) for seed in (1, 1, 2, 2)]
    episodes = await play(instances, {COUNTING.id: COUNTING}, chat, sandbox, LIMITS, seed=1)
    assert [isinstance(e.outcome, Fault) for e in episodes] == [True, True, False, False]


async def test_the_oracle_is_told_the_solution(sandbox: Sandbox) -> None:
    policy = ScriptedPolicy("oracle")
    chat = ChatPolicy(policy.renderer, policy)
    instances = [Instance(p.id, seed) for seed in range(4) for p in (GUESSING, COUNTING)]
    programs = {GUESSING.id: GUESSING, COUNTING.id: COUNTING}
    episodes = await play(instances, programs, chat, sandbox, LIMITS, seed=1)
    assert all(e.outcome == Scored(1.0, True) for e in episodes)


class Cutting(ScriptedPolicy):
    """Ends every completion for a given reason and notes the parameters."""

    reason = StopReason.LENGTH

    def __init__(self, **fields: Any) -> None:
        super().__init__("null", **fields)
        self.seeds: list[int | None] = []
        self.limits: list[int] = []

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        n: int = 1,
    ) -> list[list[Completion]]:
        each = [params] if isinstance(params, SamplingParams) else list(params)
        self.seeds += [p.seed for p in each]
        self.limits += [p.max_tokens for p in each]
        ids = (65,) * 3
        return [[Completion(ids, (-0.5,) * 3, self.reason)] for _ in prompts]


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        (StopReason.LENGTH, EpisodeEnd.UNFINISHED),
        (StopReason.CONTEXT, EpisodeEnd.CONTEXT_LIMIT),
        (StopReason.CANCELLED, EpisodeEnd.FAULT),
    ],
)
async def test_replies_without_an_end_are_not_played(
    sandbox: Sandbox, reason: StopReason, end: EpisodeEnd
) -> None:
    policy = Cutting()
    policy.reason = reason
    chat = ChatPolicy(policy.renderer, policy)
    (episode,) = await play(
        [Instance(COUNTING.id, 1)], {COUNTING.id: COUNTING}, chat, sandbox, LIMITS, seed=1
    )
    assert episode.end is end
    assert episode.trajectory.sampled_tokens == 3
    if end is EpisodeEnd.FAULT:
        assert isinstance(episode.outcome, Fault) and episode.outcome.kind is FaultKind.INFRASTRUCTURE
    else:
        assert episode.outcome == Scored(0.0, False)


@pytest.fixture
def narrow() -> Iterator[Cutting]:
    yield Cutting(context_length=40)


async def test_no_room_for_a_turn_is_a_context_limit(sandbox: Sandbox, narrow: Cutting) -> None:
    chat = ChatPolicy(narrow.renderer, narrow)
    (episode,) = await play(
        [Instance(COUNTING.id, 1)], {COUNTING.id: COUNTING}, chat, sandbox, LIMITS, seed=1
    )
    assert episode.end is EpisodeEnd.CONTEXT_LIMIT and narrow.limits == []
    assert episode.outcome == Scored(0.0, False)


async def test_both_arms_share_their_sampling_noise(sandbox: Sandbox) -> None:
    policy = Cutting()
    chat = ChatPolicy(policy.renderer, policy)
    instances = [Instance(COUNTING.id, 1), Instance(COUNTING.id, 1, "a hint"), Instance(COUNTING.id, 2)]
    await play(instances, {COUNTING.id: COUNTING}, chat, sandbox, LIMITS, seed=1)
    assert policy.seeds[0] == policy.seeds[1] != policy.seeds[2]


@given(st.lists(st.floats(-5, 5), max_size=6), st.booleans())
def test_returns_stay_in_their_range(rewards: list[float], terminated: bool) -> None:
    assert -1 <= episode_return(rewards, terminated, "outcome") <= 1
    assert 0 <= episode_return(rewards, terminated, "progress") <= 1
    if not terminated:
        assert episode_return(rewards, terminated, "outcome") == 0
    assert episode_return(rewards, False, "progress") < 1
    assert (
        episode_return([*rewards, 1.0], True, "outcome")
        == episode_return([*rewards, 1.0], True, "progress")
        == 1
    )
