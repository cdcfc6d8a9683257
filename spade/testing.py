"""Conformance checks for everything that can be plugged in; usable in anybody's test suite.

Each `check_*` raises AssertionError with one sentence that says which promise is broken. We run them over
every in-tree member as well.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from spade.envs.check import check_env as check_env
from spade.serving.conformance import check_policy as check_policy
from spade.serving.policy import Policy, SamplingParams
from spade.types import (
    EnvProgram,
    Episode,
    EpisodeEnd,
    Group,
    Instance,
    Scored,
    StageResult,
    StopReason,
    Trajectory,
    Turn,
    content_id,
)


async def check_backend(policy: Policy, prompts: Sequence[Sequence[int]], max_tokens: int = 64) -> None:
    """A policy's promises: shapes, log-probs, budget, seeds, and accounting.

    `prompts` are token ids the policy can read. The policy is left open.
    """
    params = SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=11)
    before = policy.stats.sampled_tokens
    rows = await policy.generate(prompts, params, n=2)
    assert len(rows) == len(prompts), f"{len(rows)} answers to {len(prompts)} prompts"
    assert all(len(row) == 2 for row in rows), "n=2 must give two completions a prompt"
    sampled = 0
    for completion in (c for row in rows for c in row):
        count = len(completion.token_ids)
        sampled += count
        assert count <= max_tokens, f"{count} tokens sampled, but max_tokens is {max_tokens}"
        assert len(completion.logprobs_T) == count, "one log-prob a token"
        assert all(p <= 1e-6 for p in completion.logprobs_T), "a log-prob above 0"
        assert isinstance(completion.stop, StopReason), f"stop is {completion.stop!r}, not a StopReason"
        assert completion.stop != StopReason.LENGTH or count == max_tokens, (
            "LENGTH means the budget is used up"
        )
    assert policy.stats.sampled_tokens - before == sampled, (
        "stats.sampled_tokens must count every sampled token"
    )
    await _check_seeds(policy, prompts, max_tokens)


async def _check_seeds(policy: Policy, prompts: Sequence[Sequence[int]], max_tokens: int) -> None:
    each = [SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=100 + i) for i in range(len(prompts))]
    first = await policy.generate(prompts, each)
    again = await policy.generate(prompts, each)
    assert _ids(first) == _ids(again), "the same seeds must give the same tokens"
    turned = await policy.generate(prompts[::-1], each[::-1])
    assert _ids(turned)[::-1] == _ids(first), "a completion depends on prompt and seed, not on its place"


def _ids(rows: Sequence[Sequence[Any]]) -> list[tuple[int, ...]]:
    return [tuple(completion.token_ids) for row in rows for completion in row]


def check_suite(suite: Any) -> None:
    """A suite's promises: a name and version, stable unique item ids, a subset of them under `limit`."""
    assert suite.name and isinstance(suite.name, str), "a suite has a name"
    assert isinstance(suite.version, int), "a suite has a whole-number version"
    items = list(suite.items(seed=0, limit=None))
    ids = [item.id for item in items]
    assert ids, "a suite has items"
    assert len(set(ids)) == len(ids), "item ids are unique"
    assert [item.id for item in suite.items(seed=0, limit=None)] == ids, "item ids and order are stable"
    few = [item.id for item in suite.items(seed=0, limit=min(3, len(ids)))]
    assert len(few) == min(3, len(ids)) and set(few) <= set(ids), "limit takes some of the same items"
    json.dumps([item.payload for item in items])


async def check_stage_function(stage: Any, codes: Sequence[str], **parameters: Any) -> list[StageResult]:
    """A validation stage's promises, tried alone on programs (their source texts); returns its results.

    A stage is an async function of the bench whose parameters are keyword-only and have defaults. On every
    program it returns, or refuses with a reason code and a sentence, and it does the same again.
    """
    from spade.config import SandboxConfig, ValidateConfig
    from spade.envs.battery import STAGES, Step, check_parameters, parameters_of
    from spade.envs.sandbox import Sandbox
    from spade.envs.validate import run_steps

    assert inspect.iscoroutinefunction(stage), "a stage is an async function of the bench"
    name = getattr(stage, "__name__", "stage")
    missing = [n for n, default in parameters_of(stage).items() if default is inspect.Parameter.empty]
    assert not missing, f"the parameters {missing} of the stage {name} have no defaults"
    check_parameters(name, stage, parameters)
    steps = [Step(name, functools.partial(stage, **parameters))]
    cfg = ValidateConfig(stages=dict.fromkeys(STAGES, False))
    results = []
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        for code in codes:
            first, again = [await run_steps(EnvProgram.of(code), sandbox, cfg, steps) for _ in range(2)]
            result = first.stages[0]
            check_stage(result)
            same = (result.code, result.detail) == (again.stages[0].code, again.stages[0].detail)
            assert same, f"the stage {name} judges one program in two ways"
            results.append(result)
    return results


def check_stage(result: StageResult) -> None:
    """What a validation stage must come to: a name, a code that agrees with `ok`, a non-negative time."""
    assert isinstance(result, StageResult), f"a stage returns a StageResult, not {type(result).__name__}"
    assert result.stage, "a stage result names its stage"
    assert (result.code == "ok") == result.ok, f"code '{result.code}' does not agree with ok={result.ok}"
    assert result.ok or result.detail, "a rejection says why in `detail`"
    assert result.seconds >= 0, "seconds are not negative"


async def check_source(make: Callable[[], Any], programs: int, steps: int = 3) -> None:
    """A source's promises, tried with a player who always wins and one who never does.

    `make` gives fresh twins in the same world, whose `play.programs` is `programs`. A source gives different
    programs with ids that are their content, at most that many a step; the same ones to a twin that saw the
    same plays, also when it went through a checkpoint in between; credits for plays alone; and plain JSON
    as its state.
    """
    source, twin = make(), make()
    for step in range(steps):
        given, again = await source.begin_step(step), await twin.begin_step(step)
        assert given, "a step has programs"
        ids = [program.id for program, _ in given]
        assert len(ids) <= programs, f"{len(ids)} programs in a step of {programs}"
        assert len(set(ids)) == len(ids), "a program twice in one step"
        assert ids == [program.id for program, _ in again], "twins give different programs"
        assert all(p.id == content_id(p.code) for p, _ in given), "an id that is not the content's hash"
        assert all(p.hint or not hinted for p, hinted in given), "a hinted arm of a program without a hint"
        groups = [_won_and_lost(program) for program, _ in given]
        credits = await source.observe(step, groups)
        await twin.observe(step, groups)
        played = {id(e.trajectory) for g in groups for e in g.plain}
        agents = [c.trajectory for c in credits if c.trajectory.role == "agent"]
        foreign = [t for t in agents if id(t) not in played]
        assert not foreign, "credits for plays that did not happen"
        assert isinstance(source.owes_play, bool), "owes_play is a bool"
        numbers = source.metrics()
        assert all(isinstance(v, float | int) for v in numbers.values()), "metrics are numbers"
        state = json.loads(json.dumps(source.state_dict(), sort_keys=True))
        twin = make()
        twin.load_state_dict(state)
        back = json.loads(json.dumps(twin.state_dict(), sort_keys=True))
        assert back == state, "state changes on its way through a checkpoint"
    assert isinstance(source.flush(), list), "flush gives a list of credits"


def _won_and_lost(program: EnvProgram) -> Group:
    """Two plain plays of a program, one won and one lost, each of one token."""

    def episode(seed: int, value: float) -> Episode:
        trajectory = Trajectory("agent", (1,), (2,), (1,), (-0.5,))
        turn = Turn((2,), (-0.5,), "x", "x", "", value, StopReason.STOP)
        instance = Instance(program.id, seed)
        return Episode(instance, trajectory, (turn,), "", Scored(value, value >= 1), EpisodeEnd.TERMINATED)

    return Group(program, (episode(0, 1.0), episode(1, 0.0)))


def check_state(thing: Any, fresh: Any) -> None:
    """Whatever has state: `state_dict` is JSON and `load_state_dict` restores it in a fresh twin."""
    state = thing.state_dict()
    text = json.dumps(state, sort_keys=True)
    fresh.load_state_dict(json.loads(text))
    assert json.dumps(fresh.state_dict(), sort_keys=True) == text, (
        "state changes on its way through a checkpoint"
    )


def check_sink(sink: Any) -> None:
    """An open sink's promises: it takes rows as a run writes them (values that are no finite number, new
    keys, a step again after a resume, words, nested values), leaves them alone, and may be closed twice.
    """
    rows: list[dict[str, Any]] = [
        {"step": 1, "reward": 0.5, "seconds/play": 1},
        {"step": 2, "reward": float("nan"), "new": 1.0, "empty": None},
        {"step": 2, "reward": float("inf"), "word": "x", "nested": {"a": [1, 2]}, "flag": True},
        {"step": 3},
    ]
    for row in rows:
        before = repr(row)
        sink.log(row)
        assert repr(row) == before, "a sink changes the row that it is given"
    sink.close()
    sink.close()
