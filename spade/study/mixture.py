"""What the training documents say, as an exact distribution: the reference of the coverage profile."""

from __future__ import annotations

import numpy as np

from spade.study.families import BASE, Chain, Quote, Rules, Strategy
from spade.study.tasks import LENGTH, Family, Floats, Ints, Prompts
from spade.study.vocabulary import DIGIT_IDS


def training_mixture(family: Family, prompts: Prompts) -> Floats | None:
    """Probability of every response among the documents of a family's first domain, (B, M^L).

    `prompts` are of that domain. None for a family that has no documents of its own.
    """
    if isinstance(family, Rules):
        return _rules(family, prompts)
    if isinstance(family, Quote):
        words = np.tile(family.codewords, (len(prompts), 1, 1))
        return _scattered(words, np.tile(family.weights, (len(prompts), 1)), BASE)
    if isinstance(family, Chain):
        return _chain(family, prompts)
    if isinstance(family, Strategy):
        return _strategy(family, prompts)
    return None


def _scattered(responses_BKL: Ints, weights_BK: Floats, letters: int) -> Floats:
    """Weights of listed responses, added up where a response is listed twice."""
    powers = letters ** np.arange(LENGTH)[::-1]
    at = (responses_BKL * powers).sum(-1)
    out = np.zeros((len(at), letters**LENGTH))
    np.add.at(out, (np.arange(len(at))[:, None], at), weights_BK)
    return out


def _rules(family: Rules, prompts: Prompts) -> Floats:
    known = prompts.known_BKLM.argmax(-1)[:, family.other_rules]
    return _scattered(known, np.tile(family.weights, (len(prompts), 1)), BASE)


def _chain(family: Chain, prompts: Prompts) -> Floats:
    known = prompts.known_BKLM.argmax(-1)
    x = prompts.ids_BP[:, 2:-1] - DIGIT_IDS[0]
    guessed = np.array(family.guesses)[(x[:, 1:] > 0).sum(-1)]
    guess = np.repeat(known[:, 2:], BASE, 1)
    guess[:, :, -1] = np.arange(BASE)
    share = np.stack([0.7 * (1 - guessed), 0.3 * (1 - guessed), *[guessed / BASE] * BASE], 1)
    return _scattered(np.concatenate([known[:, :2], guess], 1), share, BASE)


def _strategy(family: Strategy, prompts: Prompts) -> Floats:
    letters = len(family.alphabet)
    pairs = 3 + np.indices((BASE, BASE)).reshape(2, -1).T
    right = (prompts.target_BL[:, None, 2:] == pairs).all(-1)
    parts, weights = [], []
    for first, (share, hits) in enumerate(
        ((family.share_a, family.right_a), (1 - family.share_a, family.right_b))
    ):
        head = np.tile([first, 2], (len(pairs), 1))
        parts.append(np.concatenate([head, pairs], 1))
        weights.append(share * (hits * right + (1 - hits) / len(pairs)))
    responses = np.tile(np.concatenate(parts), (len(prompts), 1, 1))
    return _scattered(responses, np.concatenate(weights, 1), letters)
