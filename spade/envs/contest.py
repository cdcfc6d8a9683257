"""Policies without skill on the bench: their mean returns, screened on few episodes, decided on many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from spade.envs.contract import bare
from spade.envs.floors import CLOSED_LOOP, Policy
from spade.envs.samples import CLEARED_SEEDS, CONFIRM_SEEDS, FLOOR_SEEDS, Probe, above_limit
from spade.envs.wire import Op, StepResult

if TYPE_CHECKING:
    from spade.envs.bench import Bench


async def exceeding(
    bench: Bench, policies: dict[str, Policy], limit: float, seeds: int = FLOOR_SEEDS
) -> tuple[str, float] | None:
    """First policy whose return is above the limit, with that return; None if all stay under.

    Screened on `seeds` episodes; one that exceeds the limit there is decided on up to `CONFIRM_SEEDS`
    fresh ones. Updates the fact `floor_return` with the best screened or confirmed mean.
    """
    means = await _means(bench, policies, bench.floor_probes[:seeds])
    for name, mean in means.items():
        decided = mean
        if mean > limit:
            policy = {name: policies[name]}
            fresh = await bench.fresh_views()
            decided = (await _means(bench, policy, fresh[:CLEARED_SEEDS]))[name]
            if decided > limit:
                decided = (await _means(bench, policy, fresh))[name]
                if above_limit(decided, limit, CONFIRM_SEEDS):
                    return name, decided
        bench.facts["floor_return"] = max(bench.facts.get("floor_return", 0.0), decided)
    return None


async def _means(bench: Bench, policies: dict[str, Policy], probes: Sequence[Probe]) -> dict[str, float]:
    """Mean return of each policy; equal plays, of whatever policy or stage, are played once."""
    views = [bench.view(p) for p in probes]
    rows = {
        name: [(v.seed, tuple(bench.act(a) for a in policy(v)[: v.turns])) for v in views]
        for name, policy in policies.items()
    }
    value = bench.returns
    plays = [p for p in dict.fromkeys(play for row in rows.values() for play in row) if p not in value]
    traces = await bench.play_all(plays, bench.floor_turns)
    value |= {play: trace.value for play, trace in zip(plays, traces, strict=True)}
    return {name: sum(value[play] for play in row) / len(row) for name, row in rows.items()}


async def reactive(bench: Bench, names: Sequence[str], probes: Sequence[Probe]) -> dict[str, float]:
    """Mean returns of closed-loop policies, all their episodes in lockstep."""
    vocabulary = [bare(a) for a in bench.answers_of_others]
    policies = {name: CLOSED_LOOP[name](vocabulary) for name in names}
    live = {
        1000 + j * len(probes) + k: (name, probe.observation)
        for j, name in enumerate(names)
        for k, probe in enumerate(probes)
    }
    starts = [Op.reset(i, probes[(i - 1000) % len(probes)].seed) for i in live]
    won = dict.fromkeys(names, 0.0)
    for turn in range(bench.floor_turns):
        moves = [Op.step(i, policies[name](text)) for i, (name, text) in live.items()]
        steps = (await bench.ask([*starts, *moves] if turn == 0 else moves, object))[-len(moves) :]
        after: dict[int, tuple[str, str]] = {}
        for (i, (name, text)), step in zip(live.items(), cast("list[StepResult]", steps), strict=True):
            won[name] += step.reward if step.terminated else 0.0
            # A policy of the latest observation alone goes on as before where that does not change.
            if not (step.terminated or step.truncated) and step.observation != text:
                after[i] = (name, step.observation)
        live = after
        if not live:
            break
    return {name: total / len(probes) for name, total in won.items()}
