"""From messages to token ids, one way only: ids are appended, never re-made from text.

`spade.serving.template` runs a chat template once per *shape* of conversation with placeholders instead of
contents. What the template itself writes may contain special tokens; contents never do, whatever text they
hold: they are encoded by a tokenizer that has no such tokens. The pieces between special tokens (template
text and contents together) are encoded in one go, which is what `apply_chat_template` does for harmless
contents, so both agree token for token.

A stream that is only appended to is right for templates that render earlier turns the same way later on.
Thinking templates do not: they drop earlier thoughts. `appends` says which, and `start` with `replies`
renders the canonical history out of the very ids that were sampled.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.serving.encode import SAID, Encoder, Stream
from spade.serving.template import PROBE_TOOL, ChatTemplate, Hole, Part, Piece, variables
from spade.types import Message

PROBE = (
    Message("user", "One."), Message("assistant", "Two."), Message("user", "Three."),
    Message("assistant", "Four."), Message("user", "Five."),
)  # fmt: skip
THOUGHT = "<think>\nHm.\n</think>\n\n"


class Renderer:
    """Renders for one tokenizer with a chat template.

    Attributes: `stop_token_ids` end a turn (the template's closing token and the declared ends of text);
    `append_only` says whether plain conversations, thoughts included, may be rendered by appending.
    """

    def __init__(self, tokenizer: Any, stop_token_ids: Sequence[int] = ()) -> None:
        self.template = ChatTemplate(tokenizer)
        self._tokenizer = tokenizer
        self._tokens = self.template.tokens
        self._encoder = Encoder(tokenizer, self._tokens, self.template.split)
        self._special_ids = {t.id for t in self._tokens.values() if t.special}
        self._said_ids = {self._tokens[k].id for k in SAID if k in self._tokens}
        self._closing = self._find_closing()
        first = self._closing[:1]
        ends = [first[0]] if first and isinstance(first[0], int) else []
        declared = [t for t in (*stop_token_ids, tokenizer.eos_token_id) if t is not None]
        self.stop_token_ids: tuple[int, ...] = tuple(dict.fromkeys([*ends, *declared]))
        self._short = self._is_local()
        self._appends: dict[tuple[bool, bool | None], bool] = {}
        self._opens: dict[bool | None, bool] = {}
        self.append_only = self.is_canonical() and self.appends()

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

    # --- conversations ---------------------------------------------------------------------------------

    def start(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        thinking: bool | None = None,
        replies: Sequence[Sequence[int] | None] = (),
    ) -> list[int]:
        """Ids of a whole conversation that ends with the generation prompt.

        `thinking` goes to the template as `enable_thinking`; None leaves the model's default. `replies[k]`
        are the sampled ids of the k-th assistant message: they are used as they are wherever the template
        keeps what was said, so that re-rendering does not re-tokenise.
        """
        adapted, tools = self.template.adapt(messages, tools)
        return self._ids(self.template.parts(adapted, tools, thinking), adapted, replies)

    def extend(
        self,
        messages_so_far: Sequence[Message],
        new_messages: Sequence[Message],
        completion_ids: Sequence[int] | None = None,
        tools: Sequence[dict[str, Any]] = (),
        thinking: bool | None = None,
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
        messages, tools = self.template.adapt([*history, *new_messages], tools)
        parts = self.template.parts(messages, tools, thinking)
        spoken = sum(m.role == "assistant" for m in history)
        at = [i for i, m in enumerate(messages) if m.role == "assistant"][spoken - 1]
        parts = parts[parts.index(Hole(at, 0)) + 1 :]
        if self._is_closed(completion_ids) and parts[:1] == self._closing[:1]:
            parts = parts[1:]
        return self._ids(parts, messages)

    def appends(self, tools: bool = False, thinking: bool | None = None) -> bool:
        """Whether a conversation of this kind may be rendered by appending, thoughts in its replies included.

        Found out by trying: a stream that is appended to must equal the whole rendering after every turn.
        """
        key = (tools, thinking)
        if key not in self._appends:
            thoughts = ("",) if thinking is False else ("", THOUGHT)
            self._appends[key] = all(self._probe(tools, thinking, thought) for thought in thoughts)
        return self._appends[key]

    def opens_thought(self, thinking: bool | None = None) -> bool:
        """Whether the generation prompt already opens the thought, so that a reply begins inside it."""
        if thinking not in self._opens:
            text = self.template.generation_text(thinking)
            self._opens[thinking] = text.rfind("<think>") > text.rfind("</think>")
        return self._opens[thinking]

    def shown(self, ids: Sequence[int]) -> str:
        """Text of any tokens for people, special ones as they are written."""
        return self._encoder.decode(list(ids))

    def text(self, completion_ids: Sequence[int]) -> str:
        """Text of a completion. Special tokens, the stop token among them, are left out, markup of thoughts
        and of tool calls is not."""
        ids = [t for t in completion_ids if t not in self._special_ids or t in self._said_ids]
        if ids and ids[-1] in self.stop_token_ids:
            ids = ids[:-1]
        return self._encoder.decode(ids)

    def encode(self, text: str) -> list[int]:
        """Ids of a text encoded on its own, special tokens disabled."""
        return self._encoder.encode(text)

    def said_ids(self, text: str) -> list[int]:
        """Ids of what an assistant says: its markup (thoughts, calls) is made of tokens."""
        stream = Stream(self._encoder)
        stream.own(text)
        return stream.close()

    def raw_ids(self, text: str) -> list[int]:
        """Ids of a raw prompt as the tokenizer makes them: names of special tokens are those tokens."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=True)["input_ids"]
        return ids

    @property
    def end_id(self) -> int:
        """The tokenizer's own end of a text; a stop token where it declares none."""
        end = self._tokenizer.eos_token_id
        return self.stop_token_ids[0] if end is None else int(end)

    def token_text(self, token: int) -> str:
        """One token as text; its name in the vocabulary where it is no text of its own."""
        text = self._encoder.decode([token])
        return str(self._tokenizer.convert_ids_to_tokens(token)) if "\ufffd" in text else text

    def count(self, text: str) -> int:
        """Tokens of a text encoded on its own, special tokens disabled."""
        return len(self._encoder.encode(text))

    def truncate(self, text: str, tokens: int) -> str:
        """The beginning of `text` that has at most `tokens` tokens; never cuts inside a character."""
        offsets = self._encoder.offsets(text)
        if len(offsets) <= tokens:
            return text
        cut = tokens
        while cut > 0:
            head = text[: offsets[cut - 1][1]]
            if self.count(head) <= tokens:
                return head
            cut -= 1
        return ""

    # --- ids -------------------------------------------------------------------------------------------

    def _ids(
        self, parts: Sequence[Part], messages: Sequence[Message], replies: Sequence[Sequence[int] | None] = ()
    ) -> list[int]:
        stream = Stream(self._encoder)
        pieces: dict[int, list[str | Piece]] = {}
        sampled = self._sampled(messages, replies)
        for part in parts:
            if isinstance(part, str):
                stream.text(part)
            elif isinstance(part, int):
                stream.token(part)
            elif (ids := sampled.get(part)) is not None:
                stream.ids(ids)
            else:
                message = messages[part.message]
                piece = pieces.setdefault(part.message, self.template.pieces(message))[part.piece]
                assert isinstance(piece, Piece)
                if message.role == "assistant":
                    stream.own(piece.core)
                elif message.role == "tool" and self.template.json_results:
                    stream.text(json.dumps(piece.core, ensure_ascii=False)[1:-1])
                else:
                    stream.text(piece.core)
        return stream.close()

    def _sampled(
        self, messages: Sequence[Message], replies: Sequence[Sequence[int] | None]
    ) -> dict[Hole, list[int]]:
        """The sampled ids of each piece of the assistant's messages, where they are known to fit."""
        found: dict[Hole, list[int]] = {}
        spoken = (i for i, m in enumerate(messages) if m.role == "assistant")
        for at, reply in zip(spoken, replies, strict=False):
            if reply is None:
                continue
            ids = list(reply)
            while ids and ids[-1] in self.stop_token_ids:
                ids.pop()
            pieces = self.template.pieces(messages[at])
            runs = self._split_ids(ids, [p for p in pieces if isinstance(p, str)])
            for k, piece in enumerate(pieces):
                if isinstance(piece, Piece) and piece.core and runs is not None:
                    core = self._core(runs[k // 2], piece)
                    if core is not None:
                        found[Hole(at, k)] = core
        return found

    def _split_ids(self, ids: list[int], tags: Sequence[str]) -> list[list[int]] | None:
        """`ids` cut at the tokens of `tags`, in order; None where a tag is not a token of its own."""
        runs: list[list[int]] = []
        for tag in tags:
            token = self._tokens.get(tag)
            if token is None or token.id not in ids:
                return None
            at = ids.index(token.id)
            runs.append(ids[:at])
            ids = ids[at + 1 :]
        return [*runs, ids]

    def _core(self, ids: list[int], piece: Piece) -> list[int] | None:
        """The part of `ids` that spells the core of a piece; None when tokens straddle its whitespace."""
        start, stop = 0, len(ids)
        while start < stop and len(self._encoder.decode(ids[:start])) < len(piece.head):
            start += 1
        while stop > start and len(self._encoder.decode(ids[stop:])) < len(piece.tail):
            stop -= 1
        return ids[start:stop] if self._encoder.decode(ids[start:stop]) == piece.core else None

    # --- what the template does, found out by trying ---------------------------------------------------

    def _find_closing(self) -> list[Part]:
        """What the template writes after an assistant's content."""
        parts = self.template.parts([*PROBE[:2], PROBE[2]])
        if Hole(1, 0) not in parts:
            raise InputError(
                f"The chat template of {self._tokenizer.name_or_path} changes or drops what the assistant "
                "said, so it cannot be used turn by turn."
            )
        return parts[parts.index(Hole(1, 0)) + 1 :]

    def _is_closed(self, completion_ids: Sequence[int] | None) -> bool:
        if completion_ids is None:
            return True
        return bool(completion_ids) and completion_ids[-1] == self._closing[0]

    def _is_local(self) -> bool:
        """Whether what follows a reply depends on the new messages only, so that a short history will do."""
        long, short = self.template.parts(PROBE), self.template.parts([*PROBE[:2], PROBE[4]])
        shifted = [
            Hole(p.message + 2, p.piece) if isinstance(p, Hole) else p
            for p in short[short.index(Hole(1, 0)) + 1 :]
        ]
        return Hole(3, 0) in long and long[long.index(Hole(3, 0)) + 1 :] == shifted

    def _probe(self, tools: bool, thinking: bool | None, thought: str) -> bool:
        schemas = [PROBE_TOOL] if tools else []
        talk = [Message(m.role, thought + m.content) if m.role == "assistant" else m for m in PROBE]
        if tools:
            talk[2] = Message("tool", PROBE[2].content)  # and then a user again: some templates look for that
        ids = self.start(talk[:1], schemas, thinking)
        replies: list[list[int]] = []
        for turn in (2, 4):
            stream = Stream(self._encoder)
            stream.own(talk[turn - 1].content)
            replies.append(stream.close())
            ids += replies[-1] + self.extend(
                talk[:turn], talk[turn : turn + 1], replies[-1], schemas, thinking
            )
            if ids != self.start(talk[: turn + 1], schemas, thinking, replies):
                return False
        return True

    def is_canonical(self, messages: Sequence[Message] = PROBE, thinking: bool | None = None) -> bool:
        """Whether `start` gives what the tokenizer's own `apply_chat_template` gives for these messages."""
        dicts = [{"role": m.role, "content": m.content} for m in messages]
        whole = self._tokenizer.apply_chat_template(
            dicts, tokenize=True, add_generation_prompt=True, return_dict=False, **variables(thinking)
        )
        return self.start(messages, (), thinking) == list(whole)


def _declared_stops(folder: Path) -> list[int]:
    """`eos_token_id` of the generation config, if there is one."""
    try:
        data = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    ends = data.get("eos_token_id") if isinstance(data, dict) else None
    return [int(e) for e in (ends if isinstance(ends, list) else [ends]) if isinstance(e, int)]
