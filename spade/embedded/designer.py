"""A scripted Designer that never changes: it answers a brief with a sound program of the asked skill.

It stands for the stronger fixed Designer of the paper's ablation (arXiv 2608.19197) at the scale of the
embedded model: what it writes is drawn from the mechanics that model was pretrained on, so it always keeps
the contract, is never one of the held-out programs, and is easy, middle and hard in equal shares. What it
cannot do is follow the Agent. Choose it with `design.policy=scripted:mechanics`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from spade.config import GAME_SKILLS, TOOL_SKILLS
from spade.embedded.mechanics import SampledProgram, registry, sample_program, tool_registry
from spade.rng import child_seed
from spade.serving.chat import ChatPolicy, ModelRef
from spade.serving.policy import Completion, PolicyStats, SamplingParams
from spade.types import StopReason

if TYPE_CHECKING:
    from spade.serving.chat import ChatRenderer

MECHANICS = "scripted:mechanics"
"""The reference of this Designer."""
LEVELS = (0, 1, 2)
"""Easy, middle, hard."""


class MechanicsPolicy:
    """A `Policy` whose replies are programs. Log-probs are 0; a reply depends on prompt and seed alone.

    It speaks the tokens of the Agent's `renderer`, so that both are counted in one unit and the same prompts
    fit. A program longer than `max_tokens` is cut, as a model's would be.
    """

    exact_tokens = True
    lockstep = True

    def __init__(self, renderer: ChatRenderer, context_length: int, max_rows: int = 192) -> None:
        self.renderer = renderer
        self.context_length, self.max_rows = context_length, max_rows
        self.stats = PolicyStats()

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        n: int = 1,
    ) -> list[list[Completion]]:
        """See `Policy.generate`."""
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        return [
            [self._complete(prompt, one, sample) for sample in range(n)]
            for prompt, one in zip(prompts, each, strict=True)
        ]

    async def load_weights(self, named: Iterable[tuple[str, Any]], version: int) -> None:
        """There are none."""

    async def sleep(self) -> None:
        """Nothing to free."""

    async def wake(self) -> None:
        """Nothing to undo."""

    async def close(self) -> None:
        """Nothing to close."""

    def _complete(self, prompt: Sequence[int], params: SamplingParams, sample: int) -> Completion:
        seed = random.getrandbits(62) if params.seed is None else params.seed
        rng = random.Random(child_seed(seed, "mechanics", sample))
        made = program_for(self.renderer.text(prompt), rng)
        ids = (*self.renderer.encode(f"```python\n{made.code}```"), *self.renderer.stop_token_ids[:1])
        stop = StopReason.STOP
        if len(ids) > params.max_tokens:
            ids, stop = ids[: params.max_tokens], StopReason.LENGTH
        self.stats.requests += 1
        self.stats.prompt_tokens += len(prompt)
        self.stats.sampled_tokens += len(ids)
        return Completion(ids, (0.0,) * len(ids), stop)


def program_for(brief: str, rng: random.Random) -> SampledProgram:
    """A program for a brief: tool use if it speaks of `ToolEnv`, of the skill it names last.

    A skill without a mechanic gets any mechanic of that kind of program.
    """
    tools = "ToolEnv" in brief
    skill = asked_skill(brief)
    rows = tool_registry() if tools else registry()
    known = any(m.skill == skill for m in rows.values())
    return sample_program(rng, skill=skill if known else None, level=rng.choice(LEVELS), tools=tools)


def asked_skill(brief: str) -> str | None:
    """The skill named last in a brief, since documents and earlier programs come before it; None without."""
    places = {brief.rfind(skill): skill for skill in (*GAME_SKILLS, *TOOL_SKILLS)}
    last = max(places)
    return places[last] if last >= 0 else None


def open_mechanics(agent: ChatPolicy) -> ChatPolicy:
    """The scripted Designer beside an Agent."""
    policy = MechanicsPolicy(agent.renderer, agent.policy.context_length, agent.policy.max_rows)
    return ChatPolicy(agent.renderer, policy, ModelRef("scripted", MECHANICS, spec="mechanics"))
