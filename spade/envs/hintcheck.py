"""Checks of hints: a hint may explain how to think, not give away what the game hides.

Regret pays for what the hint adds. A hint that holds an answer, or a rule that only the code knows, would
make a worthless game look valuable. Three checks need only the text (length, answers, literals of the
code that no observation shows); a fourth plays the game with the words of the hint and nothing else.
"""

from __future__ import annotations

import ast
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from spade.envs.bench import CONFIRM_SEEDS, FLOOR_SEEDS, above_limit, battery_seeds
from spade.envs.contract import MAX_TURNS, bare, solution_actions, wrap_action
from spade.envs.floors import GARBAGE
from spade.envs.process import raise_fault
from spade.envs.readers import words
from spade.envs.sandbox import Sandbox, Worker
from spade.envs.wire import Op, PlayTrace, Request
from spade.types import EnvProgram, StageResult

FACT_SEEDS = 8
MIN_PLAN = 3
"""Shorter lists of actions are single commands of the game, which a hint may name."""
MIN_LITERAL = 3
"""Shorter text literals are pieces of sentences."""
PUBLIC_NUMBERS = 12
"""Whole numbers up to here are counting words, not secrets of the code."""
_PUBLIC_WORDS_TEXT = (
    "boxed program random seed self reset step single_turn multi_turn tool_use true false none "
    "yes no the and for with from not you are was has its than then when into over under each"
)
PUBLIC_WORDS = frozenset(_PUBLIC_WORDS_TEXT.split())


@dataclass(frozen=True, slots=True)
class HintFacts:
    """What a hint is checked against. Tokens are words and numbers, case folded.

    `solutions[k]` are the contents of seed k's winning actions, `first[k]` its first observation; `shown` are
    all tokens of all observations seen; `literals` the tokens of the code's constants.
    """

    solutions: tuple[tuple[str, ...], ...]
    first: tuple[str, ...]
    shown: frozenset[str]
    literals: frozenset[str]

    @property
    def commands(self) -> frozenset[str]:
        """Tokens of actions of games whose solution is a list: the vocabulary a player needs anyway."""
        lists = (s for s in self.solutions if len(s) > 1)
        return frozenset(t for s in lists for action in s for t in tokens(action))


def tokens(text: str) -> list[str]:
    """Words and numbers of a text, case folded."""
    return [w.casefold() for w in words(text)]


def source_literals(code: str) -> frozenset[str]:
    """Tokens of the text and number constants of a program, docstrings left out."""
    found: set[str] = set()
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    docs = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docs or isinstance(node.value, bool):
            continue
        if isinstance(node.value, str):
            found.update(t for t in tokens(node.value) if len(t) >= MIN_LITERAL)
        elif isinstance(node.value, int | float) and not 0 <= node.value <= PUBLIC_NUMBERS:
            found.add(str(node.value))
    return frozenset(found)


def _shown(texts: Sequence[str]) -> frozenset[str]:
    """Tokens of what a player reads: observations and the list of tools. `3off` shows `off` as well."""
    whole = {t for text in texts for t in tokens(text)}
    return frozenset(whole | {part for t in whole for part in re.findall(r"[^\W\d_]+|\d+", t)})


async def hint_facts(program: EnvProgram, sandbox: Sandbox) -> HintFacts:
    """Play the program a little and collect what is public. Raises ProgramFault if it breaks."""
    worker = await sandbox.open(program.code)
    try:
        return await _collect(program, worker)
    finally:
        await worker.close()


async def _collect(program: EnvProgram, worker: Worker) -> HintFacts:
    seeds = battery_seeds("oracle", FACT_SEEDS)
    ask: list[Request] = [op for s in seeds for op in (Op.reset(0, s), Op.solution(0))]
    answers = [raise_fault(r) for r in await worker.batch(ask)]
    solutions = [cast("str | list[str]", a) for a in answers[1::2]]
    plans = [solution_actions(s, worker.info.game_type) for s in solutions]
    garbage = GARBAGE if worker.info.game_type == "tool_use" else wrap_action(GARBAGE)
    plays: list[Request] = []
    for k, seed in enumerate(seeds):
        others = [a for plan in plans[k + 1 :] + plans[:k] for a in plan[:2]]
        for actions in (plans[k], [garbage], others):
            plays.append(Op.play(0, seed, actions or [garbage], turns=worker.info.turns))
    *played, tools = [raise_fault(r) for r in await worker.batch([*plays, Op.tools(0)])]
    traces = cast("list[PlayTrace]", played)
    return HintFacts(
        solutions=tuple(tuple(bare(a) for a in plan) for plan in plans),
        first=tuple(cast("list[str]", answers[0::2])),
        shown=_shown([*(o for t in traces for o in t.observations), json.dumps(tools)]),
        literals=source_literals(program.code),
    )


def check_hint(hint: str, facts: HintFacts, max_words: int) -> StageResult:
    """Judge a hint by its text; codes hint_empty, hint_too_long, hint_leaks_answer, hint_leaks_code, ok."""
    started = time.monotonic()
    code, detail = _judge(hint, facts, max_words)
    return StageResult("hint", code == "ok", code, detail, time.monotonic() - started)


def _judge(hint: str, facts: HintFacts, max_words: int) -> tuple[str, str]:
    count = len(hint.split())
    if count == 0:
        return "hint_empty", "The hint is empty."
    if count > max_words:
        return "hint_too_long", f"The hint has {count} words; at most {max_words} are allowed."
    for solution, first in zip(facts.solutions, facts.first, strict=True):
        if _holds_solution(hint, solution, first):
            answer = ", ".join(solution)[:80]
            return "hint_leaks_answer", f"The hint holds the answer of a seed ({answer!r})."
    secret = facts.literals - facts.shown - facts.commands - PUBLIC_WORDS
    told = next((t for t in tokens(hint) if t in secret), None)
    if told is not None:
        return "hint_leaks_code", f"The hint names {told!r}, which the code holds and no observation shows."
    return "ok", ""


def _holds_solution(hint: str, solution: tuple[str, ...], first: str) -> bool:
    if len(solution) == 1:
        # One letter is an answer only as that very letter ("A", not the article); what the observation shows
        # to everybody is no secret.
        short = len(solution[0].strip()) == 1
        said, wanted, shown = ((words(t) if short else tokens(t)) for t in (hint, solution[0], first))
        return bool(wanted) and _in_a_row(said, wanted) and not _in_a_row(shown, wanted)
    if len(solution) < MIN_PLAN:
        return False
    following = iter(tokens(hint))
    return all(t in following for action in solution for t in tokens(action))


def _in_a_row(seen: Sequence[str], wanted: Sequence[str]) -> bool:
    size = len(wanted)
    return any(list(seen[i : i + size]) == list(wanted) for i in range(len(seen) - size + 1))


async def check_hint_play(hint: str, program: EnvProgram, sandbox: Sandbox, floor_max: float) -> StageResult:
    """A player who answers the words of the hint in turn and ignores the game must stay under `floor_max`."""
    started = time.monotonic()
    contents = list(dict.fromkeys(words(hint)))
    worker = await sandbox.open(program.code)
    try:
        mean = await _blind_return(worker, contents, battery_seeds("floor", FLOOR_SEEDS))
        if mean > floor_max:
            mean = await _blind_return(worker, contents, battery_seeds("confirm", CONFIRM_SEEDS))
    finally:
        await worker.close()
    ok = not above_limit(mean, floor_max, CONFIRM_SEEDS)
    detail = "" if ok else f"Answering the words of the hint in turn gets {mean:.2f} without seeing the game."
    return StageResult("hint_play", ok, "ok" if ok else "hint_wins_alone", detail, time.monotonic() - started)


async def _blind_return(worker: Worker, contents: Sequence[str], seeds: Sequence[int]) -> float:
    turns = min(worker.info.turns, MAX_TURNS)
    actions = list(contents) if worker.info.game_type == "tool_use" else [wrap_action(c) for c in contents]
    ops = [Op.play(0, s, actions or [""], turns=turns, brief=True) for s in seeds]
    traces = [cast(PlayTrace, raise_fault(r)) for r in await worker.batch(ops)]
    return sum(t.value for t in traces) / len(traces)
