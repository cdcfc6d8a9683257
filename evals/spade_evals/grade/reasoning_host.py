"""Hosts `reasoning_gym` in a process of its own (`spade_evals.hosting`): makes items, and scores answers with
each dataset's scorer.

A separate process, because the library reseeds the global generators, hangs on some answers, and its scorers
hand model text to `eval` and to sympy's parser, which is `eval` too. Here both are replaced before anything
is scored: text is read as a literal or as an arithmetic expression, never run.

    {"op": "version"}                                                      ─►  {"version": "0.1.25"}
    {"op": "score", "task": ..., "config": ..., "entry": ..., "answer": ...}  ─►  {"score": 0.25}
    {"op": "make", "task": ..., "config": ..., "seed": 0, "size": 8}         ─►  {"entries": [...]}
"""

from __future__ import annotations

import ast
import builtins
import io
import json
import math
import random
import sys
import tokenize
from collections.abc import Callable, Mapping
from typing import Any

from spade_evals.hosting.serve import serve

MEMORY = 4 << 30
"""Address space of this process in bytes: an answer that makes a scorer build a huge list ends there."""

TUPLES = ("arc_agi", "rearc")
"""Datasets that compare a board with tuples, which JSON turned into lists."""

_ARITHMETIC = (
    ast.Expression,
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.UnaryOp,
    ast.BinOp,
    ast.unaryop,
    ast.operator,
    ast.Load,
)
_OPERATORS = frozenset(("+", "-", "*", "/", "//", "%", "**", "^", "(", ")", ",", "!"))
_FUNCTIONS = frozenset(
    word
    for line in (
        "Abs abs sqrt cbrt root exp log ln pow Pow Add Mul Rational Integer Float max min Max Min pi E I oo",
        "sin cos tan cot sec csc asin acos atan acot asec acsc sinh cosh tanh coth asinh acosh atanh acoth",
        "sign floor ceiling factorial binomial erf erfc",
    )
    for word in line.split()
)
"""Names an expression may take from sympy or the built-ins. Any name that they do not know is a variable."""


def literal(text: str, *_: Any) -> Any:
    """In place of `eval`: constants, containers, arithmetic on them. Raises ValueError for anything else."""
    tree = ast.parse(text.strip(), mode="eval")
    bad = next((node for node in ast.walk(tree) if not isinstance(node, _ARITHMETIC)), None)
    if bad is not None:
        raise ValueError(f"{type(bad).__name__} in an answer is not evaluated")
    return builtins.eval(compile(tree, "<answer>", "eval"), {"__builtins__": {}})


def check_expression(text: str, variables: Mapping[str, Any], known: frozenset[str]) -> None:
    """Raise ValueError unless `text` is plain mathematics: numbers, operators, variables, known functions.

    `known` are the names that sympy's parser would resolve.
    """
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind, word = token.type, token.string
        if kind == tokenize.NAME:
            fine = word in variables or word in _FUNCTIONS or word not in known
        elif kind in (tokenize.OP, tokenize.ERRORTOKEN):
            fine = word in _OPERATORS or not word.strip()
        else:
            fine = kind in (tokenize.NUMBER, tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER)
        if not fine:
            raise ValueError(f"{word!r} in an expression is not evaluated")


def _disarm() -> dict[str, Any]:
    """Import the library with `eval` and sympy's parser replaced; its table of datasets."""
    import keyword

    import sympy  # type: ignore[import-untyped]
    from sympy.parsing import sympy_parser  # type: ignore[import-untyped]

    parse = sympy_parser.parse_expr
    known = frozenset({*vars(sympy), *vars(builtins), *keyword.kwlist})

    def parse_expr(s: str, local_dict: Mapping[str, Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        check_expression(s, local_dict or {}, known)
        return parse(s, local_dict, *args, **kwargs)

    sympy.parse_expr = sympy_parser.parse_expr = parse_expr
    import reasoning_gym.factory

    for name, module in list(sys.modules.items()):
        if name.startswith("reasoning_gym"):
            vars(module)["eval"] = literal
    return dict(reasoning_gym.factory.DATASETS)


class Host:
    """The operations; one instance serves the whole process."""

    def __init__(self) -> None:
        self.known = _disarm()
        self.datasets: dict[str, Any] = {}
        self.operations: dict[str, Callable[..., dict[str, Any]]] = {
            "version": self.version,
            "score": self.score,
            "make": self.make,
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request. Raises what the library raises."""
        return self.operations[request.pop("op")](**request)

    def dataset(self, task: str, config: dict[str, Any], **more: int) -> Any:
        """The dataset of a task under a config, made once."""
        import reasoning_gym

        key = json.dumps([task, config, more], sort_keys=True)
        if key not in self.datasets:
            self.datasets[key] = reasoning_gym.create_dataset(task, **{**config, **more})
        return self.datasets[key]

    def version(self) -> dict[str, Any]:
        """Version of the library."""
        from importlib.metadata import version

        return {"version": version("reasoning_gym")}

    def score(self, task: str, config: dict[str, Any], entry: dict[str, Any], answer: str) -> dict[str, Any]:
        """The raw score of an answer, between 0 and 1."""
        if task in TUPLES:
            entry["metadata"]["output"] = tuple(tuple(row) for row in entry["metadata"]["output"])
        score = float(self.dataset(task, config, seed=0).score_answer(answer, entry))
        if not math.isfinite(score):
            raise ValueError(f"the scorer of {task} gave {score}")
        return {"score": score}

    def make(self, task: str, config: dict[str, Any], seed: int, size: int) -> dict[str, Any]:
        """`size` entries of a task. The global generator is seeded first: some datasets draw from it."""
        random.seed(f"{task} {seed}")
        dataset = self.dataset(task, config, seed=seed, size=size)
        return {"entries": [dataset[i] for i in range(size)]}


if __name__ == "__main__":
    serve(lambda: Host().answer, memory=MEMORY)
