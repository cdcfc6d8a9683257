"""Self-play: the model designs the programs it is trained on.

Every `design.every` steps one set of programs is designed, validated, hinted and queued. A step plays the
newest designs first, with a hinted arm on their first play, and fills up from the archive. What the plays
show goes back to the Designer as the reward of its set, to the archive as priority, and to the memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from spade.design.attempts import accepted
from spade.design.designer import Designer
from spade.design.hints import HintDraft, write_hints
from spade.design.writing import Writing
from spade.envs.pool import PlayStats
from spade.envs.pool_run import play_stats, record_designs, record_plays
from spade.errors import FaultKind
from spade.learn.potential import SkillMeans
from spade.learn.regret import paired_regret
from spade.rng import child_rng, child_seed
from spade.train.floor import skill_gates
from spade.train.heldout import heldout_programs
from spade.train.pending import (
    Attempt,
    DesignSet,
    attempt_of,
    judged_means,
    set_credits,
    set_from_json,
    set_rewards,
    set_to_json,
)
from spade.train.record import design_metrics, design_row, memory_record
from spade.train.replay import open_archive
from spade.train.set_metrics import Paid, paid_metrics, regret_metrics, reward_rows
from spade.train.source import (
    Arm,
    World,
    agent_credits,
    baseline_metrics,
    faults,
    returns,
    running_baselines,
)
from spade.types import Credit, EnvProgram, Group, Regret

REGRET_MEMORY = 0.8
"""Share of the old running regret kept at each design step."""


class SelfPlaySource:
    """The Designer as a source of programs. See `spade.train.source.EnvSource` for the protocol."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cfg = world.cfg
        self.designer = Designer(world.cfg, world.design_chat, world.sandbox, heldout_programs())
        data = {**world.folder.record.data, "corpus": self.designer.corpus.digest}
        world.folder.update_record(data=data)
        self.archive = open_archive(world.cfg)
        self.window: list[str] = []
        """Programs accepted at the latest design step."""
        self.sets: list[DesignSet] = []
        self.rewards: dict[str, float] = {}
        self.baselines = running_baselines(world.cfg)
        self.skill_means = SkillMeans(world.cfg.reward.potential_fast, world.cfg.reward.potential_slow)
        self.running_regret: float | None = None
        self._step = self._version = 0
        """The latest step, and the version of the weights that played it."""
        self._paid: list[Paid] = []
        """Sets paid in that step."""
        self._metrics: dict[str, float] = {}
        self._stats: dict[str, PlayStats] = {}

    # --- the protocol ----------------------------------------------------------------------------------

    async def begin_step(self, step: int) -> list[tuple[EnvProgram, bool]]:
        """New designs when one is due; then the programs of this step, the newest first."""
        self._metrics = {}
        if step % self.cfg.design.every == 0 and (slots := self._slots(step)) > 0:
            await self._design(step, slots)
        wanted = self.cfg.play.programs
        fresh = [self.archive.levels[i].program for i in self._waiting()[:wanted]]
        old = self._replay(step, wanted - len(fresh), {p.id for p in fresh})
        if fresh or old:
            self._metrics["replay/share"] = len(old) / (len(fresh) + len(old))
        self._metrics |= self.archive.metrics(step)
        return [(p, p.hint is not None) for p in fresh] + [(p, False) for p in old]

    async def observe(self, step: int, groups: Sequence[Group]) -> list[Credit]:
        """Judge the plays of this step; credits of both arms and of the sets that are due."""
        played = ("accepted", "repaired")
        attempts = {a.program_id: a for s in self.sets for a in s.attempts if a.kind in played}
        fresh = [g for g in groups if (a := attempts.get(g.program.id)) is not None and a.waiting]
        gates = dict(zip((g.program.id for g in fresh), await self._gates(step, fresh), strict=True))
        offsets = {a.program_id: step - s.step for s in self.sets for a in s.attempts if a.kind in played}
        self._stats = {}
        for group in groups:
            program = group.program.id
            attempt, gate = attempts.get(program), gates.get(program)
            self._observe_group(step, group, attempt, gate, offsets.get(program, 0))
        record_plays(self.world.folder, step + 1, self._stats)
        self._note_regret([r for g in fresh if (r := attempts[g.program.id].regret) is not None])
        self._step, self._paid = step, []
        self._version = max((e.trajectory.weight_version for g in groups for e in g.plain), default=0)
        credits = self._agent_credits(step, groups)
        due = [s for s in self.sets if s.due(step, self.cfg.design.delay)]
        self.sets = [s for s in self.sets if not s.due(step, self.cfg.design.delay)]
        return [*self._pay(due, len({c.episode for c in credits})), *credits]

    def flush(self) -> list[Credit]:
        """Train the sets whose window the end of the run cut short."""
        due, self.sets = self.sets, []
        return self._pay(due, self.cfg.play.plays * self.cfg.play.programs)

    @property
    def owes_play(self) -> bool:
        """Whether an accepted design is still unplayed."""
        return bool(self._waiting())

    def metrics(self) -> dict[str, float]:
        """Numbers of the latest step."""
        waiting = float(sum(len(s.attempts) for s in self.sets))
        sizes = {"archive": float(len(self.archive)), "designs_waiting": waiting}
        baselines = baseline_metrics(self.cfg, self.baselines)
        return {**self._metrics, **sizes, **baselines, **self.designer.metrics()}

    def state_dict(self) -> dict[str, Any]:
        """Designer, archive, pending sets and running numbers."""
        return {
            "designer": self.designer.state_dict(),
            "archive": self.archive.state_dict(),
            "window": list(self.window),
            "sets": [set_to_json(s) for s in self.sets],
            "rewards": dict(self.rewards),
            "baselines": self.baselines.state_dict(),
            "skill_means": self.skill_means.state_dict(),
            "running_regret": self.running_regret,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.designer.load_state_dict(state["designer"])
        self.archive.load_state_dict(state["archive"])
        self.window = list(state["window"])
        self.sets = [set_from_json(s) for s in state["sets"]]
        self.rewards = dict(state["rewards"])
        self.baselines.load_state_dict(state["baselines"])
        self.skill_means.load_state_dict(state["skill_means"])
        self.running_regret = state["running_regret"]

    # --- design ----------------------------------------------------------------------------------------

    def _waiting(self) -> list[str]:
        """Accepted programs that were not played yet, the newest set first."""
        return [a.program_id for s in reversed(self.sets) for a in s.attempts if a.waiting]

    def _slots(self, step: int) -> int:
        """Programs to design: none while a whole step's worth still waits or when the budget is spent, and
        never more than can be played before the run ends, so that each accepted one gets its reward."""
        cfg, waiting = self.cfg, len(self._waiting())
        budget = cfg.budget.total_tokens
        spent = budget is not None and self.world.ledger.total_tokens >= budget
        if spent or waiting >= cfg.play.programs:
            return 0
        return min(cfg.design.designs, cfg.play.programs * (cfg.train.steps - step) - waiting)

    async def _design(self, step: int, slots: int) -> None:
        cfg, ledger = self.cfg, self.world.ledger
        needed, writing = min(slots, cfg.play.programs), Writing(self._hints, step, self._in_order)
        try:
            with ledger.phase("design"):
                designs = await self.designer.round(step, slots, needed, on_accepted=writing.begin)
            drafts = await writing.drafts()
        finally:
            writing.cancel()
        ledger.count("designs", len(designs))
        ledger.count("accepted", sum(map(accepted, designs)))
        ledger.sampled("design", self.designer.tokens)
        ledger.sampled("hint", sum(d.tokens for d in drafts))
        programs = [d.program for d in designs if accepted(d) and d.program is not None]
        hints = {d.program_id: d for d in drafts}
        self.window = [p.id for p in programs]
        usable = {d.program_id: d.usable for d in drafts if d.usable is not None}
        for program in programs:
            self.archive.add(dataclasses.replace(program, hint=usable.get(program.id)))
        record_designs(self.world.folder, step + 1, designs, usable)
        self.sets.append(DesignSet(step, tuple(map(attempt_of, designs))))
        rows = [design_row(step, i, d, hints) for i, d in enumerate(designs)]
        self.world.folder.append_many("designs.jsonl", rows)
        self._metrics |= {"design_slots": float(slots), **design_metrics(designs, drafts)}

    @property
    def _in_order(self) -> bool:
        """Whether calls of the engines have an order that must not depend on timing: what they cached before
        may change the last bits of an answer."""
        return self.world.chat.policy.lockstep or self.world.design_chat.policy.lockstep

    async def _hints(self, step: int, programs: Sequence[EnvProgram]) -> list[HintDraft]:
        if not programs or not self.cfg.play.hinted_plays:
            return []
        with self.world.ledger.phase("hints"):
            return await write_hints(
                programs,
                self.world.chat,
                self.world.sandbox,
                self.cfg.hints,
                seed=child_seed(self.cfg.seed, "hints", step),
                floor_max=self.cfg.validator.floor_max,
                template=self.cfg.design.template,
            )

    def _replay(self, step: int, n: int, exclude: set[str]) -> list[EnvProgram]:
        """Programs that fill up a step."""
        if self.cfg.play.replay == "window":
            levels = [self.archive.levels[i] for i in self.window if i in self.archive.levels]
            return [v.program for v in levels if v.plays and v.program.id not in exclude][:n]
        return self.archive.draw(n, child_rng(self.cfg.seed, "archive", step), exclude, step=step)

    # --- judging ---------------------------------------------------------------------------------------

    def _observe_group(
        self, step: int, group: Group, attempt: Attempt | None, gate: float | None, offset: int
    ) -> None:
        plain = returns(group.plain)
        first = attempt is not None and attempt.waiting
        broken = any(f.kind is FaultKind.PROGRAM for f in faults([*group.plain, *group.hinted]))
        if attempt is not None:
            attempt.broken |= broken
            attempt.saw(offset, plain, returns(group.hinted))
        if attempt is not None and first:
            attempt.gate = 1.0 if gate is None else gate
            if group.hinted:
                attempt.regret = self._regret(group)
            if plain and not broken:
                self._remember(step, group, attempt, plain)
        regret = attempt.regret if attempt is not None and first else None
        self.archive.update(group.program.id, plain, gate, step=step, regret=regret)
        if broken:
            self.archive.retire(group.program.id)

    def _regret(self, group: Group) -> Regret | None:
        """Paired regret of a new program; None when no pair has two scores. Pairs lost are counted."""
        hinted, plain = ([e.outcome for e in arm] for arm in (group.hinted, group.plain))
        regret = paired_regret(hinted, plain[: len(hinted)])
        if regret.faults:
            lost = self._metrics.get("regret_pairs_lost", 0.0) + regret.faults
            self._metrics["regret_pairs_lost"] = lost
        return regret if regret.n else None

    def _remember(self, step: int, group: Group, attempt: Attempt, plain: Sequence[float]) -> None:
        """What the first play of a program showed, for later briefs and beside the program on disk."""
        stats = self._stats[group.program.id] = play_stats(group, attempt.regret)
        self.designer.memory.add(memory_record(step, group.program, plain, stats))

    async def _gates(self, step: int, groups: Sequence[Group]) -> list[float]:
        """Skill gate of each new program; 1 when the gate is off."""
        if not self.cfg.reward.skill_gate:
            return [1.0] * len(groups)
        with self.world.ledger.phase("floor"):
            measured = await skill_gates(self.world, step, groups)
        if measured:
            self._metrics["gate"] = float(np.mean([gate for gate, _ in measured]))
            self._metrics["floor"] = float(np.mean([floor for _, floor in measured]))
        return [gate for gate, _ in measured]

    def _note_regret(self, regrets: Sequence[Regret]) -> None:
        self._metrics |= regret_metrics(regrets)
        if "regret" in self._metrics:
            old, new = self.running_regret, self._metrics["regret"]
            self.running_regret = new if old is None else REGRET_MEMORY * old + (1 - REGRET_MEMORY) * new

    def _agent_credits(self, step: int, groups: Sequence[Group]) -> list[Credit]:
        train = self.cfg.hints.train
        until = self.running_regret is None or self.running_regret > 0
        hinted_too = train == "true" or (train == "until_nonpositive" and until)
        arms: tuple[Arm, ...] = ("plain", "hinted") if hinted_too else ("plain",)
        return agent_credits(step, groups, self.cfg, self.baselines, arms)

    def _pay(self, due: Sequence[DesignSet], agent_samples: int) -> list[Credit]:
        credits: list[Credit] = []
        for made in due:
            self.skill_means.update(judged_means(made))
            rewards = set_rewards(made, self.cfg, self.rewards, self.skill_means)
            trained = set_credits(made, rewards, agent_samples, self.cfg)
            credits.extend(trained)
            self._paid.append((made, rewards, [c.advantage for c in trained]))
            self.world.folder.append_many("rewards.jsonl", reward_rows(self._step + 1, *self._paid[-1]))
            for i, reward in rewards.items():
                if made.attempts[i].kind == "accepted":
                    self.rewards[made.attempts[i].program_id] = reward
        version = self._version if self.world.design_chat is self.world.chat else None
        self._metrics |= paid_metrics(self._paid, self.cfg, version)
        if due and self.cfg.reward.type == "learning_potential":
            self._metrics |= self.skill_means.metrics()
            self._metrics |= {f"skill_slow/{s}": slow for s, (_, slow) in self.skill_means.means.items()}
        return credits
