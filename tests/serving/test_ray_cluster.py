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
from spade.errors import FaultCode, ProgramFault, SandboxError
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
        end = time.monotonic() + 300
        while True:
            try:
                return get_node(*args)
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)

    patch.setattr(services, "get_node", waiting)


@pytest.fixture(scope="module")
def head() -> Iterator[Any]:
    """A head node with this process on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("OMP_NUM_THREADS", "1")
        patiently(patch)
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": DEATH})
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def cluster(head: Any) -> Iterator[Any]:
    """A second node; called, it is killed."""
    second = head.add_node(num_cpus=1)
    head.wait_for_nodes()

    def kill() -> None:
        if second in head.worker_nodes:
            head.remove_node(second, allow_graceful=False)

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


def test_an_evaluation_loses_no_item_with_a_node_and_has_none_twice(
    cluster: Any, shipped_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spade_evals.runner import Samples, run_eval

    def rows(out: Path) -> list[Any]:
        (file,) = out.glob("*.jsonl")
        found = [json.loads(line) for line in file.read_text().splitlines()]
        return [{k: v for k, v in row.items() if "seconds" not in k} for row in found]

    more: dict[str, Any] = {"limit": 24, "quiet": True, "seed": 1}
    ref, plain = str(shipped_model), SandboxConfig()
    run_eval(ref, "heldout", tmp_path / "a", serving=ServingConfig(max_rows=8), sandbox=plain, **more)
    append, chunks = Samples.append, []

    def killing(self: Any, found: Any) -> None:
        append(self, found)
        chunks.append(len(found))
        if len(chunks) == 1:
            cluster()

    monkeypatch.setattr(Samples, "append", killing)
    serving = ServingConfig(max_rows=4, shards=2)
    result = run_eval(ref, "heldout", tmp_path / "b", serving=serving, sandbox=SANDBOX, **more)
    assert chunks == [8, 8, 8]
    there = rows(tmp_path / "b")
    assert Counter(row["item_id"] for row in there) == Counter({row["item_id"]: 1 for row in there})
    assert there == rows(tmp_path / "a")
    assert isinstance(result, SuiteResult) and not result.faults.get("infrastructure")
