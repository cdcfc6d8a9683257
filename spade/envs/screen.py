"""Static screen: cheap, clear feedback about a program's text. It is not a boundary; the sandbox is."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence

from spade.envs.contract import allowed_modules

_FORBIDDEN_NAMES_TEXT = (
    "eval exec compile open input breakpoint exit quit globals locals vars memoryview __import__ "
    "__builtins__ __loader__ __spec__ __file__"
)
FORBIDDEN_NAMES = frozenset(_FORBIDDEN_NAMES_TEXT.split())
_COMMON_NAMES = frozenset(["open", "input", "exit", "quit", "vars", "breakpoint", "compile"])
"""Forbidden names that a program may use for something of its own, as `open = True` for a door."""
_ALLOWED_DUNDERS_TEXT = (
    "__init__ __name__ __class__ __dict__ __doc__ __len__ __getitem__ __setitem__ __iter__ "
    "__next__ __contains__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __repr__ __str__ "
    "__post_init__ __call__ __add__ __sub__ __mul__ __neg__ __bool__ __enter__ __exit__ "
    "__future__ __slots__ __new__ __setattr__ __delitem__ __reversed__ __format__ __missing__ "
    "__members__ __qualname__ __annotations__ __init_subclass__ __set_name__ __abs__ __int__ __float__ "
    "__index__ __round__ __mod__ __pow__ __truediv__ __floordiv__ __and__ __or__ __xor__ __invert__ "
    "__radd__ __rsub__ __rmul__ __iadd__ __isub__ __matmul__ __copy__ __deepcopy__"
)
ALLOWED_DUNDERS = frozenset(_ALLOWED_DUNDERS_TEXT.split())
_EXTRA_MODULES = frozenset({"__future__"})


class Refused(Exception):
    """A program does not pass; `code` is the stage's reason code, `detail` one sentence."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


def parse(code: str, max_chars: int) -> ast.Module:
    """The syntax tree. Raises Refused("too_long" | "syntax")."""
    if len(code) > max_chars:
        raise Refused("too_long", f"The program has {len(code)} characters; at most {max_chars} are allowed.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in a program is not our user's concern
            return ast.parse(code)
    except SyntaxError as error:
        raise Refused("syntax", f"Line {error.lineno or 1}: {error.msg}.") from error
    except (ValueError, MemoryError, RecursionError) as error:
        raise Refused("syntax", "The program cannot be parsed: null bytes or too deeply nested.") from error


def screen(code: str, max_chars: int, numpy: bool = False) -> ast.Module:
    """The syntax tree of a program that may be run. Raises Refused with the line of the first problem."""
    tree = parse(code, max_chars)
    modules = allowed_modules(numpy)
    nodes = list(ast.walk(tree))
    forbidden, dates = FORBIDDEN_NAMES - (_COMMON_NAMES & _own_names(nodes)), _names_of_date(nodes)
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                _check_import(alias.name, node.lineno, modules)
        elif isinstance(node, ast.ImportFrom):
            _check_import("." * node.level + (node.module or ""), node.lineno, modules)
        elif isinstance(node, ast.Name) and node.id in forbidden:
            raise Refused("forbidden_name", f"Line {node.lineno}: `{node.id}` may not be used.")
        elif isinstance(node, ast.Attribute):
            _check_attribute(node, dates)
    _check_class(tree)
    return tree


def _own_names(nodes: Sequence[ast.AST]) -> frozenset[str]:
    """Names the program binds itself."""
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return frozenset(bound | {n.arg for n in nodes if isinstance(n, ast.arg)})


def _names_of_date(nodes: Sequence[ast.AST]) -> frozenset[str]:
    """Names under which the program knows `datetime.date`."""
    known = {"date"}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "datetime":
            known |= {a.asname for a in node.names if a.name == "date" and a.asname}
        elif isinstance(node, ast.Assign) and _last_name(node.value) in known:
            known |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return frozenset(known)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _check_import(name: str, line: int, modules: tuple[str, ...]) -> None:
    root = name.split(".")[0]
    if root not in modules and root not in _EXTRA_MODULES:
        allowed = ", ".join(modules)
        raise Refused("import_refused", f"Line {line}: `{name}` may not be imported; allowed are {allowed}.")


def _check_attribute(node: ast.Attribute, dates: frozenset[str]) -> None:
    if _is_forbidden_dunder(node.attr):
        raise Refused("forbidden_name", f"Line {node.lineno}: `.{node.attr}` may not be used.")
    if node.attr == "today" and _last_name(node.value) in dates:
        # The sandbox's date never changes, so this clock does not show up as an episode that differs.
        text = f"Line {node.lineno}: `date.today` reads the clock; draw the date from the seed."
        raise Refused("clock_dependent", text)


def _is_forbidden_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in ALLOWED_DUNDERS


def _check_class(tree: ast.Module) -> None:
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name.endswith("Env")]
    if not classes:
        raise Refused("no_env_class", "There is no class whose name ends in Env.")
    if any(c.bases for c in classes):
        return  # methods may be inherited; the contract stage sees what is missing
    names = {n.name for c in classes for n in c.body if isinstance(n, ast.FunctionDef)}
    assigned = (n for c in classes for s in c.body if isinstance(s, ast.Assign) for n in ast.walk(s))
    names |= {n.id for n in assigned if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for method in ("reset", "step"):
        if method not in names:
            raise Refused("missing_method", f"The class {classes[-1].name} has no method `{method}`.")
