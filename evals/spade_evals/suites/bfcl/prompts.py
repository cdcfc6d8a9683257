"""The words around a BFCL question, as in `bfcl-eval` 2026.3.23 (Apache-2.0), so that scores compare.

Two styles of call are upstream's: `tools` gives the functions to the chat template, which knows how the model
calls them; `calls` lists them in the system message and asks for `[f(a=1), g(b=2)]`. `compact` is `calls`
with one line a function, ours, for models whose context does not hold the rest.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, Final

Doc = dict[str, Any]
"""Documentation of one function, as in the data."""

SYSTEM: Final = (
    "You are an expert in composing functions.You are given a question and a set of possible functions. "
    "Based on the question, you will need to make one or more function/tool calls to achieve the purpose. If "
    "none of the functions can be used, point it out. If the given question lacks the parameters required by "
    "the function, also point it out.\n\n"
    "You should only return the function calls in your response.\n\n"
    "If you decide to invoke any of the function(s), you MUST put it in the format of "
    "[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)].  You "
    "SHOULD NOT include any other text in the response.\n\n"
    "At each turn, you should try your best to complete the tasks requested by the user within the current "
    "turn. Continue to output functions to call until you have fulfilled the user's request to the best of "
    "your ability. Once you have no more functions to call, the system will consider the current turn "
    "complete and proceed to the next turn or task.\n\n"
    "Here is a list of functions in json format that you can invoke.\n{functions}\n"
)
COMPACT: Final = (
    "Do what the user asks by calling functions. Write calls as [name(a=1), other(b='x')] and nothing else; "
    "you are shown what they return. When nothing is left to call, say so in words.\n{functions}\n"
)
MORE_FUNCTIONS: Final = "I have updated some more functions you can choose from. What about now?"
"""The user's message in the turn in which a function that was held back appears."""

LANGUAGE_HINT: Final = {
    "python": " Note that the provided function is in Python 3 syntax.",
    "java": " Note that the provided function is in Java 8 SDK syntax.",
    "javascript": " Note that the provided function is in JavaScript syntax.",
}
_JSON_TYPES: Final = {
    "integer": "integer", "number": "number", "float": "number", "string": "string", "boolean": "boolean",
    "bool": "boolean", "array": "array", "list": "array", "dict": "object", "object": "object",
    "tuple": "array", "any": "string", "byte": "integer", "short": "integer", "long": "integer",
    "double": "number", "char": "string", "ArrayList": "array", "Array": "array", "HashMap": "object",
    "Hashtable": "object", "Queue": "array", "Stack": "array", "Any": "string", "String": "string",
    "Bigint": "integer",
}  # fmt: skip

PROMPTS: Final = json.dumps([SYSTEM, COMPACT, MORE_FUNCTIONS, LANGUAGE_HINT], sort_keys=True)
"""Everything that is shown, for the protocol."""

STYLES: Final = ("tools", "calls", "compact")


def system_prompt(docs: Sequence[Doc], style: str) -> str:
    """The system message of the styles `calls` and `compact`."""
    if style == "compact":
        return COMPACT.replace("{functions}", signatures(docs))
    return SYSTEM.replace("{functions}", json.dumps(list(docs), indent=4))


def more_functions(docs: Sequence[Doc], style: str) -> str:
    """What the user says when functions appear."""
    if style == "tools":
        return MORE_FUNCTIONS
    return f"{signatures(docs) if style == 'compact' else list(docs)}\n{MORE_FUNCTIONS}"


def signatures(docs: Sequence[Doc]) -> str:
    """A line for each function: `name(a: integer, b?: string)`; `?` marks what may be left out."""
    return "\n".join(map(_signature, docs))


def _signature(doc: Doc) -> str:
    needed = doc["parameters"].get("required", ())
    given = doc["parameters"]["properties"].items()
    arguments = ", ".join(f"{name}{'' if name in needed else '?'}: {p['type']}" for name, p in given)
    return f"{doc['name']}({arguments})"


def with_language_hint(docs: Sequence[Doc], language: str) -> list[Doc]:
    """The docs with the language named; for Java and JavaScript every parameter becomes a string that holds
    source text of the language."""
    out = copy.deepcopy(list(docs))
    for doc in out:
        doc["description"] = doc["description"] + LANGUAGE_HINT[language]
        if language != "python":
            for parameter in doc["parameters"]["properties"].values():
                _as_source_text(parameter, "Java" if language == "java" else "JavaScript")
    return out


def _as_source_text(parameter: Doc, language: str) -> None:
    kind = parameter["type"]
    if kind == "any":
        text = f" This parameter can be of any type of {language} object in string representation."
    else:
        text = f" This is {language} {kind} type parameter in string representation."
    if kind in ("ArrayList", "Array") or (kind == "array" and language == "JavaScript"):
        text += f" The list elements are of type {parameter.pop('items')['type']}; "
        text += "they are not in string representation."
    if kind == "dict" and language == "JavaScript" and "properties" in parameter:
        text += " The dictionary entries have the following schema; they are not in string representation. "
        text += json.dumps(parameter.pop("properties"))
    parameter["description"] = parameter["description"] + text
    parameter["type"] = "string"


def as_tools(docs: Sequence[Doc]) -> list[Doc]:
    """The docs as function schemas of the OpenAI kind: JSON types, and no dots in names."""
    out = []
    for doc in docs:
        parameters = copy.deepcopy(doc["parameters"])
        parameters["type"] = "object"
        parameters["properties"] = _json_types(parameters["properties"])
        function = {
            "name": tool_name(doc["name"]), "description": doc["description"], "parameters": parameters,
        }  # fmt: skip
        out.append({"type": "function", "function": function})
    return out


def tool_name(name: str) -> str:
    """The name under which a function is offered as a tool."""
    return name.replace(".", "_")


def _json_types(properties: Doc) -> Doc:
    for value in properties.values():
        kind = value.get("type", "string")
        if kind == "float":
            value["format"] = "float"
            value["description"] = value.get("description", "") + " This is a float type value."
        value["type"] = _JSON_TYPES.get(kind, "string")
        if value["type"] in ("array", "object"):
            if "properties" in value:
                value["properties"] = _json_types(value["properties"])
            elif isinstance(value.get("items"), dict):
                _json_items(value["items"])
    return properties


def _json_items(items: Doc) -> None:
    items["type"] = _JSON_TYPES.get(items.get("type", "string"), "string")
    if items["type"] == "array" and isinstance(items.get("items"), dict):
        _json_items(items["items"])
    elif items["type"] == "object" and "properties" in items:
        items["properties"] = _json_types(items["properties"])
