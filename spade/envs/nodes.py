"""Where environment programs run: on this machine, or on all nodes of a Ray cluster (`sandbox.nodes`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spade.envs.sandbox import Sandbox

if TYPE_CHECKING:
    from spade.config import SandboxConfig


async def start_sandbox(cfg: SandboxConfig) -> Sandbox:
    """A started sandbox, to be closed by the caller.

    Raises SandboxError or ConfigError as `Sandbox.start` does; with `sandbox.nodes: ray` also InputError
    where Ray is not installed or no cluster can be reached.
    """
    if cfg.nodes == "local":
        return await Sandbox.start(cfg)
    from spade.envs.ray_nodes import RaySandbox

    return await RaySandbox.start(cfg)
