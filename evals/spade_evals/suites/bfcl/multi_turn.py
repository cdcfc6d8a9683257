"""BFCL multi-turn: four categories of 200 conversations against stateful classes.

    turn: the user's message ─► reply ─► calls? ─yes─► results ─► reply ...   20 steps; the 21st fails
                                           └──no──► next turn                 the item

Graded by upstream's checker: after each turn the state of every class must equal the reference's, and what
the reference's calls returned must be among what the model has got so far. `official` is that; `strict` also
wants no calls in turns in which nothing can be done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from spade.errors import InputError
from spade.play.toolcalls import call_text
from spade.serving.chat import ChatCompletion
from spade.types import Message, StopReason, ToolCall, content_id
from spade_evals.data import Row
from spade_evals.dialogue import LAST_WORD, DialogueTask, Speaker, Transcript
from spade_evals.grade.calls import Call, Refusal
from spade_evals.grade.calls_reader import read_calls
from spade_evals.question import Grade, GradeVerdict, Question, Questions, numbered
from spade_evals.suite import Setting
from spade_evals.suites.bfcl import backend, prompts
from spade_evals.suites.bfcl.package import Package, find_package, source
from spade_evals.suites.bfcl.replies import calls_of

STEP_LIMIT: Final = 20
"""Replies with calls in one turn; the next one fails the item (upstream overlooks it in the last turn)."""
SHOWN: Final = 2_000
"""Characters of the calls that are shown as what was extracted."""


class MultiTurn(DialogueTask):
    """One category: `base`, `miss_func`, `miss_param` or `long_context`."""

    styles = prompts.STYLES
    variants = ("official", "strict")
    grader = "bfcl-multi-turn-1"
    max_tokens = 4096

    def __init__(self, category: str) -> None:
        self.category = category
        self.name = f"bfcl_{category}"
        self.data = source(200)
        self._package: Package | None = None
        self._docs: dict[str, list[Row]] = {}

    # --- data ------------------------------------------------------------------------------------------

    def load(self, root: Path | None = None, allow_changed: bool = False) -> Questions:
        """See `Task.load`; the data is inside the package."""
        self._package = find_package(self.name, root, allow_changed)
        self._docs = self._package.docs()
        try:
            rows = self._package.category(f"multi_turn_{self.category}")
            questions = [self._question(row, truth or []) for row, truth in rows]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"bfcl-eval does not have the form of {self.name} ({error!r})") from error
        return Questions(numbered(questions), self._package.sha256, self._package.changed)

    def _question(self, row: Row, truth: list[Any]) -> Question:
        item = {key: row[key] for key in ("id", "initial_config", "involved_classes")}
        turns = [[[m["role"], m["content"]] for m in turn] for turn in row["question"]]
        first = tuple(Message(role, content) for role, content in turns[0])
        meta = {"item": item, "turns": turns, "missed": row.get("missed_function", {})}
        return Question(self.name, first, truth, row["id"], meta=meta)

    def _item(self, question: Question) -> dict[str, Any]:
        assert self._package is not None
        return {**question.meta["item"], "package": str(self._package.path)}

    def functions(self, question: Question) -> tuple[list[Row], dict[str, list[Row]]]:
        """Documentation of the functions on offer at first, and of those that appear in a later turn."""
        classes = question.meta["item"]["involved_classes"]
        docs = [doc for name in classes for doc in self._docs[name]]
        later: dict[str, list[Row]] = {}
        for turn, names in question.meta["missed"].items():
            for name in names:
                held = next(doc for doc in docs if doc["name"] == name)
                docs.remove(held)
                later.setdefault(turn, []).append(held)
        return prompts.with_language_hint(docs, "python"), later

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """See `Task.protocol`."""
        texts = content_id(prompts.PROMPTS)[:16]
        return {**super().protocol(setting), "prompts": texts, "steps": STEP_LIMIT}

    # --- conversation ----------------------------------------------------------------------------------

    async def converse(self, question: Question, speaker: Speaker, setting: Setting) -> Transcript:
        """See `DialogueTask.converse`."""
        talk = _Talk(self.style, *self.functions(question))
        talk.open()
        for number, turn in enumerate(question.meta["turns"]):
            talk.begin(str(number), turn)
            end = await self._turn(talk, question, speaker)
            if end:
                return talk.transcript(end)
        return talk.transcript("done")

    async def _turn(self, talk: _Talk, question: Question, speaker: Speaker) -> str:
        """One turn, until a reply without calls. Returns why the whole conversation ends, or ""."""
        for step in range(STEP_LIMIT + 1):
            reply = await speaker.say(talk.messages, talk.tools, replies=talk.replies)
            if reply.stop is StopReason.CONTEXT and not reply.completion.token_ids:
                return "context"
            reading = calls_of(reply, self.style, talk.names)
            talk.heard(reply, [str(call) for call in reading.calls], reading.refused)
            if reading.refused is not None:
                return "refused"
            if not reading.calls:
                return ""
            if step == STEP_LIMIT:
                return "steps"
            results = await backend.run(self._item(question), talk.steps)
            if isinstance(results, Refusal):
                talk.refuse(results)
                return "refused"
            talk.told(reading.calls, results)
        raise AssertionError

    # --- grading ---------------------------------------------------------------------------------------

    async def mark(self, transcript: Transcript, question: Question, setting: Setting) -> Grade:
        """See `DialogueTask.mark`."""
        turns = turns_of(transcript)
        said = "\n".join(" ".join(call for step in turn for call in step) for turn in turns)[:SHOWN]
        refused = next((m["refused"] for m in transcript.messages if m.get("refused")), "")
        if refused:
            return Grade(GradeVerdict.REFUSED, extracted=said, detail=refused)
        if transcript.end == "context":
            return Grade.none(f"no room in the context in turn {len(turns)} of {len(question.reference)}")
        if transcript.end == "steps":
            return Grade.of(False, said, f"more than {STEP_LIMIT} steps in turn {len(turns)}")
        strict = self.variant == "strict"
        verdict = await backend.check(self._item(question), turns, question.reference, strict)
        detail = " ".join(part for part in (verdict.error_type, verdict.message) if part)
        if not verdict.valid and not said.strip():
            return Grade.none(detail)
        return Grade.of(verdict.valid, said, detail)

    # --- the oracle ------------------------------------------------------------------------------------

    async def script(self, question: Question, setting: Setting) -> list[str] | None:
        """The reference's calls, and a word at the end of each turn."""
        out = []
        for turn in question.reference:
            out += [self.written(question, step) for step in in_steps(turn)] + [LAST_WORD]
        return out

    def written(self, question: Question, calls: list[str]) -> str:
        """A reply that makes these calls, in the task's style."""
        read = [self.named(question, text) for text in calls]
        if self.style != "tools":
            return f"[{', '.join(map(str, read))}]"
        return "\n".join(call_text(ToolCall(call.name, call.kwargs)) for call in read)

    def named(self, question: Question, text: str) -> Call:
        """The call with a name for every argument; some references leave names out."""
        call = read_calls(text).calls[0]
        classes = question.meta["item"]["involved_classes"]
        doc = next(d for name in classes for d in self._docs[name] if d["name"] == call.name)
        names = list(doc["parameters"]["properties"])
        return Call(call.name, (), {**dict(zip(names, call.args, strict=False)), **call.kwargs})

    def solution(self, question: Question) -> str | None:
        """See `Task.solution`."""
        return transcript_of([in_steps(turn) for turn in question.reference]).text()


@dataclass(slots=True)
class _Talk:
    """A conversation that is going on: what the model is shown, and what is kept of it."""

    style: str
    docs: list[Row]
    later: dict[str, list[Row]]
    """Turn -> functions that appear in it."""
    messages: list[Message] = field(default_factory=list)
    replies: list[tuple[int, ...]] = field(default_factory=list)
    steps: list[list[str]] = field(default_factory=list)
    """All calls so far, reply by reply, over all turns."""
    kept: list[dict[str, Any]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    tools: list[Row] = field(default_factory=list)

    def open(self) -> None:
        """Before the first turn."""
        self.names = {doc["name"] for doc in self.docs}
        if self.style == "tools":
            self.tools = prompts.as_tools(self.docs)
        else:
            self.messages.append(Message("system", prompts.system_prompt(self.docs, self.style)))

    def begin(self, number: str, turn: list[list[str]]) -> None:
        """What the user says in a turn; a held-back function comes with a sentence of the harness."""
        said = [Message(role, content) for role, content in turn]  # type: ignore[arg-type]
        docs = self.later.get(number, [])
        if docs:
            said = [Message("user", prompts.more_functions(docs, self.style))]
            self.names |= {doc["name"] for doc in docs}
            self.tools = [*self.tools, *prompts.as_tools(docs)] if self.style == "tools" else self.tools
        self.messages += said
        self.kept += [{"role": m.role, "content": m.content, "turn": int(number)} for m in said]

    def heard(self, reply: ChatCompletion, calls: list[str], refused: Refusal | None) -> None:
        """A reply of the model."""
        self.messages.append(reply.message)
        self.replies.append(reply.completion.token_ids)
        self.kept.append({"role": "assistant", "content": reply.raw, "calls": calls})
        if refused is not None:
            self.refuse(refused)
        elif calls:
            self.steps.append(calls)

    def refuse(self, why: Refusal) -> None:
        """The last reply's calls are not run."""
        self.kept[-1] |= {"calls": [], "refused": str(why)}

    def told(self, calls: tuple[Call, ...], results: list[str]) -> None:
        """What the calls of the last reply returned."""
        pairs = list(zip(calls, results, strict=True))
        if self.style == "tools":
            self.messages += [Message("tool", text, name=prompts.tool_name(c.name)) for c, text in pairs]
        else:
            rows = [{"role": "tool", "name": str(call), "content": text} for call, text in pairs]
            self.messages.append(Message("user", repr(rows)))
        self.kept += [{"role": "tool", "content": text, "name": call.name} for call, text in pairs]

    def transcript(self, end: str) -> Transcript:
        """What is kept."""
        return Transcript(tuple(self.kept), end)


def in_steps(calls: list[str]) -> backend.Steps:
    """The calls one by one; several at a time where one by one would be more steps than a turn may have."""
    size = -(-len(calls) // STEP_LIMIT)
    return [calls[at : at + size] for at in range(0, len(calls), size or 1)]


def turns_of(transcript: Transcript) -> list[backend.Steps]:
    """The calls of a conversation, turn by turn and reply by reply; replies without calls are left out."""
    turns: dict[int, backend.Steps] = {}
    turn = -1
    for message in transcript.messages:
        if "turn" in message:
            turn = int(message["turn"])
            turns.setdefault(turn, [])
        elif message.get("calls"):
            turns[turn].append([str(call) for call in message["calls"]])
    return [turns[number] for number in sorted(turns)]


def transcript_of(turns: list[backend.Steps]) -> Transcript:
    """A conversation that makes these calls, without results."""
    kept: list[dict[str, Any]] = []
    for number, steps in enumerate(turns):
        kept.append({"role": "user", "content": "", "turn": number})
        kept += [{"role": "assistant", "content": "", "calls": step} for step in steps]
    return Transcript(tuple(kept), "done")
