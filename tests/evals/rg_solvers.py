"""Solvers for the four Reasoning-Gym tasks that come without a reference answer."""

from __future__ import annotations

import itertools
import json
import re
from collections import deque
from typing import Any

SIDE, TARGET = 6, 16
"""Rush hour: width of the board, and where the first car has to start to touch the exit."""


def solve(task: str, metadata: dict[str, Any]) -> str:
    """An answer that solves the item."""
    solvers = {
        "graph_color": graph_color,
        "propositional_logic": propositional_logic,
        "rubiks_cube": rubiks_cube,
        "rush_hour": rush_hour,
    }
    return solvers[task](metadata)


def graph_color(metadata: dict[str, Any]) -> str:
    """Backtracking, vertex by vertex."""
    puzzle = metadata["puzzle"]
    near: dict[int, set[int]] = {v: set() for v in puzzle["vertices"]}
    for a, b in puzzle["edges"]:
        near[a].add(b)
        near[b].add(a)
    order = sorted(near, key=lambda v: -len(near[v]))
    colors: dict[int, int] = {}

    def place(at: int) -> bool:
        if at == len(order):
            return True
        for color in puzzle["color_options"]:
            if all(colors.get(v) != color for v in near[order[at]]):
                colors[order[at]] = color
                if place(at + 1):
                    return True
                del colors[order[at]]
        return False

    assert place(0)
    return json.dumps({str(v): colors[v] for v in sorted(colors)})


def propositional_logic(metadata: dict[str, Any]) -> str:
    """The first premise that is neither a single letter nor always true."""
    for premise in metadata["premises"]:
        if len(premise) > 1 and not _tautology(premise):
            return str(premise)
    raise AssertionError("every premise is trivial")


def _tautology(text: str) -> bool:
    names = sorted(set(re.findall("[A-Z]", text)))
    return all(
        _true(text, dict(zip(names, values, strict=True)))
        for values in itertools.product((True, False), repeat=len(names))
    )


def _true(text: str, values: dict[str, bool]) -> bool:
    """Value of a formula whose binary operations all stand in brackets."""
    if text[0] == "¬":
        return not _true(text[1:], values)
    if len(text) == 1:
        return values[text]
    depth = 0
    for at, mark in enumerate(text):
        depth += (mark == "(") - (mark == ")")
        if depth == 1 and mark in "∧∨→↔":
            left, right = _true(text[1:at].strip(), values), _true(text[at + 1 : -1].strip(), values)
            table = {"∧": left and right, "∨": left or right, "→": not left or right, "↔": left == right}
            return table[mark]
    return _true(text[1:-1], values)


def rubiks_cube(metadata: dict[str, Any]) -> str:
    """The scramble backwards; a turn of the second layer alone is a wide turn and an outer one back."""
    moves = []
    for move in reversed(metadata["scramble_moves"].split()):
        layer, face, wide, back = re.fullmatch(r"(\d?)([A-Z])(w?)('?)", move).groups()  # type: ignore[union-attr]
        turn, other = ("", "'") if back else ("'", "")
        if wide:
            moves.append(face + turn if layer == "1" else f"{face}w{turn}")
        elif layer == "2":
            moves += [f"{face}w{turn}", face + other]
        else:
            moves.append(face + turn)
    return " ".join(moves)


def rush_hour(metadata: dict[str, Any]) -> str:
    """Breadth-first search over the cars' positions, cars lettered A, B, ... as the board is shown."""
    board = metadata["board_config"]
    cells: dict[str, list[int]] = {}
    for at, mark in enumerate(board):
        if mark not in "ox":
            cells.setdefault(mark, []).append(at)
    cars = [cells[mark] for mark in sorted(cells)]
    strides = [car[1] - car[0] for car in cars]
    sizes = [len(car) for car in cars]
    walls = frozenset(at for at, mark in enumerate(board) if mark == "x")
    start = tuple(car[0] for car in cars)
    came: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if state[0] == TARGET:
            return " ".join(reversed(_path(came, state)))
        taken = set(walls)
        for at, stride, size in zip(state, strides, sizes, strict=True):
            taken.update(range(at, at + stride * size, stride))
        for car, (at, stride, size) in enumerate(zip(state, strides, sizes, strict=True)):
            for step, edge in ((1, at + stride * size), (-1, at - stride)):
                row = stride > 1 or edge // SIDE == at // SIDE
                if 0 <= edge < SIDE * SIDE and row and edge not in taken:
                    new = (*state[:car], at + step * stride, *state[car + 1 :])
                    if new not in came:
                        came[new] = (state, f"{chr(ord('A') + car)}{step:+d}")
                        queue.append(new)
    raise AssertionError("no way out")


State = tuple[int, ...]


def _path(came: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    moves = []
    while (step := came[state]) is not None:
        state, move = step
        moves.append(move)
    return moves
