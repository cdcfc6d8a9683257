"""Which programs are admitted: no repeats, sound by the validator's word, within the quota.

Cheap refusals come first, so that a repeat does not cost a validation. Verdicts are given in the order of the
attempts: of two that are alike the first one is admitted.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from spade.config import Config
from spade.deadlines import all_in_time
from spade.design.judging import ModelJudge
from spade.design.prompts import choose_template
from spade.design.variety import Known, Quota
from spade.envs.battery import plan
from spade.envs.fingerprint import NoveltyIndex
from spade.envs.validate import at_once, too_late, validate_many
from spade.types import EnvProgram, StageResult, Verdict

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.chat import ChatPolicy

NO_CODE = "no_code"
"""Reason code of a reply without a program in it."""
DUPLICATE = "duplicate"
"""Reason code of a program that equals one of this run; the detail is the id of its twin."""
HELDOUT = "heldout"
"""Reason code of a program that equals a held-out one."""
QUOTA = "quota"
"""Reason code of a sound program of a structure that has its share of the set already (`design.quota`)."""

NEAR_DUPLICATE = "near_duplicate"
"""Reason code of a program that is played like one of this run, as in the validator's stage of that name."""

LONG_TASK_TURNS = 3
"""Turns that the full prompt asks a game of several turns to need."""

NO_LESSON = frozenset({NO_CODE, DUPLICATE, HELDOUT, QUOTA, NEAR_DUPLICATE})
"""Refusals that say nothing about how to write programs."""


class Admission:
    """Judges programs. `known` are those admitted in this run; `heldout` may never be.

    `chat` answers the validator's stage `judge`, unless `judge` or `validator.judge.model` is another model.
    """

    def __init__(
        self,
        cfg: Config,
        chat: ChatPolicy,
        sandbox: Sandbox,
        heldout: Mapping[str, EnvProgram],
        judge: ChatPolicy | None = None,
    ) -> None:
        self.cfg = cfg
        self.chat = chat
        self.sandbox = sandbox
        self.judge = judge
        self.known = Known(cfg.design)
        near = cfg.design.near_duplicate if cfg.design.refuse_duplicates == "near" else None
        self.heldout = NoveltyIndex(near)
        for program in heldout.values():
            self.heldout.add(program)
        self.tokens = 0
        """Tokens the judge sampled so far."""
        self._judged = any(step.name == "judge" for step in plan(cfg.validator))
        self._early: dict[str, asyncio.Task[Verdict]] = {}
        """Validations that are under way, by program."""
        self._begun = Known(cfg.design)

    @cached_property
    def _gate(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(at_once(self.sandbox))

    def begin(self, program: EnvProgram | None) -> None:
        """Begin to validate a program whose verdict will be asked for soon, unless it is refused without.

        What is begun by the time `verdicts` is called is waited for there; it changes no verdict. Nothing is
        begun where a model judges: what it samples for a program that turns out a twin would be in vain.
        """
        if (
            program is None
            or self._judged
            or any(known.twin_of(program) is not None for known in (self.heldout, self.known, self._begun))
        ):
            return
        self._begun.add(program)
        self._start(program)

    def forget(self) -> None:
        """Give up what was begun and will not be asked for."""
        tasks, self._early, self._begun = self._early, {}, Known(self.cfg.design)
        _cancel(tasks.values())

    async def verdicts(
        self, programs: Sequence[EnvProgram | None], skills: Sequence[str], quota: Quota
    ) -> list[Verdict]:
        """Verdicts: no code, twin of a known program, twin within this batch, the validator's, quota."""
        batch = Known(self.cfg.design)
        verdicts: dict[int, Verdict] = {}
        twins: dict[int, str] = {}
        fresh: dict[str, EnvProgram] = {}
        for i, program in enumerate(programs):
            if program is None:
                verdicts[i] = refusal("", NO_CODE, "the reply holds no program")
            elif (held := self.heldout.twin_of(program)) is not None:
                verdicts[i] = refusal(program.id, HELDOUT, held)
            elif (known := self.known.twin_of(program)) is not None:
                verdicts[i] = refusal(program.id, DUPLICATE, known)
            elif (twin := batch.twin_of(program)) is not None:
                twins[i] = twin
            else:
                batch.add(program)
                fresh[program.id] = program
        by_id = {verdict.program_id: verdict for verdict in await self._validate(list(fresh.values()))}
        for i, program in enumerate(programs):
            if program is None or i in verdicts or i in twins:
                continue
            verdict = by_id[program.id]
            if verdict.accepted:
                verdict = by_id[program.id] = self._admit(program, skills[i], verdict, quota)
            verdicts[i] = verdict
        for i, twin in twins.items():
            program, same = programs[i], by_id[twin]
            assert program is not None
            refused = refusal(program.id, DUPLICATE, twin)
            verdicts[i] = refused if same.accepted else dataclasses.replace(same, program_id=program.id)
        return [verdicts[i] for i in range(len(programs))]

    async def _validate(self, programs: Sequence[EnvProgram]) -> list[Verdict]:
        """The validator's verdicts in order, those begun early included; one that is late says so."""
        for program in programs:
            if program.id not in self._early:
                self._start(program)
        tasks, self._early, self._begun = self._early, {}, Known(self.cfg.design)
        seconds = self.cfg.validator.seconds
        try:
            found = await all_in_time([_result(tasks[p.id]) for p in programs], seconds, "validator.seconds")
        finally:
            _cancel(tasks.values())  # twins of programs that come before them, or late
        return [v or too_late(p, self.sandbox, seconds) for p, v in zip(programs, found, strict=True)]

    def _start(self, program: EnvProgram) -> None:
        self._early[program.id] = asyncio.create_task(self._judge(program))

    async def _judge(self, program: EnvProgram) -> Verdict:
        """The validator's verdict; the kind of program is the one that was asked for, as in play."""
        cfg = self.cfg
        async with self._gate:
            (verdict,) = await validate_many(
                [program],
                self.sandbox,
                cfg.validator,
                known=self.known.index,
                min_oracle_turns=self._turns(),
                game_type=cfg.design.game_type,
                judge=self._judge_program,
            )
        return verdict

    def _turns(self) -> int | None:
        """Fewest turns a solution needs: what a brief for several turns asks for."""
        design = self.cfg.design
        if design.game_type == "single_turn":
            return None
        if design.min_oracle_turns is not None:
            return design.min_oracle_turns
        small = choose_template(design.template, self.chat.policy.context_length) == "short"
        return None if small else LONG_TASK_TURNS

    async def _judge_program(self, question: str) -> str:
        """The stage `judge` asks: a model of its own if the config names one, else the Designer's."""
        if self.judge is None:
            from spade.serving.launch import open_chat

            model = self.cfg.validator.judge.model
            self.judge = await open_chat(model, self.cfg.serving) if model else self.chat
        judge = ModelJudge(self.cfg, self.judge)
        reply = await judge(question)
        self.tokens += judge.tokens
        return reply

    def _admit(self, program: EnvProgram, skill: str, verdict: Verdict, quota: Quota) -> Verdict:
        """The verdict of a sound program, unless one of its batch is played alike or the quota is full."""
        twin = self.known.lookalike(verdict, self.cfg.validator.stages)
        if twin is not None:
            return refusal(program.id, NEAR_DUPLICATE, f"it looks and is played like program {twin[:12]}")
        if not quota.take(skill, program.code):
            full = f"{quota.limit} programs of this structure were accepted for {skill}"
            return refusal(program.id, QUOTA, full)
        self.known.add(program, verdict.sketch)
        return verdict


async def _result(task: asyncio.Task[Verdict]) -> Verdict:
    return await task


def _cancel(tasks: Iterable[asyncio.Task[Verdict]]) -> None:
    for task in tasks:
        if task.done():
            task.cancelled() or task.exception()  # so that nobody complains that it was never looked at
        task.cancel()


def refusal(program_id: str, code: str, detail: str) -> Verdict:
    """The verdict of a program that is refused without (or in spite of) the validator's word."""
    stage = StageResult("extract" if code == NO_CODE else "novelty", False, code, detail, 0.0)
    return Verdict(program_id, False, (stage,), battery="", level="")
