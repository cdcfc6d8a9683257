"""The entropy lens: what training does to the output distribution, by role, with four alarms.

    frozen contexts   the first step's own samples of each role, scored again and again: token entropy and
                      divergence from the start, without sampling noise
    fresh samples     designs for the frozen briefs, and plays of unseen programs (drawn once from the
                      embedded model's mechanics) with seeds that never change: sequence entropy by the chain
                      rule, pass@k, answers, divergence to the start, unreadable outputs
    elsewhere         texts of the corpus: accuracy of the next token, which a run does not train

One role can collapse while the other does not, hence a set for each. Measuring draws no random number that
training uses, and its tokens are not in the ledger. Definitions: `spade.learn.entropy`, docs/metrics.md.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from spade.config import Config
from spade.design.corpus import Corpus
from spade.design.parse import defines_env, extract_code
from spade.learn.entropy import (
    EXPLAINED,
    Alarms,
    chain_rule,
    good_turing,
    miller_madow,
    sampled_pass_at_k,
    token_mean,
)
from spade.learn.episodes import episode_credits
from spade.play.schedule import play
from spade.rng import child_rng, child_seed
from spade.serving.policy import SamplingParams
from spade.train.groups import play_seed
from spade.train.record import samples_of
from spade.train.source import World, returns
from spade.types import EnvProgram, Episode, EpisodeEnd, Instance, Sample, from_json, to_json

if TYPE_CHECKING:
    from spade.learn.learner import Learner
    from spade.train.roles import Roles

REFERENCE_WEIGHTS = 50_000_000
"""Largest start model of which a copy is kept unless the config says so."""
TEXT_TOKENS = 64
"""Tokens of a text elsewhere."""
WON = 0.5
"""Return from which a play counts as a success in pass@k."""


class EntropyLens:
    """Measures, warns and remembers; one for a run. Open with `open_lens`."""

    def __init__(self, world: World, roles: Roles) -> None:
        self.world, self.roles = world, roles
        self.cfg: Config = world.cfg
        self.frozen: dict[str, list[Sample]] = {}
        """Samples of the start policy, by role; `logprobs` are the start's."""
        self.alarms: dict[str, Alarms] = {"agent": Alarms(), "designer": Alarms()}
        self._programs: list[EnvProgram] | None = None
        self._texts: list[Sample] | None = None
        self._start: Learner | None = None
        self._said: set[str] = set()

    # --- what the loop calls -------------------------------------------------------------------------

    async def before(self, step: int, samples: Sequence[Sample]) -> dict[str, float]:
        """Called with the samples of a step before they are trained on: the first of each role are kept, and
        everything is measured then, which is the role's start."""
        new = False
        for role in self._roles():
            if role not in self.frozen and (mine := [s for s in samples if s.role == role and any(s.mask)]):
                self.frozen[role], new = self._freeze(role, mine), True
        return await self._measure(step) if new else {}

    async def after(
        self, step: int, played: Sequence[Sequence[float]], *, ending: bool, measured: bool
    ) -> dict[str, float]:
        """Called when `step` steps are finished and the new weights are published; measures when it is time
        and the row does not already hold a start. `played` are the step's plain returns by program."""
        shares = [float(len(set(r)) <= 1) for r in played]
        self.alarms["agent"].step(float(np.mean(shares)) if shares else None)
        if measured or (step % self.cfg.train.lens.every and not ending):
            return {}
        out = await self._measure(step)
        if out.get("lens/alarm/no_signal/agent"):
            flat = [r for many in played for r in many]
            self._say(
                f"a step has {len(flat)} plain plays, of which {sum(r > 0 for r in flat)} earned anything"
            )
        return out

    def state_dict(self) -> dict[str, Any]:
        """Frozen samples and the alarms' memory, as plain JSON values."""
        return {
            "frozen": {role: [to_json(s) for s in samples] for role, samples in self.frozen.items()},
            "alarms": {role: alarms.state_dict() for role, alarms in self.alarms.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.frozen = {role: [from_json(Sample, s) for s in rows] for role, rows in state["frozen"].items()}
        for role, alarms in state["alarms"].items():
            self.alarms[role].load_state_dict(alarms)

    # --- measuring -----------------------------------------------------------------------------------

    async def _measure(self, step: int) -> dict[str, float]:
        with self.world.ledger.phase("lens"):
            elsewhere = self._elsewhere()
            out = {f"lens/elsewhere/{name}": value for name, value in elsewhere.items()}
            for role in self._roles():
                found = self._on_frozen(role) | await (self._plays() if role == "agent" else self._designs())
                out |= {f"lens/{role}/{name}": value for name, value in found.items()}
                out |= self._alarm(step, role, found, elsewhere)
            return out

    def _on_frozen(self, role: str) -> dict[str, float]:
        """Exact figures on the contexts of the start policy's own samples."""
        samples = self.frozen.get(role)
        if not samples:
            return {}
        logprobs, entropies = self._learner(role).entropies(samples, self._temperatures())
        gaps = [
            np.asarray([p for p, m in zip(s.logprobs, s.mask, strict=True) if m]) - now
            for s, now in zip(samples, logprobs, strict=True)
        ]
        return {"frozen_entropy": token_mean(entropies), "frozen_kl": token_mean(gaps)}

    async def _designs(self) -> dict[str, float]:
        """Fresh designs for the frozen briefs."""
        frozen, cfg = self.frozen.get("designer"), self.cfg
        if not frozen:
            return {}
        chat, lens = self.roles.designer, cfg.train.lens
        prompts = [s.prompt_ids for s in frozen for _ in range(lens.samples)]
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
        samples = [
            Sample(tuple(p), r.token_ids, (1,) * len(r.token_ids), r.logprobs_T, 0.0, "designer")
            for p, r in zip(prompts, rows, strict=True)
        ]
        codes = [extract_code(chat.renderer.text(r.token_ids)) for r in rows]
        readable = [c for c in codes if c is not None and defines_env(c)]
        return {
            **self._of_samples("designer", samples),
            "distinct": len(set(readable)) / len(codes),
            "off_grammar": 1.0 - len(readable) / len(codes),
        }

    async def _plays(self) -> dict[str, float]:
        """Plays of unseen programs, always the same ones."""
        programs, cfg = self._unseen(), self.cfg
        if not programs:
            return {}
        seeds = range(cfg.train.lens.plays)
        instances = [
            Instance(p.id, play_seed(cfg.seed, "lens", "play", p.id, j)) for p in programs for j in seeds
        ]
        by_id = {p.id: p for p in programs}
        root = child_seed(cfg.seed, "lens")
        episodes = await play(
            instances, by_id, self.roles.agent, self.world.sandbox, cfg.play, seed=root,
            template=cfg.design.template,
        )  # fmt: skip
        credits = [
            c
            for number, e in enumerate(e for e in episodes if e.end is not EpisodeEnd.FAULT)
            for c in episode_credits(
                e, 0.0, e.instance.program_id, number, game_type=by_id[e.instance.program_id].game_type,
                mask_truncated="none", mask_malformed=False,
            )
        ]  # fmt: skip
        return {**self._of_samples("agent", samples_of(credits)), **_outcomes(programs, episodes)}

    def _of_samples(self, role: str, samples: Sequence[Sample]) -> dict[str, float]:
        """Entropies along fresh samples, and the divergence of the present policy from the start."""
        samples = [s for s in samples if any(s.mask)]
        if not samples:
            return {}
        heat = self._temperatures()
        logprobs, entropies = self._learner(role).entropies(samples, heat)
        # an episode may be several samples; its entropy is their sum
        episodes: dict[str | int, list[int]] = {}
        for i, s in enumerate(samples):
            episodes.setdefault(s.episode or i, []).append(i)
        whole = [np.concatenate([entropies[i] for i in rows]) for rows in episodes.values()]
        out = {
            "sequence_entropy": chain_rule(whole),
            "token_entropy": token_mean(entropies),
            "length": float(np.mean([len(x) for x in whole])),
        }
        if heat[role] != 1.0:
            out["token_entropy_raw"] = token_mean(self._learner(role).entropies(samples, 1.0)[1])
        if (start := self._reference()) is not None:
            before = start.entropies(samples, heat)[0]
            out["kl"] = token_mean([now - then for now, then in zip(logprobs, before, strict=True)])
        return out

    def _elsewhere(self) -> dict[str, float]:
        """Accuracy and mean negative log-probability of the next token of texts a run does not train."""
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
        if not self._texts:
            return {}
        logprobs, _ = self.roles.learner.entropies(self._texts, 1.0)
        flat = np.concatenate(logprobs)
        # a token that has more than half of the mass is certainly the most likely one
        return {"nll": float(-flat.mean()), "accuracy": float((flat > np.log(0.5)).mean())}

    # --- alarms --------------------------------------------------------------------------------------

    def _alarm(
        self, step: int, role: str, found: Mapping[str, float], elsewhere: Mapping[str, float]
    ) -> dict[str, float]:
        now = {}
        for name, keys in (
            ("entropy", ("sequence_entropy", "frozen_entropy")),
            ("pass", ("pass_max", "distinct")),
            ("off_grammar", ("off_grammar",)),
        ):
            value = next((found[key] for key in keys if key in found), None)
            if value is not None:
                now[name] = value
        if "accuracy" in elsewhere:
            now["elsewhere"] = elsewhere["accuracy"]
        if "entropy" not in now:
            return {}
        raised = self.alarms[role].check(now)
        for name, on in raised.items():
            if on:
                self._say(f"step {step}, {role}: {name.replace('_', ' ')}: {EXPLAINED[name]}")
        return {f"lens/alarm/{name}/{role}": float(on) for name, on in raised.items()}

    def _say(self, text: str) -> None:
        """Warn once about one thing."""
        what = text.partition(": ")[2] or text
        if what not in self._said:
            self._said.add(what)
            print(f"lens: {text}.", file=sys.stderr, flush=True)

    # --- what is measured with -----------------------------------------------------------------------

    def _roles(self) -> tuple[str, ...]:
        own = self.roles.shared or self.roles.designer_learner is not None
        return ("agent", "designer") if own and self.cfg.train.source == "self_play" else ("agent",)

    def _learner(self, role: str) -> Learner:
        own = self.roles.designer_learner
        return own if role == "designer" and own is not None else self.roles.learner

    def _temperatures(self) -> dict[str, float]:
        return {"agent": self.cfg.play.temperature, "designer": self.cfg.design.temperature}

    def _freeze(self, role: str, samples: Sequence[Sample]) -> list[Sample]:
        """Some samples with different prompts."""
        by_prompt = {s.prompt_ids: s for s in samples}
        rng = child_rng(self.cfg.seed, "lens", "freeze", role)
        return rng.sample(list(by_prompt.values()), min(self.cfg.train.lens.prompts, len(by_prompt)))

    def _unseen(self) -> list[EnvProgram]:
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

    def _reference(self) -> Learner | None:
        """The start model, loaded once; None if it is too large to keep."""
        wanted, learner = self.cfg.train.lens.reference, self.roles.learner
        if wanted is None:
            wanted = sum(p.numel() for p in learner.model.parameters()) <= REFERENCE_WEIGHTS
        if not wanted:
            return None
        if self._start is None:
            from spade.train.roles import make_learner

            ref = self.roles.agent.ref
            assert ref is not None, "a policy that is trained has a checkpoint"
            plain = self.cfg.model_copy(update={"learner": self.cfg.learner.model_copy(update={"kl": 0.0})})
            self._start = make_learner(plain, ref, alone=True)
        return self._start


def open_lens(world: World, roles: Roles) -> EntropyLens | None:
    """The lens of a run, or None when it is off or the learner has no distribution to look at (tests)."""
    if not world.cfg.train.lens.every or not hasattr(roles.learner, "entropies"):
        return None
    return EntropyLens(world, roles)


def _outcomes(programs: Sequence[EnvProgram], episodes: Sequence[Episode]) -> dict[str, float]:
    """pass@k, answers and readability of plays."""
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
