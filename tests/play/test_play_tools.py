"""Tool use on the one episode loop, with a real sandbox; returns, budgets and who pays for faults."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio

from spade.config import PlayConfig, SandboxConfig
from spade.envs.sandbox import Sandbox
from spade.errors import FaultKind
from spade.learn.episodes import trained_streams
from spade.play.episode import ALMOST
from spade.play.schedule import play
from spade.serving.chat import ChatPolicy
from spade.serving.policy import Completion, SamplingParams
from spade.serving.scripted import ScriptedPolicy
from spade.types import EnvProgram, Episode, EpisodeEnd, Fault, Instance, Scored
from tests.play.programs import CLIMB, COUNT, GUESS, STORE

LIMITS = PlayConfig(max_turns=8, max_tokens=200)
SHOP = EnvProgram.of(STORE, game_type="tool_use")
CLIMBING = EnvProgram.of(CLIMB)
COUNTING = EnvProgram.of(COUNT)
GUESSING = EnvProgram.of(GUESS)
PROGRAMS = {p.id: p for p in (SHOP, CLIMBING, COUNTING, GUESSING)}
HINT = "one call a request, then answer done"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig(cpu_seconds=0.5)) as box:
        yield box


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def run(
    sandbox: Sandbox,
    policy: ScriptedPolicy,
    instances: Sequence[Instance],
    limits: PlayConfig = LIMITS,
    **options: Any,
) -> list[Episode]:
    chat = ChatPolicy(policy.renderer, policy)
    return await play(instances, PROGRAMS, chat, sandbox, limits, seed=1, **options)


async def script(
    sandbox: Sandbox, *replies: str, hint: str | None = None, program: EnvProgram = SHOP, **limits: Any
) -> Episode:
    """One episode in which turn k replies `replies[k]`; "SET" stands for the call that is asked for."""
    asked = iter(replies)
    policy = ScriptedPolicy.from_function(lambda prompt: next(asked))
    (episode,) = await run(sandbox, policy, [Instance(program.id, 3, hint)], LIMITS.model_copy(update=limits))
    return episode


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def shown(episode: Episode) -> list[tuple[str, str]]:
    t = episode.trajectory
    renderer = ScriptedPolicy().renderer
    return [(m.role, m.content) for m in renderer.messages([*t.prompt_ids, *t.completion_ids])]


# --- the conversation ------------------------------------------------------------------------------------


async def test_the_oracle_plays_the_solution(sandbox: Sandbox) -> None:
    instances = [Instance(SHOP.id, seed, hint) for seed in range(3) for hint in (None, HINT)]
    for episode in await run(sandbox, ScriptedPolicy("oracle"), instances):
        assert (episode.end, episode.outcome) == (EpisodeEnd.TERMINATED, Scored(1.0, True))
        assert [t.reward for t in episode.turns] == [0.0, 0.0, 1.0]
        assert episode.actions[-1] == "<answer>done</answer>"


async def test_the_opening_is_the_users_instruction_and_the_tools(sandbox: Sandbox) -> None:
    plain = await script(sandbox, "<answer>done</answer>", "x", "x", "x", "x", "x")
    (system, listing), (user, first) = shown(plain)[:2]
    assert (system, user) == ("system", "user") and first == plain.first_observation
    assert first.startswith("set milk to ")
    assert all(name in listing for name in ("set_stock", "read_stock", "decline", "<answer>done</answer>"))
    hinted = await script(sandbox, *["x"] * 6, hint=HINT)
    assert shown(hinted)[1][1] == f"{first}\n\nHINT: {HINT}"
    assert shown(hinted)[0] == shown(plain)[0]


async def test_each_call_of_a_turn_has_a_result_message_of_its_own(sandbox: Sandbox) -> None:
    three = "\n".join(
        [call("read_stock", good="milk"), call("no_such"), call("set_stock", good="tea", count=5)]
    )
    episode = await script(sandbox, three, "<answer>done</answer>", *["x"] * 4)
    talk = shown(episode)
    assert [role for role, _ in talk[:7]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
        "assistant",
    ]
    assert "<|im_end|>" in talk[3][1] and talk[4][1].startswith("error") and talk[5][1] == "tea is 5"
    assert talk[7][0] == "user" and talk[7][1].startswith("not yet")
    assert episode.turns[0].observation == "\n".join(text for _, text in talk[3:6])
    assert episode.end is EpisodeEnd.TRUNCATED and episode.truncated


async def test_calls_of_one_turn_run_in_order(sandbox: Sandbox) -> None:
    turn = (
        call("set_stock", good="tea", count=5)
        + call("read_stock", good="tea")
        + call("set_stock", good="tea", count=6)
    )
    episode = await script(sandbox, turn, *["x"] * 5)
    assert [text.split(" <")[0] for role, text in shown(episode) if role == "tool"] == [
        "tea is 5",
        "tea is 5",
        "tea is 6",
    ]


async def test_an_answer_outranks_the_calls_of_its_turn(sandbox: Sandbox) -> None:
    turn = call("set_stock", good="tea", count=5) + "<answer>done</answer>"
    episode = await script(sandbox, turn, call("read_stock", good="tea"), *["x"] * 4)
    assert episode.actions[0] == "<answer>done</answer>"
    assert episode.turns[0].observation.startswith("not yet")
    assert not episode.turns[1].observation.startswith("tea is 5 ")


async def test_other_forms_reach_the_program_as_the_same_call(sandbox: Sandbox) -> None:
    forms = (
        call("set_stock", good="tea", count=5),
        "<tool_call>\n<function=set_stock>\n<parameter=good>\ntea\n</parameter>\n<parameter=count>\n5\n</parameter>\n"
        "</function>\n</tool_call>",
        '<|python_tag|>{"name": "set_stock", "parameters": {"good": "tea", "count": 5}}',
        call("set_stock", **{}).replace("{}", json.dumps(json.dumps({"good": "tea", "count": 5}))),
        "<think>"
        + call("set_stock", good="tea", count=9)
        + "</think>"
        + call("set_stock", good="tea", count=5),
    )
    episode = await script(sandbox, *forms, "x")
    assert len(set(episode.actions[:5])) == 1
    assert [t.observation for t in episode.turns[:5]] == ["tea is 5"] * 5
    assert not any(t.malformed for t in episode.turns[:5])


# --- malformed turns, faults -----------------------------------------------------------------------------


async def test_malformed_turns_cost_the_turn_and_are_marked(sandbox: Sandbox) -> None:
    bad = ("I think it is done.", "<tool_call>{oops</tool_call>", "<think>" + call("decline", reason="no"))
    episode = await script(sandbox, *bad, call("read_stock", good="tea"), "<answer>done</answer>", "x")
    assert [t.malformed for t in episode.turns] == [True, True, True, False, False, True]
    assert [t.reward for t in episode.turns] == [0.0] * 6
    roles = [role for role, _ in shown(episode)]
    assert roles[3::2][:3] == ["user", "tool", "user"]
    assert episode.turns[1].observation == "error: a call needs name and arguments"
    (whole,), (masked,) = episode.trajectories, trained_streams(episode, True)
    kept = [t for turn in episode.turns if not turn.malformed for t in turn.completion_ids]
    assert [i for i, m in zip(masked.completion_ids, masked.mask, strict=True) if m] == kept
    assert masked.completion_ids == whole.completion_ids and sum(whole.mask) > sum(masked.mask)
    assert all(p == 0.0 for p, m in zip(masked.logprobs, masked.mask, strict=True) if not m)


async def test_what_a_tool_breaks_never_becomes_a_return(sandbox: Sandbox) -> None:
    episode = await script(sandbox, call("set_stock", good="bomb", count=1), *["x"] * 5)
    assert isinstance(episode.outcome, Fault) and episode.outcome.kind is FaultKind.PROGRAM
    assert episode.end is EpisodeEnd.FAULT and not episode.truncated


async def test_a_tool_use_program_without_the_base_class(sandbox: Sandbox) -> None:
    """Its step answers for itself: no results, so observations come as messages of the user."""
    plain = EnvProgram.of(COUNT, game_type="tool_use")
    PROGRAMS[plain.id] = plain
    policy = ScriptedPolicy.from_function(lambda prompt: call("win"))
    (episode,) = await run(sandbox, policy, [Instance(plain.id, 1)])
    assert episode.outcome == Scored(1.0, True) and '"win"' in episode.actions[0]


# --- both arms -------------------------------------------------------------------------------------------


PAIRS = [Instance(p.id, seed, hint) for p in (SHOP, GUESSING) for seed in range(6) for hint in (None, HINT)]


async def differences(sandbox: Sandbox, policy: ScriptedPolicy, **options: Any) -> list[float]:
    episodes = await run(sandbox, policy, PAIRS, **options)
    values = [e.outcome.value for e in episodes if isinstance(e.outcome, Scored)]
    assert len(values) == len(PAIRS)
    return [b - a for a, b in zip(values[::2], values[1::2], strict=True)]


async def test_a_player_that_ignores_hints_has_no_regret(sandbox: Sandbox) -> None:
    policy = ScriptedPolicy.hint_blind(0.5)
    assert await differences(sandbox, policy) == [0.0] * 12
    plain = await run(sandbox, policy, PAIRS[::2])
    assert {e.outcome for e in plain} == {Scored(0.0, False), Scored(1.0, True)}


async def test_a_player_that_needs_the_hint_has_regret_one(sandbox: Sandbox) -> None:
    assert await differences(sandbox, ScriptedPolicy.hint_reader()) == [1.0] * 12
    even = ScriptedPolicy.oracle_if(lambda i: i.hint is not None or i.seed % 2 == 0)
    assert sorted(await differences(sandbox, even)) == [0.0] * 6 + [1.0] * 6


async def test_hint_only_play_shows_no_observation_of_a_tool(sandbox: Sandbox) -> None:
    seen: list[str] = []

    def reply(prompt: str) -> str:
        seen.append(prompt)
        return call("read_stock", good="tea")

    policy = ScriptedPolicy.from_function(reply)
    await run(sandbox, policy, [Instance(SHOP.id, 1, HINT)], blank=True)
    assert "tea is" not in seen[-1] and "set milk" not in seen[-1] and HINT in seen[-1]


# --- budgets ---------------------------------------------------------------------------------------------


class Counting(ScriptedPolicy):
    """Notes the budget of every turn and uses it up."""

    def __init__(self, **fields: Any) -> None:
        super().__init__("null", **fields)
        self.asked: list[tuple[int, int]] = []

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        n: int = 1,
    ) -> list[list[Completion]]:
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        self.asked += [(len(p), s.max_tokens) for p, s in zip(prompts, each, strict=True)]
        return await super().generate(prompts, params, n)


@pytest.mark.parametrize("hint", [None, HINT])
async def test_a_turn_gets_what_is_left_less_the_reserve(sandbox: Sandbox, hint: str | None) -> None:
    policy = Counting(context_length=260)
    limits = PlayConfig(max_turns=25, max_tokens=120, reserve=64)
    (episode,) = await run(sandbox, policy, [Instance(GUESSING.id, 1, hint)], limits)
    assert all(tokens == min(120, 260 - length - 64) for length, tokens in policy.asked)
    assert any(tokens < 120 for _, tokens in policy.asked)
    assert episode.end in (EpisodeEnd.CONTEXT_LIMIT, EpisodeEnd.TRUNCATED)


async def test_no_room_beyond_the_reserve_is_a_context_limit(sandbox: Sandbox) -> None:
    policy = Counting(context_length=150)
    (episode,) = await run(sandbox, policy, [Instance(GUESSING.id, 1)], PlayConfig(reserve=140))
    assert (episode.end, policy.asked, episode.truncated) == (EpisodeEnd.CONTEXT_LIMIT, [], True)
    assert episode.trajectories[0].completion_ids == ()


# --- returns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moves", "outcome", "progress"),
    [
        (("up", "up", "stop"), 0.6, 0.6),
        (("up", "up", "down", "stop"), 0.4, 0.6),
        (("up", "up", "up", "up"), 0.0, ALMOST),  # past the goal, but the program did not say so
        (("up", "up", "up", "up stop"), 1.0, 1.0),
        (("down", "down", "down", "stop"), -0.6, 0.0),
        (("x", "x", "x", "x"), 0.0, 0.0),
    ],
)
async def test_outcome_and_progress(
    sandbox: Sandbox, moves: tuple[str, ...], outcome: float, progress: float
) -> None:
    boxes = [f"\\boxed{{{m}}}" for m in moves]
    for rule, value in (("outcome", outcome), ("progress", progress)):
        episode = await script(sandbox, *boxes, program=CLIMBING, returns=rule)
        assert isinstance(episode.outcome, Scored) and episode.outcome.value == pytest.approx(value)
        assert episode.outcome.solved == (value >= 1)


@pytest.mark.parametrize("lockstep", [True, False])
async def test_drivers_agree_on_tool_use(sandbox: Sandbox, lockstep: bool) -> None:
    made: list[Callable[[], ScriptedPolicy]] = [lambda: ScriptedPolicy("oracle"), ScriptedPolicy.hint_reader]
    for make in made:
        policy = make()
        policy.lockstep = lockstep
        for shared in (True, False):
            episodes = await run(sandbox, policy, PAIRS, shared_workers=shared)
            wins = [e.outcome == Scored(1.0, True) for e in episodes]
            assert wins == (
                [True] * 24 if policy.kind == "oracle" and make is made[0] else [False, True] * 12
            )
