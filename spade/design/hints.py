"""Hints: privileged text about one program, written by the model or by the program, and checked.

A hint that fails the check is no hint: its program is played without a hinted arm, and its regret is unknown
rather than zero.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spade.config import HintConfig
from spade.design.prompts import choose_template, hint_messages
from spade.envs.hintcheck import check_hint, check_hint_play, hint_facts, source_literals
from spade.errors import ProgramFault
from spade.play.actions import strip_thoughts
from spade.rng import child_seed
from spade.serving.policy import SamplingParams
from spade.types import EnvProgram, StageResult, StopReason

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.chat import ChatPolicy

CHECKED_AT_ONCE = 8
"""Hints checked side by side; each takes one worker."""


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
    floor_max: float,
    template: str = "auto",
) -> list[HintDraft]:
    """One checked hint per program, in order. `floor_max` limits what the hint's words win by themselves."""
    if cfg.source == "program":
        drafts = [(await _own_hint(program, sandbox, seed), 0, True) for program in programs]
    else:
        drafts = await _policy_hints(programs, chat, cfg, seed, template)
    gate = asyncio.Semaphore(max(1, min(CHECKED_AT_ONCE, sandbox.cfg.max_workers)))

    async def check(program: EnvProgram, text: str, complete: bool) -> StageResult:
        async with gate:
            return await _check(program, text, complete, sandbox, cfg, floor_max)

    pairs = list(zip(programs, drafts, strict=True))
    checks = await asyncio.gather(*(check(p, text, complete) for p, (text, _, complete) in pairs))
    return [
        HintDraft(p.id, text, tokens, result)
        for (p, (text, tokens, _)), result in zip(pairs, checks, strict=True)
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


def _without_hint(code: str) -> str:
    """The program without its `hint` methods."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.body = [n for n in node.body if not (isinstance(n, ast.FunctionDef) and n.name == "hint")]
    return ast.unparse(tree)


async def _check(
    program: EnvProgram, text: str, complete: bool, sandbox: Sandbox, cfg: HintConfig, floor_max: float
) -> StageResult:
    if not text:
        return StageResult("hint", False, "no_hint", "no hint was written", 0.0)
    if not complete:
        return StageResult("hint", False, "unfinished", "the hint did not end within its token limit", 0.0)
    try:
        facts = await hint_facts(program, sandbox)
        if cfg.source == "program":
            # the hint's own words are literals of the code, too; only the rest of the code is a secret
            facts = dataclasses.replace(facts, literals=source_literals(_without_hint(program.code)))
        result = check_hint(text, facts, cfg.max_words)
        return await check_hint_play(text, program, sandbox, floor_max) if result.ok else result
    except ProgramFault as error:
        return StageResult("hint", False, "program_fault", str(error), 0.0)
