"""Write a pool as a package for another framework."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path

from spade import __version__
from spade.envs.pool import Pool, write_pool
from spade.errors import InputError
from spade.files import atomic_write, make_folder

TEMPLATES = Path(__file__).with_name("templates")
FRAMEWORKS: Mapping[str, str] = {
    "gymnasium": "gymnasium>=1.0",
    "gem": "gem-llm>=0.1",
    "verifiers": "verifiers>=0.4",
    "openenv": "openenv>=0.10",
}
"""What each framework's package needs besides `spade-rl`."""
SUFFIX = ".tmpl"
IDS = "ids.json"
_NOT_A_NAME = re.compile(r"[^0-9a-z]+")


def package_name(text: str) -> str:
    """A Python package name made of a folder's name: `my pool-2` becomes `my_pool_2`."""
    name = _NOT_A_NAME.sub("_", text.lower()).strip("_") or "pool"
    return name if name[0].isalpha() else f"pool_{name}"


def program_ids(pool: Pool) -> dict[str, str]:
    """Readable name -> program id: the name of its class without `Env`, and the start of its hash."""
    return {f"{_class_name(p.code)}-{p.id[:8]}": p.id for p in pool.programs}


def export_framework(pool: Pool, out: Path, framework: str, name: str | None = None) -> Path:
    """Write the package of `framework` into the new folder `out`; `name` replaces the package name made of
    the folder's.

    Raises InputError when the place is taken or the name cannot be a package name.
    """
    if out.exists() and (out.is_file() or any(out.iterdir())):
        raise InputError(f"{out} is there already; choose another place")
    package = package_name(out.name) if name is None else name
    if not package.isidentifier() or not package.islower():
        raise InputError(f"'{package}' is no name for a package; use lower-case letters, digits and _")
    values = {
        "PACKAGE": package,
        "PROJECT": package.replace("_", "-"),
        "COUNT": str(len(pool.programs)),
        "DIGEST": pool.digest[:12],
        "LICENCE": str(pool.origin.get("licence") or "not stated"),
        "VERSION": __version__,
        "NEEDS": FRAMEWORKS[framework],
        "FIRST": next(iter(program_ids(pool))),
        "FILES": ", ".join(repr(kind) for kind in ("pool/*.json", "pool/programs/*", IDS)),
    }
    for template in sorted((TEMPLATES / framework).rglob(f"*{SUFFIX}")):
        place = template.relative_to(TEMPLATES / framework).with_suffix("")
        text = template.read_text(encoding="utf-8")
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        path = out / Path(*(package if part == "PACKAGE" else part for part in place.parts))
        make_folder(path.parent)
        atomic_write(path, text)
    inside = out / package
    atomic_write(inside / IDS, json.dumps(program_ids(pool), indent=1) + "\n")
    write_pool(inside / "pool", pool)
    return out


def _class_name(code: str) -> str:
    try:
        names = [node.name for node in ast.parse(code).body if isinstance(node, ast.ClassDef)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        names = []
    return (names[-1].removesuffix("Env") if names else "") or "Program"
