"""RLVE's environments out of a checkout: a small stand-in in its layout, played in the sandbox."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spade.config import SandboxConfig
from spade.envs.sandbox import Sandbox
from spade.errors import ConfigError, InputError
from spade_baselines.families import families
from spade_baselines.rlve import LEVELS, OFFICIAL, unusable
from tests.train.scripted_world import rows, small_config, train

PRODUCT = """
import random
from typing import Optional
from Gym.environment import VerifiableEnvironment


class Multiplication_Environment(VerifiableEnvironment) :
    prompt_template = "Compute {a} * {b}."

    def __init__(self, wrong_format : float = -1.0, **kwargs) :
        super().__init__(**kwargs)
        self.wrong_format = wrong_format

    def _generate(self) -> None :
        top = 10 ** self.parameter["digits"]
        self.parameter["a"], self.parameter["b"] = random.randint(top, 9 * top), random.randint(top, 9 * top)
        self.parameter["reference_answer"] = self.parameter["a"] * self.parameter["b"]

    def _prompt_generate(self) -> str :
        return self.prompt_template.format(**self.parameter)

    def _process(self, answer : Optional[str]) :
        return int(answer.strip()) if answer is not None else None

    def scorer(self, output : str) -> float :
        said = self.processor(output)
        return self.wrong_format if said is None else float(said == self.parameter["reference_answer"])
"""
SORTING = '''
import random
from Gym.environment import VerifiableEnvironment


class Sorting_Environment(VerifiableEnvironment) :
    """Several answers are right: any order of equal keys. Graded by how much is in place."""

    def _generate(self) :
        if random.random() < 0.5 :
            raise ValueError("this one cannot be generated")
        self.parameter["words"] = [random.choice("abc") + str(i) for i in range(self.parameter["N"])]

    def _prompt_generate(self) :
        return "Sort by the first letter: " + " ".join(self.parameter["words"])

    def _process(self, answer) :
        return None if answer is None else answer.split()

    def scorer(self, output) :
        said = self.processor(output)
        if said is None or sorted(said) != sorted(self.parameter["words"]) :
            return -1.0
        keys = [word[0] for word in said]
        return 1.0 if keys == sorted(keys) else 0.5
'''
CONTROLLER = """
from typing import Dict, List
from Gym.parameter_controller import ParameterController

class {name}_ParameterController(ParameterController) :
    def __init__(self, **kwargs) :
        super().__init__(**kwargs)
        self.n = {start}

    def update(self) -> None :
        self.n += 1

    def get_parameter_list(self) -> List[Dict] :
        return [dict({key} = self.n)]
"""
HEAVY = """
import networkx
from Gym.environment import VerifiableEnvironment


class ShortestPath_Environment(VerifiableEnvironment) :
    pass
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "RLVE"
    made = {
        "multiplication": ("Multiplication", PRODUCT, "digits", 1),
        "sorting": ("Sorting", SORTING, "N", 4),
        "shortest_path": ("ShortestPath", HEAVY, "N", 3),
    }
    for part, ending, file in (
        ("environments", "Environment", "environment"),
        ("parameter_controllers", "ParameterController", "parameter_controller"),
    ):
        lines, table = [], []
        for module, (name, code, key, start) in made.items():
            folder = root / "Gym" / part / module
            folder.mkdir(parents=True)
            text = code if file == "environment" else CONTROLLER.format(name=name, key=key, start=start)
            (folder / f"{file}.py").write_text(text)
            (folder / "__init__.py").write_text(f"from .{file} import {name}_{ending}\n")
            lines.append(f"from .{module} import {name}_{ending}")
            table.append(f'    "{name}" : {name}_{ending},')
        word = "identifier2environment" if file == "environment" else "identifier2controller"
        text = "\n".join([*lines, "", f"{word} = {{", *table, "}", ""])
        (root / "Gym" / part / "__init__.py").write_text(text)
    return root


async def test_levels_answers_and_verifiers_are_the_checkouts(checkout: Path) -> None:
    product, sorting = families(["rlve:Multiplication", "rlve:Sorting"], str(checkout))
    assert (product.name, product.top) == ("rlve:Multiplication", LEVELS)
    rng = random.Random(0)
    easy, hard = product.make(0, rng), product.make(3, rng)
    assert easy.game_type == "single_turn" and easy.skill == "Multiplication"
    assert easy.id == product.make(0, random.Random(9)).id != hard.id
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        for program, digits in ((easy, 2), (hard, 5)):
            worker = await sandbox.open(program.code)
            first, again, other = [(await worker.reset(i, seed)) for i, seed in enumerate((1, 1, 2))]
            assert first == again != other
            a, b = (int(n) for n in first.split("Compute ")[1].split(".")[0].split(" * "))
            assert len(str(a)) == len(str(b)) == digits and "\\boxed{}" in first
            for said, won in ((a * b, 1.0), (a * b + 1, 0.0), ("many", 0.0)):
                await worker.reset(3, 1)
                result = await worker.step(3, f"\\boxed{{{said}}}")
                assert (result.reward, result.terminated) == (won, True)
            await worker.close()
        worker = await sandbox.open(sorting.make(2, rng).code)
        for seed in range(6):  # half of the generations fail and are tried again
            words = (await worker.reset(0, seed)).split(": ")[1].split("\n")[0].split()
            assert len(words) == 6
            backwards = sorted(words, reverse=True)
            right = sorted(backwards, key=lambda word: word[0])  # equal letters in another order than given
            assert (await worker.step(0, f"\\boxed{{{' '.join(right)}}}")).reward == 1.0
            await worker.reset(0, seed)
            half = (await worker.step(0, f"\\boxed{{{' '.join(backwards)}}}")).reward
            assert half == (1.0 if len({word[0] for word in words}) == 1 else 0.0)
        await worker.close()


def test_what_can_be_chosen(checkout: Path) -> None:
    place = str(checkout)
    assert [family.name for family in families(["rlve"], place)] == ["rlve:Multiplication", "rlve:Sorting"]
    assert len(OFFICIAL) == 16
    for names, words in (
        (["rlve:Multiplicaton"], "RLVE has no 'Multiplicaton'; did you mean 'Multiplication'"),
        (["rlve:ShortestPath"], "ShortestPath needs networkx, which programs may not import"),
        (["rlve:16"], "RLVE has no 'Division'"),
    ):
        with pytest.raises(ConfigError, match=words):
            families(names, place)
    with pytest.raises(ConfigError, match=r"set procedural\.rlve to a checkout"):
        families(["rlve"])
    with pytest.raises(InputError, match="name the folder that holds RLVE's Gym"):
        families(["rlve"], str(checkout / "Gym"))
    assert unusable(checkout / "Gym" / "environments" / "shortest_path" / "environment.py") == ["networkx"]


def test_a_file_that_is_no_python_or_a_link_is_not_used(checkout: Path, tmp_path: Path) -> None:
    file = checkout / "Gym" / "environments" / "sorting" / "environment.py"
    (tmp_path / "outside.py").write_text(file.read_text())
    file.unlink()
    file.symlink_to(tmp_path / "outside.py")
    assert [family.name for family in families(["rlve"], str(checkout))] == ["rlve:Multiplication"]
    file.unlink()
    file.write_text("class :")
    with pytest.raises(InputError, match="cannot be read as Python"):
        families(["rlve"], str(checkout))


def test_a_run_plays_them(checkout: Path, tmp_path: Path) -> None:
    wanted = {"procedural__families": ["rlve"], "procedural__rlve": str(checkout)}
    _, folder, _ = train(small_config(tmp_path / "run", train__source="procedural", train__steps=2, **wanted))
    assert {e["end"] for e in rows(folder, "episodes.jsonl")} == {"terminated"}
