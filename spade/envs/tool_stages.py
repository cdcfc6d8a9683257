"""Stages for tool-use programs: tools that are what they say, instructions that calls can fulfil.

The worker only reports what the program's own predicates say; what that means is judged here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeGuard, cast

from spade.envs.bench import Bench, Probe
from spade.envs.calls import call_text, sample_arguments
from spade.envs.loose import calls_of, loose_instructions
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
ANNOTATIONS = {
    "str": ("string",),
    "int": ("integer", "number"),
    "float": ("number", "integer"),
    "bool": ("boolean",),
    "list": ("array",),
    "dict": ("object",),
}
"""JSON types that an argument annotated so may have."""
OWN_DISPATCH = ("setattr", "__getattr__", "execute_tool", "run", "step")
"""Names in a program that may carry out calls without a method `tool_NAME`."""
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
        _check_enum(name, key, schema)
    return function


def _check_enum(tool: str, key: str, schema: dict[str, Any]) -> None:
    if "enum" not in schema:
        return
    values = schema["enum"]
    if not isinstance(values, list) or not values:
        raise Refused("tool_schema", f"The enum of the parameter {key} of {tool} is not a list of values.")
    alone = {"properties": {key: {"type": schema["type"]}}}
    if (odd := next((v for v in values if argument_error(alone, {key: v})), None)) is not None:
        text = f"The enum of the parameter {key} of {tool} holds {str(odd)[:40]!r}, which is not of its type."
        raise Refused("tool_schema", text)


def _calls(probe: Probe) -> list[tuple[str, Any]]:
    """Names and arguments of a solution's calls. Raises Refused("solution_call") for malformed ones."""
    return [call for action in probe.actions for call in calls_of(action)]


def _check_plan(probe: Probe, table: dict[str, dict[str, Any]]) -> None:
    """Every call of a solution names a declared tool with arguments that fit its schema."""
    for name, arguments in _calls(probe):
        if name not in table:
            raise Refused("solution_call", f"`solution` calls {name[:40]!r}, which is not a tool.")
        if wrong := argument_error(table[name], arguments) or _out_of_bounds(table[name], arguments):
            raise Refused("solution_call", f"`solution` calls {name} against its schema ({wrong}).")


def _out_of_bounds(schema: dict[str, Any], arguments: dict[str, Any]) -> str | None:
    """What is wrong with numbers outside their `minimum` and `maximum`, which only the Agent is told of."""
    for name, value in arguments.items():
        for key, sign in (("minimum", 1), ("maximum", -1)):
            bound = schema["properties"][name].get(key)
            if (
                isinstance(bound, int | float)
                and isinstance(value, int | float)
                and sign * (value - bound) < 0
            ):
                return f"{name} is {value}, its {key} {bound}"
    return None


def _check_methods(bench: Bench, table: dict[str, dict[str, Any]]) -> None:
    """The method of each tool takes the parameters its schema describes, and needs no others.

    Read from the source; a tool whose method is not written there as `def tool_NAME` is judged by play alone.
    """
    methods = {n.name: n for n in ast.walk(bench.tree) if isinstance(n, ast.FunctionDef)}
    names = [n.attr if isinstance(n, ast.Attribute) else n.id for n in ast.walk(bench.tree) if _is_name(n)]
    assigned = {*names, "tool_decline"}
    made_elsewhere = "ToolEnv" not in names or not {*methods, *names}.isdisjoint(OWN_DISPATCH)
    for name, schema in table.items():
        method = methods.get(f"tool_{name}")
        if method is None:
            if not made_elsewhere and f"tool_{name}" not in assigned:
                raise Refused(
                    "tool_schema", f"The tool {name} is declared, but there is no method tool_{name}."
                )
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
        _check_annotations(name, schema.get("properties", {}), [*arguments.args, *arguments.kwonlyargs])


def _is_name(node: ast.AST) -> TypeGuard[ast.Name | ast.Attribute]:
    return isinstance(node, ast.Name | ast.Attribute)


def _check_annotations(name: str, properties: dict[str, Any], arguments: Sequence[ast.arg]) -> None:
    """A plain annotation of an argument (`n: int`) is of the type that its schema says."""
    for argument in arguments:
        schema, note = properties.get(argument.arg), argument.annotation
        if not isinstance(note, ast.Name) or schema is None or isinstance(schema["type"], list):
            continue
        if schema["type"] not in ANNOTATIONS.get(note.id, (schema["type"],)):
            text = f"{argument.arg} of {name} is {schema['type']} in the schema and {note.id} in the method."
            raise Refused("tool_schema", text)


async def _check_answers(bench: Bench, table: dict[str, dict[str, Any]]) -> None:
    """Calls that fit a schema, and turns that fit nothing, are answered by text; none of them pays."""
    texts = list(BAD_CALLS)
    for name, schema in table.items():
        whole = sample_arguments(schema)
        least = {k: v for k, v in whole.items() if k in schema.get("required", [])}
        texts += [call_text(name, a) for a in (whole, least, {**whole, "zq": 1}, {})]
    ops = [op for text in texts for op in (Op.reset(0, bench.probes[0].seed), Op.step(0, text))]
    for step in cast("list[StepResult]", (await bench.ask(ops, object))[1::2]):
        if step.terminated or step.reward:
            raise Refused("paid_call", "A tool call ended the episode or paid a reward; only the answer may.")


# --- instructions --------------------------------------------------------------------------------------


async def tool_criteria(bench: Bench, *, min_tasks: int | None = None, max_tasks: int = 5) -> None:
    """Playing `solution()` makes each instruction's predicate true, in order; none holds from the start.

    `min_tasks` (unset: 3 where a brief asks for a long task, else 1) and `max_tasks` bound their number.
    """
    await bench.survey()
    if bench.game_type != "tool_use":
        return
    loose: list[set[int]] = []
    for probe in bench.probes[:PROBED_SEEDS]:
        states = await _states(bench, probe)
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
        loose.append(await loose_instructions(bench, probe, states))
    always = sorted(set.intersection(*loose))
    if len(always) > count / 2:  # one careless predicate among others does not make a game worthless
        which = ", ".join(str(number + 1) for number in always)
        text = (
            f"Calls with any arguments, not those that are named, fulfil the instructions {which} of {count}."
        )
        raise Refused("criterion_any_call", text)
    await _check_distractors(bench)


async def _states(bench: Bench, probe: Probe) -> list[Criteria]:
    """The criteria after the reset and after each action of a solution."""
    ops: list[Request] = [Op.reset(0, probe.seed), Op.criteria(0)]
    for action in probe.actions:
        ops += [Op.step(0, action), Op.criteria(0)]
    return cast("list[Criteria]", (await bench.ask(ops, object))[1::2])


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
        if done and after.current < len(after.met) and after.met[after.current]:
            # True from the start is fine only where an earlier instruction undoes it.
            code = "satisfied_at_start" if states[0].met[after.current] else "criterion_skipped"
            raise Refused(code, f"Instruction {after.current + 1} is done already when it is given.")
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
            plain = call_text(function["name"], sample_arguments(function["parameters"]))
            ops += [Op.reset(0, probe.seed), Op.step(0, plain), Op.criteria(0)]
        for function, state in zip(spare, (await bench.ask(ops, object))[2::3], strict=True):
            if cast(Criteria, state).current:
                name = function["name"]
                raise Refused(
                    "distractor_pays", f"A call of {name}, which is not needed, fulfils an instruction."
                )
