"""The design phase: document and brief, one batched generation, parsing, novelty, validation.

Every attempt becomes a `Design` with a verdict, whatever came out: a rejected attempt is a training signal,
not waste. A program that equals a held-out one or one of this run is refused before it costs a validation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spade.config import Config, DesignConfig
from spade.design.corpus import Corpus
from spade.design.parse import extract_code
from spade.design.prompts import choose_template, designer_messages
from spade.envs.fingerprint import NoveltyIndex
from spade.envs.memory import Memory
from spade.envs.validate import validate_many
from spade.rng import child_rng, child_seed
from spade.serving.policy import Completion, SamplingParams
from spade.types import Brief, Design, EnvProgram, StageResult, Trajectory, Verdict, content_id

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.chat import ChatPolicy

NO_CODE = "no_code"
"""Reason code of a reply without a program in it."""
DUPLICATE = "duplicate"
"""Reason code of a program that equals one of this run; the detail is the id of its twin."""
HELDOUT = "heldout"
"""Reason code of a program that equals a held-out one."""


def active_skills(cfg: DesignConfig, step: int) -> tuple[str, ...]:
    """The rotating window of skills of the design step at `step` (constant through `every` steps)."""
    total, width = len(cfg.skills), cfg.skills_per_step
    if width == 0 or width >= total:
        return cfg.skills
    start = (step // cfg.every) * width % total
    return tuple(cfg.skills[(start + i) % total] for i in range(width))


class Designer:
    """Owns what the design phase remembers: corpus position, environment memory, novelty index."""

    def __init__(
        self,
        cfg: Config,
        chat: ChatPolicy,
        sandbox: Sandbox,
        heldout: Mapping[str, EnvProgram] | None = None,
    ) -> None:
        self.cfg = cfg
        self.chat = chat
        self.sandbox = sandbox
        self.corpus = Corpus.load(cfg.design.corpus, child_seed(cfg.seed, "corpus"))
        self.memory = Memory(cfg.design.memory)
        self.novelty = NoveltyIndex()
        self.heldout = dict(heldout or {})
        for program in self.heldout.values():
            self.novelty.add(program)
        self.template = choose_template(cfg.design.template, chat.policy.context_length)

    async def round(self, step: int, slots: int, needed: int) -> list[Design]:
        """All attempts for `slots` programs at `step`: failed slots are tried again, `design.attempts` times
        at most, and only while fewer than `needed` programs were accepted."""
        designs: list[Design] = []
        open_slots = list(range(slots))
        for attempt in range(self.cfg.design.attempts):
            briefs = [self._brief(step, slot, attempt) for slot in open_slots]
            made = await self._judge(await self._write(briefs, step))
            designs.extend(made)
            open_slots = [s for s, d in zip(open_slots, made, strict=True) if not accepted(d)]
            if sum(map(accepted, designs)) >= needed or not open_slots:
                break
        return designs

    async def sample(self, step: int, count: int) -> list[Design]:
        """`count` first attempts at `step`, written but not judged: what the model does, for measuring."""
        return await self._write([self._brief(step, slot, 0) for slot in range(count)], step)

    def state_dict(self) -> dict[str, Any]:
        """Corpus position, memory and novelty index."""
        return {
            "corpus": self.corpus.state_dict(),
            "memory": self.memory.state_dict(),
            "novelty": self.novelty.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.corpus.load_state_dict(state["corpus"])
        self.memory.load_state_dict(state["memory"])
        self.novelty.load_state_dict(state["novelty"])

    def _brief(self, step: int, slot: int, attempt: int) -> Brief:
        cfg, renderer = self.cfg.design, self.chat.renderer
        skills = active_skills(cfg, step)
        skill = skills[slot % len(skills)]
        document = self.corpus.draw()
        rng = child_rng(self.cfg.seed, "memory", step, slot, attempt)
        exemplars = self.memory.draw(skill, rng, renderer.count)
        text = renderer.truncate(document.text, cfg.document_tokens)
        own_hint = self.cfg.hints.source == "program"
        messages = designer_messages(
            text, skill, cfg.game_type, cfg.difficulty, exemplars, self.template, own_hint
        )
        seed = child_seed(self.cfg.seed, "design", step, slot, attempt)
        return Brief(
            id=content_id("\n".join([*(m.content for m in messages), str(seed)])),
            skill=skill,
            game_type=cfg.game_type,
            difficulty=cfg.difficulty,
            document_id=document.id,
            exemplar_ids=tuple(e.program_id for e in exemplars),
            seed=seed,
            messages=messages,
        )

    async def _write(self, briefs: Sequence[Brief], step: int) -> list[Design]:
        """One batched generation; the designs carry no verdict yet."""
        renderer, policy = self.chat.renderer, self.chat.policy
        prompts = [renderer.start(list(brief.messages)) for brief in briefs]
        params = [
            SamplingParams(
                max_tokens=min(self.cfg.design.max_tokens, max(1, policy.context_length - len(prompt))),
                temperature=self.cfg.design.temperature,
                stop_token_ids=renderer.stop_token_ids,
                seed=brief.seed,
            )
            for brief, prompt in zip(briefs, prompts, strict=True)
        ]
        answers = await policy.generate(prompts, params)
        designs = []
        for brief, prompt, (completion,) in zip(briefs, prompts, answers, strict=True):
            text = renderer.text(list(completion.token_ids))
            code = extract_code(text)
            program = None if code is None else _program(code, brief, step)
            designs.append(Design(brief, designer_trajectory(prompt, completion), text, program, None))
        return designs

    async def _judge(self, designs: Sequence[Design]) -> list[Design]:
        """Verdicts: no code, twin of a known program, twin within this batch, or the validator's."""
        batch = NoveltyIndex()
        verdicts: dict[int, Verdict] = {}
        twins: dict[int, str] = {}
        fresh: dict[str, int] = {}
        for i, design in enumerate(designs):
            if design.program is None:
                verdicts[i] = _refusal("", NO_CODE, "the reply holds no program")
            elif (known := self.novelty.twin_of(design.program)) is not None:
                code = HELDOUT if known in self.heldout else DUPLICATE
                verdicts[i] = _refusal(design.program.id, code, known)
            elif (twin := batch.twin_of(design.program)) is not None:
                twins[i] = twin
            else:
                batch.add(design.program)
                fresh[design.program.id] = i
        programs = [p for i in fresh.values() if (p := designs[i].program) is not None]
        judged = await validate_many(programs, self.sandbox, self.cfg.validator)
        by_id = {verdict.program_id: verdict for verdict in judged}
        for program_id, i in fresh.items():
            verdicts[i] = by_id[program_id]
        for i, twin in twins.items():
            program = designs[i].program
            assert program is not None
            same = by_id[twin]
            refused = _refusal(program.id, DUPLICATE, twin)
            verdicts[i] = refused if same.accepted else dataclasses.replace(same, program_id=program.id)
        for program in programs:
            if by_id[program.id].accepted:
                self.novelty.add(program)
        return [dataclasses.replace(d, verdict=verdicts[i]) for i, d in enumerate(designs)]


def accepted(design: Design) -> bool:
    """Whether a design's program may be played."""
    return design.verdict is not None and design.verdict.accepted


def twin_id(design: Design) -> str | None:
    """The program a refused duplicate equals; None for every other design."""
    failed = design.verdict.failed if design.verdict is not None else None
    return failed.detail if failed is not None and failed.code == DUPLICATE else None


def designer_trajectory(prompt: Sequence[int], completion: Completion) -> Trajectory:
    """The Designer's token stream: every completion token was sampled."""
    return Trajectory(
        role="designer",
        prompt_ids=tuple(prompt),
        completion_ids=completion.token_ids,
        mask=(1,) * len(completion.token_ids),
        logprobs=completion.logprobs_T,
        weight_version=completion.weight_version,
    )


def _program(code: str, brief: Brief, step: int) -> EnvProgram:
    return EnvProgram.of(
        code, skill=brief.skill, game_type=brief.game_type, brief_id=brief.id, step=step, source="designer"
    )


def _refusal(program_id: str, code: str, detail: str) -> Verdict:
    stage = StageResult("extract" if code == NO_CODE else "novelty", False, code, detail, 0.0)
    return Verdict(program_id, False, (stage,), battery="", level="")
