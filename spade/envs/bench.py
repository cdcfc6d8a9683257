"""One program on the test bench: its workers, what they were asked so far, and how policies do on it.

Everything is measured through the pipe and judged here, in the parent. Seeds are fixed: they are part of the
battery version, and so are the sample sizes of the stages. What several stages need is gathered once, by the
first that asks, so that each stage can be switched off by itself.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, TypeVar, cast

from spade.envs.contract import MAX_TURNS, bare, solution_actions, wrap_action
from spade.envs.floors import GARBAGE, View, code_words, literal_words
from spade.envs.process import raise_fault
from spade.envs.readers import Template, fill, is_choice, shared_pieces, template
from spade.envs.samples import (
    CONFIRM_SEEDS,
    DONOR_SEEDS,
    FLOOR_SEEDS,
    Probe,
    above_limit,
    battery_seeds,
    match_rate,
)
from spade.envs.sandbox import Sandbox, Worker
from spade.envs.screen import Refused, screen
from spade.envs.wire import Op, PlayTrace, Request
from spade.errors import ConfigError
from spade.types import EnvProgram

if TYPE_CHECKING:
    from spade.config import ValidateConfig
    from spade.envs.fingerprint import NoveltyIndex

# Handed on, so that stages need one import for what they measure with.
__all__ = [
    "CONFIRM_SEEDS",
    "FLOOR_SEEDS",
    "Bench",
    "Judge",
    "Probe",
    "above_limit",
    "battery_seeds",
    "match_rate",
    "messages",
]

SMALL_WORLDS = 0.2
"""A `floor_max` above this says that worlds are meant to be so small that luck, or performing a list that the
observation shows, wins now and then; the checks of games whose solution is a list are laxer then."""
MESSAGE_OPS = 512
MESSAGE_CHARS = 400_000
PLAUSIBLE_WORDS = 60
MAX_TEMPLATES = 12
LONGEST_EPISODE = 200
"""Turns after which an episode that should end is given up, even if the program declares more."""

T = TypeVar("T")
Judge = Callable[[str], Awaitable[str]]
"""From a prompt to a model's reply. Raises a SpadeError when the model cannot be reached."""


@dataclass
class Bench:
    """State of one validation. `main` reuses instances freely; `other` lives in the second zygote."""

    program: EnvProgram
    sandbox: Sandbox
    cfg: ValidateConfig
    min_turns: int
    known: NoveltyIndex | None = None
    type_override: str | None = None
    judge: Judge | None = None
    facts: dict[str, float] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)
    """Seeds of the oracle part; filled by `survey`."""
    floor_probes: list[Probe] = field(default_factory=list)
    donors: list[Probe] = field(default_factory=list)
    oracle: list[PlayTrace] = field(default_factory=list)
    """Episodes of the solution, one a probe; filled by `perform`."""
    idle: list[PlayTrace] = field(default_factory=list)
    """Episodes of garbage, one a probe."""
    texts: list[str] = field(default_factory=list)
    """Every observation seen."""
    odd: list[tuple[Request, PlayTrace]] = field(default_factory=list)
    """Episodes of odd actions, with what they gave; filled by the stage contract."""
    lucky: list[tuple[str, ...]] = field(default_factory=list)
    """Odd actions that were paid for once; filled by the stage contract, judged by the stage floor."""
    returns: dict[tuple[int, tuple[str, ...]], float] = field(default_factory=dict)
    """Returns of blind players' episodes by seed and actions."""
    sketch: str = ""
    """What the game looks like from outside (`spade.envs.duplicates`); set by the stage near_duplicate."""
    _main: Worker | None = None
    _other: Worker | None = None
    _fresh: list[Probe] = field(default_factory=list)
    _fresh_views: list[Probe] = field(default_factory=list)

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
        if not ops:
            return []
        worker = worker or await self.main()
        results: list[T] = []
        for part in messages(ops):
            for result in await worker.batch(part):
                results.append(cast(T, raise_fault(result)))
        return results

    # --- what the program says of itself ---------------------------------------------------------------

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree. Raises Refused as the static screen does."""
        return screen(self.program.code, self.cfg.max_code_chars, self.sandbox.cfg.numpy)

    @cached_property
    def letters(self) -> frozenset[str]:
        """Words of the source's texts, case folded: what the program may treat specially is among them."""
        try:
            return frozenset(w.casefold() for w in literal_words(self.tree))
        except Refused:
            return frozenset()

    @cached_property
    def code_words(self) -> tuple[str, ...]:
        """Short text and number constants of the source: commands and answers that the code knows."""
        try:
            return code_words(self.tree)
        except Refused:
            return ()

    @property
    def info_turns(self) -> int:
        """Turns an episode may take by the program's own word (25 if it does not say)."""
        return min(self._main.info.max_turns or MAX_TURNS, LONGEST_EPISODE) if self._main else MAX_TURNS

    @property
    def floor_turns(self) -> int:
        """Turns a blind player gets."""
        return min(self.info_turns, MAX_TURNS)

    @property
    def game_type(self) -> str:
        """The type asked for, else the program's own word."""
        if self.type_override is not None:
            return self.type_override
        return self._main.info.game_type if self._main else "multi_turn"

    @property
    def one_answer(self) -> bool:
        """Whether every solution is a single answer and not a list of actions."""
        return all(isinstance(p.solution, str) for p in self.probes)

    @property
    def small_worlds(self) -> bool:
        """Whether luck, or performing a list that the observation shows, may win now and then."""
        return self.cfg.floor_max > SMALL_WORLDS

    def act(self, content: str) -> str:
        """A policy's action as it reaches `step`: boxed, or bare for tool use."""
        return bare(content) if self.game_type == "tool_use" else content

    @property
    def garbage(self) -> str:
        """An action that means nothing."""
        return self.act(wrap_action(GARBAGE))

    # --- gathering -------------------------------------------------------------------------------------

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

    async def survey(self) -> None:
        """Fill `probes`, `floor_probes` and `donors`, once."""
        if self.probes:
            return
        if not (await self.main()).info.has_solution:
            raise Refused(
                "no_solution", "There is no method `solution`, so nobody can show the game can be won."
            )
        count = self.cfg.seeds
        found = await self.probe(battery_seeds("oracle", count) + battery_seeds("floor", FLOOR_SEEDS))
        if any(not p.actions for p in found):
            raise Refused("no_solution", "`solution` returned an empty list.")
        self.probes, self.floor_probes = found[:count], found[count:]
        if self.one_answer:
            self.donors = await self.probe(battery_seeds("donor", DONOR_SEEDS))

    def script(self) -> list[Request]:
        """The same questions for every worker: each probe on an instance of its own, won and then idled."""
        ops: list[Request] = []
        for k, probe in enumerate(self.probes, start=1):
            ops += [Op.reset(k, probe.seed), Op.solution(k)]
            ops.append(Op.play(k, probe.seed, probe.actions, after=[self.garbage] * 2))
            ops.append(Op.play(k, probe.seed, [self.garbage], turns=self.info_turns, after=[self.garbage]))
        return ops

    async def perform(self) -> list[object]:
        """Play the script once in the main worker: fill `oracle` and `idle`; the raw answers of that time."""
        await self.survey()
        if not self.oracle:
            self._first = await self.ask(self.script(), object)
            self.oracle = [t for t in self._first[2::4] if isinstance(t, PlayTrace)]
            self.idle = [t for t in self._first[3::4] if isinstance(t, PlayTrace)]
            for trace in (*self.oracle, *self.idle):
                self.texts += trace.observations
        return self._first

    _first: list[object] = field(default_factory=list)

    async def fresh(self) -> list[Probe]:
        """Probes of the confirming seeds, measured once."""
        if not self._fresh:
            self._fresh = await self.probe(battery_seeds("confirm", CONFIRM_SEEDS))
        return self._fresh

    async def fresh_views(self) -> list[Probe]:
        """The confirming seeds for policies, which need first observations alone."""
        if not self._fresh_views:
            seeds = battery_seeds("confirm", CONFIRM_SEEDS)
            texts = await self.ask([Op.reset(0, s) for s in seeds], str)
            self._fresh_views = [Probe(s, t, "", (), "") for s, t in zip(seeds, texts, strict=True)]
        return self._fresh_views

    @cached_property
    def plausible(self) -> list[str]:
        """Answers of several seeds, then words of their observations: what a wrong answer may look like."""
        found = [p.answer for p in (*self.probes, *self.floor_probes)]
        found += [w for p in self.floor_probes for w in p.observation.split()[:PLAUSIBLE_WORDS]]
        return [a for a in dict.fromkeys(bare(a) for a in found) if a]

    @cached_property
    def answers_of_others(self) -> tuple[str, ...]:
        """Winning actions of other seeds, most frequent first: what a cycler may know."""
        pools = (p.actions for p in (*self.probes, *self.donors))
        return tuple(a for a, _ in Counter(a for pool in pools for a in pool).most_common())

    @cached_property
    def templates(self) -> tuple[Template, ...]:
        """Shapes of other seeds' single answers: words of their own and one value of the observation.

        The most frequent first. Where several values are taken over, putting them in order is the skill.
        """
        if not self.one_answer or self.game_type == "tool_use":
            return ()
        probes = (*self.probes, *self.donors)
        shared = shared_pieces([p.observation for p in probes])
        known = Counter(template(p.observation, p.answer, shared) for p in probes)
        return tuple(islice((s for s, _ in known.most_common() if is_choice(s)), MAX_TEMPLATES))

    # --- policies --------------------------------------------------------------------------------------

    async def play_all(self, plays: Sequence[tuple[int, Sequence[str]]], turns: int) -> list[PlayTrace]:
        """Brief episodes of (seed, actions), the actions given over and over for at most `turns`."""
        return await self.ask(
            [Op.play(0, s, a or [""], turns=turns, brief=True) for s, a in plays], PlayTrace
        )

    def view(self, probe: Probe) -> View:
        """What a blind player may know about an episode."""
        filled = dict.fromkeys(fill(shape, probe.observation) for shape in self.templates)
        return View(probe.observation, self.floor_turns, self.answers_of_others, probe.seed, tuple(filled))


def messages(ops: Sequence[Request]) -> list[Sequence[Request]]:
    """Operations cut into messages of at most `MESSAGE_OPS` and about `MESSAGE_CHARS` characters."""
    parts: list[Sequence[Request]] = []
    start = size = 0
    for index, op in enumerate(ops):
        length = sum(map(len, op[3])) if op[0] == "p" else 100
        if index > start and (index - start >= MESSAGE_OPS or size + length > MESSAGE_CHARS):
            parts.append(ops[start:index])
            start, size = index, 0
        size += length
    parts.append(ops[start:])
    return parts
