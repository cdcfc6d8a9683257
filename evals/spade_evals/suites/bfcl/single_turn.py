"""BFCL single-turn: one answer a question, checked without running anything.

simple, multiple, parallel, parallel_multiple   the calls must be the expected ones (`ast_check`)
irrelevance                                     no function helps: there must be no call
relevance                                       some function helps: there must be a call

each also `live`, from users; simple also in Java and JavaScript, where arguments are source text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.play.toolcalls import call_text
from spade.types import Message, StopReason, ToolCall, content_id
from spade_evals.data import Row
from spade_evals.dialogue import DialogueTask, Speaker, Transcript
from spade_evals.grade.calls import Call
from spade_evals.grade.calls_reader import Reading
from spade_evals.question import Grade, GradeVerdict, Question, Questions, numbered
from spade_evals.suite import Setting
from spade_evals.suites.bfcl import prompts
from spade_evals.suites.bfcl.ast_check import Wrong, check_calls
from spade_evals.suites.bfcl.multi_turn import SHOWN
from spade_evals.suites.bfcl.package import SINGLE_TURN, find_package, source
from spade_evals.suites.bfcl.replies import bracketed, calls_of, renamed
from spade_evals.suites.bfcl.solutions import expected_calls
from spade_evals.suites.bfcl.source_text import read_source_calls

_ANY = "elements of this ArrayList are compared as text, but the reference holds values of other types"
_NONE = "a parameter that must be given has no possible value"
_DOC = "the reference names a parameter that the function does not have"
DEFECTS = {
    "simple_java_36": _ANY,
    "simple_java_65": _ANY,
    "live_simple_106-63-0": _NONE,
    "live_simple_112-68-0": _NONE,
    "live_multiple_862-181-3": _DOC,
    "live_multiple_964-207-0": _DOC,
}
"""Items that no answer can get right, here and with upstream's checker."""

SOLVED_BY_SAYING = "None of the functions can do that."


class SingleTurn(DialogueTask):
    """One category, named as upstream."""

    styles = prompts.STYLES
    grader = "bfcl-ast-1"
    max_tokens = 4096
    defects = DEFECTS

    def __init__(self, category: str) -> None:
        self.category = category
        self.name = f"bfcl_{category}"
        self.data = source(SINGLE_TURN[category])
        ending = category.rpartition("_")[2]
        self.language = ending if ending in ("java", "javascript") else "python"

    def load(self, root: Path | None = None, allow_changed: bool = False) -> Questions:
        """See `Task.load`; the data is inside the package."""
        package = find_package(self.name, root, allow_changed)
        try:
            questions = [self._question(row, truth) for row, truth in package.category(self.category)]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"bfcl-eval does not have the form of {self.name} ({error!r})") from error
        return Questions(numbered(questions), package.sha256, package.changed)

    def _question(self, row: Row, truth: list[Any] | None) -> Question:
        messages = tuple(Message(m["role"], m["content"]) for m in row["question"][0])
        return Question(self.name, messages, truth, row["id"], meta={"functions": row["function"]})

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """See `Task.protocol`."""
        return {**super().protocol(setting), "prompts": content_id(prompts.PROMPTS)[:16]}

    async def converse(self, question: Question, speaker: Speaker, setting: Setting) -> Transcript:
        """One request."""
        docs = prompts.with_language_hint(question.meta["functions"], self.language)
        assert not isinstance(question.prompt, str)
        messages = list(question.prompt)
        tools: list[Row] = []
        if self.style == "tools":
            tools = prompts.as_tools(docs)
        else:
            messages = _with_system(messages, prompts.system_prompt(docs, self.style))
        reply = await speaker.say(messages, tools)
        if reply.stop is StopReason.CONTEXT and not reply.completion.token_ids:
            return Transcript((), "context")
        names = {prompts.tool_name(doc["name"]): doc["name"] for doc in docs}
        if self.style != "tools" and self.language != "python":
            reading = read_source_calls(bracketed(reply.text))
        else:
            known = set(names) if self.style == "tools" else set(names.values())
            reading = calls_of(reply, self.style, known, names_as_text=True)
        return Transcript((_heard(reply.raw, reading, names if self.style == "tools" else {}),), "done")

    async def mark(self, transcript: Transcript, question: Question, setting: Setting) -> Grade:
        """See `DialogueTask.mark`."""
        if transcript.end == "context":
            return Grade.none("no room in the context")
        said = transcript.messages[-1]
        calls = [Call(c["name"], (), c["arguments"]) for c in said["calls"]]
        shown = " ".join(map(str, calls))[:SHOWN]
        if said.get("refused"):
            return Grade(GradeVerdict.REFUSED, extracted=shown, detail=said["refused"])
        if "relevance" in self.category:
            return Grade.of(bool(calls) != ("irrelevance" in self.category), shown)
        if not calls:
            return Grade.none("no calls")
        try:
            check_calls(question.meta["functions"], calls, question.reference, self.language, self.category)
        except Wrong as wrong:
            return Grade.of(False, shown, str(wrong))
        return Grade.of(True, shown)

    # --- the oracle ------------------------------------------------------------------------------------

    async def script(self, question: Question, setting: Setting) -> list[str] | None:
        """One right answer."""
        calls = self.right_calls(question)
        if not calls:
            return [SOLVED_BY_SAYING]
        if self.style == "tools":
            written = [ToolCall(prompts.tool_name(c.name), c.kwargs) for c in calls]
            return ["\n".join(map(call_text, written))]
        if self.language == "python":
            return [f"[{', '.join(map(str, calls))}]"]
        rows = [f"{c.name}({', '.join(f'{k}={_quoted(v)}' for k, v in c.kwargs.items())})" for c in calls]
        return [f"[{', '.join(rows)}]"]

    def right_calls(self, question: Question) -> list[Call]:
        """Calls that are right: the first value of each parameter that has to be given."""
        functions = question.meta["functions"]
        if self.category == "live_relevance":
            return [Call(functions[0]["name"])]
        return expected_calls(functions, question.reference or [], self.language)

    def solution(self, question: Question) -> str | None:
        """See `Task.solution`."""
        reading = Reading(tuple(self.right_calls(question)))
        return Transcript((_heard("", reading, {}),), "done").text()


def _heard(raw: str, reading: Reading, names: dict[str, str]) -> dict[str, Any]:
    """The reply as it is kept. Arguments without a name are left out, as upstream does."""
    calls = [{"name": c.name, "arguments": c.kwargs} for c in renamed(reading.calls, names)]
    refused = {"refused": str(reading.refused)} if reading.refused is not None else {}
    return {"role": "assistant", "content": raw, "calls": calls, **refused}


def _quoted(text: str) -> str:
    """Source text as an argument in a call: words that would divide the call stand in quotes."""
    return text if text.startswith(("new ", "[", "{")) or "," not in text else f'"{text}"'


def _with_system(messages: list[Message], text: str) -> list[Message]:
    """The conversation with `text` first in its system message."""
    if messages[0].role != "system":
        return [Message("system", text), *messages]
    return [Message("system", f"{text}\n\n{messages[0].content}"), *messages[1:]]
