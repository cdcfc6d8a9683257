"""The validator's stages. Each is one async function of the bench; it returns, or raises `Refused`.

`STAGES` lists them in order. A program fault inside a stage rejects with the fault's code. Every stage can be
switched off by name in the config.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from spade.envs.bench import CONFIRM_SEEDS, FLOOR_SEEDS, Bench, Probe, above_limit, battery_seeds, match_rate
from spade.envs.contract import FULL_RETURN, wrap_action
from spade.envs.exploits import crossed, decoys, floor, late
from spade.envs.floors import context_reader, plain, reading_rates, words
from spade.envs.screen import Refused, screen
from spade.envs.wire import Op, PlayTrace, Request, StepResult
from spade.types import GAME_TYPES

Stage = Callable[[Bench], Awaitable[None]]

ODD_CONTENTS = ("", "1", "test", "42", "-1", "0.5", "{nested}", "é☃𝄞", "a b c", "up", "x" * 2000)
ODD_RAW = ("", " ", "plain text", "\\boxed{unclosed", "\\boxed{a} \\boxed{b}", "<tool_call>{}</tool_call>")
MARKUP = re.compile(
    r"<\|[^|<>\n]{1,60}\|>|</?(?:think|thinking|tool_calls?|tool_response|function_call)\b[^>\n]{0,60}>"
    r"|\[/?INST\]|<</?SYS>>|</?(?:start|end)_of_turn>|</?s>|<\uff5c[^>\n]{1,60}\uff5c>"
)
"""Chat-template and tool markup. An observation that holds it could forge a turn of the conversation."""
_NUMERIC = re.compile(r"-?[0-9.]+")
MIN_DIFFERENT = 0.5
"""Share of seeds whose (observation, solution) must differ from the first seed's."""
PAIRS = ((0, 1), (2, 3))


async def static_screen(bench: Bench) -> None:
    """The text parses, is short enough, imports allowed modules only, and holds an environment class."""
    screen(bench.program.code, bench.cfg.max_code_chars)


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
    if info.game_type not in GAME_TYPES:
        raise Refused(
            "game_type", f"game_type is {info.game_type[:40]!r}; use one of {', '.join(GAME_TYPES)}."
        )
    bench.facts["max_turns"] = float(info.max_turns)


async def contract(bench: Bench) -> None:
    """`reset`, `step` and `solution` return what they must on several seeds, for odd actions too."""
    if not (await bench.main()).info.has_solution:
        raise Refused("no_solution", "There is no method `solution`, so nobody can show the game can be won.")
    seeds = battery_seeds("oracle", bench.cfg.seeds) + battery_seeds("floor", FLOOR_SEEDS)
    probes = await bench.probe(seeds)
    bench.probes, bench.floor_probes = probes[: bench.cfg.seeds], probes[bench.cfg.seeds :]
    for probe in (*bench.probes, *bench.floor_probes):
        if not probe.observation.strip():
            raise Refused("contract", "The first observation is empty.")
        if not probe.actions:
            raise Refused("no_solution", "`solution` returned an empty list.")
    odd = [bench.act(wrap_action(c)) for c in ODD_CONTENTS] + list(ODD_RAW)
    ops = [
        Op.play(0, p.seed, odd[k:] + odd[:k]) for k, p in enumerate(bench.probes[: bench.cfg.contract_seeds])
    ]
    for trace in await bench.ask(ops, PlayTrace):
        bench.texts += trace.observations
        _check_rewards(trace)


def _script(bench: Bench) -> list[Request]:
    """The same questions for every worker: each probe on an instance of its own, won and then idled."""
    ops: list[Request] = []
    for k, probe in enumerate(bench.probes, start=1):
        ops += [Op.reset(k, probe.seed), Op.solution(k)]
        ops.append(Op.play(k, probe.seed, probe.actions, after=[bench.garbage] * 2))
        ops.append(Op.play(k, probe.seed, [bench.garbage], turns=bench.info_turns, after=[bench.garbage]))
    return ops


async def replay(bench: Bench) -> None:
    """Another process with another string hash seed and other addresses gives the same traces."""
    script = _script(bench)
    first = await bench.ask(script, object)
    bench.oracle = [t for t in first[2::4] if isinstance(t, PlayTrace)]
    bench.idle = [t for t in first[3::4] if isinstance(t, PlayTrace)]
    for trace in (*bench.oracle, *bench.idle):
        bench.texts += trace.observations
    if await bench.ask(script, object, await bench.other()) != first:
        raise Refused("replay_differs", "The same seed and actions gave another episode in another process.")


async def reset_twice(bench: Bench) -> None:
    """A second reset with the same seed gives the same episode; the survey before the replay counts too."""
    again = await bench.ask(_script(bench), object)
    expected: list[object] = []
    for probe, won, idle in zip(bench.probes, bench.oracle, bench.idle, strict=True):
        expected += [probe.observation, probe.solution, won, idle]
    if again != expected:
        raise Refused("reset_differs", "Resetting again with the same seed gave another episode.")


async def interleave(bench: Bench) -> None:
    """Two instances played in alternation do not disturb each other."""
    for a, b in PAIRS:
        if b >= len(bench.probes):
            return
        left, right = bench.oracle[a], bench.idle[b]
        ops: list[Request] = [Op.reset(501, bench.probes[a].seed), Op.reset(502, bench.probes[b].seed)]
        order: list[tuple[PlayTrace, int]] = [(left, -1), (right, -1)]
        for turn in range(max(len(left.rewards), len(right.rewards))):
            if turn < len(left.rewards):
                ops.append(Op.step(501, bench.probes[a].actions[turn]))
                order.append((left, turn))
            if turn < len(right.rewards):
                ops.append(Op.step(502, bench.garbage))
                order.append((right, turn))
        answers = await bench.ask([*ops, Op.drop(501), Op.drop(502)], object)
        for answer, (trace, turn) in zip(answers, order, strict=False):
            seen = (answer.observation, answer.reward) if isinstance(answer, StepResult) else (answer, 0.0)
            solo = (trace.observations[turn + 1], trace.rewards[turn] if turn >= 0 else 0.0)
            if seen != solo:
                raise Refused("shared_state", "Two instances played in alternation disturb each other.")


async def seeds(bench: Bench) -> None:
    """Another seed is another task: (observation, solution) changes."""
    probes = [*bench.probes, *bench.floor_probes]
    first = probes[0]
    different = sum((p.observation, p.actions) != (first.observation, first.actions) for p in probes[1:])
    if different < MIN_DIFFERENT * (len(probes) - 1):
        raise Refused("seed_ignored", f"Only {different} of {len(probes) - 1} other seeds give another task.")


async def oracle(bench: Bench) -> None:
    """Playing `solution()` wins on every seed, in enough turns."""
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
    if bench.facts["oracle_turns"] < bench.min_turns:
        mean = bench.facts["oracle_turns"]
        text = f"`solution` wins in {mean:.1f} turns; at least {bench.min_turns} are needed."
        raise Refused("too_few_turns", text)


async def ends(bench: Bench) -> None:
    """Doing nothing ends the episode within its own turn limit."""
    turns = bench.info_turns
    silent = await bench.play_all([(p.seed, [""]) for p in bench.probes], turns)
    for trace in (*bench.idle, *silent):
        if not trace.ended:
            raise Refused(
                "never_ends", f"Doing nothing for {turns} turns (its limit) did not end the episode."
            )


def _check_rewards(trace: PlayTrace) -> None:
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
    for trace in (*bench.oracle, *bench.idle):
        _check_rewards(trace)


async def observations(bench: Bench) -> None:
    """Observations are of reasonable length and hold no chat or tool markup."""
    limit = bench.cfg.max_observation_chars
    for text in (*bench.texts, *(p.observation for p in bench.floor_probes)):
        if len(text) > limit:
            raise Refused(
                "observation_too_long", f"An observation has {len(text)} characters; limit {limit}."
            )
        if found := MARKUP.search(text):
            raise Refused("markup", f"An observation holds chat or tool markup: {found.group()[:40]!r}.")


async def leak(bench: Bench) -> None:
    """No reader of a fixed place finds the answer in the first observation, and no feedback gives it away."""
    if not all(isinstance(p.solution, str) for p in bench.probes):
        return  # a list of actions is performed, not copied; blind replay and the floors judge it
    probes = [*bench.probes, *bench.floor_probes]
    limit = bench.cfg.floor_max
    found = [name for name, rate in _reading_rates(probes).items() if rate > limit]
    if found:
        confirmed = _reading_rates(await bench.fresh())
        for name in found:
            if above_limit(confirmed[name], limit, CONFIRM_SEEDS):
                raise Refused("answer_in_observation", f"The answer is the {name} of the first observation.")
    for probe in bench.probes[:3]:
        reader = context_reader(probe.observation, probe.answer)
        if reader is None or _reads(probes, reader) <= limit:
            continue
        if above_limit(_reads(await bench.fresh(), reader), limit, CONFIRM_SEEDS):
            text = "The answer follows the same words in every first observation."
            raise Refused("answer_in_observation", text)
    if bench.floor_turns > 1 and await _feedback_rate(bench) > bench.cfg.floor_max:
        raise Refused("answer_in_feedback", "Feedback shows the answer while the episode goes on.")


async def _feedback_rate(bench: Bench) -> float:
    """How often feedback to wrong answers shows the right one, minus the same for another seed's answer.

    Wrong answers are those of other seeds, so that they are of the right form. Feedback to nonsense counts
    for answers in words only: a distance from "no number, taken as 0" is the answer by arithmetic.
    """
    half = len(bench.floor_probes) // 2
    wrong, control = bench.floor_probes[:half], bench.floor_probes[half:]
    plays = []
    for probe in bench.probes:
        actions = [a for w in wrong if w.answer != probe.answer for a in w.actions][: bench.floor_turns]
        plays.append(Op.play(0, probe.seed, actions or [bench.garbage]))
    traces = await bench.ask(plays, PlayTrace)
    told = crossed = 0
    for k, (probe, trace, idle) in enumerate(zip(bench.probes, traces, bench.idle, strict=True)):
        told += _told(probe.observation, probe.answer, trace) or (
            not _NUMERIC.fullmatch(probe.answer) and _told(probe.observation, probe.answer, idle)
        )
        crossed += _told(probe.observation, control[k % len(control)].answer, trace)
    return (told - crossed) / len(bench.probes)


def _reading_rates(probes: list[Probe]) -> dict[str, float]:
    return reading_rates([p.observation for p in probes], [p.answer for p in probes])


def _reads(probes: list[Probe], reader: Callable[[str], str]) -> float:
    return match_rate(probes, lambda text, answer: plain(reader(text)) == plain(answer))


def _told(first: str, answer: str, trace: PlayTrace) -> bool:
    """Whether feedback before the last turn shows an answer that the first observation did not show."""
    going_on = trace.observations[1:-1] if trace.ended else trace.observations[1:]
    return any(shows(text, answer) for text in going_on) and not shows(first, answer)


def shows(text: str, answer: str) -> bool:
    """Whether the words of `answer` stand in `text` in a row."""
    seen, wanted = [w.casefold() for w in words(text)], [w.casefold() for w in words(answer)]
    size = len(wanted)
    return bool(size) and any(seen[i : i + size] == wanted for i in range(len(seen) - size + 1))


STAGES: dict[str, Stage] = {
    "screen": static_screen,
    "novelty": novelty,
    "load": load,
    "contract": contract,
    "replay": replay,
    "reset_twice": reset_twice,
    "interleave": interleave,
    "rewards": rewards,
    "observations": observations,
    "seeds": seeds,
    "ends": ends,
    "oracle": oracle,
    "leak": leak,
    "floor": floor,
    "crossed": crossed,
    "decoys": decoys,
    "late": late,
}
"""All stages in order. `load`, `contract` and `replay` gather what later stages judge and cannot be left out
of a full run; switching one off skips its judgement only."""
