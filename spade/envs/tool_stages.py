"""Stages for tool-use programs: tools that are what they say, instructions that calls can fulfil.

The worker only reports what the program's own predicates say; what that means is judged here.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

from spade.envs.bench import Bench, Probe
from spade.envs.screen import Refused
from spade.envs.tools import TYPES, argument_error, read_turn
from spade.envs.wire import Criteria, Op, Request, StepResult

Schemas = list[dict[str, Any]]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
BAD_CALLS = (
    "<tool_call>not json</tool_call>",
    '<tool_call>{"name": "no_such_tool_zq", "arguments": {}}</tool_call>',
    "<tool_call>[]</tool_call>",
    "<tool_call>",
    "hello",
)
"""Turns that must be answered by text and nothing else."""
PROBED_SEEDS = 4
LONG_TASK = 3
"""Turns from which on a brief asks for a long task, and the fewest tools and instructions it then has."""


def _least(bench: Bench, asked: int | None) -> int:
    """The smallest number of tools or instructions: as asked, else by what the brief wants."""
    return asked if asked is not None else LONG_TASK if bench.min_turns >= LONG_TASK else 1


async def tool_schemas(
    bench: Bench, *, min_tools: int | None = None, max_tools: int = 8, same_for_all_seeds: bool = True
) -> None:
    """Declared tools are well-formed and match the methods; `solution()` calls fit them.

    `min_tools` (unset: 3 where a brief asks for a long task, else 1) and `max_tools` bound their number;
    `same_for_all_seeds` wants the same ones in every episode.
    """
    await bench.survey()
    if bench.game_type != "tool_use":
        return
    ops = [op for p in bench.probes for op in (Op.reset(0, p.seed), Op.tools(0))]
    lists = cast("list[Schemas]", (await bench.ask(ops, object))[1::2])
    if same_for_all_seeds and any(tools != lists[0] for tools in lists):
        raise Refused("tools_differ", "The tools are not the same in every episode.")
    tools = lists[0]
    least = _least(bench, min_tools)
    if not least <= len(tools) <= max_tools:
        raise Refused("tool_count", f"There are {len(tools)} tools; {least} to {max_tools} are allowed.")
    functions = [_function(tool) for tool in tools]
    table = {f["name"]: f["parameters"] for f in functions}
    if len(table) != len(functions):
        raise Refused("tool_schema", "Two tools have the same name.")
    for probe in bench.probes:
        _check_plan(probe, table)
    _check_methods(bench, table)
    await _check_answers(bench, table)


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    """The function of one tool in the OpenAI format. Raises Refused("tool_schema")."""
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        raise Refused("tool_schema", 'A tool must be {"type": "function", "function": {...}}.')
    name, text = function.get("name"), function.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Refused("tool_schema", f"A tool has the name {str(name)[:40]!r}.")
    if not isinstance(text, str) or not text.strip():
        raise Refused("tool_schema", f"The tool {name} has no description.")
    parameters = function.get("parameters")
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        raise Refused("tool_schema", f"The parameters of {name} are not a JSON schema of type object.")
    properties, required = parameters.get("properties", {}), parameters.get("required", [])
    described = isinstance(properties, dict) and isinstance(required, list)
    if not described or not all(isinstance(r, str) and r in properties for r in required):
        raise Refused("tool_schema", f"The parameters of {name} require what they do not describe.")
    for key, schema in properties.items():
        kind = schema.get("type") if isinstance(schema, dict) else None
        kinds = kind if isinstance(kind, list) else [kind]
        if not all(isinstance(k, str) and k in TYPES for k in kinds):
            raise Refused("tool_schema", f"The parameter {key} of {name} has no JSON type.")
        if "enum" in schema and (not isinstance(schema["enum"], list) or not schema["enum"]):
            raise Refused(
                "tool_schema", f"The enum of the parameter {key} of {name} is not a list of values."
            )
    return function


def _calls(probe: Probe) -> list[tuple[str, Any]]:
    """Names and arguments of a solution's calls. Raises Refused("solution_call") for malformed ones."""
    found = []
    for text in (t for action in probe.actions for t in read_turn(action).calls):
        try:
            call = json.loads(text)
            name, arguments = call["name"], call["arguments"]
        except (ValueError, KeyError, TypeError, RecursionError):
            name = arguments = None
        if not isinstance(name, str):
            raise Refused("solution_call", f"`solution` makes a malformed call: {text[:60]!r}.")
        found.append((name, arguments))
    return found


def _check_plan(probe: Probe, table: dict[str, dict[str, Any]]) -> None:
    """Every call of a solution names a declared tool with arguments that fit its schema."""
    for name, arguments in _calls(probe):
        if name not in table:
            raise Refused("solution_call", f"`solution` calls {name[:40]!r}, which is not a tool.")
        if wrong := argument_error(table[name], arguments):
            raise Refused("solution_call", f"`solution` calls {name} against its schema ({wrong}).")


def _sample(schema: dict[str, Any]) -> Any:
    """A value that fits a parameter's schema."""
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    samples = {"string": "zq", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    return samples.get(str(kind))


def _check_methods(bench: Bench, table: dict[str, dict[str, Any]]) -> None:
    """The method of each tool takes the parameters its schema describes, and needs no others.

    Read from the source; a tool whose method is not written there as `def tool_NAME` is judged by play alone.
    """
    methods = {n.name: n for n in ast.walk(bench.tree) if isinstance(n, ast.FunctionDef)}
    for name, schema in table.items():
        method = methods.get(f"tool_{name}")
        if method is None:
            continue
        properties, required = set(schema.get("properties", {})), set(schema.get("required", []))
        arguments = method.args
        positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][1:]
        optional = positional[len(positional) - len(arguments.defaults) :] if arguments.defaults else []
        optional += [a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d]
        takes = {*positional, *(a.arg for a in arguments.kwonlyargs)}
        if arguments.kwarg is None and (unknown := properties - takes):
            text = f"The schema of {name} has the parameter {min(unknown)}, which tool_{name} does not take."
            raise Refused("tool_schema", text)
        if missing := takes - set(optional) - required:
            text = f"tool_{name} needs {min(missing)}, which its schema does not require."
            raise Refused("tool_schema", text)


async def _check_answers(bench: Bench, table: dict[str, dict[str, Any]]) -> None:
    """Calls that fit a schema, and turns that fit nothing, are answered by text; none of them pays."""
    texts = list(BAD_CALLS)
    for name, schema in table.items():
        properties = schema.get("properties", {})
        whole = {k: _sample(s) for k, s in properties.items()}
        least = {k: v for k, v in whole.items() if k in schema.get("required", [])}
        texts += [_call(name, whole), _call(name, least), _call(name, {**whole, "zq": 1}), _call(name, {})]
    ops = [op for text in texts for op in (Op.reset(0, bench.probes[0].seed), Op.step(0, text))]
    for step in cast("list[StepResult]", (await bench.ask(ops, object))[1::2]):
        if step.terminated or step.reward:
            raise Refused("paid_call", "A tool call ended the episode or paid a reward; only the answer may.")


def _call(name: str, arguments: dict[str, Any]) -> str:
    return "<tool_call>" + json.dumps({"name": name, "arguments": arguments}) + "</tool_call>"


# --- instructions --------------------------------------------------------------------------------------


async def tool_criteria(bench: Bench, *, min_tasks: int | None = None, max_tasks: int = 5) -> None:
    """Playing `solution()` makes each instruction's predicate true, in order; none holds from the start.

    `min_tasks` (unset: 3 where a brief asks for a long task, else 1) and `max_tasks` bound their number.
    """
    await bench.survey()
    if bench.game_type != "tool_use":
        return
    for probe in bench.probes[:PROBED_SEEDS]:
        ops: list[Request] = [Op.reset(0, probe.seed), Op.criteria(0)]
        for action in probe.actions:
            ops += [Op.step(0, action), Op.criteria(0)]
        states = cast("list[Criteria]", (await bench.ask(ops, object))[1::2])
        count = len(states[0].met)
        if not count:
            raise Refused("no_criteria", "The program reports no instructions; subclass ToolEnv.")
        least = _least(bench, min_tasks)
        if not least <= count <= max_tasks:
            text = f"There are {count} instructions; {least} to {max_tasks} are allowed."
            raise Refused("task_count", text)
        if any(len(s.met) != count or not 0 <= s.current <= count for s in states):
            raise Refused("criterion_order", "The number of instructions changes while `solution` is played.")
        _check_start(states[0])
        _check_order(states, [len(read_turn(a).calls) for a in probe.actions])
    await _check_distractors(bench)


def _check_start(start: Criteria) -> None:
    if start.met[0] or start.current:
        raise Refused("satisfied_at_start", "The first instruction is done before any call.")
    if len(start.met) > 1 and all(start.met[1:]):
        raise Refused("satisfied_at_start", "All later instructions are done before any call.")
    if all(m is None for m in start.met):
        raise Refused("criterion_raises", "Every predicate raises on the state after a reset.")


def _check_order(states: Sequence[Criteria], calls: Sequence[int]) -> None:
    """Each turn of the solution fulfils at most as many instructions as it makes calls, in order."""
    for (before, after), made in zip(pairwise(states), calls, strict=True):
        done = after.current - before.current
        if done < 0:
            raise Refused(
                "criterion_order", "The number of fulfilled instructions falls while `solution` is played."
            )
        if done > made:
            text = f"{done} instructions count as done after {made} call{'s' * (made != 1)} of `solution`."
            raise Refused("criterion_skipped", text)
        if done == 1 == made and not after.met[before.current]:
            number = before.current + 1
            raise Refused(
                "criterion_order", f"Instruction {number} counts as done, but its predicate is false."
            )
    count = len(states[0].met)
    if (last := states[-1].current) < count:
        raise Refused("criterion_unreached", f"`solution` never fulfils instruction {last + 1} of {count}.")


async def _check_distractors(bench: Bench) -> None:
    """Tools that the solution of a seed does not call fulfil nothing by a call with plain arguments."""
    for probe in bench.probes[:PROBED_SEEDS]:
        tools = cast("Schemas", (await bench.ask([Op.reset(0, probe.seed), Op.tools(0)], object))[1])
        used = {name for name, _ in _calls(probe)}
        spare = [f for f in map(_function, tools) if f["name"] not in used]
        ops: list[Request] = []
        for function in spare:
            properties = function["parameters"].get("properties", {})
            arguments = {k: _sample(s) for k, s in properties.items()}
            ops += [Op.reset(0, probe.seed), Op.step(0, _call(function["name"], arguments)), Op.criteria(0)]
        for function, state in zip(spare, (await bench.ask(ops, object))[2::3], strict=True):
            if cast(Criteria, state).current:
                name = function["name"]
                raise Refused(
                    "distractor_pays", f"A call of {name}, which is not needed, fulfils an instruction."
                )
