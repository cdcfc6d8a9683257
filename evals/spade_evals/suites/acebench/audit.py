"""What is known to be wrong with the published annotations of ACEBench-Agent, item by item.

Of the 50 annotated end states, two cannot be reached by any calls and six ask for something else than the
request does (`UNSCORABLE`). Milestones: some texts are not Python (an apostrophe inside quotes) or have a
blank at the end, which the published reader does not take (`mended`); those of nine items do not lead to the
annotated end state even so, although other calls do (`MILESTONES`). Four annotations misspell the name of a
class (`CLASS_NAMES`).

The variant `official` scores as the published checker does, which skips a class it does not find. The
variant `strict` mends the names and compares whole attributes; unscorable items count as known to be
defective. A test shows for every item that calls lead to its annotated end state, or that it is listed here.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final

CLASS_NAMES: Final = {"ReminderAPI": "ReminderApi", "Reminderpi": "ReminderApi", "BaseAPI": "BaseApi"}
"""Misspelt -> meant."""

_REMINDER: Final = (
    "the annotated list of reminders lacks the third one that every conversation starts with, and has the "
    "new one in its place; no call removes a reminder"
)
_FULL_STOP: Final = (
    "the message is dictated as 'The total cost is () yuan.', but the annotation has it without the full stop"
)

UNSCORABLE: Final = {
    "agent_multi_step_0": _REMINDER,
    "agent_multi_step_1": _REMINDER,
    "agent_multi_step_19": (
        "after the message with 'call' is deleted the box is not full, so nothing else is to be deleted; the "
        "annotation lacks the latest message as well"
    ),
    "agent_multi_turn_12": _FULL_STOP,
    "agent_multi_turn_13": _FULL_STOP,
    "agent_multi_turn_14": _FULL_STOP,
    "agent_multi_turn_15": _FULL_STOP,
    "agent_multi_turn_28": "the user has four pieces of luggage; the annotation books three",
}
"""Items whose annotated end state a careful agent does not reach, and why."""

_LOGIN: Final = "they lack login_device(), without which the device refuses"
_FOOD: Final = "they lack login_food_platform(), without which there is no order"
_OLDEST: Final = "they delete the oldest message, the request and the annotated end state the latest"

MILESTONES: Final = {
    "agent_multi_step_0": "they order 'Super Supreme', which is not on the menu",
    "agent_multi_step_1": "they order 'Super Supreme', which is not on the menu",
    "agent_multi_step_12": _FOOD,
    "agent_multi_step_13": _FOOD,
    "agent_multi_step_14": _OLDEST,
    "agent_multi_step_15": _OLDEST,
    "agent_multi_step_16": f"{_OLDEST}; {_LOGIN}",
    "agent_multi_step_17": _OLDEST,
    "agent_multi_turn_6": _LOGIN,
}
"""Items whose published milestones, mended, do not lead to the annotated end state, and why."""

TWINS: Final = {"agent_multi_turn_11": "agent_multi_turn_10"}
"""Items that are the same as another one, word for word."""


def with_apostrophes(milestone: str) -> str:
    """A published milestone with apostrophes inside words escaped, if it is no Python as it stands."""
    try:
        ast.parse(milestone.strip(), mode="eval")
    except SyntaxError:
        return re.sub(r"(?<=\w)'(?=\w)", r"\\'", milestone)
    return milestone


def mended(milestone: str) -> str:
    """The same without the blank at its end."""
    return with_apostrophes(milestone).strip()


def renamed(annotation: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An annotated end state with the names of classes mended."""
    return [{CLASS_NAMES.get(name, name): kept for name, kept in part.items()} for part in annotation]
