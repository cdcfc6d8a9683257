"""One program on the test bench: its workers, what they were asked so far, and how policies do on it.

Everything is measured through the pipe and judged here, in the parent. Seeds are fixed: they are part of the
battery version, and so are the sample sizes below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from spade.envs.contract import MAX_TURNS, bare, solution_actions, wrap_action
from spade.envs.floors import CLOSED_LOOP, GARBAGE, Policy, View
from spade.envs.process import raise_fault
from spade.envs.sandbox import Sandbox, Worker
from spade.envs.wire import Op, PlayTrace, Request, StepResult
from spade.errors import ConfigError
from spade.rng import child_seed
from spade.types import EnvProgram

if TYPE_CHECKING:
    from spade.config import ValidateConfig
    from spade.envs.fingerprint import NoveltyIndex

FLOOR_SEEDS = 16
"""Episodes a policy is screened on."""
CONFIRM_SEEDS = 96
"""Fresh episodes for a policy above the limit on the first ones; these decide, so that noise does not."""
CLOSED_SEEDS = 8
MARGIN = 1.64
"""Standard errors (at the limit itself) that a policy must exceed the limit by on the fresh episodes."""
MESSAGE_OPS = 512
MESSAGE_CHARS = 400_000
LONGEST_EPISODE = 200
"""Turns after which an episode that should end is given up, even if the program declares more."""

T = TypeVar("T")


def battery_seeds(kind: str, count: int) -> list[int]:
    """The fixed seeds of one part of the battery (31-bit)."""
    return [child_seed(0, "battery", kind, i) & 0x7FFFFFFF for i in range(count)]


@dataclass(frozen=True, slots=True)
class Probe:
    """One seed's first observation and solution. `actions` is the solution as it reaches `step`."""

    seed: int
    observation: str
    solution: str | list[str]
    actions: tuple[str, ...]
    answer: str
    """The solution as plain text: contents of its actions, joined by spaces."""


@dataclass
class Bench:
    """State of one validation. `main` reuses instances freely; `other` lives in the second zygote."""

    program: EnvProgram
    sandbox: Sandbox
    cfg: ValidateConfig
    min_turns: int
    known: NoveltyIndex | None = None
    facts: dict[str, float] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)
    """Seeds of the oracle part; filled by the contract stage."""
    floor_probes: list[Probe] = field(default_factory=list)
    oracle: list[PlayTrace] = field(default_factory=list)
    idle: list[PlayTrace] = field(default_factory=list)
    """Episodes of garbage, one a probe."""
    texts: list[str] = field(default_factory=list)
    """Every observation seen."""
    _main: Worker | None = None
    _other: Worker | None = None
    _fresh: list[Probe] = field(default_factory=list)

    # --- workers ---------------------------------------------------------------------------------------

    async def main(self) -> Worker:
        """The worker of the first zygote."""
        if self._main is None:
            self._main = await self.sandbox.open(self.program.code)
        return self._main

    async def other(self) -> Worker:
        """The worker of the second zygote: another string hash seed, other addresses."""
        if self.sandbox.cfg.max_workers < 2:
            raise ConfigError(
                "sandbox.max_workers is 1; validation replays in a second worker, so set 2 or more."
            )
        if self._other is None:
            self._other = await self.sandbox.open(self.program.code, replay=True)
        return self._other

    async def close(self) -> None:
        """End both workers."""
        for worker in (self._main, self._other):
            if worker is not None:
                await worker.close()

    async def ask(self, ops: Sequence[Request], kind: type[T], worker: Worker | None = None) -> list[T]:
        """Results of many operations of one kind; raises the first fault. Long lists are split."""
        worker = worker or await self.main()
        results: list[T] = []
        for part in messages(ops):
            for result in await worker.batch(part):
                results.append(cast(T, raise_fault(result)))
        return results

    @property
    def info_turns(self) -> int:
        """Turns an episode may take by the program's own word (25 if it does not say)."""
        return min(self._main.info.max_turns or MAX_TURNS, LONGEST_EPISODE) if self._main else MAX_TURNS

    @property
    def game_type(self) -> str:
        """The program's own word."""
        return self._main.info.game_type if self._main else "multi_turn"

    def act(self, content: str) -> str:
        """A policy's action as it reaches `step`: boxed, or bare for tool use."""
        return bare(content) if self.game_type == "tool_use" else content

    @property
    def garbage(self) -> str:
        """An action that means nothing."""
        return self.act(wrap_action(GARBAGE))

    # --- measuring -------------------------------------------------------------------------------------

    async def probe(self, seeds: Sequence[int]) -> list[Probe]:
        """First observation and solution of each seed, on one reused instance."""
        ops = [op for s in seeds for op in (Op.reset(0, s), Op.solution(0))]
        answers = await self.ask(ops, object)
        probes = []
        for seed, observation, solution in zip(seeds, answers[::2], answers[1::2], strict=True):
            text, found = cast(str, observation), cast("str | list[str]", solution)
            actions = tuple(solution_actions(found, self.game_type))
            probes.append(Probe(seed, text, found, actions, " ".join(map(bare, actions))))
        return probes

    async def play_all(self, plays: Sequence[tuple[int, Sequence[str]]], turns: int) -> list[PlayTrace]:
        """Brief episodes of (seed, actions), the actions given over and over for at most `turns`."""
        return await self.ask(
            [Op.play(0, s, a or [""], turns=turns, brief=True) for s, a in plays], PlayTrace
        )

    async def fresh(self) -> list[Probe]:
        """Probes of the confirming seeds, measured once."""
        if not self._fresh:
            self._fresh = await self.probe(battery_seeds("confirm", CONFIRM_SEEDS))
        return self._fresh

    def answers_of_others(self, distinct_actions: bool) -> tuple[str, ...]:
        """Winning actions of the oracle seeds, most frequent first: what a cycler may know."""
        pools = (p.actions if distinct_actions else p.actions[:1] for p in self.probes)
        return tuple(a for a, _ in Counter(a for pool in pools for a in pool).most_common())

    def view(self, probe: Probe) -> View:
        """What a blind player may know about an episode."""
        return View(probe.observation, self.floor_turns, self.answers_of_others(True), probe.seed)

    @property
    def floor_turns(self) -> int:
        """Turns a blind player gets."""
        return min(self.info_turns, MAX_TURNS)

    async def exceeding(self, policies: dict[str, Policy], limit: float) -> tuple[str, float] | None:
        """First policy whose return is above the limit, with that return; None if all stay under.

        Screened on `FLOOR_SEEDS` episodes; one that exceeds the limit there is decided on `CONFIRM_SEEDS`
        fresh ones. Updates the fact `floor_return` with the best screened or confirmed mean.
        """
        means = await self._means(policies, self.floor_probes)
        for name, mean in means.items():
            decided = mean
            if mean > limit:
                decided = (await self._means({name: policies[name]}, await self.fresh()))[name]
                if above_limit(decided, limit, CONFIRM_SEEDS):
                    return name, decided
            self.facts["floor_return"] = max(self.facts.get("floor_return", 0.0), decided)
        return None

    async def _means(self, policies: dict[str, Policy], probes: Sequence[Probe]) -> dict[str, float]:
        views = [self.view(p) for p in probes]
        plays = [(v.seed, [self.act(a) for a in policy(v)]) for policy in policies.values() for v in views]
        traces = await self.play_all(plays, self.floor_turns)
        count = len(probes)
        values = [t.value for t in traces]
        return {n: sum(values[i * count : (i + 1) * count]) / count for i, n in enumerate(policies)}

    async def reactive(self, names: Sequence[str], probes: Sequence[Probe]) -> dict[str, float]:
        """Mean returns of closed-loop policies, all their episodes in lockstep."""
        live = {
            1000 + j * len(probes) + k: (name, probe.observation)
            for j, name in enumerate(names)
            for k, probe in enumerate(probes)
        }
        starts = [Op.reset(i, probes[(i - 1000) % len(probes)].seed) for i in live]
        won = dict.fromkeys(names, 0.0)
        for turn in range(self.floor_turns):
            moves = [Op.step(i, CLOSED_LOOP[name](text)) for i, (name, text) in live.items()]
            steps = (await self.ask([*starts, *moves] if turn == 0 else moves, object))[-len(moves) :]
            after: dict[int, tuple[str, str]] = {}
            for (i, (name, _)), step in zip(live.items(), cast("list[StepResult]", steps), strict=True):
                won[name] += step.reward if step.terminated else 0.0
                if not (step.terminated or step.truncated):
                    after[i] = (name, step.observation)
            live = after
            if not live:
                break
        return {name: total / len(probes) for name, total in won.items()}


def above_limit(mean: float, limit: float, count: int) -> bool:
    """Whether a mean of `count` episodes is above the limit by more than chance."""
    return bool(mean > limit + MARGIN * (max(limit * (1 - limit), 1e-4) / count) ** 0.5)


def match_rate(probes: Sequence[Probe], wins: Callable[[str, str], bool]) -> float:
    """How often `wins(observation, answer)` holds for a seed's own answer, minus for another seed's.

    The second is the permutation control: it keeps small answer spaces from raising false alarms.
    """
    others = [*probes[1:], *probes[:1]]
    own = sum(wins(p.observation, p.answer) for p in probes)
    crossed = sum(wins(p.observation, o.answer) for p, o in zip(probes, others, strict=True))
    return (own - crossed) / len(probes)


def messages(ops: Sequence[Request]) -> list[Sequence[Request]]:
    """Operations cut into messages of at most `MESSAGE_OPS` and about `MESSAGE_CHARS` characters."""
    parts: list[Sequence[Request]] = []
    start = size = 0
    for index, op in enumerate(ops):
        length = sum(len(a) for a in op[3]) if op[0] == "p" else 100
        if index > start and (index - start >= MESSAGE_OPS or size + length > MESSAGE_CHARS):
            parts.append(ops[start:index])
            start, size = index, 0
        size += length
    parts.append(ops[start:])
    return parts
