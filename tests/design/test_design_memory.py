"""The environment memory: what is kept, what is shown, and in which words."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade.config import MemoryConfig
from spade.envs.fingerprint import shingles
from spade.envs.memory import (
    NEGATIVE_RANGE,
    POSITIVE_RANGE,
    Memory,
    Record,
    outline,
    show_exemplar,
    similarity,
)
from tests.play.programs import GUESS

SKILL = "Optimization"


def code(number: int) -> str:
    """A program unlike those of other numbers: one method more for every step."""
    body = "".join(f"\n    def m{number}_{i}(self):\n        return {i} ** {number}\n" for i in range(4))
    return f"class P{number}Env:\n    x = '{number}'\n{body}"


def record(number: int, mean: float | None, regret: float | None = 0.1, **fields: object) -> Record:
    row = {"program_id": f"p{number}", "code": code(number), "skill": SKILL, "step": number, **fields}
    return Record(solve_rate=mean, mean_return=mean, regret=regret, **row)  # type: ignore[arg-type]


def rejected(number: int, verdict: str = "floor_echo", **fields: object) -> Record:
    return record(number, None, None, verdict=verdict, detail="Echo wins.", **fields)


def words(text: str) -> int:
    return len(text.split())


def memory(*records: Record, **cfg: object) -> Memory:
    made = Memory(MemoryConfig(enabled=True, **{"tokens": 10_000, **cfg}))  # type: ignore[arg-type]
    for row in records:
        made.add(row)
    return made


def drawn(made: Memory, seed: int = 0, skill: str = SKILL) -> list[str]:
    return [e.program_id for e in made.draw(skill, random.Random(seed), words)]


def test_the_oldest_leaves_and_ranges_decide_what_is_shown() -> None:
    rows = [record(n, mean) for n, mean in enumerate([0.5, 0.5, 1.0, 0.0, 0.12, 0.3])]
    made = memory(*rows, capacity=4)
    assert [r.program_id for r in made.records] == ["p2", "p3", "p4", "p5"]
    shown = made.draw(SKILL, random.Random(0), words)
    assert shown == made.draw(SKILL, random.Random(0), words)
    assert [e.program_id for e in shown if e.label == "a good game"] == ["p5"]
    assert {e.label for e in shown if e.program_id in ("p2", "p3")} <= {"too easy", "too hard"}
    assert all(e.program_id != "p4" for e in shown)  # neither good nor bad
    assert drawn(made, skill="Causal Inference") == []
    assert made.metrics() == {"memory/records": 4.0, "memory/rejected": 0.0}


means = st.one_of(st.none(), st.floats(-1, 1, allow_nan=False))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(means, st.integers(0, 1), st.integers(0, 30)), max_size=30),
    st.integers(1, 12),
    st.integers(0, 99),
)
def test_invariants_of_eviction_and_retrieval(
    rows: list[tuple[float | None, int, int]], capacity: int, seed: int
) -> None:
    made = memory(capacity=capacity, rejected=3, positives=2, negatives=1)
    order: list[str] = []
    for mean, skill, number in rows:
        row = rejected(number) if mean is None else record(number, mean)
        row = Record(**{**{f: getattr(row, f) for f in row.__slots__}, "skill": str(skill)})
        if made.add(row):
            order = [i for i in order if i != row.program_id] + [row.program_id]
        kept = [r.program_id for r in made.records]
        assert len(kept) <= capacity and len(set(kept)) == len(kept)
        assert kept == [i for i in order if i in kept]  # by age of the latest record
        assert sum(r.rejected for r in made.records) <= 3
    by_id = {r.program_id: r for r in made.records}
    for skill in ("0", "1"):
        shown = made.draw(skill, random.Random(seed), words)
        assert shown == made.draw(skill, random.Random(seed), words)
        good = [e for e in shown if e.label == "a good game"]
        bad = [e for e in shown if e.label != "a good game"]
        assert len(good) <= 2 and len(bad) <= 1 and shown == (*good, *bad)
        for e in good:
            mean = by_id[e.program_id].mean_return
            assert mean is not None and POSITIVE_RANGE[0] <= mean <= POSITIVE_RANGE[1]
        for e in bad:
            mean = by_id[e.program_id].mean_return
            assert mean is None or not NEGATIVE_RANGE[0] <= mean <= NEGATIVE_RANGE[1]
        assert all(by_id[e.program_id].skill == skill for e in shown)


def test_positives_come_from_the_highest_lower_bounds() -> None:
    rows = [record(n, 0.5, regret=n / 30, regret_stderr=0.0) for n in range(30)]
    made = memory(*rows, positives=2, negatives=0)
    seen = {i for seed in range(20) for i in drawn(made, seed)}
    assert seen <= {f"p{n}" for n in range(20, 30)} and len(seen) > 3
    wide = memory(positives=5, negatives=0)
    for n in range(15):
        wide.add(record(n, 0.5, regret=n / 30, regret_stderr=0.0))
    assert {i for seed in range(40) for i in drawn(wide, seed)} == {f"p{n}" for n in range(15)}  # max(3n, 10)


def test_a_sure_regret_beats_a_large_but_uncertain_one() -> None:
    sure, unsure = record(1, 0.5, 0.3, regret_stderr=0.05), record(2, 0.5, 0.6, regret_stderr=0.5)
    single, unknown = record(3, 0.5, 0.9), record(4, 0.5, None)
    bounds = [r.regret_bound(1.0) for r in (sure, unsure, single, unknown)]
    assert bounds == pytest.approx([0.25, 0.1, -0.1, -float("inf")])
    fillers = [record(n, 0.5, 0.2, regret_stderr=0.0) for n in range(10, 19)]
    made = memory(sure, unsure, *fillers, positives=1, negatives=0)
    assert "p2" not in {i for seed in range(40) for i in drawn(made, seed)}
    trusting = memory(sure, unsure, *fillers, positives=1, negatives=0, regret_z=0.0)
    assert "p2" in {i for seed in range(40) for i in drawn(trusting, seed)}


def test_rejected_programs_are_negatives_with_their_reason() -> None:
    made = memory(record(1, 0.5), rejected(2), rejected(3), rejected(4), record(5, 1.0), rejected=2)
    assert [r.program_id for r in made.records] == ["p1", "p3", "p4", "p5"]
    shown = [made.draw(SKILL, random.Random(seed), words)[-1] for seed in range(40)]
    counts = {i: sum(e.program_id == i for e in shown) for i in ("p3", "p4", "p5")}
    assert counts["p5"] > 10 and counts["p3"] + counts["p4"] > 10  # each kind with the same chance
    refused = next(e for e in shown if e.program_id == "p3")
    assert refused.label == "rejected, floor echo" and "Echo wins." in refused.reason
    assert refused.mean_return is None and refused.outcome == ""
    assert memory(rejected(1), rejected=0).records == []


def test_reasons_are_sentences() -> None:
    easy, hard, lost, good = (
        show_exemplar(record(1, mean, regret), 1000, words)
        for mean, regret in ((0.97, 0.0), (0.02, 0.5), (0.0, 0.0), (0.5, 0.2))
    )
    assert easy.label == "too easy" and "0.97" in easy.reason
    assert hard.label == "too hard" and "only a hint opens it" in hard.reason
    assert "a hint does not help either" in lost.reason and good.reason == ""
    assert good.text == code(1) and easy.text != code(1) and "outcome: mean return 0.97" in easy.text


def test_the_outcome_has_its_errors() -> None:
    row = record(1, 0.5, 0.25, return_stderr=0.1, regret_stderr=0.125, turns=4.25)
    said = "mean return 0.50 ± 0.10, gain from a hint 0.25 ± 0.12, 4.2 turns"
    assert show_exemplar(row, 1000, words).outcome == said
    assert show_exemplar(record(1, 0.5, None), 1000, words).outcome == "mean return 0.50"


def test_near_duplicates_are_remembered_once() -> None:
    long = GUESS + "".join(f"\n    def more{i}(self):\n        return self.x * {i}\n" for i in range(20))
    almost = long.replace("return self.x * 7\n", "return self.x * 700\n").replace("GuessEnv", "OtherEnv")
    assert 0.9 < similarity(shingles(long), shingles(almost)) < 1
    first, second = record(1, 0.5, code=long), record(2, 0.6, code=almost)
    assert [r.program_id for r in memory(first, second).records] == ["p2"]
    strict = memory(first, second, near_duplicate=1.0)
    assert [r.program_id for r in strict.records] == ["p1", "p2"]
    made = memory(first)
    assert not made.add(rejected(3, code=almost))  # a sound program is not replaced by a refused one
    assert [r.program_id for r in made.records] == ["p1"]
    assert made.add(record(3, 0.5, code=GUESS)) and len(made.records) == 2
    assert memory(rejected(3, code=almost), first).records == [first]
    assert made.nearest(long) == 1.0 and made.nearest(code(5)) < 0.2 and memory().nearest(GUESS) == 0.0


def test_exemplars_keep_to_their_budget_and_show_an_outline_instead() -> None:
    (shown,) = memory(record(1, 0.5, code=GUESS), positives=1, tokens=20).draw(SKILL, random.Random(0), words)
    assert 0 < words(shown.text) <= 20 and shown.text.startswith("class GuessEnv")
    rows = [record(n, 0.5) for n in (1, 2)] + [record(3, 1.0)]
    for tokens in (5, 30, 60, 200):
        texts = [e.text for e in memory(*rows, tokens=tokens).draw(SKILL, random.Random(0), words)]
        assert sum(map(words, texts)) <= tokens
    assert code(1) in texts and code(2) in texts  # what one leaves over, the next may use


def test_the_outline_tells_contract_mechanics_and_texts() -> None:
    lines = outline(GUESS).split("\n")
    assert lines[0] == "class GuessEnv" and lines[1] == "max_turns 6; methods: reset, step, solution"
    assert "draws: randint(1, 8)" in lines and "state: x, t" in lines
    assert "text: find the number from 1 to 8" in lines
    tools = (
        'class ShopEnv(ToolEnv):\n    """Sell\n    things."""\n\n    def tool_buy(self, item, count):\n'
        '        return f"bought {count} of {item} for you"\n\n    def step(self, a):\n'
        '        if a in ("go", "stay") or a == "look" or a.startswith("take "):\n            self.at.x = 1\n'
    )
    text = outline(tools)
    assert text.startswith("class ShopEnv(ToolEnv): Sell things.")
    assert "buy(item, count), go, stay, look, take " in text
    assert "text: bought {count} of {item} for you" in text
    assert outline("not python (") == "" and outline("(" * 9000) == ""


def test_memory_survives_json_and_unknown_errors_become_null() -> None:
    made = memory(record(1, 0.5, float("nan"), regret_stderr=float("nan")), rejected(2))
    text = json.dumps(made.state_dict(), allow_nan=False)
    other = memory()
    other.load_state_dict(json.loads(text))
    assert other.records == made.records and other.records[0].regret is None
    assert drawn(other) == drawn(made)


def test_memory_that_is_off_shows_nothing_but_remembers() -> None:
    made = Memory(MemoryConfig(enabled=False))
    made.add(record(1, 0.5))
    assert made.draw(SKILL, random.Random(0), words) == () and len(made.records) == 1
