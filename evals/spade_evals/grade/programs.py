"""From an answer to a program: which block counts, and how a completion joins its prompt.

The last complete fenced Python block outside the thought is the program; a block without a language comes
second, the whole answer, where it parses, third. A block that was cut off by the token limit is no block.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings

from spade.design.parse import fenced_blocks
from spade.play.actions import strip_thoughts

PYTHON = {"python", "py", "python3"}

MAX_CHARS = 200_000
"""Longer answers are cut from the front: the last block is what counts."""

_STOPS = re.compile(
    r"^(?:class |def |async def |@|#|if |print\(|assert |from |import |```|~~~|<)", re.MULTILINE
)
"""What begins the next top-level thing after a completed function body."""


def program_in(answer: str) -> str | None:
    """The program an answer gives; None without one."""
    text = _visible(answer)
    block = _last_block(text)
    if block is not None:
        return block
    whole = text.strip("\n")
    return whole + "\n" if _is_program(whole) else None


def completed(answer: str, prompt: str, entry: str) -> str | None:
    """The program for a prompt that ends inside the function `entry`, as in HumanEval; None without one.

    An answer may give the whole function (it then follows the prompt's imports and helper functions), or
    only the body, in a block or bare, with its first line's indentation or without.
    """
    text = _visible(answer)
    block = _last_block(text)
    code = text if block is None else block
    if not code.strip():
        return None
    if defines(code, entry):
        return f"{_before(prompt, entry)}\n{code}"
    if block is None:
        code = _body_only(code)
    bodies = (code, textwrap.indent(textwrap.dedent(code), "    "), "    " + code.lstrip())
    joined = (prompt.rstrip() + "\n" + body.strip("\n") + "\n" for body in bodies if body.strip())
    return next((program for program in joined if _extends(program, entry)), None)


def defines(code: str, name: str) -> bool:
    """Whether `code` parses and binds `name` at its top level by a function, a class or an assignment."""
    return _definition(_parsed(code), name) is not None


def called(code: str, tests: list[str]) -> str | None:
    """The function of `code` that the first test calls: the entry point of an MBPP problem."""
    tree = _parsed(code)
    if tree is None or not tests:
        return None
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    test = _parsed(tests[0])
    nodes = ast.walk(test) if test is not None else iter(())
    calls = (n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name))
    return next((name for name in calls if name in names), None)


def _visible(answer: str) -> str:
    text = strip_thoughts(answer.replace("\r\n", "\n").replace("\r", "\n"))
    return text[-MAX_CHARS:]


def _last_block(text: str) -> str | None:
    blocks = [(tag, code) for tag, code in fenced_blocks(text) if code.strip()]
    tagged = [code for tag, code in blocks if tag in PYTHON]
    bare = [code for tag, code in blocks if not tag]
    chosen = tagged or bare
    return chosen[-1] if chosen else None


def _is_program(code: str) -> bool:
    """Whether it parses and does something: a lone word or number is an answer, not a program."""
    tree = _parsed(code)
    if tree is None or not tree.body:
        return False
    return any(not isinstance(n, ast.Expr) or isinstance(n.value, ast.Call) for n in tree.body)


def _parsed(code: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes in a model's strings are its own business
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _definition(tree: ast.Module | None, name: str) -> ast.stmt | None:
    found: ast.stmt | None = None
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [t.id for t in node.targets if isinstance(t, ast.Name)]
        else:
            continue
        found = node if name in names else found
    return found


def _before(prompt: str, entry: str) -> str:
    """The prompt's lines above the function to complete: imports, constants, helper functions."""
    node = _definition(_parsed(prompt), entry)
    if node is None:
        return ""
    return "\n".join(prompt.split("\n")[: node.lineno - 1])


def _body_only(code: str) -> str:
    """A bare completion up to where the next top-level thing begins; a base model seldom stops by itself."""
    lead = len(code) - len(code.lstrip("\n"))
    first_line_end = code.find("\n", lead)
    if code[lead : lead + 3] in ("```", "~~~"):
        return ""  # an opened block that never closed
    if first_line_end < 0:
        return code
    match = _STOPS.search(code, first_line_end + 1)
    return code[: match.start()] if match else code


def _extends(program: str, entry: str) -> bool:
    """Whether the program parses and its function has more than a docstring."""
    node = _definition(_parsed(program), entry)
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    first = node.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return len(node.body) > documented
