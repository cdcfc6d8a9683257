"""Items divided among shards, without a cluster: shards are objects in this process, some of which die."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from evals_fakes import FakeSuite, fake_items
from hypothesis import given
from hypothesis import strategies as st
from question_fakes import FreePolicy, Sums, chat_of, scripted, write_sums

from spade.config import SandboxConfig, ServingConfig
from spade.errors import BackendError, FaultKind, InputError
from spade.serving.chat import ChatPolicy
from spade.serving.scripted import ScriptedPolicy
from spade.types import SuiteResult
from spade_evals.presets import Ask
from spade_evals.question import QuestionSuite
from spade_evals.question_run import Options, ask_suite
from spade_evals.runner import Subject, evaluate, run_eval
from spade_evals.shards import Bench, EvalShard, TaskBlock
from spade_evals.shared import SharedPolicy
from spade_evals.sharing import MOST, WorkerLost, block_size, share
from spade_evals.task_report import SuiteReport
from spade_evals.users import open_user

# --- the sharing alone -------------------------------------------------------------------------------------


@given(
    blocks=st.integers(0, 12),
    deaths=st.lists(st.integers(0, 6) | st.none(), min_size=1, max_size=4),
    at_once=st.integers(1, 2),
    data=st.data(),
)
def test_every_block_is_taken_once_whoever_dies(
    blocks: int, deaths: list[int | None], at_once: int, data: st.DataObject
) -> None:
    """`deaths[w]` is the call at which worker w dies; None: never."""
    calls, taken = Counter[int](), list[tuple[int, str]]()

    async def run(worker: int, block: int) -> str:
        calls[worker] += 1
        for _ in range(data.draw(st.integers(0, 3))):
            await asyncio.sleep(0)
        dies = deaths[worker]
        if dies is not None and calls[worker] > dies:
            raise WorkerLost
        return f"did {block}"

    work = share(range(blocks), range(len(deaths)), run, lambda b, r: taken.append((b, r)), at_once)
    try:
        asyncio.run(work)
    except WorkerLost:
        assert None not in deaths
        assert len(taken) < blocks
    else:
        assert sorted(taken) == [(b, f"did {b}") for b in range(blocks)]
    assert len({block for block, _ in taken}) == len(taken)


async def test_a_worker_that_has_ended_is_not_what_the_others_wait_for() -> None:
    """Worker 0 is idle when worker 1 dies with the last block, and takes it."""
    first = asyncio.Event()
    took: list[tuple[int, int]] = []

    async def run(worker: int, block: int) -> int:
        if worker == 1:
            await first.wait()
            raise WorkerLost
        return worker

    def taken(block: int, worker: int) -> None:
        took.append((block, worker))
        first.set()

    await asyncio.wait_for(share([0, 1], [0, 1], run, taken), 20)
    assert sorted(took) == [(0, 0), (1, 0)]


async def test_another_error_ends_the_work_and_cancels_what_is_under_way() -> None:
    ended: list[int] = []

    async def run(worker: int, block: int) -> int:
        if worker == 1:
            await asyncio.sleep(0)
            raise ValueError("broken")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(worker)
        return 0

    with pytest.raises(ValueError, match="broken"):
        await asyncio.wait_for(share([0, 1, 2], [0, 1], run, lambda b, r: None), 20)
    assert ended == [0]


@given(st.integers(1, 5000), st.integers(1, 16), st.integers(1, 200), st.booleans())
def test_blocks_fill_a_batch_and_leave_no_shard_without_work(
    items: int, shards: int, rows: int, lockstep: bool
) -> None:
    size = block_size(items, shards, rows, lockstep)
    assert 1 <= size <= (rows if lockstep else MOST)
    count = -(-items // size)
    assert count >= min(items, shards) or -(-items // count) == size
    if lockstep and items >= shards * rows:
        assert size == rows


# --- shards without Ray ------------------------------------------------------------------------------------


class Gone(Exception):
    """What Ray raises when an actor is gone."""


class Method:
    """A method of an actor: `remote` begins a call, which fails when the actor is gone."""

    def __init__(self, actor: Actor, name: str) -> None:
        self.actor, self.name = actor, name

    async def remote(self, *args: Any) -> Any:
        self.actor.calls[self.name] += 1
        await asyncio.sleep(0)  # the others begin theirs
        if self.actor.calls[self.name] > self.actor.lives.get(self.name, 10**9):
            self.actor.dead = True
        if self.actor.dead:
            raise Gone("the node of this actor is dead")
        return await getattr(self.actor.shard, self.name)(*args)


class Actor:
    """A shard behind the calls of Ray's actors; `lives` are the calls of a method that it survives."""

    def __init__(self, shard: EvalShard, **lives: int) -> None:
        self.shard, self.lives, self.dead = shard, lives, False
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)


class Shard(EvalShard):
    """A shard with a policy and a sandbox that are there."""

    def __init__(self, chat: ChatPolicy, bench: Bench) -> None:
        self.policy = chat.policy
        self._hold(chat, ServingConfig(), bench)


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spade_evals.shared.ray_errors", lambda: (Gone,))
    monkeypatch.setattr("spade.serving.shards.ray_errors", lambda: (Gone,))


def suite_file(folder: Path, body: str) -> str:
    path = folder / "own_suite.py"
    path.write_text(body, encoding="utf-8")
    return f"{path}:Suite"


def shards(
    chat: Callable[[], ChatPolicy], bench: Bench, count: int, deaths: dict[int, dict[str, int]]
) -> Any:
    """A chat whose policy is made of `count` shards; `deaths[k]` says when shard k dies."""
    actors = [Actor(Shard(chat(), bench), **deaths.get(k, {})) for k in range(count)]
    one = actors[0].shard.policy
    names = ("exact_tokens", "lockstep", "context_length", "max_rows")
    facts = {name: getattr(one, name) for name in names}
    facts |= {"dtype": "", "engine": type(one).__name__, "user": {}}
    policy = SharedPolicy(actors, facts)
    return ChatPolicy(chat().renderer, policy), actors


# --- suites of items ---------------------------------------------------------------------------------------

PLAYED = """
from evals_fakes import FakeSuite
class Suite(FakeSuite):
    def __init__(self):
        super().__init__(lambda i: float(int(i.rsplit('/', 1)[1]) % 2))
"""


def half(item_id: str) -> float:
    return float(int(item_id.rsplit("/", 1)[1]) % 2)


async def played(folder: Path, out: Path, count: int, deaths: dict[int, dict[str, int]]) -> Any:
    bench = Bench("ckpt", SandboxConfig(), {"fake": suite_file(folder, PLAYED)})
    chat, actors = shards(lambda: scripted(rows=16), bench, count, deaths)
    try:
        suite = FakeSuite(half, crash_after=0)  # the command itself plays nothing
        return await evaluate(chat, suite, None, out, Subject("ckpt", "abc"), quiet=True), actors  # type: ignore[arg-type]
    finally:
        assert all(len(actor.shard._suites) <= 1 for actor in actors), "a shard opens a suite once"


def items_in(out: Path) -> list[Any]:
    return [json.loads(line) for line in (out / "fake.jsonl").read_text().splitlines()]


@pytest.fixture
async def unshared(tmp_path: Path) -> SuiteResult:
    """The result of one process."""
    out = tmp_path / "one"
    return await evaluate(scripted(rows=16), FakeSuite(half), None, out, Subject("ckpt", "abc"), quiet=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("deaths", [{}, {0: {"play": 0}}, {1: {"play": 1}, 2: {"play": 0}}])
async def test_items_are_shared_and_none_is_lost_or_there_twice(
    tmp_path: Path, unshared: SuiteResult, deaths: dict[int, dict[str, int]]
) -> None:
    result, actors = await played(tmp_path, tmp_path / "out", 3, deaths)
    assert result == unshared
    assert Counter(row["item_id"] for row in items_in(tmp_path / "out")) == Counter(
        {item.id: 1 for item in fake_items()}
    )
    assert [actor.dead for actor in actors] == [k in deaths for k in range(3)]
    by_id = sorted(items_in(tmp_path / "out"), key=lambda row: str(row["item_id"]))
    assert by_id == sorted(items_in(tmp_path / "one"), key=lambda row: str(row["item_id"]))


async def test_when_all_shards_are_lost_what_came_back_is_kept_and_another_number_resumes(
    tmp_path: Path, unshared: SuiteResult
) -> None:
    out = tmp_path / "out"
    with pytest.raises(BackendError, match="Every engine of the Ray cluster is lost"):
        await played(tmp_path, out, 2, {0: {"play": 2}, 1: {"play": 1}})
    kept = items_in(out)
    assert len(kept) == 3 * 16
    result, actors = await played(tmp_path, out, 5, {})
    assert result == unshared
    assert items_in(out)[: len(kept)] == kept and len(items_in(out)) == len(fake_items())
    assert sum(actor.calls["play"] for actor in actors) == -(-(len(fake_items()) - len(kept)) // 16)
    again = FakeSuite(half)  # and without shards there is nothing left to play
    assert await evaluate(scripted(), again, None, out, Subject("ckpt", "abc"), quiet=True) == unshared  # type: ignore[arg-type]
    assert again.played == []


async def test_an_error_of_a_shard_is_the_command_s_and_faults_stay_faults(tmp_path: Path) -> None:
    body = PLAYED.replace("lambda i:", "lambda i: bad(i) or") + (
        "\nfrom spade.errors import ConfigError, FaultKind\n"
        "def bad(i):\n"
        "    if i.endswith('/7'): return FaultKind.INFRASTRUCTURE\n"
        "    if i.endswith('/39') and BREAKS: raise ConfigError('this suite cannot be played')\n"
    )
    for breaks in (False, True):
        bench = Bench("ckpt", SandboxConfig(), {"fake": suite_file(tmp_path, body + f"BREAKS = {breaks}\n")})
        chat, _ = shards(lambda: scripted(rows=16), bench, 2, {})
        work = evaluate(
            chat,
            FakeSuite(half),
            None,
            tmp_path / str(breaks),
            Subject("c", "abc"),
            quiet=True,  # type: ignore[arg-type]
        )
        if breaks:
            with pytest.raises(Exception, match="this suite cannot be played"):
                await work
        else:
            assert (await work).faults == {FaultKind.INFRASTRUCTURE.value: 3}


# --- suites of questions -----------------------------------------------------------------------------------


def half_right() -> ChatPolicy:
    return chat_of(ScriptedPolicy.hint_blind(0.5, max_rows=5))


def half_right_free() -> ChatPolicy:
    return chat_of(FreePolicy.hint_blind(0.5, max_rows=5))


ASKED = """
from question_fakes import Sums
from spade_evals.question import QuestionSuite
class Suite(QuestionSuite):
    def __init__(self):
        super().__init__("quiz", [Sums(sha256=SHA), Sums("more", sha256=SHA2)], preset="smoke")
"""


@pytest.fixture
def quiz(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """`quiz(out, count, deaths, chat)` asks the quiz on `count` shards; on none without a count."""
    root = tmp_path / "data"
    shas = write_sums(root), write_sums(root, "more", 7, 1)
    body = ASKED.replace("SHA2", repr(shas[1])).replace("SHA", repr(shas[0]), 1)

    async def ask(
        out: Path,
        count: int = 0,
        deaths: dict[int, dict[str, int]] | None = None,
        chat: Callable[[], ChatPolicy] = half_right,
    ) -> tuple[SuiteReport, list[Any]]:
        suite = QuestionSuite(
            "quiz", [Sums(sha256=shas[0]), Sums("more", sha256=shas[1], n=2)], preset="smoke"
        )
        bench = Bench("ckpt", SandboxConfig(), {"quiz": suite_file(tmp_path, body)})
        used, actors = shards(chat, bench, count, deaths or {}) if count else (chat(), [])
        report = await ask_suite(
            used, suite, None, out, Subject("ckpt", "abc"), options=Options(data_root=root), quiet=True
        )
        return report, actors

    yield ask


def answers_in(out: Path) -> dict[tuple[str, str, int], Any]:
    found: dict[tuple[str, str, int], Any] = {}
    for task in ("sums", "more"):
        for line in (out / "quiz" / f"{task}.jsonl").read_text(encoding="utf-8").splitlines():
            row = {k: v for k, v in json.loads(line).items() if k != "seconds"}
            key = task, row["item_id"], row["sample"]
            assert key not in found, "a sample is there twice"
            found[key] = row
    return found


@pytest.mark.parametrize("chat", [half_right, half_right_free], ids=["lockstep", "free"])
@pytest.mark.parametrize("deaths", [{}, {0: {"ask": 0}}, {1: {"ask": 1}}], ids=["none", "first", "second"])
async def test_answers_are_those_of_one_process(
    tmp_path: Path,
    quiz: Callable[..., Any],
    chat: Callable[[], ChatPolicy],
    deaths: dict[int, dict[str, int]],
) -> None:
    alone, _ = await quiz(tmp_path / "one", chat=chat)
    report, actors = await quiz(tmp_path / "out", 3, deaths, chat)
    assert answers_in(tmp_path / "out") == answers_in(tmp_path / "one")
    assert len(answers_in(tmp_path / "out")) == 24 + 14
    assert report.result == alone.result and report.ok
    assert 0.0 < report.result.score[0] < 1.0
    assert sum(actor.calls["ask"] > 0 for actor in actors) > 1


async def test_questions_are_resumed_by_another_number_of_shards_and_by_none(
    tmp_path: Path, quiz: Callable[..., Any]
) -> None:
    alone, _ = await quiz(tmp_path / "one")
    out = tmp_path / "out"
    with pytest.raises(BackendError, match="is lost"):
        await quiz(out, 2, {0: {"ask": 1}, 1: {"ask": 1}})
    kept = (out / "quiz" / "sums.jsonl").read_text()
    assert 0 < len(kept.splitlines()) < 24
    report, _ = await quiz(out, 4)
    assert (out / "quiz" / "sums.jsonl").read_text().startswith(kept)
    assert answers_in(out) == answers_in(tmp_path / "one") and report.result == alone.result
    finished = (out / "quiz" / "sums.jsonl").read_text()
    again, _ = await quiz(out)
    assert again.result == alone.result and (out / "quiz" / "sums.jsonl").read_text() == finished
    half_of_it = finished.splitlines(keepends=True)[:5]
    (out / "quiz" / "sums.jsonl").write_text("".join(half_of_it))
    await quiz(out)  # begun on shards, ended without
    assert answers_in(out) == answers_in(tmp_path / "one")


async def test_a_node_with_other_data_or_a_broken_engine_says_so(
    tmp_path: Path, quiz: Callable[..., Any]
) -> None:
    alone, _ = await quiz(tmp_path / "one")
    assert alone.ok
    bench = Bench("ckpt", SandboxConfig(), {"quiz": f"{tmp_path / 'own_suite.py'}:Suite"})
    (tmp_path / "own_suite.py").write_text(ASKED.replace("SHA2", "''").replace("SHA", "''"))
    shard = Shard(scripted(), bench)
    block = TaskBlock(
        "quiz", "sums", Ask(), None, tmp_path / "data", True, "0" * 64, 0, (("sums/x", 0),), frozenset()
    )
    found = await shard.ask(block)
    assert found.failed is not None and found.answers == ()
    with pytest.raises(InputError, match="holds other data of sums"):
        raise found.failed.error()


async def test_answers_that_an_engine_gave_before_it_broke_are_kept(
    tmp_path: Path, quiz: Callable[..., Any]
) -> None:
    """Samples that are lost one after another end the command; the block's answers come back before that."""

    class Breaking(FreePolicy):
        async def generate(self, prompts: Any, params: Any, n: int = 1) -> Any:
            if self.stats.requests >= 2:
                raise BackendError("the engine broke")
            return await super().generate(prompts, params, n)

    with pytest.raises(BackendError, match="the engine broke"):
        await quiz(tmp_path / "out", 1, chat=lambda: chat_of(Breaking("null", max_rows=5)))
    kept = (tmp_path / "out" / "quiz" / "sums.jsonl").read_text().splitlines()
    assert len(kept) == 2


async def test_a_shard_has_a_sandbox_and_the_user_of_one_process() -> None:
    tested = scripted()
    shard = Shard(tested, Bench("scripted:null", SandboxConfig(max_workers=1), {}, user="scripted:user"))
    facts = await shard.facts()
    try:
        expected = await open_user("scripted:user", ServingConfig(), ("scripted:null", tested))
        assert isinstance(facts, dict) and facts["user"] == expected.key
        assert facts["engine"] == "ScriptedPolicy" and facts["max_rows"] == 5
        assert shard.box.level
    finally:
        await shard.stop()


def test_without_ray_one_sentence_says_what_to_install(
    shipped_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    serving = ServingConfig(shards=2)
    with pytest.raises(
        InputError, match=r"serving.shards=2 needs the extra ray: pip install 'spade-rl\[ray\]'"
    ):
        run_eval(str(shipped_model), "heldout", tmp_path, limit=4, serving=serving, quiet=True)
