"""Episodes and the worker they are played in: what a program is asked, and who is to blame when it breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spade.envs.contract import solution_actions
from spade.envs.wire import Op, Request
from spade.errors import FaultCode, FaultKind, ProgramFault
from spade.play.episode import EpisodeState
from spade.types import EnvProgram

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox, Worker


class Seat:
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


def seat_all(states: Sequence[EpisodeState], shared: bool) -> tuple[list[Seat], dict[int, tuple[Seat, int]]]:
    """Workers for a chunk, and for each state (by `id`) its worker and number there."""
    seats: list[Seat] = []
    by_program: dict[str, Seat] = {}
    place: dict[int, tuple[Seat, int]] = {}
    for state in states:
        seat = by_program.get(state.program.id) if shared else None
        if seat is None:
            seat = by_program[state.program.id] = Seat(state.program)
            seats.append(seat)
        place[id(state)] = (seat, len(seat.states))
        seat.states.append(state)
    return seats, place
