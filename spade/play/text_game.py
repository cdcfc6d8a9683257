"""Programs for trainers that speak text: a whole reply of a model goes in, an observation comes out.

    game = TextGame("pool/programs/ab12.py")
    text = game.reset(seed=3)                      # what to show first, tools and answer format included
    step = game.step("I would say ... \\boxed{run 5}")

The program runs in the sandbox, behind the same codecs and rules as in SPADE's own plays (`ProgramEnv`). This
is what pools exported for other frameworks are made of (`spade.envs.interop`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade.design.prompts import agent_message
from spade.envs.gym_env import ProgramEnv
from spade.play.actions import codec_for
from spade.types import EnvProgram

if TYPE_CHECKING:
    from spade.config import SandboxConfig
    from spade.envs.blocking import BlockingSandbox

TOOLS = (
    "These tools can be used:\n{tools}\n\nCall one like this, as often as needed: "
    '<tool_call>{{"name": "NAME", "arguments": {{...}}}}</tool_call>. '
    "When everything is done, reply <answer>done</answer>."
)


@dataclass(frozen=True, slots=True)
class TextStep:
    """What one reply led to. `reward` is that of a step that ends the episode, in [0, 1], else 0."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


class TextGame:
    """One program, played episode after episode. `program` names its file, or is its text or record.

    Raises what `ProgramEnv` raises: InputError for an unusable file, ProgramBroke when the program fails (the
    episode then has no reward, which is not a reward of 0), SandboxError when nothing can be run.
    """

    def __init__(
        self,
        program: EnvProgram | Path | str,
        max_turns: int | None = None,
        *,
        template: str = "full",
        sandbox: SandboxConfig | BlockingSandbox | None = None,
    ) -> None:
        self.env = ProgramEnv(program, max_turns, sandbox=sandbox, exact=True)
        self.template = template
        self.tools: list[dict[str, Any]] = []
        self.game_type = "multi_turn"
        self.turns = 0

    @property
    def max_turns(self) -> int:
        """Turns an episode can take."""
        return self.env.max_turns

    def reset(self, seed: int | None = None) -> str:
        """Start an episode; returns the first message, as an Agent in training gets it."""
        observation, info = self.env.reset(seed=seed)
        self.tools, self.game_type, self.turns = info["tools"] or [], info["game_type"], 0
        if self.game_type == "tool_use":
            listed = "\n".join(json.dumps(tool) for tool in self.tools)
            return f"{TOOLS.format(tools=listed)}\n\n{observation}"
        return agent_message(observation, None, self.template, codec_for(self.game_type).instruction).content

    def step(self, reply: str) -> TextStep:
        """Read the action from a reply and take it."""
        action = codec_for(self.game_type).parse(reply, self.tools)
        self.turns += 1
        observation, reward, terminated, truncated, _ = self.env.step(action.wrapped)
        return TextStep(observation, reward, terminated, truncated)

    def solution(self) -> list[str]:
        """Replies that win the present episode, by the program's own solution."""
        codec = codec_for(self.game_type)
        return [codec.wrap(action) for action in self.env.solution()]

    def close(self) -> None:
        """End the program's process. May be called again."""
        self.env.close()
