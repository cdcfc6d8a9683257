"""The simulated user of conversations: a policy like any other, opened beside the tested one.

`--user REF` names it, or `user: {ref: REF}` in a preset; without either, tasks that need one are not run. The
tested policy is never its own user unless it is named as one. `scripted:user` is a rule for tests and first
looks: it says its whole task at once, then agrees to everything, then ends the conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spade.config import ServingConfig
from spade_evals.presets import load_preset
from spade_evals.provenance import checkpoint_hash, setup_of

if TYPE_CHECKING:
    from spade.serving.launch import ChatPolicy
    from spade_evals.planning import Options

SCRIPTED: Final = "scripted:user"
AGREES: Final = 8
"""Answers of the scripted user before it ends the conversation."""
TASK: Final = "Your task: "
"""Begins the line of the system message with what the user wants."""
SCENARIO: Final = "<scenario>"
"""The same in tau2-bench, over several lines."""
ENDS: Final = ("###STOP###", "finish conversation")
"""How users end conversations: the first that their instructions name."""


@dataclass(frozen=True, slots=True)
class OpenUser:
    """An opened user."""

    chat: ChatPolicy
    key: dict[str, str]
    """Reference, hash of the weights, hash of engine and versions: part of the protocol."""
    shared: bool = False
    """It is the tested policy, which is closed elsewhere."""

    async def close(self) -> None:
        """Close the policy, unless it is shared."""
        if not self.shared:
            await self.chat.policy.close()


def wanted_user(suites: Sequence[Any], options: Options | None) -> str:
    """The reference of the user that these suites are to have; "" when none needs or names one."""
    for suite in suites:
        tasks = getattr(suite, "tasks", ())
        if not any(getattr(one, "needs_user", False) for one in (suite, *tasks)):
            continue
        if options is not None and options.user:
            return options.user
        preset = (options.preset if options is not None else None) or getattr(suite, "preset", "")
        ref = str(load_preset(preset).user.get("ref", "")) if preset else ""
        if ref:
            return ref
    return ""


async def open_user(ref: str, serving: ServingConfig, tested: tuple[str, ChatPolicy]) -> OpenUser:
    """Open the policy `ref`, or share that of the tested reference where both are the same model.

    Raises InputError for an unknown reference, BackendError when it cannot be opened.
    """
    from spade.serving.launch import open_chat, resolve_ref

    if ref == SCRIPTED:
        return _opened(scripted_user(), ref)
    if ref == tested[0] and not ref.startswith("scripted:"):
        return _opened(tested[1], ref, resolve_ref(ref).path, shared=True)
    return _opened(await open_chat(ref, serving), ref, resolve_ref(ref).path)


def _opened(chat: ChatPolicy, ref: str, path: Any = None, shared: bool = False) -> OpenUser:
    key = {"ref": ref, "checkpoint": checkpoint_hash(path, ref), "setup": str(setup_of(chat)["key"])}
    return OpenUser(chat, key, shared)


def scripted_user() -> ChatPolicy:
    """See the module text."""
    from spade.serving.chat import ChatPolicy
    from spade.serving.scripted import ScriptedPolicy

    policy = ScriptedPolicy.from_function(scripted_reply)
    return ChatPolicy(policy.renderer, policy)


def scripted_reply(prompt: str) -> str:
    """The next line of the scripted user, from its prompt as text with `[role]` lines."""
    said = prompt.count("[assistant]\n")
    end = next((word for word in ENDS if word in prompt), ENDS[-1])
    if said == 0:
        return _task_in(prompt) or end
    return "Yes." if said <= AGREES else end


def _task_in(prompt: str) -> str:
    if TASK in prompt:
        return prompt.partition(TASK)[2].partition("\n")[0].strip()
    return " ".join(prompt.partition(SCENARIO)[2].partition("</")[0].split())
