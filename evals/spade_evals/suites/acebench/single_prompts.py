"""What the model is told in ACEBench's categories of single answers: the benchmark's rules in our words.

The three sentences for requests that cannot be met are the benchmark's own, since the checker looks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from spade.types import Message, content_id
from spade_evals.suites.acebench.prompts import listed

MISSING: Final = "Missing necessary parameters"
INCORRECT: Final = "There is incorrect value"
LIMITED: Final = "the limitations of the function"

_FORM: Final = """[ApiName(key1='value1', key2='value2'), ApiName(key1='value1')]
from the first bracket to the last, with nothing before or after them"""

NORMAL: Final = f"""You are an assistant that answers by calling functions. You see the functions and the
conversation so far, and write the calls that come next, in the form
{_FORM}.
Several calls are separated by commas. A parameter that is not marked as required is left out unless the
conversation{{or_profile}} mentions it. Where no format is given for a value, use the words of the
user{{or_of_profile}}. A function without parameters is called as [ApiName()].

{{about}}

Roles in the conversation: user, the assistant (also called system), and tool, which reports results.

Functions:
{{functions}}"""

SPECIAL: Final = f"""You are an assistant that answers by calling functions. You see the functions and the
conversation so far, and write what comes next.

1. When the request is clear and the functions can meet it, write the calls in the form
{_FORM}.
Where several functions can meet it, call them all. Where no format is given for a value, use the words of the
user.

2. Otherwise say what is wrong, in one of three sentences. Check them in this order:
(1) a value is given for a required parameter, but its type or form is not what the function wants:
["{INCORRECT} (value) for the parameters (key) in the conversation history."]
(2) a required parameter is not given:
["{MISSING} (key1, key2) for the api (ApiName)"]
(3) no function can do what is asked:
["Due to {LIMITED}, I cannot solve this problem."]

{{about}}

Roles in the conversation: user, and the assistant.

Functions:
{{functions}}"""

TEXTS: Final = (NORMAL, SPECIAL)


def texts_hash() -> str:
    """Of the texts of this module."""
    return content_id("\0".join(TEXTS))[:16]


def single_chat(
    rules: str, functions: Sequence[dict[str, Any]], conversation: str, time: str, profile: Any
) -> tuple[Message, Message]:
    """The chat for one answer."""
    values = {
        "about": f"The user:\n{profile}" if profile else time,
        "functions": listed(functions, compact=False),
        "or_profile": " or the description of the user" if profile else "",
        "or_of_profile": ", or of that description" if profile else "",
    }
    for name, value in values.items():
        rules = rules.replace("{" + name + "}", value)
    return Message("system", rules), Message("user", f"The conversation so far:\n{conversation}")
