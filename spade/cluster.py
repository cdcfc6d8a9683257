"""The little of Ray that SPADE uses (extra `ray`): connect to a cluster, and actors on its nodes.

Commands join the cluster that runs on this machine, or the one at the address in RAY_ADDRESS; where there is
neither, Ray starts one of this machine alone. SPADE and the models have to be installed on every node, at the
same paths.
"""

from __future__ import annotations

import os
from typing import Any

from spade.errors import InputError


def connect(asked_by: str) -> list[str]:
    """Connect, once a process; the ids of the nodes that are alive, this process's own first.

    `asked_by` is the setting that needs the cluster. Raises InputError where Ray is not installed or the
    cluster cannot be reached.
    """
    try:
        import ray
    except ImportError:
        raise InputError(f"{asked_by} needs the extra ray: pip install 'spade-rl[ray]'") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            where = os.environ.get("RAY_ADDRESS", "this machine")
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise InputError(f"{asked_by}: the Ray cluster at {where} cannot be reached: {first}") from error
    own = ray.get_runtime_context().get_node_id()
    names = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    return sorted(names, key=lambda name: (name != own, name))


def actor_on(kind: type, node: str, *args: Any, cpus: float = 0, gpus: float = 0) -> Any:
    """An actor of `kind` on one node; it is not restarted when it dies."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    made: Any = ray.remote(kind)
    options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "max_concurrency": 1000}
    return made.options(scheduling_strategy=where, **options).remote(*args)


def ray_errors() -> tuple[type[BaseException], ...]:
    """What a call of an actor raises when the actor or its node is gone."""
    from ray import exceptions as e

    return (e.RayActorError, e.ObjectLostError, e.WorkerCrashedError, e.RaySystemError, e.NodeDiedError)
