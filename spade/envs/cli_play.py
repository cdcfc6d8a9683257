"""`spade envs play`: a person, or a script, plays one episode in the terminal."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from spade.envs.blocking import BlockingSandbox
from spade.envs.contract import FULL_RETURN, solution_actions, wrap_action
from spade.envs.readers import words
from spade.envs.reading import printable, read_program, settings, split_overrides
from spade.envs.sandbox import Worker
from spade.errors import FaultCode, InputError, ProgramFault, SandboxError

Player = Callable[[str, int], str | None]
"""From the latest observation and the number of turns played to the action, or None: given up."""
Say = Callable[[str], None]


def cmd_play(args: argparse.Namespace) -> int:
    """Play one episode; exit status 0 whether it is won or lost."""
    names, overrides = split_overrides(args.files)
    if len(names) != 1:
        raise InputError(f"One program is played at a time, and {len(names)} are named; name one file.")
    program = read_program(names[0])
    cfg = settings(overrides, args.level).sandbox
    say: Say = (lambda text: None) if args.json else (lambda text: print(printable(text), flush=True))
    with BlockingSandbox(cfg) as box:
        try:
            row = _episode(box, box.open(program.code), args, say)
        except ProgramFault as fault:
            _broke(names[0], fault)
    result = {"file": names[0], "seed": args.seed, **row}
    if args.json:
        print(json.dumps(result, indent=2))
    return 0


def _broke(file: str, fault: ProgramFault) -> NoReturn:
    if fault.code is FaultCode.LOST:
        raise SandboxError(f"The sandbox lost {file} while it was played ({fault.detail}); try again.")
    text = f"{file} broke while it was played ({fault}), which is the program's fault; mend the program."
    raise InputError(text) from fault


def _episode(box: BlockingSandbox, worker: Worker, args: argparse.Namespace, say: Say) -> dict[str, Any]:
    observation = box.run(worker.reset(0, args.seed))
    tools = box.run(worker.tools(0)) if worker.info.game_type == "tool_use" else []
    for tool in tools:
        say(describe_tool(tool))
    say(observation)
    if args.hint:
        say(f"HINT: {box.run(worker.hint(0))}" if worker.info.has_hint else "(this program has no hint)")
    player = _player(box, worker, args, tools)
    limit = worker.info.turns
    reward, turns, end = 0.0, 0, "turn limit"
    while turns < limit:
        said = player(observation, turns)
        if said is None:
            end = "given up"
            break
        if args.policy:
            say(f"> {said}")
        result = box.run(worker.step(0, said if tools else wrap_action(said)))
        observation, turns = result.observation, turns + 1
        say(observation)
        if result.terminated or result.truncated:
            reward = result.reward if result.terminated else 0.0
            end = "terminated" if result.terminated else "truncated"
            break
    won = reward >= FULL_RETURN
    counted = f"{turns} turn" + ("" if turns == 1 else "s")
    say(f"{'won' if won else 'not won'}: return {reward:g} after {counted} ({end})")
    return {"return": reward, "won": won, "turns": turns, "end": end}


# --- players -------------------------------------------------------------------------------------------


def _player(
    box: BlockingSandbox, worker: Worker, args: argparse.Namespace, tools: list[dict[str, Any]]
) -> Player:
    if args.policy == "oracle":
        if not worker.info.has_solution:
            raise InputError("This program has no method `solution`, so the oracle cannot play it.")
        plan = solution_actions(box.run(worker.solution(0)), worker.info.game_type)
        return lambda text, turn: plan[turn] if turn < len(plan) else None
    if args.policy == "random":
        rng = random.Random(args.seed)
        if tools:
            return lambda text, turn: _random_turn(rng, tools, text)
        return lambda text, turn: rng.choice(words(text) or ["0"])
    if args.policy == "noop":
        return lambda text, turn: ""
    if tools:
        note = 'Type a call as {"name": ..., "arguments": {...}}, or done when everything is done.'
        print(note, file=sys.stderr)
    return lambda text, turn: _typed(turn, worker.info.turns, bool(tools), args.json)


def _typed(turn: int, limit: int, tool_use: bool, quiet: bool) -> str | None:
    """The next line from the keyboard as an action; None at the end of the input."""
    prompt = f"turn {turn + 1}/{limit}> "
    try:
        if sys.stdin.isatty() and sys.stdout.isatty() and not quiet:
            import readline  # noqa: F401  (input() edits lines with it)

            line = input(prompt)
        else:
            print(prompt, end="", file=sys.stderr, flush=True)
            if not (line := sys.stdin.readline()):
                return None
    except EOFError:
        print()
        return None
    return typed_turn(line.strip()) if tool_use else line.rstrip("\r\n")


def typed_turn(line: str) -> str:
    """What a person types in a tool-use program as an action.

    A call or a list of calls as JSON gets its tags, text with tags stays, anything else is the answer.
    """
    if "<tool_call>" in line or "<answer>" in line or not line:
        return line
    if not line.startswith(("{", "[")):
        return f"<answer>{line}</answer>"
    try:
        value = json.loads(line)
        calls = [json.dumps(c) for c in value] if isinstance(value, list) else [line]
    except (ValueError, RecursionError):
        calls = [line]  # the program says what is wrong with it
    return "".join(f"<tool_call>{call}</tool_call>" for call in calls)


# --- tools ---------------------------------------------------------------------------------------------


def _parameters(tool: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(function, properties) of a tool in the OpenAI format; empty where the program wrote nonsense."""
    function = tool.get("function")
    function = function if isinstance(function, dict) else {}
    schema = function.get("parameters")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    properties = properties if isinstance(properties, dict) else {}
    return function, {str(k): v if isinstance(v, dict) else {} for k, v in properties.items()}


def describe_tool(tool: dict[str, Any]) -> str:
    """One line: `set_light(room: string, on: boolean): switch the light of a room`."""
    function, properties = _parameters(tool)
    parts = []
    for name, schema in properties.items():
        values = schema.get("enum")
        kind = "|".join(map(str, values)) if isinstance(values, list) else str(schema.get("type", "any"))
        parts.append(f"{name}: {kind}")
    return f"tool  {function.get('name', '?')}({', '.join(parts)}): {function.get('description', '')}"


def _random_turn(rng: random.Random, tools: list[dict[str, Any]], text: str) -> str:
    """A call of a random tool with arguments of the right types, or now and then the answer."""
    if rng.random() < 1 / (len(tools) + 1):
        return "<answer>done</answer>"
    function, properties = _parameters(rng.choice(tools))
    arguments = {name: _random_value(rng, schema, text) for name, schema in properties.items()}
    call = {"name": function.get("name", ""), "arguments": arguments}
    return f"<tool_call>{json.dumps(call)}</tool_call>"


def _random_value(rng: random.Random, schema: dict[str, Any], text: str) -> Any:
    values = schema.get("enum")
    if isinstance(values, list) and values:
        return rng.choice(values)
    seen = words(text) or ["0"]
    made: dict[str, Callable[[], Any]] = {
        "boolean": lambda: rng.random() < 0.5,
        "integer": lambda: int(rng.choice([w for w in seen if w.isdecimal()] or ["1"])),
        "number": lambda: float(rng.choice([w for w in seen if w.isdecimal()] or ["1"])),
        "array": list,
        "object": dict,
        "null": lambda: None,
    }
    return made.get(str(schema.get("type")), lambda: rng.choice(seen))()
