"""vLLM itself, on the embedded model: `make test-vllm`. Skipped where vLLM is not installed.

One engine in this process and one server are started for all tests; each costs vLLM half a minute of
processor time.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from spade.config import LearnerConfig, ServingConfig
from spade.errors import BackendError, ConfigError
from spade.serving.chat import ChatPolicy, ChatRequest
from spade.serving.launch import open_chat
from spade.serving.policy import Completion, SamplingParams
from spade.serving.vllm_settings import require_vllm
from spade.testing import check_backend, check_policy
from spade.types import Message, Sample, StopReason

try:
    require_vllm()
except ConfigError as error:
    pytest.skip(f"{error}; `make test-vllm` brings it", allow_module_level=True)

T = TypeVar("T")
PROMISES = ["greedy", "seeds", "logprobs", "stop", "turns", "cancel"]
PARAMS = SamplingParams(40, 1.0, seed=5)


def serving(**own: Any) -> ServingConfig:
    return ServingConfig(type="vllm", device="cpu", max_rows=32, vllm=own)  # type: ignore[arg-type]


@dataclass
class Opened:
    """A chat policy and the event loop it lives in."""

    chat: ChatPolicy
    loop: asyncio.AbstractEventLoop

    def wait(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @property
    def prompts(self) -> list[list[int]]:
        texts = [
            f"Guess a number between 1 and {k}; you are told whether it is higher." for k in range(9, 15)
        ]
        return [self.chat.prompt(ChatRequest([Message("user", text)])) for text in texts]

    def sample(self) -> list[tuple[tuple[int, ...], Completion]]:
        """(prompt, completion) of twelve rows."""
        rows = self.wait(self.chat.policy.generate(self.prompts, PARAMS, n=2))
        return [(tuple(p), c) for p, row in zip(self.prompts, rows, strict=True) for c in row]

    def load(self, named: dict[str, Any], version: int) -> None:
        self.wait(self.chat.policy.load_weights(iter(named.items()), version))


@pytest.fixture(scope="module", params=["in_process", "server"])
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    loop = asyncio.new_event_loop()
    chat = loop.run_until_complete(open_chat("embedded", serving(mode=request.param)))
    yield Opened(chat, loop)
    loop.run_until_complete(chat.close())
    loop.close()


@pytest.fixture(scope="module")
def learner(opened: Opened) -> Any:
    from spade.learn.trainer import CompactLearner

    assert opened.chat.ref is not None and opened.chat.ref.path is not None
    return CompactLearner(opened.chat.ref.path, LearnerConfig(), "cpu", "float32", 1)


def told(rows: list[tuple[tuple[int, ...], Completion]]) -> list[tuple[Any, ...]]:
    return [(c.token_ids, c.logprobs_T) for _, c in rows]


def test_it_keeps_the_promises_of_a_policy(opened: Opened) -> None:
    assert opened.wait(check_policy(opened.chat)) == PROMISES
    opened.wait(check_backend(opened.chat.policy, opened.prompts, 24))


def test_sampler_and_learner_agree(opened: Opened, learner: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A divergence far below the alarm of a run, and no token about which they differ by a thousandth."""
    import numpy as np

    rows = opened.sample()
    samples = [Sample(p, c.token_ids, (1,) * len(c.token_ids), c.logprobs_T, 1.0, "agent") for p, c in rows]
    scored = learner.score(samples)
    gaps = np.concatenate([s - np.asarray(c.logprobs_T) for s, (_, c) in zip(scored, rows, strict=True)])
    divergence = float(np.mean(np.expm1(gaps) - gaps))
    with capsys.disabled():
        print(f" largest gap {np.abs(gaps).max():.1e} nats, k3 divergence {divergence:.1e}", end=" ")
    assert np.abs(gaps).max() < 1e-3 and divergence < 1e-6


def test_log_probs_are_over_the_whole_vocabulary_whatever_is_left_out(opened: Opened) -> None:
    from spade.serving.reference import plain_forward

    assert opened.chat.ref is not None and opened.chat.ref.path is not None
    reference = plain_forward(opened.chat.ref.path)
    prompts = opened.prompts
    params = [SamplingParams(20, 0.7, 0.8, 5, seed=k) for k in range(len(prompts) - 1)]
    rows = opened.wait(opened.chat.policy.generate(prompts, [*params, SamplingParams(20, 0.0)]))
    for k, (prompt, [done]) in enumerate(zip(prompts, rows, strict=True)):
        heat = 0.7 if k < len(params) else 0.0
        assert done.logprobs_T == pytest.approx(reference(prompt, done.token_ids, heat), abs=2e-3)


def test_new_weights_change_the_replies_and_the_old_ones_bring_them_back(
    opened: Opened, learner: Any
) -> None:
    import torch

    before = opened.sample()
    old = {name: tensor.clone() for name, tensor in learner.named_weights()}
    generator = torch.Generator().manual_seed(0)
    new = {
        name: tensor + 0.1 * tensor.std() * torch.randn(tensor.shape, generator=generator)
        for name, tensor in old.items()
        if name != "lm_head.weight"
    }
    opened.load(new, 3)
    other = opened.sample()
    assert told(other) != told(before) and {c.weight_version for _, c in other} == {3}
    with pytest.raises(BackendError):
        opened.load({"no.such.weight": old["model.norm.weight"]}, 4)
    opened.load(old, 5)
    assert told(opened.sample()) == told(before)


def test_prompts_that_go_on_are_not_computed_again(opened: Opened) -> None:
    policy = opened.chat.policy
    opened.wait(policy.sleep())
    opened.wait(policy.wake())
    prompt = [3 + k % 50 for k in range(100)]
    before = policy.stats.prefilled_tokens
    [[first]] = opened.wait(policy.generate([prompt], PARAMS))
    assert policy.stats.prefilled_tokens - before == 100
    before = policy.stats.prefilled_tokens
    longer = [*prompt, *first.token_ids, 7, 8, 9]
    opened.wait(policy.generate([longer], PARAMS))
    assert policy.stats.prefilled_tokens - before < len(longer) - 90


def test_a_row_ends_where_the_context_does(opened: Opened) -> None:
    policy = opened.chat.policy
    [[done]] = opened.wait(
        policy.generate([[5] * (policy.context_length - 4)], SamplingParams(50, 1.0, seed=1))
    )
    assert len(done.token_ids) == 4 and done.stop is StopReason.CONTEXT
    whole = [5] * (policy.context_length - 3)
    [scores] = opened.wait(policy.score([whole], [[6] * 4], top=3))  # type: ignore[attr-defined]
    assert len(scores.logprobs_T) == len(scores.top_T) == 4 and all(len(top) == 3 for top in scores.top_T)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1500)


def test_an_engine_leaves_its_process_as_it_was_and_stdout_clean() -> None:
    code = """
import asyncio, os, random
import numpy, torch
from spade.config import ServingConfig
from spade.serving.launch import open_chat, resolve_ref
from spade.serving.policy import SamplingParams
from spade.serving.render import Renderer
def state():
    return (random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist(),
            {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")})
async def main():
    cfg = ServingConfig(type="vllm", device="cpu", max_rows=8, vllm={"cache_gib": 0.1})
    os.environ["OMP_NUM_THREADS"] = "1"
    import spade.serving.vllm_engine, vllm  # an import may set variables of its own
    Renderer.from_folder(resolve_ref("embedded").path)  # draws random numbers when it is loaded first
    before = state()
    chats = [await open_chat("embedded", cfg) for _ in range(2)]
    assert state() == before, "a starting engine changed its process"
    torch.set_num_threads(2)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    said = [await c.policy.generate([[5, 6, 7]], SamplingParams(8, 1.0, seed=1)) for c in chats]
    assert said[0] == said[1]
    await chats[0].close()
    assert await chats[1].policy.generate([[5, 6, 7]], SamplingParams(8, 1.0, seed=1)) == said[0]
    await chats[1].close()
    assert not torch.distributed.is_initialized()
    third = await open_chat("embedded", cfg)
    assert await third.policy.generate([[5, 6, 7]], SamplingParams(8, 1.0, seed=1)) == said[0]
    await third.close()
asyncio.run(main())
"""
    done = run(code)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"cache_gib": 100_000.0}, "vLLM has not enough memory to start"),
        ({"args": {"no_such_argument": 1}}, "vLLM does not know a value of serving.vllm.args"),
    ],
)
def test_a_start_that_fails_is_one_sentence(own: dict[str, Any], says: str) -> None:
    async def main() -> None:
        await open_chat("embedded", serving(**own))

    with pytest.raises((BackendError, ConfigError), match=says) as caught:
        asyncio.run(main())
    assert "\n" not in str(caught.value)


def spade(*args: str, cwd: Path) -> Any:
    """Run the command line; the JSON it prints."""
    code = "import sys; from spade.cli.main import main; sys.exit(main(sys.argv[1:]))"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *args, "--json"], capture_output=True, text=True, timeout=3000, cwd=cwd,
        env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_a_run_trains_and_is_evaluated_on_vllm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    on_vllm = ("serving.type=vllm", "serving.device=cpu")
    spade("train", "smoke", *on_vllm, f"out={out}", "train.lens.every=0", cwd=tmp_path)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    shown = {key: value for key, value in rows[-1].items() if "mismatch" in key}
    with capsys.disabled():
        print(f" largest ratio {shown['learner/mismatch_max/agent']:.7f}", end=" ")
    assert 0 <= shown["learner/mismatch_kl/agent"] < 0.01 and shown["learner/mismatch_alarm"] == 0
    done = spade("eval", "--ckpt", str(out), "--suite", "smoke", "--limit", "4", *on_vllm, cwd=tmp_path)
    assert done
