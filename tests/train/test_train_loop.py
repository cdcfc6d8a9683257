"""The loop with real sandbox, validator and files, without a model: exactness, accounting, resuming."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spade.envs.battery import STAGES
from spade.errors import FaultKind, InputError, SandboxError
from spade.interrupt import StopFlag
from spade.train.groups import check_faults
from spade.types import EnvProgram, Episode, EpisodeEnd, Fault, Group, Instance, Scored, Trajectory
from tests.train.scripted_world import (
    DigestLearner,
    World,
    decisions,
    guess_program,
    rows,
    small_config,
    train,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One uninterrupted run."""
    return train(small_config(tmp_path_factory.mktemp("run") / "whole"))


def test_rows_ledger_and_checkpoints(whole: Any) -> None:
    summary, folder, learner = whole
    metrics, episodes, designs = (rows(folder, f"{n}.jsonl") for n in ("metrics", "episodes", "designs"))
    assert [m["step"] for m in metrics] == [1, 2, 3, 4, 5, 6]
    assert {d["step"] for d in designs} == {1, 3, 5}
    assert len(designs) == 12 and summary["designs"] == 12
    by_arm = Counter(e["hinted"] for e in episodes)
    assert (summary["plays_plain"], summary["plays_hinted"]) == (by_arm[False], by_arm[True])
    assert by_arm[True] > 0
    assert summary["tokens_plain"] == sum(e["tokens"] for e in episodes if not e["hinted"])
    assert summary["tokens_hinted"] == sum(e["tokens"] for e in episodes if e["hinted"])
    assert summary["tokens_design"] == sum(d["tokens"] for d in designs)
    parts = [summary[f"tokens_{p}"] for p in ("design", "hint", "plain", "hinted", "pool_design")]
    assert summary["total_tokens"] == sum(parts) == metrics[-1]["tokens_total"]
    assert folder.record.ledger["total_tokens"] == summary["total_tokens"]
    names = sorted(p.name for p in (folder.path / "checkpoints").iterdir())
    assert names == ["step-000002", "step-000004", "step-000006"]
    assert learner.version == summary["optimiser_steps"] == 6
    accepted = {d["program"] for d in designs if d["accepted"]}
    assert {p.stem for p in (folder.path / "pool").glob("*.py")} == accepted


def test_hinted_plays_use_the_first_plain_seeds_of_new_programs(whole: Any) -> None:
    _, folder, _ = whole
    episodes = rows(folder, "episodes.jsonl")
    for step in range(1, 7):
        for program in {e["program"] for e in episodes if e["step"] == step}:
            mine = [e for e in episodes if e["step"] == step and e["program"] == program]
            hinted = [e["seed"] for e in mine if e["hinted"]]
            plain = [e["seed"] for e in mine if not e["hinted"]]
            assert hinted in ([], plain[:2])
    first = Counter((e["program"], e["step"]) for e in episodes if e["hinted"])
    assert all(n == 2 for n in first.values())
    assert len({program for program, _ in first}) == len(first)  # each program hinted at one step only


@pytest.mark.parametrize(("delay", "steps"), [(0, 5), (2, 5), (3, 6)])
def test_every_design_is_trained_exactly_once(tmp_path: Path, delay: int, steps: int) -> None:
    cfg = small_config(tmp_path / "run", design__delay=delay, train__steps=steps)
    _, folder, learner = train(cfg)
    trained = Counter(s.prompt_ids + s.completion_ids for s in learner.seen if s.role == "designer")
    designs = rows(folder, "designs.jsonl")
    assert sum(trained.values()) == len(designs)
    assert set(trained.values()) == {1}


@pytest.mark.parametrize(("fail_at", "delay"), [(1, 0), (4, 0), (5, 3)])
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(
    tmp_path: Path, whole: Any, fail_at: int, delay: int
) -> None:
    _, straight, reference = train(small_config(tmp_path / "a", design__delay=delay)) if delay else whole
    cfg = small_config(tmp_path / "b", design__delay=delay)
    with pytest.raises(KeyboardInterrupt):
        train(cfg, learner=DigestLearner(fail_at=fail_at))
    summary, resumed, learner = train(cfg)
    assert decisions(resumed) == decisions(straight)
    assert learner.digest.tolist() == reference.digest.tolist()
    assert summary["total_tokens"] == straight.record.ledger["total_tokens"]


def test_a_stop_request_ends_after_the_step_and_is_resumed(tmp_path: Path, whole: Any) -> None:
    _, straight, reference = whole
    cfg, stop = small_config(tmp_path / "b"), StopFlag()
    learner = DigestLearner()
    original = learner.step

    def stopping(*args: Any, **fields: Any) -> dict[str, float]:
        if learner.version == 2:
            stop.request()
        return original(*args, **fields)

    learner.step = stopping  # type: ignore[method-assign]
    summary, _, _ = train(cfg, learner=learner, stop=stop)
    assert summary["steps"] == 3
    _, resumed, last = train(cfg)
    assert decisions(resumed) == decisions(straight)
    assert last.digest.tolist() == reference.digest.tolist()


def test_a_finished_run_does_nothing_when_run_again(tmp_path: Path) -> None:
    cfg = small_config(tmp_path / "a", train__steps=2)
    first, folder, _ = train(cfg)
    before = decisions(folder)
    world = World()
    again, folder, _ = train(cfg, world)
    assert again["total_tokens"] == first["total_tokens"]
    assert decisions(folder) == before and sum(world.calls.values()) == 0


def test_the_token_budget_ends_the_run(tmp_path: Path, whole: Any) -> None:
    _, folder, _ = whole
    totals = [m["tokens_total"] for m in rows(folder, "metrics.jsonl")]
    cfg = small_config(tmp_path / "a", budget__total_tokens=totals[2] - 1)
    short, _, learner = train(cfg)
    assert short["steps"] == 3 and short["total_tokens"] == totals[2]
    assert any(s.role == "designer" for s in learner.seen)


def test_a_policy_that_ignores_hints_has_no_regret(tmp_path: Path) -> None:
    world = World()
    world.play = lambda prompt: r"\boxed{3}"  # type: ignore[method-assign]
    _, folder, _ = train(small_config(tmp_path / "a", train__steps=2), world)
    measured = [m["regret"] for m in rows(folder, "metrics.jsonl") if "regret" in m]
    assert measured and set(measured) == {0.0}


def test_a_hint_that_decides_everything_has_regret_one(tmp_path: Path) -> None:
    world = World()
    play = world.play
    world.play = lambda p: play(p) if "HINT" in p else r"\boxed{0}"  # type: ignore[method-assign]
    cfg = small_config(tmp_path / "a", train__steps=2, reward__skill_gate=False)
    _, folder, _ = train(cfg, world)
    first = rows(folder, "metrics.jsonl")[0]
    assert first["regret"] == 1.0 and first["return_plain"] == 0.0


def test_refused_hints_leave_regret_unknown(tmp_path: Path) -> None:
    world = World(hint="far too many words " * 30)
    summary, folder, _ = train(small_config(tmp_path / "a", train__steps=2), world)
    metrics = rows(folder, "metrics.jsonl")
    assert summary["plays_hinted"] == 0 and all("regret" not in m for m in metrics)
    assert metrics[0]["hints_usable"] == 0.0
    codes = {d["hint_code"] for d in rows(folder, "designs.jsonl") if d["accepted"]}
    assert codes and "ok" not in codes and None not in codes


@pytest.mark.parametrize("budget", [None, 9000])
def test_more_designs_than_one_step_plays_wait_for_their_turn(tmp_path: Path, budget: int | None) -> None:
    cfg = small_config(
        tmp_path / "a", design__designs=8, design__every=1, train__steps=7, budget__total_tokens=budget
    )
    _, folder, learner = train(cfg)
    designs, episodes = rows(folder, "designs.jsonl"), rows(folder, "episodes.jsonl")
    assert {d["program"] for d in designs if d["accepted"]} == {e["program"] for e in episodes}
    trained = Counter(s.prompt_ids + s.completion_ids for s in learner.seen if s.role == "designer")
    assert sum(trained.values()) == len(designs) and set(trained.values()) == {1}


def lost(kind: FaultKind) -> Episode:
    trajectory = Trajectory("agent", (1,), (), (), ())
    return Episode(Instance("p", 1), trajectory, (), "", Fault(kind, "step", "gone"), EpisodeEnd.FAULT)


def won() -> Episode:
    trajectory = Trajectory("agent", (1,), (2,), (1,), (-1.0,))
    return Episode(Instance("p", 1), trajectory, (), "", Scored(1.0, True), EpisodeEnd.TERMINATED)


def test_too_many_infrastructure_faults_stop_the_run() -> None:
    program = EnvProgram.of("x")
    infrastructure, broken = lost(FaultKind.INFRASTRUCTURE), lost(FaultKind.PROGRAM)
    check_faults([Group(program, (won(), won(), won(), infrastructure), (won(),))], 0.2, 1)
    check_faults([Group(program, (broken, broken))], 0.2, 1)
    with pytest.raises(SandboxError, match="step 7: 2 of 4 plays"):
        check_faults([Group(program, (won(), won()), (infrastructure, infrastructure))], 0.2, 7)


def test_a_model_without_weights_cannot_be_trained(tmp_path: Path) -> None:
    from spade.runs import RunFolder
    from spade.train.loop import run_training

    cfg = small_config(tmp_path / "a", model="scripted:null")
    folder = RunFolder.create_or_resume(cfg, "train", "test")
    with pytest.raises(InputError, match="no weights to train"):
        run_training(cfg, folder, StopFlag())


def test_a_designer_that_writes_nothing_playable_goes_on_and_learns_nothing(tmp_path: Path) -> None:
    world = World()
    world.design = lambda prompt: "nothing"  # type: ignore[method-assign]
    summary, folder, learner = train(small_config(tmp_path / "a", train__steps=3), world)
    assert summary["steps"] == 3 and summary["plays_plain"] == 0
    assert {s.advantage for s in learner.seen} == {0.0} and len(learner.seen) == 7
    assert rows(folder, "metrics.jsonl")[0]["rejected/no_code"] == 4


def test_the_window_can_be_played_again_instead_of_the_archive(tmp_path: Path) -> None:
    cfg = small_config(tmp_path / "a", play__replay="window", design__every=3, design__designs=3)
    _, folder, _ = train(cfg)
    played: dict[int, set[str]] = {}
    for e in rows(folder, "episodes.jsonl"):
        played.setdefault(e["step"], set()).add(e["program"])
    made = {
        s: {d["program"] for d in rows(folder, "designs.jsonl") if d["accepted"] and d["step"] == s}
        for s in (1, 4)
    }
    for step, programs in played.items():
        assert programs == made[1 if step < 4 else 4]


@pytest.mark.parametrize(("mode", "trained"), [("false", False), ("true", True), ("until_nonpositive", True)])
def test_hinted_plays_are_groups_of_their_own_if_trained(tmp_path: Path, mode: str, trained: bool) -> None:
    cfg = small_config(tmp_path / "a", hints__train=mode, train__steps=2)
    _, _, learner = train(cfg)
    groups = {s.group for s in learner.seen if s.role == "agent"}
    assert any(g.endswith("/hinted") for g in groups) is trained
    assert any(g.endswith("/plain") for g in groups)


def test_hinted_training_stops_when_regret_is_gone(tmp_path: Path) -> None:
    world = World()
    world.play = lambda prompt: r"\boxed{3}"  # type: ignore[method-assign]
    _, _, learner = train(
        small_config(tmp_path / "a", hints__train="until_nonpositive", train__steps=2), world
    )
    assert not any(s.group.endswith("/hinted") for s in learner.seen)


def test_a_program_that_breaks_in_play_costs_the_designer_and_is_retired(tmp_path: Path) -> None:
    world = World()
    trap = guess_program(9, 4).replace("        n = int", "        assert a != '7'\n        n = int")
    designs = iter([trap, guess_program(10, 4), guess_program(11, 4), guess_program(12, 4)])
    world.design = lambda prompt: f"```python\n{next(designs, 'x')}```"  # type: ignore[method-assign]
    world.play = lambda prompt: r"\boxed{7}"  # type: ignore[method-assign]
    cfg = small_config(
        tmp_path / "a",
        validator__stages={**dict.fromkeys(STAGES, False), **{"load": True}},
        design__fault_reward=-1.0,
        train__steps=2,
        learner__advantage="mean",
    )
    _, folder, learner = train(cfg, world)
    episodes = rows(folder, "episodes.jsonl")
    broken = {e["program"] for e in episodes if e["end"] == "fault"}
    assert len(broken) == 1 and {e["step"] for e in episodes if e["program"] in broken} == {1}
    worst = min((s for s in learner.seen if s.role == "designer"), key=lambda s: s.advantage)
    assert "assert a" in World().policy.renderer.text(worst.completion_ids)
    assert all(
        s.advantage == 0 for s in learner.seen if s.role == "agent" and f"/{next(iter(broken))}/" in s.group
    )
