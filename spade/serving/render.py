"""From messages to token ids, one way only: ids are appended, never re-made from text.

A chat template is run once per *shape* of conversation with placeholders instead of contents. What the
template itself writes may contain special tokens; contents never do, whatever text they hold. The pieces
between special tokens (template text and contents together) are encoded in one go, which is what
`apply_chat_template` does for harmless contents, so both agree token for token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.types import Message

OPEN, CLOSE = "\ue0f1", "\ue0f2"
"""Private-use characters around a placeholder's number."""
HOLE = re.compile(f"{OPEN}(\\d+){CLOSE}")

Part = str | int
"""A piece of rendered text, or the id of a special token, or (negative, minus one) a placeholder number."""
PROBE = (
    Message("user", "One."), Message("assistant", "Two."), Message("user", "Three."),
    Message("assistant", "Four."), Message("user", "Five."),
)  # fmt: skip


class Renderer:
    """Renders for one tokenizer with a chat template.

    Attributes: `stop_token_ids` end a turn (the template's closing token and the declared ends of text);
    `append_only` says whether the template renders earlier turns the same way later on. Where it does not
    (some thinking templates drop earlier thoughts), ids are appended all the same.
    """

    def __init__(self, tokenizer: Any, stop_token_ids: Sequence[int] = ()) -> None:
        from tokenizers import Tokenizer

        if not tokenizer.chat_template:
            raise InputError(
                f"The tokenizer in {tokenizer.name_or_path} has no chat template; use an instruct checkpoint "
                "or add chat_template.jinja to the folder."
            )
        self._tokenizer = tokenizer
        self._plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._plain.encode_special_tokens = True
        self._plain.no_padding()
        self._plain.no_truncation()
        self._special = {
            token.content: (index, token.lstrip, token.rstrip)
            for index, token in tokenizer.added_tokens_decoder.items()
            if token.special
        }
        names = sorted(self._special, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, names)) + ")" if names else "(?!)")
        self._special_ids = {index for index, _, _ in self._special.values()}
        self._shapes: dict[Any, list[Part]] = {}
        self._closing = self._find_closing()
        first = self._closing[:1]
        ends = [first[0]] if first and isinstance(first[0], int) else []
        declared = [t for t in (*stop_token_ids, tokenizer.eos_token_id) if t is not None]
        self.stop_token_ids: tuple[int, ...] = tuple(dict.fromkeys([*ends, *declared]))
        self._short = self._is_local()
        self.append_only = self._is_append_only()

    @classmethod
    def from_folder(cls, path: Path | str) -> Renderer:
        """Renderer of a checkpoint folder. Raises `InputError` when there is no usable tokenizer."""
        from transformers import AutoTokenizer

        folder = Path(path)
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError, ImportError) as err:
            why = str(err).strip().splitlines()[0]
            raise InputError(f"No usable tokenizer in {folder}: {why}") from None
        if not getattr(tokenizer, "is_fast", False):
            raise InputError(f"The tokenizer in {folder} has no tokenizer.json; convert it to a fast one.")
        return cls(tokenizer, _declared_stops(folder))

    # --- the public four -------------------------------------------------------------------------------

    def start(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> list[int]:
        """Ids of a whole conversation that ends with the generation prompt."""
        return self._ids(self._parts(messages, tools), messages)

    def extend(
        self,
        messages_so_far: Sequence[Message],
        new_messages: Sequence[Message],
        completion_ids: Sequence[int] | None = None,
        tools: Sequence[dict[str, Any]] = (),
    ) -> list[int]:
        """Ids to append after a completion: what closes it, the new messages, the generation prompt.

        `messages_so_far` may or may not include the assistant's reply. `completion_ids` is the completion
        itself; when it did not end with the closing token, that token is part of the result. None means it
        did. None of the returned ids was sampled: their mask is 0.
        """
        history = list(messages_so_far)
        if not history or history[-1].role != "assistant":
            history.append(Message("assistant", "x"))
        if self._short and not tools:
            history = [Message("user", "x"), Message("assistant", "x")]
        else:
            history[-1] = Message("assistant", "x")
        messages = [*history, *new_messages]
        parts = self._parts(messages, tools)
        after = parts.index(-len(history)) + 1  # placeholder i is stored as -(i + 1)
        parts = parts[after:]
        if self._is_closed(completion_ids) and parts[:1] == self._closing[:1]:
            parts = parts[1:]
        return self._ids(parts, messages)

    def text(self, completion_ids: Sequence[int]) -> str:
        """Text of a completion: special tokens, the stop token among them, are left out."""
        ids = [t for t in completion_ids if t not in self._special_ids]
        if ids and ids[-1] in self.stop_token_ids:
            ids = ids[:-1]
        text = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    def count(self, text: str) -> int:
        """Tokens of a text encoded on its own, special tokens disabled."""
        return len(self._encode(text))

    def truncate(self, text: str, tokens: int) -> str:
        """The beginning of `text` that has at most `tokens` tokens; never cuts inside a character."""
        offsets = self._plain.encode(text, add_special_tokens=False).offsets
        if len(offsets) <= tokens:
            return text
        cut = tokens
        while cut > 0:
            head = text[: offsets[cut - 1][1]]
            if self.count(head) <= tokens:
                return head
            cut -= 1
        return ""

    # --- templates -------------------------------------------------------------------------------------

    def _parts(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> list[Part]:
        """The conversation as special ids, text, and placeholders for contents; cached by shape."""
        key = (
            tuple((m.role, m.name, _edges(m.content) or m.content) for m in messages),
            json.dumps([[(c.name, c.arguments) for c in m.tool_calls] for m in messages]),
            json.dumps(list(tools)),
        )
        parts = self._shapes.get(key)
        if parts is None:
            if len(self._shapes) > 512:
                self._shapes.clear()
            parts = self._shapes[key] = self._render(messages, tools)
        return list(parts)

    def _render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[Part]:
        guarded = [self._as_dict(i, m) for i, m in enumerate(messages)]
        text = self._template(guarded, _without(self._split, list(tools)) or None)
        parts: list[Part] = []
        for k, piece in enumerate(HOLE.split(text)):
            if k % 2:
                parts.append(-int(piece) - 1)
                continue
            for word in self._split.split(piece):
                if word in self._special:
                    self._add_special(parts, word)
                elif word:
                    after = parts[-1] if parts else None
                    strip = isinstance(after, int) and after >= 0 and self._strips_right(after)
                    parts.append(word.lstrip() if strip else word)
        return [p for p in parts if p != ""]

    def _add_special(self, parts: list[Part], word: str) -> None:
        index, lstrip, _ = self._special[word]
        if lstrip and parts and isinstance(parts[-1], str):
            parts[-1] = parts[-1].rstrip()
        parts.append(index)

    def _strips_right(self, index: int) -> bool:
        return any(i == index and right for i, _, right in self._special.values())

    def _as_dict(self, number: int, message: Message) -> dict[str, Any]:
        """The message for the template. Outer whitespace stays outside the placeholder: templates trim it."""
        head, tail = _edges(message.content) or ("", "")
        hole = f"{head}{OPEN}{number}{CLOSE}{tail}" if message.content.strip() else message.content
        out: dict[str, Any] = {"role": message.role, "content": hole}
        if message.name is not None:
            out["name"] = _without(self._split, message.name)
        if message.tool_calls:
            out["tool_calls"] = [
                {"type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in message.tool_calls
            ]
            out["tool_calls"] = _without(self._split, out["tool_calls"])
        return out

    def _template(self, messages: list[dict[str, Any]], tools: Any) -> str:
        """Run the chat template (transformers does so in Jinja's sandbox)."""
        from jinja2.exceptions import TemplateError

        try:
            text = self._tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=False, add_generation_prompt=True
            )
        except (TemplateError, TypeError, ValueError) as err:
            roles = ", ".join(m["role"] for m in messages[:4])
            raise InputError(f"The chat template cannot render messages ({roles}, ...): {err}") from None
        return str(text)

    # --- ids -------------------------------------------------------------------------------------------

    def _ids(self, parts: Sequence[Part], messages: Sequence[Message]) -> list[int]:
        out: list[int] = []
        run = ""
        for part in parts:
            if isinstance(part, str):
                run += part
            elif part < 0:
                run += messages[-part - 1].content.strip()
            else:
                out += self._encode(run)
                out.append(part)
                run = ""
        return out + self._encode(run)

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    # --- checks at construction ------------------------------------------------------------------------

    def _find_closing(self) -> list[Part]:
        """What the template writes after an assistant's content."""
        parts = self._parts([*PROBE[:2], PROBE[2]])
        if -2 not in parts:
            raise InputError(
                f"The chat template of {self._tokenizer.name_or_path} changes or drops what the assistant "
                "said, so it cannot be used turn by turn."
            )
        return parts[parts.index(-2) + 1 :]

    def _is_closed(self, completion_ids: Sequence[int] | None) -> bool:
        if completion_ids is None:
            return True
        return bool(completion_ids) and completion_ids[-1] == self._closing[0]

    def _is_local(self) -> bool:
        """Whether what follows a reply depends on the new messages only, so that a short history will do."""
        long, short = self._parts(PROBE), self._parts([*PROBE[:2], PROBE[4]])
        shifted = [p - 2 if isinstance(p, int) and p < 0 else p for p in short[short.index(-2) + 1 :]]
        return -4 in long and long[long.index(-4) + 1 :] == shifted

    def _is_append_only(self) -> bool:
        ids = self.start(PROBE[:1])
        for turn in (2, 4):
            reply = self._encode(PROBE[turn - 1].content)
            ids += reply + self.extend(PROBE[:turn], PROBE[turn : turn + 1], reply)
        dicts = [{"role": m.role, "content": m.content} for m in PROBE]
        whole = self._tokenizer.apply_chat_template(
            dicts, tokenize=True, add_generation_prompt=True, return_dict=False
        )
        return ids == list(whole)


def _edges(content: str) -> tuple[str, str] | None:
    """Outer whitespace of a content, None for a blank one."""
    core = content.strip()
    if not core:
        return None
    at = content.index(core)
    return content[:at], content[at + len(core) :]


def _without(special: re.Pattern[str], value: Any) -> Any:
    """Tool schemas and arguments with special-token text broken up, so that a template cannot be misled."""
    if isinstance(value, str):
        value = value.replace(OPEN, "").replace(CLOSE, "")
        return special.sub(lambda m: m.group(0)[0] + " " + m.group(0)[1:], value)
    if isinstance(value, dict):
        return {_without(special, k): _without(special, v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without(special, v) for v in value]
    return value


def _declared_stops(folder: Path) -> list[int]:
    """`eos_token_id` of the generation config, if there is one."""
    try:
        data = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    ends = data.get("eos_token_id") if isinstance(data, dict) else None
    return [int(e) for e in (ends if isinstance(ends, list) else [ends]) if isinstance(e, int)]
