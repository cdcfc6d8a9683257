"""Sources other than self-play: what they promise, their curriculum, their questions, their budgets."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.cli.train import with_budget
from spade.config import BudgetConfig, Config
from spade.envs.pool import Pool, write_pool
from spade.errors import ConfigError, InputError
from spade.runs import RunFolder
from spade.testing import check_source
from spade.train.ledger import Ledger
from spade.train.source import World
from spade.types import EnvProgram
from spade_baselines.curriculum import Curriculum
from spade_baselines.dataset_rlvr import DatasetSource, final_answer, read_questions
from spade_baselines.families import families
from spade_baselines.fixed_pool import FixedPoolSource
from spade_baselines.procedural import ProceduralSource
from spade_baselines.question_program import question_program
from tests.train.scripted_world import decisions, guess_program, rows, small_config, train

QUESTIONS = [{"question": f"What is {a} + 7?", "answer": f"so {a} + 7\n#### {a + 7}"} for a in range(12)]


def answers(program: EnvProgram, *actions: str) -> list[float]:
    """Rewards of single answers, the program run here: it is ours."""
    space: dict[str, Any] = {}
    exec(program.code, space)
    env = space["QuestionEnv"]()
    env.reset(0)
    return [env.step(action)[1] for action in actions]


def dataset(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS))
    return path


# --- questions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        ("18", ["18", "18.0", "18.", "$18", "\\$18", "36/2", " 18 "], ["19", "-18", "18x", "", "1 8 9"]),
        ("1,234", ["1234", "1,234"], ["1.234", "12,34"]),
        ("\\frac{3}{4}", ["0.75", "\\dfrac{3}{4}", "3/4", "\\frac{6}{8}"], ["3/5", "\\frac{4}{3}"]),
        ("x+1", ["x + 1", "X+1"], ["1+x"]),
        ("\\text{North}", ["north", "\\text{north}"], ["south"]),
        ("50\\%", ["50", "50%"], ["0.5"]),
    ],
)
def test_answers_are_compared_by_spelling_and_by_value(
    answer: str, right: list[str], wrong: list[str]
) -> None:
    program = question_program("q", answer, "", "test")
    assert answers(program, *(f"I say \\boxed{{{a}}}" for a in right)) == [1.0] * len(right)
    assert answers(program, *(f"\\boxed{{{a}}}" for a in wrong)) == [0.0] * len(wrong)
    assert answers(program, right[0], "", f"\\boxed{{{right[0]}}} no, \\boxed{{nothing}}") == [0.0, 0.0, 0.0]


@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_numbers_are_right_exactly_when_equal(wanted: Fraction, said: Fraction) -> None:
    program = question_program("q", f"{wanted.numerator}/{wanted.denominator}", "", "test")
    assert answers(program, f"\\boxed{{{said.numerator}/{said.denominator}}}") == [float(said == wanted)]


@given(st.text(max_size=60), st.text(max_size=30), st.text(max_size=60))
def test_any_text_makes_a_program_that_never_raises(question: str, answer: str, said: str) -> None:
    program = question_program(question, answer, "", "test")
    assert all(
        value in (0.0, 1.0) for value in answers(program, said, f"\\boxed{{{said}}}", "\\boxed{" + said)
    )


def test_final_answers_of_known_formats() -> None:
    assert final_answer("a\n#### 1,200") == "1,200"
    assert final_answer("so \\boxed{\\frac{1}{2}} and $\\boxed{x_{1}}$.") == "x_{1}"
    assert final_answer(" 42 ") == "42"
    assert final_answer("\\boxed{never closed") == ""


def test_questions_come_from_files_folders_and_hub_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dataset(tmp_path / "set")
    pairs = [(q["question"], q["answer"].rsplit(" ", 1)[1]) for q in QUESTIONS]
    assert read_questions(str(path), "question", "answer") == pairs
    assert read_questions(str(path.parent), "question", "answer") == pairs
    (tmp_path / "list.json").write_text(json.dumps([{"problem": "1+1?", "solution": "\\boxed{2}"}]))
    assert read_questions(str(tmp_path / "list.json"), "problem", "solution") == [("1+1?", "2")]
    monkeypatch.setenv("SPADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert sorted(read_questions(f"hub:{path.parent}", "question", "answer")) == sorted(pairs)


def test_bad_data_sets_are_one_sentence(tmp_path: Path) -> None:
    path = dataset(tmp_path)
    for ref, fields, words in (
        (str(path), ("problem", "answer"), r"train.jsonl:1 has no field 'problem'; name the fields"),
        (str(tmp_path / "no.jsonl"), ("question", "answer"), "there is no"),
        ("", ("question", "answer"), "dataset.path is not set"),
    ):
        with pytest.raises((InputError, ConfigError), match=words):
            read_questions(ref, *fields)
    path.write_text('{"question": "a"\n')
    with pytest.raises(InputError, match="cannot be read as questions"):
        read_questions(str(path), "question", "answer")
    path.write_text("\n")
    with pytest.raises(InputError, match="holds no questions"):
        read_questions(str(path), "question", "answer")


SHARED = os.environ.get("SPADE_SHARED")


@pytest.mark.skipif(SHARED is None, reason="SPADE_SHARED is not set: REAL DATA NOT TESTED")
@pytest.mark.parametrize(
    ("place", "fields"), [("gsm8k", ("question", "answer")), ("math500", ("problem", "solution"))]
)
def test_reference_answers_of_real_data_are_right(place: str, fields: tuple[str, str]) -> None:
    folder = Path(str(SHARED)) / "data" / place
    pairs = read_questions(str(folder), *fields)
    assert len(pairs) > 490
    wrong = [q for q, a in pairs if answers(question_program(q, a, "", "x"), f"\\boxed{{{a}}}") != [1.0]]
    assert wrong == []


# --- curriculum ----------------------------------------------------------------------------------------


def test_the_window_follows_the_published_rule() -> None:
    """Worked by hand: 128 plays at the top, 0.9 of them won, width 4."""
    curriculum = Curriculum(4, 128, 0.9, 20)
    rng = random.Random(0)
    assert curriculum.draw("f", rng) == 0
    curriculum.observe("f", 0, [True] * 127, top=20)
    assert curriculum.windows["f"].high == 0
    curriculum.observe("f", 0, [False], top=20)  # 127 of 128
    assert (curriculum.windows["f"].low, curriculum.windows["f"].high) == (0, 1)
    curriculum.observe("f", 0, [True] * 500, top=20)  # below the top: does not count
    assert curriculum.windows["f"].played == 0
    curriculum.observe("f", 1, [True] * 115 + [False] * 13, top=20)  # 115 < 115.2
    assert curriculum.windows["f"].high == 1
    assert curriculum.windows["f"].played == 0
    for level in range(1, 9):
        curriculum.observe("f", level, [True] * 128, top=7)
    assert (curriculum.windows["f"].low, curriculum.windows["f"].high) == (4, 7)  # the family's own end
    drawn = Counter(curriculum.draw("f", rng) for _ in range(400))
    assert set(drawn) == {4, 5, 6, 7}


def test_families_are_named_and_their_tasks_can_be_won() -> None:
    rng = random.Random(3)
    every = families(["mechanics", "reasoning_gym"])
    names = [family.name for family in every]
    assert len(names) == len(set(names)) > 40
    for family in (*families(["reasoning_gym:gcd"]), *families(["reasoning_gym:base_conversion"])):
        hard, easy = (family.make(level, rng) for level in (family.top, 0))
        for program in (hard, easy):
            space: dict[str, Any] = {}
            exec(program.code, space)
            env = space["QuestionEnv"]()
            env.reset(0)
            assert env.step(f"\\boxed{{{env.solution()}}}")[1] == 1.0
    assert [family.name for family in families(["mechanics:guess"])] == ["mechanics:guess"]
    for bad, words in (("mechanic", "did you mean 'mechanics'"), ("reasoning_gym:gdc", "did you mean 'gcd'")):
        with pytest.raises(ConfigError, match=words):
            families([bad])
    with pytest.raises(ConfigError, match="names no family"):
        families([])


def test_generators_leave_the_global_streams_alone() -> None:
    import numpy as np

    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), np.random.get_state()[1].tolist()
    rng = random.Random(1)
    for family in families(["reasoning_gym"])[:12]:
        family.make(0, rng)
    assert before == (random.getstate(), np.random.get_state()[1].tolist())


# --- the loop ------------------------------------------------------------------------------------------


def pool(folder: Path, n: int = 8) -> str:
    write_pool(folder, Pool(tuple(EnvProgram.of(guess_program(top, 4)) for top in range(8, 8 + n)), 100))
    return str(folder)


def source_config(name: str, tmp_path: Path, out: str = "run", **changes: Any) -> Config:
    given = {"train__pool": pool(tmp_path / "pool"), "train__pool_validate": False}
    named: dict[str, Any] = {
        "fixed_pool": given,
        "fixed_pool archive": {**given, "train__pool_order": "archive"},
        "fixed_pool plr": {**given, "train__pool_order": "plr"},
        "procedural": {"procedural__families": ["mechanics:guess", "reasoning_gym:gcd"]},
        "dataset": {"dataset__path": str(dataset(tmp_path / "set"))},
    }[name]
    return small_config(tmp_path / out, train__source=name.split()[0], **named, **changes)


KINDS = {"fixed_pool": FixedPoolSource, "procedural": ProceduralSource, "dataset": DatasetSource}
NAMES = ["fixed_pool", "fixed_pool archive", "fixed_pool plr", "procedural", "dataset"]


@pytest.mark.parametrize("name", NAMES)
async def test_every_source_keeps_its_promises(name: str, tmp_path: Path) -> None:
    cfg = source_config(name, tmp_path)
    folder = RunFolder.create_or_resume(cfg, "train", "test")
    try:
        await check_source(
            lambda: KINDS[cfg.train.source](World(cfg, None, None, folder, Ledger())),  # type: ignore[arg-type]
            programs=3,
            steps=6,
        )
    finally:
        folder.finish()


@pytest.mark.parametrize("name", NAMES)
def test_a_run_stopped_and_resumed_equals_one_in_one_go(name: str, tmp_path: Path) -> None:
    _, whole, learner = train(source_config(name, tmp_path, "whole", train__steps=6))
    cut = source_config(name, tmp_path, "cut", train__steps=6)
    train(cut.model_copy(update={"train": cut.train.model_copy(update={"steps": 4})}))
    _forget_steps(Path(str(cut.out)), cut)
    _, again, second = train(cut)
    assert decisions(whole) == decisions(again)
    assert learner.digest.tolist() == second.digest.tolist()
    assert [e["program"] for e in rows(whole, "episodes.jsonl")]


def _forget_steps(folder: Path, cfg: Config) -> None:
    """Let the record say that the longer run was asked for from the start."""
    from spade.config_load import config_digest
    from spade.files import read_json, write_json

    record = read_json(folder / "run.json", "record")
    record["digest"], record["config"] = config_digest(cfg), cfg.model_dump(mode="json")
    write_json(folder / "run.json", record)


def test_pool_replay_plays_all_and_then_what_is_at_the_edge(tmp_path: Path) -> None:
    _, folder, _ = train(source_config("fixed_pool archive", tmp_path, train__steps=12))
    first: dict[str, int] = {}
    for episode in rows(folder, "episodes.jsonl"):
        first.setdefault(episode["program"], episode["step"])
    assert len(first) == 8
    metrics = rows(folder, "metrics.jsonl")
    assert metrics[0]["replay/share"] == 0.0
    assert metrics[-1]["replay/share"] == 1.0


# --- budgets -------------------------------------------------------------------------------------------


def test_budgets_end_a_run_by_what_they_name(tmp_path: Path) -> None:
    summary, folder, _ = train(
        source_config("dataset", tmp_path, "a", train__steps=50, budget__train_plays=30)
    )
    assert 30 <= summary["plays_plain"] < 30 + 12
    trained = summary["tokens_trained"]
    assert 0 <= trained <= summary["total_tokens"]
    for match, key in (("train_plays", "plays_plain"), ("total_tokens", "total_tokens")):
        cfg = source_config("procedural", tmp_path, match, budget__like=str(folder.path), budget__match=match)
        found = with_budget(cfg).budget
        assert getattr(found, match) == summary[key]
        assert [getattr(found, other) for other in ("total_tokens", "train_plays") if other != match] == [
            None
        ]
    ledger = Ledger()
    ledger.count("plays_plain", 3)
    assert ledger.share_of(BudgetConfig(train_plays=12, total_tokens=1000)) == 0.25
    assert ledger.share_of(BudgetConfig()) == 0.0
    state = ledger.state_dict()
    del state["counts"]["tokens_trained"]  # of a checkpoint made before it was counted
    ledger.load_state_dict(state)
    assert ledger.counts["tokens_trained"] == 0
