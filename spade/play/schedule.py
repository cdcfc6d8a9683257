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
from typing import TYPE_CHECKING, Any

from spade.config import PlayConfig
from spade.deadlines import in_time
from spade.design.prompts import choose_template
from spade.envs.contract import solution_actions
from spade.envs.wire import Op, Request
from spade.errors import BackendError, FaultCode, FaultKind, ProgramFault
from spade.play.episode import EpisodeState, Rules
from spade.serving.policy import Completion, Policy, SamplingParams
from spade.types import EnvProgram, Episode, Fault, Instance

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox, Worker
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


class _Seat:
    """One worker and the episodes in it, numbered; remembers a kill, the cause of later losses."""

    def __init__(self, program: EnvProgram) -> None:
        self.program = program
        self.uses_tools = program.game_type == "tool_use"
        self.worker: Worker | None = None
        self.states: list[EpisodeState] = []
        self.broken: ProgramFault | None = None

    def fault(self, error: ProgramFault) -> ProgramFault:
        """The fault to report: once the program has brought its worker down, the rest follows from that."""
        if error.kind is FaultKind.PROGRAM:
            self.broken = self.broken or error
            return error
        return self.broken or error

    async def open(self, sandbox: Sandbox, shared: bool) -> None:
        """Start the worker, or take the one kept; on failure every episode here ends with a fault."""
        try:
            self.worker = await (sandbox.borrow if shared else sandbox.open)(self.program.code)
        except ProgramFault as error:
            for state in self.states:
                state.fail_program("open", self.fault(error))

    async def begin(self) -> None:
        """Reset every episode."""
        if self.worker is None:
            return
        calls = [Op.reset(i, state.instance.seed) for i, state in enumerate(self.states)]
        if self.uses_tools:
            calls += [Op.tools(i) for i in range(len(self.states))]
        answers = await self._run(calls)
        tools = answers[len(self.states) :] or [[]] * len(self.states)
        for state, value, schemas in zip(self.states, answers[: len(self.states)], tools, strict=True):
            if isinstance(value, ProgramFault):
                state.fail_program("reset", self.fault(value))
            elif isinstance(schemas, ProgramFault):
                state.fail_program("tools", self.fault(schemas))
            else:
                state.begin(value, schemas)

    async def ask_solutions(self) -> None:
        """Note the reference solution of each fresh episode, for a privileged scripted policy."""
        for i, state in enumerate(self.states):
            if state.done or self.worker is None:
                continue
            try:
                solution = await self.worker.solution(i)
            except ProgramFault as error:
                state.fail_program("solution", self.fault(error))
                continue
            state.solution = solution_actions(solution, state.program.game_type)

    async def step(self, actions: Mapping[int, str]) -> None:
        """Hand actions (by episode number) to the program; for tool use the results of calls come along."""
        calls = [Op.step(i, action) for i, action in actions.items()]
        if self.uses_tools:
            calls += [Op.results(i) for i in actions]
        answers = await self._run(calls)
        results = answers[len(actions) :] or [[]] * len(actions)
        for i, value, texts in zip(actions, answers[: len(actions)], results, strict=True):
            broken = next((v for v in (value, texts) if isinstance(v, ProgramFault)), None)
            if broken is not None:
                self.states[i].fail_program("step", self.fault(broken))
            else:
                self.states[i].observe(value, texts)

    async def close(self) -> None:
        """Stop the worker."""
        if self.worker is not None:
            await self.worker.close()
            self.worker = None

    async def keep(self, sandbox: Sandbox) -> None:
        """Leave the worker, without the instances of these episodes, to the program's next ones."""
        worker, self.worker = self.worker, None
        if worker is not None:
            await worker.batch([Op.drop(i) for i in range(len(self.states))])
            await sandbox.give_back(worker)

    async def _run(self, calls: Sequence[Request]) -> list[Any]:
        """Many calls into one worker in one message; each result is a value or a ProgramFault."""
        if self.worker is None:
            return [self.broken or ProgramFault(FaultCode.LOST, "the worker is gone") for _ in calls]
        return list(await self.worker.batch(calls))


async def _lockstep(
    chunk: Sequence[EpisodeState],
    policy: Policy,
    sandbox: Sandbox,
    shared: bool,
    done: _Counter,
    again: Collection[str],
) -> None:
    """Play one chunk to the end, all live episodes one turn at a time; keep the workers of `again`."""
    seats, place = _seat(chunk, shared)
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


def _seat(states: Sequence[EpisodeState], shared: bool) -> tuple[list[_Seat], dict[int, tuple[_Seat, int]]]:
    """Workers for a chunk, and for each state (by `id`) its worker and number there."""
    seats: list[_Seat] = []
    by_program: dict[str, _Seat] = {}
    place: dict[int, tuple[_Seat, int]] = {}
    for state in states:
        seat = by_program.get(state.program.id) if shared else None
        if seat is None:
            seat = by_program[state.program.id] = _Seat(state.program)
            seats.append(seat)
        place[id(state)] = (seat, len(seat.states))
        seat.states.append(state)
    return seats, place


async def _one_turn(
    live: Sequence[EpisodeState], policy: Policy, place: Mapping[int, tuple[_Seat, int]]
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
    moves: dict[int, tuple[_Seat, dict[int, str]]] = {}
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
    seats, place = _seat(states, shared)
    lost: list[BackendError] = []

    async def seat_life(seat: _Seat) -> None:
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
