"""Many episodes at once: one state machine, two drivers, one fault policy.

* *lockstep* (`policy.lockstep`): episodes advance turn by turn in the order given, in chunks that play to the
  end before the next chunk starts, so the rows of every forward pass depend on the instances only.
* *free running*: one coroutine an episode; the engine batches what arrives.

A program that breaks ends its own episodes with a fault charged to the program; a worker lost for other
reasons, a cancelled completion, or a reply that a free-running engine failed to give, is an infrastructure
fault. Neither ever becomes a return. An engine that fails every episode is broken: then its error is raised.

At the deadline (`play.seconds`) the episodes that have not ended become infrastructure faults; whatever they
wait for, those that have ended are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from spade.config import PlayConfig
from spade.deadlines import in_time
from spade.design.prompts import choose_template
from spade.errors import BackendError, FaultKind
from spade.play.episode import EpisodeState, Rules
from spade.play.seats import Seat, seat_all
from spade.serving.policy import Completion, Policy, SamplingParams
from spade.types import EnvProgram, Episode, Fault, Instance

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.chat import ChatPolicy

IN_FLIGHT = 128
"""Episodes of the free-running driver that are alive at once."""

OnDone = Callable[[int, int], None]
"""Called with (finished, total) after each episode."""


async def play(
    instances: Sequence[Instance],
    programs: Mapping[str, EnvProgram],
    chat: ChatPolicy,
    sandbox: Sandbox,
    limits: PlayConfig,
    *,
    seed: int,
    template: str = "auto",
    on_done: OnDone | None = None,
    shared_workers: bool = True,
    blank: bool = False,
) -> list[Episode]:
    """Play every instance once; the result has their order.

    `shared_workers` puts all instances of a program into one worker, which is kept for it from chunk to
    chunk: only for validated programs, whose instances are known not to touch each other. `blank` hides every
    observation from the player (hint-only play: what the hint gives away by itself). Raises BackendError when
    the engine fails; faults of programs and workers, and missed deadlines, are values in the episodes.
    """
    policy = chat.policy
    style = choose_template(template, policy.context_length)
    rules = Rules(limits, policy.context_length, seed, style, blank)
    states = [EpisodeState(i, programs[i.program_id], chat.renderer, rules) for i in instances]
    done = _Counter(len(states), on_done)
    drive = _in_chunks if policy.lockstep else _free_running
    await in_time(drive(states, policy, sandbox, shared_workers, done), limits.seconds, "play.seconds")
    for state in states:
        if not state.done:
            late = f"the episode had not ended within play.seconds ({limits.seconds:g} s)"
            state.fail(Fault(FaultKind.INFRASTRUCTURE, "deadline", late))
    return [state.episode() for state in states]


async def _in_chunks(
    states: Sequence[EpisodeState], policy: Policy, sandbox: Sandbox, shared: bool, done: _Counter
) -> None:
    """Play chunk after chunk in lockstep; workers that a later chunk needs are kept."""
    rows = policy.max_rows if shared else min(policy.max_rows, sandbox.cfg.max_workers)
    chunks = list(_chunks(states, rows, sandbox.cfg.max_workers))
    last = {state.program.id: n for n, chunk in enumerate(chunks) for state in chunk}
    for n, chunk in enumerate(chunks):
        again = {program for program, end in last.items() if end > n} if shared else set()
        await _lockstep(chunk, policy, sandbox, shared, done, again)


class _Counter:
    """Reports finished episodes."""

    def __init__(self, total: int, on_done: OnDone | None) -> None:
        self.total, self.count, self.on_done = total, 0, on_done

    def add(self, n: int = 1) -> None:
        self.count += n
        if self.on_done is not None and n:
            self.on_done(self.count, self.total)


def _chunks(states: Sequence[EpisodeState], rows: int, workers: int) -> Iterator[list[EpisodeState]]:
    """Consecutive states, at most `rows` of them and at most `workers` different programs."""
    chunk: list[EpisodeState] = []
    programs: set[str] = set()
    for state in states:
        full = len(chunk) >= rows or (len(programs) >= workers and state.program.id not in programs)
        if chunk and full:
            yield chunk
            chunk, programs = [], set()
        chunk.append(state)
        programs.add(state.program.id)
    if chunk:
        yield chunk


async def _lockstep(
    chunk: Sequence[EpisodeState],
    policy: Policy,
    sandbox: Sandbox,
    shared: bool,
    done: _Counter,
    again: Collection[str],
) -> None:
    """Play one chunk to the end, all live episodes one turn at a time; keep the workers of `again`."""
    seats, place = seat_all(chunk, shared)
    try:
        await asyncio.gather(*(seat.open(sandbox, shared) for seat in seats))
        await asyncio.gather(*(seat.begin() for seat in seats))
        if getattr(policy, "privileged", False):
            await asyncio.gather(*(seat.ask_solutions() for seat in seats))
        live = [state for state in chunk if not state.done]
        done.add(len(chunk) - len(live))
        while live:
            await _one_turn(live, policy, place)
            rest = [state for state in live if not state.done]
            done.add(len(live) - len(rest))
            live = rest
        await asyncio.gather(*(seat.keep(sandbox) for seat in seats if seat.program.id in again))
    finally:
        await asyncio.gather(*(seat.close() for seat in seats))


async def _one_turn(
    live: Sequence[EpisodeState], policy: Policy, place: Mapping[int, tuple[Seat, int]]
) -> None:
    """Generate one reply for every live episode, then step all programs."""
    asked = [(state, request) for state in live if (request := state.request()) is not None]
    if not asked:
        return
    if getattr(policy, "privileged", False):
        answers = [await _ask_oracle(policy, state, *request) for state, request in asked]
    else:
        prompts = [prompt for _, (prompt, _) in asked]
        answers = await policy.generate(prompts, [params for _, (_, params) in asked])
    moves: dict[int, tuple[Seat, dict[int, str]]] = {}
    for (state, _), completions in zip(asked, answers, strict=True):
        action = state.reply(completions[0])
        if action is not None:
            seat, number = place[id(state)]
            moves.setdefault(id(seat), (seat, {}))[1][number] = action
    await asyncio.gather(*(seat.step(actions) for seat, actions in moves.values()))


async def _ask_oracle(
    policy: Policy, state: EpisodeState, prompt: list[int], params: SamplingParams
) -> list[Completion]:
    """Told just before it is asked, since episodes of different seeds may open with the same words."""
    policy.tell(state.prompt_ids, state.solution, state.instance)  # type: ignore[attr-defined]
    return (await policy.generate([prompt], params))[0]


async def _free_running(
    states: Sequence[EpisodeState], policy: Policy, sandbox: Sandbox, shared: bool, done: _Counter
) -> None:
    """Play all episodes concurrently, `IN_FLIGHT` at a time; a worker lives as long as its episodes."""
    gate = asyncio.Semaphore(IN_FLIGHT)
    rooms = asyncio.Semaphore(sandbox.cfg.max_workers)
    seats, place = seat_all(states, shared)
    lost: list[BackendError] = []

    async def seat_life(seat: Seat) -> None:
        async with rooms:
            try:
                await seat.open(sandbox, shared)
                await seat.begin()
                if getattr(policy, "privileged", False):
                    await seat.ask_solutions()
                await asyncio.gather(*(episode(state) for state in seat.states))
            finally:
                await seat.close()

    async def episode(state: EpisodeState) -> None:
        async with gate:
            while not state.done:
                try:
                    await _one_turn([state], policy, place)
                except BackendError as error:
                    lost.append(error)
                    state.fail(Fault(FaultKind.INFRASTRUCTURE, "generate", str(error)))
        done.add()

    tasks: list[Awaitable[None]] = [seat_life(seat) for seat in seats]
    await asyncio.gather(*tasks)
    if lost and len(lost) == len(states):
        raise lost[0]
