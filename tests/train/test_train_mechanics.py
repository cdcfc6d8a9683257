"""The scripted Designer that never changes, and the checks before a run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from spade.config import GAME_SKILLS, TOOL_SKILLS
from spade.config_load import config_names, load_config
from spade.design.prompts import designer_messages
from spade.embedded.designer import MechanicsPolicy, asked_skill, program_for
from spade.errors import ConfigError
from spade.serving.policy import SamplingParams
from spade.serving.scripted import ByteRenderer
from spade.train.checks import check_run
from spade.types import StopReason
from tests.train.scripted_world import World, rows, small_config, train

DECOY = "Optimization and Data Retrieval are words of this document."


@pytest.mark.parametrize("style", ["short", "full"])
@pytest.mark.parametrize(
    ("game_type", "skill"),
    [*(("multi_turn", s) for s in GAME_SKILLS), *(("tool_use", s) for s in TOOL_SKILLS)],
)
def test_a_brief_gets_a_program_of_its_skill_and_kind(style: str, game_type: Any, skill: str) -> None:
    messages = designer_messages(DECOY, skill, game_type, "medium", (), style)
    brief = "\n".join(m.content for m in messages)
    assert asked_skill(brief) == skill
    made = program_for(brief, random.Random(1))
    assert made.mechanic.skill == skill and ("(ToolEnv)" in made.code) == (game_type == "tool_use")


def test_briefs_without_a_known_skill_get_any_game() -> None:
    assert asked_skill("Write a game.") is None
    levels = {program_for("Skill: Cooking.", random.Random(i)).level for i in range(20)}
    assert levels == {0, 1, 2}


async def test_replies_depend_on_prompt_and_seed_and_are_cut_like_a_model_s() -> None:
    renderer = ByteRenderer()
    policy = MechanicsPolicy(renderer, 4096)
    prompt = list(b"Skill: Optimization.")
    params = [SamplingParams(5000, seed=s) for s in (1, 1, 2)]
    one, same, other = (row[0] for row in await policy.generate([prompt] * 3, params))
    assert one == same != other and one.stop is StopReason.STOP
    assert renderer.text(one.token_ids).startswith("```python\nimport random")
    cut = (await policy.generate([prompt], SamplingParams(20, seed=1)))[0][0]
    assert cut.token_ids == one.token_ids[:20] and cut.stop is StopReason.LENGTH
    assert policy.stats.sampled_tokens == sum(len(c.token_ids) for c in (one, same, other, cut))


def test_it_designs_in_a_run_and_nothing_is_learned_from_it(tmp_path: Path) -> None:
    cfg = small_config(
        tmp_path / "a", design__policy="scripted:mechanics", design__max_tokens=4000, train__steps=2
    )
    summary, folder, learner = train(cfg)
    designs = rows(folder, "designs.jsonl")
    assert sum(d["accepted"] for d in designs) >= 3  # of four; a repeat or a small world may be refused
    assert {s.role for s in learner.seen} == {"agent"}
    assert summary["tokens_design"] == sum(d["tokens"] for d in designs) > 0
    metrics = rows(folder, "metrics.jsonl")
    assert all("designer_age" not in m for m in metrics) and metrics[-1]["designs_trained"] == 0


def test_every_shipped_config_passes_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spade.serving.launch._from_hub", lambda ref: Path())
    for name in config_names():
        cfg = load_config(name)
        if "smollm2" not in cfg.model:
            check_run(cfg)
    assert load_config("ablations/embedded/strong-designer").design.policy == "scripted:mechanics"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"play__hinted_plays": 0}, r"play\.hinted_plays is 0.*reward\.type=solve_rate"),
        ({"play__hinted_plays": 5}, r"play\.hinted_plays is 5.*play\.plays is 4"),
        (
            {"play__hinted_plays": 0, "reward__type": "solve_rate", "hints__train": True},
            r"hints\.train is true",
        ),
        ({"play__returns": "progress", "design__game_type": "tool_use"}, r"use play\.returns=outcome"),
        ({"play__plays": 1, "play__hinted_plays": 1}, r"play\.plays is 1.*ema"),
        ({"learner__optimizer_per_role": False, "learner__designer_lr_factor": 0.5}, r"designer_lr_factor"),
        ({"design__policy": "separate", "learner__designer_weight": 0}, r"design\.policy=frozen"),
        ({"design__policy": "scripted:mechanics", "design__guide_weight": 0.5}, r"design\.guide_weight=0"),
        ({"design__policy": "scripted:mechanics", "design__game_type": "single_turn"}, r"single-turn"),
        ({"design__policy": "scripted:mechanics", "validator__stages": {"judge": True}}, r"cannot judge"),
        ({"validator__stages": {"flor": False}}, r"unknown stage 'flor'"),
        ({"play__codec": "boxxed"}, r"unknown codec 'boxxed'"),
        ({"reward__type": "micro_lp", "design__delay": 1}, r"design\.delay is 1"),
    ],
)
def test_contradictions_are_refused_in_one_sentence(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        check_run(small_config(tmp_path, **changes))
    assert "\n" not in str(caught.value) and not str(caught.value).endswith(".")


def test_what_only_self_play_needs_is_not_asked_of_a_pool(tmp_path: Path) -> None:
    check_run(small_config(tmp_path, play__hinted_plays=0, train__source="fixed_pool"))


@pytest.mark.parametrize("checks", [True, False])
def test_hints_that_tell_a_secret_are_shown_when_the_config_says_so(tmp_path: Path, checks: bool) -> None:
    world = World(hint="think of the xylophone")
    design = world.design
    secret = "    secret = 'xylophone'\n    max_turns"
    world.design = lambda p: design(p).replace("    max_turns", secret)  # type: ignore[method-assign]
    summary, folder, _ = train(small_config(tmp_path / "a", hints__checks=checks, train__steps=1), world)
    codes = {d["hint_code"] for d in rows(folder, "designs.jsonl") if d["accepted"]}
    assert codes == ({"hint_leaks_code"} if checks else {"ok"})
    assert (summary["plays_hinted"] > 0) is not checks


def test_without_checks_a_hint_may_still_not_be_too_long(tmp_path: Path) -> None:
    world = World(hint="far too many words " * 30)
    _, folder, _ = train(small_config(tmp_path / "a", hints__checks=False, train__steps=1), world)
    codes = {d["hint_code"] for d in rows(folder, "designs.jsonl") if d["accepted"]}
    assert codes <= {"hint_too_long", "unfinished"} and codes
