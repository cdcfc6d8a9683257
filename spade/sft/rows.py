"""Conversations as tokens, with the layer that renders them when the model is sampled.

A reply is what the assistant says and the token that closes its turn; those carry the loss, everything else
is context. Where the chat template only ever appends, a conversation is one row. Where it rewrites what came
before (thoughts that are dropped), every reply is a row of its own behind the context it would really have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spade.serving.render import Renderer
from spade.serving.toolblock import call_markup
from spade.sft.data import Talk
from spade.types import Message

IGNORED = -100
"""Label of a token that carries no loss."""


@dataclass(frozen=True, slots=True)
class Row:
    """Token ids and, for each, itself or `IGNORED`."""

    input_ids: list[int]
    labels: list[int]


def rows_of(renderer: Renderer, talk: Talk) -> Iterator[Row]:
    """The rows of one conversation; what is said after its last reply is left out."""
    messages = [_spoken(m) for m in talk.messages]
    tools = list(talk.tools)
    said = [i for i, m in enumerate(messages) if m.role == "assistant"]
    if renderer.append_only and renderer.appends(bool(tools)):
        yield _stream(renderer, messages, tools, said, talk.first)
        return
    replies = [_reply(renderer, messages[i]) for i in said]
    for k, i in enumerate(said):
        if i >= talk.first:
            context = renderer.start(messages[:i], tools, None, replies[:k])
            yield Row(context + replies[k], [IGNORED] * len(context) + replies[k])


def cut(row: Row, limit: int) -> Row | None:
    """The beginning of a row that has at most `limit` tokens; None when nothing to learn is left."""
    if len(row.input_ids) > limit:
        row = Row(row.input_ids[:limit], row.labels[:limit])
    return row if any(label != IGNORED for label in row.labels) else None


def _stream(
    renderer: Renderer,
    messages: list[Message],
    tools: list[dict[str, object]],
    said: Sequence[int],
    first: int,
) -> Row:
    ids = renderer.start(messages[: said[0]], tools)
    labels = [IGNORED] * len(ids)
    for k, i in enumerate(said):
        reply = _reply(renderer, messages[i])
        ids += reply
        labels += reply if i >= first else [IGNORED] * len(reply)
        if k + 1 < len(said):
            more = renderer.extend(messages[: i + 1], messages[i + 1 : said[k + 1]], reply, tools)
            ids += more
            labels += [IGNORED] * len(more)
    return Row(ids, labels)


def _reply(renderer: Renderer, message: Message) -> list[int]:
    return [*renderer.said_ids(message.content), renderer.stop_token_ids[0]]


def _spoken(message: Message) -> Message:
    """Tool calls as the text a model writes them in."""
    if not message.tool_calls:
        return message
    parts = [message.content] * bool(message.content) + [call_markup(c) for c in message.tool_calls]
    return replace(message, content="\n".join(parts), tool_calls=())
