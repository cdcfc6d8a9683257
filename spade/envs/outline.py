"""What a program is, in a few lines: contract, mechanics, texts. For briefs without room for code."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

MAX_TEXT = 200
"""Characters of one text or expression that is quoted."""
MIN_WORDS = 3
"""Shorter texts are pieces of sentences."""
_DRAWS_TEXT = "choice choices gauss randint random randrange sample shuffle uniform"
_DRAWS = frozenset(_DRAWS_TEXT.split())
_TESTS_TEXT = "startswith endswith search match fullmatch findall removeprefix"
_TESTS = frozenset(_TESTS_TEXT.split())


def outline(code: str) -> str:
    """Contract, mechanics and texts of a program, most telling lines first; empty if it does not parse."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    lines: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            lines += _class_lines(node)
    for name, found in (("draws", _draws(tree)), ("actions", _actions(tree)), ("state", _state(tree))):
        if found:
            lines.append(f"{name}: {', '.join(found)}"[: 2 * MAX_TEXT])
    lines += [f"text: {t}" for t in dict.fromkeys(_texts(tree))]
    return "\n".join(lines)


def _class_lines(node: ast.ClassDef) -> list[str]:
    bases = ", ".join(ast.unparse(b) for b in node.bases)
    name = f"{node.name}({bases})" if bases else node.name
    text = " ".join((ast.get_docstring(node) or "").split())[:MAX_TEXT]
    methods = [m.name for m in node.body if isinstance(m, ast.FunctionDef)]
    settings = [
        f"{target.id} {ast.unparse(statement.value)}"
        for statement in node.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name) and target.id in ("game_type", "max_turns")
    ]
    return [f"class {name}: {text}".rstrip(": "), "; ".join([*settings, f"methods: {', '.join(methods)}"])]


def _draws(tree: ast.AST) -> list[str]:
    """The random choices an instance is made of."""
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    found = (
        f"{n.func.attr}({', '.join(ast.unparse(a) for a in n.args)})"[:MAX_TEXT]
        for n in calls
        if isinstance(n.func, ast.Attribute) and n.func.attr in _DRAWS
    )
    return list(dict.fromkeys(found))


def _actions(tree: ast.AST) -> list[str]:
    """Words and patterns an action is compared with in `step`, or the names of the tools."""
    found: list[str] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        if node.name.startswith("tool_"):
            arguments = ", ".join(a.arg for a in node.args.args[1:])
            found.append(f"{node.name.removeprefix('tool_')}({arguments})")
        elif node.name == "step":
            found += _compared(node)
    return [t for t in dict.fromkeys(found) if t.strip() and "boxed" not in t]


def _compared(step: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(step):
        if isinstance(node, ast.Compare):
            parts: Sequence[ast.expr] = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _TESTS:
            parts = node.args[:1]
        else:
            continue
        for part in parts:
            items = part.elts if isinstance(part, ast.Tuple | ast.List | ast.Set) else [part]
            yield from (i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str))


def _state(tree: ast.AST) -> list[str]:
    """Attributes the program keeps."""
    found = (
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and isinstance(n.value, ast.Name)
    )
    return list(dict.fromkeys(found))


def _texts(tree: ast.AST) -> Iterator[str]:
    """What the player reads; holes of f-strings in braces. Docstrings are left out."""
    skipped = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(n) for n in ast.walk(node) if n is not node}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(_piece(v) for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        text = " ".join(text.split())
        if len(text.split()) >= MIN_WORDS:
            yield text[:MAX_TEXT]


def _piece(value: ast.expr) -> str:
    if isinstance(value, ast.FormattedValue):
        return "{" + ast.unparse(value.value) + "}"
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
