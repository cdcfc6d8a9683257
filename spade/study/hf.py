"""The lens on any Hugging Face checkpoint: sampled entropies, exact priors of given texts.

A checkpoint is served and scored by the project's own layers (`LocalPolicy`, `CompactLearner`), so that runs,
the embedded model, the study's tiny models and any other causal model are looked at alike. Entropies are over
the whole vocabulary; those at temperature 1 and at the sampling temperature are separate columns.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spade.errors import InputError
from spade.learn.entropy import chain_rule, good_turing, mean_nll, miller_madow, token_mean, upper_bound
from spade.rng import child_seed
from spade.study.tasks import Floats
from spade.types import Sample, StopReason

GENERAL = (
    "Name three colours.", "What is 17 + 25?", "Write one sentence about the sea.", "Which animal barks?",
    "Give a synonym for happy.", "Is 91 a prime number? Answer yes or no.", "Continue: Once upon a time",
    "Translate 'good morning' into French.", "Which city is the capital of Italy?",
    "Write a Python function that adds two numbers.", "What comes after Tuesday?",
    "Pick a number between 1 and 10.",
)  # fmt: skip
"""Prompts of the suite `general`, for models that answer questions."""
SUITES = ("study", "agent", "general")
SUPPORT = 1e-4
"""Exact probability from which a sampled output counts as supported by a model."""


@dataclass(frozen=True)
class Prompt:
    """Token ids of one prompt, and texts that count as wanted answers."""

    ids: tuple[int, ...]
    text: str
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """A checkpoint that is open for sampling and scoring."""

    name: str
    folder: Path
    learner: Any
    chat: Any

    @property
    def is_study(self) -> bool:
        """Whether it is one of the study's own models, whose responses have four letters and no end."""
        return (self.folder / "stage.json").is_file() or has_study_vocabulary(self.folder)


def open_checkpoint(ref: str, device: str = "auto") -> Opened:
    """Open `embedded`, a run, a folder, a model name, or a shipped model of the study (`trunk`, `1e-3`).

    Raises `InputError` for what has no weights.
    """
    from spade.config import LearnerConfig, ServingConfig
    from spade.learn.trainer import CompactLearner
    from spade.serving.chat import ChatPolicy
    from spade.serving.launch import resolve_ref
    from spade.serving.local import LocalPolicy
    from spade.study.checks import shipped

    found = resolve_ref(str(shipped(ref) or ref))
    if found.path is None:
        raise InputError(f"'{ref}' has no weights to look into; give a checkpoint folder or a run.")
    learner = CompactLearner(found.path, LearnerConfig(autocast="off"), device)
    policy = LocalPolicy.from_folder(found.path, ServingConfig(device=device))  # type: ignore[arg-type]
    return Opened(ref, found.path, learner, ChatPolicy(_renderer(found.path), policy, found))


def read_prompts(opened: Opened, what: str | None) -> list[Prompt]:
    """Prompts of a suite, or of a file: one text a line, or JSON lines with `prompt` (text or ids) and, if
    wanted, `targets`. Unset: `study` for the study's models, else `agent` for the embedded model's kind and
    `general` for others.

    Raises `InputError` for a file that cannot be used.
    """
    if what is None:
        what = (
            "study"
            if opened.is_study
            else "agent"
            if opened.learner.model.config.vocab_size < 8192
            else "general"
        )
    if what == "study":
        return _study_prompts()
    if what == "agent":
        return [_chat(opened, text) for text in _agent_texts()]
    if what == "general":
        return [_chat(opened, text) for text in GENERAL]
    path = Path(what)
    if not path.is_file():
        raise InputError(f"there are no prompts '{what}'; use {', '.join(SUITES)}, or a file of prompts.")
    rows = [
        _row(path, n, line) for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if line
    ]
    return [_prompt(opened, row) for row in rows]


@dataclass(frozen=True)
class Profile:
    """What one checkpoint does on a set of prompts."""

    name: str
    figures: dict[str, float]
    samples: tuple[Sample, ...]


def profile(
    opened: Opened, prompts: Sequence[Prompt], n: int, max_tokens: int, temperature: float, seed: int
) -> Profile:
    """Sample `n` completions a prompt and measure them. Lengths count the end token."""
    from spade.serving.policy import SamplingParams

    stops = () if opened.is_study else opened.chat.renderer.stop_token_ids
    params = [
        SamplingParams(max_tokens, temperature, stop_token_ids=stops, seed=child_seed(seed, "entropy", i, j))
        for i in range(len(prompts))
        for j in range(n)
    ]
    spread = [p.ids for p in prompts for _ in range(n)]
    rows = [row[0] for row in asyncio.run(opened.chat.policy.generate(spread, params))]
    samples = [
        Sample(p, r.token_ids, (1,) * len(r.token_ids), r.logprobs_T, 0.0, "agent")
        for p, r in zip(spread, rows, strict=True)
    ]
    raw_logprobs, raw = opened.learner.entropies(samples, 1.0)
    logprobs, warm = (
        (raw_logprobs, raw) if temperature == 1.0 else opened.learner.entropies(samples, temperature)
    )
    texts = [opened.chat.renderer.text(r.token_ids).strip() for r in rows]
    answers = [texts[i * n : (i + 1) * n] for i in range(len(prompts))]
    figures = {
        "prompts": float(len(prompts)),
        "n": float(n),
        "temperature": temperature,
        "H_seq": chain_rule(warm),
        "H_tok (T=1)": token_mean(raw),
        "H_tok (sampling T)": token_mean(warm),
        "NLL": mean_nll(logprobs),
        "length": float(np.mean([len(s.completion_ids) for s in samples])),
        "ended": float(np.mean([r.stop is StopReason.STOP for r in rows])),
        "H_ans": float(np.mean([miller_madow(a) for a in answers])),
        "coverage": float(np.mean([good_turing(a) for a in answers])),
    }
    hits = [t in p.targets for p, a in zip(prompts, answers, strict=True) for t in a if p.targets]
    if hits:
        figures |= {"wanted": float(np.mean(hits)), "wanted, at most": upper_bound(sum(hits), len(hits))}
    return Profile(opened.name, figures, tuple(samples))


def compare(first: tuple[Opened, Profile], other: tuple[Opened, Profile]) -> dict[str, float]:
    """Change from the first checkpoint to the other, along the samples of each; same tokenizer needed.

    Divergences are a token, at temperature 1. Kept, gained and lost count distinct sampled outputs by their
    exact probability under both. Raises `InputError` when the vocabularies differ.
    """
    (a, pa), (b, pb) = first, other
    if a.learner.model.config.vocab_size != b.learner.model.config.vocab_size:
        raise InputError(
            f"{a.name} and {b.name} have vocabularies of different size; they cannot be compared."
        )
    mine, theirs = a.learner.entropies(pa.samples, 1.0)[0], b.learner.entropies(pa.samples, 1.0)[0]
    now, then = b.learner.entropies(pb.samples, 1.0)[0], a.learner.entropies(pb.samples, 1.0)[0]
    seen: dict[tuple[Any, Any], tuple[float, float]] = {}
    for samples, under_a, under_b in ((pa.samples, mine, theirs), (pb.samples, then, now)):
        for s, x, y in zip(samples, under_a, under_b, strict=True):
            seen[(s.prompt_ids, s.completion_ids)] = (float(x.sum()), float(y.sum()))
    in_a, in_b = (np.array([p[i] for p in seen.values()]) > np.log(SUPPORT) for i in (0, 1))
    return {
        "dH_seq": pb.figures["H_seq"] - pa.figures["H_seq"],
        "KL(now || first)": token_mean([x - y for x, y in zip(now, then, strict=True)]),
        "KL(first || now)": token_mean([x - y for x, y in zip(mine, theirs, strict=True)]),
        "kept": float((in_a & in_b).sum()),
        "gained": float((in_b & ~in_a).sum()),
        "lost": float((in_a & ~in_b).sum()),
    }


def target_mass(opened: Opened, prompts: Sequence[Prompt], temperature: float) -> Floats:
    """Exact probability of the listed targets, summed over them, by prompt: a lower bound on the behaviour.

    By teacher forcing; a listed text that is the beginning of another is counted with it, not added.
    Raises `InputError` for a prompt without targets.
    """
    out = []
    for prompt in prompts:
        if not prompt.targets:
            raise InputError(f"the prompt '{prompt.text[:40]}' lists no targets.")
        ids = _prefix_free([tuple(opened.chat.renderer.encode(t)) for t in prompt.targets])
        samples = [Sample(prompt.ids, t, (1,) * len(t), (0.0,) * len(t), 0.0, "agent") for t in ids]
        out.append(sum(float(np.exp(x.sum())) for x in opened.learner.score(samples, temperature)))
    return np.array(out)


# --- prompts ---------------------------------------------------------------------------------------------


def _study_prompts() -> list[Prompt]:
    from spade.study.families import Rules
    from spade.study.vocabulary import decode

    family = Rules()
    prompts = family.prompts("?", "probe", 64)
    letters = np.array(family.alphabet)[prompts.target_BL]
    return [
        Prompt(tuple(ids), decode(ids), (decode(right),))
        for ids, right in zip(prompts.ids_BP.tolist(), letters.tolist(), strict=True)
    ]


def _agent_texts() -> list[str]:
    """First messages of games of the embedded model's mechanics, unhinted."""
    from spade.design.prompts import agent_message
    from spade.embedded.mechanics import load, sample_program
    from spade.rng import child_rng

    rng = child_rng(0, "study", "agent prompts")
    texts = []
    for _ in range(32):
        program = load(sample_program(rng).code)
        first = program.reset(seed=rng.randrange(1000))
        observation = first[0] if isinstance(first, tuple) else first
        texts.append(agent_message(str(observation), None, "short").content)
    return texts


def _chat(opened: Opened, text: str) -> Prompt:
    from spade.types import Message

    return Prompt(tuple(opened.chat.renderer.start([Message("user", text)])), text)


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    if not line.lstrip().startswith("{"):
        return {"prompt": line}
    try:
        row: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise InputError(f"{path} line {number} is not valid JSON: {error}") from None
    if "prompt" not in row:
        raise InputError(f"{path} line {number} has no 'prompt'.")
    return row


def _prompt(opened: Opened, row: dict[str, Any]) -> Prompt:
    """A row of a file; text is put through the chat template unless the row says `"raw": true`."""
    given, targets = row["prompt"], tuple(map(str, row.get("targets", ())))
    if isinstance(given, list):
        return Prompt(tuple(map(int, given)), str(given), targets)
    if opened.is_study or row.get("raw"):
        return Prompt(tuple(opened.chat.renderer.raw_ids(str(given))), str(given), targets)
    return Prompt(_chat(opened, str(given)).ids, str(given), targets)


def _prefix_free(targets: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    kept: list[tuple[int, ...]] = []
    for target in sorted(set(targets), key=len):
        if not any(target[: len(k)] == k for k in kept):
            kept.append(target)
    return kept


class _Words:
    """The study's own tokenizer, which has no chat template."""

    stop_token_ids: tuple[int, ...] = ()

    def encode(self, text: str) -> list[int]:
        from spade.study.vocabulary import encode

        try:
            return encode(text)
        except KeyError as error:
            raise InputError(f"{error} is no word of the study's vocabulary.") from None

    raw_ids = encode

    def text(self, completion_ids: Sequence[int]) -> str:
        from spade.study.vocabulary import decode

        return decode(list(completion_ids))


def _renderer(folder: Path) -> Any:
    if has_study_vocabulary(folder):
        return _Words()
    from spade.serving.render import Renderer

    return Renderer.from_folder(folder)


def has_study_vocabulary(folder: Path) -> bool:
    """Whether the tokenizer in a folder is the study's own."""
    path = folder / "tokenizer.json"
    return (
        path.is_file() and path.stat().st_size < 10_000 and '"<negrev>"' in path.read_text(encoding="utf-8")
    )
