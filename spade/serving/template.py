"""A tokenizer's chat template, run on the shape of a conversation instead of its contents.

Contents are replaced by numbered placeholders, so whatever they hold, the template's logic and its special
tokens cannot see it. What comes back is a list of parts: ids of tokens that the template itself wrote, text
that it wrote, and holes where the contents go. Only thoughts of the assistant are shown to the template as
such (`<think>`, `</think>`), because thinking templates drop or move them.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spade.errors import InputError
from spade.serving.encode import Token
from spade.serving.toolblock import (
    with_tool_block,
    without_structured_calls,
    without_system_role,
    without_tool_role,
)
from spade.types import Message, ToolCall

OPEN, CLOSE = "\ue0f1", "\ue0f2"
"""Private-use characters around a placeholder's number."""
HOLE = re.compile(f"{OPEN}(\\d+){CLOSE}")
THOUGHT_TAGS = re.compile(r"(</?think>)")

_MARKUP = re.compile(r"<\|.*\|>|</?(?:think|thinking|tool|function|answer)\w*>|\[[A-Z_/]+\]")
_BRACKETED = re.compile(r"[<\[{|].+[>\]}|]")
"""Added tokens of the first form are structure even where a tokenizer does not flag them as special, those of
the second where the template writes them. Others (runs of spaces, HTML tags) are ordinary text."""

PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "zqprobe",
        "description": "a probe",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    },
}


TODAY = datetime.date(2024, 7, 26)
"""What templates that write the date are told, so that a prompt is the same on every day of a run."""


def variables(thinking: bool | None) -> dict[str, Any]:
    """What a chat template is given besides messages and tools."""
    flags: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
    return {"strftime_now": TODAY.strftime, **flags}


@dataclass(frozen=True, slots=True)
class Hole:
    """The place of one piece of a message's content; `message` counts in the adapted conversation."""

    message: int
    piece: int


Part = str | int | Hole
"""A piece of rendered text, the id of a token the template wrote, or a place for a content."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a content: outer whitespace, and the core that goes into a hole ("" when there is none)."""

    head: str
    core: str
    tail: str


class ChatTemplate:
    """The chat template of a tokenizer. Raises `InputError` when there is none or it cannot be used.

    `tools`, `calls` (structured ones of the assistant), `tool_role` and `system` say what the template has a
    place for; the rest becomes text.
    `reads_thoughts`: it drops or moves thoughts in earlier replies.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not tokenizer.chat_template:
            raise InputError(
                f"The tokenizer in {tokenizer.name_or_path} has no chat template; use an instruct checkpoint "
                "or add chat_template.jinja to the folder."
            )
        self._tokenizer = tokenizer
        source = str(tokenizer.chat_template)
        self.tokens = {
            t.content: Token(index, t.special, t.lstrip, t.rstrip)
            for index, t in tokenizer.added_tokens_decoder.items()
            if t.special
            or _MARKUP.fullmatch(t.content)
            or (_BRACKETED.fullmatch(t.content) and t.content in source)
        }
        names = sorted(self.tokens, key=len, reverse=True)
        self.split = re.compile("(" + "|".join(map(re.escape, names)) + ")" if names else "(?!)")
        self._shapes: dict[Any, list[Part]] = {}
        self.tools = self.tool_role = self.system = self.calls = True
        self.reads_thoughts = False
        self.reads_thoughts = not self._keeps_thoughts()
        self.tools = self._shows_tools()
        self.calls = self._shows_calls()
        self.system = self._shows([Message("system", "s"), Message("user", "u")], 0)
        talk = [Message("user", "u"), Message("assistant", "a"), Message("tool", "t")]
        self.tool_role = self._shows(talk, 2)
        self.json_results = self.tool_role and self._quotes_results(talk)

    def pieces(self, message: Message) -> list[str | Piece]:
        """A content as thought tags (plain strings) and the pieces between them; mostly it is one piece.

        Outer whitespace of each piece stays visible to the template: templates trim it. Only the assistant
        has thoughts; tags in other messages are content.
        """
        split = [message.content]
        if self.reads_thoughts and message.role == "assistant":
            split = THOUGHT_TAGS.split(message.content)
        out: list[str | Piece] = []
        for at, text in enumerate(split):
            core = text.strip()
            if at % 2:
                out.append(text)
            elif not core:
                out.append(Piece(text, "", ""))
            else:
                start = text.index(core)
                out.append(Piece(text[:start], core, text[start + len(core) :]))
        return out

    def adapt(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> tuple[list[Message], Sequence[dict[str, Any]]]:
        """The conversation in the roles that the template knows, and the tools that are left for it."""
        adapted = list(messages)
        if not self.calls:
            adapted = without_structured_calls(adapted)
        if tools and not self.tools:
            adapted, tools = with_tool_block(adapted, tools, self.system), ()
        if not self.tool_role:
            adapted = without_tool_role(adapted)
        return (adapted if self.system else without_system_role(adapted)), tools

    def parts(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        thinking: bool | None = None,
        generation: bool = True,
    ) -> list[Part]:
        """The parts of an adapted conversation, cached by shape. `generation`: the assistant speaks next."""
        key = (
            tuple((m.role, m.name, self._layout(m)) for m in messages),
            json.dumps([[(c.name, c.arguments) for c in m.tool_calls] for m in messages]),
            json.dumps(list(tools)), thinking, generation,
        )  # fmt: skip
        parts = self._shapes.get(key)
        if parts is None:
            if len(self._shapes) > 512:
                self._shapes.clear()
            parts = self._shapes[key] = self._render(messages, tools, thinking, generation)
        return list(parts)

    def generation_text(self, thinking: bool | None = None) -> str:
        """What the template writes between the last message and the assistant's first token."""
        talk = [Message("user", "u")]
        without, whole = (
            self._text([{"role": m.role, "content": m.content} for m in talk], (), thinking, generation)
            for generation in (False, True)
        )
        return whole[len(without) :] if whole.startswith(without) else whole

    # --- running it ------------------------------------------------------------------------------------

    def _render(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], thinking: bool | None, last: bool
    ) -> list[Part]:
        holes: list[Hole] = []
        dicts = [self._guarded(i, m, holes) for i, m in enumerate(messages)]
        text = self._text(dicts, self._without_markup(list(tools)), thinking, last)
        parts: list[Part] = []
        for k, piece in enumerate(HOLE.split(text)):
            if k % 2:
                parts.append(holes[int(piece)])
                continue
            for word in self.split.split(piece):
                if word:
                    parts.append(self.tokens[word].id if word in self.tokens else word)
        return parts

    def _guarded(self, number: int, message: Message, holes: list[Hole]) -> dict[str, Any]:
        """The message for the template; a hole is noted for every piece that is not blank."""
        content = ""
        for at, piece in enumerate(self.pieces(message)):
            if isinstance(piece, str):
                content += piece
            elif not piece.core:
                content += piece.head
            else:
                content += f"{piece.head}{OPEN}{len(holes)}{CLOSE}{piece.tail}"
                holes.append(Hole(number, at))
        out: dict[str, Any] = {"role": message.role, "content": content}
        if message.name is not None:
            out["name"] = self._without_markup(message.name)
        if message.tool_calls:
            calls = [{"name": c.name, "arguments": c.arguments} for c in message.tool_calls]
            out["tool_calls"] = self._without_markup([{"type": "function", "function": c} for c in calls])
        return out

    def _layout(self, message: Message) -> tuple[Any, ...]:
        """All of a content that the template can see: tags, outer whitespace, and where something is."""
        return tuple(
            p if isinstance(p, str) else (p.head, bool(p.core), p.tail) for p in self.pieces(message)
        )

    def _text(
        self, messages: list[dict[str, Any]], tools: Any, thinking: bool | None, generation: bool
    ) -> str:
        """Run the chat template (transformers does so in Jinja's sandbox)."""
        from jinja2.exceptions import TemplateError

        flags = variables(thinking)
        try:
            text = self._tokenizer.apply_chat_template(
                messages, tools=tools or None, tokenize=False, add_generation_prompt=generation, **flags
            )
        except (TemplateError, TypeError, ValueError) as err:
            roles = ", ".join(m["role"] for m in messages[:4])
            raise InputError(f"The chat template cannot render messages ({roles}, ...): {err}") from None
        return str(text)

    def _without_markup(self, value: Any) -> Any:
        """Tool schemas and arguments with token text broken up, so that the template cannot be misled."""
        if isinstance(value, str):
            value = value.replace(OPEN, "").replace(CLOSE, "")
            return self.split.sub(lambda m: m.group(0)[0] + " " + m.group(0)[1:], value)
        if isinstance(value, dict):
            return {self._without_markup(k): self._without_markup(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self._without_markup(v) for v in value]
        return value

    # --- what it has a place for -----------------------------------------------------------------------

    def _shows(self, messages: Sequence[Message], at: int) -> bool:
        """Whether the template writes the content of message `at` of a conversation."""
        try:
            return Hole(at, 0) in self.parts(messages)
        except InputError:
            return False

    def _shows_tools(self) -> bool:
        try:
            text = self._text([{"role": "user", "content": "u"}], [PROBE_TOOL], None, True)
        except InputError:
            return False
        return "zqprobe" in text

    def _shows_calls(self) -> bool:
        calls = (ToolCall("zqcall", {"a": "zqvalue"}),)
        talk = [Message("user", "u"), Message("assistant", "", calls)]
        try:
            dicts = [self._guarded(i, m, []) for i, m in enumerate(talk)]
            text = self._text(dicts, [PROBE_TOOL], None, False)
        except InputError:
            return False
        return "zqcall" in text and "zqvalue" in text

    def _keeps_thoughts(self) -> bool:
        """Whether a reply is written as it is, thoughts included, wherever it stands."""
        said = "<think>\nzq a\n</think>\n\nzq b"
        talk = [{"role": "user", "content": "u"}, {"role": "assistant", "content": said}]
        for later in ([], [{"role": "user", "content": "v"}], [{"role": "tool", "content": "t"}]):
            for thinking in (None, True, False):
                try:
                    if said not in self._text([*talk, *later], None, thinking, True):
                        return False
                except InputError:
                    continue  # a role it does not know
        return True

    def _quotes_results(self, talk: Sequence[Message]) -> bool:
        """Whether results of tools are written as JSON strings."""
        dicts = [{"role": m.role, "content": m.content} for m in talk]
        dicts[-1]["content"] = 'zq"e'
        return 'zq\\"e' in self._text(dicts, None, None, True)
