"""Players that know the rules of a game and see its observations only: proof that skill wins.

Each keeps the hidden settings that fit what was seen, and asks what splits them best. Rules are those of the
program itself (how a circuit or a mirror works), its hidden state never is.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from math import log2
from typing import Any, TypeVar

C = TypeVar("C")
P = TypeVar("P")
SAMPLE = 300
"""Candidates that a question is judged on."""


def ask_and_answer(
    env: Any,
    candidates: list[C],
    probes: Sequence[P],
    outcome: Callable[[C, P], Any],
    say: Callable[[P], str],
    read: Callable[[str], Any],
    finish: Callable[[C], str],
) -> float:
    """Ask the most telling question until one candidate is left or the turns run out; then say it."""
    rng = random.Random(0)
    while len(candidates) > 1 and env.turn < env.max_turns - 1:
        some = candidates if len(candidates) <= SAMPLE else rng.sample(candidates, SAMPLE)
        best = max(probes, key=lambda p: entropy([outcome(c, p) for c in some]))
        seen = read(env.step(f"\\boxed{{{say(best)}}}")[0])
        candidates = [c for c in candidates if outcome(c, best) == seen]
    _, reward, terminated, _, _ = env.step(f"\\boxed{{{finish(candidates[0])}}}")
    assert terminated
    return float(reward)


def entropy(outcomes: Sequence[Any]) -> float:
    shares = [n / len(outcomes) for n in Counter(outcomes).values()]
    return -sum(p * log2(p) for p in shares)


def gate_array(env: Any, rules: dict[str, Any]) -> float:
    feeds = list(itertools.product((0, 1), repeat=rules["WIRES"]))
    tables = {}
    for kinds in itertools.product(rules["KINDS"], repeat=rules["GATES"]):
        tables.setdefault(tuple(env.lamp(kinds, f) for f in feeds), kinds)
    return ask_and_answer(
        env,
        list(tables),
        range(len(feeds)),
        lambda table, k: table[k],
        lambda k: "feed " + "".join(map(str, feeds[k])),
        lambda text: int("lamp on" in text),
        lambda table: "gates " + " ".join(tables[table]),
    )


def door_policy(env: Any, rules: dict[str, Any]) -> float:
    sets = list(itertools.combinations(range(rules["LISTED"]), rules["ACTIVE"]))
    return ask_and_answer(
        env,
        sets,
        list(itertools.product(*rules["GUEST"].values())),
        lambda active, guest: env.admits(guest, active),
        lambda guest: "send " + " ".join(guest),
        lambda text: "admitted" in text,
        lambda active: "rules " + " ".join(str(k + 1) for k in active),
    )


def sapper_row(env: Any, rules: dict[str, Any]) -> float:
    cells = range(1, rules["CELLS"] + 1)
    return ask_and_answer(
        env,
        list(itertools.combinations(cells, len(env.charges))),  # their number is told
        cells,
        lambda charges, k: sum(abs(k - c) <= 1 for c in charges),
        lambda k: f"probe {k}",
        lambda text: int(re.findall(r": (\d)", text)[0]),
        lambda charges: "mark " + " ".join(map(str, charges)),
    )


def mirror_box(env: Any, rules: dict[str, Any]) -> float:
    side = range(1, rules["SIZE"] + 1)
    boxes = [{cell: kind} for cell in itertools.product(side, side) for kind in "/\\"]
    words = {"/": "rising", "\\": "falling"}
    return ask_and_answer(
        env,
        boxes,
        [(s, k) for s in rules["MOVES"] for k in side],
        lambda box, ray: env.trace(box, *ray),
        lambda ray: f"ray {ray[0]} {ray[1]}",
        lambda text: (lambda m: (m[1], int(m[2])))(re.search(r"at the (\w+), \w+ (\d)", text)),
        lambda box: "mirrors " + ", ".join(f"{r} {c} {words[k]}" for (r, c), k in box.items()),
    )


def wilting_orchid(env: Any, rules: dict[str, Any]) -> float:
    shown, needed = rules["SHOWN"], rules["NEEDED"]
    diary = [(re.findall(r"[a-z]+", n), r) for n, r in re.findall(r"([a-z, ]+): (bloomed|wilted)", env.said)]

    def blooms(candidate: tuple[tuple[str, ...], str], pot: Sequence[str]) -> bool:
        return set(candidate[0]) <= set(pot) and candidate[1] not in pot

    every = [(n, b) for n in itertools.combinations(shown, needed) for b in shown if b not in n]
    every = [c for c in every if all(blooms(c, pot) == (r == "bloomed") for pot, r in diary)]
    pots = [p for size in range(needed, len(shown)) for p in itertools.combinations(shown, size)]
    return ask_and_answer(
        env,
        every,
        pots,
        blooms,
        lambda pot: "pot " + " ".join(pot),
        lambda text: "it blooms" in text,
        lambda c: f"needs {' '.join(c[0])} bane {c[1]}",
    )


def tariff(env: Any, rules: dict[str, Any]) -> float:
    """Level 1: two quotes give the line."""
    first, second = (
        int(re.findall(r": (\d+) crowns", env.step(f"\\boxed{{quote {n}}}")[0])[0]) for n in (1, 2)
    )
    crates = int(re.findall(r"what (\d+) crates", env.said)[0])
    return float(env.step(f"\\boxed{{price {first + (crates - 1) * (second - first)}}}")[1])


def bead_rows(env: Any, rules: dict[str, Any]) -> float:
    trays = {1: (4, 5, 7), 2: (9, 11, 13), 3: (16, 25, 27)}[rules["LEVEL"]]
    over = [int(re.findall(r", (\d+) left over", env.step(f"\\boxed{{rows {k}}}")[0])[0]) for k in trays]
    fits = [
        n for n in range(1, rules["MOST"] + 1) if all(n % k == o for k, o in zip(trays, over, strict=True))
    ]
    return float(env.step(f"\\boxed{{beads {fits[0]}}}")[1])


def island_bridges(env: Any, rules: dict[str, Any]) -> float:
    """All mayors but one, then the cheapest bridge between two groups, again and again."""
    price = {}
    for name in rules["ISLANDS"][:-1]:
        text = env.step(f"\\boxed{{mayor {name}}}")[0]
        price |= {"".join(sorted(name + to)): int(n) for to, n in re.findall(r"to ([A-Z]) (\d+)", text)}
    group = {name: name for name in rules["ISLANDS"]}
    reward = 0.0
    for pair in sorted(price, key=price.__getitem__):
        a, b = group[pair[0]], group[pair[1]]
        if a != b:
            group = {name: a if g == b else g for name, g in group.items()}
            reward = env.step(f"\\boxed{{build {pair}}}")[1]
    return float(reward)


PLAYERS: dict[str, tuple[Callable[[Any, dict[str, Any]], float], tuple[int, ...]]] = {
    "gate_array": (gate_array, (1, 2)),
    "door_policy": (door_policy, (1, 2)),
    "sapper_row": (sapper_row, (1, 2, 3)),
    "mirror_box": (mirror_box, (1,)),
    "wilting_orchid": (wilting_orchid, (1,)),
    "tariff": (tariff, (1,)),
    "bead_rows": (bead_rows, (1, 2, 3)),
    "island_bridges": (island_bridges, (1, 2, 3)),
}
"""Program -> player, and the levels it is for."""
