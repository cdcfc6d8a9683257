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
from spade.design.ask import said
from spade.design.parse import defines_env, extract_code
from spade.learn.entropy import EXPLAINED, Alarms, chain_rule, token_mean
from spade.train.probes import Probes, outcomes, play_samples
from spade.train.source import World
from spade.types import Sample, from_json, to_json

if TYPE_CHECKING:
    from spade.learn.learner import Learner
    from spade.train.roles import Roles

REFERENCE_WEIGHTS = 50_000_000
"""Largest start model of which a copy is kept unless the config says so."""


class EntropyLens:
    """Measures, warns and remembers; one for a run. Open with `open_lens`."""

    def __init__(self, world: World, roles: Roles) -> None:
        self.world, self.roles = world, roles
        self.cfg: Config = world.cfg
        self.probes = Probes(world, roles)
        self.frozen: dict[str, list[Sample]] = {}
        """Samples of the start policy, by role; `logprobs` are the start's."""
        self.alarms: dict[str, Alarms] = {"agent": Alarms(), "designer": Alarms()}
        self._start: Learner | None = None
        self._said: set[str] = set()

    # --- what the loop calls -------------------------------------------------------------------------

    async def before(self, step: int, samples: Sequence[Sample]) -> dict[str, float]:
        """Called with the samples of a step before they are trained on: the first of each role are kept, and
        everything is measured then, which is the role's start."""
        new = False
        for role in self._roles():
            if role not in self.frozen and (mine := [s for s in samples if s.role == role and any(s.mask)]):
                self.frozen[role], new = self.probes.contexts(role, mine), True
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
        frozen = self.frozen.get("designer")
        if not frozen:
            return {}
        samples = await self.probes.designs(frozen)
        chat, thinking = self.roles.designer, self.cfg.design.thinking
        codes = [extract_code(said(chat, s.completion_ids, thinking)) for s in samples]
        readable = [c for c in codes if c is not None and defines_env(c)]
        return {
            **self._of_samples("designer", samples),
            "distinct": len(set(readable)) / len(codes),
            "off_grammar": 1.0 - len(readable) / len(codes),
        }

    async def _plays(self) -> dict[str, float]:
        """Plays of unseen programs, always the same ones."""
        programs, episodes = self.probes.programs(), await self.probes.plays()
        if not episodes:
            return {}
        return {
            **self._of_samples("agent", play_samples(programs, episodes)),
            **outcomes(programs, episodes),
        }

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
        texts = self.probes.texts()
        if not texts:
            return {}
        logprobs, _ = self.roles.learner.entropies(texts, 1.0)
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
