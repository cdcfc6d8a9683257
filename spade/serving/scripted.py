"""Policies without a model: fixed behaviours for tests, floors and ceilings, on byte tokens."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from spade.errors import InputError
from spade.rng import child_seed
from spade.serving.policy import Completion, PolicyStats, SamplingParams
from spade.serving.toolblock import with_tool_block, without_structured_calls
from spade.types import Instance, Message, StopReason

END = 256
"""Token that ends every message; smaller ids are bytes."""
ROLES = ("system", "user", "assistant", "tool")
FIRST_ROLE = 257
MARKS = ("\\boxed{", "<tool_call>", "<answer>", "```python")
"""A solution with one of these is an action as it stands."""
KINDS = ("oracle", "null", "random", "echo", "constant:TEXT")


class ByteRenderer:
    """One token a UTF-8 byte, one token per role, one end token. Loses nothing: `messages` is the inverse.

    Tools are listed as text in the system message. There are no thoughts: `thinking` changes nothing.
    """

    stop_token_ids: tuple[int, ...] = (END,)
    append_only = True

    def start(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        thinking: bool | None = None,
        replies: Sequence[Sequence[int] | None] = (),
    ) -> list[int]:
        """See `Renderer.start`."""
        out: list[int] = []
        said = without_structured_calls(messages)
        for m in with_tool_block(said, tools) if tools else said:
            out += [FIRST_ROLE + ROLES.index(m.role), *_bytes(m.content), END]
        return [*out, FIRST_ROLE + ROLES.index("assistant")]

    def extend(
        self,
        messages_so_far: Sequence[Message],
        new_messages: Sequence[Message],
        completion_ids: Sequence[int] | None = None,
        tools: Sequence[dict[str, Any]] = (),
        thinking: bool | None = None,
    ) -> list[int]:
        """See `Renderer.extend`."""
        closed = completion_ids is None or (len(completion_ids) > 0 and completion_ids[-1] == END)
        return ([] if closed else [END]) + self.start(new_messages)

    def appends(self, tools: bool = False, thinking: bool | None = None) -> bool:
        """See `Renderer.appends`."""
        return True

    def opens_thought(self, thinking: bool | None = None) -> bool:
        """See `Renderer.opens_thought`."""
        return False

    def shown(self, ids: Sequence[int]) -> str:
        """See `Renderer.shown`."""
        pieces = (bytes([t]) if t < END else f"<|{t}|>".encode() for t in ids)
        return b"".join(pieces).decode("utf-8", "replace")

    def text(self, completion_ids: Sequence[int]) -> str:
        """See `Renderer.text`."""
        return bytes(t for t in completion_ids if t < END).decode("utf-8", "replace")

    def encode(self, text: str) -> list[int]:
        """The bytes of a text."""
        return list(_bytes(text))

    def said_ids(self, text: str) -> list[int]:
        """See `Renderer.said_ids`."""
        return list(_bytes(text))

    def raw_ids(self, text: str) -> list[int]:
        """See `Renderer.raw_ids`."""
        return list(_bytes(text))

    def token_text(self, token: int) -> str:
        """See `Renderer.token_text`."""
        if token < 128:
            return chr(token)
        return f"bytes:\\x{token:02x}" if token < END else f"<|{token}|>"

    def count(self, text: str) -> int:
        """Bytes of a text."""
        return len(_bytes(text))

    def truncate(self, text: str, tokens: int) -> str:
        """See `Renderer.truncate`."""
        return _bytes(text)[: max(0, tokens)].decode("utf-8", "ignore")

    def messages(self, prompt_ids: Sequence[int]) -> list[Message]:
        """The messages a prompt was made of, without the generation prompt."""
        out: list[Message] = []
        role, chars = None, bytearray()
        for t in prompt_ids:
            if t >= FIRST_ROLE:
                role, chars = ROLES[t - FIRST_ROLE], bytearray()
            elif t == END and role is not None:
                out.append(Message(role, chars.decode("utf-8", "replace")))  # type: ignore[arg-type]
                role = None
            elif t < END:
                chars.append(t)
        return out

    def prompt_text(self, prompt_ids: Sequence[int]) -> str:
        """A prompt as readable text: `[role]` lines with the contents below."""
        return "\n".join(f"[{m.role}]\n{m.content}" for m in self.messages(prompt_ids))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


Reply = Callable[[Sequence[int], SamplingParams, int], str]

HINT = re.compile(r"\n+HINT: ")
"""What stands before the hint in an opening message."""


class ScriptedPolicy:
    """A `Policy` whose replies come from a function of the prompt. Log-probs are 0.

    Replies are cut by stops alone: `max_tokens` counts tokens of a model, a script has none.
    The oracle is `privileged`: play calls `tell` before each turn with the program's own solution, for games
    and for tool use alike. Three kinds of player are made of it, to test what hints do and do not do:

    * `hint_reader()` wins exactly those episodes in whose prompt it reads a hint: regret 1;
    * `hint_blind(share)` wins a share of the instances, chosen by the instance alone: regret 0;
    * `oracle_if(when)` wins when `when(instance)` says so, `instance` being the `Instance` that is played.
    """

    exact_tokens = True
    lockstep = True

    def __init__(self, kind: str = "null", *, max_rows: int = 192, context_length: int = 1 << 20) -> None:
        self.kind = kind
        self.privileged = kind == "oracle"
        self.context_length, self.max_rows = context_length, max_rows
        self.stats = PolicyStats()
        self.version = 0
        self.renderer = ByteRenderer()
        self._told: dict[tuple[int, ...], tuple[list[str], Instance | None, bool]] = {}
        self._plays: Callable[[Instance | None, str], bool] = lambda instance, opening: True
        self._reply = self._behaviour(kind)

    @classmethod
    def from_function(cls, fn: Callable[[str], str], **kwargs: Any) -> ScriptedPolicy:
        """A policy that replies `fn(prompt text)`; the text has `[role]` lines before contents."""
        policy = cls("null", **kwargs)
        policy.kind = "function"
        policy._reply = lambda prompt, params, sample: fn(policy.renderer.prompt_text(prompt))
        return policy

    @classmethod
    def oracle_if(cls, when: Callable[[Instance], bool], **kwargs: Any) -> ScriptedPolicy:
        """Plays the solution of an instance when `when(instance)`, and empty boxes otherwise."""
        policy = cls("oracle", **kwargs)
        policy._plays = lambda instance, opening: instance is not None and when(instance)
        return policy

    @classmethod
    def hint_reader(cls, **kwargs: Any) -> ScriptedPolicy:
        """Plays the solution exactly when the opening message, as it was shown, ends with a hint."""
        policy = cls("oracle", **kwargs)
        policy._plays = lambda instance, opening: HINT.search(opening) is not None
        return policy

    @classmethod
    def hint_blind(cls, share: float = 0.5, **kwargs: Any) -> ScriptedPolicy:
        """Plays the solution for about `share` of the instances, by program and seed, whatever the hint."""
        return cls.oracle_if(
            lambda i: random.Random(child_seed(i.seed, "hint blind", i.program_id)).random() < share, **kwargs
        )

    def tell(
        self,
        prompt_ids: Sequence[int],
        actions: Sequence[str],
        instance: Instance | None = None,
        whole: bool = False,
    ) -> None:
        """Let the oracle know the actions that solve the episode starting with this prompt.

        With `whole` they are whole replies, said as they are.
        """
        self._told[tuple(prompt_ids)] = list(actions), instance, whole

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        n: int = 1,
    ) -> list[list[Completion]]:
        """See `Policy.generate`."""
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        return [
            [self._complete(p, s, sample) for sample in range(n)] for p, s in zip(prompts, each, strict=True)
        ]

    async def load_weights(self, named: Iterable[tuple[str, Any]], version: int) -> None:
        """Consume the weights and note the version."""
        for _ in named:
            pass
        self.version = version

    async def sleep(self) -> None:
        """Nothing to free."""

    async def wake(self) -> None:
        """Nothing to undo."""

    async def close(self) -> None:
        """Forget what was told."""
        self._told.clear()

    def _complete(self, prompt: Sequence[int], params: SamplingParams, sample: int) -> Completion:
        ids = self._until(params, (*_bytes(self._reply(prompt, params, sample)), END))
        self.stats.requests += 1
        self.stats.prompt_tokens += len(prompt)
        self.stats.prefilled_tokens += len(prompt)
        self.stats.sampled_tokens += len(ids)
        return Completion(ids, (0.0,) * len(ids), StopReason.STOP, self.version)

    def _until(self, params: SamplingParams, ids: tuple[int, ...]) -> tuple[int, ...]:
        """The reply up to a stop token, or to where something that watches the row ends it."""
        seen: list[int] = []
        for token in ids:
            seen.append(token)
            if token in params.stop_token_ids or (params.stop_when and params.stop_when(seen)):
                break
        return tuple(seen)

    # --- behaviours ------------------------------------------------------------------------------------

    def _behaviour(self, kind: str) -> Reply:
        name, _, text = kind.partition(":")
        if name == "constant":
            return lambda prompt, params, sample: text
        table: dict[str, Reply] = {
            "null": lambda prompt, params, sample: "\\boxed{}",
            "echo": lambda prompt, params, sample: f"\\boxed{{{self._last(prompt)}}}",
            "random": self._random,
            "oracle": self._oracle,
        }
        if kind not in table:
            raise InputError(f"Unknown scripted policy '{kind}'; choose one of {', '.join(KINDS)}.")
        return table[kind]

    def _last(self, prompt: Sequence[int]) -> str:
        messages = self.renderer.messages(prompt)
        return messages[-1].content if messages else ""

    def _random(self, prompt: Sequence[int], params: SamplingParams, sample: int) -> str:
        """One word of the last message, or a digit: chosen by (seed, sample, turn)."""
        words = re.findall(r"\w+", self._last(prompt)) + list("0123456789")
        seed = random.getrandbits(62) if params.seed is None else params.seed
        seed = seed if params.temperature > 0 else 0
        rng = random.Random(child_seed(seed, "random policy", sample, len(prompt)))
        return f"\\boxed{{{rng.choice(words)}}}"

    def _oracle(self, prompt: Sequence[int], params: SamplingParams, sample: int) -> str:
        """The next action of the solution that was told for this episode; an empty box after the last."""
        ids = tuple(prompt)
        found: tuple[int, ...] | None = ids
        if ids not in self._told:
            found = max((k for k in self._told if ids[: len(k)] == k), key=len, default=None)
        if found is None:
            return "\\boxed{}"
        actions, instance, whole = self._told[found]
        opening = self.renderer.messages(found)[-1].content
        turn = ids[len(found) - 1 :].count(FIRST_ROLE + ROLES.index("assistant")) - 1
        if turn >= len(actions) or not self._plays(instance, opening):
            return "\\boxed{}"
        action = actions[turn]
        return action if whole or any(mark in action for mark in MARKS) else f"\\boxed{{{action}}}"
