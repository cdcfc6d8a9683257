"""One attempt of the Designer: what its reply holds, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from spade.design.admission import DUPLICATE, NO_CODE, NO_LESSON
from spade.design.parse import extract_code
from spade.serving.policy import Completion
from spade.types import Brief, Design, EnvProgram, Trajectory


def accepted(design: Design) -> bool:
    """Whether a design's program may be played."""
    return design.verdict is not None and design.verdict.accepted


def twin_id(design: Design) -> str | None:
    """The program a refused duplicate equals; None for every other design."""
    failed = design.verdict.failed if design.verdict is not None else None
    return failed.detail if failed is not None and failed.code == DUPLICATE else None


def designer_trajectory(prompt: Sequence[int], completion: Completion) -> Trajectory:
    """The Designer's token stream: every completion token was sampled."""
    return Trajectory(
        role="designer",
        prompt_ids=tuple(prompt),
        completion_ids=completion.token_ids,
        mask=(1,) * len(completion.token_ids),
        logprobs=completion.logprobs_T,
        weight_version=completion.weight_version,
    )


def program_in(text: str, brief: Brief, step: int) -> EnvProgram | None:
    """The program a reply to a brief holds, or None."""
    code = extract_code(text)
    if code is None:
        return None
    return EnvProgram.of(
        code, skill=brief.skill, game_type=brief.game_type, brief_id=brief.id, step=step, source="designer"
    )


def repairable(design: Design) -> bool:
    """Whether a repair could help: the validator refused the program, or there was none."""
    failed = design.verdict.failed if design.verdict is not None else None
    return failed is not None and (failed.code == NO_CODE or failed.code not in NO_LESSON)


def round_metrics(designs: Sequence[Design], lost: int) -> dict[str, float]:
    """Numbers of one round that only the Designer knows; keys without meaning under the config are absent."""
    out = {"designs_lost": float(lost)} if lost else {}
    if repaired := sum(d.repaired for d in designs):
        out["designs_repaired"] = float(repaired)
    for name, values in (
        ("novelty", [d.novelty for d in designs if d.novelty is not None]),
        ("guide", [d.guide for d in designs if d.guide is not None]),
    ):
        if values:
            out[name] = sum(values) / len(values)
    return out
