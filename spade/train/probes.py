"""What the entropy lens looks at: contexts, programs and texts that stay the same while a run trains.

Every draw has a generator of its own, so that looking changes no decision of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from spade.config import Config
from spade.design.corpus import Corpus
from spade.learn.entropy import good_turing, miller_madow, sampled_pass_at_k
from spade.learn.episodes import episode_credits
from spade.play.schedule import play
from spade.rng import child_rng, child_seed
from spade.serving.policy import SamplingParams
from spade.train.groups import play_seed
from spade.train.record import samples_of
from spade.train.source import World, returns
from spade.types import EnvProgram, Episode, EpisodeEnd, Instance, Sample

if TYPE_CHECKING:
    from spade.train.roles import Roles

TEXT_TOKENS = 64
"""Tokens of a text elsewhere."""
WON = 0.5
"""Return from which a play counts as a success in pass@k."""


class Probes:
    """The fixed material of one run's lens, each part made when it is first asked for."""

    def __init__(self, world: World, roles: Roles) -> None:
        self.world, self.roles = world, roles
        self.cfg: Config = world.cfg
        self._programs: list[EnvProgram] | None = None
        self._texts: list[Sample] | None = None

    def contexts(self, role: str, samples: Sequence[Sample]) -> list[Sample]:
        """Some of a role's samples, with different prompts: those whose contexts are kept."""
        by_prompt = {s.prompt_ids: s for s in samples}
        rng = child_rng(self.cfg.seed, "lens", "freeze", role)
        return rng.sample(list(by_prompt.values()), min(self.cfg.train.lens.prompts, len(by_prompt)))

    async def designs(self, briefs: Sequence[Sample]) -> list[Sample]:
        """Fresh answers of the Designer, `train.lens.samples` for each of the briefs."""
        chat, cfg = self.roles.designer, self.cfg
        prompts = [s.prompt_ids for s in briefs for _ in range(cfg.train.lens.samples)]
        params = [
            SamplingParams(
                max_tokens=cfg.design.max_tokens,
                temperature=cfg.design.temperature,
                stop_token_ids=chat.renderer.stop_token_ids,
                seed=child_seed(cfg.seed, "lens", "design", i),
            )
            for i in range(len(prompts))
        ]
        rows = [row[0] for row in await chat.policy.generate(prompts, params)]
        return [
            Sample(tuple(p), r.token_ids, (1,) * len(r.token_ids), r.logprobs_T, 0.0, "designer")
            for p, r in zip(prompts, rows, strict=True)
        ]

    async def plays(self) -> list[Episode]:
        """Plays of the unseen programs, always with the same seeds; none without programs."""
        cfg, by_id = self.cfg, {p.id: p for p in self.programs()}
        seeds = range(cfg.train.lens.plays)
        instances = [Instance(i, play_seed(cfg.seed, "lens", "play", i, j)) for i in by_id for j in seeds]
        if not instances:
            return []
        root = child_seed(cfg.seed, "lens")
        return await play(
            instances, by_id, self.roles.agent, self.world.sandbox, cfg.play, seed=root,
            template=cfg.design.template,
        )  # fmt: skip

    def programs(self) -> list[EnvProgram]:
        """Programs of the embedded model's mechanics, no two alike; a run's Designer may invent the same."""
        cfg = self.cfg
        if self._programs is None:
            from spade.embedded.mechanics import sample_program

            rng = child_rng(cfg.seed, "lens", "programs")
            kind = cfg.design.game_type
            found: dict[str, EnvProgram] = {}
            wanted = 0 if kind == "single_turn" else cfg.train.lens.programs
            for _ in range(20 * wanted):
                drawn = sample_program(rng, tools=kind == "tool_use")
                program = EnvProgram.of(drawn.code, skill=drawn.mechanic.skill, game_type=kind, source="lens")
                found.setdefault(program.id, program)
                if len(found) == wanted:
                    break
            self._programs = list(found.values())
        return self._programs

    def texts(self) -> list[Sample]:
        """Beginnings of corpus texts as samples whose every token but the first is looked at."""
        if self._texts is None:
            rng = child_rng(self.cfg.seed, "lens", "texts")
            documents = list(Corpus.load("builtin").documents)
            chosen = rng.sample(documents, min(self.cfg.train.lens.prompts, len(documents)))
            rows = [self.roles.agent.renderer.encode(d.text)[:TEXT_TOKENS] for d in chosen]
            self._texts = [
                Sample(tuple(r[:1]), tuple(r[1:]), (1,) * (len(r) - 1), (0.0,) * (len(r) - 1), 0.0, "agent")
                for r in rows
                if len(r) > 1
            ]
        return self._texts


def play_samples(programs: Sequence[EnvProgram], episodes: Sequence[Episode]) -> list[Sample]:
    """Plays as samples, those cut short by a limit and malformed turns included; faults are left out."""
    kinds = {p.id: p.game_type for p in programs}
    whole = [e for e in episodes if e.end is not EpisodeEnd.FAULT]
    credits = [
        c
        for number, e in enumerate(whole)
        for c in episode_credits(
            e, 0.0, e.instance.program_id, number, game_type=kinds[e.instance.program_id],
            mask_truncated="none", mask_malformed=False,
        )
    ]  # fmt: skip
    return samples_of(credits)


def outcomes(programs: Sequence[EnvProgram], episodes: Sequence[Episode]) -> dict[str, float]:
    """pass@k, answers and readability of plays; empty where none has a return."""
    by_program = [[e for e in episodes if e.instance.program_id == p.id] for p in programs]
    scored = [returns(mine) for mine in by_program if returns(mine)]
    if not scored:
        return {}
    largest = min(len(r) for r in scored)
    wins = [(sum(x >= WON for x in r), len(r)) for r in scored]
    turns = [t for e in episodes for t in e.turns]
    bad = sum(t.malformed for t in turns) + sum(e.end is EpisodeEnd.UNFINISHED for e in episodes)
    answers = [[e.actions[0] if e.actions else "" for e in mine] for mine in by_program if mine]
    return {
        "return": float(np.mean([x for r in scored for x in r])),
        "pass_1": float(np.mean([sampled_pass_at_k(w, n, 1) for w, n in wins])),
        "pass_max": float(np.mean([sampled_pass_at_k(w, n, largest) for w, n in wins])),
        "answer_entropy": float(np.mean([miller_madow(a) for a in answers])),
        "answer_coverage": float(np.mean([good_turing(a) for a in answers])),
        "off_grammar": bad / max(1, len(turns)),
    }
