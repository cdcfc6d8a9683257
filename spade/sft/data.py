"""Conversations to learn from, out of three kinds of source.

    FILE.jsonl   rows with `messages` (role, content, for assistants also tool_calls), or with `prompt` and
                 `completion`, each a text or a list of messages; `tools` may hold the schemas that are shown
    POOL         a pool of programs: the brief each was written for (or one made anew), answered by its text
    RUN          a run folder: its plain plays with a high enough return, and the programs it accepted

Which of a run's are taken says `roles`. Plays in the hinted arm are left out: without the hint, what they did
is no longer an answer. So are tool-use plays, whose rows hold no tool schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade.design.corpus import Corpus
from spade.design.prompts import agent_message, designer_messages, fenced
from spade.envs.pool import MANIFEST, ROWS, Pool, read_pool
from spade.errors import InputError
from spade.files import read_jsonl
from spade.play.actions import codec_for
from spade.runs import RECORD, read_record
from spade.types import EnvProgram, Message, ToolCall

ROLES = ("agent", "designer")


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation; what its assistant says is learned, from message `first` on."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    first: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """What is taken of a source, and the prompts that are made for it."""

    roles: tuple[str, ...] = ROLES
    min_return: float = 1.0
    """Lowest return of a play."""
    template: str = "short"
    """Prompts of programs and plays: "short" or "full"; the run that follows must use the same."""
    corpus: str = "builtin"
    """Where the documents of briefs are looked up."""


def read_source(path: Path, choice: Choice) -> list[Talk]:
    """All conversations of one source. Raises InputError for one that is not there, damaged or empty."""
    if path.is_file():
        talks = list(_file(path))
    elif (path / RECORD).is_file():
        talks = [*_programs(path / "pool", choice), *_plays(path, choice)]
    elif (path / MANIFEST).is_file() or (path / ROWS).is_file():
        talks = list(_programs(path, choice))
    else:
        raise InputError(f"{path} is no data to learn from; give a .jsonl file, a pool or a run folder")
    if not talks:
        raise InputError(
            f"nothing to learn from in {path} (roles {', '.join(choice.roles)}, return from "
            f"{choice.min_return:g}); change --roles or --min-return"
        )
    return talks


# --- files -----------------------------------------------------------------------------------------------


def _file(path: Path) -> Iterator[Talk]:
    for number, row in enumerate(read_jsonl(path), start=1):
        where = f"{path} line {number}"
        tools = row.get("tools") or []
        if not isinstance(tools, list) or not all(isinstance(t, dict) for t in tools):
            raise InputError(f"{where}: tools must be a list of schemas")
        if "messages" in row:
            messages, first = _messages(row["messages"], where), 0
        elif "prompt" in row and "completion" in row:
            prompt = _messages(row["prompt"], where, "user")
            messages = (*prompt, *_messages(row["completion"], where, "assistant"))
            first = len(prompt)
        else:
            raise InputError(f"{where} has neither messages nor prompt and completion")
        if not any(m.role == "assistant" for m in messages[first:]):
            raise InputError(f"{where}: the assistant says nothing")
        yield Talk(messages, tuple(tools), first)


def _messages(value: Any, where: str, role: str | None = None) -> tuple[Message, ...]:
    """A list of messages, or with a `role` a text that is one message of it."""
    if isinstance(value, str) and role is not None:
        return (_message({"role": role, "content": value}, where),)
    if not isinstance(value, list) or not value:
        raise InputError(f"{where}: messages must be a list that is not empty")
    return tuple(_message(row, where) for row in value)


def _message(row: Any, where: str) -> Message:
    role = row.get("role") if isinstance(row, Mapping) else None
    content = row.get("content") if isinstance(row, Mapping) else None
    if role not in ("system", "user", "assistant", "tool") or not isinstance(content, str | None):
        raise InputError(
            f"{where}: a message needs a role (system, user, assistant, tool) and a text as content"
        )
    calls = row.get("tool_calls") or []
    try:
        found = tuple(_call(call.get("function", call)) for call in calls)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where}: a tool call needs a name and arguments") from error
    return Message(role, content or "", found, row.get("name"))


def _call(call: Mapping[str, Any]) -> ToolCall:
    import json

    arguments = call["arguments"]
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    return ToolCall(str(call["name"]), dict(arguments))


# --- pools and runs --------------------------------------------------------------------------------------


def _programs(folder: Path, choice: Choice) -> Iterator[Talk]:
    if "designer" not in choice.roles or not ((folder / MANIFEST).is_file() or (folder / ROWS).is_file()):
        return
    pool = read_pool(folder)
    documents = {d.id: d.text for d in Corpus.load(choice.corpus).documents}
    for program in pool.programs:
        yield Talk(
            (
                *_brief(pool, program, documents, choice),
                Message("assistant", fenced(program.code.rstrip("\n"))),
            )
        )


def _brief(
    pool: Pool, program: EnvProgram, documents: Mapping[str, str], choice: Choice
) -> tuple[Message, ...]:
    """The brief a program was written for, as far as the pool knows; earlier programs are not shown again."""
    known = pool.provenance.get(program.id)
    note = (known.brief if known is not None else None) or {}
    return designer_messages(
        documents.get(str(note.get("document", "")), ""),
        program.skill,
        program.game_type,
        str(note.get("difficulty", "medium")),
        (),
        choice.template,
        domain=str(note.get("domain", "")),
        variant=str(note.get("variant", "")),
    )


def _plays(run: Path, choice: Choice) -> Iterator[Talk]:
    if "agent" not in choice.roles:
        return
    config = read_record(run).config
    kind = config.get("design", {}).get("game_type", "multi_turn")
    if kind == "tool_use":
        return
    codec = codec_for(kind, config.get("play", {}).get("codec", "auto"))
    for row in read_jsonl(run / "episodes.jsonl"):
        value = row.get("value")
        if row.get("hinted") or value is None or value < choice.min_return or not row.get("actions"):
            continue
        messages = [agent_message(row["first"], None, choice.template, codec.instruction)]
        for action, observation in zip(row["actions"], row["observations"], strict=True):
            messages += [Message("assistant", action), Message("user", observation)]
        yield Talk(tuple(messages[:-1]))
