"""When two programs are the same game: a canonical text of the code, and an index of known programs."""

from __future__ import annotations

import ast
import builtins
import hashlib
import keyword
from collections import OrderedDict
from typing import Any

from spade.types import EnvProgram

SHINGLE = 5
"""Tokens per shingle of the near-duplicate measure."""
_KEPT = frozenset(dir(builtins)) | frozenset(keyword.kwlist)
_CONTRACT_NAMES_TEXT = "reset step solution hint close self max_turns game_type seed action"
_CONTRACT_NAMES = frozenset(_CONTRACT_NAMES_TEXT.split())


class _Normalise(ast.NodeTransformer):
    """Drops docstrings and annotations, renames the program's own identifiers in order of appearance."""

    def __init__(self, own: frozenset[str], blank: bool) -> None:
        self.own = own
        self.blank = blank
        self.names: dict[str, str] = {}

    def _name(self, name: str) -> str:
        if name not in self.own:
            return name
        return self.names.setdefault(name, f"v{len(self.names)}")

    def _body(self, node: Any) -> Any:
        body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        node.body = body or [ast.Pass()]
        return self.generic_visit(node)

    visit_Module = _body

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        node.name = self._name(node.name)
        return self._body(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.name, node.returns = self._name(node.name), None
        return self._body(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        value = node.value or ast.Constant(value=None)
        return self.visit(ast.copy_location(ast.Assign(targets=[node.target], value=value), node))

    def visit_arg(self, node: ast.arg) -> Any:
        node.arg, node.annotation = self._name(node.arg), None
        return node

    def visit_keyword(self, node: ast.keyword) -> Any:
        if node.arg is not None:
            node.arg = self._name(node.arg)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        node.id = self._name(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        node.attr = self._name(node.attr)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> Any:
        if self.blank and not isinstance(node.value, bool) and node.value is not None:
            return ast.Constant(value=type(node.value).__name__)
        return node


def _own_names(tree: ast.Module) -> frozenset[str]:
    """Identifiers the program itself binds: assigned names, attributes, functions, classes, arguments."""
    own: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own.add(node.attr)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            own.add(node.name)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
    return frozenset(own - _KEPT - _CONTRACT_NAMES)


def _normalised(code: str, blank: bool) -> str:
    try:
        tree = ast.parse(code)
        return ast.unparse(ast.fix_missing_locations(_Normalise(_own_names(tree), blank).visit(tree)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code  # not a program: it is only equal to itself


def canonical(code: str) -> str:
    """The code without comments, docstrings, annotations, layout; own identifiers renamed, constants kept."""
    return _normalised(code, blank=False)


def skeleton(code: str) -> str:
    """`canonical` with constants blanked too: the family a program belongs to."""
    return _normalised(code, blank=True)


def fingerprint(code: str) -> str:
    """SHA-256 of the canonical text."""
    return hashlib.sha256(canonical(code).encode("utf-8", "surrogatepass")).hexdigest()


def shingles(code: str) -> frozenset[int]:
    """Hashes of all runs of `SHINGLE` tokens of the canonical text."""
    tokens = canonical(code).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    runs = {" ".join(tokens[i : i + SHINGLE]) for i in range(max(1, len(tokens) - SHINGLE + 1))}
    digests = (hashlib.blake2b(r.encode("utf-8", "surrogatepass"), digest_size=8).digest() for r in runs)
    return frozenset(int.from_bytes(d, "big") for d in digests)


def similarity(a: frozenset[str], b: frozenset[str]) -> float:
    """Jaccard similarity of two sets; 0 for an empty one."""
    return len(a & b) / len(a | b) if a and b else 0.0


class NoveltyIndex:
    """Known programs. A twin has the same canonical text; with a `threshold` also one with nearly the same.

    `threshold` is the Jaccard similarity of token shingles from which on programs count as twins (None: only
    equal ones). A lookalike has nearly the same sketch (`spade.envs.duplicates`). `capacity` programs are
    remembered; the oldest leaves first.
    """

    def __init__(self, threshold: float | None = None, capacity: int = 100_000) -> None:
        self.threshold = threshold
        self.capacity = capacity
        self._ids: OrderedDict[str, str] = OrderedDict()  # fingerprint to program id
        self._shingles: dict[str, frozenset[int]] = {}
        self._sketches: dict[str, frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, program: EnvProgram, sketch: str = "") -> None:
        """Remember a program, and its verdict's sketch if there is one."""
        key = fingerprint(program.code)
        self._ids[key] = program.id
        if sketch:
            self._sketches[key] = frozenset(sketch.split(","))
        if self.threshold is not None:
            self._shingles[key] = shingles(program.code)
        while len(self._ids) > self.capacity:
            oldest, _ = self._ids.popitem(last=False)
            self._shingles.pop(oldest, None)
            self._sketches.pop(oldest, None)

    def twin_of(self, program: EnvProgram) -> str | None:
        """Id of a known program that is the same game, or None."""
        if (known := self._ids.get(fingerprint(program.code))) is not None:
            return known
        if self.threshold is None:
            return None
        mine = shingles(program.code)
        for key, theirs in self._shingles.items():
            if len(mine & theirs) >= self.threshold * len(mine | theirs):
                return self._ids[key]
        return None

    def lookalike(self, sketch: str, threshold: float = 1.0, besides: str = "") -> str | None:
        """Id of a known program (not `besides`) whose sketch is at least `threshold` similar, or None."""
        mine = frozenset(sketch.split(",")) - {""}
        for key, theirs in self._sketches.items():
            if similarity(mine, theirs) >= threshold and self._ids[key] != besides:
                return self._ids[key]
        return None

    def state_dict(self) -> dict[str, Any]:
        """JSON-able state."""
        return {
            "ids": dict(self._ids),
            "shingles": {k: sorted(v) for k, v in self._shingles.items()},
            "sketches": {k: ",".join(sorted(v)) for k, v in self._sketches.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self._ids = OrderedDict(state["ids"])
        self._shingles = {k: frozenset(v) for k, v in state["shingles"].items()}
        self._sketches = {k: frozenset(v.split(",")) for k, v in state.get("sketches", {}).items()}
