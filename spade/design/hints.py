"""Hints: privileged text about one program, written by the model or by the program, and checked.

The model reads the code in a call of its own that is never trained, and may try again when a hint fails its
check. A hint that still fails, or never came, is no hint: its program is played without a hinted arm, and its
regret is unknown rather than zero.

`hints.source: solution` is the hint a Designer that is paid for regret would like best: the answer. It stands
for hints that leak, whoever wrote them, and shows what the checks are for.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from spade.config import HintConfig
from spade.deadlines import all_in_time
from spade.design.ask import ask, said, sampling
from spade.design.prompts import choose_template, hint_messages
from spade.envs.contract import solution_actions
from spade.envs.hintcheck import FACT_SEEDS, check_hint, check_hint_play, hint_facts, source_literals
from spade.envs.process import raise_fault
from spade.envs.samples import battery_seeds
from spade.envs.wire import Op, Request
from spade.errors import FaultKind, ProgramFault
from spade.play.actions import strip_thoughts
from spade.rng import child_seed
from spade.serving.policy import SamplingParams
from spade.types import EnvProgram, StageResult, StopReason

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.chat import ChatPolicy

CHECKED_AT_ONCE = 8
"""Hints checked side by side; each takes one worker."""

INFRASTRUCTURE = "infrastructure"
"""Reason code of a hint that was lost by the machinery: no answer in time, or a worker lost in the check."""


SOLUTION = "the solution is {}"
"""The hint of `source: solution`, with the actions as they have to be written."""

OK = StageResult("hint", True, "ok", "", 0.0)
"""The verdict where the config asks for no checks."""


@dataclass(frozen=True, slots=True)
class HintDraft:
    """The last hint written for a program, with its check. `tokens` counts what was sampled in all tries."""

    program_id: str
    text: str
    tokens: int
    check: StageResult
    tries: int = 1

    @property
    def usable(self) -> str | None:
        """The hint if it passed."""
        return self.text if self.check.ok else None


@dataclass(frozen=True, slots=True)
class _Written:
    """One hint as written: `lost` if no answer came, `complete` if it ended within its token limit."""

    text: str
    tokens: int
    complete: bool
    lost: bool = False


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
    """One checked hint per program, in order. `floor_max` limits what the hint's words win by themselves.

    Raises BackendError when no question at all is answered.
    """
    judge = _Judge(sandbox, cfg, floor_max, time.monotonic() + cfg.phase_seconds)
    if cfg.source != "policy":
        write = _own_hint if cfg.source == "program" else _first_solution
        own = [_Written(await write(program, sandbox, seed), 0, True) for program in programs]
        return await judge.drafts(programs, own)
    drafts: dict[str, HintDraft] = {}
    for number in range(cfg.tries if cfg.temperature > 0 else 1):
        asked = [p for p in programs if (d := drafts.get(p.id)) is None or not d.check.ok]
        if not asked or (number and judge.left <= 0):
            break
        written = await _policy_hints(asked, chat, cfg, min(cfg.seconds, judge.left), seed, number, template)
        for draft in await judge.drafts(asked, written):
            before = drafts[draft.program_id].tokens if draft.program_id in drafts else 0
            drafts[draft.program_id] = dataclasses.replace(
                draft, tokens=draft.tokens + before, tries=number + 1
            )
    return [drafts[p.id] for p in programs]


async def solution_hints(program: EnvProgram, seeds: Sequence[int], sandbox: Sandbox) -> list[str]:
    """For each seed a hint that is the program's own solution of it; empty when the program breaks."""
    ask: list[Request] = [op for seed in seeds for op in (Op.reset(0, seed), Op.solution(0))]
    try:
        worker = await sandbox.open(program.code)
        try:
            answers = [raise_fault(result) for result in await worker.batch(ask)]
        finally:
            await worker.close()
    except ProgramFault:
        return []
    plans = [solution_actions(cast("str | list[str]", a), program.game_type) for a in answers[1::2]]
    return [SOLUTION.format(" ".join(plan)) for plan in plans]


def clean_hint(text: str) -> str:
    """Visible text on one line, without a leading label."""
    line = " ".join(strip_thoughts(text).split())
    return line[5:].strip() if line[:5].lower() == "hint:" else line


async def _policy_hints(
    programs: Sequence[EnvProgram],
    chat: ChatPolicy,
    cfg: HintConfig,
    seconds: float,
    seed: int,
    number: int,
    template: str,
) -> list[_Written]:
    """One try for each program; a program whose code does not fit the context gets an empty one."""
    renderer, policy = chat.renderer, chat.policy
    style = choose_template(template, policy.context_length)
    prompts = [
        renderer.start(hint_messages(p.code, style, cfg.max_words, p.game_type), (), cfg.thinking)
        for p in programs
    ]
    asked = [i for i, prompt in enumerate(prompts) if len(prompt) < policy.context_length]
    params = [_params(chat, prompts[i], cfg, seed, programs[i].id, number) for i in asked]
    answers = await ask(policy, [prompts[i] for i in asked], params, seconds)
    written = [_Written("", 0, False)] * len(programs)
    for i, completion in zip(asked, answers, strict=True):
        if completion is None:
            written[i] = _Written("", 0, False, lost=True)
            continue
        text = clean_hint(said(chat, completion.token_ids, cfg.thinking))
        written[i] = _Written(text, len(completion.token_ids), completion.stop is StopReason.STOP)
    return written


def _params(
    chat: ChatPolicy, prompt: Sequence[int], cfg: HintConfig, seed: int, program_id: str, number: int
) -> SamplingParams:
    again = (number,) if number else ()  # the first try keeps the seed it has always had
    return sampling(
        chat, prompt, cfg.max_tokens, cfg.temperature, child_seed(seed, "hint", program_id, *again)
    )


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


async def _first_solution(program: EnvProgram, sandbox: Sandbox, seed: int) -> str:
    """The solution of the first seed the checks look at: stands for those of all seeds, which are shown."""
    return "".join(await solution_hints(program, battery_seeds("oracle", FACT_SEEDS)[:1], sandbox))


def _without_hint(code: str) -> str:
    """The program without its `hint` methods."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.body = [n for n in node.body if not (isinstance(n, ast.FunctionDef) and n.name == "hint")]
    return ast.unparse(tree)


class _Judge:
    """Checks hints, a few at a time; those that are not through at `end` (monotonic clock) are lost."""

    def __init__(self, sandbox: Sandbox, cfg: HintConfig, floor_max: float, end: float) -> None:
        self.sandbox, self.cfg, self.floor_max, self.end = sandbox, cfg, floor_max, end
        self._gate = asyncio.Semaphore(max(1, min(CHECKED_AT_ONCE, sandbox.cfg.max_workers)))

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.end - time.monotonic()

    async def drafts(self, programs: Sequence[EnvProgram], written: Sequence[_Written]) -> list[HintDraft]:
        """The hints with their checks, in order."""
        pairs = list(zip(programs, written, strict=True))
        checks = await all_in_time([self._check(p, w) for p, w in pairs], self.left, "hints.phase_seconds")
        late = _refused(INFRASTRUCTURE, "the check was not through in time")
        return [
            HintDraft(p.id, w.text, w.tokens, check or late)
            for (p, w), check in zip(pairs, checks, strict=True)
        ]

    async def _check(self, program: EnvProgram, hint: _Written) -> StageResult:
        if hint.lost:
            return _refused(INFRASTRUCTURE, "no answer came in time")
        if not hint.text:
            return _refused("no_hint", "no hint was written")
        if not hint.complete:
            return _refused("unfinished", "the hint did not end within its token limit")
        if not self.cfg.checks:
            words = len(hint.text.split())
            too_long = f"the hint has {words} words; at most {self.cfg.max_words} are allowed"
            return OK if words <= self.cfg.max_words else _refused("hint_too_long", too_long)
        async with self._gate:
            try:
                return await self._play(program, hint.text)
            except ProgramFault as error:
                lost = error.kind is FaultKind.INFRASTRUCTURE
                return _refused(INFRASTRUCTURE if lost else "program_fault", str(error))

    async def _play(self, program: EnvProgram, text: str) -> StageResult:
        facts = await hint_facts(program, self.sandbox)
        if self.cfg.source == "program":
            # the hint's own words are literals of the code, too; only the rest of the code is a secret
            facts = dataclasses.replace(facts, literals=source_literals(_without_hint(program.code)))
        result = check_hint(text, facts, self.cfg.max_words)
        return await check_hint_play(text, program, self.sandbox, self.floor_max) if result.ok else result


def _refused(code: str, detail: str) -> StageResult:
    return StageResult("hint", False, code, detail, 0.0)
