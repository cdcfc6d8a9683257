"""The held-out programs: solvable, not guessable, unlike the corpus; and the suite around them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spade.embedded.mechanics import sample_program
from spade.rng import child_rng
from spade_evals.suites import heldout

SEEDS = range(150)
WORDS = ("left", "right", "up", "down")
TYPES = heldout.new_mechanics()


def load(code: str) -> Any:
    """Instantiate one of our own programs in this process."""
    space: dict[str, Any] = {}
    exec(compile(code, "<heldout>", "exec"), space)
    return next(v for k, v in space.items() if k.endswith("Env"))


def play(make: Any, actions: list[str] | None, seed: int) -> tuple[float, int]:
    """Return and turns of a fixed action list, repeated; None plays the program's own solution."""
    env = make()
    env.reset(seed)
    if actions is None:
        solution = env.solution()
        actions = [solution] if isinstance(solution, str) else solution
    for turn in range(60):
        _, reward, terminated, truncated, _ = env.step(f"\\boxed{{{actions[turn % len(actions)]}}}")
        if terminated or truncated:
            return (reward if terminated else 0.0), turn + 1
    raise AssertionError("the program never ends")


def mean(make: Any, actions: list[str] | None) -> float:
    return sum(play(make, actions, seed)[0] for seed in SEEDS) / len(SEEDS)


@pytest.fixture(params=TYPES, ids=[held.name for held in TYPES])
def make(request: pytest.FixtureRequest) -> Any:
    return load(request.param.program.code)


def test_perfect_play_scores_one_on_every_seed(make: Any) -> None:
    results = [play(make, None, seed) for seed in SEEDS]
    assert {value for value, _ in results} == {1.0}


def test_blind_play_stays_under_the_floor(make: Any) -> None:
    """No fixed answer and no fixed list of answers wins more than a third."""
    vocabulary = list(WORDS) if "right" in make().reset(0)[0] else [str(i) for i in range(45)]
    rng = random.Random(0)
    lists = [[a] for a in vocabulary]
    lists += [[str(i) for i in order] for order in (range(1, 45), range(2, 45, 2), range(44, 0, -1))]
    lists += [[rng.choice(vocabulary) for _ in range(8)] for _ in range(60)]
    worst = max((mean(make, actions), actions[:6]) for actions in lists)
    assert worst[0] <= 0.34, worst
    for nonsense in ("", "yes", "999", "-1", "1 2", "right left"):
        assert mean(make, [nonsense]) <= 0.05


def test_same_seed_same_episode_and_seeds_differ(make: Any) -> None:
    firsts = set()
    for seed in range(20):
        one, two = make(), make()
        assert one.reset(seed) == two.reset(seed)
        assert one.solution() == two.solution()
        firsts.add(str((one.reset(seed), one.solution())))
    assert len(firsts) >= 6
    env = make()
    env.reset(1)
    env.step("\\boxed{1}")
    again = make()
    assert env.reset(2) == again.reset(2)
    assert env.step("\\boxed{3}") == again.step("\\boxed{3}")


def test_observations_are_short_lower_case_text(make: Any) -> None:
    for seed in range(10):
        env = make()
        first, _ = env.reset(seed)
        reply = env.step("\\boxed{1}")[0]
        for text in (first, reply):
            assert text
            words = [w for w in text.split() if w not in "ABCDEFGH"]  # items are named by one letter
            assert words == [w.lower() for w in words]
            assert len(text) <= 80


def test_eight_rules_in_two_settings_and_no_twins() -> None:
    assert len(TYPES) == 16
    assert set(Counter(held.family for held in TYPES).values()) == {2}
    assert len({held.program.id for held in TYPES}) == 16
    for held in TYPES:
        assert len(held.program.code.splitlines()) <= 45


def test_skilled_play_without_the_answer_is_possible() -> None:
    """A bisecting and a measuring player, who see observations only, win well above the blind floor."""

    def bisect(make: Any, seed: int, top: int, drift: int, step: int) -> float:
        env = make()
        env.reset(seed)
        low, high = step, top
        while True:
            guess = (low + high) // 2 // step * step
            reply, reward, terminated, truncated, _ = env.step(f"\\boxed{{{guess}}}")
            if terminated or truncated:
                return float(reward)
            if reply == "higher":
                low = guess + step
            else:
                high = guess - step
            low, high = low + drift, high + drift

    for name, top, drift, step in (("drift_20", 20, 1, 1), ("even_36", 36, 0, 2)):
        make = load((heldout.FOLDER / f"{name}.py").read_text())
        assert sum(bisect(make, s, top, drift, step) for s in SEEDS) / len(SEEDS) > 0.75

    ordered = load((heldout.FOLDER / "ordered_4.py").read_text())
    for seed in SEEDS:
        env = ordered()
        reply, reward = env.reset(seed)[0], 0.0
        while "need " in reply and reward < 1:
            reply, reward, *_ = env.step(f"\\boxed{{{reply.split()[2]}}}")
        assert reward == 1


def test_items_have_stable_ids_seeds_and_enough_episodes() -> None:
    suite = heldout.make_suite()
    items = suite.items(0, None)
    count = Counter(item.part for item in items)
    assert count["a/easy"] + count["a/hard"] >= 640
    assert count["a/easy"] == count["a/hard"]
    assert count["b"] >= 480
    assert len({item.id for item in items}) == len(items)
    assert items == heldout.make_suite().items(0, None)
    other = suite.items(1, None)
    assert [i.id for i in other] == [i.id for i in items]
    assert [i.payload["seed"] for i in other] != [i.payload["seed"] for i in items]
    assert {i.part for i in suite.items(0, 80)} == {"a/easy", "a/hard", "b"}
    assert len({i.cluster for i in suite.items(0, 80)}) == 80


def test_part_a_is_solvable() -> None:
    for held in heldout.new_parameters():
        make = load(held.program.code)
        assert {play(make, None, seed)[0] for seed in range(12)} == {1.0}, held.name


def test_no_near_duplicates_between_corpus_pools_and_held_out() -> None:
    """Equal after renaming and reformatting counts as a duplicate."""
    from spade.envs.fingerprint import NoveltyIndex, canonical

    programs = heldout.make_suite().programs
    own = {canonical(held.program.code): held.name for held in programs}
    assert len(own) == len(programs)
    rng = child_rng(0, "near-duplicates")
    corpus = {sample_program(rng).code for _ in range(6000)}
    assert len(corpus) > 900
    assert {own[c] for code in corpus if (c := canonical(code)) in own} == set()
    index = NoveltyIndex()
    for held in programs:
        index.add(held.program)
    for held in programs:
        disguised = held.program.code.replace("Env:", "OtherEnv:") + "\n# another comment\n"
        twin = index.twin_of(type(held.program).of(disguised))
        assert twin == held.program.id, held.name
    for pool in pools():
        for file in pool.rglob("*.py"):
            assert canonical(file.read_text()) not in own, file


def pools() -> list[Path]:
    """Pools shipped with the project."""
    root = Path(__file__).resolve().parents[2]
    return [p for p in (root / "baselines" / "pools", root / "results" / "pools") if p.is_dir()]
