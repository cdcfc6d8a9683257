"""Environment programs: running them in a sandbox and judging them.

`check_env(program)` judges one in a test. Everything else is imported from its own module, for example
`spade.envs.sandbox.Sandbox` or `spade.envs.validate.validate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spade.envs.check import check_env

__all__ = ["check_env"]


def __getattr__(name: str) -> Any:
    """`check_env` on first use: importing this package alone loads no sandbox and no configuration."""
    if name != "check_env":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spade.envs.check import check_env

    globals()[name] = check_env
    return check_env
