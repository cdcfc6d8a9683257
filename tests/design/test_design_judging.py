"""The model behind the stage `judge`, programs nobody could judge, and the turns that a brief asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from spade.config import SandboxConfig
from spade.design.designer import Designer
from spade.design.judging import ModelJudge, open_judge
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate
from spade.errors import ConfigError
from spade.serving.chat import ChatPolicy
from spade.serving.policy import Completion, SamplingParams
from spade.serving.scripted import ScriptedPolicy
from spade.types import Design, EnvProgram, StopReason
from tests.design.phase import chat_of, config, fence, game, unreliable


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig(force_level="L2s")) as running:
        yield running


def codes(designs: list[Design]) -> list[str]:
    return [d.verdict.code for d in designs if d.verdict is not None]


@pytest.mark.parametrize(
    ("reply", "code"),
    [("\\boxed{yes}", "accepted"), ("\\boxed{no}", "judge_no"), ("yes", "judge_no_verdict")],
)
async def test_a_model_of_its_own_judges(sandbox: Sandbox, reply: str, code: str) -> None:
    cfg = config({"stages": {"judge": True}, "judge": {"model": f"scripted:constant:{reply}"}})
    judge = await open_judge(cfg)
    verdict = await validate(EnvProgram.of(game(20)), sandbox, cfg.validator, judge=judge)
    await judge.close()
    assert verdict.code == code and judge.tokens == len(reply) + 1


class Wordy(ScriptedPolicy):
    """Its replies are cut by the token limit."""

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        n: int = 1,
    ) -> list[list[Completion]]:
        rows = await super().generate(prompts, params, n)
        return [[dataclasses.replace(c, stop=StopReason.LENGTH) for c in row] for row in rows]


async def test_a_reply_cut_short_is_no_verdict(sandbox: Sandbox) -> None:
    cfg = config({"stages": {"judge": True}})
    policy = Wordy.from_function(lambda prompt: "\\boxed{yes}")
    judge = ModelJudge(cfg, ChatPolicy(policy.renderer, policy))
    verdict = await validate(EnvProgram.of(game(20)), sandbox, cfg.validator, judge=judge)
    assert verdict.code == "judge_no_verdict"
    with pytest.raises(ConfigError, match=r"validator\.judge\.model"):
        await open_judge(config())


async def test_nobody_pays_for_a_program_that_could_not_be_judged(sandbox: Sandbox) -> None:
    cfg = config({"stages": {"judge": True}})
    designer = Designer(
        cfg, chat_of(lambda prompt: fence(game(20))), sandbox, judge=unreliable(lambda p: "FAIL")
    )
    assert await designer.round(0, 2, needed=1) == []
    assert [value for name, value in designer.metrics().items() if "lost" in name] == [2]
    assert designer.admission.known.twin_of(EnvProgram.of(game(20))) is None


@pytest.mark.parametrize(
    ("template", "turns", "game_type", "code"),
    [
        ("short", None, "multi_turn", "accepted"),  # the embedded model's small worlds
        ("full", None, "multi_turn", "too_few_turns"),
        ("full", 1, "multi_turn", "accepted"),
        ("short", 2, "multi_turn", "too_few_turns"),
        ("full", None, "single_turn", "accepted"),
    ],
)
async def test_a_brief_for_several_turns_wants_a_game_that_has_them(
    sandbox: Sandbox, template: str, turns: int | None, game_type: str, code: str
) -> None:
    cfg = config(template=template, min_oracle_turns=turns, game_type=game_type)
    designer = Designer(cfg, chat_of(lambda prompt: fence(game(20))), sandbox)
    assert codes(await designer.round(0, 1, needed=1)) == [code]
