"""Endpoints: what is probed, what is an error, what is repeated, and what is never lost or written down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from spade.config import PlayConfig, SandboxConfig
from spade.envs.sandbox import Sandbox
from spade.errors import BackendError, InputError
from spade.play.schedule import play
from spade.serving.chat import ChatPolicy, ChatRequest
from spade.serving.policy import SamplingParams
from spade.serving.probe import Capabilities
from spade.serving.remote import RemotePolicy
from spade.serving.scripted import ByteRenderer, ScriptedPolicy
from spade.types import EnvProgram, Fault, Instance, Message, Scored, StopReason, ToolCall
from tests.play.programs import COUNT

from .served import served

TALK = [Message("user", "Hello.")]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
Handler = Callable[[dict[str, Any]], Any]


def remote(handler: Handler, **more: Any) -> RemotePolicy:
    """A policy over a function of the request's body: a dict or a message text is a good answer."""

    async def answer(request: httpx.Request) -> httpx.Response:
        got = handler(json.loads(request.content))
        if asyncio.iscoroutine(got):
            got = await got
        if isinstance(got, httpx.Response):
            return got
        return httpx.Response(200, json=said(got) if isinstance(got, str) else got)

    return RemotePolicy("m", "http://h/v1", transport=httpx.MockTransport(answer), pause=0.0, **more)


def said(text: str, n: int = 1, prompt: int = 3, reason: str = "stop", **message: Any) -> dict[str, Any]:
    whole = {"role": "assistant", "content": text} | message
    choice = {"message": whole, "finish_reason": reason}
    return {
        "choices": [choice | {"index": k} for k in range(n)],
        "usage": {"prompt_tokens": prompt, "completion_tokens": 5 * n},
    }


def refuses(body: dict[str, Any], *names: str) -> httpx.Response | None:
    bad = [name for name in names if name in body]
    return httpx.Response(400, json={"error": {"message": f"unknown {bad[0]}"}}) if bad else None


# --- the probe -----------------------------------------------------------------------------------------


def able(body: dict[str, Any]) -> dict[str, Any]:
    """An endpoint that can do everything: words depend on the seed, unless top_k is 1."""
    word = "same" if body.get("top_k") == 1 else f"word {body.get('seed')}"
    out = said(word, body.get("n", 1), 9 if "tools" in body else 3)
    if body.get("logprobs"):
        out["choices"][0]["logprobs"] = {"content": [{"token": "w", "logprob": -1.5}]}
    return out


def deaf(count: list[int], *names: str) -> Handler:
    """The same, but it ignores some parameters; without a seed it never says the same word twice."""

    def handler(body: dict[str, Any]) -> dict[str, Any]:
        count.append(1)
        heard = {k: v for k, v in body.items() if k not in names}
        if "seed" not in heard and "top_k" not in heard:
            heard["seed"] = len(count)
        return able(heard)

    return handler


async def test_an_endpoint_that_can_do_everything(capsys: pytest.CaptureFixture[str]) -> None:
    policy = remote(able)
    await policy.start()
    assert policy.able == Capabilities() and capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["n", "logprobs", "top_k", "tools", "seed"])
async def test_what_is_ignored_or_refused_is_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    ignoring = remote(deaf([], name))
    await ignoring.start()
    assert ignoring.able == Capabilities(**{name: "ignored"})  # type: ignore[arg-type]
    assert f"not {name} (ignored)" in capsys.readouterr().err
    refusing = remote(lambda body: refuses(body, name) or able(body))
    await refusing.start()
    assert getattr(refusing.able, name) == "refused"


async def test_the_other_name_of_the_token_limit() -> None:
    def handler(body: dict[str, Any]) -> Any:
        if "max_tokens" in body:
            said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return httpx.Response(400, json={"error": {"message": said}})
        return able(body)

    policy = remote(handler)
    await policy.start()
    assert policy.able == Capabilities(limit="max_completion_tokens")
    await policy.converse([ChatRequest(TALK)])


async def test_a_dead_endpoint_is_found_at_the_start() -> None:
    with pytest.raises(BackendError, match=r"does not answer for model m \(status 503\)"):
        await remote(lambda body: httpx.Response(503)).start()
    with pytest.raises(BackendError, match="set SPADE_API_KEY"):
        await remote(lambda body: httpx.Response(401, json={"error": {"message": "bad key k3y"}})).start()


# --- parameters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("top_k", ChatRequest(TALK, params=SamplingParams(top_k=20))),
        ("tools", ChatRequest(TALK, [TOOL])),
        ("logprobs", ChatRequest(TALK, params=SamplingParams(top_logprobs=1))),
        ("seed", ChatRequest(TALK, params=SamplingParams(seed=1))),
    ],
)
async def test_what_would_not_be_heeded_is_an_error(name: str, request_: ChatRequest) -> None:
    seen: list[dict[str, Any]] = []

    def handler(body: dict[str, Any]) -> str:
        seen.append(body)
        return "hi"

    policy = remote(handler)
    policy.able = Capabilities(**{name: "refused"})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=rf"refuses {name} .*serving\.endpoint\.drop=\[{name}\]"):
        await policy.converse([request_])
    assert seen == []
    policy = remote(handler, drop=[name])
    policy.able = Capabilities(**{name: "refused"})  # type: ignore[arg-type]
    await policy.converse([request_])
    assert name not in seen[0]
    if name == "tools":  # listed as text instead
        assert '"name": "add"' in seen[0]["messages"][0]["content"]
    policy = remote(handler)
    await policy.converse([request_])
    assert name in seen[1]


async def test_top_k_is_not_dropped_in_play() -> None:
    """The path that play and evaluation take: byte prompts through `generate`."""
    policy = remote(able)
    policy.able = Capabilities(top_k="ignored")
    with pytest.raises(InputError, match="ignores top_k"):
        await policy.generate([ByteRenderer().start(TALK)], SamplingParams(top_k=5))


async def test_samples_in_one_request_or_each_with_a_seed() -> None:
    seen: list[dict[str, Any]] = []

    def handler(body: dict[str, Any]) -> dict[str, Any]:
        seen.append(body)
        return said("hi", body.get("n", 1))

    policy = remote(handler)
    [row] = await policy.converse([ChatRequest(TALK)], 3)
    assert len(row) == 3 and [b.get("n") for b in seen] == [3] and policy.stats.sampled_tokens == 15
    assert sum(r.sampled_tokens for r in row) == 15
    seen.clear()
    await policy.converse([ChatRequest(TALK, params=SamplingParams(seed=5))], 3)
    assert len({b["seed"] for b in seen}) == 3 and seen[0]["seed"] == 5
    seen.clear()
    policy.able = Capabilities(n="ignored")
    await policy.converse([ChatRequest(TALK)], 2)
    assert ["n" in b for b in seen] == [False, False]


async def test_tools_thoughts_and_history() -> None:
    seen: list[dict[str, Any]] = []
    call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    broken = {"id": "y", "type": "function", "function": {"name": "add", "arguments": "{"}}

    def handler(body: dict[str, Any]) -> dict[str, Any]:
        seen.append(body)
        if len(seen) == 1:
            return said("", reasoning_content="Let me add.", tool_calls=[call, broken], reason="tool_calls")
        return said("<think>hm</think>Three, END more")

    chat = ChatPolicy(ByteRenderer(), remote(handler))
    [first] = await chat.chat(TALK, [TOOL])
    assert first.tool_calls == (ToolCall("add", {"a": 1}),) and first.problems == (
        "the arguments are not JSON",
    )
    assert (first.text, first.reasoning, first.stop) == ("", "Let me add.", StopReason.STOP)
    assert "<think>" in first.raw and '<tool_call>{"name": "add"' in first.raw
    talk = [*TALK, first.message, Message("tool", "three")]
    [second] = await chat.chat(talk, [TOOL], stop=["END"], thinking=True)
    assert (second.text, second.reasoning) == ("Three,", "hm")
    rows = seen[1]["messages"]
    assert rows[1]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert rows[2]["tool_call_id"] == rows[1]["tool_calls"][0]["id"] and rows[1]["content"] is None
    assert seen[1]["chat_template_kwargs"] == {"enable_thinking": True} and "stop" not in seen[1]
    await chat.chat(talk, [TOOL], stop=["END"], thinking=False)
    assert seen[2]["stop"] == ["END"]


async def test_calls_in_the_text_of_an_endpoint_are_read() -> None:
    text = 'Well.\n<tool_call>{"name": "add", "arguments": {}}</tool_call>'
    chat = ChatPolicy(ByteRenderer(), remote(lambda body: text))
    [reply] = await chat.chat(TALK, [TOOL])
    assert (reply.text, reply.tool_calls) == ("Well.", (ToolCall("add", {}),))
    assert reply.message == Message("assistant", text)
    [plain] = await chat.chat(TALK)
    assert (plain.text, plain.tool_calls) == (text, ())


# --- failures ------------------------------------------------------------------------------------------


async def test_a_lost_request_costs_no_other_its_answer() -> None:
    def handler(body: dict[str, Any]) -> Any:
        text = body["messages"][0]["content"]
        return httpx.Response(500) if text == "bad" else text.upper()

    policy = remote(handler)
    requests = [ChatRequest([Message("user", text)]) for text in ("a", "bad", "c")]
    rows = await policy.converse(requests)
    assert [row[0].text for row in rows] == ["A", "", "C"]
    assert [row[0].stop for row in rows] == [StopReason.STOP, StopReason.CANCELLED, StopReason.STOP]
    with pytest.raises(BackendError, match="status 500"):
        await policy.converse(requests[1:2])


async def test_a_prompt_that_is_too_long_and_a_filter() -> None:
    error = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    [[long]] = await remote(lambda body: httpx.Response(400, json=error)).converse([ChatRequest(TALK)])
    assert long.stop is StopReason.CONTEXT and long.completion.token_ids == ()
    [[filtered]] = await remote(lambda body: said("", reason="content_filter")).converse([ChatRequest(TALK)])
    assert filtered.stop is StopReason.CANCELLED
    with pytest.raises(BackendError, match=r"status 400: unknown x\)"):
        await remote(lambda body: httpx.Response(400, json={"error": {"message": "unknown x"}})).converse(
            [ChatRequest(TALK)]
        )
    for nonsense in ({}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": None}]}):
        with pytest.raises(BackendError, match="without a chat message"):
            await remote(lambda body, x=nonsense: x).converse([ChatRequest(TALK)])  # type: ignore[misc]


async def test_retry_after_is_heeded_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("spade.serving.endpoint.asyncio.sleep", sleep)
    answers = [
        httpx.Response(429, headers={"retry-after": "7"}),
        httpx.Response(503),
        httpx.Response(200, json=said("hi")),
    ]
    policy = remote(lambda body: answers.pop(0))
    [[reply]] = await policy.converse([ChatRequest(TALK)])
    assert reply.text == "hi" and pauses[0] == 7 and pauses[1] < 1
    patient = remote(lambda body: httpx.Response(429, headers={"retry-after": "9999"}), timeout=60.0)
    with pytest.raises(BackendError, match=r"status 429, and it asks to wait 9999 s"):
        await patient.converse([ChatRequest(TALK)])


async def test_a_slow_endpoint_meets_its_deadline() -> None:
    async def never() -> httpx.Response:
        await asyncio.sleep(60)
        return httpx.Response(200)

    with pytest.raises(BackendError, match=r"no answer within 0\.2 s"):
        await remote(lambda body: never(), timeout=0.2).converse([ChatRequest(TALK)])


async def test_requests_in_flight_are_bounded_and_a_dead_endpoint_is_not_asked_for_ever() -> None:
    now, most, count = 0, 0, 0

    async def busy() -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return "hi"

    await remote(lambda body: _text(busy()), parallel=3).converse([ChatRequest(TALK)] * 10)
    assert most == 3

    def dead(body: dict[str, Any]) -> httpx.Response:
        nonlocal count
        count += 1
        return httpx.Response(503)

    policy = remote(dead, parallel=1)
    with pytest.raises(BackendError):
        await policy.converse([ChatRequest(TALK)] * 20)
    assert count == 8 * 8 + 12  # eight requests of eight attempts each, then one attempt each


async def _text(work: Any) -> httpx.Response:
    return httpx.Response(200, json=said(await work))


async def test_cancelling_ends_the_requests() -> None:
    ended = asyncio.Event()
    begun = asyncio.Event()

    async def wait() -> httpx.Response:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return httpx.Response(200)

    task = asyncio.create_task(remote(lambda body: wait()).converse([ChatRequest(TALK)]))
    await asyncio.wait_for(begun.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_failing_endpoint_loses_no_finished_episode() -> None:
    """Episodes that were answered are scored; the lost ones are faults; all lost is an error."""
    program = EnvProgram.of(COUNT)

    def handler(body: dict[str, Any]) -> Any:
        opening = body["messages"][0]["content"]
        return httpx.Response(500) if "from 3" in opening else "\\boxed{win}"

    policy = remote(handler)
    chat = ChatPolicy(policy.renderer, policy)
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        instances = [Instance(program.id, seed) for seed in range(6)]
        episodes = await play(instances, {program.id: program}, chat, sandbox, PlayConfig(), seed=1)
        kinds = [type(e.outcome) for e in episodes]
        assert kinds == [Scored, Scored, Scored, Fault, Scored, Scored]
        assert "status 500" in episodes[3].outcome.detail  # type: ignore[union-attr]
        with pytest.raises(BackendError, match="status 500"):
            await play(instances[3:4], {program.id: program}, chat, sandbox, PlayConfig(), seed=1)


# --- the key -------------------------------------------------------------------------------------------


async def test_no_error_shows_the_key() -> None:
    def leak(body: dict[str, Any]) -> httpx.Response:
        return httpx.Response(400, json={"error": {"message": "Incorrect key k3y provided"}})

    with pytest.raises(BackendError, match=r"Incorrect key \*\*\* provided"):
        await remote(leak, key="k3y").converse([ChatRequest(TALK)])


@pytest.mark.parametrize("right", [True, False])
async def test_the_key_is_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], right: bool
) -> None:
    """An evaluation over an endpoint with a key; every file that it leaves is searched."""
    from spade_evals.runner import run_eval

    secret = "sk-0123456789abcdef"
    monkeypatch.setenv("SPADE_API_KEY", secret if right else "sk-wrong-0123456789")
    policy = ScriptedPolicy.from_function(lambda prompt: "\\boxed{1}")
    async with served(ChatPolicy(policy.renderer, policy), key=secret) as (_, url):
        work = asyncio.to_thread(
            run_eval, f"openai:m@{url}", "heldout", tmp_path / "out", limit=2, quiet=True,
            play=PlayConfig(max_turns=1),
        )  # fmt: skip
        if right:
            await work
            assert list((tmp_path / "out").rglob("*.jsonl"))
        else:
            with pytest.raises(BackendError, match="set SPADE_API_KEY"):
                await work
    shown = "".join(capfd.readouterr())
    found = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert not any(b"sk-" in data for data in found) and "sk-" not in shown
