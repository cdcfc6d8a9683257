"""Quotations for real models, and which of them are wanted: experiment R1's side of the family `quote`.

Candidates are old sayings and their openings (two words and more). Each has an exact prior, the probability
that the model goes on from the prompt with just these tokens; two of them become targets, one the model says
now and then and one it practically never says. So arms differ in prior without any fine-tuning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spade.errors import InputError
from spade.study.tasks import Floats

QUOTES = (
    "The early bird catches the worm", "A stitch in time saves nine", "All that glitters is not gold",
    "Actions speak louder than words", "When in Rome, do as the Romans do", "Practice makes perfect",
    "A bird in the hand is worth two in the bush", "Rome was not built in a day", "Better late than never",
    "Where there is smoke, there is fire", "A rolling stone gathers no moss", "Honesty is the best policy",
    "Still waters run deep", "The pen is mightier than the sword", "Fortune favours the bold",
    "Too many cooks spoil the broth", "Many hands make light work", "Necessity is the mother of invention",
    "Absence makes the heart grow fonder", "An apple a day keeps the doctor away",
    "Time and tide wait for no man",
    "Birds of a feather flock together", "Look before you leap", "Make hay while the sun shines",
    "Strike while the iron is hot", "The proof of the pudding is in the eating",
    "Slow and steady wins the race",
    "To be, or not to be, that is the question",
    "All the world is a stage, and all the men and women merely players",
    "The course of true love never did run smooth", "Brevity is the soul of wit",
    "Though this be madness, yet there is method in it", "Cowards die many times before their deaths",
    "It was the best of times, it was the worst of times", "Call me Ishmael",
    "It is a truth universally acknowledged", "All happy families are alike",
    "No man is an island, entire of itself", "Hope springs eternal in the human breast",
    "To err is human, to forgive divine", "A little learning is a dangerous thing",
    "Fools rush in where angels fear to tread", "The child is father of the man",
    "A thing of beauty is a joy for ever", "I wandered lonely as a cloud", "Tyger Tyger, burning bright",
    "Water, water, every where, nor any drop to drink", "Quoth the Raven, nevermore",
    "Two roads diverged in a yellow wood", "The unexamined life is not worth living",
    "I think, therefore I am", "The heart has its reasons which reason knows nothing of",
    "Man is born free, and everywhere he is in chains", "Knowledge is power",
    "Four score and seven years ago", "Give me liberty, or give me death",
    "Early to bed and early to rise makes a man healthy, wealthy and wise",
    "If winter comes, can spring be far behind", "The mass of men lead lives of quiet desperation",
    "A foolish consistency is the hobgoblin of little minds",
)  # fmt: skip
"""Proverbs, and lines of authors who died before 1965; all in the public domain."""
PROMPT = 'Old sayings: "Haste makes waste", "Silence is golden", "'
"""Raw text that the model goes on from; base models and tuned ones understand it alike."""
CHAT_PROMPT = "Quote one old saying, and nothing else."
"""The question put through the chat template instead, if wanted."""
LEAST_WORDS = 2
SEEN = (1e-3, 1e-1)
"""Prior of the target that sparse reinforcement learning can find."""
UNSEEN = 1e-6
"""Prior below which the other target lies."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that could be the target, its tokens and its exact prior at the temperature of the rollouts."""

    text: str
    ids: tuple[int, ...]
    prior: float


Score = Callable[[Sequence[tuple[int, ...]]], Sequence[Floats]]
"""Log-probability of every token of given continuations of the prompt."""


def read_quotes(path: Path | None) -> tuple[str, ...]:
    """Quotations of a file, one a line; unset, the shipped ones. Raises `InputError`."""
    if path is None:
        return QUOTES
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the quotations in {path} cannot be read: {error}") from None
    found = tuple(dict.fromkeys(" ".join(line.split()) for line in lines if line.strip()))
    if not found:
        raise InputError(f"{path} holds no quotations; it takes one a line.")
    return found


def candidates(
    quotes: Sequence[str], encode: Callable[[str], Sequence[int]], score: Score
) -> list[Candidate]:
    """Every quotation and each opening of `LEAST_WORDS` words or more, with its exact prior.

    One pass a quotation gives the priors of all its openings; an opening whose own tokens are not those the
    quotation begins with is left out. Texts of the same tokens count once, the first one found.
    """
    whole = [tuple(encode(text)) for text in quotes]
    used = [i for i, ids in enumerate(whole) if ids]
    scored = dict(zip(used, score([whole[i] for i in used]), strict=True)) if used else {}
    found: dict[tuple[int, ...], Candidate] = {}
    for i in used:
        words, total = quotes[i].split(), np.cumsum(np.asarray(scored[i], np.float64))
        for count in range(min(LEAST_WORDS, len(words)), len(words) + 1):
            text = " ".join(words[:count])
            ids = whole[i] if count == len(words) else tuple(encode(text))
            if ids and ids == whole[i][: len(ids)]:
                found.setdefault(ids, Candidate(text, ids, float(np.exp(total[len(ids) - 1]))))
    return list(found.values())


def pick_targets(found: Sequence[Candidate]) -> dict[str, Candidate]:
    """`unseen` and `seen`, the two targets of experiment R1.

    Seen: the candidate of most tokens with a prior in `SEEN`, of equals the one nearest to its geometric
    middle. Unseen: of those below `UNSEEN` (and above 0) the one nearest in length to the seen one, of equals
    the likeliest. Remaining ties go to the first in the list. Raises `InputError` when either is missing.
    """
    low, high = SEEN
    middle = math.sqrt(low * high)
    inside = [c for c in found if low <= c.prior <= high]
    below = [c for c in found if 0.0 < c.prior < UNSEEN]
    if not inside or not below:
        lacking = f"from {low:g} to {high:g}" if not inside else f"below {UNSEEN:g}"
        best = max((c.prior for c in found), default=0.0)
        raise InputError(
            f"none of {len(found)} candidate quotations has a prior {lacking} under this model (the "
            f"likeliest: {best:.2g}); give another --prompt, or a file of --quotes it is likelier to say."
        )
    seen = min(inside, key=lambda c: (-len(c.ids), abs(math.log(c.prior / middle))))
    unseen = min(below, key=lambda c: (abs(len(c.ids) - len(seen.ids)), -c.prior))
    return {"unseen": unseen, "seen": seen}
