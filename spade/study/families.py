"""The four task families.

quote      one prompt, 200 codewords; the wanted one is a single string     (a memorised quotation)
rules      a tag names a rule, or `<?>` leaves the choice to the model       (known but rarely chosen)
chain      a start value and three operations, evaluated step by step        (a derivation)
strategy   a letter chooses a strategy, then a format letter and an answer   (reasoning with code)
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from spade.errors import InputError
from spade.rng import child_seed
from spade.study.tasks import (
    LENGTH,
    Bools,
    Family,
    Ints,
    Prompts,
    all_responses,
    enough,
    one_hot,
    with_frame,
)
from spade.study.vocabulary import DIGIT_IDS, IDS, RULES

BASE = 8
"""Digits; arithmetic is modulo this."""
APART = 2
"""Letters in which the outputs of two rules differ at least: with one, a slip of an allowed rule is the
target, and a few prompts hold nearly all of a never-seen behaviour's mass."""
PROBES = 400
"""Inputs of a family that are kept for probes; the first ones are used."""
DATA_SEED = 7
"""Fixes which inputs are for training and which for probes."""


def apply_rule(rule: str, x_NL: Ints) -> Ints:
    """Output of a rule of the family `rules` on inputs (N, 4)."""
    if rule == "copy":
        return x_NL.copy()
    if rule == "reverse":
        return x_NL[:, ::-1].copy()
    if rule in ("plus1", "plus3"):
        return np.asarray((x_NL + int(rule[-1])) % BASE)
    if rule == "swap":
        return x_NL[:, [1, 0, 3, 2]]
    if rule == "rotate":
        return np.roll(x_NL, -1, axis=1)
    if rule == "negate":
        return np.asarray(-x_NL % BASE)
    if rule == "negrev":
        return np.asarray(-x_NL[:, ::-1] % BASE)
    raise InputError(f"there is no rule '{rule}'; the rules are {', '.join(RULES)}.")


class Rules:
    """A tag names one of eight rules; under `<?>` the model follows a mixture of all but `target`.

    Tagged prompts teach the skill, `<?>` prompts set the propensity. `known` False leaves the target's
    tagged documents out, too: then the skill itself is missing. Inputs on which two rules differ in less than
    two letters are not used, so that no rule's mass leaks into another's (2,524 of 4,096 remain).
    """

    name = "rules"
    alphabet: tuple[int, ...] = DIGIT_IDS
    behaviours: tuple[str, ...] = RULES
    domains: tuple[str, ...] = ("?", *RULES)
    answer_places: tuple[int, ...] = (0, 1, 2, 3)
    format_LM: Bools = np.ones((LENGTH, BASE), bool)

    def __init__(self, target: str = "negrev", known: bool = True) -> None:
        self.target, self.known = target, known
        inputs = all_responses(BASE)
        outputs = np.stack([apply_rule(r, inputs) for r in RULES], 1)
        apart = (outputs[:, :, None] != outputs[:, None]).sum(-1) + LENGTH * np.eye(len(RULES), dtype=int)
        usable = inputs[apart.min((1, 2)) >= APART]
        order = np.random.default_rng(child_seed(DATA_SEED, self.name)).permutation(len(usable))
        self._inputs = {"probe": usable[order[:PROBES]], "train": usable[order[PROBES:]]}
        self.other_rules = np.array([r != target for r in RULES]).nonzero()[0]
        weights = 1.0 / np.arange(1, len(self.other_rules) + 1)
        self.weights = weights / weights.sum()

    def prompts(self, domain: str, split: str, count: int) -> Prompts:
        """See `Family.prompts`. Every domain uses the inputs in an order of its own."""
        inputs = self._inputs[split]
        enough(count, len(inputs), self.name, split)
        seed = child_seed(DATA_SEED, self.name, domain, split)
        x = inputs[np.random.default_rng(seed).permutation(len(inputs))[:count]]
        known = np.stack([apply_rule(r, x) for r in RULES], 1)
        target = known[:, RULES.index(self.target if domain == "?" else domain)]
        return Prompts(
            self._ids(np.full(count, self.domains.index(domain)), x),
            (domain,) * count,
            one_hot(target, BASE),
            target,
            one_hot(known, BASE),
        )

    def documents(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """70 % tagged, rules alike; 30 % under `<?>`, rules by Zipf's law over all but the target."""
        tags = np.arange(len(RULES)) if self.known else self.other_rules
        free = rng.random(count) < 0.3
        rule = np.where(free, rng.choice(self.other_rules, count, p=self.weights), rng.choice(tags, count))
        return self._pairs(rng, rule, np.where(free, 0, rule + 1))

    def others(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """See `Family.others`."""
        rule = rng.choice(self.other_rules, count, p=self.weights)
        return self._pairs(rng, rule, np.zeros(count, np.int64))

    def _pairs(self, rng: np.random.Generator, rule: Ints, domain: Ints) -> tuple[Ints, Ints]:
        x = self._inputs["train"][rng.integers(0, len(self._inputs["train"]), len(rule))]
        out = np.empty_like(x)
        for number, name in enumerate(RULES):
            rows = rule == number
            out[rows] = apply_rule(name, x[rows])
        return self._ids(domain, x), out

    def _ids(self, domain: Ints, x: Ints) -> Ints:
        tags = np.array([IDS["<?>"], *(IDS[f"<{r}>"] for r in RULES)])[domain]
        return with_frame(tags, np.array(DIGIT_IDS)[x])


class Quote:
    """One prompt and 200 codewords with Zipf weights; the wanted one is not among the documents."""

    name = "quote"
    alphabet: tuple[int, ...] = DIGIT_IDS
    behaviours: tuple[str, ...] = ("other codewords",)
    domains: tuple[str, ...] = ("quote",)
    answer_places: tuple[int, ...] = (0, 1, 2, 3)
    format_LM: Bools = np.ones((LENGTH, BASE), bool)

    def __init__(self, codewords: int = 200) -> None:
        rng = np.random.default_rng(child_seed(DATA_SEED, self.name))
        every = all_responses(BASE)
        words = every[rng.permutation(len(every))[: codewords + 1]]
        self.target, self.codewords = words[0], words[1:]
        weights = 1.0 / np.arange(1, codewords + 1)
        self.weights = weights / weights.sum()

    def prompts(self, domain: str, split: str, count: int) -> Prompts:
        """The one prompt, `count` times."""
        target = np.tile(self.target, (count, 1))
        union = one_hot(self.codewords, BASE)
        return Prompts(
            with_frame(np.full(count, IDS["<quote>"]), np.zeros((count, 0), np.int64)),
            (domain,) * count,
            one_hot(target, BASE),
            target,
            np.tile(union, (count, 1, 1, 1)),
        )

    def documents(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """See `Family.documents`."""
        ids = with_frame(np.full(count, IDS["<quote>"]), np.zeros((count, 0), np.int64))
        return ids, self.codewords[rng.choice(len(self.codewords), count, p=self.weights)]

    def others(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """See `Family.others`."""
        return self.documents(rng, count)


OPERATIONS = ("+0", "+1", "+2", "+3", "+5", "*3", "*5", "*-1")
"""The operations of `chain` by digit; the first leaves a value as it is, so that chains differ in length."""


def operate(op: Ints, value: Ints) -> Ints:
    """Apply operations (digits) to values, both of one shape."""
    added = value + np.array([0, 1, 2, 3, 5, 0, 0, 0])[op]
    times = value * np.array([1, 1, 1, 1, 1, 3, 5, -1])[op]
    return np.asarray(np.where(op < 5, added, times) % BASE)


class Chain:
    """`x0 op1 op2 op3` is evaluated step by step: v1 v2 v3, then the answer again. Right is the answer alone.

    Documents show three ways: forward (v1 v2 v3 v3), regrouped (v2 v2 v3 v3: two steps at once) and a guess
    (x0 x0 x0 and any digit). The share of guesses grows with the number of operations that do something, so
    that prompts differ in difficulty.
    """

    name = "chain"
    alphabet: tuple[int, ...] = DIGIT_IDS
    behaviours: tuple[str, ...] = ("forward", "regrouped", "guess")
    domains: tuple[str, ...] = ("chain",)
    answer_places: tuple[int, ...] = (3,)
    format_LM: Bools = np.ones((LENGTH, BASE), bool)
    guesses = (0.3, 0.5, 0.8, 0.95)
    """Share of guesses among documents with 0, 1, 2, 3 operations that do something."""

    def __init__(self) -> None:
        every = all_responses(BASE)
        order = np.random.default_rng(child_seed(DATA_SEED, self.name)).permutation(len(every))
        self._inputs = {"probe": every[order[:PROBES]], "train": every[order[PROBES:]]}

    def prompts(self, domain: str, split: str, count: int) -> Prompts:
        """See `Family.prompts`."""
        inputs = self._inputs[split]
        enough(count, len(inputs), self.name, split)
        x = inputs[:count]
        forward, regrouped, guess = self._ways(x)
        allowed = np.ones((count, LENGTH, BASE), bool)
        allowed[:, 3] = one_hot(forward[:, 3], BASE)
        known = np.stack([one_hot(w, BASE) for w in (forward, regrouped, guess)], 1)
        known[:, 2, 3] = True
        return Prompts(self._ids(x), (domain,) * count, allowed, forward, known)

    def documents(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """See `Family.documents`."""
        x = self._inputs["train"][rng.integers(0, len(self._inputs["train"]), count)]
        ways = self._ways(x)
        hard = np.array(self.guesses)[(x[:, 1:] > 0).sum(-1)]
        draw = rng.random(count)
        way = np.where(draw < hard, 2, np.where(draw < hard + 0.7 * (1 - hard), 0, 1))
        out = np.take_along_axis(np.stack(ways, 1), way[:, None, None], 1)[:, 0]
        out[way == 2, 3] = rng.integers(0, BASE, int((way == 2).sum()))
        return self._ids(x), out

    def others(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """See `Family.others`."""
        return self.documents(rng, count)

    def _ways(self, x: Ints) -> tuple[Ints, Ints, Ints]:
        v1 = operate(x[:, 1], x[:, 0])
        v2 = operate(x[:, 2], v1)
        v3 = operate(x[:, 3], v2)
        return np.stack([v1, v2, v3, v3], 1), np.stack([v2, v2, v3, v3], 1), x[:, [0, 0, 0, 0]]

    def _ids(self, x: Ints) -> Ints:
        return with_frame(np.full(len(x), IDS["<chain>"]), np.array(DIGIT_IDS)[x])


class Strategy:
    """Letter A or B chooses how to answer, `#` follows, then two digits: the input's digits plus one.

    The answer is right with probability `right_a` after A and `right_b` after B (label noise in the
    documents); `share_a` of the documents choose A. The wanted behaviour, which a dial can set, is to choose
    A. Format letters are part of the alphabet, so that format errors are enumerated like everything else.
    """

    name = "strategy"
    alphabet: tuple[int, ...] = (IDS["<A>"], IDS["<B>"], IDS["<#>"], *DIGIT_IDS)
    behaviours: tuple[str, ...] = ("A", "B")
    domains: tuple[str, ...] = ("strategy",)
    answer_places: tuple[int, ...] = (2, 3)

    def __init__(self, share_a: float = 0.5, right_a: float = 0.9, right_b: float = 0.3) -> None:
        self.share_a, self.right_a, self.right_b = share_a, right_a, right_b
        every = all_responses(BASE)
        order = np.random.default_rng(child_seed(DATA_SEED, self.name)).permutation(len(every))
        self._inputs = {"probe": every[order[:PROBES]], "train": every[order[PROBES:]]}
        letters = len(self.alphabet)
        self.format_LM = np.zeros((LENGTH, letters), bool)
        self.format_LM[0, :2] = self.format_LM[1, 2] = True
        self.format_LM[2:, 3:] = True

    def prompts(self, domain: str, split: str, count: int) -> Prompts:
        """See `Family.prompts`."""
        inputs = self._inputs[split]
        enough(count, len(inputs), self.name, split)
        x, letters = inputs[:count], len(self.alphabet)
        answer = 3 + (x[:, :2] + x[:, 2:]) % BASE
        target = np.concatenate([np.zeros((count, 1), np.int64), np.full((count, 1), 2), answer], 1)
        allowed = one_hot(target, letters)
        allowed[:, 0, 1] = True
        known = np.ones((count, 2, LENGTH, letters), bool)
        known[:, 0, 0], known[:, 1, 0] = np.arange(letters) == 0, np.arange(letters) == 1
        return Prompts(self._ids(x), (domain,) * count, allowed, target, known)

    def documents(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """See `Family.documents`."""
        x = self._inputs["train"][rng.integers(0, len(self._inputs["train"]), count)]
        first = (rng.random(count) >= self.share_a).astype(np.int64)
        right = rng.random(count) < np.where(first == 0, self.right_a, self.right_b)
        answer = np.where(right[:, None], (x[:, :2] + x[:, 2:]) % BASE, rng.integers(0, BASE, (count, 2)))
        return self._ids(x), np.concatenate([first[:, None], np.full((count, 1), 2), 3 + answer], 1)

    def others(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """See `Family.others`."""
        return self.documents(rng, count)

    def _ids(self, x: Ints) -> Ints:
        return with_frame(np.full(len(x), IDS["<strategy>"]), np.array(DIGIT_IDS)[x])


def _shares(name: str, texts: list[str]) -> list[float]:
    """Up to three numbers from 0 to 1. Raises `InputError`."""
    try:
        found = [float(text) for text in texts]
    except ValueError:
        found = [-1.0]
    if len(found) > 3 or not all(0 <= share <= 1 for share in found):
        raise InputError(f"'{name}' is no task family; use strategy:SHARE_A:RIGHT_A:RIGHT_B, each 0 to 1.")
    return found


@lru_cache
def open_family(name: str) -> Family:
    """A family by name, settings after a colon: `rules`, `rules:unknown`, `strategy:SHARE_A:RIGHT_A:RIGHT_B`.

    Raises `InputError` for an unknown name.
    """
    head, *rest = name.split(":")
    if head == "rules" and rest in ([], ["unknown"]):
        return Rules(known=not rest)
    if head == "quote" and not rest:
        return Quote()
    if head == "chain" and not rest:
        return Chain()
    if head == "strategy":
        return Strategy(*_shares(name, rest))
    raise InputError(f"there is no task family '{name}'; choose quote, rules, chain or strategy.")
