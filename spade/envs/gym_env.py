"""Environment programs as gymnasium environments: `gymnasium.make("spade/Program-v0", path="my_game.py")`.

Observations and actions are Unicode text. The program runs in the sandbox like any other; environments with
equal sandbox settings share one. Importing `spade` registers the id (`spade._gymnasium`).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import error, logger

from spade.config import SandboxConfig
from spade.envs.blocking import BlockingSandbox, give_back, lease
from spade.envs.contract import MAX_OBSERVATION_BYTES, solution_actions, wrap_action
from spade.envs.process import raise_fault
from spade.envs.reading import as_program
from spade.envs.sandbox import Worker
from spade.envs.wire import Op
from spade.errors import FaultCode, InputError, ProgramFault, SandboxError, SpadeError
from spade.types import EnvProgram

ACTION_CHARS = 20_000
"""Longest action: its JSON fits one frame to the worker whatever the characters are."""
_PLANES = ((0x20, 0x7F), (0xA0, 0x2000), (0x2000, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000))
"""Ranges of code points that `UnicodeText.sample` draws from; all but the surrogates, ASCII more often."""


class ProgramBroke(SpadeError):
    """The program failed during an episode, which therefore has no reward. `fault` is what happened."""

    def __init__(self, message: str, fault: ProgramFault) -> None:
        super().__init__(message)
        self.fault = fault

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.fault)  # it crosses processes in a vector of environments


class UnicodeText(gymnasium.Space[str]):  # type: ignore[misc]
    """Every text of at most `max_length` characters: any Unicode, the empty text included.

    Lone surrogates are no characters, so a string with one is outside. `gymnasium.spaces.Text` would list an
    alphabet, which for text written by programs and models would be a lie.
    """

    def __init__(self, max_length: int, seed: int | np.random.Generator | None = None) -> None:
        if max_length < 0:
            raise ValueError(f"max_length is {max_length}; it cannot be negative")
        self.max_length = int(max_length)
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text of any alphabet has no flat array form."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """A text of random length (short ones are likelier) from all planes of Unicode."""
        if mask is not None or probability is not None:
            raise ValueError("UnicodeText can be sampled neither with a mask nor with probabilities")
        rng = self.np_random
        size = int((self.max_length + 1) ** rng.random() - 1)
        rows = rng.choice(len(_PLANES), size=size, p=(0.6, 0.1, 0.1, 0.1, 0.1))
        bounds = np.asarray(_PLANES)[rows]
        points = rng.integers(bounds[:, 0], bounds[:, 1]) if size else []
        return "".join(map(chr, points))

    def contains(self, x: Any) -> bool:
        """Whether `x` is a str of at most `max_length` characters without lone surrogates."""
        if not isinstance(x, str) or len(x) > self.max_length:
            return False
        return x.isascii() or not any("\ud800" <= c <= "\udfff" for c in x)

    def to_jsonable(self, sample_n: Iterable[str]) -> list[str]:
        """Texts are JSON already."""
        return [str(text) for text in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        """Back from JSON. Raises ValueError for what is not in the space."""
        if bad := [text for text in sample_n if not self.contains(text)]:
            raise ValueError(f"{bad[0]!r:.80} is not a text of {self!r}")
        return list(sample_n)

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and self.max_length == other.max_length


class ProgramEnv(gymnasium.Env[str, str]):  # type: ignore[misc]
    """One environment program. `path` names its file (or is its text or record).

    An episode ends with the program, after its own turn limit, or after `max_turns` if that is less. As
    everywhere in SPADE only the reward of a step that terminates counts; what the program paid on the way is
    `info["paid"]`. The one turn of a program with a single turn always terminates: there is no limit that cut
    anything short. An action is put into a box unless it has one; tool-use programs get it as it is, and with
    `exact` all do.

    `sandbox` is a `SandboxConfig`, or a running `BlockingSandbox` that stays open. Raises InputError for an
    unusable file, ProgramBroke if the program does not load, SandboxError if nothing can be run.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  (gymnasium's own declaration)

    def __init__(
        self,
        path: EnvProgram | Path | str,
        max_turns: int | None = None,
        *,
        sandbox: SandboxConfig | BlockingSandbox | None = None,
        render_mode: str | None = None,
        exact: bool = False,
    ) -> None:
        if max_turns is not None and max_turns < 1:
            raise InputError(f"max_turns is {max_turns}; give a positive number or leave it out.")
        if render_mode not in (None, "ansi"):
            raise InputError(f"render_mode is {render_mode!r}; use 'ansi' or leave it out.")
        self.program = as_program(path)
        self.render_mode = render_mode
        self.observation_space = UnicodeText(MAX_OBSERVATION_BYTES)
        self.action_space = UnicodeText(ACTION_CHARS)
        self._name = self.program.source or "the program"
        self._asked_turns, self._exact = max_turns, exact
        self._turn: int | None = None
        self._transcript: list[str] = []
        self._worker: Worker | None = None
        self._box = sandbox if isinstance(sandbox, BlockingSandbox) else lease(sandbox or SandboxConfig())
        shared = not isinstance(sandbox, BlockingSandbox)
        self._release = weakref.finalize(self, give_back if shared else _nothing, self._box)
        # Not at exit, when threads can be asked no more: the end of this process ends its zygotes as well.
        self._release.atexit = False
        try:
            self._info = self._open().info
        except BaseException:
            self.close()
            raise

    # --- gymnasium -------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """First observation. `seed` is the program's seed; without one it is drawn from `np_random`.

        There are no options. Raises ProgramBroke or SandboxError.
        """
        super().reset(seed=seed)
        if options:
            raise InputError(f"reset has no option {next(iter(options))!r}; leave options out.")
        chosen = int(self.np_random.integers(2**31)) if seed is None else seed
        worker = self._open()
        ops = [Op.drop(0), Op.reset(0, chosen), Op.tools(0)]
        _, observation, tools = self._ask(worker, ops, "reset")
        self._turn, self._transcript = 0, [observation]
        game_type, turns = self._info.game_type, self.max_turns
        return observation, {"seed": chosen, "game_type": game_type, "max_turns": turns, "tools": tools}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """One turn. Raises InvalidAction, ResetNeeded outside an episode, ProgramBroke or SandboxError."""
        if self._turn is None:
            raise error.ResetNeeded("There is no episode to step in; call reset first.")
        if not self.action_space.contains(action):
            raise error.InvalidAction(f"An action is a str in {self.action_space!r}, not {action!r:.80}.")
        as_it_is = self._exact or self._info.game_type == "tool_use"
        text = str(action) if as_it_is else wrap_action(str(action))
        assert self._worker is not None
        (result,) = self._ask(self._worker, [Op.step(0, text)], f"step {self._turn + 1}")
        turn = self._turn + 1
        terminated = result.terminated or (result.truncated and self._info.turns == 1)
        truncated = not terminated and (result.truncated or turn >= self.max_turns)
        reward = float(result.reward) if result.terminated else 0.0
        self._turn = None if terminated or truncated else turn
        self._transcript += [f"> {action}", result.observation]
        return result.observation, reward, terminated, truncated, {"turn": turn, "paid": result.reward}

    def render(self) -> str | None:
        """The episode so far as text: observations, and actions after `> `."""
        if self.render_mode is None:
            logger.warn("There is no render mode; make the environment with render_mode='ansi'.")
            return None
        return "\n".join(self._transcript)

    def close(self) -> None:
        """End the program's process, and the sandbox with its last environment. May be called again."""
        worker, self._worker, self._turn = self._worker, None, None
        if worker is not None and self._box.usable:
            self._box.run(worker.close())
        self._release()

    # --- beyond gymnasium ------------------------------------------------------------------------------

    @property
    def max_turns(self) -> int:
        """Turns an episode can take."""
        return min(self._info.turns, self._asked_turns or self._info.turns)

    def solution(self) -> list[str]:
        """The program's own winning actions for the present episode. Raises InputError if it has none."""
        if not self._info.has_solution:
            raise InputError(f"{self._name} has no method `solution`.")
        if self._turn is None or self._worker is None:
            raise error.ResetNeeded("A solution belongs to an episode; call reset first.")
        (found,) = self._ask(self._worker, [Op.solution(0)], "solution")
        return solution_actions(cast("str | list[str]", found), self._info.game_type)

    def _open(self) -> Worker:
        """The worker; a new one in place of one that ended."""
        if self._worker is None or self._worker.ended is not None:
            if not self._release.alive:
                raise error.ClosedEnvironmentError("This environment is closed; make a new one.")
            try:
                self._worker = self._box.open(self.program.code)
            except ProgramFault as fault:
                raise self._failure(fault, "loading") from fault
        return self._worker

    def _ask(self, worker: Worker, ops: list[Any], where: str) -> list[Any]:
        try:
            return [raise_fault(answer) for answer in self._box.run(worker.batch(ops))]
        except ProgramFault as fault:
            self._turn = None
            raise self._failure(fault, where) from fault

    def _failure(self, fault: ProgramFault, where: str) -> SpadeError:
        if fault.code is FaultCode.LOST:
            return SandboxError(f"The sandbox lost {self._name} in {where} ({fault.detail}); reset to go on.")
        return ProgramBroke(f"{self._name} broke in {where} ({fault}); the episode has no reward.", fault)


def _nothing(box: BlockingSandbox) -> None:
    """Given a sandbox of somebody else's: leave it open."""
