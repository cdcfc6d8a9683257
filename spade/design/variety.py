"""Against a Designer that repeats itself: duplicates, quota, novelty and the guide score.

A trained Designer falls back on the few programs that pay best. Each device here has a name in the config
and can be switched off: `design.refuse_duplicates`, `design.quota`, `design.novelty_weight`,
`design.guide_weight`. Replay of levels is the fifth (`play.replay`). What novelty and guide score do to the
reward is said in `spade.learn.rewards.shaped`.

* The *structure* of a program is its canonical text with constants blanked (`fingerprint.skeleton`):
  programs that differ in names and numbers only share it.
* The *novelty* is 1 minus the Jaccard index of its runs of five tokens of the canonical text with those of
  the nearest remembered program: no weighting by frequency, so it never changes for a pair of programs.
* The *guide score* is the model's own opinion, asked in a separate call that is never trained (Self-Guided
  Self-Play, arXiv 2604.20209).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spade.config import DesignConfig
from spade.design.ask import ask, said, sampling
from spade.design.prompts import guide_messages
from spade.envs.fingerprint import NoveltyIndex, shingles, skeleton
from spade.envs.memory import Memory, similarity
from spade.play.actions import last_box, strip_thoughts
from spade.rng import child_seed
from spade.types import Design, EnvProgram, Verdict

if TYPE_CHECKING:
    from spade.serving.chat import ChatPolicy

GUIDE_TOKENS = 512
"""Tokens of one opinion: a few sentences and a number."""
GUIDE_TEMPERATURE = 0.3
"""As for hints: nearly the likeliest answer."""
GUIDE_TOP = 10.0
_MARK = re.compile(r"(\d{1,2}(?:\.\d+)?)\s*(?:/\s*10|out of 10)?")


class Known:
    """Programs of this run, for the refusal of duplicates in one of three strictnesses."""

    def __init__(self, cfg: DesignConfig) -> None:
        self.identical = cfg.refuse_duplicates == "identical"
        near = cfg.refuse_duplicates == "near"
        self.index = NoveltyIndex(cfg.near_duplicate if near else None)
        self.ids: dict[str, None] = {}

    def add(self, program: EnvProgram, sketch: str = "") -> None:
        """Remember a program, and what it looks like when played (`Verdict.sketch`)."""
        if self.identical:
            self.ids[program.id] = None
        else:
            self.index.add(program, sketch)

    def lookalike(self, verdict: Verdict, stages: Mapping[str, bool | dict[str, Any]]) -> str | None:
        """Id of a known program that is played like the one just accepted, if that validation stage is on."""
        setting = stages.get("near_duplicate", True)
        options = setting if isinstance(setting, dict) else {"enabled": setting}
        if not options.get("enabled", True):
            return None
        return self.index.lookalike(verdict.sketch, options.get("threshold", 1.0), verdict.program_id)

    def twin_of(self, program: EnvProgram) -> str | None:
        """Id of a known program that counts as the same, or None."""
        if self.identical:
            return program.id if program.id in self.ids else None
        return self.index.twin_of(program)

    def state_dict(self) -> dict[str, Any]:
        """JSON-able state."""
        return {"index": self.index.state_dict(), "ids": list(self.ids)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.index.load_state_dict(state["index"])
        self.ids = dict.fromkeys(state["ids"])


class Quota:
    """Counts accepted programs of one set by skill and structure. `limit` 0 means none."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counts: Counter[tuple[str, str]] = Counter()

    def take(self, skill: str, code: str) -> bool:
        """Whether one more program of this structure may be accepted; if so, it is counted."""
        if not self.limit:
            return True
        key = (skill, structure(code))
        if self._counts[key] >= self.limit:
            return False
        self._counts[key] += 1
        return True


def structure(code: str) -> str:
    """Short hash of what a program is apart from names and constants: its cluster."""
    return hashlib.sha256(skeleton(code).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def likeness(codes: Sequence[str]) -> NDArray[np.float64]:
    """Jaccard indices of the runs of five code tokens of programs, shape (n, n): 1 on the diagonal."""
    runs = [shingles(code) for code in codes]
    return np.array([[similarity(a, b) for b in runs] for a in runs], dtype=np.float64)


def novelty(code: str, memory: Memory) -> float:
    """Distance in [0, 1] of a program from the nearest remembered one; 1 for an empty memory."""
    return 1.0 - memory.nearest(code)


def read_mark(text: str) -> float | None:
    """The guide score in [0, 1] from a reply; None when its last box holds no number from 0 to 10."""
    box = last_box(strip_thoughts(text))
    match = _MARK.fullmatch(box.strip()) if box is not None else None
    value = float(match.group(1)) if match else GUIDE_TOP + 1
    return value / GUIDE_TOP if value <= GUIDE_TOP else None


async def guide_scores(
    designs: Sequence[Design],
    documents: Mapping[str, str],
    chat: ChatPolicy,
    template: str,
    cfg: DesignConfig,
    seed: int,
) -> list[tuple[float | None, int]]:
    """Guide score and sampled tokens of each design's program; `documents` by brief id.

    None where the program does not fit the context, no answer came in time, or it holds no mark.
    """
    prompts = []
    for design in designs:
        assert design.program is not None, "only programs are judged"
        document = documents.get(design.brief.id, "")
        messages = guide_messages(design.program.code, design.brief.skill, document, template)
        prompts.append(chat.renderer.start(messages, (), cfg.thinking))
    asked = [i for i, prompt in enumerate(prompts) if len(prompt) < chat.policy.context_length]
    seeds = {i: child_seed(seed, "guide", designs[i].brief.id) for i in asked}
    params = [sampling(chat, prompts[i], GUIDE_TOKENS, GUIDE_TEMPERATURE, seeds[i]) for i in asked]
    answers = await ask(chat.policy, [prompts[i] for i in asked], params, cfg.seconds)
    scores: list[tuple[float | None, int]] = [(None, 0)] * len(designs)
    for i, completion in zip(asked, answers, strict=True):
        if completion is not None:
            mark = read_mark(said(chat, completion.token_ids, cfg.thinking))
            scores[i] = (mark, len(completion.token_ids))
    return scores
