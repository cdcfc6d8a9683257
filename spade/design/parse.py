"""From the Designer's reply to program text.

The LAST complete fenced Python block outside `<think>` counts: drafts inside a thought never win. Where a
program itself holds fences (in a docstring), its block ends at the first fence up to which it parses. A reply
without any fence is taken whole if it parses and defines a class whose name ends in `Env`. One typing slip is
repaired, because it is common and has one reading: unescaped braces inside an f-string.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from spade.play.actions import strip_thoughts

MAX_REPAIRS = 20
"""Rounds of brace repair; each fixes one reported line."""

MAX_REPAIR_CHARS = 100_000
"""Longer texts are not repaired: each round parses the whole text."""

MAX_INNER = 8
"""Closing fences tried for one block: a program seldom holds more in its docstrings."""

MAX_FENCES = 1000
"""Fence lines looked at, the last ones: the work grows with their square."""

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*(.*?)[ \t]*")
_TAG = re.compile(r"\{?\.?([A-Za-z0-9_+-]*)")
_PAIR = re.compile(r"(?<!\{)\{([^{}]*)\}(?!\})")
_PYTHON = {"python", "py", "python3"}


@dataclass(frozen=True, slots=True)
class _Fence:
    """One fence line: number, indentation, marks (backticks or tildes), language; bare without one."""

    line: int
    indent: int
    marks: str
    language: str
    bare: bool

    @property
    def python(self) -> bool:
        return self.language in _PYTHON

    def closes(self, opener: _Fence) -> bool:
        """Whether this may end the block of `opener`: same marks, at least as many, nothing behind them."""
        same = self.bare and self.marks.startswith(opener.marks)
        return same and self.indent < opener.indent + 4  # deeper ones belong to the content


def extract_code(text: str) -> str | None:
    """The program text in a reply, repaired if possible; None when there is none."""
    visible = strip_thoughts(text.replace("\r\n", "\n").replace("\r", "\n"))
    blocks = fenced_blocks(visible)
    python = [code for language, code in blocks if language in _PYTHON and code.strip()]
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
    """All complete fenced blocks as (language, content).

    A Python fence inside an open block restarts it, unless the outer block parses as a whole.
    """
    lines = text.split("\n")
    fences = list(_fences(lines))[-MAX_FENCES:]
    blocks: list[tuple[str, str]] = []
    at = 0
    while at < len(fences):
        opener = fences[at]
        later = range(at + 1, len(fences))
        closers = list(islice((i for i in later if fences[i].closes(opener)), MAX_INNER))
        restart = next((i for i in later if fences[i].python), None)
        end = closers[0] if closers else None
        if opener.python or opener.bare:
            whole = _parsing_end(lines, opener, [(i, fences[i]) for i in closers])
            if whole is not None:
                end, restart = whole, None
        if restart is not None and (end is None or restart < end):
            at = restart
        elif end is None:
            at += 1
        else:
            blocks.append((opener.language, _content(lines, opener, fences[end])))
            at = end + 1
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
    for done in range(MAX_REPAIRS + 1):
        error = _parse("\n".join(lines))
        if isinstance(error, ast.Module):
            return "\n".join(lines)
        if not isinstance(error, SyntaxError) or "f-string" not in str(error.msg):
            break
        if done == MAX_REPAIRS or not _repair_near(lines, error):
            break
    return code


# --- fences --------------------------------------------------------------------------------------------


def _fences(lines: Sequence[str]) -> Iterator[_Fence]:
    for number, line in enumerate(lines):
        match = _FENCE.fullmatch(line)
        if match is None or ("`" in match.group(2) and "`" in match.group(3)):
            continue  # backticks behind backticks are inline code
        tag = _TAG.match(match.group(3))
        language = tag.group(1).lower() if tag else ""
        indent = len(match.group(1).expandtabs(4))
        yield _Fence(number, indent, match.group(2), language, not match.group(3))


def _parsing_end(lines: Sequence[str], opener: _Fence, closers: Sequence[tuple[int, _Fence]]) -> int | None:
    """The first closing fence (its place in the list of fences) up to which the content is a program."""
    for place, fence in closers:
        content = _content(lines, opener, fence)
        if content.strip() and isinstance(_parse(repair_braces(content)), ast.Module):
            return place
    return None


def _content(lines: Sequence[str], opener: _Fence, end: _Fence) -> str:
    """Lines between two fences, less the indentation of the first."""
    cut = [_dedent(line, opener.indent) for line in lines[opener.line + 1 : end.line]]
    return "\n".join(cut) + "\n"


def _dedent(line: str, indent: int) -> str:
    spaces = len(line) - len(line.lstrip(" "))
    return line[min(spaces, indent) :]


# --- braces --------------------------------------------------------------------------------------------


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
