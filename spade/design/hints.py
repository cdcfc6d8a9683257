"""Hints: privileged text about one program, written by the model or by the program, and checked.

A hint that fails the check is no hint: its program is played without a hinted arm, and its regret is unknown
rather than zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spade.config import HintConfig
from spade.design.prompts import choose_template, hint_messages
from spade.envs.hintcheck import check_hint, hint_facts
from spade.errors import ProgramFault
from spade.play.actions import strip_thoughts
from spade.rng import child_seed
from spade.serving.policy import SamplingParams
from spade.types import EnvProgram, StageResult, StopReason

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.launch import ChatPolicy


@dataclass(frozen=True, slots=True)
class HintDraft:
    """One hint with its check. `tokens` counts what the model sampled for it."""

    program_id: str
    text: str
    tokens: int
    check: StageResult

    @property
    def usable(self) -> str | None:
        """The hint if it passed."""
        return self.text if self.check.ok else None


async def write_hints(
    programs: Sequence[EnvProgram],
    chat: ChatPolicy,
    sandbox: Sandbox,
    cfg: HintConfig,
    *,
    seed: int,
    template: str = "auto",
) -> list[HintDraft]:
    """One checked hint per program, in order."""
    if cfg.source == "program":
        drafts = [(await _own_hint(program, sandbox, seed), 0, True) for program in programs]
    else:
        drafts = await _policy_hints(programs, chat, cfg, seed, template)
    return [
        HintDraft(program.id, text, tokens, await _check(program, text, complete, sandbox, cfg))
        for program, (text, tokens, complete) in zip(programs, drafts, strict=True)
    ]


def clean_hint(text: str) -> str:
    """Visible text on one line, without a leading label."""
    line = " ".join(strip_thoughts(text).split())
    return line[5:].strip() if line[:5].lower() == "hint:" else line


async def _policy_hints(
    programs: Sequence[EnvProgram], chat: ChatPolicy, cfg: HintConfig, seed: int, template: str
) -> list[tuple[str, int, bool]]:
    renderer, policy = chat.renderer, chat.policy
    style = choose_template(template, policy.context_length)
    prompts = [renderer.start(list(hint_messages(p.code, style, cfg.max_words))) for p in programs]
    asked = [i for i, prompt in enumerate(prompts) if len(prompt) < policy.context_length]
    params = [
        SamplingParams(
            max_tokens=min(cfg.max_tokens, policy.context_length - len(prompts[i])),
            temperature=cfg.temperature,
            stop_token_ids=renderer.stop_token_ids,
            seed=child_seed(seed, "hint", programs[i].id),
        )
        for i in asked
    ]
    answers = await policy.generate([prompts[i] for i in asked], params) if asked else []
    drafts = [("", 0, False)] * len(programs)
    for i, (completion,) in zip(asked, answers, strict=True):
        text = clean_hint(renderer.text(list(completion.token_ids)))
        drafts[i] = (text, len(completion.token_ids), completion.stop is StopReason.STOP)
    return drafts


async def _own_hint(program: EnvProgram, sandbox: Sandbox, seed: int) -> str:
    """The program's own `hint()`; empty when it has none or breaks."""
    try:
        worker = await sandbox.open(program.code)
        try:
            if not worker.info.has_hint:
                return ""
            await worker.reset(0, child_seed(seed, "hint", program.id) % 2**31)
            return clean_hint(await worker.hint(0))
        finally:
            await worker.close()
    except ProgramFault:
        return ""


async def _check(
    program: EnvProgram, text: str, complete: bool, sandbox: Sandbox, cfg: HintConfig
) -> StageResult:
    if not text:
        return StageResult("hint", False, "no_hint", "no hint was written", 0.0)
    if not complete:
        return StageResult("hint", False, "unfinished", "the hint did not end within its token limit", 0.0)
    try:
        facts = await hint_facts(program, sandbox)
    except ProgramFault as error:
        return StageResult("hint", False, "program_fault", str(error), 0.0)
    return check_hint(text, facts, cfg.max_words)
