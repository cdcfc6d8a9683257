"""RLVE's verifiable environments (arXiv 2511.07317) as families of tasks, read from a user's checkout.

A checkout holds, for every environment, a generator with its verifier and a controller of difficulty:

    Gym/environments/__init__.py                          identifier -> class, as a dict literal
    Gym/environments/NAME/environment.py                  class X_Environment(VerifiableEnvironment)
    Gym/parameter_controllers/__init__.py                 identifier -> class
    Gym/parameter_controllers/NAME/parameter_controller.py

Nothing of it is imported here. The two classes of an environment become part of a program's text, in front of
a few lines that stand for RLVE's base classes, and run in the sandbox like any other program; so only those
that need no more than the modules a program may import can be used (numpy with `sandbox.numpy`). At level d a
controller is advanced d times and one of its parameter sets is drawn; an answer is right when RLVE's own
verifier says so. The answer is taken from the box, not from RLVE's answer tags.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from spade.envs.contract import ALLOWED_MODULES
from spade.errors import ConfigError, InputError
from spade.registry import suggestion
from spade.types import EnvProgram
from spade_baselines.family import Family

OFFICIAL = (
    "Division", "EuclidGame", "GCDOne_Counting", "HamiltonianPath", "LampChanging", "LargestConvexPolygon",
    "Multiplication", "PCPPermutation", "Path_NoGoingBack_Counting", "SAT", "ShortestPath", "Sorting",
    "SpiralMatrix", "SubsequenceReversalLNDS", "UndamagedSubmatrixCounting", "WYRLevelingGround",
)  # fmt: skip
"""The 16 environments of RLVE's main comparison."""
LEVELS = 20
"""Highest level of the published curriculum."""
TRIES = 8
"""Generations until one succeeds; the parameters of a level may be impossible for a seed."""
EXTRA_MODULES = ("numpy",)
"""Importable with `sandbox.numpy`."""

BASE = '''import copy
import random
import re
from typing import Any, Dict, List, Optional, Tuple, Union


class VerifiableEnvironment:
    """What the environments below use of RLVE's base class."""

    def __init__(self, answer_markers=None):
        self.answer_markers = answer_markers or ("<answer>", "</answer>")
        self.seed = self.parameter = None
        self.passing_reward_threshold = 1.0

    def processor(self, output):
        begin, end = self.answer_markers
        found = re.findall(re.escape(begin) + "(.*?)" + re.escape(end), output, re.S)
        return self._process(found[-1] if found else None)


class ParameterController:
    def __init__(self, **kwargs):
        pass

'''
TASK = """

class TaskEnv:
    game_type = "single_turn"
    max_turns = 1

    def reset(self, seed=None):
        for attempt in range(@TRIES@):
            rng = random.Random(f"{seed}/{attempt}")
            controller = @CONTROLLER@()
            for _ in range(@LEVEL@):
                controller.update()
            self.task = @ENVIRONMENT@()
            self.task.seed = rng.randrange(2**31)
            self.task.parameter = copy.deepcopy(rng.choice(controller.get_parameter_list()))
            random.seed(self.task.seed)
            try:
                self.task._generate()
            except Exception:
                continue
            if self.task.parameter is not None:
                return self.task._prompt_generate() + "\\nPut the final answer in \\\\boxed{}.", {}
        raise RuntimeError("no task of this level could be generated")

    def step(self, action):
        found = re.fullmatch(r"\\s*\\\\boxed\\{(.*)\\}\\s*", action, re.S)
        said = "" if found is None else "<answer>" + found.group(1) + "</answer>"
        try:
            score = float(self.task.scorer(said))
        except Exception:
            score = -1.0  # as RLVE's verifier does
        won = score >= self.task.passing_reward_threshold - 1e-6
        return "right" if won else "wrong", float(won), True, False, {}

    def solution(self):
        return str((self.task.parameter or {}).get("reference_answer", ""))
"""


def rlve_families(checkout: str | None) -> dict[str, Family]:
    """All usable environments of a checkout by identifier; `rlve:16` and `rlve` choose among them.

    Raises ConfigError without a checkout, InputError when the folder is none or nothing in it can be used.
    """
    if not checkout:
        raise ConfigError(
            "procedural.families names rlve; set procedural.rlve to a checkout of "
            "github.com/Zhiyuan-Zeng/RLVE"
        )
    root = Path(checkout) / "Gym"
    environments, controllers = (_table(root / part) for part in ("environments", "parameter_controllers"))
    found = {
        name: _family(name, environments[name], controllers[name])
        for name in environments
        if name in controllers and not unusable(environments[name][0], controllers[name][0])
    }
    if not found:
        raise InputError(f"procedural.rlve: no environment of {checkout} can be used in the sandbox")
    return found


def chosen(one: str, known: dict[str, Family], checkout: str) -> list[str]:
    """The identifiers that `rlve` (`one` empty: all), `rlve:16` or `rlve:NAME` stand for.

    Raises ConfigError for one that is not in the checkout or cannot be used.
    """
    names = list(known) if not one else list(OFFICIAL) if one == "16" else [one]
    for name in names:
        if name not in known:
            table = _table(Path(checkout) / "Gym" / "environments")
            if name not in table:
                raise ConfigError(f"procedural.families: RLVE has no '{name}'{suggestion(name, table)}")
            needs = ", ".join(unusable(table[name][0])) or "a module that no program may import"
            raise ConfigError(
                f"procedural.families: RLVE's {name} needs {needs}, which programs may not import"
            )
    return names


def unusable(*files: Path) -> list[str]:
    """Modules that these files import and no program may."""
    allowed = {*ALLOWED_MODULES, *EXTRA_MODULES, "Gym", "abc", "__future__"}
    return sorted({name for file in files for name in _imports(_tree(file)) if name not in allowed})


def _family(name: str, environment: tuple[Path, str], controller: tuple[Path, str]) -> Family:
    @lru_cache(maxsize=LEVELS + 1)
    def code(level: int) -> str:
        parts = [BASE, *(_body(file) for file, _ in (environment, controller))]
        task = TASK.replace("@TRIES@", str(TRIES)).replace("@LEVEL@", str(level))
        task = task.replace("@CONTROLLER@", controller[1]).replace("@ENVIRONMENT@", environment[1])
        return "\n".join(parts) + task

    def make(level: int, rng: random.Random) -> EnvProgram:
        return EnvProgram.of(code(level), skill=name, game_type="single_turn", source="procedural")

    return Family(f"rlve:{name}", LEVELS, make)


def _table(folder: Path) -> dict[str, tuple[Path, str]]:
    """Identifier -> (file, class), from the dict literals and imports of a package's `__init__.py`."""
    start = folder / "__init__.py"
    if not start.is_file():
        raise InputError(f"procedural.rlve: {start} is missing; name the folder that holds RLVE's Gym")
    tree = _tree(start)
    places: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").removeprefix(f"Gym.{folder.name}.").split(".")[0]
            places |= {alias.asname or alias.name: (module, alias.name) for alias in node.names}
    table: dict[str, tuple[Path, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if not (isinstance(key, ast.Constant) and isinstance(value, ast.Name) and value.id in places):
                    continue
                if (file := _file(folder, *places[value.id])) is not None:
                    table[str(key.value)] = (file, places[value.id][1])
    if not table:
        raise InputError(f"procedural.rlve: {start} names no classes; is this a checkout of RLVE?")
    return table


def _file(folder: Path, module: str, name: str) -> Path | None:
    """The file in `folder` (a module or a package of it) that defines a class, inside the folder only."""
    candidates = [folder / f"{module}.py", *sorted((folder / module).glob("*.py"))]
    for path in candidates:
        inside = path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(folder.resolve())
        if inside and any(isinstance(n, ast.ClassDef) and n.name == name for n in _tree(path).body):
            return path
    return None


def _tree(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"procedural.rlve: {file} cannot be read as Python ({error})") from error


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or ".").split(".")[0]


def _body(file: Path) -> str:
    """A file's text without what it imports from RLVE: the base classes stand in front of it."""
    tree = _tree(file)
    dropped = ("Gym", "__future__")
    kept = [
        n for n in tree.body if not (isinstance(n, ast.ImportFrom) and (n.module or "").startswith(dropped))
    ]
    return ast.unparse(ast.Module(body=kept, type_ignores=[])) + "\n"
