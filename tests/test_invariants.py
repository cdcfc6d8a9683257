"""Fifteen statements about the method that must hold whatever else changes, each one a test.

They run with scripted policies through the real loop, sandbox, validator and files, on a CPU, and are what a
user may rely on: docs/method.md lists them in words.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spade.config import DesignConfig, MemoryConfig, RewardConfig, SandboxConfig, ValidateConfig
from spade.design.designer import active_skills
from spade.envs.memory import NEGATIVE_RANGE, POSITIVE_RANGE, Memory, Record
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate_many
from spade.errors import ProgramFault
from spade.learn.advantages import GROUP_KINDS, agent_advantages, designer_advantages, designer_scale
from spade.learn.regret import plateau
from spade.learn.rewards import Evidence, raw_reward
from spade.play.actions import BoxedCodec, codec_for
from spade.types import EnvProgram, Regret
from tests.envs.envs_programs import game
from tests.serving.families import FAMILIES
from tests.serving.test_serving_templates import game as game_of
from tests.serving.test_serving_templates import tool_use as tool_use_of
from tests.train.scripted_world import DigestLearner, World, decisions, rows, small_config, train

PLANTED = Path(__file__).parent / "envs" / "planted"
RETURNS = st.lists(st.sampled_from([0.0, 1.0, 0.5]) | st.floats(-1, 1), min_size=1, max_size=16)


def world_playing(reply: Any) -> World:
    """The scripted world with another way to play: `reply(prompt, hinted)`."""
    world = World()
    world.play = lambda prompt: reply(prompt, "HINT" in prompt)  # type: ignore[method-assign]
    return world


def test_invariant_01_both_arms_are_equal_but_for_the_hint(tmp_path: Path) -> None:
    seen: dict[bool, list[str]] = {True: [], False: []}
    bisect = World().play

    def reply(prompt: str, hinted: bool) -> str:
        without = "\n".join(line for line in prompt.splitlines() if "HINT" not in line)
        seen[hinted].append(without.rstrip())
        return bisect(f"{prompt}HINT")  # skilled in both arms

    _, folder, _ = train(small_config(tmp_path / "a", train__steps=2), world_playing(reply))
    episodes = rows(folder, "episodes.jsonl")
    hinted = {(e["step"], e["program"], e["seed"]): e for e in episodes if e["hinted"]}
    plain = {(e["step"], e["program"], e["seed"]): e for e in episodes if not e["hinted"]}
    assert hinted and set(hinted) <= set(plain)
    for key, episode in hinted.items():
        assert {k: v for k, v in episode.items() if k != "hinted"} == {
            k: v for k, v in plain[key].items() if k != "hinted"
        }
    assert seen[True] and set(seen[True]) <= set(seen[False])  # same prompts, line for line, but the hint's
    measured = [m["regret"] for m in rows(folder, "metrics.jsonl") if "regret" in m]
    assert measured and set(measured) == {0.0}


def test_invariant_02_hint_and_difficulty_are_paid_as_published(tmp_path: Path) -> None:
    cfg = RewardConfig(skill_gate=False)

    def paid(regret: float, mean: float) -> float:
        window = {0: [mean + 0.5, mean - 0.5] if 0 < mean < 1 else [mean, mean]}
        return raw_reward("blend", Evidence(Regret(regret, 0.0, 8, 0), window), cfg)

    assert paid(1.0, 0.0) == pytest.approx(0.4) and paid(0.0, 0.5) == pytest.approx(0.6)
    assert paid(1.0, 0.5) == pytest.approx(1.0)
    bisect = World().play
    world = world_playing(lambda prompt, hinted: bisect(prompt) if hinted else r"\boxed{0}")
    run = small_config(
        tmp_path / "a", train__steps=2, reward__skill_gate=False, design__include_invalid=False
    )
    _, folder, _ = train(run, world)
    first = rows(folder, "metrics.jsonl")[0]
    assert (first["regret"], first["return_plain"], first["return_hinted"]) == (1.0, 0.0, 1.0)
    assert first["designer_reward"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("mean", "value"),
    [(0.15, 0.0), (0.275, 0.5), (0.4, 1.0), (0.5, 1.0), (0.6, 1.0), (0.725, 0.5), (0.85, 0.0), (0.0, 0.0)],
)
def test_invariant_03_anchor_values(mean: float, value: float) -> None:
    assert plateau(mean, 0.4, 0.6, 0.25) == pytest.approx(value, abs=1e-12)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RETURNS, st.sampled_from(GROUP_KINDS), st.lists(st.sampled_from("abc"), min_size=1, max_size=24))
def test_invariant_04_advantages_sum_to_zero(returns: list[float], kind: str, skills: list[str]) -> None:
    advantages = agent_advantages(returns, kind)
    assert abs(advantages.sum()) < 1e-9 * max(1.0, np.abs(advantages).max())
    assert not agent_advantages([returns[0]] * len(returns), kind).any()
    rewards = [returns[i % len(returns)] for i in range(len(skills))]
    by_design = designer_advantages(rewards, skills, 32.0)
    for skill in set(skills):
        mine = [by_design[i] for i, s in enumerate(skills) if s == skill]
        assert abs(sum(mine)) < 1e-9
        if len({rewards[i] for i, s in enumerate(skills) if s == skill}) == 1:
            assert not any(mine)


def test_invariant_05_designer_scale() -> None:
    assert designer_scale(192, 24, 4) == 32.0
    assert designer_scale(192, 24, 8) == 50.0  # 64, capped


def test_invariant_06_skill_windows() -> None:
    cfg = DesignConfig(skills_per_step=3, every=4)
    first, last = cfg.skills[:3], cfg.skills[3:]
    for step in range(80):
        assert active_skills(cfg, step) == (first if step // 4 % 2 == 0 else last)
    assert active_skills(cfg.model_copy(update={"skills_per_step": 0}), 9) == cfg.skills


@pytest.mark.parametrize(("every", "delay", "steps"), [(1, 0, 3), (2, 3, 5), (3, 3, 7), (2, 9, 4)])
def test_invariant_07_every_design_is_trained_exactly_once(
    tmp_path: Path, every: int, delay: int, steps: int
) -> None:
    cfg = small_config(tmp_path / "a", design__every=every, design__delay=delay, train__steps=steps)
    before = DigestLearner(fail_at=steps - 1)
    with pytest.raises(KeyboardInterrupt):
        train(cfg, learner=before)
    _, folder, after = train(cfg)
    _, _, straight = train(cfg.model_copy(update={"out": str(tmp_path / "b")}))
    designs = rows(folder, "designs.jsonl")
    once = Counter(s.prompt_ids + s.completion_ids for s in straight.seen if s.role == "designer")
    assert sum(once.values()) == len(designs) and set(once.values()) == {1}
    assert after.digest.tolist() == straight.digest.tolist()  # a hash over everything that was trained


def test_invariant_08_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    def cfg(name: str) -> Any:
        return small_config(tmp_path / name, design__delay=3, train__steps=7, train__checkpoint_every=1)

    _, straight, reference = train(cfg("a"))
    kills = random.Random(8).choices(range(1, 8), k=10)
    for fail_at in kills:  # ten kills in a row, most of them before any new checkpoint
        try:
            train(cfg("b"), learner=DigestLearner(fail_at=fail_at))
        except KeyboardInterrupt:
            continue
    _, resumed, learner = train(cfg("b"))
    assert decisions(resumed) == decisions(straight)
    assert learner.digest.tolist() == reference.digest.tolist()


HOSTILE = {
    "environment": "import os\n        text = os.environ.get('SPADE_CANARY', 'none')",
    "socket": "import socket\n        text = str(socket.create_connection(('127.0.0.1', {port}), 1))",
    "file": "open({path!r}, 'w').write('x')\n        text = 'written'",
    "fork": "import os\n        text = str(os.fork())",
    "memory": "text = str(len([0] * 10**9))",
    "loop": "text = ''\n        while True:\n            pass",
}


async def test_invariant_09_no_program_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADE_CANARY", "secret")
    target = tmp_path / "written"
    cfg = SandboxConfig(cpu_seconds=0.3, wall_factor=4)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        async with await Sandbox.start(cfg) as sandbox:
            for kind, lines in HOSTILE.items():
                body = lines.replace("{port}", str(listener.getsockname()[1])).replace(
                    "{path!r}", repr(str(target))
                )
                code = game(reset=f"{body}\n        self.x = '1'\n        return text or '?', {{}}")
                try:
                    worker = await sandbox.open(code, strict=False)
                    text = await worker.reset(0, 1)
                    assert kind == "environment" and "secret" not in text, kind
                except ProgramFault:
                    pass
                alive = await sandbox.open(game())  # the run goes on
                assert "add" in await alive.reset(0, 1)
                await alive.close()
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert not target.exists() and os.environ["SPADE_CANARY"] == "secret"


def test_invariant_10_a_fault_never_changes_a_return(tmp_path: Path) -> None:
    from tests.train.scripted_world import guess_program

    trap = guess_program(9, 4).replace("        n = int", "        assert a != '7'\n        n = int")
    world = world_playing(lambda prompt, hinted: r"\boxed{7}" if len(prompt) % 2 else r"\boxed{2}")
    world.design = lambda prompt: f"```python\n{trap}```"  # type: ignore[method-assign]
    stages = {"contract": False, "leak": False, "floor": False, "replay": False, "late": False}
    cfg = small_config(tmp_path / "a", train__steps=1, validator__stages=stages, play__plays=8)
    _, folder, learner = train(cfg, world)
    episodes = rows(folder, "episodes.jsonl")
    broken = [e for e in episodes if e["end"] == "fault"]
    assert broken and all(e["value"] is None for e in broken)
    scored = [e["value"] for e in episodes if not e["hinted"] and e["value"] is not None]
    if scored:
        assert rows(folder, "metrics.jsonl")[0]["return_plain"] == pytest.approx(np.mean(scored))
    assert len([s for s in learner.seen if s.role == "agent"]) <= len(scored)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("hint", [None, "halve the range"])
def test_invariant_11_training_streams_are_the_canonical_rendering(name: str, hint: str | None) -> None:
    for episode in (game_of(name, hint), tool_use_of(name, hint)):  # both compare every prompt on the way
        spoken = [i for turn in episode.turns for i in turn.completion_ids]
        streams = episode.trajectories
        masked = [i for t in streams for i, m in zip(t.completion_ids, t.mask, strict=True) if m]
        assert masked == spoken
        assert all(p == 0.0 for t in streams for p, m in zip(t.logprobs, t.mask, strict=True) if not m)


CONTENT = st.text(st.characters(exclude_characters="{}\\<>", exclude_categories=["Cs"]), max_size=12)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answer=CONTENT, decoys=st.lists(CONTENT, max_size=3), inner=CONTENT)
def test_invariant_12_the_last_box_outside_the_thought_counts(
    answer: str, decoys: list[str], inner: str
) -> None:
    codec = BoxedCodec()
    boxes = " ".join(f"\\boxed{{{d}}}" for d in decoys)
    nested = f"a{answer}{{{inner}}}"
    for content in (answer, nested):
        text = f"<think>\\boxed{{no}} {boxes}</think>{boxes} so \\boxed{{{content}}}."
        assert codec.parse(text).content == content.strip()


VALUES = st.recursive(
    st.integers(-9, 9) | st.booleans() | CONTENT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(CONTENT, inner, max_size=2),
    max_leaves=6,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    calls=st.lists(
        st.tuples(
            st.from_regex(r"[a-z]{1,8}", fullmatch=True),
            st.dictionaries(
                st.from_regex(r"[a-z]{1,6}", fullmatch=True),
                st.recursive(
                    st.integers(-9, 9) | st.booleans() | CONTENT,
                    lambda values: (
                        st.lists(values, max_size=3) | st.dictionaries(CONTENT, values, max_size=2)
                    ),
                    max_leaves=6,
                ),
                max_size=3,
            ),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_invariant_12_tool_calls_are_read_in_order(calls: list[tuple[str, dict[str, Any]]]) -> None:
    blocks = [f"<tool_call>{json.dumps({'name': n, 'arguments': a})}</tool_call>" for n, a in calls]
    decoy = '<think><tool_call>{"name": "decoy", "arguments": {}}</tool_call></think>'
    read = codec_for("tool_use").parse(f"{decoy}Now: {' '.join(blocks)}").calls
    assert [(call.name, call.arguments) for call in read] == calls


def test_invariant_13_memory() -> None:
    memory = Memory(MemoryConfig(enabled=True, capacity=20, tokens=4000))
    rng = random.Random(13)
    for i in range(60):
        mean = rng.random()
        numbers = [rng.randint(0, 9) for _ in range(40)]
        body = f"class A{i}Env:\n    x = {numbers}\n    def f{i}(self): return {i}\n"
        memory.add(Record(f"p{i}", body, "S", mean, mean, rng.uniform(-0.2, 0.8), i, 0.1, 0.05, 3.0))
    assert len(memory.records) == 20
    assert [r.step for r in memory.records] == sorted(r.step for r in memory.records)
    assert min(r.step for r in memory.records) >= 40 - 20  # near twins leave early, never late
    by_id = {r.program_id: r for r in memory.records}
    for seed in range(50):
        drawn = memory.draw("S", random.Random(seed), len)
        assert drawn == memory.draw("S", random.Random(seed), len)
        for exemplar in drawn:
            mean = by_id[exemplar.program_id].mean_return
            assert mean is not None
            if exemplar.label == "a good game":
                assert POSITIVE_RANGE[0] <= mean <= POSITIVE_RANGE[1]
            else:
                assert mean < NEGATIVE_RANGE[0] or mean > NEGATIVE_RANGE[1]
    assert not memory.draw("other", random.Random(0), len)


DEFECTS = {
    "trivial win": "win_for_anything.py",
    "unwinnable": "goal_walled_in.py",
    "constant observation": "constant_text.py",
    "stall to win": "stall_by_wait.py",
    "one-word win": "magic_word.py",
    "seed-insensitive": "seed_ignored.py",
    "clock-dependent": "clock_in_task.py",
    "crash at turn 4": "crash_at_turn_4.py",
    "crash in a later reset": "crash_in_later_reset.py",
    "reward out of range": "reward_two.py",
    "NaN reward": "reward_nan.py",
    "5 MB observation": "five_megabytes.py",
    "never-ending": "never_ends.py",
    "leaky reset text": "answer_in_brackets.py",
    "system exit on a command": "exit_on_quit.py",
}
"""Each kind of defect, and a program of the bank in tests/envs/planted that has it and no other."""


async def test_invariant_14_each_defect_is_caught_with_its_own_reason() -> None:
    manifest = {row["file"]: row for row in json.loads((PLANTED / "manifest.json").read_text())}
    good = [row["file"] for row in manifest.values() if row["expect"] == "accept"]
    files = [*DEFECTS.values(), *good[::3]]
    programs = [EnvProgram.of((PLANTED / file).read_text()) for file in files]
    async with await Sandbox.start(SandboxConfig(cpu_seconds=0.5)) as sandbox:
        verdicts = dict(zip(files, await validate_many(programs, sandbox, ValidateConfig()), strict=True))
    for file in DEFECTS.values():
        assert (file, verdicts[file].code) == (file, manifest[file]["code"])
    for file in good[::3]:
        assert (file, verdicts[file].code) == (file, "accepted")
    crashes = {"crash at turn 4", "crash in a later reset"}  # both are an exception, at different stages
    assert len({verdicts[file].code for file in DEFECTS.values()}) == len(DEFECTS) - len(crashes) + 1


def test_invariant_15_baselines_share_the_loop_and_keep_a_ledger(tmp_path: Path) -> None:
    import spade.train.loop as loop

    ledgers = {}
    for name in ("self_play", "fixed_pool"):
        own = {"train__pool": None, "train__pool_size": 3, "train__steps": 2}
        cfg = small_config(tmp_path / name, train__source=name, **own)
        called: list[str] = []
        original = loop._generate

        async def counted(run: Any, called: list[str] = called, original: Any = original) -> Any:
            called.append(type(run.source).__name__)
            return await original(run)

        loop._generate = counted
        try:
            summary, folder, _ = train(cfg)
        finally:
            loop._generate = original
        assert len(called) == 2 and len(set(called)) == 1
        ledgers[name] = folder.record.ledger
        assert summary["total_tokens"] == ledgers[name]["total_tokens"] > 0
    arms = ("tokens_design", "tokens_hint", "tokens_plain", "tokens_hinted", "tokens_pool_design")
    for ledger in ledgers.values():
        assert ledger["total_tokens"] == sum(ledger[arm] for arm in arms)
        assert {"plays_plain", "plays_hinted", "optimiser_steps"} <= set(ledger)
    assert ledgers["fixed_pool"]["tokens_hinted"] == 0 < ledgers["fixed_pool"]["tokens_pool_design"]
    assert ledgers["self_play"]["tokens_hinted"] > 0
