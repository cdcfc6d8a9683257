"""The parts of serving that need no model: stop texts, thoughts and calls of growing replies, the wire."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.errors import InputError
from spade.serving.api.inputs import read_messages
from spade.serving.api.live import Composer
from spade.serving.api.recall import Recall
from spade.serving.calls import read_reply
from spade.serving.chat import ChatCompletion, ChatPolicy, ChatRequest
from spade.serving.endpoint import key_for, parse_spec, retry_after
from spade.serving.policy import Completion
from spade.serving.render import Renderer
from spade.serving.scripted import ByteRenderer, ScriptedPolicy
from spade.serving.stopping import Detokenizer, StopTexts, cut_at
from spade.serving.thoughts import split_thoughts, strip_thoughts
from spade.serving.wire import to_wire
from spade.types import Message, StopReason, ToolCall

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
PIECES = st.sampled_from(
    (
        *("<think>", "</think>", "<th", "STOP", "STO", "P", "ü", "€uro"),
        *("x", "<tool_", CALL, "{", "[1]", "```", "<", " ", "\n"),
    )
)
REPLIES = st.lists(PIECES, max_size=12).map("".join)


def opens_before_it_closes(text: str) -> bool:
    """Whether every thought that is closed was opened; the other kind shows only when it is closed."""
    depth = 0
    for piece in text.replace("</think>", "\0)").replace("<think>", "\0(").split("\0"):
        if piece.startswith(")"):
            if not depth:
                return False
            depth = 0
        elif piece.startswith("("):
            depth = 1
    return True


@given(
    text=REPLIES.filter(opens_before_it_closes),
    tools=st.booleans(),
    stop=st.booleans(),
    step=st.integers(1, 5),
)
def test_what_is_sent_early_is_a_beginning_of_the_reply(
    text: str, tools: bool, stop: bool, step: int
) -> None:
    renderer = ByteRenderer()
    policy = ScriptedPolicy()
    request = ChatRequest([Message("user", "u")], [TOOL] if tools else [], stop=["STOP"] if stop else [])
    ids = renderer.encode(text)
    reply = ChatPolicy(renderer, policy).read(
        request, [], Completion(tuple(ids), (0.0,) * len(ids), StopReason.STOP)
    )
    composer = Composer(renderer, request)
    sent = {"content": "", "reasoning_content": ""}
    for at in range(0, len(ids), step):
        for kind, new in composer.feed(ids[at : at + step]):
            sent[kind] += new
            assert reply.text.startswith(sent["content"]), (reply.text, sent)
    for kind, new in composer.finish(reply):
        sent[kind] += new
    assert sent["content"] == reply.text
    if text.count("<think>") <= 1:
        assert sent["reasoning_content"] == reply.reasoning


@given(text=REPLIES.filter(opens_before_it_closes), opened=st.booleans())
def test_a_stop_text_ends_a_row_as_soon_as_it_is_visible(text: str, opened: bool) -> None:
    renderer = ByteRenderer()
    ids, stop = renderer.encode(text), StopTexts(renderer, ["STOP", "€"], opened)
    if opened and not opens_before_it_closes("<think>" + text):
        return
    ended = next((k for k in range(1, len(ids) + 1) if stop(ids[:k])), None)

    def visible(count: int) -> str:
        return strip_thoughts(("<think>" if opened else "") + renderer.text(ids[:count]))

    wanted = next(
        (k for k in range(1, len(ids) + 1) if cut_at(visible(k), ["STOP", "€"]) != visible(k)), None
    )
    assert ended == wanted


def test_plain_stop_texts_know_no_thoughts() -> None:
    renderer = ByteRenderer()
    ids = renderer.encode("<think>STOP")
    assert StopTexts(renderer, ["STOP"], plain=True)(ids) and not StopTexts(renderer, ["STOP"])(ids)


@given(text=st.text(max_size=30))
def test_pieces_of_a_text_add_up(tokenizer_folder: Path, text: str) -> None:
    for renderer in (renderer_of(tokenizer_folder), ByteRenderer()):
        ids = renderer.encode(text)
        reader = Detokenizer(renderer)
        said = "".join(reader.feed(ids[:k], last=k == len(ids)) for k in range(1, len(ids) + 1))
        assert said == renderer.text(ids)


_made: dict[Path, Renderer] = {}


def renderer_of(folder: Path) -> Renderer:
    if folder not in _made:
        _made[folder] = Renderer.from_folder(folder)
    return _made[folder]


@pytest.mark.parametrize(
    ("text", "thought", "visible"),
    [
        ("a", "", "a"),
        ("<think>\nt\n</think>\n\na", "t", "\n\na"),
        ("t</think>a", "t", "a"),
        ("a<think>t", "t", "a"),
        ("<think>s</think>a<think>t</think>b", "s\nt", "ab"),
    ],
)
def test_thoughts_are_split_off(text: str, thought: str, visible: str) -> None:
    assert split_thoughts(text) == (thought, visible)


@pytest.mark.parametrize(
    ("text", "count", "rest"),
    [
        ("hi", 0, "hi"),
        (f"a\n{CALL}\nb", 1, "a\n\nb"),
        (f"{CALL}{CALL}", 2, ""),
        ('{"name": "f", "arguments": {}}', 1, ""),
        ("<tool_call>oops</tool_call>", 1, "<tool_call>oops</tool_call>"),
        (f"{CALL}<tool_call>oops</tool_call>", 2, "<tool_call>oops</tool_call>"),
    ],
)
def test_what_is_left_beside_the_calls(text: str, count: int, rest: str) -> None:
    reading = read_reply(text)
    assert (len(reading.calls), reading.rest) == (count, rest)


# --- the wire ------------------------------------------------------------------------------------------

ONE, TWO = ToolCall("f", {"a": 1}), ToolCall("g", {"b": ["ü"]})
TALK = [
    Message("system", "s"), Message("user", "u"), Message("assistant", "I look.", (ONE, TWO)),
    Message("tool", "first"), Message("tool", "second"), Message("assistant", "", (ONE,)),
    Message("tool", "third"), Message("assistant", "done"), Message("user", "thanks"),
]  # fmt: skip


def test_messages_survive_the_wire() -> None:
    rows = to_wire(TALK)
    assert read_messages(rows) == TALK
    assert rows[5]["content"] is None or rows[5]["role"] == "assistant"
    ids = [c["id"] for row in rows for c in row.get("tool_calls", ())]
    assert len(set(ids)) == 3 and [r["tool_call_id"] for r in rows if r["role"] == "tool"] == ids
    assert to_wire(TALK) == rows


def test_results_without_a_call_become_the_users_words() -> None:
    talk = [
        Message("user", "u"),
        Message("assistant", f"<think>x</think>{CALL}"),
        Message("tool", "1"),
        Message("tool", "2"),
    ]
    assert to_wire(talk) == [
        {"role": "user", "content": "u"}, {"role": "assistant", "content": CALL},
        {"role": "user", "content": "1\n2"},
    ]  # fmt: skip


def reply(text: str, ids: tuple[int, ...]) -> ChatCompletion:
    return ChatCompletion(
        text, Completion(ids, (0.0,) * len(ids), StopReason.STOP), message=Message("assistant", f"raw {text}")
    )


def test_replies_are_remembered_by_their_conversation() -> None:
    recall = Recall(tokens=10)
    _, _, key = recall.restore([Message("user", "a")])
    recall.note(key, reply("b", (1, 2, 3)))
    talk = [Message("user", "a"), Message("assistant", "b"), Message("user", "c")]
    messages, ids, longer = recall.restore(talk)
    assert [m.content for m in messages] == ["a", "raw b", "c"] and ids == [(1, 2, 3)]
    assert recall.restore([Message("user", "other"), *talk[1:]])[1] == [None]
    recall.note(longer, reply("d", (4,) * 9))  # more than there is room for: the older one goes
    assert recall.restore(talk)[1] == [None]
    assert recall.restore([*talk, Message("assistant", "d")])[1] == [None, (4,) * 9]
    recall.note(longer, reply("d", (5,) * 4))
    assert recall.restore([*talk, Message("assistant", "d")])[1] == [None, (5,) * 4]


# --- addresses and keys --------------------------------------------------------------------------------


def test_addresses() -> None:
    assert parse_spec("org/m@v1@http://h:1/v1/") == ("org/m@v1", "http://h:1/v1")
    assert parse_spec("m@https://h/v1?api-version=1") == ("m", "https://h/v1?api-version=1")
    for bad in ("m", "m@h/v1", "m@http://", "@http://h", "m@http://h:x/", "m@ftp://h"):
        with pytest.raises(InputError):
            parse_spec(bad)
    for secret in (
        "m@http://user:pa55@h/v1",
        "m@http://pa55@h/v1",
        "m@http://h/v1?api_key=pa55",
        "m@http://h/?token=pa55",
    ):
        with pytest.raises(InputError, match="set SPADE_API_KEY") as caught:
            parse_spec(secret)
        assert "pa55" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "environ", "key"),
    [
        ("http://h/v1", {}, None),
        ("http://h/v1", {"SPADE_API_KEY": "a"}, "a"),
        ("http://h/v1", {"OPENAI_API_KEY": "o"}, None),
        ("https://api.openai.com/v1", {"OPENAI_API_KEY": "o"}, "o"),
        ("https://openai.com.evil.org/v1", {"OPENAI_API_KEY": "o"}, None),
        ("http://127.0.0.1:1/v1", {"OPENAI_API_KEY": "o"}, "o"),
        ("https://api.x-y.com/v1", {"SPADE_API_KEY_API_X_Y_COM": "x", "SPADE_API_KEY": "a"}, "x"),
    ],
)
def test_keys_go_where_they_belong(url: str, environ: dict[str, str], key: str | None) -> None:
    assert key_for(url, environ) == key


def test_retry_after() -> None:
    assert retry_after("3") == 3 and retry_after(None) == retry_after("soon") == retry_after("-5") == 0
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after("Wed, 21 Oct 2099 07:28:00 GMT") > 1e9
