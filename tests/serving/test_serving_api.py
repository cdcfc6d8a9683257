"""The HTTP server, spoken to by the real `openai` client and, where that is too polite, by plain requests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from spade.serving.chat import ChatPolicy, ChatRequest
from spade.serving.launch import open_chat
from spade.serving.scripted import ScriptedPolicy
from spade.types import Message

from . import tiny
from .served import served

ASK: Any = [{"role": "user", "content": "guess a number between 1 and 9"}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}
CALLS = (
    'Let me see.\n<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>\n'
    '<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>'
)


def client(url: str, key: str = "none") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=60)


def scripted(reply: Any) -> ChatPolicy:
    policy = ScriptedPolicy.from_function(reply if callable(reply) else lambda prompt: reply)
    return ChatPolicy(policy.renderer, policy)


@pytest_asyncio.fixture
async def tiny_server(roomy: Path) -> AsyncIterator[tuple[Any, str, ChatPolicy]]:
    chat = await open_chat(str(roomy), tiny.serving(deterministic=False))
    async with served(chat) as (service, url):
        yield service, url, chat


Server = tuple[Any, str, ChatPolicy]


async def test_models(tiny_server: Server) -> None:
    _, url, _ = tiny_server
    async with client(url) as c:
        found = await c.models.list()
        assert [m.id for m in found.data] == ["m"]
        assert (await c.models.retrieve("m")).owned_by == "spade"
        with pytest.raises(openai.NotFoundError, match="There is no model 'x' here; this server has 'm'"):
            await c.models.retrieve("x")
        with pytest.raises(openai.NotFoundError, match="There is no model 'x'"):
            await c.chat.completions.create(model="x", messages=ASK)


async def test_chat_equals_the_policy(tiny_server: Server) -> None:
    _, url, chat = tiny_server
    async with client(url) as c:
        got = await c.chat.completions.create(
            model="m", messages=ASK, n=3, seed=4, max_tokens=12, logprobs=True
        )
        again = await c.chat.completions.create(
            model="m", messages=ASK, n=3, seed=4, max_completion_tokens=12
        )
    prompt = chat.renderer.start([Message("user", ASK[0]["content"])])
    assert got.usage is not None and got.usage.prompt_tokens == len(prompt)
    texts = [choice.message.content for choice in got.choices]
    assert texts == [choice.message.content for choice in again.choices] and len(set(texts)) > 1
    assert [choice.index for choice in got.choices] == [0, 1, 2]
    tokens = sum(len(choice.logprobs.content) for choice in got.choices)  # type: ignore[union-attr, arg-type]
    assert got.usage.completion_tokens == tokens
    assert {choice.finish_reason for choice in got.choices} <= {"stop", "length"}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_logprobs_are_those_of_the_model(tiny_server: Server, temperature: float) -> None:
    _, url, chat = tiny_server
    async with client(url) as c:
        got = await c.chat.completions.create(
            model="m",
            messages=ASK,
            max_tokens=8,
            seed=1,
            logprobs=True,
            top_logprobs=3,
            temperature=temperature,
        )
    rows = got.choices[0].logprobs.content  # type: ignore[union-attr]
    assert rows is not None and len(rows) > 2
    prompt = chat.renderer.start([Message("user", ASK[0]["content"])])
    policy: Any = chat.policy
    ids = chat.renderer.raw_ids("".join(row.token for row in rows))
    [scores] = await policy.score([prompt], [ids])
    if len(ids) == len(rows):  # the text may be tokenised in another way
        assert [row.logprob for row in rows] == pytest.approx(scores.logprobs_T, abs=1e-4)
    for row in rows:
        best = [top.logprob for top in row.top_logprobs]
        assert best == sorted(best, reverse=True) and len(best) == 3 and row.logprob <= best[0] + 1e-6
        if temperature == 0:
            assert row.token == row.top_logprobs[0].token


@pytest.mark.parametrize("n", [1, 3])
async def test_a_stream_adds_up_to_the_answer(tiny_server: Server, n: int) -> None:
    _, url, _ = tiny_server
    body: Any = dict(model="m", messages=ASK, n=n, seed=7, max_tokens=30, stop=["e", "q"])
    async with client(url) as c:
        whole = await c.chat.completions.create(**body)
        texts, reasons, usage = [""] * n, [""] * n, None
        async for chunk in await c.chat.completions.create(
            **body, stream=True, stream_options={"include_usage": True}
        ):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert texts == [choice.message.content for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert usage is not None and whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens


async def test_raw_completions_and_their_stream(tiny_server: Server) -> None:
    _, url, chat = tiny_server
    async with client(url) as c:
        ids = chat.renderer.raw_ids("the door is")
        body: Any = dict(model="m", max_tokens=6, seed=2, n=2)
        by_text = await c.completions.create(prompt="the door is", **body)
        by_ids = await c.completions.create(prompt=ids, **body)
        many = await c.completions.create(prompt=[ids, chat.renderer.raw_ids("higher")], **body)
        texts = [choice.text for choice in by_text.choices]
        assert texts == [choice.text for choice in by_ids.choices] == [x.text for x in many.choices[:2]]
        assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
        streamed = ["", ""]
        async for chunk in await c.completions.create(prompt=ids, stream=True, **body):
            for choice in chunk.choices:
                streamed[choice.index] += choice.text
        assert streamed == texts


async def test_echo_scores_the_prompt(tiny_server: Server) -> None:
    """The request that lm-evaluation-harness makes for log-likelihoods, and the arithmetic it does."""
    _, url, chat = tiny_server
    policy: Any = chat.policy
    context, answer = chat.renderer.raw_ids("the door is"), chat.renderer.raw_ids(" locked")
    async with client(url) as c:
        got = await c.completions.create(
            model="m", prompt=[[*context, *answer], context], max_tokens=1, temperature=0, logprobs=1,
            echo=True, seed=1234,
        )  # fmt: skip
        scored = await c.completions.create(
            model="m", prompt=[*context, *answer], max_tokens=0, logprobs=2, echo=True
        )
    book = got.choices[0].logprobs
    assert book is not None and book.token_logprobs is not None and book.top_logprobs is not None
    assert book.tokens is not None and len(book.tokens) == len(context) + len(answer) + 1
    assert book.token_logprobs[0] is None and book.top_logprobs[0] is None
    [wanted] = await policy.score([context], [answer])
    assert book.token_logprobs[len(context) : -1] == pytest.approx(wanted.logprobs_T, abs=1e-4)
    greedy = [
        token == max(top, key=lambda t: top[t])
        for token, top in zip(
            book.tokens[len(context) : -1], book.top_logprobs[len(context) : -1], strict=True
        )
    ]
    assert greedy == list(wanted.greedy_T)
    assert got.choices[0].text.startswith("the door is locked") and got.choices[1].text.startswith("the door")
    only = scored.choices[0].logprobs
    assert (
        only is not None
        and only.tokens == book.tokens[:-1]
        and scored.choices[0].text == "the door is locked"
    )
    assert scored.usage is not None and scored.usage.completion_tokens == 0


# --- tools, thoughts, histories ------------------------------------------------------------------------


async def test_tool_calls_go_out_and_come_back() -> None:
    seen: list[str] = []

    def reply(prompt: str) -> str:
        seen.append(prompt)
        return CALLS if "[tool]" not in prompt else "The sum is 3."

    async with served(scripted(reply)) as (_, url), client(url) as c:
        got = await c.chat.completions.create(model="m", messages=ASK, tools=[TOOL])
        choice = got.choices[0]
        calls = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls" and choice.message.content == "Let me see." and calls
        assert [(k.function.name, json.loads(k.function.arguments)) for k in calls] == [  # type: ignore[union-attr]
            ("add", {"a": 1}), ("add", {"a": 2}),
        ]  # fmt: skip
        assert len({k.id for k in calls}) == 2
        results: Any = [
            {"role": "tool", "tool_call_id": calls[1].id, "content": "two"},  # out of order on purpose
            {"role": "tool", "tool_call_id": calls[0].id, "content": "one"},
        ]
        talk: Any = [*ASK, choice.message.model_dump(exclude_none=True), *results]
        end = await c.chat.completions.create(model="m", messages=talk, tools=[TOOL])
        assert end.choices[0].message.content == "The sum is 3." and end.choices[0].finish_reason == "stop"
        assert CALLS in seen[-1] and seen[-1].index("one") < seen[-1].index("two")
        plain = await c.chat.completions.create(model="m", messages=ASK, tools=[TOOL], tool_choice="none")
        assert plain.choices[0].message.content == CALLS and not plain.choices[0].message.tool_calls
        assert '"name": "add"' in seen[0] and '"name": "add"' not in seen[-1]
        one = await c.chat.completions.create(
            model="m", messages=ASK, tools=[TOOL], parallel_tool_calls=False
        )
        assert len(one.choices[0].message.tool_calls or []) == 1
        with pytest.raises(openai.BadRequestError, match="tool_choice must be auto, none, required"):
            other: Any = {"type": "function", "function": {"name": "subtract"}}
            await c.chat.completions.create(model="m", messages=ASK, tools=[TOOL], tool_choice=other)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("choice", "rest", "call"),
    [
        ("required", '{"name": "add", "arguments": {"a": 5}}</tool_call>', ("add", {"a": 5})),
        ({"type": "function", "function": {"name": "add"}}, ' {"a": 6}}</tool_call>', ("add", {"a": 6})),
        ("required", "I would rather not.", None),
    ],
)
async def test_a_call_can_be_forced(stream: bool, choice: Any, rest: str, call: Any) -> None:
    async with served(scripted(rest)) as (_, url), client(url) as c:
        body: Any = dict(model="m", messages=ASK, tools=[TOOL], tool_choice=choice)
        if call is None:
            with pytest.raises(openai.APIError, match="no call that can be read"):
                if not stream:
                    await c.chat.completions.create(**body)
                async for _chunk in await c.chat.completions.create(**body, stream=True):
                    pass
            return
        calls: list[Any] = []
        if stream:
            async for chunk in await c.chat.completions.create(**body, stream=True):
                assert not chunk.choices[0].delta.content
                calls += chunk.choices[0].delta.tool_calls or []
        else:
            calls += (await c.chat.completions.create(**body)).choices[0].message.tool_calls or []
        assert [(k.function.name, json.loads(k.function.arguments)) for k in calls] == [call]


async def test_the_beginning_of_a_call_is_made_of_tokens(tiny_server: Server) -> None:
    _, _, chat = tiny_server
    talk = [Message("user", ASK[0]["content"])]
    plain, begun = ChatRequest(talk, [TOOL]), ChatRequest(talk, [TOOL], begin="<tool_call>\n")
    prompt = chat.prompt(begun)
    assert prompt == [*chat.prompt(plain), *chat.renderer.said_ids("<tool_call>\n")]
    [[reply]] = await chat.batch([begun])
    assert reply.raw == "<tool_call>\n" + chat.renderer.text(reply.completion.token_ids)


@pytest.mark.parametrize(
    "text", [CALLS, "no call, just <text", '{"name": "add", "arguments": {"a": 3}}', "ok"]
)
async def test_a_stream_with_tools_adds_up(text: str) -> None:
    async with served(scripted(text)) as (_, url), client(url) as c:
        whole = (await c.chat.completions.create(model="m", messages=ASK, tools=[TOOL])).choices[0]
        content, calls, reason = "", [], ""
        async for chunk in await c.chat.completions.create(
            model="m", messages=ASK, tools=[TOOL], stream=True
        ):
            delta = chunk.choices[0].delta
            content += delta.content or ""
            calls += [(k.index, k.function.name, k.function.arguments) for k in delta.tool_calls or []]  # type: ignore[union-attr]
            reason = chunk.choices[0].finish_reason or reason
    said = whole.message
    assert (content, reason) == (said.content or "", whole.finish_reason)
    assert calls == [
        (i, k.function.name, k.function.arguments)  # type: ignore[union-attr]
        for i, k in enumerate(said.tool_calls or [])
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_have_a_field_of_their_own(stream: bool) -> None:
    text = "<think>\nstop! Is it 4?\n</think>\n\nIt is 4. stop! More."
    async with served(scripted(text)) as (_, url), client(url) as c:
        body: Any = dict(model="m", messages=ASK, stop="stop!")
        if stream:
            thought = content = ""
            async for chunk in await c.chat.completions.create(**body, stream=True):
                delta = chunk.choices[0].delta
                content += delta.content or ""
                thought += getattr(delta, "reasoning_content", None) or ""
        else:
            message = (await c.chat.completions.create(**body)).choices[0].message
            content, thought = message.content or "", message.reasoning_content  # type: ignore[attr-defined]
    assert (thought, content) == ("stop! Is it 4?", "It is 4.")


async def test_a_history_keeps_its_exact_tokens(tiny_server: Server) -> None:
    service, url, chat = tiny_server
    async with client(url) as c:
        first = (await c.chat.completions.create(model="m", messages=ASK, max_tokens=12, seed=3)).choices[0]
        talk: Any = [*ASK, {"role": "assistant", "content": first.message.content}, *ASK]
        before = chat.policy.stats.prefilled_tokens, chat.policy.stats.prompt_tokens
        await c.chat.completions.create(model="m", messages=talk, max_tokens=4)
    messages, replies, _ = service.recall.restore([Message(m["role"], m["content"]) for m in talk])
    sampled = replies[0]
    assert sampled is not None
    prompt = chat.renderer.start(messages, replies=replies)
    opening = chat.renderer.start(messages[:1])
    assert prompt[: len(opening) + len(sampled)] == [*opening, *sampled]
    computed = chat.policy.stats.prefilled_tokens - before[0]
    asked = chat.policy.stats.prompt_tokens - before[1]
    assert computed <= asked - len(opening), "the key-value cache of the first turn was not used"


# --- refusals and limits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"frequency_penalty": 0.5}, "'frequency_penalty' is not supported"),
        ({"response_format": {"type": "json_object"}}, "'response_format' is not supported"),
        ({"colour": "red"}, "Unknown parameter 'colour'"),
        ({"n": 0}, "'n' is wrong"),
        ({"n": True}, "'n' is wrong"),
        ({"temperature": 3}, "'temperature' is wrong"),
        ({"top_p": 0}, "'top_p' is wrong"),
        ({"max_tokens": 0}, "'max_tokens' is wrong"),
        ({"max_tokens": 2**31}, "'max_tokens' is wrong"),
        ({"top_k": 2**70}, "'top_k' is wrong"),
        ({"stop": [1]}, "'stop"),
        ({"stream_options": {"x": 1}}, "Unknown parameter 'stream_options.x'"),
        ({"messages": []}, "'messages' is wrong"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, r"messages\[0\] has no role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "must be text"),
        (
            {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
            "assistant's",
        ),
        ({"tools": [{"type": "function", "function": {}}]}, r"tools\[0\] is not a function"),
        ({"messages": [{"role": "user", "content": "word " * 4000}]}, "leaves no room in a context"),
        ({"messages": [{"role": "user", "content": "word " * 4000}], "stream": True}, "leaves no room"),
    ],
)
async def test_what_is_not_supported_is_refused(tiny_server: Server, body: dict[str, Any], says: str) -> None:
    _, url, _ = tiny_server
    async with httpx.AsyncClient() as http:
        got = await http.post(f"{url}/chat/completions", json={"model": "m", "messages": ASK} | body)
    error = got.json()["error"]
    assert got.status_code == 400 and error["type"] == "invalid_request_error"
    assert re.search(says, error["message"]), error["message"]
    assert error["message"].endswith(".") and "\n" not in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        (
            "completions",
            {"prompt": [5, 999_999]},
            "The token id 999999 is none of the model's, which are 0 to",
        ),
        ("completions", {"prompt": [[5], [10**30]]}, "prompt must be a text, a list of token ids"),
        (
            "completions",
            {"prompt": [5, 999_999], "max_tokens": 0, "echo": True, "logprobs": 1},
            "The token id 999999 is none of the model's",
        ),
        ("completions", {"prompt": "a", "max_tokens": 10**30}, "'max_tokens' is wrong"),
        ("completions", {"prompt": [[5]] * 33, "n": 128}, "ask for more than 4096 replies"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": "\ud800"}]},
            "half of a surrogate pair",
        ),
    ],
)
async def test_a_bad_request_costs_nobody_else_an_answer(
    tiny_server: Server, path: str, body: dict[str, Any], says: str
) -> None:
    _, url, _ = tiny_server
    good = {"model": "m", "prompt": "a word", "max_tokens": 40, "seed": 3}
    bad = json.dumps({"model": "m", **body}).encode()
    async with httpx.AsyncClient(timeout=60) as http:
        alone = (await http.post(f"{url}/completions", json=good)).json()
        beside = asyncio.create_task(http.post(f"{url}/completions", json=good))
        for _ in range(3):
            got = await http.post(f"{url}/{path}", content=bad, headers={"content-type": "application/json"})
            assert got.status_code == 400 and says in got.json()["error"]["message"], got.text
        assert (await beside).json()["choices"] == alone["choices"]


@pytest.mark.parametrize("temperature", [1e-300, 1e-45, 1e-30, 1e-7])
async def test_a_temperature_next_to_nothing_is_greedy(tiny_server: Server, temperature: float) -> None:
    _, url, _ = tiny_server
    body = {"model": "m", "messages": ASK, "max_tokens": 8, "logprobs": True, "seed": 4}
    async with httpx.AsyncClient(timeout=60) as http:
        cold, greedy = [
            (await http.post(f"{url}/chat/completions", json=body | {"temperature": t})).json()["choices"][0]
            for t in (temperature, 0)
        ]
    assert cold["message"] == greedy["message"]
    for one, other in zip(cold["logprobs"]["content"], greedy["logprobs"]["content"], strict=True):
        assert one["logprob"] == pytest.approx(other["logprob"], abs=1e-4)  # bits depend on the company


async def test_neutral_values_are_taken(tiny_server: Server) -> None:
    _, url, _ = tiny_server
    neutral = {"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "seed": None, "stop": None,
               "response_format": {"type": "text"}, "user": "u", "store": False}  # fmt: skip
    async with httpx.AsyncClient() as http:
        got = await http.post(
            f"{url}/chat/completions", json={"model": "m", "messages": ASK, "max_tokens": 2} | neutral
        )
    assert got.status_code == 200, got.text


async def test_raw_refusals() -> None:
    async with served(scripted("hello"), body_bytes=500) as (_, url), httpx.AsyncClient() as http:
        chat = f"{url}/chat/completions"
        good, raw = {"model": "m", "messages": ASK}, {"model": "m", "prompt": "a"}
        cases = [
            (await http.get(f"{url}/nothing"), 404),
            (await http.get(chat), 405),
            (await http.post(chat, content=b"{", headers={"content-type": "application/json"}), 400),
            (await http.post(chat, content=b"[1]", headers={"content-type": "application/json"}), 400),
            (await http.post(chat, content=b'{"n": NaN}', headers={"content-type": "application/json"}), 400),
            (await http.post(chat, content=json.dumps(good), headers={"content-type": "text/plain"}), 415),
            (await http.post(chat, json=good | {"user": "x" * 600}), 413),
            (await http.post(f"{url}/completions", json=raw | {"echo": True, "logprobs": 1}), 400),
            (await http.post(f"{url}/completions", json={"model": "m", "prompt": [["a"]]}), 400),
            (await http.post(f"{url}/completions", json={"model": "m", "prompt": ""}), 400),
        ]  # fmt: skip
        for got, status in cases:
            assert got.status_code == status and got.json()["error"]["message"], got.text
        pieces = [b'{"model": "m", ', b'"messages": ' + b" " * 600]

        async def body() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        chunked = await http.post(chat, content=body(), headers={"content-type": "application/json"})
        assert chunked.status_code == 413  # no Content-Length to go by
        assert (await http.post(chat, json=good)).status_code == 200
        assert (await http.get(url.removesuffix("/v1") + "/health")).json() == {"status": "ok"}


async def test_the_key() -> None:
    async with served(scripted("hello"), key="s3cret") as (_, url):
        async with client(url, "s3cret") as c:
            assert (await c.chat.completions.create(model="m", messages=ASK)).choices[
                0
            ].message.content == "hello"
        async with client(url, "wrong") as c:
            with pytest.raises(openai.AuthenticationError, match="key is missing or wrong"):
                await c.chat.completions.create(model="m", messages=ASK)
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{url}/models")).status_code == 401


# --- time and disappearance ----------------------------------------------------------------------------


class Slow(ScriptedPolicy):
    """Answers when it is allowed to; counts those that gave up waiting."""

    def __init__(self) -> None:
        super().__init__("constant:hello")
        self.allowed, self.begun, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        self.begun.set()
        try:
            await self.allowed.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return await super().generate(*args, **kwargs)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_cancels_its_request(stream: bool) -> None:
    policy = Slow()
    async with served(ChatPolicy(policy.renderer, policy)) as (service, url):
        async with client(url) as c:
            ask = asyncio.create_task(_read(c, stream))
            await asyncio.wait_for(policy.begun.wait(), 30)
            ask.cancel()
            await asyncio.gather(ask, return_exceptions=True)
        await asyncio.wait_for(policy.cancelled.wait(), 30)
        policy.allowed.set()
        async with client(url) as c:
            assert await _read(c, stream) == "hello"
        for _ in range(200):
            if not service.active:
                break
            await asyncio.sleep(0.02)
        assert service.active == 0


async def _read(c: openai.AsyncOpenAI, stream: bool) -> str:
    if not stream:
        got = await c.chat.completions.create(model="m", messages=ASK)
        return got.choices[0].message.content or ""
    text = ""
    async for chunk in await c.chat.completions.create(model="m", messages=ASK, stream=True):
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    return text


async def test_too_late() -> None:
    policy = Slow()
    async with served(ChatPolicy(policy.renderer, policy), seconds=0.3) as (service, url), client(url) as c:
        with pytest.raises(openai.InternalServerError, match=r"took longer than 0\.3 s"):
            await _read(c, False)
        assert policy.cancelled.is_set()
        with pytest.raises(openai.APIError, match=r"took longer than 0\.3 s"):
            await _read(c, True)
        assert service.active == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_too_many(stream: bool) -> None:
    async with served(scripted("hello"), waiting=1) as (service, url), client(url) as c:
        with service.place():
            with pytest.raises(openai.RateLimitError, match="Too many requests") as caught:
                await _read(c, stream)
            assert caught.value.response.headers["retry-after"] == "1"
        assert await _read(c, stream) == "hello"


async def test_a_failing_engine_is_an_error_and_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(prompt: str) -> str:
        raise RuntimeError("the secret path /etc")

    async with served(scripted(fail)) as (_, url), client(url) as c:
        with pytest.raises(openai.InternalServerError, match="its log says why") as caught:
            await _read(c, False)
        assert "secret path" not in str(caught.value)
        with pytest.raises(openai.APIError, match="its log says why"):
            await _read(c, True)
    assert "the secret path /etc" in capsys.readouterr().err
