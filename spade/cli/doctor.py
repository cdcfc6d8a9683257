"""`spade doctor`: can this machine run SPADE, how fast, and how well isolated?"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from spade.cli.main import add_json, emit, lazy
from spade.errors import SpadeError
from spade.machine import hardware, versions

_REQUIRED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "pydantic")


def add_doctor(parser: argparse.ArgumentParser) -> bool:
    """Arguments of `spade doctor`."""
    add_json(parser)
    parser.set_defaults(handler=_doctor)
    return False


def _doctor(args: argparse.Namespace) -> int:
    """Print what was found; exit code 1 when something needed for the default run is missing."""
    report = examine()
    emit(args, report, _text(report))
    return 1 if report["problems"] else 0


def examine() -> dict[str, Any]:
    """Versions, hardware, sandbox level, embedded model, and a list of problems in words."""
    found = versions()
    machine = hardware()
    level, problem = _sandbox_level()
    model = _embedded_model()
    problems = [f"{name} is not installed; pip install spade-rl" for name in _REQUIRED if name not in found]
    problems += [problem] if problem else []
    problems += [] if model else ["the embedded model is missing; make it with spade embedded build"]
    bf16 = bool(machine["gpus"] or {"avx512_bf16", "amx_bf16"} & set(machine["cpu_flags"]))
    return {
        "versions": found,
        "hardware": machine,
        "device": "cuda" if machine["gpus"] else "cpu",
        "fast_bfloat16": bf16,
        "sandbox_level": level,
        "embedded_model": model,
        "problems": problems,
    }


def _sandbox_level() -> tuple[str | None, str | None]:
    """Level the sandbox reaches here, and what is wrong if it cannot start."""
    if importlib.util.find_spec("spade.envs.sandbox") is None:
        return None, "the sandbox is not part of this installation"
    import asyncio

    from spade.config import SandboxConfig

    sandbox = lazy("spade.envs.sandbox:Sandbox")

    async def start() -> str:
        async with await sandbox.start(SandboxConfig()) as running:
            return str(running.level)

    try:
        return asyncio.run(start()), None
    except SpadeError as error:
        return None, str(error)


def _embedded_model() -> str | None:
    folder = Path(__file__).resolve().parent.parent / "embedded" / "model"
    return str(folder) if (folder / "config.json").is_file() else None


def _text(report: dict[str, Any]) -> str:
    machine = report["hardware"]
    flags = ", ".join(machine["cpu_flags"]) or "none of interest"
    lines = [
        f"versions   {', '.join(f'{name} {text}' for name, text in report['versions'].items())}",
        f"processor  {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB",
        f"flags      {flags}; fast bfloat16: {'yes' if report['fast_bfloat16'] else 'no'}",
        f"device     {report['device']}{' (' + ', '.join(machine['gpus']) + ')' if machine['gpus'] else ''}",
        f"sandbox    {report['sandbox_level'] or 'not available'}",
        f"model      {report['embedded_model'] or 'embedded model missing'}",
    ]
    lines += [f"problem    {problem}" for problem in report["problems"]]
    return "\n".join(lines if report["problems"] else [*lines, "no problems found"])
