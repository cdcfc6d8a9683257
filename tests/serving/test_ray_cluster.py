"""A local cluster of two Ray nodes: programs and engines on both, one node killed in the middle.

Needs the extra `ray`; the results must be those of one process, with nothing lost and nothing scored twice.
"""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spade.config import PlayConfig, SandboxConfig, ServingConfig, ValidateConfig
from spade.envs.nodes import start_sandbox
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate
from spade.envs.wire import Op
from spade.errors import FaultCode, InputError, ProgramFault, SandboxError
from spade.play.schedule import play
from spade.serving.launch import open_chat
from spade.types import EnvProgram, Instance, Message, Scored, SuiteResult
from tests.play.programs import GUESS

try:
    import ray
    from ray.cluster_utils import Cluster
except ModuleNotFoundError:
    ray = None
    warnings.warn("tests of Ray DID NOT RUN: no module ray", stacklevel=1)

pytestmark = pytest.mark.skipif(ray is None, reason="NOT RUN: needs the extra ray (make test-extras)")

DEATH = {"health_check_period_ms": 2000, "health_check_failure_threshold": 4}
"""A node is dead after some seconds without a sign of life, even on a busy machine."""
GAME = EnvProgram.of(GUESS)
SANDBOX = SandboxConfig(max_workers=8, nodes="ray")


def patiently(patch: pytest.MonkeyPatch) -> None:
    """Ray gives a node thirty seconds to show up, which are not enough on a busy machine."""
    from ray._private import services

    get_node = services.get_node

    def waiting(*args: Any) -> Any:
        end = time.monotonic() + 60
        while True:
            try:
                return get_node(*args)
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)

    patch.setattr(services, "get_node", waiting)


def added(cluster: Any, **settings: Any) -> Any:
    """A node more. Ray gives the processes of a node fifteen seconds to start, or gives it up: try again."""
    for attempt in range(4):
        try:
            return cluster.add_node(num_cpus=1, **settings)
        except Exception as error:  # Ray raises no class of its own here
            if attempt == 3 or "timed out" not in str(error):
                raise
    raise AssertionError("not reached")


@pytest.fixture(scope="module")
def head() -> Iterator[Any]:
    """A head node with this process on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("OMP_NUM_THREADS", "1")
        patiently(patch)
        made = Cluster()
        added(made, include_dashboard=False, _system_config=DEATH)
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def cluster(head: Any) -> Iterator[Any]:
    """A second node; called, it is killed."""
    second = added(head)
    head.wait_for_nodes()

    def kill() -> None:
        """Kill it and wait until the cluster knows: its workers outlive it for a moment, and answer."""
        if second not in head.worker_nodes:
            return
        head.remove_node(second, allow_graceful=False)
        end = time.monotonic() + 300
        while sum(node["Alive"] for node in ray.nodes()) > 1:
            assert time.monotonic() < end, "the cluster does not notice that a node is dead"
            time.sleep(0.1)

    yield kill
    kill()


async def test_a_program_goes_on_where_it_was_when_its_node_is_killed(cluster: Any) -> None:
    async with await start_sandbox(SANDBOX) as box, await Sandbox.start(SandboxConfig()) as here:
        assert box.level == here.level and len(box.nodes) == 2  # type: ignore[attr-defined]
        workers = [await box.open(GUESS) for _ in range(4)]
        twin = await here.open(GUESS)
        assert Counter(n.open for n in box.nodes) == {2: 2}  # type: ignore[attr-defined]
        begun = [Op.reset(0, 3), Op.reset(1, 4), Op.step(0, r"\boxed{4}"), Op.step(1, r"\boxed{2}")]
        expected = await twin.batch(begun)
        for worker in workers:
            assert await worker.batch(begun) == expected
        cluster()
        rest = [Op.step(0, r"\boxed{6}"), Op.step(1, r"\boxed{6}"), Op.solution(1), Op.reset(0, 9)]
        expected = await twin.batch(rest)
        answers = await asyncio.wait_for(asyncio.gather(*(w.batch(rest) for w in workers)), 120)
        assert answers == [expected] * 4
        assert sum(n.lost for n in box.nodes) == 1  # type: ignore[attr-defined]
        verdict = await validate(GAME, box, ValidateConfig(floor_max=0.34))
        assert verdict.code == (await validate(GAME, here, ValidateConfig(floor_max=0.34))).code
        with pytest.raises(ProgramFault) as caught:
            await box.open("class BrokenEnv:\n    pass\n")
        assert caught.value.code is FaultCode.CONTRACT
        for worker in workers:
            await worker.close()


async def test_a_program_that_does_not_repeat_is_lost_and_not_judged(cluster: Any) -> None:
    from spade.envs.ray_nodes import RayWorker

    async with await start_sandbox(SANDBOX) as box:
        worker = await box.open(GUESS)
        assert isinstance(worker, RayWorker)
        await worker.reset(0, 1)
        worker._log = [(op, b"another answer") for op, _ in worker._log]
        node = worker._node
        assert node is not None
        ray.kill(node.actor)
        (answer,) = await worker.batch([Op.step(0, r"\boxed{1}")])
        assert isinstance(answer, ProgramFault) and answer.code is FaultCode.LOST
        assert "does not repeat" in answer.detail
        for other in box.nodes:  # type: ignore[attr-defined]
            ray.kill(other.actor)
        with pytest.raises(SandboxError, match="every node of the Ray cluster is lost"):
            await box.open(GUESS)


async def played(chat: Any, box: Sandbox, on_done: Any = None) -> list[Any]:
    tops = range(8, 11)
    games = [EnvProgram.of(GUESS.replace("1 to 8", f"1 to {k}").replace("1, 8", f"1, {k}")) for k in tops]
    instances = [Instance(g.id, seed) for g in games for seed in range(8)]
    limits = PlayConfig(max_turns=6, max_tokens=16)
    programs = {g.id: g for g in games}
    episodes = await play(instances, programs, chat, box, limits, seed=5, template="short", on_done=on_done)
    assert [e.instance for e in episodes] == instances
    return [(e.instance, e.trajectory.completion_ids, e.trajectory.logprobs, e.outcome) for e in episodes]


async def test_plays_are_the_same_on_two_nodes_and_when_one_of_them_is_killed(
    cluster: Any, shipped_model: Path
) -> None:
    local = await open_chat(str(shipped_model), ServingConfig())
    async with await Sandbox.start(SandboxConfig(max_workers=8)) as here:
        expected = await played(local, here)
    chat = await open_chat(str(shipped_model), ServingConfig(shards=2))
    async with await start_sandbox(SANDBOX) as box:
        assert await played(chat, box) == expected
        calls = 0
        generate = chat.policy.generate

        async def counting(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 2:
                asyncio.get_running_loop().run_in_executor(None, cluster)
            return await generate(*args)

        chat.policy.generate = counting  # type: ignore[method-assign, assignment]
        after = await played(chat, box)
        assert all(isinstance(outcome, Scored) for *_, outcome in after), "nothing was lost with the node"
        for _ in range(200):
            if len(chat.policy._engines) == 1:  # type: ignore[attr-defined]
                break
            await played(chat, box)
        assert sum(n.lost for n in box.nodes) == 1  # type: ignore[attr-defined]
        # new weights reach what is left, and nothing cached before stays
        await chat.policy.load_weights(_weights(shipped_model).items(), 7)
        assert await played(chat, box) == expected
    (reply,) = await chat.chat([Message("user", "hello")])
    assert reply.completion.weight_version == 7
    await chat.close()
    await local.close()


def _weights(folder: Path) -> Any:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


SUITE = """
import re
from spade_evals.data import DataFile, Source
from spade_evals.question import Grade, Question, QuestionSuite, Task

class Guess(Task):
    name = "guess"
    data = Source((DataFile("guess.jsonl", ""),), "made in the test", "1", "MIT", 0)
    n = 3
    max_tokens = 12
    def read(self, rows):
        return [Question(self.name, row["q"], row["a"]) for row in rows]
    async def grade(self, answer, question, setting):
        digits = re.findall(r"[0-9]", answer)
        return Grade.of(bool(digits) and int(digits[0]) % 2 == question.reference, answer[:8])
    def solution(self, question):
        return str(question.reference)

class Suite(QuestionSuite):
    def __init__(self):
        super().__init__("quiz", [Guess()], preset="smoke")
"""


def rows_in(out: Path) -> list[Any]:
    """All rows of an evaluation but the times, in the order of items and samples."""
    (file,) = out.rglob("*.jsonl")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    plain = [{k: v for k, v in row.items() if "seconds" not in k} for row in found]
    return sorted(plain, key=lambda row: (row["item_id"], row["sample"]))


def scores_in(out: Path) -> Any:
    (file,) = [f for f in out.rglob("*.json") if "result" in f.read_text()]
    result = json.loads(file.read_text())["result"]
    return result["score"], result["parts"], result["faults"], result["tokens"]


@pytest.fixture(params=["heldout", "questions"])
def evaluated(request: Any, shipped_model: Path, tmp_path: Path) -> Any:
    """`evaluated(out, shards)`: a suite of games or of questions, on shards or, with 0, in this process."""
    from spade_evals.question_run import Options
    from spade_evals.runner import run_eval

    more: dict[str, Any] = {"limit": 24, "quiet": True, "seed": 1}
    name = request.param
    if name == "questions":
        (tmp_path / "guess.jsonl").write_text(
            "".join(json.dumps({"q": f"A number like {k}?", "a": k % 2}) + "\n" for k in range(8))
        )
        (tmp_path / "own_suite.py").write_text(SUITE)
        name = f"{tmp_path}/own_suite.py:Suite"
        more["options"] = Options(data_root=tmp_path, samples=3)

    def run(out: Path, shards: int) -> Any:
        serving = ServingConfig(max_rows=4, shards=shards)
        return run_eval(str(shipped_model), name, out, serving=serving, sandbox=SandboxConfig(), **more)

    return run


def after_writes(monkeypatch: pytest.MonkeyPatch, count: int, act: Any) -> None:
    """`act` once, when the command has written rows `count` times."""
    from spade_evals.answers import AnswerLog
    from spade_evals.stored import Samples

    writes = []

    def patched(kept: Any) -> Any:
        def write(self: Any, rows: Any) -> None:
            kept(self, rows)
            writes.append(rows)
            if len(writes) == count:
                act()

        return write

    monkeypatch.setattr(Samples, "append", patched(Samples.append))
    monkeypatch.setattr(AnswerLog, "add", patched(AnswerLog.add))


def test_an_evaluation_loses_no_item_with_a_node_and_has_none_twice(
    cluster: Any, evaluated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated(tmp_path / "a", 0)
    after_writes(monkeypatch, 1, cluster)
    report = evaluated(tmp_path / "b", 2)
    there = rows_in(tmp_path / "b")
    assert len(there) == 24 and there == rows_in(tmp_path / "a")
    assert len({(row["item_id"], row["sample"]) for row in there}) == 24
    assert scores_in(tmp_path / "b") == scores_in(tmp_path / "a")
    result = report if isinstance(report, SuiteResult) else report.result
    assert not result.faults.get("infrastructure")


@pytest.mark.parametrize("evaluated", ["questions"], indirect=True)
def test_an_evaluation_that_was_stopped_is_resumed_by_another_number_of_shards(
    cluster: Any, evaluated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated(tmp_path / "a", 0)

    def stop() -> None:
        raise InputError("the disk is full")

    with monkeypatch.context() as patch:
        after_writes(patch, 2, stop)
        with pytest.raises(InputError, match="the disk is full"):
            evaluated(tmp_path / "b", 2)
    assert 0 < len(rows_in(tmp_path / "b")) < 24
    evaluated(tmp_path / "b", 1)
    assert rows_in(tmp_path / "b") == rows_in(tmp_path / "a")
    assert scores_in(tmp_path / "b") == scores_in(tmp_path / "a")
