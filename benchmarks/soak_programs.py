"""Programs for the soak: good, broken and hostile ones of many kinds, numbered so that no two are equal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

GAME = """
import random
import re

NUMBER = @


class SoakEnv:
    max_turns = 3

    def reset(self, seed=None):
        self.turn = 0
        rng = random.Random(seed)
        RESET

    def step(self, action):
        self.turn += 1
        box = re.search(r"\\\\boxed\\{([^{}]*)\\}", action)
        won = box is not None and box.group(1).strip() == self.answer
        STEP

    def solution(self):
        return self.answer
"""
ANSWER = 'return ("Right." if won else "Wrong."), float(won), won, not won and self.turn >= 3, {}'
SUM = """a, b = rng.sample(range(10_000, 99_999), 2)
        self.answer = str(a + b + NUMBER)
        return f"What do {a}, {b} and {NUMBER} make together? Answer in \\\\boxed{{}}.", {}"""
CODE = """text = "".join(rng.choice("bcdfghjklm") for _ in range(8))
        self.answer = "".join(chr(ord(c) + 1) for c in text[::-1])
        return f"Puzzle {NUMBER}: reverse {text}, move each letter on by one. Answer in \\\\boxed{{}}.", {}"""
TERM = """first, gap, ahead = rng.randint(100, 999), rng.randint(11, 99), rng.randint(5, 50)
        self.answer = str(first + NUMBER + gap * ahead)
        return f"From {first + NUMBER}, add {gap} exactly {ahead} times. Answer in \\\\boxed{{}}.", {}"""
LIFE = """
import random, re, time, math, os, sys

class OddEnv:
    number = @
    max_turns = 2
    def reset(self, seed=None):
        RESET
        return "go", {}
    def step(self, action):
        STEP
        return "on", 0.0, False, False, {}
    def solution(self):
        return "x"
"""

SWALLOW = "while True:\n            try: 1 / 0\n            except BaseException: pass"
ODD = "raise type('E', (Exception,), {'__str__': lambda s: os._exit(1)})()"
DEEP = "sys.setrecursionlimit(10**9); f = lambda: f(); f()"
LIMIT = {"cpu_limit", "wall_limit"}
"""On a busy machine the limit of wall time may come first."""
REFUSED = {"exception", "policy", "import_refused"}


def game(reset: str = SUM, step: str = ANSWER) -> str:
    """A program that is good unless the lines given here are not."""
    return GAME.replace("RESET", reset).replace("STEP", step)


def life(step: str = "pass", reset: str = "pass", head: str = "") -> str:
    """A program that does something odd in `step`, in `reset`, or when it is loaded."""
    return head + LIFE.replace("RESET", reset).replace("STEP", step)


GOOD = {"sum": game(SUM), "code": game(CODE), "term": game(TERM)}
BROKEN = {
    "syntax": "class BadEnv(:\n    number = @\n",
    "import": "import socket\n" + game(),
    "no class": "number = @\n",
    "raises in step": game(step="raise ValueError(NUMBER)"),
    "raises in reset": game("raise KeyError(NUMBER)"),
    "wrong shape": game(step="return 'on'"),
    "unsolvable": game(
        step=ANSWER.replace("won else", "False else").replace("float(won), won", "0.0, False")
    ),
    "always pays": game(step="return 'Fine.', 1.0, True, False, {}"),
    "pays too much": game(step=ANSWER.replace("float(won)", "2.0 * won")),
    "not a number": game(step=ANSWER.replace("float(won)", "float('nan')")),
    "ignores the seed": game(SUM.replace("rng.sample(range(10_000, 99_999), 2)", "4_178, 3_003")),
    "shows the answer": game(SUM.replace("Answer in", "It is {self.answer}. Answer in")),
    "other seeds": game(SUM.replace("rng.sample", "random.SystemRandom().sample")),
    "never ends": game(step=ANSWER.replace("self.turn >= 3", "False")),
    "chat markup": game(SUM.replace("What do", "<|im_end|> What do")),
}
HOSTILE: dict[str, tuple[str, set[str]]] = {
    "loop": (life("while True: pass"), LIMIT),
    "loop in reset": (life(reset="while True: pass"), LIMIT),
    "loop at import": (life(head="while True: pass\n"), LIMIT),
    "loop that swallows": (life(SWALLOW), LIMIT),
    "regex": (life("re.match(r'(a+)+$', 'a' * 60 + 'b')"), LIMIT),
    "power": (life("x = 3 ** (10 ** 8)"), LIMIT | {"memory"}),
    "memory list": (life("x = [0] * 10 ** 9"), {"memory"}),
    "memory text": (life(head="x = 'x' * 10 ** 10\n"), {"memory"}),
    "memory slowly": (life("x = [1]\n        while True: x = x + x"), {"memory"} | LIMIT),
    "recursion": (life("f = lambda: f(); f()"), {"exception"}),
    "deep recursion": (life(DEEP), {"crash", "memory"} | LIMIT),
    "exit": (life("os._exit(0)"), {"crash"}),
    "exit at import": (life(head="import os; os._exit(3)\n"), {"crash"}),
    "abort": (life("os.abort()"), {"crash", "policy"}),
    "sys.exit": (life("sys.exit(0)"), {"exception"}),
    "interrupt": (life("raise KeyboardInterrupt"), {"exception"}),
    "fork": (life("os.fork()"), REFUSED),
    "shell": (life("os.system('true')"), REFUSED | {"harmless"}),
    "thread": (life("import _thread; _thread.start_new_thread(print, ())"), REFUSED),
    "kill": (life("os.kill(-1, 9)"), REFUSED),
    "write": (life("open('/tmp/spade_soak', 'w')"), REFUSED),
    "temporary": (life("os.mkdir('/tmp/spade_soak')"), REFUSED),
    "read": (life("open('/etc/passwd').read()"), REFUSED),
    "list": (life("os.listdir('/')"), REFUSED),
    "socket": (life("import socket; socket.socket()"), REFUSED),
    "flood of output": (life("print('x' * 10 ** 6)"), {"harmless"}),
    "bad frame": (life("os.write(3, b'x' * 100)"), {"protocol"}),
    "flood of frames": (life("while True: os.write(3, b'\\0\\0\\0\\2{}')"), {"protocol"} | LIMIT),
    "half a frame": (life("os.write(3, b'\\0\\0'); os._exit(0)"), {"crash", "protocol"}),
    "closed channel": (life("os.close(3)"), {"crash", "protocol"}),
    "long observation": (life("return 'x' * 10 ** 7, 0.0, False, False, {}"), {"harmless"}),
    "surrogates": (life("return '\\ud800' * 1000, 0.0, False, False, {}"), {"harmless"}),
    "huge reward": (life("return 'x', 10 ** 400, False, False, {}"), {"contract"}),
    "text of its own": (life("return type('T', (str,), {})('x'), 0.0, False, False, {}"), {"contract"}),
    "hostile exception": (life(ODD), {"exception"}),
    "patched random": (life("random.Random = None; random.seed = None"), {"harmless"}),
}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """One program of the soak and what may become of it."""

    kind: str
    """`good`, `broken` or `hostile`, and a name."""
    code: str
    allowed: frozenset[str] | None = None
    """Outcomes of a hostile program; None = any."""

    @property
    def validated(self) -> bool:
        """Whether it goes through the validator; hostile programs are played directly."""
        return not self.kind.startswith("hostile")


def shared_cases(folder: Path) -> Iterator[Callable[[], Sample]]:
    """Programs of a folder of cases with manifests, each as a function that makes its sample."""
    for kind in ("hostile", "planted"):
        manifest = folder / kind / "manifest.json"
        for row in json.loads(manifest.read_text()) if manifest.is_file() else []:
            group = {"accept": "good", "reject": "broken"}.get(row["expect"], "hostile")
            path = folder / kind / row["file"]
            yield lambda g=group, p=path: Sample(f"{g} case {p.stem}", p.read_text())


def samples(folder: Path | None) -> Iterator[Sample]:
    """Endless: a quarter good, a quarter broken, half hostile; one in sixteen from `folder` if given."""
    good, broken, hostile = cycle(GOOD.items()), cycle(BROKEN.items()), cycle(HOSTILE.items())
    cases = cycle(list(shared_cases(folder))) if folder is not None else None
    number = 0
    while True:
        number += 1
        if cases is not None and number % 16 == 0:
            yield next(cases)()
        elif number % 4 == 0:
            name, code = next(good)
            yield Sample(f"good {name}", code.replace("@", str(1000 + number)))
        elif number % 4 == 2:
            name, code = next(broken)
            yield Sample(f"broken {name}", code.replace("@", str(1000 + number)))
        else:
            name, (code, allowed) = next(hostile)
            yield Sample(f"hostile {name}", code.replace("@", str(number)), frozenset(allowed))
