"""Level L3 through bubblewrap, where the system refuses us namespaces of our own but lets `bwrap` have them.

That is so where bwrap is installed setuid root, or where an AppArmor profile lets it alone make user
namespaces. The zygote starts inside; its workers add everything of L2 as always.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache")
"""Where the dynamic loader finds libraries."""


def find() -> str | None:
    """Path of the `bwrap` program, or None."""
    return shutil.which("bwrap")


def readable_paths(extra: Iterable[str]) -> list[str]:
    """What a Python needs to start and import: system libraries, the interpreter, the library, `extra`."""
    paths = sysconfig.get_paths()
    wanted = [
        *_SYSTEM,
        os.path.join(sys.prefix, "pyvenv.cfg"),  # how a virtual environment names its interpreter
        str(Path(sys.executable).parent),
        str(Path(sys.executable).resolve().parent),
        sys.base_prefix,
        paths["stdlib"],
        paths["platstdlib"],
        *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")),
        *extra,
    ]
    whole = {os.path.normpath(path) for path in wanted if os.path.isabs(path)}
    return sorted(path for path in whole if not any(path.startswith(f"{other}/") for other in whole))


def wrapped(
    program: str, command: list[str], uid: int, environment: dict[str, str], extra: Iterable[str]
) -> list[str]:
    """`command` as bwrap starts it: alone in its namespaces as `uid`, with the readable paths only.

    Only one id exists inside, so nobody can become somebody else there: workers keep `uid` and give up their
    capabilities instead.
    """
    arguments = [program]
    arguments += [f"--unshare-{kind}" for kind in ("user", "pid", "net", "ipc", "uts")]
    arguments += ["--uid", str(uid), "--gid", str(uid), "--hostname", "sandbox"]
    arguments += ["--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"]
    for name, value in environment.items():
        arguments += ["--setenv", name, value]
    for path in readable_paths(extra):
        arguments += ["--ro-bind-try", path, path]
    return [*arguments, "--proc", "/proc", "--chdir", "/", "--", *command]
