"""What a request may say. Unknown and unsupported parameters are refused in one sentence, never ignored."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from spade.serving.api.errors import ApiError

MAX_CHOICES = 128
MAX_TOP = 20
"""Most likely tokens that may be asked for beside each token."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,), "presence_penalty": (0,), "repetition_penalty": (1,), "length_penalty": (1,),
    "min_p": (0,), "min_tokens": (0,), "logit_bias": ({},), "best_of": (1,), "use_beam_search": (False,),
    "ignore_eos": (False,), "skip_special_tokens": (True,), "add_generation_prompt": (True,),
    "response_format": ({"type": "text"},), "modalities": (["text"],), "service_tier": ("auto", "default"),
    "store": (False,), "suffix": ("",), "functions": ([],), "function_call": ("none", "auto"),
}  # fmt: skip
"""Parameters that are not supported, with the values that ask for nothing."""

NESTED = ("stream_options", "chat_template_kwargs")

LARGEST = 2**31 - 1
"""Numbers beyond this count nothing that exists."""
Count = Annotated[StrictInt, Field(ge=1, le=LARGEST)]
Words = Annotated[list[StrictStr], Field(max_length=16)]


class StreamOptions(BaseModel):
    """`stream_options`."""

    model_config = ConfigDict(extra="forbid")
    include_usage: StrictBool = False


class TemplateOptions(BaseModel):
    """`chat_template_kwargs`."""

    model_config = ConfigDict(extra="forbid")
    enable_thinking: StrictBool | None = None


class Common(BaseModel):
    """What both kinds of request share. Absent and null are the same."""

    model_config = ConfigDict(extra="forbid")
    model: StrictStr
    n: Annotated[Count, Field(le=MAX_CHOICES)] = 1
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[StrictInt, Field(ge=-1, le=LARGEST)] = 0
    """Not part of OpenAI's protocol; 0 and -1 switch it off."""
    seed: StrictInt | None = None
    stop: StrictStr | Words = []
    stream: StrictBool = False
    stream_options: StreamOptions = StreamOptions()
    user: str | None = None
    metadata: dict[str, Any] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop texts."""
        return tuple(t for t in ([self.stop] if isinstance(self.stop, str) else self.stop) if t)


class ChatFields(Common):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Any], Field(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: StrictBool = False
    top_logprobs: Annotated[StrictInt, Field(ge=0, le=MAX_TOP)] = 0
    tools: list[dict[str, Any]] = []
    tool_choice: Any = "auto"
    parallel_tool_calls: StrictBool = True
    chat_template_kwargs: TemplateOptions = TemplateOptions()


class CompletionFields(Common):
    """`POST /v1/completions`."""

    prompt: StrictStr | list[Any]
    max_tokens: Annotated[StrictInt, Field(ge=0, le=LARGEST)] = 16
    logprobs: Annotated[StrictInt, Field(ge=0, le=MAX_TOP)] | None = None
    echo: StrictBool = False


class Tool(BaseModel):
    """One entry of `tools`, as far as it is looked at."""

    type: Literal["function"] = "function"
    function: dict[str, Any]


F = TypeVar("F", bound=Common)


def read_fields(kind: type[F], body: bytes) -> F:
    """The fields of a request body. Raises ApiError 400 in one sentence."""
    try:
        value = json.loads(body, parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ApiError("The body holds half of a surrogate pair, which is no text.") from None
    except (ValueError, RecursionError):
        raise ApiError("The body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise ApiError("The body must be a JSON object.")
    fields = {k: v for k, v in value.items() if v is not None}
    for name, allowed in NEUTRAL.items():
        if name in fields and name not in kind.model_fields and fields.pop(name) not in allowed:
            raise ApiError(f"'{name}' is not supported here; leave it out.", param=name)
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    # Below a field of a union pydantic names the alternatives, which mean nothing to a client.
    name = ".".join(str(p) for p in first["loc"][: 2 if first["loc"][0] in NESTED else 1])
    if first["type"] == "extra_forbidden":
        raise ApiError(f"Unknown parameter '{name}'; leave it out.", param=name)
    if first["type"] == "missing":
        raise ApiError(f"The parameter '{name}' is missing.", param=name)
    raise ApiError(f"The parameter '{name}' is wrong: {first['msg'].lower()}.", param=name)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
