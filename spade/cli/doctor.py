"""`spade doctor`: can this machine run SPADE, how fast, and how well isolated?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spade.cli.main import add_json, emit, lazy
from spade.errors import InputError, SpadeError
from spade.machine import hardware, versions

_REQUIRED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "pydantic")


def add_doctor(parser: argparse.ArgumentParser) -> bool:
    """Arguments of `spade doctor`."""
    parser.add_argument("--model", help="also try the chat template of this checkpoint, run or model name")
    add_json(parser)
    parser.set_defaults(handler=_doctor)
    return False


def _doctor(args: argparse.Namespace) -> int:
    """Print what was found; exit code 1 when something needed for the default run is missing."""
    report = examine()
    if args.model is not None:
        report["template"] = _template(args.model)
        if not report["template"]["canonical"]:
            report["problems"].append(
                f"prompts for {args.model} differ from its own chat template; training would see other tokens"
            )
    emit(args, report, _text(report))
    return 1 if report["problems"] else 0


def examine() -> dict[str, Any]:
    """Versions, hardware, sandbox, embedded model, and a list of problems in words."""
    found = versions()
    machine = hardware()
    sandbox, problem = _sandbox()
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
        "sandbox_level": sandbox["level"] if sandbox else None,
        "sandbox": sandbox,
        "embedded_model": model,
        "problems": problems,
    }


def _sandbox() -> tuple[dict[str, Any] | None, str | None]:
    """What the sandbox reaches here with the default configuration, or what is wrong if it cannot start."""
    import asyncio

    from spade.config import SandboxConfig

    sandbox, cfg = lazy("spade.envs.sandbox:Sandbox"), SandboxConfig()

    async def start() -> dict[str, Any]:
        async with await sandbox.start(cfg) as running:
            return {
                "level": running.level,
                "namespaces": running.place.how or None,
                "stronger": list(running.refused),
                "self_test": dict(running.self_test),
                "limits": {
                    "cpu_seconds": cfg.cpu_seconds,
                    "wall_seconds": cfg.cpu_seconds * cfg.wall_factor,
                    "memory_mb": cfg.memory_mb,
                    "max_workers": cfg.max_workers,
                    "min_level": cfg.min_level,
                },
                "numpy": cfg.numpy,
            }

    try:
        return asyncio.run(start()), None
    except SpadeError as error:
        return None, str(error)


def _template(model: str) -> dict[str, Any]:
    """What the chat template of a model does. Raises InputError when there is none to try."""
    from dataclasses import asdict

    path = lazy("spade.serving.launch:resolve_ref")(model).path
    if path is None:
        raise InputError(f"--model {model} has no chat template of its own; name a checkpoint")
    found = lazy("spade.serving.template_check:check_template")(path)
    return {**asdict(found), "words": found.words}


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
        *_sandbox_text(report["sandbox"], report["versions"].get("numpy")),
        f"model      {report['embedded_model'] or 'embedded model missing'}",
    ]
    if "template" in report:
        lines.append(f"template   {report['template']['words']}")
    lines += [f"problem    {problem}" for problem in report["problems"]]
    return "\n".join(lines if report["problems"] else [*lines, "no problems found"])


def _sandbox_text(sandbox: dict[str, Any] | None, numpy: str | None) -> list[str]:
    if sandbox is None:
        return ["sandbox    not available: environment programs cannot be run"]
    limits, tried = sandbox["limits"], sandbox["self_test"]
    how = {"own": "own system calls", "bwrap": "bubblewrap"}.get(sandbox["namespaces"], "")
    made = f" (namespaces by {how})" if how else ""
    allowed = "may" if sandbox["numpy"] else "may not"
    lines = [
        f"sandbox    {sandbox['level']}{made}; sandbox.min_level is {limits['min_level']}",
        f"limits     {limits['cpu_seconds']:g} s of CPU and {limits['wall_seconds']:g} s in all a call, "
        f"{limits['memory_mb']} MiB a program, {limits['max_workers']} programs at once",
        f"numpy      {numpy or 'not installed'}; programs {allowed} import it (sandbox.numpy)",
    ]
    lines += [f"weaker     {reason}" for reason in sandbox["stronger"]]
    lines.append(f"self-test  {sum(tried.values())} of {len(tried)} hold:")
    return lines + [_attempt(name, refused) for name, refused in tried.items()]


def _attempt(name: str, refused: bool) -> str:
    """One line of the self-test; what the parent saw itself is a statement and not an attempt."""
    seen = name.removeprefix("witness: ")
    if seen != name:
        return f"  {'confirmed' if refused else 'WRONG':<9}  {seen}"
    return f"  {'refused' if refused else 'ALLOWED':<9}  {name}"
