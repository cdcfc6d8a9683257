"""The model behind the validator's stage `judge`, for those who have no Designer's model at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spade.config import Config
from spade.errors import ConfigError
from spade.rng import child_seed
from spade.serving.policy import SamplingParams
from spade.types import Message, StopReason, content_id

if TYPE_CHECKING:
    from spade.serving.chat import ChatPolicy


class ModelJudge:
    """Calls a chat model with the judge's settings; `tokens` counts what it sampled."""

    def __init__(self, cfg: Config, chat: ChatPolicy) -> None:
        self.cfg = cfg
        self.chat = chat
        self.tokens = 0

    async def __call__(self, question: str) -> str:
        """The reply to one question; empty if it was cut short. Raises BackendError without an answer."""
        judge = self.cfg.validator.judge
        seed = child_seed(self.cfg.seed, "judge", content_id(question))
        params = SamplingParams(judge.max_tokens, judge.temperature, seed=seed)
        [reply] = await self.chat.chat([Message("user", question)], params=params)
        self.tokens += reply.sampled_tokens
        return reply.text if reply.stop is StopReason.STOP else ""

    async def close(self) -> None:
        """Close the model."""
        await self.chat.close()


async def open_judge(cfg: Config) -> ModelJudge:
    """Open the model of `validator.judge.model`. Raises ConfigError if none is named."""
    from spade.serving.launch import open_chat

    if cfg.validator.judge.model is None:
        raise ConfigError("validator.judge.model is not set; name the model that judges programs.")
    return ModelJudge(cfg, await open_chat(cfg.validator.judge.model, cfg.serving))
