"""Stages about what a game tells: not the answer, but enough to find it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from spade.envs.bench import CONFIRM_SEEDS, Bench, Probe, above_limit, match_rate
from spade.envs.contract import wrap_action
from spade.envs.floors import COMMANDS, GARBAGE, guessed_commands, literal_words
from spade.envs.forms import reveals, shows
from spade.envs.readers import character_readers, context_readers, plain, reading_rates, words
from spade.envs.screen import Refused
from spade.envs.wire import Op, PlayTrace

_NUMERIC = re.compile(r"-?[0-9.]+")
CONTEXT_PROBES = 3
"""Observations from which the reader of "what follows these words" is learnt."""
CERTAIN = 2.5
"""Standard errors by which the own answer must be shown more often than another seed's."""
MIN_LIST_WORDS = 3
"""Shorter lists of actions stand in a text by accident."""


# --- the answer in the text ----------------------------------------------------------------------------


async def leak(bench: Bench, *, limit: float | None = None) -> None:
    """No reader of a fixed place finds the answer in the first observation, and no feedback gives it away.

    `limit` (unset: `validator.floor_max`) is the share of seeds on which it may.
    """
    await bench.perform()
    share = bench.cfg.floor_max if limit is None else limit
    if bench.game_type == "tool_use":
        return  # the user's instructions say what to do; doing it is the point
    if bench.one_answer:
        await _shown_at_first(bench, share)
    elif not bench.small_worlds and _listed_rate([*bench.probes, *bench.floor_probes]) > share:
        confirmed = _listed_rate(await bench.fresh())
        if above_limit(confirmed, share, CONFIRM_SEEDS):
            raise Refused(
                "answer_in_observation", "The winning actions stand in order in the first observation."
            )
    if bench.floor_turns == 1:
        return
    told, crossed = await _told_in_feedback(bench, bench.probes)
    if told - crossed > share * len(bench.probes):
        fresh = await bench.fresh()
        if _certain(*await _told_in_feedback(bench, fresh), share * len(fresh)):
            raise Refused("answer_in_feedback", "Feedback shows the answer while the episode goes on.")
    await _told_on_a_word(bench, share)


def _certain(told: int, crossed: int, least: float) -> bool:
    """Whether paired counts differ by more than chance (McNemar): short answers are shown by accident too."""
    return told - crossed > max(least, CERTAIN * math.sqrt(told + crossed))


async def _shown_at_first(bench: Bench, limit: float) -> None:
    probes = [*bench.probes, *bench.floor_probes]
    found = [name for name, rate in _reading_rates(probes).items() if rate > limit]
    if found:
        confirmed = _reading_rates(await bench.fresh())
        for name in found:
            if above_limit(confirmed.get(name, 0.0), limit, CONFIRM_SEEDS):
                raise Refused("answer_in_observation", f"The answer is the {name} of the first observation.")
    for probe in bench.probes[:CONTEXT_PROBES]:
        learnt = context_readers(probe.observation, probe.answer)
        for reader in learnt + character_readers(probe.observation, probe.answer):
            if _reads(probes, reader) <= limit:
                continue
            if above_limit(_reads(await bench.fresh(), reader), limit, CONFIRM_SEEDS):
                text = "The answer stands beside the same words in every first observation."
                raise Refused("answer_in_observation", text)


def _reading_rates(probes: list[Probe]) -> dict[str, float]:
    return reading_rates([p.observation for p in probes], [p.answer for p in probes])


def _reads(probes: list[Probe], reader: Callable[[str], str]) -> float:
    return match_rate(probes, lambda text, answer: plain(reader(text)) == plain(answer))


def _listed_rate(probes: list[Probe]) -> float:
    """How often the winning actions of a seed stand in a row in its first observation."""
    return match_rate(probes, lambda text, plan: len(words(plan)) >= MIN_LIST_WORDS and shows(text, plan))


# --- the answer in feedback ----------------------------------------------------------------------------


async def _told_in_feedback(bench: Bench, probes: Sequence[Probe]) -> tuple[int, int]:
    """On how many seeds feedback to wrong actions shows the right answer, and another seed's answer.

    Wrong actions are winning ones of other seeds, so that they are of the right form; then nonsense, and
    words that programs treat specially. Where nonsense is taken for the number 0, a distance from it is the
    answer by arithmetic, and finding that out is skill: only what "0" itself is not told counts.
    """
    half = len(bench.floor_probes) // 2
    wrong, control = bench.floor_probes[:half], bench.floor_probes[half:]
    zero, nonsense = [bench.act(wrap_action("0"))], _nonsense(bench)
    turns = bench.floor_turns
    plays = []
    for probe in probes:
        others = [a for w in wrong if w.answer != probe.answer for a in w.actions]
        plays.append(Op.play(0, probe.seed, others or [bench.garbage], turns=turns))
        plays += [Op.play(0, probe.seed, a, turns=min(turns, max(3, len(a)))) for a in (zero, nonsense)]
    traces = await bench.ask(plays, PlayTrace)
    told = crossed = 0
    for k, probe in enumerate(probes):
        mine = traces[3 * k : 3 * k + 3]
        told += _any_tells(probe, probe.answer, mine)
        crossed += _any_tells(probe, control[k % len(control)].answer, mine)
    return told, crossed


async def _told_on_a_word(bench: Bench, share: float) -> None:
    """No word of the source, said as an action, is answered with the answer."""
    known = [w for w in (*bench.code_words, *literal_words(bench.tree)) if not _NUMERIC.fullmatch(w)]
    actions = [bench.act(wrap_action(w)) for w in dict.fromkeys(known)]
    size = max(1, bench.floor_turns - 1)  # what the last turn shows comes too late
    parts = [actions[i : i + size] for i in range(0, len(actions), size)]
    first = bench.probes[0]
    told = await _told_after(bench, [(first, part, first.answer) for part in parts])
    for part, tells in zip(parts, told, strict=True):
        if not tells:
            continue
        rows = [(p, part, p.answer) for p in bench.probes]
        rows += [(p, part, o.answer) for p, o in zip(bench.probes, bench.floor_probes, strict=False)]
        every = await _told_after(bench, rows)
        half = len(bench.probes)
        if _certain(sum(every[:half]), sum(every[half:]), share * half):
            raise Refused(
                "answer_in_feedback", "A word of the source, said as an action, is told the answer."
            )


async def _told_after(bench: Bench, rows: Sequence[tuple[Probe, Sequence[str], str]]) -> list[bool]:
    """For (seed, actions, answer): whether the actions are told the answer, and not what 0 is told too."""
    seeds = list(dict.fromkeys(p.seed for p, _, _ in rows))
    plays = [Op.play(0, s, [bench.act(wrap_action("0"))]) for s in seeds]
    traces = await bench.ask([*plays, *(Op.play(0, p.seed, a) for p, a, _ in rows)], PlayTrace)
    zero = dict(zip(seeds, traces, strict=False))
    return [
        _tells(probe, answer, trace, zero[probe.seed])
        for (probe, _, answer), trace in zip(rows, traces[len(seeds) :], strict=True)
    ]


def _nonsense(bench: Bench) -> list[str]:
    """Malformed actions, and those special words that the code knows."""
    known = [c for c in COMMANDS if c.split()[0] in bench.letters]
    return ["", "plain text", *(bench.act(wrap_action(c)) for c in ("", GARBAGE, *known))]


def _any_tells(probe: Probe, answer: str, traces: Sequence[PlayTrace]) -> bool:
    """Whether episodes show the answer: of actions of the right form, of the action 0, of others."""
    plain, zero, *others = traces
    return _tells(probe, answer, plain) or any(_tells(probe, answer, t, zero) for t in (zero, *others))


def _tells(probe: Probe, answer: str, trace: PlayTrace, zero: PlayTrace | None = None) -> bool:
    """Whether an episode shows the answer; texts that the action 0 is told too are excused."""
    if isinstance(probe.solution, list) and len(words(answer)) < MIN_LIST_WORDS:
        return False
    excused = set(zero.observations[1:]) if zero is not None and _NUMERIC.fullmatch(answer) else set()
    return _told(probe.observation, answer, trace, excused)


def _told(first: str, answer: str, trace: PlayTrace, excused: set[str] | None = None) -> bool:
    """Whether feedback before the last turn shows an answer that the first observation did not show."""
    going_on = trace.observations[1:-1] if trace.ended else trace.observations[1:]
    news = [text for text in going_on if text not in (excused or ())]
    return any(reveals(text, answer) for text in dict.fromkeys(news)) and not reveals(first, answer)


# --- enough to find it ---------------------------------------------------------------------------------


async def information(bench: Bench) -> None:
    """What is seen depends on the task: seeds with different answers can be told apart before the end.

    Several scripts are played on every seed; only observations and rewards before an episode's last step
    count, so that finding the answer by accident is no information.
    """
    await bench.perform()
    if bench.game_type == "tool_use":
        return
    await _changes(bench)
    if len({p.observation for p in bench.probes}) == len(bench.probes):
        return
    apart = await _told_apart(bench, [*(p.actions for p in bench.probes), [bench.garbage]])
    blind = [pair for pair in _pairs(bench.probes) if pair not in apart]
    if len(blind) * 2 > len(_pairs(bench.probes)):  # perhaps a command tells that no solution needs
        actions = [bench.act(wrap_action(c)) for c in guessed_commands(bench.tree)]
        size = max(1, bench.floor_turns - 1)  # what the last turn shows comes too late
        apart |= await _told_apart(bench, [actions[i : i + size] for i in range(0, len(actions), size)])
        blind = [pair for pair in blind if pair not in apart]
    if len(blind) * 2 > len(_pairs(bench.probes)):
        text = f"{len(blind)} pairs of seeds have different answers, but nothing that is seen differs."
        raise Refused("no_information", text)


def _pairs(probes: Sequence[Probe]) -> list[tuple[int, int]]:
    """Pairs of probes with different winning actions."""
    count = range(len(probes))
    return [(a, b) for a in count for b in range(a) if probes[a].actions != probes[b].actions]


async def _told_apart(bench: Bench, scripts: Sequence[Sequence[str]]) -> set[tuple[int, int]]:
    """Pairs of probes that one of the scripts tells apart."""
    turns = bench.floor_turns
    plays = [Op.play(0, p.seed, s, turns=min(turns, max(2, len(s)))) for s in scripts for p in bench.probes]
    traces = await bench.ask(plays, PlayTrace)
    count = len(bench.probes)
    rows = [traces[i * count : (i + 1) * count] for i in range(len(scripts))]
    return {(a, b) for a, b in _pairs(bench.probes) if any(_differ(row[a], row[b]) for row in rows)}


async def _changes(bench: Bench) -> None:
    """In a game of several turns, some action changes what is seen."""
    seen = {text for t in (*bench.oracle, *bench.idle) for text in t.observations[1:]}
    if bench.floor_turns > 1 and bench.game_type == "multi_turn" and len(seen) == 1:
        firsts = {t.observations[0] for t in bench.oracle}
        if seen == firsts or any(len(t.rewards) > 1 for t in bench.oracle):
            raise Refused("constant_observation", "Whatever is done, the observation is the same text.")


def _differ(a: PlayTrace, b: PlayTrace) -> bool:
    """Whether two episodes of one script can be told apart before either of them is won."""
    if a.observations[0] != b.observations[0]:
        return True
    shorter, longer = sorted((a, b), key=lambda t: len(t.rewards))
    if shorter.ended and shorter.value == 0.0 and len(longer.rewards) > len(shorter.rewards):
        return True  # lost in one, still going on in the other
    kept = min(len(t.rewards) - t.ended for t in (a, b))
    return (
        a.observations[1 : kept + 1] != b.observations[1 : kept + 1] or a.rewards[:kept] != b.rewards[:kept]
    )
