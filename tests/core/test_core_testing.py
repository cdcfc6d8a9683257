"""The conformance checks accept what keeps its promises and refuse what does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from spade import testing
from spade.serving.policy import Completion, PolicyStats, SamplingParams
from spade.types import Credit, EnvProgram, Group, Item, StageResult, StopReason


class Toy:
    """A policy over seeds alone, with one promise broken on request."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.stats = PolicyStats()
        self.calls = 0

    async def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams | Sequence[SamplingParams], n: int = 1
    ) -> list[list[Completion]]:
        self.calls += 1
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else params
        rows = [
            [self.one(place, tuple(p), s, k) for k in range(n)]
            for place, (p, s) in enumerate(zip(prompts, each, strict=False))
        ]
        return rows[:-1] if self.broken == "rows" else rows

    def one(self, place: int, prompt: tuple[int, ...], params: SamplingParams, sample: int) -> Completion:
        salt = {"place": place, "seed": self.calls}.get(self.broken, 0)
        ids = tuple(hash((prompt, params.seed, sample, salt, i)) % 50 for i in range(params.max_tokens))
        ids = (*ids, 1) if self.broken == "budget" else ids
        if self.broken != "stats":
            self.stats.sampled_tokens += len(ids)
        logprobs = tuple([0.5 if self.broken == "logprobs" else -0.5] * len(ids))
        return Completion(ids, logprobs, StopReason.LENGTH)


PROMPTS = [(1, 2), (3,), (4, 5, 6)]


async def test_a_good_backend_passes() -> None:
    await testing.check_backend(Toy(), PROMPTS)  # type: ignore[arg-type]


@pytest.mark.parametrize("broken", ["rows", "budget", "stats", "logprobs", "place", "seed"])
async def test_a_broken_backend_is_caught(broken: str) -> None:
    with pytest.raises(AssertionError):
        await testing.check_backend(Toy(broken), PROMPTS)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["null", "random", "constant:hello"])
async def test_scripted_policies_keep_the_promises(kind: str) -> None:
    scripted = pytest.importorskip("spade.serving.scripted")
    policy = scripted.ScriptedPolicy(kind)
    await testing.check_backend(policy, [tuple(b"one"), tuple(b"two and more")])


def suite(ids: Sequence[str], limited: Sequence[str] | None = None) -> Any:
    def items(seed: int, limit: int | None) -> list[Item]:
        chosen = ids[:limit] if limited is None or limit is None else limited
        return [Item(id=name, part="p", cluster="c") for name in chosen]

    return SimpleNamespace(name="s", version=1, items=items)


def test_suites() -> None:
    testing.check_suite(suite(["a", "b", "c", "d"]))
    for bad in (suite([]), suite(["a", "a"]), suite(["a", "b", "c", "d"], ["x", "y", "z"])):
        with pytest.raises(AssertionError):
            testing.check_suite(bad)


def test_the_shipped_suite() -> None:
    heldout = pytest.importorskip("spade_evals.suites.heldout")
    testing.check_suite(heldout.make_suite())


def test_stages() -> None:
    good = StageResult("parse", True, "ok", "", 0.1)
    testing.check_stage(good)
    for bad in (
        replace(good, ok=False),
        replace(good, code="bad"),
        replace(good, seconds=-1.0),
        replace(good, stage=""),
    ):
        with pytest.raises(AssertionError):
            testing.check_stage(bad)


class Counter:
    def __init__(self, keep: bool = True) -> None:
        self.value, self.keep = 0, keep

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"] if self.keep else 0


def test_state() -> None:
    used = Counter()
    used.value = 3
    testing.check_state(used, Counter())
    with pytest.raises(AssertionError, match="on its way through a checkpoint"):
        testing.check_state(used, Counter(keep=False))


class Numbered(Counter):
    """A source that gives a program of its own in each step; `broken` names the promise it does not keep."""

    made = 0

    def __init__(self, broken: str = "") -> None:
        super().__init__(keep=broken != "state")
        self.broken = broken
        Numbered.made += 1
        self.number = Numbered.made

    async def begin_step(self, step: int) -> list[tuple[EnvProgram, bool]]:
        self.value += 1
        own = self.number if self.broken == "twins" else 0
        program = EnvProgram.of(f"# {step} {own} {self.value}")
        return [(program, self.broken == "hint")] * (2 if self.broken == "twice" else 1)

    async def observe(self, step: int, groups: Sequence[Group]) -> list[Credit]:
        plays = [e.trajectory for g in groups for e in g.plain]
        return [Credit(replace(t) if self.broken == "credits" else t, 1.0) for t in plays]

    def flush(self) -> list[Credit]:
        return []

    owes_play = False

    def metrics(self) -> dict[str, float]:
        return {"value": self.value}


async def test_sources() -> None:
    await testing.check_source(Numbered, programs=1)
    for broken, words in (
        ("state", "on its way through a checkpoint"),
        ("twins", "twins give different programs"),
        ("twice", "programs in a step of"),
        ("hint", "without a hint"),
        ("credits", "plays that did not happen"),
    ):
        with pytest.raises(AssertionError, match=words):
            await testing.check_source(lambda broken=broken: Numbered(broken), programs=1)


def test_sinks() -> None:
    closed = []
    testing.check_sink(SimpleNamespace(log=lambda row: None, close=lambda: closed.append(1)))
    assert len(closed) == 2
