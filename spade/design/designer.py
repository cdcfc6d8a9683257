"""The design phase: briefs, one generation each, parsing, refusal of repeats, validation, repair, scores.

Every attempt becomes a `Design` with a verdict, whatever came out: a rejected attempt is a training signal,
not waste. A program that equals a held-out one or one of this run is refused before it costs a validation.
An attempt whose answer never came is no design: nobody pays for it, and its slot is tried again.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import spade.design.repair as repair
from spade.config import Config
from spade.design.admission import (
    DUPLICATE,
    HELDOUT,
    NEAR_DUPLICATE,
    NO_CODE,
    NO_LESSON,
    QUOTA,
    Admission,
)
from spade.design.ask import ask, said, sampling
from spade.design.attempts import (
    accepted,
    designer_trajectory,
    program_in,
    repairable,
    round_metrics,
    twin_id,
)
from spade.design.brief import Order, active_skills, make_order
from spade.design.corpus import Corpus
from spade.design.prompts import choose_template
from spade.design.variety import Quota, guide_scores, novelty
from spade.envs.memory import Memory, Record
from spade.envs.outline import outline
from spade.rng import child_seed
from spade.serving.policy import Completion
from spade.types import Design, EnvProgram, StopReason

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.chat import ChatPolicy

__all__ = [
    "DUPLICATE",
    "HELDOUT",
    "NEAR_DUPLICATE",
    "NO_CODE",
    "QUOTA",
    "Designer",
    "accepted",
    "active_skills",
    "twin_id",
]


class Designer:
    """Owns what the design phase remembers: corpus position, environment memory, known programs.

    `chat` is the policy that designs, which need not be the Agent's (`design.policy`): whoever makes the
    Designer decides, and decides whether its trajectories are trained. It also gives the guide score and,
    unless `judge` or `validator.judge.model` is another model, answers the validator's stage `judge`.
    """

    def __init__(
        self,
        cfg: Config,
        chat: ChatPolicy,
        sandbox: Sandbox,
        heldout: Mapping[str, EnvProgram] | None = None,
        judge: ChatPolicy | None = None,
    ) -> None:
        self.cfg = cfg
        self.chat = chat
        self.tokens = 0
        """Tokens sampled in the latest round: designs, repair turns, guide, judge."""
        design = cfg.design
        self.corpus = Corpus.load(
            design.corpus,
            child_seed(cfg.seed, "corpus"),
            max_words=design.document_words,
            sample=design.corpus_sample,
        )
        self.memory = Memory(design.memory)
        self.admission = Admission(cfg, chat, sandbox, heldout or {}, judge)
        self.template = choose_template(design.template, chat.policy.context_length)
        self._metrics: dict[str, float] = {}

    async def round(
        self,
        step: int,
        slots: int,
        needed: int,
        on_accepted: Callable[[list[EnvProgram]], None] = lambda programs: None,
    ) -> list[Design]:
        """All attempts for `slots` programs at `step`: failed slots are tried again, `design.attempts` times
        at most, and only while fewer than `needed` programs were accepted and time is left. `on_accepted`
        gets the accepted programs of each time, in order, before slots are tried again."""
        cfg = self.cfg.design
        designs: list[Design] = []
        quota, lost = Quota(cfg.quota), 0
        open_slots = list(range(slots))
        started, self.admission.tokens = time.monotonic(), 0
        for attempt in range(cfg.attempts):
            left = cfg.phase_seconds - (time.monotonic() - started)
            if attempt and left <= 0:
                break
            orders = [self._order(step, slot, attempt) for slot in open_slots]
            made = await self._write(orders, step, left, judged=True)
            kept = await self._judge([d for d in made if d is not None], orders, quota, step)
            judged = [d for d in kept if d.verdict is None or d.verdict.judged]
            self._remember(judged, step)
            designs.extend(judged)
            on_accepted([d.program for d in judged if accepted(d) and d.program is not None])
            lost += len(made) - len(judged)
            verdicts = iter(kept)
            open_slots = [
                s for s, d in zip(open_slots, made, strict=True) if d is None or not accepted(next(verdicts))
            ]
            if sum(map(accepted, designs)) >= needed or not open_slots:
                break
        self.tokens = sum(d.sampled_tokens for d in designs) + self.admission.tokens
        self._metrics = round_metrics(designs, lost)
        return designs

    async def sample(self, step: int, count: int) -> list[Design]:
        """`count` first attempts at `step`, written but not judged: what the model does, for measuring."""
        orders = [self._order(step, slot, 0) for slot in range(count)]
        return [d for d in await self._write(orders, step, self.cfg.design.phase_seconds) if d is not None]

    def metrics(self) -> dict[str, float]:
        """Numbers of a round since the last call, if there was one, and of the memory."""
        latest, self._metrics = self._metrics, {}
        return {**latest, **(self.memory.metrics() if self.cfg.design.memory.enabled else {})}

    def state_dict(self) -> dict[str, Any]:
        """Corpus position, memory and known programs."""
        return {
            "corpus": self.corpus.state_dict(),
            "memory": self.memory.state_dict(),
            "known": self.admission.known.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.corpus.load_state_dict(state["corpus"])
        self.memory.load_state_dict(state["memory"])
        self.admission.known.load_state_dict(state["known"])

    # --- writing ---------------------------------------------------------------------------------------

    def _order(self, step: int, slot: int, attempt: int) -> Order:
        at = (step, slot, attempt)
        return make_order(self.cfg, self.chat, self.corpus, self.memory, self.template, at)

    async def _write(
        self, orders: Sequence[Order], step: int, left: float, *, judged: bool = False
    ) -> list[Design | None]:
        """One generation each, without verdicts; None where no answer came in time. Programs that are going
        to be `judged` are validated while others are still written."""
        cfg, chat, writing = self.cfg.design, self.chat, True

        def begin(number: int, ids: Sequence[int]) -> None:
            if writing:  # and not told when all is written
                text = said(chat, ids, cfg.thinking)
                self.admission.begin(program_in(text, orders[number].brief, step))

        prompts = [order.prompt_ids for order in orders]
        params = [
            sampling(chat, o.prompt_ids, cfg.max_tokens, cfg.temperature, o.brief.seed, cfg.top_p, cfg.top_k)
            for o in orders
        ]
        try:
            answers = await ask(
                chat.policy, prompts, params, min(cfg.seconds, left), begin if judged else None
            )
        except BaseException:
            self.admission.forget()
            raise
        finally:
            writing = False
        return [
            None if answer is None else self._read(order, answer, step)
            for order, answer in zip(orders, answers, strict=True)
        ]

    def _read(self, order: Order, completion: Completion, step: int) -> Design:
        text = said(self.chat, completion.token_ids, self.cfg.design.thinking)
        program = program_in(text, order.brief, step)
        trajectory = designer_trajectory(order.prompt_ids, completion)
        cut_off = completion.stop is not StopReason.STOP
        return Design(order.brief, trajectory, text, program, None, cut_off=cut_off)

    # --- judging ---------------------------------------------------------------------------------------

    async def _judge(
        self, designs: Sequence[Design], orders: Sequence[Order], quota: Quota, step: int
    ) -> list[Design]:
        """The designs with their verdicts, repaired where the config allows it, and scored."""
        programs, skills = [d.program for d in designs], [d.brief.skill for d in designs]
        verdicts = await self.admission.verdicts(programs, skills, quota)
        judged = [dataclasses.replace(d, verdict=v) for d, v in zip(designs, verdicts, strict=True)]
        turns = self.cfg.design.repair_turns
        talks = [repair.Talk.of(d) for d in judged if turns and repairable(d)]
        for turn in range(turns):
            moved = await self._repair([t for t in talks if not t.done], step, quota, turn)
            by_id = {t.design.brief.id: t for t in moved}
            talks = [by_id.get(t.design.brief.id, t) for t in talks]
        done = {t.design.brief.id: t.result() for t in talks}
        judged = [done.get(d.brief.id, d) for d in judged]
        return await self._scored(judged, {o.brief.id: o.document for o in orders})

    async def _repair(
        self, talks: Sequence[repair.Talk], step: int, quota: Quota, turn: int
    ) -> list[repair.Talk]:
        """One more turn of the conversations about rejected programs, with verdicts."""
        cfg = self.cfg.design
        replies = await repair.next_turn(talks, self.chat, self.template, cfg, turn)
        programs = [
            None if reply is None else program_in(reply.text, t.design.brief, step)
            for t, reply in zip(talks, replies, strict=True)
        ]
        verdicts = await self.admission.verdicts(programs, [t.design.brief.skill for t in talks], quota)
        rows = zip(talks, replies, programs, verdicts, strict=True)
        return [talk.after(reply, program, verdict) for talk, reply, program, verdict in rows]

    async def _scored(self, designs: Sequence[Design], documents: Mapping[str, str]) -> list[Design]:
        """Novelty of every accepted program, and the guide score if it counts."""
        cfg = self.cfg
        good = [d for d in designs if accepted(d) and d.program is not None]
        scores: list[tuple[float | None, int]] = [(None, 0)] * len(good)
        if cfg.design.guide_weight > 0:
            scores = await guide_scores(good, documents, self.chat, self.template, cfg.design, cfg.seed)
        scored = {
            d.brief.id: dataclasses.replace(
                d,
                novelty=novelty(d.program.code, self.memory),
                guide=mark,
                extra_tokens=d.extra_tokens + tokens,
            )
            for d, (mark, tokens) in zip(good, scores, strict=True)
            if d.program is not None
        }
        return [scored.get(d.brief.id, d) for d in designs]

    def _remember(self, designs: Sequence[Design], step: int) -> None:
        """Rejected programs as negatives for later briefs; the played ones are added by whoever plays."""
        for design in designs:
            program, verdict = design.program, design.verdict
            failed = verdict.failed if verdict is not None else None
            if program is None or failed is None or failed.code in NO_LESSON:
                continue
            if self.cfg.design.memory.enabled and outline(program.code):
                row = Record(program.id, program.code, program.skill, None, None, None, step)
                self.memory.add(dataclasses.replace(row, verdict=failed.code, detail=failed.detail))
