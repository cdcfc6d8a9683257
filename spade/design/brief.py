"""What one attempt of the Designer is asked: document, skill, earlier programs, in a prompt that fits.

Every attempt draws a fresh document and fresh exemplars, each from a generator of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from spade.config import Config, DesignConfig, VariantsConfig
from spade.design.corpus import Corpus
from spade.design.prompts import Terms, designer_messages
from spade.design.skills import draw_task, ideas
from spade.envs.contract import allowed_modules
from spade.envs.memory import Exemplar, Memory
from spade.errors import InputError
from spade.rng import child_rng, child_seed
from spade.types import Brief, Message, content_id

if TYPE_CHECKING:
    from spade.serving.chat import ChatPolicy

CUTS = 4
"""Rounds of shortening a document that does not fit: token counts of a cut text are estimates."""


@dataclass(frozen=True, slots=True)
class Order:
    """A brief, its prompt, and the document as it is shown."""

    brief: Brief
    prompt_ids: tuple[int, ...]
    document: str


def active_skills(cfg: DesignConfig, step: int) -> tuple[str, ...]:
    """The rotating window of skills of the design step at `step` (constant through `every` steps).

    With S skills, m of them at a time: epoch = step // every, start = (epoch * m) mod S, then m in a row.
    """
    total, width = len(cfg.skills), cfg.skills_per_step
    if width == 0 or width >= total:
        return cfg.skills
    start = (step // cfg.every) * width % total
    return tuple(cfg.skills[(start + i) % total] for i in range(width))


def variant_weights(cfg: VariantsConfig) -> dict[str, float]:
    """Weight of each task variant by its name."""
    return {
        "plain": cfg.plain,
        "conditional": cfg.conditional,
        "missing": cfg.missing,
        "decline": cfg.decline,
    }


def run_terms(cfg: Config) -> Terms:
    """What the briefs of a run say about rewards, modules, limits and hints."""
    return Terms(
        own_hint=cfg.hints.source == "program",
        returns=cfg.play.returns,
        modules=allowed_modules(cfg.sandbox.numpy),
        max_chars=cfg.validator.max_observation_chars,
    )


def make_order(
    cfg: Config,
    chat: ChatPolicy,
    corpus: Corpus,
    memory: Memory,
    template: str,
    at: tuple[int, int, int],
) -> Order:
    """The brief of attempt `at` = (step, slot, attempt).

    Raises InputError when even a brief without document and exemplars leaves no room to answer.
    """
    design = cfg.design
    step, slot, _ = at
    skills = active_skills(design, step)
    skill = skills[slot % len(skills)]
    document = corpus.draw()
    exemplars = memory.draw(skill, child_rng(cfg.seed, "memory", *at), chat.renderer.count)
    task = child_rng(cfg.seed, "task", *at)
    domain, variant = "", ""
    if design.game_type == "tool_use":
        domain, variant = draw_task(design.domains, variant_weights(design.variants), task)
    told = partial(
        designer_messages,
        skill=skill,
        game_type=design.game_type,
        difficulty=design.difficulty,
        template=template,
        terms=run_terms(cfg),
        domain=domain,
        variant=variant,
        ideas=() if document.id else ideas(skill, task),
    )
    text, shown, prompt = _fitting(document.text, exemplars, told, chat, design)
    messages, seed = told(text, exemplars=shown), child_seed(cfg.seed, "design", *at)
    brief = Brief(
        id=content_id("\n".join([*(m.content for m in messages), str(seed)])),
        skill=skill,
        game_type=design.game_type,
        difficulty=design.difficulty,
        document_id=document.id,
        exemplar_ids=tuple(e.program_id for e in shown),
        seed=seed,
        messages=messages,
        domain=domain,
        variant=variant,
    )
    return Order(brief, tuple(prompt), text)


def _fitting(
    document: str,
    exemplars: tuple[Exemplar, ...],
    told: Callable[..., tuple[Message, ...]],
    chat: ChatPolicy,
    design: DesignConfig,
) -> tuple[str, tuple[Exemplar, ...], list[int]]:
    """Document and exemplars as far as the prompt leaves room for an answer, and the prompt's tokens.

    Exemplars are given up first, then the document. Raises InputError when the rest alone is too long.
    """
    renderer, context = chat.renderer, chat.policy.context_length
    limit = max(context - design.max_tokens, context // 2)
    text = renderer.truncate(document, design.document_tokens)
    prompt = renderer.start(told(text, exemplars=exemplars), (), design.thinking)
    while len(prompt) > limit and exemplars:
        exemplars = exemplars[:-1]
        prompt = renderer.start(told(text, exemplars=exemplars), (), design.thinking)
    for _ in range(CUTS):
        if len(prompt) <= limit or not text:
            break
        text = renderer.truncate(text, max(0, renderer.count(text) - (len(prompt) - limit)))
        prompt = renderer.start(told(text, exemplars=exemplars), (), design.thinking)
    if len(prompt) >= context:
        raise InputError(
            f"a brief alone takes {len(prompt)} tokens of the model's {context}; use "
            "design.template=short or a model with a longer context"
        )
    return text, exemplars, prompt
