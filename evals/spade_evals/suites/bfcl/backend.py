"""Asks the process of `host`: runs calls, checks conversations. Any thread may ask."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from spade_evals.dialogue import Lost as DialogueLost
from spade_evals.grade.calls import Refusal, RefusalCode
from spade_evals.hosting.supervisor import Crashed, Expired, Lost, Pool, Raised, few
from spade_evals.question import GraderLost, GraderTimeout

SECONDS: Final = 10.0
"""Processor time for one request; a reference conversation takes some milliseconds."""
TRIES: Final = 3

Steps = list[list[str]]
"""Call texts, step by step."""


@dataclass(frozen=True, slots=True)
class CheckerVerdict:
    """What the checker says of a conversation. `error_type` and `message` are upstream's words."""

    valid: bool
    error_type: str = ""
    message: str = ""


async def run(item: dict[str, Any], steps: Steps) -> list[str] | Refusal:
    """What the calls of the last step return, after those before it; a refusal when that takes too long.

    Raises dialogue.Lost when the process is killed again and again.
    """
    request = {"op": "run", "item": item, "steps": steps}
    for _ in range(TRIES):
        try:
            reply = await asyncio.to_thread(pool().ask, request, SECONDS)
        except (Expired, Crashed) as error:
            return Refusal(RefusalCode.TOO_COSTLY, str(error))
        except Lost:
            continue
        except Raised as error:
            raise RuntimeError(f"the classes of {item['id']} cannot be used: {error}") from error
        return [str(result) for result in reply["results"]]
    raise DialogueLost("the process that runs calls was killed")


async def check(
    item: dict[str, Any], turns: list[Steps], truth: list[list[str]], strict: bool
) -> CheckerVerdict:
    """Upstream's verdict. Raises GraderTimeout, GraderLost, or RuntimeError when the checker raised."""
    request = {"op": "check", "item": item, "turns": turns, "truth": truth, "strict": strict}
    try:
        reply = await asyncio.to_thread(pool().ask, request, SECONDS)
    except Expired as error:
        raise GraderTimeout(str(error)) from error
    except Lost as error:
        raise GraderLost(str(error)) from error
    except (Crashed, Raised) as error:
        raise RuntimeError(str(error)) from error
    return CheckerVerdict(reply["valid"], reply["error_type"], reply["message"])


@cache
def pool() -> Pool:
    """The processes, shared by all tasks."""
    return Pool("spade_evals.suites.bfcl.host", few())
