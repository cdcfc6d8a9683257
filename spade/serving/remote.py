"""Chat endpoints that speak the OpenAI protocol: text in, text out, for everything but training.

`converse` sends messages and tools as they are. `generate` is for callers that speak ids: messages travel as
byte tokens (`ByteRenderer`), tools as text. Log-probs of a `Completion` are NaN: a text has no exact ids.

Nothing is left out silently: a parameter that the endpoint ignores or refuses is an error unless
`serving.endpoint.drop` names it. A request that is lost costs no other one its answer.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx

from spade.errors import BackendError, InputError
from spade.rng import child_seed
from spade.serving.chat import ChatCompletion, ChatRequest, read_visible
from spade.serving.endpoint import Endpoint, Refused, key_for, parse_spec
from spade.serving.policy import Completion, PolicyStats, SamplingParams
from spade.serving.probe import Capabilities, probe
from spade.serving.scripted import END, ByteRenderer
from spade.serving.stopping import cut_at
from spade.serving.thoughts import split_thoughts
from spade.serving.toolblock import call_markup, with_tool_block
from spade.serving.wire import read_wire_calls, to_wire, wire_text, wire_tools
from spade.types import Message, StopReason

if TYPE_CHECKING:
    from spade.config import ServingConfig

CUT = ("length", "max_tokens")
"""Words of endpoints for a reply that a token limit ended."""
FILTERED = "content_filter"


class RemotePolicy:
    """A `Policy` over `POST URL/chat/completions`. Cannot be trained: it gives no exact tokens."""

    exact_tokens = False
    lockstep = False
    privileged = False

    def __init__(
        self, model: str, url: str, *, key: str | None = None, max_rows: int = 192, parallel: int = 16,
        timeout: float = 600.0, drop: Sequence[str] = (), transport: httpx.AsyncBaseTransport | None = None,
        pause: float = 0.5,
    ) -> None:  # fmt: skip
        self.model, self.max_rows = model, max_rows
        self.context_length = 1 << 20  # in bytes of text; the endpoint has its own limit in tokens
        self.stats = PolicyStats()
        self.renderer = ByteRenderer()
        self.able = Capabilities()
        """What the endpoint can do; everything, until `start` has asked."""
        self._drop = frozenset(drop)
        self._endpoint = Endpoint(
            url, key=key, parallel=parallel, timeout=timeout, pause=pause, transport=transport
        )

    @classmethod
    def from_spec(cls, spec: str, cfg: ServingConfig, environ: Mapping[str, str]) -> RemotePolicy:
        """From `MODEL@URL`, with the key that the environment has for the address."""
        model, url = parse_spec(spec)
        limits = cfg.endpoint
        return cls(
            model, url, key=key_for(url, environ), max_rows=cfg.max_rows, parallel=limits.parallel,
            timeout=limits.timeout, drop=limits.drop,
        )  # fmt: skip

    @property
    def dropped(self) -> tuple[str, ...]:
        """Parameters that this endpoint cannot heed and is not sent, because the user said so."""
        return tuple(sorted(name for name in self._drop if getattr(self.able, name, "yes") != "yes"))

    async def start(self) -> None:
        """Find out what the endpoint can do. Raises `BackendError` when it does not answer."""
        self.able = await probe(self._endpoint, self.model)
        if self.able != Capabilities(limit=self.able.limit):
            print(f"serving: {self.model} at {self._endpoint.url}: {self.able}.", file=sys.stderr)

    async def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
        n: int = 1,
    ) -> list[list[Completion]]:
        """See `Policy.generate`; errors as those of `converse`."""
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        talks = [self.renderer.messages(prompt) for prompt in prompts]
        requests = [ChatRequest(talk, params=s) for talk, s in zip(talks, each, strict=True)]
        return [[reply.completion for reply in row] for row in await self.converse(requests, n)]

    async def converse(self, requests: Sequence[ChatRequest], n: int = 1) -> list[list[ChatCompletion]]:
        """See `ChatPolicy.batch`."""
        for request in requests:
            self._check(request)
        rows = await asyncio.gather(*(self._replies(r, n) for r in requests), return_exceptions=True)
        errors = [row for row in rows if isinstance(row, BaseException)]
        for error in errors:
            if not isinstance(error, BackendError) or len(errors) == len(rows):
                raise error
        lost = Completion((), (), StopReason.CANCELLED)
        return [[ChatCompletion("", lost)] * n if isinstance(row, BaseException) else row for row in rows]

    async def load_weights(self, named: Iterable[tuple[str, Any]], version: int) -> None:
        """Always raises: an endpoint cannot be trained."""
        raise BackendError(f"The endpoint {self._endpoint.url} cannot be trained; use a local checkpoint.")

    async def sleep(self) -> None:
        """Nothing to free."""

    async def wake(self) -> None:
        """Nothing to undo."""

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    # --- what is asked ---------------------------------------------------------------------------------

    def _check(self, request: ChatRequest) -> None:
        """Raise `InputError` for a parameter that the endpoint would not heed."""
        asked = {
            "top_k": request.params.top_k > 0,
            "tools": bool(request.tools),
            "logprobs": request.params.top_logprobs is not None,
            # What is ignored here is reproducibility, which no endpoint promises; `start` has said so.
            "seed": request.params.seed is not None and self.able.seed == "refused",
        }
        for name, wanted in asked.items():
            support = getattr(self.able, name)
            if wanted and support != "yes" and name not in self._drop:
                verb = "ignores" if support == "ignored" else "refuses"
                raise InputError(
                    f"The endpoint {self._endpoint.url} {verb} {name} for model {self.model}; ask without "
                    f"it, or let it be left out with serving.endpoint.drop=[{name}]."
                )

    async def _replies(self, request: ChatRequest, n: int) -> list[ChatCompletion]:
        """One request for all `n` where the endpoint can do that and no sample needs a seed of its own."""
        if n == 1 or (request.params.seed is None and self.able.n == "yes"):
            return await self._ask(request, n)
        rows = await asyncio.gather(*(self._ask(request, 1, sample) for sample in range(n)))
        return [row[0] for row in rows]

    def _body(self, request: ChatRequest, n: int, sample: int) -> dict[str, Any]:
        params = request.params
        tools = request.tools
        messages = list(request.messages)
        if tools and self.able.tools != "yes":
            messages, tools = with_tool_block(messages, tools), ()
        body: dict[str, Any] = {
            "model": self.model, "messages": to_wire(messages), self.able.limit: params.max_tokens,
            "temperature": params.temperature, "top_p": params.top_p,
        }  # fmt: skip
        if tools:
            body["tools"] = wire_tools(tools)
        if n > 1:
            body["n"] = n
        if params.top_k > 0 and self.able.top_k == "yes":
            body["top_k"] = params.top_k
        if params.seed is not None and self.able.seed != "refused":
            own = child_seed(params.seed, "sample", sample) if sample else params.seed
            body["seed"] = own % 2**31
        if params.top_logprobs is not None and self.able.logprobs == "yes":
            body["logprobs"] = True
            if params.top_logprobs:
                body["top_logprobs"] = params.top_logprobs
        if request.stop and request.thinking is False:  # elsewhere it would end thoughts, too: cut afterwards
            body["stop"] = list(request.stop)
        if request.thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": request.thinking}
        return body

    async def _ask(self, request: ChatRequest, n: int, sample: int = 0) -> list[ChatCompletion]:
        body = self._body(request, n, sample)
        try:
            data = await self._endpoint.post("/chat/completions", body, f"model {self.model}")
        except Refused as error:
            if error.too_long:
                return [ChatCompletion("", Completion((), (), StopReason.CONTEXT))] * n
            raise
        usage = data.get("usage")
        count = usage if isinstance(usage, dict) else {}
        prompt, sampled = (int(count.get(k) or 0) for k in ("prompt_tokens", "completion_tokens"))
        try:
            choices = sorted(data["choices"], key=lambda c: c.get("index") or 0)[:n]
            shares = [sampled // n + (k < sampled % n) for k in range(n)]
            out = [read_choice(c, request, prompt, s) for c, s in zip(choices, shares, strict=True)]
        except (KeyError, TypeError, AttributeError, ValueError):
            raise BackendError(
                f"The endpoint {self._endpoint.url} sent an answer without a chat message."
            ) from None
        self.stats.requests += n
        self.stats.prompt_tokens += prompt
        self.stats.sampled_tokens += sampled
        return out


def read_choice(
    choice: Mapping[str, Any], request: ChatRequest, prompt_tokens: int, sampled_tokens: int
) -> ChatCompletion:
    """One choice of an answer. Raises KeyError, TypeError or AttributeError when it holds no message."""
    message = choice["message"]
    content = wire_text(message["content"]) if "content" in message else ""
    told = str(message.get("reasoning_content") or message.get("reasoning") or "").strip()
    thought, visible = split_thoughts(content)
    calls, problems = read_wire_calls(message.get("tool_calls"))
    if calls or problems:
        text, said = visible.strip(), Message("assistant", visible.strip(), calls)
    else:
        text, calls, problems = read_visible(visible, request)
        said = Message("assistant", visible.strip())
    markup = [call_markup(call) for call in said.tool_calls]
    raw = "\n".join(x for x in (f"<think>\n{told}\n</think>\n" if told else "", content, *markup) if x)
    reason = choice.get("finish_reason")
    stop = StopReason.LENGTH if reason in CUT else StopReason.STOP
    if len(cut_at(visible, request.stop)) < len(visible):
        stop = StopReason.STOP
    if reason == FILTERED:  # the provider's doing, not the model's
        stop = StopReason.CANCELLED
    ids = (*raw.encode("utf-8", "replace"), *(() if stop is StopReason.LENGTH else (END,)))
    return ChatCompletion(
        text=text, completion=Completion(ids, (math.nan,) * len(ids), stop),
        reasoning="\n".join(x for x in (told, thought) if x), tool_calls=calls, problems=problems, raw=raw,
        prompt_tokens=prompt_tokens, sampled_tokens=sampled_tokens, message=said,
        logprobs=_logprobs(choice.get("logprobs")),
    )  # fmt: skip


def _logprobs(value: Any) -> tuple[tuple[str, float], ...]:
    rows = value.get("content") if isinstance(value, dict) else None
    return tuple((str(row["token"]), float(row["logprob"])) for row in rows or ())
