"""Families of generated tasks with levels of difficulty, for the `procedural` source.

    mechanics        the parameterised programs of `spade.embedded`, three levels, several seeds a program
    reasoning_gym    tasks of the library with a unique answer, levels of its own curricula, one question each
    rlve             RLVE's environments, out of a checkout of the user's (`spade_baselines.rlve`); `rlve:16`
                     are those of its main comparison

Reasoning-Gym tasks whose scorer accepts more than one answer are left out: a program compares with the one
answer it holds, and would call right answers wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from spade.errors import ConfigError
from spade.registry import suggestion
from spade.types import EnvProgram
from spade_baselines.family import Family as Family
from spade_baselines.question_program import question_program
from spade_baselines.rlve import chosen, rlve_families


def families(names: Sequence[str], checkout: str | None = None) -> list[Family]:
    """The families that a config names; `checkout` is where RLVE's are. Raises ConfigError for an unknown
    one, InputError for a checkout that is none."""
    found: dict[str, Family] = {}
    for name in names:
        kind, _, one = name.partition(":")
        if kind == "mechanics":
            known = _mechanics()
        elif kind == "reasoning_gym":
            known = _reasoning_gym()
        elif kind == "rlve":
            known = rlve_families(checkout)
            for member in chosen(one, known, str(checkout)):
                found[f"rlve:{member}"] = known[member]
            continue
        else:
            near = suggestion(kind, ("mechanics", "reasoning_gym", "rlve"))
            raise ConfigError(f"procedural.families: unknown kind '{kind}'{near}")
        if one and one not in known:
            raise ConfigError(f"procedural.families: {kind} has no '{one}'{suggestion(one, known)}")
        for member in [one] if one else known:
            found[f"{kind}:{member}"] = known[member]
    if not found:
        raise ConfigError("procedural.families names no family; try [mechanics]")
    return list(found.values())


def _mechanics() -> dict[str, Family]:
    from spade.embedded.mechanics import Mechanic, draw_params, registry

    def maker(mechanic: Mechanic) -> Callable[[int, random.Random], EnvProgram]:
        def make(level: int, rng: random.Random) -> EnvProgram:
            params = draw_params(mechanic, rng, level, heldout=False)
            return EnvProgram.of(mechanic.code(params), skill=mechanic.skill, source="procedural")

        return make

    return {name: Family(f"mechanics:{name}", 2, maker(mechanic)) for name, mechanic in registry().items()}


def _reasoning_gym() -> dict[str, Family]:
    from reasoning_gym.factory import CURRICULA, DATASETS

    exact = (n for n, (kind, _) in DATASETS.items() if "score_answer" not in vars(kind) and n in CURRICULA)
    return {name: _gym_family(name) for name in sorted(exact)}


def _gym_family(name: str) -> Family:
    from reasoning_gym.factory import create_curriculum

    levels = [len(attribute.levels) for attribute in create_curriculum(name).attributes.values()]

    def make(level: int, rng: random.Random) -> EnvProgram:
        entry = _gym_entry(name, level, rng.randrange(2**31))
        return question_program(
            f"{entry['question']}\nPut the final answer in \\boxed{{}}.",
            str(entry["answer"]),
            name,
            "procedural",
        )

    return Family(f"reasoning_gym:{name}", max(levels, default=1) - 1, make)


def _gym_entry(name: str, level: int, seed: int) -> dict[str, Any]:
    """One item at a level of the task's own curriculum; attributes with fewer levels stay at their last."""
    from reasoning_gym.factory import create_curriculum, create_dataset

    curriculum = create_curriculum(name)
    for attribute, known in curriculum.attributes.items():
        curriculum.set_attr_level(attribute, min(level, len(known.levels) - 1))
    with _global_random_kept():
        made = create_dataset(name, seed=seed, size=1, **_fields(curriculum))
        return dict(made[0])


def _fields(curriculum: Any) -> dict[str, Any]:
    config = curriculum.generate_configuration()
    return {key: value for key, value in vars(config).items() if key not in ("seed", "size")}


@contextmanager
def _global_random_kept() -> Iterator[None]:
    """Some generators seed the global streams; ours must not notice."""
    import numpy as np

    state, numpy_state = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
