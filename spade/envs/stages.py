"""Stages that ask whether a program keeps the contract: text, types, determinism, solvability, rewards.

A stage is one async function of the bench that returns, or raises `Refused`. Its keyword-only parameters,
with their defaults, are what `validator.stages` may set. A program fault inside a stage rejects with the
fault's code. `spade.envs.battery` puts the stages in order.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence

from spade.envs.bench import Bench
from spade.envs.calls import sample_calls
from spade.envs.contract import FULL_RETURN, wrap_action
from spade.envs.floors import COMMANDS, guessed_commands
from spade.envs.markup import MARKUP
from spade.envs.screen import Refused
from spade.envs.wire import Op, PlayTrace, Request, StepResult
from spade.types import GAME_TYPES

_ODD_TEXTS = ("", "1", "test", "42", "-1", "0.5", "nan", "inf", "{nested}", "é☃𝄞", "a b c", "up")
ODD_CONTENTS = (*_ODD_TEXTS, "x" * 2000)
ODD_RAW = ("", " ", "plain text", "\\boxed{unclosed", "\\boxed{a} \\boxed{b}", "<tool_call>{}</tool_call>")
_OURS = re.compile(r"(?i)<tool_call>\{?\}?(?:</tool_call>)?")
"""The last of `ODD_RAW` as a program may repeat it, cut short or in capitals."""
PAIRS = ((0, 1), (2, 3))
CLOCKS = {
    "time",
    "monotonic",
    "perf_counter",
    "process_time",
    "now",
    "utcnow",
    "today",
    "localtime",
    "gmtime",
}
CLOCKS |= {"time_ns", "monotonic_ns", "perf_counter_ns", "ctime", "clock_gettime", "thread_time"}
ENTROPY = {"SystemRandom", "urandom", "getrandom"}


async def static_screen(bench: Bench) -> None:
    """The text parses, is short enough, imports allowed modules only, and holds an environment class."""
    _ = bench.tree


async def novelty(bench: Bench) -> None:
    """No known program is the same game."""
    twin = bench.known.twin_of(bench.program) if bench.known is not None else None
    if twin is not None and twin != bench.program.id:
        raise Refused("duplicate", f"It is the same game as program {twin[:12]}.")
    if twin is not None:
        raise Refused("duplicate", "This program is known already.")


async def load(bench: Bench) -> None:
    """The module runs and the class can be constructed without arguments."""
    info = (await bench.main()).info
    if bench.game_type not in GAME_TYPES:
        raise Refused(
            "game_type", f"game_type is {bench.game_type[:40]!r}; use one of {', '.join(GAME_TYPES)}."
        )
    bench.facts["max_turns"] = float(info.max_turns)


# --- types and shapes ----------------------------------------------------------------------------------


async def contract(bench: Bench, *, seeds: int | None = None) -> None:
    """`reset`, `step` and `solution` return what they must on several seeds, for odd actions too.

    `seeds` (unset: `validator.contract_seeds`) is the number of seeds the odd actions are tried on.
    """
    await bench.survey()
    for probe in (*bench.probes, *bench.floor_probes):
        if not probe.observation.strip():
            raise Refused("contract", "The first observation is empty.")
    special = [c for c in COMMANDS if c.split()[0] in bench.letters]
    odd = [bench.act(wrap_action(c)) for c in (*ODD_CONTENTS, *special)] + list(ODD_RAW)
    odd += [bench.act(wrap_action(w)) for w in bench.code_words]
    odd += sample_calls((await bench.main()).info.tools)
    turns = bench.floor_turns
    plays = [
        (p.seed, odd[k::3] + odd[:k]) for k, p in enumerate(bench.probes[: seeds or bench.cfg.contract_seeds])
    ]
    first = [(seed, a[i : i + turns]) for seed, a in plays for i in range(0, len(a), turns)]
    traces = await bench.ask([Op.play(0, s, a) for s, a in first], PlayTrace)
    # What an early end left untried opens an episode of its own.
    left = [(s, [a]) for (s, part), t in zip(first, traces, strict=True) for a in part[len(t.rewards) :]]
    traces += await bench.ask([Op.play(0, s, a) for s, a in left], PlayTrace)
    for (seed, actions), trace in zip(first + left, traces, strict=True):
        bench.odd.append((Op.play(0, seed, actions), trace))
        bench.texts += map(_without_ours, trace.observations)
        _note(bench, actions, trace)
    await _guesses(bench, plays[0][0])


async def _guesses(bench: Bench, seed: int) -> None:
    """Commands put together from the program's own words, with and without arguments, never raise."""
    actions = [bench.act(wrap_action(c)) for c in guessed_commands(bench.tree)]
    turns = bench.floor_turns
    parts = [actions[i : i + turns] for i in range(0, len(actions), turns)]
    traces = await bench.ask([Op.play(0, seed, part, brief=True) for part in parts], PlayTrace)
    left = [[a] for part, t in zip(parts, traces, strict=True) for a in part[len(t.rewards) :]]
    traces += await bench.ask([Op.play(0, seed, a, brief=True) for a in left], PlayTrace)
    for part, trace in zip(parts + left, traces, strict=True):
        _note(bench, part, trace)


def _note(bench: Bench, actions: Sequence[str], trace: PlayTrace) -> None:
    """Check the rewards of an odd episode; actions that won it are tried on other seeds by the floor."""
    check_rewards(trace)
    if trace.value > 0:
        bench.lucky.append(tuple(actions[: len(trace.rewards)]))


def _without_ours(text: str) -> str:
    """A program may repeat what the player said, or its beginning: that is no markup of the program's."""
    return _OURS.sub("", text) if "<" in text else text


def check_rewards(trace: PlayTrace) -> None:
    """Raise Refused for a reward outside [0, 1] or one paid after the end."""
    bad = next((r for r in trace.rewards if not 0.0 <= r <= 1.0), None)
    if bad is not None:
        raise Refused("reward_range", f"A step paid {bad:g}; rewards must lie in [0, 1].")
    best = max(trace.rewards, default=0.0)
    for step in trace.after_end:
        # Saying once more that the game is won is harmless; paying more, or going on and paying, is not.
        if step.reward > 0 and (step.reward > best or not (step.terminated or step.truncated)):
            raise Refused("paid_after_end", f"A step after the end paid {step.reward:g}.")


async def rewards(bench: Bench) -> None:
    """Rewards lie in [0, 1] and nothing is paid after the end."""
    await bench.perform()
    for trace in (*bench.oracle, *bench.idle):
        check_rewards(trace)


async def observations(bench: Bench, *, max_chars: int | None = None) -> None:
    """Observations are of reasonable length and hold no chat or tool markup; neither do tool descriptions."""
    await bench.perform()
    limit = max_chars or bench.cfg.max_observation_chars
    for text in dict.fromkeys((*bench.texts, *(p.observation for p in (*bench.probes, *bench.floor_probes)))):
        if len(text) > limit:
            raise Refused(
                "observation_too_long", f"An observation has {len(text)} characters; limit {limit}."
            )
        if found := MARKUP.search(text):
            raise Refused("markup", f"An observation holds chat or tool markup: {found.group()[:40]!r}.")
    if found := MARKUP.search(json.dumps((await bench.main()).info.tools)):
        raise Refused("markup", f"A tool's description holds chat or tool markup: {found.group()[:40]!r}.")


# --- determinism ---------------------------------------------------------------------------------------


def _source_of_noise(tree: ast.Module) -> str | None:
    """`clock` or `entropy` if the program reads one, else None: names the reason, never finds it."""
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in ENTROPY:
            return "entropy"
        if name in CLOCKS and not (name == "time" and isinstance(node, ast.Name)):
            return "clock"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            unseeded = not node.args and not node.keywords
            if unseeded and node.func.attr in ("Random", "seed"):
                return "entropy"
    return None


def _not_repeatable(bench: Bench, code: str, detail: str) -> Refused:
    noise = _source_of_noise(bench.tree)
    if noise == "clock":
        return Refused("clock_dependent", f"{detail} The program reads a clock; draw all from the seed.")
    if noise == "entropy":
        return Refused("entropy_dependent", f"{detail} It uses unseeded randomness; draw all from the seed.")
    return Refused(code, detail)


async def replay(bench: Bench) -> None:
    """Another process with another string hash seed and other addresses gives the same traces.

    There each instance is played before it is asked for its solution, as an Agent's is: a game that can only
    be won once `solution` was called, or after a first reset, is another one in play. The seeds come in the
    opposite order, and odd actions count too.
    """
    first = await bench.perform()
    asked = bench.script()
    ops: list[Request] = []
    expected: list[object] = []
    for k in reversed(range(0, len(asked), 4)):
        ops += [*asked[k + 2 : k + 4], *asked[k : k + 2]]
        expected += [*first[k + 2 : k + 4], *first[k : k + 2]]
    ops += [op for op, _ in bench.odd]
    expected += [trace for _, trace in bench.odd]
    if await bench.ask(ops, object, await bench.other()) != expected:
        text = (
            "The same seed and actions gave another episode in another process, "
            "where the seeds came in another order and before `solution` was called."
        )
        raise _not_repeatable(bench, "replay_differs", text)


async def reset_twice(bench: Bench) -> None:
    """A second reset with the same seed gives the same episode, after one that was given up half-way too."""
    await bench.perform()
    others = [*bench.probes[1:], *bench.probes[:1]]
    half = [(p.seed, p.actions[: len(p.actions) // 2] or [bench.garbage]) for p in others]
    given_up = [Op.play(k, s, actions, brief=True) for k, (s, actions) in enumerate(half, start=1)]
    again = (await bench.ask([*given_up, *bench.script()], object))[len(given_up) :]
    expected: list[object] = []
    for probe, won, idle in zip(bench.probes, bench.oracle, bench.idle, strict=True):
        expected += [probe.observation, probe.solution, won, idle]
    if again != expected:
        text = "Resetting again with the same seed gave another episode."
        raise _not_repeatable(bench, "reset_differs", text)


async def interleave(bench: Bench) -> None:
    """Two instances played in alternation do not disturb each other, one of them idle or both winning."""
    await bench.perform()
    ops: list[Request] = []
    expected: list[tuple[str, float]] = []
    for number, (a, b) in enumerate(p for p in PAIRS if p[1] < len(bench.probes)):
        for op, seen in _alternate(bench, 501 + 2 * number, a, b, idle=number == 0):
            ops.append(op)
            expected.append(seen)
    answers = await bench.ask([*ops, *(Op.drop(501 + k) for k in range(2 * len(PAIRS)))], object)
    for answer, solo in zip(answers, expected, strict=False):
        pair = (answer.observation, answer.reward) if isinstance(answer, StepResult) else (answer, 0.0)
        if pair != solo:
            text = "Two instances played in alternation disturb each other."
            raise _not_repeatable(bench, "shared_state", text)


def _alternate(
    bench: Bench, number: int, a: int, b: int, idle: bool
) -> Iterator[tuple[Request, tuple[str, float]]]:
    """Operations on two instances in turn, each with what it answered when it was alone.

    The second one idles, or it is reset after the other's first step and then won as well.
    """
    left, right = bench.oracle[a], bench.idle[b] if idle else bench.oracle[b]
    moves = [bench.garbage] * len(right.rewards) if idle else bench.probes[b].actions
    start = Op.reset(number + 1, bench.probes[b].seed), (right.observations[0], 0.0)
    yield Op.reset(number, bench.probes[a].seed), (left.observations[0], 0.0)
    if idle:
        yield start
    for turn in range(max(len(left.rewards), len(right.rewards))):
        if turn < len(left.rewards):
            seen = (left.observations[turn + 1], left.rewards[turn])
            yield Op.step(number, bench.probes[a].actions[turn]), seen
        if turn == 0 and not idle:
            yield start
        if turn < len(right.rewards):
            yield Op.step(number + 1, moves[turn]), (right.observations[turn + 1], right.rewards[turn])


# --- sense ---------------------------------------------------------------------------------------------


async def seeds(bench: Bench, *, min_different: float = 0.5) -> None:
    """Another seed is another task: (observation, solution) changes on `min_different` of the seeds."""
    await bench.survey()
    probes = [*bench.probes, *bench.floor_probes]
    first = probes[0]
    different = sum((p.observation, p.actions) != (first.observation, first.actions) for p in probes[1:])
    if different < min_different * (len(probes) - 1):
        raise Refused("seed_ignored", f"Only {different} of {len(probes) - 1} other seeds give another task.")


async def ends(bench: Bench) -> None:
    """Doing nothing ends the episode within its own turn limit."""
    await bench.perform()
    turns = bench.info_turns
    silent = await bench.play_all([(p.seed, [""]) for p in bench.probes], turns)
    for trace in (*bench.idle, *silent):
        if not trace.ended:
            raise Refused(
                "never_ends", f"Doing nothing for {turns} turns (its limit) did not end the episode."
            )


async def oracle(bench: Bench, *, min_turns: int | None = None) -> None:
    """Playing `solution()` wins on every seed, in enough turns (mean over seeds)."""
    await bench.perform()
    values = [t.value for t in bench.oracle]
    bench.facts["oracle_return"] = sum(values) / len(values)
    bench.facts["oracle_turns"] = sum(len(t.rewards) for t in bench.oracle) / len(bench.oracle)
    for trace in bench.oracle:
        if trace.value < FULL_RETURN:
            end = "terminated" if trace.terminated else "truncated" if trace.truncated else "not ended"
            paid = f"{trace.rewards[-1]:g}" if trace.rewards else "nothing"
            raise Refused(
                "unsolved", f"Playing `solution` paid {paid} and the episode was {end}; 1.0 is needed."
            )
    needed = max(bench.min_turns, min_turns or 1)
    if bench.facts["oracle_turns"] < needed:
        mean = bench.facts["oracle_turns"]
        text = f"`solution` wins in {mean:.1f} turns; at least {needed} are needed."
        raise Refused("too_few_turns", text)
