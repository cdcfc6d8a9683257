"""The design phase with the real validator and sandbox, and a scripted Designer."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from spade.config import SandboxConfig
from spade.design.designer import (
    DUPLICATE,
    HELDOUT,
    NO_CODE,
    QUOTA,
    Designer,
    accepted,
    active_skills,
    twin_id,
)
from spade.design.skills import VARIANTS
from spade.design.variety import read_mark, structure
from spade.envs.memory import Record
from spade.envs.sandbox import Sandbox
from spade.errors import BackendError, InputError
from spade.serving.policy import SamplingParams
from spade.types import EnvProgram
from tests.design.phase import BROKEN, RENAMED, chat_of, config, fence, game, replies, unreliable


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig()) as box:
        yield box


def codes(designs: list) -> list[str]:  # type: ignore[type-arg]
    return [d.verdict.code for d in designs if d.verdict]


async def test_every_attempt_has_a_verdict_with_its_reason(sandbox: Sandbox) -> None:
    chat, seen = replies("nothing", fence(BROKEN), fence(game(20)), fence(RENAMED), fence(game(23)))
    held = EnvProgram.of(game(23))
    designer = Designer(config(), chat, sandbox, {held.id: held})
    designs = await designer.round(0, 5, needed=5)
    assert codes(designs)[0] == NO_CODE and codes(designs)[2:] == ["accepted", DUPLICATE, HELDOUT]
    assert codes(designs)[1] not in (NO_CODE, "accepted", DUPLICATE)
    assert designs[2].program is not None and twin_id(designs[3]) == designs[2].program.id
    assert twin_id(designs[4]) is None and not accepted(designs[4])
    assert [d.brief.skill for d in designs] == [designer.cfg.design.skills[i % 2] for i in range(5)]
    assert len({d.brief.document_id for d in designs}) == 5 and len(set(seen)) == 5
    t = designs[2].trajectory
    assert t.role == "designer" and t.sampled_tokens == len(t.completion_ids) == len(t.logprobs)
    assert designer.tokens == sum(d.trajectory.sampled_tokens for d in designs)
    assert [d.novelty for d in designs] == [None, None, 1.0, None, None]


async def test_a_known_program_is_refused_later_and_after_a_reload(sandbox: Sandbox) -> None:
    chat, _ = replies(fence(game(20)))
    designer = Designer(config(), chat, sandbox)
    first = await designer.round(0, 1, needed=1)
    assert accepted(first[0])
    (second,) = await designer.round(2, 1, needed=1)
    copy = Designer(config(), replies(fence(RENAMED))[0], sandbox)
    copy.load_state_dict(json.loads(json.dumps(designer.state_dict())))
    (third,) = await copy.round(4, 1, needed=1)
    assert first[0].program is not None
    assert twin_id(second) == twin_id(third) == first[0].program.id
    assert copy.corpus.state_dict()["position"] == 3


@pytest.mark.parametrize(
    ("mode", "stages", "wanted"),
    [
        ("identical", {}, ["accepted", "accepted", "duplicate"]),
        ("equal", {}, ["accepted", "duplicate", "duplicate"]),
        ("equal", {"near_duplicate": False}, ["accepted", "duplicate", "duplicate"]),
        ("near", {}, ["accepted", "duplicate", "duplicate"]),
    ],
)
async def test_how_strictly_duplicates_are_refused(
    sandbox: Sandbox, mode: str, stages: dict[str, bool], wanted: list[str]
) -> None:
    cfg = config({"stages": stages}, refuse_duplicates=mode)
    designer = Designer(cfg, replies(fence(game(20)), fence(RENAMED), fence(game(20)))[0], sandbox)
    assert codes(await designer.round(0, 3, needed=3)) == wanted
    again = Designer(cfg, replies(fence(game(20)))[0], sandbox)
    again.load_state_dict(json.loads(json.dumps(designer.state_dict())))
    assert codes(await again.round(2, 1, needed=1)) == ["duplicate"]


async def test_near_duplicates_are_refused_if_asked(sandbox: Sandbox) -> None:
    other = game(20).replace("find the number", "guess the number")
    for mode, similar, wanted in (("near", 0.6, "duplicate"), ("near", 0.999, "accepted")):
        cfg = config(refuse_duplicates=mode, near_duplicate=similar)
        designer = Designer(cfg, replies(fence(game(20)), fence(other))[0], sandbox)
        assert codes(await designer.round(0, 2, needed=2)) == ["accepted", wanted]


async def test_two_programs_of_one_batch_that_are_played_alike(sandbox: Sandbox) -> None:
    rewritten = game(20).replace(
        '"right" if done else "higher" if', '"right" if n == self.x else "higher" if'
    )
    chat, _ = replies(fence(game(20)), fence(rewritten))
    cfg = config({"stages": {"near_duplicate": {"in_small_worlds": True}}})
    assert codes(await Designer(cfg, chat, sandbox).round(0, 2, needed=2)) == ["accepted", "near_duplicate"]
    chat, _ = replies(fence(game(20)), fence(rewritten))
    off = config({"stages": {"near_duplicate": False}})
    assert codes(await Designer(off, chat, sandbox).round(0, 2, needed=2)) == ["accepted"] * 2


async def test_failed_slots_are_tried_again_until_enough_are_accepted(sandbox: Sandbox) -> None:
    chat, seen = replies("no", "no", fence(game(20)), fence(game(21)), fence(game(22)))
    designs = await Designer(config(attempts=3), chat, sandbox).round(0, 2, needed=2)
    assert [accepted(d) for d in designs] == [False, False, True, True] and len(seen) == 4
    assert len({d.brief.document_id for d in designs}) == 4  # a fresh document for every attempt
    chat, seen = replies("no", fence(game(20)), fence(game(21)))
    assert len(await Designer(config(attempts=3), chat, sandbox).round(0, 2, needed=1)) == 2
    chat, seen = replies("no")
    assert len(await Designer(config(attempts=3), chat, sandbox).round(0, 2, needed=2)) == 6


# --- nothing that is finished is lost ------------------------------------------------------------------


async def test_finished_designs_survive_one_that_hangs_and_one_that_fails(sandbox: Sandbox) -> None:
    said = iter([fence(game(20)), "HANG", "FAIL", fence(game(21))])
    designer = Designer(config(seconds=1.0), unreliable(lambda prompt: next(said)), sandbox)
    designs = await designer.round(0, 4, needed=4)
    assert codes(designs) == ["accepted", "accepted"]
    assert designer.metrics()["designs_lost"] == 2.0


async def test_a_lost_slot_is_tried_again_with_another_document(sandbox: Sandbox) -> None:
    said = iter(["HANG", fence(game(20)), fence(game(21))])
    designer = Designer(config(seconds=0.5, attempts=2), unreliable(lambda prompt: next(said)), sandbox)
    designs = await designer.round(0, 2, needed=2)
    assert codes(designs) == ["accepted", "accepted"]
    assert designer.corpus.state_dict()["position"] == 3


async def test_the_phase_has_a_deadline_of_its_own(sandbox: Sandbox) -> None:
    calls = []

    def answer(prompt: str) -> str:
        calls.append(prompt)
        return fence(game(20)) if len(calls) == 1 else "HANG"

    cfg = config(seconds=200.0, phase_seconds=0.5, attempts=5)
    designer = Designer(cfg, unreliable(answer), sandbox)
    started = time.monotonic()
    designs = await designer.round(0, 2, needed=2)
    assert time.monotonic() - started < 100 and codes(designs) == ["accepted"] and len(calls) == 2


async def test_an_engine_that_answers_nothing_at_all_is_an_error(sandbox: Sandbox) -> None:
    designer = Designer(config(), unreliable(lambda prompt: "FAIL"), sandbox)
    with pytest.raises(BackendError, match="500"):
        await designer.round(0, 2, needed=2)


# --- repair --------------------------------------------------------------------------------------------


async def test_repair_turns_bring_a_program_but_train_the_first_turn(sandbox: Sandbox) -> None:
    chat, seen = replies(fence(BROKEN), "no", fence(game(20)))
    designer = Designer(config(repair_turns=2), chat, sandbox)
    (design,) = await designer.round(0, 1, needed=1)
    assert design.repaired and accepted(design) and design.program is not None
    assert design.program.code == game(20) and design.text == fence(BROKEN)
    assert design.trajectory.completion_ids == (*fence(BROKEN).encode(), 256)
    assert design.first_verdict is not None and design.first_verdict.code not in ("accepted", NO_CODE)
    assert f"Rejected, {design.first_verdict.code}" in seen[1] and BROKEN in seen[1]
    assert NO_CODE in seen[2] and seen[2].count("[assistant]") == 2
    assert design.extra_tokens == len("no") + len(fence(game(20))) + 2
    assert designer.tokens == design.sampled_tokens and designer.metrics()["designs_repaired"] == 1.0
    (again,) = await designer.round(2, 1, needed=1)
    assert twin_id(again) == design.program.id  # what was repaired is known from then on


async def test_repair_gives_up_and_leaves_the_design_as_it_was(sandbox: Sandbox) -> None:
    chat, seen = replies(fence(BROKEN), "no")
    (design,) = await Designer(config(repair_turns=2), chat, sandbox).round(0, 1, needed=1)
    assert len(seen) == 3 and not design.repaired and not accepted(design)
    assert design.program is not None and design.program.code == BROKEN and design.extra_tokens == 6


async def test_only_what_a_repair_could_help_is_repaired(sandbox: Sandbox) -> None:
    chat, seen = replies(fence(game(20)), fence(RENAMED), "no")
    designs = await Designer(config(repair_turns=1), chat, sandbox).round(0, 2, needed=2)
    assert codes(designs) == ["accepted", DUPLICATE] and len(seen) == 2


async def test_a_repair_that_hangs_loses_nothing(sandbox: Sandbox) -> None:
    said = iter([fence(BROKEN), fence(game(20)), "HANG"])
    designer = Designer(config(repair_turns=1, seconds=0.5), unreliable(lambda prompt: next(said)), sandbox)
    designs = await designer.round(0, 2, needed=2)
    assert [accepted(d) for d in designs] == [False, True]


# --- briefs --------------------------------------------------------------------------------------------


async def test_a_brief_that_is_too_long_gives_up_exemplars_then_its_document(sandbox: Sandbox) -> None:
    chat = chat_of(lambda prompt: "no", context_length=1000)
    cfg = config(max_tokens=300, document_tokens=5000, memory={"enabled": True, "tokens": 5000})
    designer = Designer(cfg, chat, sandbox)
    for n, skill in enumerate(cfg.design.skills[:2]):
        designer.memory.add(Record(skill, game(20 + n), skill, 0.5, 0.5, 0.1, 0))
    designs = await designer.sample(0, 2)
    assert all(len(d.trajectory.prompt_ids) <= 700 for d in designs)
    assert all(d.brief.exemplar_ids == () for d in designs)
    roomy = Designer(cfg, chat_of(lambda prompt: "no"), sandbox)
    roomy.memory.records = designer.memory.records
    assert all(len(d.brief.exemplar_ids) == 1 for d in await roomy.sample(0, 2))
    tiny = Designer(config(), chat_of(lambda prompt: "no", context_length=120), sandbox)
    with pytest.raises(InputError, match=r"a brief alone takes \d+ tokens of the model's 120"):
        await tiny.sample(0, 1)


async def test_tool_use_briefs_draw_domain_and_variant_per_attempt(sandbox: Sandbox) -> None:
    chat, seen = replies("no")
    cfg = config(game_type="tool_use", skills_per_step=0)
    designs = await Designer(cfg, chat, sandbox).sample(0, 40)
    assert {d.brief.domain for d in designs} > {"banking", "calendar"}
    assert {d.brief.variant for d in designs} == {"plain", "conditional", "missing", "decline"}
    assert [d.brief.skill for d in designs[:6]] == list(cfg.design.skills)
    assert all(f"Domain: {d.brief.domain}." in p for d, p in zip(designs, seen, strict=True))
    again = await Designer(cfg, replies("no")[0], sandbox).sample(0, 40)
    assert [d.brief for d in again] == [d.brief for d in designs]
    bare = Designer(
        config(game_type="tool_use", domains=(), variants=dict.fromkeys(VARIANTS, 0.0)), chat, sandbox
    )
    assert [(d.brief.domain, d.brief.variant) for d in await bare.sample(0, 2)] == [("", "")] * 2


async def test_without_a_corpus_briefs_name_ideas(sandbox: Sandbox) -> None:
    chat, seen = replies("no")
    designs = await Designer(config(corpus="none"), chat, sandbox).sample(0, 2)
    assert [d.brief.document_id for d in designs] == ["", ""]
    assert all("\nIdeas: " in prompt for prompt in seen) and seen[0] != seen[1]


async def test_the_prompt_says_what_the_configuration_does(sandbox: Sandbox) -> None:
    cfg = config(template="full").model_dump()
    cfg["play"]["returns"], cfg["sandbox"]["numpy"], cfg["hints"]["source"] = "progress", True, "program"
    cfg["validator"]["max_observation_chars"] = 1234
    chat, seen = replies("no")
    await Designer(type(config()).model_validate(cfg), chat, sandbox).sample(0, 1)
    for words in ("how much of the way is done", "typing, numpy.", "`hint()`", "1,234 characters"):
        assert words in seen[0]


@pytest.mark.parametrize(("every", "width"), [(1, 3), (4, 3), (3, 4), (2, 0), (5, 6), (1, 1)])
def test_skills_rotate_in_windows(every: int, width: int) -> None:
    cfg = config(every=every, skills_per_step=width).design
    for step in range(40):
        start = (step // every) * width % 6
        wanted = [cfg.skills[(start + i) % 6] for i in range(width)] if 0 < width < 6 else list(cfg.skills)
        assert list(active_skills(cfg, step)) == wanted


# --- memory and variety --------------------------------------------------------------------------------


async def test_rejected_programs_are_remembered_with_their_reason(sandbox: Sandbox) -> None:
    chat, seen = replies("no", fence(BROKEN), fence(game(20)), fence(RENAMED))
    designer = Designer(config(memory={"enabled": True, "tokens": 4000}), chat, sandbox)
    designs = await designer.round(0, 4, needed=4)
    (kept,) = designer.memory.records
    assert kept.code == BROKEN and kept.verdict == codes(designs)[1] and kept.detail
    await designer.sample(1, 2)
    assert f"Earlier program, rejected, {kept.verdict.replace('_', ' ')}:" in seen[5]
    silent = Designer(config(), replies(fence(BROKEN))[0], sandbox)
    await silent.round(0, 1, needed=1)
    assert silent.memory.records == []


async def test_novelty_is_the_distance_from_what_is_remembered(sandbox: Sandbox) -> None:
    designer = Designer(config(), replies(fence(game(20)))[0], sandbox)
    designer.memory.add(Record("p", game(21), "Optimization", 0.5, 0.5, 0.1, 0))
    (design,) = await designer.round(0, 1, needed=1)
    assert design.novelty is not None and 0.0 < design.novelty < 0.5
    assert designer.metrics()["novelty"] == design.novelty


async def test_the_quota_counts_structures_per_skill_and_set(sandbox: Sandbox) -> None:
    assert structure(game(20)) == structure(RENAMED) == structure(game(23)) != structure(BROKEN)
    texts = [fence(game(n)) for n in range(20, 26)]
    designer = Designer(config(quota=1, skills_per_step=2), replies(*texts)[0], sandbox)
    designs = await designer.round(0, 4, needed=4)
    assert codes(designs) == ["accepted", "accepted", QUOTA, QUOTA]  # one for each of the two skills
    assert codes(await designer.round(2, 1, needed=1)) == ["accepted"]  # a new set
    free = Designer(config(), replies(*texts)[0], sandbox)
    assert codes(await free.round(0, 4, needed=4)) == ["accepted"] * 4


async def test_the_guide_rates_accepted_programs_in_a_call_of_its_own(sandbox: Sandbox) -> None:
    said = {"Rate it": "Clear.\n\\boxed{7/10}"}
    prompts = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return next((text for key, text in said.items() if key in prompt), fence(game(20 + len(prompts))))

    designer = Designer(config(guide_weight=0.5), chat_of(answer), sandbox)
    designs = await designer.round(0, 2, needed=2)
    assert [d.guide for d in designs] == [0.7, 0.7] and designer.metrics()["guide"] == pytest.approx(0.7)
    assert sum("Rate it" in p for p in prompts) == 2 and designs[0].extra_tokens > 10
    said["Rate it"] = "I cannot say."
    assert [d.guide for d in await designer.round(2, 1, needed=1)] == [None]
    prompts.clear()
    await Designer(config(), chat_of(answer), sandbox).round(0, 1, needed=1)
    assert not any("Rate it" in p for p in prompts)


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("\\boxed{7}", 0.7),
        ("<think>\\boxed{2}</think> so \\boxed{ 8.5 / 10 }", 0.85),
        ("\\boxed{0}", 0.0),
        ("\\boxed{10 out of 10}", 1.0),
        ("\\boxed{11}", None),
        ("\\boxed{-1}", None),
        ("\\boxed{nan}", None),
        ("7", None),
        ("", None),
    ],
)
def test_marks_are_read_strictly(text: str, mark: float | None) -> None:
    assert read_mark(text) == mark


async def test_the_designers_own_model_answers_the_judge(sandbox: Sandbox) -> None:
    said = {"answer": "\\boxed{no}"}

    def answer(prompt: str) -> str:
        return said["answer"] if "Answer these questions" in prompt else fence(game(20))

    cfg = config({"stages": {"judge": True}})
    designer = Designer(cfg, chat_of(answer), sandbox)
    (design,) = await designer.round(0, 1, needed=1)
    assert codes([design]) == ["judge_no"]
    assert designer.tokens == design.trajectory.sampled_tokens + len("\\boxed{no}") + 1
    said["answer"] = "\\boxed{yes}"
    assert codes(await designer.round(2, 1, needed=1)) == ["accepted"]
    other = Designer(cfg, chat_of(answer), sandbox, judge=replies("\\boxed{no}")[0])
    assert codes(await other.round(0, 1, needed=1)) == ["judge_no"]


async def test_a_reply_that_begins_inside_a_thought(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some templates open the thought themselves; what stands before its end is a draft."""
    finished = f"a draft:\n{fence(game(21))}\n</think>\n{fence(game(20))}"
    chat, _ = replies(finished, f"a draft:\n{fence(game(22))}")
    monkeypatch.setattr(chat.renderer, "opens_thought", lambda thinking=None: thinking is not False)
    designs = await Designer(config(), chat, sandbox).round(0, 2, needed=2)
    assert codes(designs) == ["accepted", NO_CODE]
    assert designs[0].program is not None and designs[0].program.code == game(20)
    chat, _ = replies(f"no draft:\n{fence(game(22))}")
    monkeypatch.setattr(chat.renderer, "opens_thought", lambda thinking=None: thinking is not False)
    assert codes(await Designer(config(thinking=False), chat, sandbox).round(0, 1, needed=1)) == ["accepted"]


async def test_the_designer_samples_as_configured(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    chat, _ = replies("no")
    seen: list[SamplingParams] = []
    generate = chat.policy.generate

    async def spy(prompts: Any, params: Any, n: int = 1) -> Any:
        seen.extend(params)
        return await generate(prompts, params, n)

    monkeypatch.setattr(chat.policy, "generate", spy)
    await Designer(config(top_p=0.95, top_k=20, temperature=0.6, max_tokens=99), chat, sandbox).sample(0, 2)
    assert {(p.top_p, p.top_k, p.temperature, p.max_tokens) for p in seen} == {(0.95, 20, 0.6, 99)}
    assert len({p.seed for p in seen}) == 2
