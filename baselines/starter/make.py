"""Make the shipped static pool `starter` from the mechanics beside this file.

    python baselines/starter/make.py --out baselines/spade_baselines/pools/starter

Every mechanic is written once, with a list of variants: other words, sizes and rules. A variant becomes a
program of its own, with its values as constants. All are judged by the full validator against each other and
against the held-out programs, and the pool holds those that are accepted; `--strict` fails if any is not.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import sys
from pathlib import Path

import spade_evals
from spade.config import SandboxConfig, ValidateConfig
from spade.envs.fingerprint import NoveltyIndex
from spade.envs.pool import Pool, Provenance, write_pool
from spade.envs.pool_exchange import declared_type
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate_many
from spade.types import EnvProgram, Verdict
from spade_evals.suites.heldout import new_mechanics, new_parameters

HERE = Path(__file__).resolve().parent
GAMES = Path(spade_evals.__file__).parent / "suites" / "games_programs"
FLOOR = 0.05
LIKE = 0.9
"""Similarity of texts (token shingles) or of sketches from which on two programs count as one."""
TOPIC = "baselines/starter/make.py"
HEAD = "import random\nimport re\n"
BOXED = '''def boxed(action):
    """What stands in the box, in lower case and with single blanks; nothing without a box."""
    found = re.fullmatch(r"\\\\boxed\\{(.*)\\}", action.strip(), re.S)
    return " ".join(found.group(1).lower().split()) if found else ""
'''


def programs(names: list[str] | None = None) -> list[EnvProgram]:
    """All variants of all mechanics (or of those named), in the order of their files."""
    found = []
    for path in sorted((HERE / "mechanics").glob("*.py")):
        if names and path.stem not in names:
            continue
        skill, variants, body = _read(path)
        tool_use = "(ToolEnv)" in body
        for values in variants:
            constants = "\n".join(f"{name} = {value!r}" for name, value in values.items())
            parts = [] if tool_use else [HEAD]
            parts += [constants + "\n", *([] if tool_use else ["\n" + BOXED]), "\n" + body]
            code = "\n".join(parts)
            kind = "tool_use" if tool_use else declared_type(code)
            found.append(EnvProgram.of(code, skill=skill, game_type=kind, hint=_hint(body), source=path.stem))
    return found


def _read(path: Path) -> tuple[str, list[dict[str, object]], str]:
    """Skill, variants and the text after them."""
    text = path.read_text(encoding="utf-8")
    skill, variants, *_ = ast.parse(text).body
    assert isinstance(skill, ast.Assign) and isinstance(variants, ast.Assign)
    lines = text.splitlines(keepends=True)
    body = "".join(lines[variants.end_lineno :]).strip() + "\n"
    return ast.literal_eval(skill.value), ast.literal_eval(variants.value), body


def _hint(body: str) -> str:
    """The text that `hint` returns."""
    for node in ast.walk(ast.parse(body)):
        if isinstance(node, ast.FunctionDef) and node.name == "hint" and isinstance(node.body[0], ast.Return):
            return str(ast.literal_eval(node.body[0].value))  # type: ignore[arg-type]
    raise ValueError("a mechanic without a hint")


async def judged(found: list[EnvProgram]) -> list[Verdict]:
    """Verdicts of the full battery at `FLOOR`."""
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        return await validate_many(found, sandbox, ValidateConfig(floor_max=FLOOR))


def distinct(found: list[tuple[EnvProgram, Verdict]]) -> list[tuple[EnvProgram, Verdict]]:
    """Those that neither look and play like an earlier one nor resemble a program of a held-out suite."""
    held, own = NoveltyIndex(threshold=LIKE), NoveltyIndex()
    for program in heldout():
        held.add(program)
    kept = []
    for program, verdict in found:
        twin = held.twin_of(program) or own.twin_of(program) or own.lookalike(verdict.sketch, LIKE)
        if twin is None:
            kept.append((program, verdict))
        else:
            print(f"{program.source}: too like {twin[:12]}")
        own.add(program, verdict.sketch)
    return kept


def heldout() -> list[EnvProgram]:
    """Every program that an evaluation of ours plays."""
    held = [h.program for h in (*new_mechanics(), *new_parameters(), *new_parameters(validation=True))]
    games = [EnvProgram.of(p.read_text(encoding="utf-8")) for p in sorted(GAMES.rglob("*.py"))]
    return [*held, *games]


def main() -> int:
    """Make, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="mechanics to judge; without --out nothing is written")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--strict", action="store_true")
    args = parser.parse_args()
    found = programs(args.names)
    verdicts = asyncio.run(judged(found))
    for program, verdict in zip(found, verdicts, strict=True):
        if not verdict.accepted:
            print(f"{program.source}: {verdict.code}: {verdict.failed.detail if verdict.failed else ''}")
    good = distinct([(p, v) for p, v in zip(found, verdicts, strict=True) if v.accepted])
    print(f"{len(good)} of {len(found)} accepted")
    if args.out:
        mechanics = len({p.source for p, _ in good})
        origin = {"made_by": TOPIC, "licence": "MIT", "floor_max": FLOOR, "mechanics": mechanics}
        known = {p.id: Provenance(verdict=v) for p, v in good}
        write_pool(args.out, Pool(tuple(p for p, _ in good), 0, origin, known))
    return int(args.strict and len(good) < len(found))


if __name__ == "__main__":
    sys.exit(main())
