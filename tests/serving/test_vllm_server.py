"""The policy over vLLM servers, against a stand-in that speaks the same routes."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st

from spade.config import ServingConfig
from spade.errors import BackendError, ConfigError, InputError
from spade.serving import vllm_process
from spade.serving.api.run import bind
from spade.serving.chat import ChatPolicy
from spade.serving.launch import open_chat
from spade.serving.policy import SamplingParams
from spade.serving.render import Renderer
from spade.serving.vllm import SPARE_TOKENS, VllmPolicy
from spade.serving.vllm_client import VllmClient
from spade.serving.vllm_process import ServerProcess
from spade.serving.vllm_remote import ServerPolicy
from spade.serving.vllm_rows import completion_of, rows_of
from spade.testing import check_backend, check_policy
from spade.types import StopReason

from .vllm_standin import LENGTH, Model, make_app

STANDIN = Path(__file__).with_name("vllm_standin.py")
PROMPTS = [[5, 6, 7], [8, 9], [10, 11, 12, 13]]


@asynccontextmanager
async def standins(count: int = 1, **state: Any) -> AsyncIterator[tuple[ServerPolicy, list[dict[str, Any]]]]:
    """A policy over `count` stand-ins in this event loop, and their states."""
    states = [dict(state) for _ in range(count)]
    socks = [bind("127.0.0.1", 0) for _ in states]
    servers = [uvicorn.Server(uvicorn.Config(make_app(s), log_level="error", lifespan="off")) for s in states]
    tasks = [asyncio.create_task(a.serve(sockets=[b])) for a, b in zip(servers, socks, strict=True)]
    while not all(server.started for server in servers):
        await asyncio.sleep(0.01)
    urls = [f"http://127.0.0.1:{sock.getsockname()[1]}" for sock in socks]
    cfg = ServingConfig(type="vllm", device="cpu", max_rows=32)
    clients = [VllmClient(url, "formula", pause=0.01) for url in urls]
    policy = ServerPolicy(cfg, clients, LENGTH, "float32")
    try:
        yield policy, states
    finally:
        await policy.close()
        for server in servers:
            server.should_exit = server.force_exit = True
        await asyncio.gather(*tasks)


def weights(salt: float) -> list[tuple[str, Any]]:
    import torch

    return [("salt", torch.tensor([salt], dtype=torch.float64)), ("tied", torch.zeros(3))]


async def test_it_keeps_the_promises_of_a_policy(roomy: Path) -> None:
    async with standins() as (policy, states):
        await check_backend(policy, PROMPTS, max_tokens=12)
        model = Model()

        def reference(prompt: Sequence[int], completion: Sequence[int], heat: float) -> list[float]:
            ids = [*prompt, *completion]
            return [model.logprobs(ids[:at], heat)[ids[at]] for at in range(len(prompt), len(ids))]

        chat = ChatPolicy(Renderer.from_folder(roomy), policy)
        done = await check_policy(chat, reference=reference, max_tokens=12)
        assert done == ["greedy", "seeds", "logprobs", "stop", "turns", "cancel"]
        assert states[0]["open"] == 0


async def test_a_stop_text_ends_the_stream_and_a_cancelled_caller_too() -> None:
    async with standins() as (policy, states):
        params = SamplingParams(20, 1.0, seed=3)
        [[whole]] = await policy.generate([PROMPTS[0]], params)
        [[cut]] = await policy.generate(
            [PROMPTS[0]], SamplingParams(20, 1.0, seed=3, stop_when=lambda ids: len(ids) == 4)
        )
        assert (cut.token_ids, cut.stop) == (whole.token_ids[:4], StopReason.STOP)
        assert len(cut.logprobs_T) == 4
        never = SamplingParams(150, 1.0, seed=3, stop_when=lambda ids: False)
        task = asyncio.create_task(policy.generate([PROMPTS[0]], never))
        while not states[0]["open"]:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(400):
            if not states[0]["open"]:
                break
            await asyncio.sleep(0.005)
        assert states[0]["open"] == 0
        [[again]] = await policy.generate([PROMPTS[0]], params)
        assert again.token_ids == whole.token_ids


async def test_log_probs_are_at_the_sampling_temperature_and_the_top_ones_at_1() -> None:
    async with standins() as (policy, states):
        [[done]] = await policy.generate([PROMPTS[0]], SamplingParams(6, 0.5, seed=3, top_logprobs=2))
        ids, model = [*PROMPTS[0], *done.token_ids], Model()
        for at, (logprob, top) in enumerate(zip(done.logprobs_T, done.top_T, strict=True), len(PROMPTS[0])):
            assert logprob == pytest.approx(model.logprobs(ids[:at], 0.5)[ids[at]])
            plain = model.logprobs(ids[:at])
            assert top[0] == (ids[at], pytest.approx(plain[ids[at]]))
            assert [x for _, x in top[1:]] == pytest.approx(sorted(plain)[::-1][:2])
        assert "prompt_logprobs" in states[0]["calls"][-1]  # a scoring pass
        [[plain_row]] = await policy.generate([PROMPTS[0]], SamplingParams(6, 1.0, seed=3, top_logprobs=2))
        assert "prompt_logprobs" not in states[0]["calls"][-1]
        assert all(top[0] == (t, x) for top, t, x in zip(
            plain_row.top_T, plain_row.token_ids, plain_row.logprobs_T, strict=True
        ))  # fmt: skip
        params = SamplingParams(6, 1.0, top_p=0.5, seed=3, top_logprobs=2)
        [[cut]] = await policy.generate([PROMPTS[0]], params)
        assert (cut.logprobs_T, cut.top_T) == (plain_row.logprobs_T, plain_row.top_T)


async def test_workers_without_the_extension_tell_nothing_and_train_nothing() -> None:
    async with standins() as (policy, _):
        policy.whole = False
        params = SamplingParams(6, 1.0, top_p=0.5, seed=3, top_logprobs=2)
        [[cut]] = await policy.generate([PROMPTS[0]], params)
        assert len(cut.logprobs_T) == 6 and all(map(math.isnan, cut.logprobs_T))
        ids = [*PROMPTS[0], *cut.token_ids]
        plain = [Model().logprobs(ids[:at])[ids[at]] for at in range(len(PROMPTS[0]), len(ids))]
        assert [top[0][1] for top in cut.top_T] == pytest.approx(plain)
        await policy.load_weights(weights(7.0), 1)
        with pytest.raises(BackendError, match="--worker-extension-cls"):
            await policy.generate([PROMPTS[0]], params)
        await policy.generate([PROMPTS[0]], SamplingParams(6, 1.0))


async def test_new_weights_change_the_replies_and_the_old_ones_bring_them_back() -> None:
    async with standins(2) as (policy, states):
        params = SamplingParams(10, 1.0, seed=3)
        before = await policy.generate(PROMPTS, params)
        await policy.load_weights(weights(7.0), 4)
        assert all(not s["stale"] and s["loaded"]["salt"] == ("float32", [1]) for s in states)
        other = await policy.generate(PROMPTS, params)
        assert [c.token_ids for [c] in other] != [c.token_ids for [c] in before]
        assert {c.weight_version for [c] in other} == {4}
        await policy.load_weights(weights(1.0), 5)
        after = await policy.generate(PROMPTS, params)
        assert [(c.token_ids, c.logprobs_T) for [c] in after] == [
            (c.token_ids, c.logprobs_T) for [c] in before
        ]


async def test_weights_wait_for_the_rows_that_run() -> None:
    async with standins() as (policy, states):
        slow = SamplingParams(40, 1.0, seed=3, stop_when=lambda ids: False)
        task = asyncio.create_task(policy.generate([PROMPTS[0]], slow))
        while not states[0]["open"]:
            await asyncio.sleep(0.005)
        loading = asyncio.create_task(policy.load_weights(weights(7.0), 1))
        later = asyncio.create_task(policy.generate([PROMPTS[0]], slow))
        [[old]], _, [[new]] = await asyncio.gather(task, loading, later)
        assert (old.weight_version, new.weight_version) == (0, 1)
        assert old.token_ids != new.token_ids


async def test_a_server_without_the_developers_routes_is_named() -> None:
    async with standins(without="/collective_rpc") as (policy, _):
        with pytest.raises(BackendError, match="VLLM_SERVER_DEV_MODE"):
            await policy.load_weights(weights(2.0), 1)
    async with standins(stuck=True) as (policy, _):
        with pytest.raises(BackendError, match="did not drop its cache"):
            await policy.load_weights(weights(2.0), 1)


async def test_prompts_that_begin_alike_go_to_one_server_until_it_is_much_busier() -> None:
    async with standins(2) as (policy, states):
        await policy.generate([PROMPTS[0]] * 6, SamplingParams(4, 1.0))
        assert sorted(len(s["calls"]) for s in states) == [0, 6]
        await policy.generate([PROMPTS[0]] * 60, SamplingParams(4, 1.0))
        assert min(len(s["calls"]) for s in states) > 10


async def test_a_dead_server_costs_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    async with standins() as (policy, states):
        policy._clients.insert(0, VllmClient("http://127.0.0.1:9", "formula", pause=0.001))
        rows = await policy.generate([[k, k + 1] for k in range(2, 22)], SamplingParams(4, 1.0))
        assert all(len(c.token_ids) == 4 for [c] in rows)
        assert len(states[0]["calls"]) == 20
        assert "going on without http://127.0.0.1:9" in capsys.readouterr().err
        assert len(policy._clients) == 1


async def test_a_refused_prompt_is_no_reason_to_drop_a_server() -> None:
    async with standins(2, broken=True) as (policy, _):
        with pytest.raises(BackendError, match="status 400"):
            await policy.generate(PROMPTS, SamplingParams(4, 1.0))
        assert len(policy._clients) == 2


async def test_a_closed_policy_says_so() -> None:
    async with standins() as (policy, _):
        await policy.close()
        await policy.close()
        with pytest.raises(BackendError, match="closed"):
            await policy.generate(PROMPTS, SamplingParams(4, 1.0))


# --- processes ----------------------------------------------------------------------------------------------


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    for _ in range(600):
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False


def standin_command(folder: Path, cfg: ServingConfig, socket: Path, helper: Path | None = None) -> list[str]:
    more = ["--helper", str(helper)] if helper else []
    return [sys.executable, str(STANDIN), "--uds", str(socket), *more]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="vLLM runs on Linux")
async def test_a_server_is_started_used_and_ended(
    roomy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the registry, as a run would; a helper that ignores SIGTERM goes with the server."""
    helper = tmp_path / "helper"
    monkeypatch.setattr(vllm_process, "require_vllm", lambda: None)
    monkeypatch.setattr(
        vllm_process, "server_command", lambda f, c, s: standin_command(f, c, s, helper=helper)
    )
    monkeypatch.setattr(vllm_process, "GRACE_SECONDS", 0.5)
    cfg = ServingConfig(type="vllm", device="cpu", vllm={"mode": "server"})  # type: ignore[arg-type]
    chat = await open_chat(str(roomy), cfg)
    policy = chat.policy
    assert isinstance(policy, ServerPolicy) and policy.context_length == LENGTH - SPARE_TOKENS
    folder = policy._process.folder  # type: ignore[union-attr]
    assert folder.stat().st_mode & 0o77 == 0, "others could reach the socket"
    [[c]] = await policy.generate([[1, 2]], SamplingParams(5, 1.0, seed=1))
    assert len(c.token_ids) == 5
    pid = int(helper.read_text())
    assert alive(pid)
    await chat.close()
    assert gone(pid)
    assert not folder.exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="vLLM runs on Linux")
def test_a_server_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    helper = tmp_path / "helper"
    code = f"""
import sys, time
from spade.serving import vllm_process
from spade.serving.vllm_process import SOCKET, ServerProcess
command = [sys.executable, {str(STANDIN)!r}, "--uds", str(SOCKET), "--helper", {str(helper)!r}]
vllm_process.GRACE_SECONDS = 0.5
server = ServerProcess(command, {{}})
server.wait(600)
print(server._guard.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    guard = int(parent.stdout.readline())
    pid = int(helper.read_text())
    assert alive(guard) and alive(pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert gone(pid) and gone(guard)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="vLLM runs on Linux")
def test_a_server_that_dies_at_its_start_says_why() -> None:
    cry = "raise ValueError('No available memory for the cache blocks.')"
    server = ServerProcess([sys.executable, "-S", "-c", cry], {})
    try:
        with pytest.raises(
            BackendError, match=r"not enough memory to start \(ValueError: No available memory"
        ):
            server.wait(60)
    finally:
        server.close()
    mute = ServerProcess([sys.executable, "-S", "-c", "import time; time.sleep(600)"], {})
    try:
        with pytest.raises(
            BackendError, match=r"did not answer within 0.5 s; raise serving.vllm.start_seconds"
        ):
            mute.wait(0.5)
    finally:
        mute.close()
    assert not mute.running


def test_addresses_that_are_no_servers(roomy: Path) -> None:
    def wants(*servers: str) -> ServingConfig:
        return ServingConfig(type="vllm", device="cpu", vllm={"mode": "server", "servers": servers})  # type: ignore[arg-type]

    with pytest.raises(InputError, match="not a usable"):
        VllmPolicy.from_folder(roomy, wants("gopher://x"))
    with pytest.raises(BackendError, match="does not answer"):
        VllmPolicy.from_folder(roomy, wants("http://127.0.0.1:9"))


# --- rows ---------------------------------------------------------------------------------------------------


@given(
    length=st.integers(1, 30), context=st.integers(2, 40), most=st.integers(1, 50), n=st.integers(1, 3),
    seed=st.one_of(st.none(), st.integers(0, 2**70)),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_rows_fit_the_context_and_have_seeds(
    length: int, context: int, most: int, n: int, seed: int | None
) -> None:
    params = SamplingParams(most, 1.0, seed=seed)
    if length >= context:
        with pytest.raises(InputError, match="leaves no room"):
            rows_of([[1] * length], params, n, context)
        return
    rows = rows_of([[1] * length], params, n, context)
    assert len(rows) == n
    assert len({row.seed for row in rows}) == n, "every sample has noise of its own"
    for row in rows:
        assert 0 <= row.seed < 2**63
        assert 1 <= row.limit <= most and length + row.limit <= context
        from spade.serving.vllm_rows import Answer

        full = completion_of(row, Answer([1] * row.limit, [-0.5] * row.limit, finish="length"), 2)
        assert full.stop is (StopReason.CONTEXT if row.limit < most else StopReason.LENGTH)
    again = rows_of([[1] * length], params, n, context)
    assert (seed is None) != ([r.seed for r in again] == [r.seed for r in rows])


def test_a_prompt_must_have_tokens() -> None:
    with pytest.raises(InputError, match="without tokens"):
        rows_of([[]], SamplingParams(), 1, 100)
    with pytest.raises(BackendError, match="2 prompts but 1 sampling"):
        rows_of([[1], [2]], [SamplingParams()], 1, 100)
    with pytest.raises(InputError, match="max_tokens"):
        rows_of([[1]], SamplingParams(max_tokens=0), 1, 100)


def test_config_error_type_is_used() -> None:
    with pytest.raises(ConfigError, match=r"mode is in_process; use mode=server"):
        from spade.serving.vllm_settings import check_settings

        check_settings(ServingConfig(type="vllm", vllm={"servers": ("http://x",)}))  # type: ignore[arg-type]
