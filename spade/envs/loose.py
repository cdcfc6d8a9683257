"""Instructions of tool-use programs that any call of the right tool fulfils, whatever it says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

from spade.envs.bench import Bench, Probe
from spade.envs.calls import call_text, other_arguments
from spade.envs.forms import shows
from spade.envs.screen import Refused
from spade.envs.tools import read_turn
from spade.envs.wire import Criteria, Op, Request, StepResult

MOVES = (7, -7)
"""By how much numbers are changed: "at least 5" is fulfilled by 12, and not by -2."""


def calls_of(action: str) -> list[tuple[str, Any]]:
    """Names and arguments of an action's calls. Raises Refused("solution_call") for malformed ones."""
    found = []
    for text in read_turn(action).calls:
        try:
            call = json.loads(text)
            name, arguments = call["name"], call["arguments"]
        except (ValueError, KeyError, TypeError, RecursionError):
            name = arguments = None
        if not isinstance(name, str):
            raise Refused("solution_call", f"`solution` makes a malformed call: {text[:60]!r}.")
        found.append((name, arguments))
    return found


async def loose_instructions(bench: Bench, probe: Probe, states: Sequence[Criteria]) -> set[int]:
    """Numbers (from 0) of the instructions that the solution's call fulfils with other arguments too.

    `states` are the criteria before and after each action of the solution. Only instructions count that name
    an argument of the call: what a free text says may well not matter.
    """
    tried = [t for t in _fulfilling(probe, states) if t[2]]
    if not tried:
        return set()
    tools = cast("list[dict[str, Any]]", (await bench.ask([Op.reset(0, probe.seed), Op.tools(0)], object))[1])
    table = {t["function"]["name"]: t["function"]["parameters"] for t in tools}
    found = set()
    for turn, name, arguments in tried:
        number = states[turn].current
        others = [other_arguments(table[name], arguments, by) for by in MOVES]
        ops: list[Request] = []
        for changed in others:
            ops.append(Op.reset(0, probe.seed))
            ops += [Op.step(0, a) for a in (*probe.actions[:turn], call_text(name, changed))]
            ops.append(Op.criteria(0))
        answers = await bench.ask(ops, object)
        texts = [cast(str, answers[0]), *(cast(StepResult, s).observation for s in answers[1 : turn + 1])]
        named = any(shows(" ".join(texts), str(v)) for v in arguments.values() if not isinstance(v, bool))
        half = len(answers) // 2
        ends = (cast(Criteria, answers[half - 1]), cast(Criteria, answers[-1]))
        if named and arguments not in others and all(end.current > number for end in ends):
            found.add(number)
    return found


def _fulfilling(probe: Probe, states: Sequence[Criteria]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Turns of the solution that make one call and fulfil one instruction, with that call."""
    for turn, (before, after) in enumerate(pairwise(states)):
        calls = calls_of(probe.actions[turn])
        if after.current == before.current + 1 and len(calls) == 1:
            yield turn, *calls[0]
