"""The part of the configuration that belongs to vLLM."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from spade.config_base import Positive, Section


class VllmConfig(Section):
    """What only `serving.type: vllm` has."""

    mode: Literal["in_process", "server"] = "in_process"
    """`in_process`: the engine lives in this process, beside the learner. `server`: it has processes of its
    own (several GPUs, data parallel, several nodes), started here or named in `servers`."""
    servers: tuple[str, ...] = ()
    """Addresses of vLLM servers that run already, such as `http://node2:8000`; empty = start one here."""
    tensor_parallel: Positive = 1
    """GPUs that share one copy of the model."""
    data_parallel: Positive = 1
    """Copies of the model in one server."""
    executor: Literal["auto", "uni", "mp", "ray"] = "auto"
    """What starts the engine's workers; `ray` spreads a server over the nodes of a Ray cluster."""
    devices: str | None = None
    """CUDA_VISIBLE_DEVICES of a server started here, such as `1,2,3`; unset = those of this process."""
    memory_share: float = Field(default=0.5, gt=0, lt=1)
    """Share of each GPU's memory that the engine may take; a learner on the same GPU needs the rest."""
    cache_gib: float | None = Field(default=None, gt=0)
    """GiB of keys and values; unset = what `memory_share` leaves on a GPU, enough for `max_rows` on a CPU."""
    prefix_caching: bool = True
    """Keep keys and values of prompts, so that what begins alike is computed once."""
    eager: bool | None = None
    """Run without compiling or CUDA graphs; unset means yes on a CPU, no on a GPU."""
    sleep: bool = False
    """Give the GPU's memory back while the learner works (in-process engines on CUDA)."""
    start_seconds: float = Field(default=600.0, gt=0)
    """How long a server may take to start."""
    request_seconds: float = Field(default=600.0, gt=0)
    """How long a server may take for one completion, or to load new weights."""
    weights_dir: str | None = None
    """Folder through which new weights go to servers; all of them must see it. Unset = a temporary one."""
    args: dict[str, Any] = Field(default_factory=dict)
    """More engine arguments under vLLM's own names, such as `{kv_cache_dtype: fp8}`; what SPADE sets itself
    is refused."""
