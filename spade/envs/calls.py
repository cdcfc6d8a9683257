"""Tool calls made up from declared schemas: plain arguments that fit, and others in place of a solution's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_SAMPLES = {"string": "zq", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """The action text of one call."""
    return "<tool_call>" + json.dumps({"name": name, "arguments": arguments}) + "</tool_call>"


def sample(schema: dict[str, Any]) -> Any:
    """A value that fits a parameter's schema."""
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    return _SAMPLES.get(str(kind))


def sample_arguments(parameters: dict[str, Any]) -> dict[str, Any]:
    """A value for each parameter of a tool's JSON schema."""
    return {k: sample(s) for k, s in parameters.get("properties", {}).items()}


def sample_calls(tools: Sequence[dict[str, Any]]) -> list[str]:
    """One call with plain arguments for each tool in the OpenAI format; malformed tools are left out."""
    found = []
    for tool in tools:
        try:
            function = tool["function"]
            found.append(call_text(function["name"], sample_arguments(function["parameters"])))
        except (KeyError, TypeError, AttributeError):
            continue  # the stage tool_schemas says what is wrong with it
    return found


def other_arguments(parameters: dict[str, Any], arguments: dict[str, Any], by: int) -> dict[str, Any]:
    """The arguments, every value that can differ replaced by another of its kind; numbers are moved `by`."""
    properties = parameters.get("properties", {})
    return {k: _other(properties.get(k, {}), v, by) for k, v in arguments.items()}


def _other(schema: dict[str, Any], value: Any, by: int) -> Any:
    if isinstance(schema.get("enum"), list):
        others = [v for v in schema["enum"] if v != value] or [value]
        return others[0 if by > 0 else -1]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + by
    return "zq" if isinstance(value, str) else value
