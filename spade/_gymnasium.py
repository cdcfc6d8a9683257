"""Makes `spade/Program-v0` known to gymnasium, without importing gymnasium before somebody else does.

gymnasium 1.x has no plug-ins: an environment is known once the package that registers it has been imported.
Importing gymnasium costs about as much as the rest of a short command, so `import spade` only registers at
once when gymnasium is there already, and otherwise waits for its import.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

ID = "spade/Program-v0"
ENTRY_POINT = "spade.envs.gym_env:ProgramEnv"


def register() -> None:
    """Register the id. Does nothing a second time."""
    import gymnasium

    if ID not in gymnasium.registry:
        gymnasium.register(id=ID, entry_point=ENTRY_POINT)


class Finder:
    """Finds gymnasium as everybody else would, and registers once it has been loaded."""

    def __init__(self) -> None:
        self._asking = False

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The ordinary spec of gymnasium, one step added to its loading; None for any other module."""
        if name != "gymnasium" or self._asking:
            return None
        import importlib.util

        self._asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                register()

            setattr(spec.loader, "exec_module", load_and_register)  # noqa: B010  (mypy takes it for a method)
        return spec


def announce() -> None:
    """Register now or as soon as gymnasium is imported."""
    if "gymnasium" in sys.modules:
        register()
    elif not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
