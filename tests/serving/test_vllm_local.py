"""The policy over an engine in this process, against a stand-in engine; settings and what failures say."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spade import registry
from spade.config import Config, ServingConfig
from spade.errors import BackendError, ConfigError, InputError
from spade.serving import vllm_settings
from spade.serving.chat import ChatPolicy
from spade.serving.launch import open_chat
from spade.serving.policy import SamplingParams, TokenScores
from spade.serving.render import Renderer
from spade.serving.vllm import SPARE_TOKENS, VllmPolicy
from spade.serving.vllm_engine import Progress
from spade.serving.vllm_local import InProcessPolicy
from spade.serving.vllm_rows import Row, most_likely
from spade.serving.vllm_settings import (
    check_settings,
    engine_arguments,
    environment,
    flags,
    parameters,
    require_vllm,
    start_failure,
)
from spade.serving.vllm_weights import model_alone, written
from spade.testing import check_backend, check_policy
from spade.types import StopReason

from .vllm_standin import LENGTH, Model, best

PROMPTS = [[5, 6, 7], [8, 9], [10, 11, 12, 13]]


class Standin:
    """An engine of the formula's: one token a row and step, as `VllmEngine` tells it."""

    length, dtype = LENGTH, "float32"

    def __init__(self) -> None:
        self.model = Model()
        self.rows: dict[int, tuple[Row, list[int], list[Any]]] = {}
        self.texts: dict[int, tuple[tuple[int, ...], int, int]] = {}
        self.batches: list[int] = []
        self.aborted: list[int] = []
        self.broken = self.closed = False
        self.threads: set[int] = set()

    def add(self, number: int, row: Row) -> None:
        if len(row.prompt) == 99:
            raise BackendError("vLLM refuses a prompt of 99 tokens: because.")
        self.rows[number] = (row, list(row.prompt), [])

    def add_scored(self, number: int, ids: tuple[int, ...], start: int, top: int) -> None:
        self.texts[number] = (ids, start, top)

    def step(self) -> list[Progress]:
        self.threads.add(threading.get_ident())
        if self.broken:
            raise RuntimeError("the machine room is on fire")
        self.batches.append(len(self.rows) + len(self.texts))
        news = [Progress(n, finish="stop", scores=self.scored(*text)) for n, text in self.texts.items()]
        self.texts.clear()
        for number in list(self.rows):
            found = self.advance(number)
            if found is not None:
                news.append(found)
        return news

    def advance(self, number: int) -> Progress | None:
        row, ids, told = self.rows[number]
        token, logprobs = self.model.sample(ids, row.params.temperature, row.seed, len(told))
        ids.append(token)
        top = [(t, logprobs[t]) for t in best(logprobs, row.top)]
        told.append((token, logprobs[token], ((token, logprobs[token]), *most_likely(top, row.top))))
        finish = "stop" if token in row.params.stop_token_ids else "length" if len(told) == row.limit else ""
        if finish:
            del self.rows[number]
        if row.params.stop_when is None and not finish:
            return None
        new = told if row.params.stop_when is None else told[-1:]
        return Progress(number, *([x[k] for x in new] for k in range(3)), finish, cached=1)

    def scored(self, ids: tuple[int, ...], start: int, top: int) -> TokenScores:
        rows = [self.model.logprobs(list(ids[:at])) for at in range(start, len(ids))]
        own = ids[start:]
        return TokenScores(
            tuple(row[t] for row, t in zip(rows, own, strict=True)),
            tuple(best(row, 1) == [t] for row, t in zip(rows, own, strict=True)),
            tuple(tuple((t, row[t]) for t in best(row, top)) for row in rows) if top else (),
        )

    def abort(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.aborted.append(number)
            self.rows.pop(number, None)
            self.texts.pop(number, None)

    def load(self, named: Iterable[tuple[str, Any]]) -> None:
        assert not self.rows, "new weights under running rows"
        self.model = Model(dict(named)["salt"])

    def sleep(self) -> None: ...
    def wake(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def policy_of(engine: Standin, lockstep: bool = False, **serving: Any) -> InProcessPolicy:
    cfg = ServingConfig(type="vllm", device="cpu", max_rows=32, **serving)
    return InProcessPolicy(engine, cfg, ThreadPoolExecutor(1), lockstep)


@pytest.fixture
def engine() -> Standin:
    return Standin()


@pytest.mark.parametrize("lockstep", [False, True])
async def test_it_keeps_the_promises_of_a_policy(engine: Standin, roomy: Path, lockstep: bool) -> None:
    policy = policy_of(engine, lockstep)
    await check_backend(policy, PROMPTS, max_tokens=12)

    def reference(prompt: Sequence[int], completion: Sequence[int], heat: float) -> list[float]:
        ids = [*prompt, *completion]
        return [engine.model.logprobs(ids[:at], heat)[ids[at]] for at in range(len(prompt), len(ids))]

    chat = ChatPolicy(Renderer.from_folder(roomy), policy)
    done = await check_policy(chat, reference=reference, max_tokens=12)
    assert done == ["greedy", "seeds", "logprobs", "stop", "turns", "cancel"]
    assert not engine.rows and len(engine.threads) == 1
    await chat.close()
    await chat.close()
    assert engine.closed
    with pytest.raises(BackendError, match="closed"):
        await policy.generate(PROMPTS, SamplingParams(4))


async def test_calls_join_the_running_batch_unless_they_go_in_lockstep() -> None:
    for lockstep in (False, True):
        engine = Standin()
        policy = policy_of(engine, lockstep)
        held, go = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def hold(ids: Sequence[int], held: Any = held, go: Any = go, loop: Any = loop) -> bool:
            if len(ids) == 2:
                loop.call_soon_threadsafe(held.set)
                go.wait(30)
            return False

        first = asyncio.create_task(policy.generate([PROMPTS[0]], SamplingParams(8, 1.0, stop_when=hold)))
        await held.wait()
        second = asyncio.create_task(policy.generate(PROMPTS, SamplingParams(8, 1.0)))
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(first, second)
        assert max(engine.batches) == (3 if lockstep else 4)
        await policy.close()


async def test_a_cancelled_caller_ends_its_rows_and_no_others(engine: Standin) -> None:
    policy = policy_of(engine)
    held, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold(ids: Sequence[int]) -> bool:
        if len(ids) == 2:
            loop.call_soon_threadsafe(held.set)
            go.wait(30)
        return False

    other = asyncio.create_task(policy.generate([PROMPTS[1]], SamplingParams(30, 1.0, seed=1)))
    task = asyncio.create_task(policy.generate([PROMPTS[0]] * 2, SamplingParams(300, 1.0, stop_when=hold)))
    await held.wait()
    task.cancel()
    await asyncio.sleep(0)
    go.set()
    [[kept]] = await other
    assert len(kept.token_ids) == 30
    with pytest.raises(asyncio.CancelledError):
        await task
    await policy.generate([PROMPTS[0]], SamplingParams(2))
    assert len(engine.aborted) == 2 and not engine.rows
    await policy.close()


async def test_a_broken_engine_fails_those_who_wait_and_says_why(engine: Standin) -> None:
    policy = policy_of(engine)
    engine.broken = True
    with pytest.raises(BackendError, match="engine failed: the machine room"):
        await policy.generate(PROMPTS, SamplingParams(4))
    assert not engine.rows
    engine.broken = False
    with pytest.raises(BackendError, match="refuses a prompt of 99"):
        await policy.generate([PROMPTS[0], [1] * 99], SamplingParams(4))
    assert not engine.rows
    rows = await policy.generate(PROMPTS, SamplingParams(4))
    assert [len(c.token_ids) for [c] in rows] == [4, 4, 4]
    await policy.close()


async def test_closing_ends_the_calls_that_run_and_those_that_wait(engine: Standin) -> None:
    policy = policy_of(engine, lockstep=True)
    params = SamplingParams(300, 1.0, stop_when=lambda ids: bool(time.sleep(0.002)))
    tasks = [asyncio.create_task(policy.generate([PROMPTS[0]], params)) for _ in range(2)]
    while not engine.rows:
        await asyncio.sleep(0.005)
    await policy.close()
    for done in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(done, BackendError) and "closed while a call ran" in str(done)
    assert engine.closed and not engine.rows


async def test_weights_context_and_accounts(engine: Standin) -> None:
    policy = policy_of(engine, context_length=20)
    assert policy.context_length == 20
    params = SamplingParams(40, 1.0, seed=2)
    [[before]] = await policy.generate([PROMPTS[0]], params)
    assert (len(before.token_ids), before.stop) == (17, StopReason.CONTEXT)
    await policy.load_weights([("salt", 3.0)], 9)
    [[other]] = await policy.generate([PROMPTS[0]], params)
    assert other.weight_version == 9 and other.token_ids != before.token_ids
    assert policy.stats.prompt_tokens == 6 and policy.stats.prefilled_tokens == 4
    with pytest.raises(InputError, match="leaves no room"):
        await policy.generate([[1] * 20], params)
    whole = [1] * 15
    [scores] = await policy.score([whole], [[2] * 6], top=2)
    assert len(scores.logprobs_T) == len(scores.top_T) == 6
    assert await policy.score([whole], [[]]) == [TokenScores((), ())]
    with pytest.raises(InputError, match=r"15 \+ 7 tokens do not fit"):
        await policy.score([whole], [[2] * 7])
    with pytest.raises(BackendError, match="do not fit the served model"):
        await policy.load_weights([("pepper", 3.0)], 10)
    assert policy_of(engine).context_length == LENGTH - SPARE_TOKENS
    await policy.close()


async def test_the_registry_leads_here_and_a_missing_vllm_is_one_sentence(
    roomy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registry.resolve("backend", "vllm") is VllmPolicy
    monkeypatch.setattr(vllm_settings, "PACKAGES", ("vllm-that-is-not-there",))
    for mode in ("in_process", "server"):
        cfg = ServingConfig(type="vllm", device="cpu", vllm={"mode": mode})  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="vLLM is not installed; run pip install"):
            await open_chat(str(roomy), cfg)


def test_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_settings, "version", lambda name: "0.99.1")
    with pytest.raises(ConfigError, match=r"vllm 0.99.1 is installed, but SPADE needs 0.31; run pip install"):
        require_vllm()
    monkeypatch.setattr(vllm_settings, "version", lambda name: "0.31.4")
    require_vllm()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"args": {"logprobs_mode": "raw_logits"}}, "args holds logprobs_mode, which SPADE sets itself"),
        ({"servers": ("http://x:1",)}, "use mode=server"),
        ({"mode": "server", "sleep": True}, "a server has its memory to itself"),
        ({"data_parallel": 2}, "data_parallel needs processes of its own"),
    ],
)
def test_settings_that_contradict_each_other(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_settings(ServingConfig(type="vllm", vllm=wrong))  # type: ignore[arg-type]


def test_settings_that_contradict_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="batches rows as they arrive"):
        check_settings(ServingConfig(type="vllm", deterministic=True, vllm={"mode": "server"}))  # type: ignore[arg-type]
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="several learner processes"):
        check_settings(ServingConfig(type="vllm"))
    check_settings(ServingConfig(type="vllm", vllm={"mode": "server"}))  # type: ignore[arg-type]


def test_arguments_of_the_engine(roomy: Path) -> None:
    config = json.loads((roomy / "config.json").read_text())
    args = engine_arguments(roomy, ServingConfig(device="cpu", max_rows=3))
    assert args["dtype"] == "float32" and args["enforce_eager"] and "max_model_len" not in args
    a_row = config["max_position_embeddings"] + args["block_size"]
    a_token = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * 8 * 4
    assert args["kv_cache_memory_bytes"] == max(64 << 20, 4 * a_row * a_token)
    own = {
        "tensor_parallel": 2,
        "executor": "ray",
        "cache_gib": 0.5,
        "args": {"block_size": 64, "x": {"a": 1}},
    }
    cfg = ServingConfig(device="cpu", dtype="bfloat16", context_length=100, vllm=own)  # type: ignore[arg-type]
    args = engine_arguments(roomy, cfg)
    assert args["max_model_len"] == 100 + SPARE_TOKENS
    assert args["kv_cache_memory_bytes"] == 1 << 29 and args["block_size"] == 64
    line = flags(args | {"many": (1, 2)})
    for piece in (
        ["--dtype", "bfloat16"], ["--distributed-executor-backend", "ray"], ["--no-trust-remote-code"],
        ["--x", '{"a": 1}'], ["--many", "1", "2"], ["--tensor-parallel-size", "2"], ["--enforce-eager"],
    ):  # fmt: skip
        at = line.index(piece[0])
        assert line[at : at + len(piece)] == piece


def test_the_environment_is_the_users_where_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.setenv("VLLM_NO_USAGE_STATS", "0")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    made = environment(ServingConfig(threads=3))
    assert made["VLLM_LOGGING_LEVEL"] == "DEBUG" and made["OMP_NUM_THREADS"] == "3"
    assert made["VLLM_NO_USAGE_STATS"] == "1"


def test_parameters_are_counted_without_reading_them(llama: tuple[Path, Any], tmp_path: Path) -> None:
    folder, model = llama
    assert parameters(folder) == sum(p.numel() for p in model.parameters())
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 40)
    with pytest.raises(InputError, match="damaged or cut short"):
        parameters(tmp_path)


@pytest.mark.parametrize(
    ("said", "kind", "starts"),
    [
        ("x\ntorch.OutOfMemoryError: CUDA out of memory. Tried\nbye", BackendError, "vLLM has not enough"),
        ("ValueError: Available memory on node 0 is less", BackendError, "vLLM has not enough memory"),
        ("api_server.py: error: unrecognized arguments: --foo 1", ConfigError, "vLLM does not know a value"),
        ("TypeError: __init__() got an unexpected keyword argument 'foo'", ConfigError, "vLLM does not know"),
        ("ValueError: Model architectures ['X'] are not supported for now.", BackendError, "vLLM cannot"),
        ("RuntimeError: Engine core initialization failed. See root cause.\n", BackendError, "vLLM does"),
        ("", BackendError, "vLLM does not start: it said nothing."),
    ],
)  # fmt: skip
def test_failures_of_a_start_are_one_sentence(said: str, kind: type[Exception], starts: str) -> None:
    error = start_failure(said)
    assert isinstance(error, kind) and str(error).startswith(starts) and "\n" not in str(error)


def test_the_root_cause_is_what_is_said() -> None:
    log = "(Worker) ValueError: the real reason\nRuntimeError: Engine core initialization failed. See root..."
    assert "the real reason" in str(start_failure(log))


def test_an_optimiser_beside_the_model_is_not_served(llama: tuple[Path, Any], tmp_path: Path) -> None:
    folder, _ = llama
    with model_alone(folder) as same:
        assert same == folder
    (tmp_path / "run").mkdir()
    for path in folder.iterdir():
        (tmp_path / "run" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "run" / "state.safetensors").write_bytes(b"an optimiser")
    with model_alone(tmp_path / "run") as links:
        assert sorted(p.name for p in links.iterdir()) == sorted(p.name for p in folder.iterdir())
        assert parameters(links) == parameters(folder)
    assert not links.exists() and (tmp_path / "run" / "model.safetensors").exists()


def test_weights_as_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from safetensors.torch import load_file

    from spade.serving import vllm_weights

    monkeypatch.setattr(vllm_weights, "SHARD_BYTES", 64)
    tied = torch.arange(8.0)
    named = [("a", tied), ("b", tied), ("c", torch.arange(40.0).reshape(8, 5).T), ("n", torch.tensor([3]))]
    with written(iter(named), str(tmp_path), "bfloat16") as folder:
        assert folder.parent == tmp_path
        files = sorted(folder.glob("*.safetensors"))
        assert len(files) > 1
        back = {name: t for file in files for name, t in load_file(file).items()}
    assert not folder.exists()
    assert sorted(back) == ["a", "b", "c", "n"] and back["n"].dtype == torch.int64
    assert back["b"].dtype == torch.bfloat16 and torch.equal(back["c"].float(), named[2][1])
    with (
        pytest.raises(BackendError, match=r"cannot be written .* set serving.vllm.weights_dir"),
        written(iter(named), str(tmp_path / "absent"), "float32"),
    ):
        pass


async def test_engines_sleep_while_the_learner_works_if_that_is_wanted(engine: Standin) -> None:
    from spade.train.checks import check_run
    from spade.train.roles import Roles

    told: list[str] = []
    engine.sleep = lambda: told.append("sleep")  # type: ignore[method-assign]
    engine.wake = lambda: told.append("wake")  # type: ignore[method-assign]
    chat: Any = SimpleNamespace(policy=policy_of(engine))
    roles = Roles(chat, None, chat)  # type: ignore[arg-type]
    for wanted in (False, True):
        async with roles.asleep(wanted):
            told.append("step")
    assert told == ["step", "sleep", "step", "wake"]
    await chat.policy.close()
    cfg = Config(name="x", serving={"vllm": {"sleep": True}}, train={"staleness": 1})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the engine plays while it learns"):
        check_run(cfg)
