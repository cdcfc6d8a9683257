"""`spade doctor`: can this machine run SPADE, how fast, how well isolated, and does a config fit into it?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spade.cli.doctor_memory import GIB, Shape, estimate, text_of
from spade.cli.doctor_versions import conflicts
from spade.cli.main import add_json, emit, lazy
from spade.config import Config
from spade.config_load import load_config, with_overrides
from spade.errors import ConfigError, InputError, SpadeError
from spade.machine import hardware, versions

_REQUIRED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "pydantic")


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Arguments of `spade doctor`."""
    parser.add_argument(
        "words",
        nargs="*",
        default=[],
        metavar="MODEL | key=value",
        help="a checkpoint, run or model name whose chat template and memory are looked at, and values over "
        "the config's",
    )
    parser.add_argument("--model", help="the same as MODEL")
    parser.add_argument(
        "--config", metavar="CONFIG", help="estimate the memory of this config; default: the defaults"
    )
    add_json(parser)
    parser.set_defaults(handler=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    """Print what was found; exit code 1 when something is missing, in conflict, or too large."""
    model, overrides = _words(args)
    report = examine()
    if model is not None:
        report["template"] = _template(model)
        if not report["template"]["canonical"]:
            report["problems"].append(
                f"prompts for {model} differ from its own chat template; training would see other tokens"
            )
    cfg = load_config(args.config, overrides) if args.config else with_overrides(Config(), overrides)
    report["memory"] = memory(cfg, model or cfg.model, report)
    if too_large := report["memory"].get("problem"):
        report["problems"].append(too_large)
    emit(args, report, _text(report))
    return 1 if report["problems"] else 0


def _words(args: argparse.Namespace) -> tuple[str | None, list[str]]:
    """The model and the overrides among the words. Raises ConfigError for two models."""
    models = [word for word in args.words if "=" not in word] + ([args.model] if args.model else [])
    if len(models) > 1:
        raise ConfigError(f"spade doctor looks at one model; {models[0]} and {models[1]} were named")
    return (models[0] if models else None), [word for word in args.words if "=" in word]


def examine() -> dict[str, Any]:
    """Versions, hardware, sandbox, embedded model, benchmark data, and a list of problems in words."""
    found = versions()
    machine = hardware()
    sandbox, problem = _sandbox()
    model = _embedded_model()
    problems = [f"{name} is not installed; pip install spade-rl" for name in _REQUIRED if name not in found]
    problems += conflicts()
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
        "data": _data(),
        "problems": problems,
    }


def memory(cfg: Config, model: str, report: dict[str, Any]) -> dict[str, Any]:
    """Estimate for training `model` with `cfg` on the machine of `report`: bytes by part and in all, what is
    there, and a sentence under `problem` if that is less. Raises InputError for a model that is not there."""
    path = lazy("spade.serving.launch:resolve_ref")(model).path
    if path is None:
        return {"model": model, "unknown": "it is served elsewhere"}
    try:
        shape = Shape.of(lazy("spade.serving.checkpoint_files:read_config")(path))
    except (KeyError, TypeError, ValueError) as error:
        return {"model": model, "unknown": f"config.json does not say {error}"}
    machine = report.get("hardware") or hardware()
    device = report.get("device", "cpu") if cfg.serving.device == "auto" else cfg.serving.device
    made = estimate(shape, cfg, device, bool(report.get("fast_bfloat16")))
    there = gpu_gib(machine["gpus"]) if device == "cuda" else machine["memory_gib"]
    found = {
        "model": model, "weights": shape.weights, "device": device, "bytes": made.parts, "total": made.total,
        "there_gib": there, "lines": text_of(made, there),
    }  # fmt: skip
    if there is not None and made.total > there * GIB:
        found["problem"] = (
            f"training {model} with this config takes about {made.total / GIB:.1f} GiB, but {device} has "
            f"{there:g} GiB; lower serving.max_rows or learner.micro_tokens, or use a smaller model"
        )
    return found


def gpu_gib(names: list[str]) -> float | None:
    """Memory of the first GPU as `nvidia-smi` names it (`NAME, 81559 MiB`), or None."""
    amount = names[0].rpartition(",")[2].split() if names else []
    if len(amount) == 2 and amount[1] == "MiB" and amount[0].isdecimal():
        return round(int(amount[0]) / 1024, 1)
    return None


def _data() -> dict[str, Any]:
    """Which tasks have their data here, and where it is looked for."""
    try:
        found = lazy("spade_evals.catalogue:catalogue")(None)
    except SpadeError as error:
        return {"root": None, "present": [], "absent": [], "unknown": str(error)}
    tasks = {task.name: task.present for suite in found.suites for task in suite.tasks}
    return {
        "root": found.root,
        "present": sorted(name for name, there in tasks.items() if there),
        "absent": sorted(name for name, there in tasks.items() if not there),
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
        *_data_text(report["data"]),
    ]
    if "template" in report:
        lines.append(f"template   {report['template']['words']}")
    lines += _memory_text(report["memory"])
    lines += [f"problem    {problem}" for problem in report["problems"]]
    return "\n".join(lines if report["problems"] else [*lines, "no problems found"])


def _data_text(data: dict[str, Any]) -> list[str]:
    present, absent = len(data["present"]), len(data["absent"])
    if not present + absent:
        return []
    more = f"; spade data get NAME fetches {', '.join(data['absent'][:4])}" if absent else ""
    more += f" and {absent - 4} more" if absent > 4 else ""
    return [f"data       {present} of {present + absent} tasks have theirs in {data['root']}{more}"]


def _memory_text(found: dict[str, Any]) -> list[str]:
    if "unknown" in found:
        return [f"memory     of {found['model']}: not known, {found['unknown']}"]
    head = f"memory     to train {found['model']} ({found['weights']:,} weights) on {found['device']}, about:"
    return [head, *found["lines"]]


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
