"""One conversation's world: the parts of an item, calls on them, what they answer, the state at the end.

Calls arrive as literals (`spade_evals.grade.calls`) and are looked up by name among the functions that an
agent may call; nothing of the agent's text is ever evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from spade.errors import InputError
from spade_evals.grade.calls import Call
from spade_evals.suites.acebench.check import State, stored
from spade_evals.suites.acebench.food import FoodPlatform
from spade_evals.suites.acebench.phone import BaseApi, Device, MessageApi, ReminderApi, saved
from spade_evals.suites.acebench.travel import Travel

CLASSES: Final = ("BaseApi", "MessageApi", "ReminderApi", "FoodPlatform", "Travel")

NOT_FORMATTED: Final = "Error during execution: {str(e)}"
"""What every failing call of a multi-turn item is answered with, one letter after the other: as published,
where the text was meant to be filled in."""


class World:
    """The parts `classes` in their start state; `config` sets Wi-Fi and log-in of the device."""

    def __init__(self, classes: Sequence[str], config: Mapping[str, Any]) -> None:
        unknown = [name for name in classes if name not in CLASSES]
        if unknown:
            raise InputError(f"ACEBench has no class '{unknown[0]}'; it has {', '.join(CLASSES)}")
        base = config.get("BaseApi", {})
        device = Device(base.get("wifi", False), base.get("logged_in", True))
        self.parts = {name: _part(name, device) for name in classes}
        self.tools: dict[str, Callable[..., Any]] = {
            tool: getattr(part, tool) for part in self.parts.values() for tool in part.TOOLS
        }

    def call(self, call: Call) -> Any:
        """The answer of one call. Raises whatever the part raises on wrong arguments, LookupError for an
        unknown function. Arguments without a name are dropped, as published."""
        tool = self.tools.get(call.name)
        if tool is None:
            raise LookupError(f"there is no function '{call.name}'")
        return tool(**call.kwargs)

    def state(self) -> State:
        """What is compared, as JSON holds it."""
        return stored([{name: saved(part)} for name, part in self.parts.items()])


def _part(name: str, device: Device) -> Any:
    if name == "Travel":
        return Travel()
    made = {
        "BaseApi": BaseApi,
        "MessageApi": MessageApi,
        "ReminderApi": ReminderApi,
        "FoodPlatform": FoodPlatform,
    }
    return made[name](device)


def answers_of(world: World, calls: Sequence[Call]) -> list[Any]:
    """Run calls in order; one failing call does not stop the others. The answers of a multi-step item."""
    out: list[Any] = []
    for call in calls:
        try:
            out.append(shown(world.call(call)))
        except Exception as error:  # wrong arguments, of an agent: any error is an answer to it
            out.append(f"Error during execution: {error}")
    return out


def answers_or_letters(world: World, calls: Sequence[Call]) -> list[Any]:
    """The same for a multi-turn item, where the first failing call ends the message (see `NOT_FORMATTED`)."""
    out: list[Any] = []
    for call in calls:
        try:
            out.append(shown(world.call(call)))
        except Exception:  # as above
            return list(NOT_FORMATTED)
    return out


def shown(answer: Any) -> Any:
    """An answer as the published loop passes it on: a mapping as it is, else text, numbers read back."""
    if isinstance(answer, dict):
        return json.loads(json.dumps(answer))
    text = answer if isinstance(answer, str) else str(answer)
    try:
        return json.loads(text)
    except ValueError:
        return text
