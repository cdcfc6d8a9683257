"""From the Designer's reply to program text.

The LAST complete fenced Python block outside `<think>` counts: drafts inside a thought never win. A reply
without any fence is taken whole if it parses and defines a class whose name ends in `Env`. One typing
slip is repaired, because it is common and has one reading: unescaped braces inside an f-string.
"""

from __future__ import annotations

import ast
import re

from spade.play.actions import strip_thoughts

MAX_REPAIRS = 20
"""Rounds of brace repair; each fixes one reported line."""

MAX_REPAIR_CHARS = 100_000
"""Longer texts are not repaired: each round parses the whole text."""

_FENCE = re.compile(r"\s*(```+|~~~+)\s*([A-Za-z0-9_+-]*)")
_PAIR = re.compile(r"(?<!\{)\{([^{}]*)\}(?!\})")
_PYTHON = {"python", "py", "python3"}


def extract_code(text: str) -> str | None:
    """The program text in a reply, repaired if possible; None when there is none."""
    visible = strip_thoughts(text)
    blocks = fenced_blocks(visible)
    python = [code for language, code in blocks if language in _PYTHON]
    if python:
        return repair_braces(python[-1].strip("\n") + "\n")
    bare = [code for language, code in blocks if not language and defines_env(repair_braces(code))]
    if bare:
        return repair_braces(bare[-1].strip("\n") + "\n")
    if not blocks:
        whole = repair_braces(visible.strip() + "\n")
        if defines_env(whole):
            return whole
    return None


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """All complete fenced blocks as (language, content); a Python fence inside an open block restarts it."""
    blocks: list[tuple[str, str]] = []
    fence, language = "", ""
    content: list[str] = []
    for line in text.split("\n"):
        match = _FENCE.match(line)
        tag = match.group(2).lower() if match else ""
        if match and (not fence or tag in _PYTHON):
            fence, language, content = match.group(1), tag, []
        elif match and not tag and match.group(1).startswith(fence):
            blocks.append((language, "\n".join(content) + "\n"))
            fence = ""
        elif fence:
            content.append(line)
    return blocks


def defines_env(code: str) -> bool:
    """Whether `code` parses and has a class whose name ends in `Env`."""
    tree = _parse(code)
    if isinstance(tree, ast.Module):
        return any(isinstance(n, ast.ClassDef) and n.name.endswith("Env") for n in tree.body)
    return False


def repair_braces(code: str) -> str:
    r"""Double the braces in f-strings whose inside is no expression (`f"\boxed{}"`); else unchanged.

    Gives back the original text when the repair does not lead to something that parses.
    """
    if len(code) > MAX_REPAIR_CHARS:
        return code
    lines = code.split("\n")
    for _ in range(MAX_REPAIRS):
        error = _parse("\n".join(lines))
        if isinstance(error, ast.Module):
            return "\n".join(lines)
        if not isinstance(error, SyntaxError) or "f-string" not in str(error.msg):
            return code
        if not _repair_near(lines, error):
            return code
    return code


def _parse(code: str) -> ast.Module | Exception:
    """The syntax tree, or the error that stopped the parser (deep nesting and NULs included)."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return error


def _repair_near(lines: list[str], error: SyntaxError) -> bool:
    """Repair the reported lines in place; an f-string over several lines is reported at its first one."""
    first = min(max((error.lineno or 1) - 1, 0), len(lines) - 1)
    last = min(max((error.end_lineno or first + 1), first + 1), len(lines))
    for index in range(first, last):
        fixed = _PAIR.sub(_double_unless_expression, lines[index])
        if fixed != lines[index]:
            lines[index] = fixed
            return True
    return False


def _double_unless_expression(match: re.Match[str]) -> str:
    inside = match.group(1)
    expression = re.split(r"![rsa](?=$|:)|:", inside, maxsplit=1)[0].rstrip("= ")
    try:
        ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return "{{" + inside + "}}"
    return match.group(0)
