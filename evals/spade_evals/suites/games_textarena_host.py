"""Hosts TextArena in a process of its own (`spade_evals.hosting`): the library seeds the global generators.

Every instance keeps the states of the global generators to itself: they are put in place before each call and
taken away after it, so that games played side by side do not disturb each other. Nothing is fetched: a game
that wants the network fails.

    {"op": "reset", "instance": 1, "game": ..., "turns": 25, "seed": 0}  ─►  {"text": ...}
    {"op": "step", "instance": 1, "action": ...}                         ─►  {"text", "reward", "done"}
    {"op": "drop", "instance": 1}                                        ─►  {}
"""

from __future__ import annotations

import contextlib
import math
import random
import socket
import sys
from collections.abc import Iterator
from typing import Any

from spade_evals.hosting.serve import Answer, serve

MEMORY = 4 << 30
"""Address space of this process in bytes."""

ADMIN = "GAME_ADMIN"
"""Kind of TextArena's messages about moves that it refused."""


class Instance:
    """One game and its generators."""

    def __init__(self, game: str, turns: int, seed: int) -> None:
        import textarena

        self.generators: tuple[Any, ...] = _generators_of(seed)
        with self._alone():
            self.env: Any = textarena.make(f"{game}-raw")
            self.env.reset(num_players=1, seed=seed)
        state = self.env.state
        state.max_turns = min(turns, state.max_turns or turns)
        self.said = f"The game ends after at most {turns} turns."

    def observe(self) -> tuple[str, bool]:
        """What is new, without the player's own words, and whether the last move was refused."""
        with self._alone():
            _, messages = self.env.get_observation()
        texts, refused = [], False
        for _, text, kind in messages:
            if kind.name != "PLAYER_ACTION":
                texts.append(str(text).strip())
                refused = refused or (kind.name == ADMIN and "invalid move" in str(text))
        return "\n".join(texts), refused

    def reset(self) -> dict[str, Any]:
        """The first observation."""
        return {"text": f"{self.observe()[0]}\n{self.said}"}

    def step(self, action: str) -> dict[str, Any]:
        """One move; the reward is the game's own, paid at the end."""
        bracketed = action if "[" in action or "]" in action else f"[{action}]"
        with self._alone():
            done, _ = self.env.step(action=bracketed)
        if not done:
            text, refused = self.observe()
            return {"text": ("Invalid: " if refused else "") + text, "reward": 0.0, "done": False}
        with self._alone():
            rewards, info = self.env.close()
        reward = float((rewards or {}).get(0, 0.0))
        if not math.isfinite(reward):
            raise ValueError(f"the game paid {reward}")
        mine = (info or {}).get(0, {})
        text = str(mine.get("reason") or "The game is over.")
        return {
            "text": f"Invalid: {text}" if mine.get("invalid_move") else text,
            "reward": reward,
            "done": True,
        }

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """With this game's generators in place of the global ones."""
        _restore(self.generators)
        try:
            yield
        finally:
            self.generators = _save()


def _save() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    return random.getstate(), (numpy.random.get_state() if numpy else None)


def _restore(states: tuple[Any, ...]) -> None:
    random.setstate(states[0])
    numpy = sys.modules.get("numpy")
    if numpy and states[1] is not None:
        numpy.random.set_state(states[1])


def _generators_of(seed: int) -> tuple[Any, ...]:
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy:
        numpy.random.seed(seed % 2**32)
    return _save()


def _offline() -> None:
    """Connections fail at once instead of waiting for a network."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("this process has no network")

    socket.socket.connect = refuse  # type: ignore[method-assign]
    socket.create_connection = refuse


def start() -> Answer:
    """The slow import, with the network shut off."""
    _offline()
    import textarena  # noqa: F401

    instances: dict[int, Instance] = {}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        op, number = request["op"], request["instance"]
        if op == "reset":
            instances[number] = Instance(request["game"], request["turns"], request["seed"])
            return instances[number].reset()
        if op == "step":
            return instances[number].step(request["action"])
        instances.pop(number, None)
        return {}

    return answer


if __name__ == "__main__":
    serve(start, memory=MEMORY, may_write=True)
