"""What `train.pool` may name, and the programs behind it, judged before use.

starter            a pool that comes with the package (`spade_baselines/pools/`), the default
a path             a pool folder, a run's pool, a folder of `.py` files, or a `.jsonl` file
hub:...            a pinned repository (`spade.envs.pool_hub`)
"""

from __future__ import annotations

import json
import platform
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from spade.envs.battery import BATTERY_VERSION
from spade.envs.pool import MANIFEST, Pool, read_pool, revalidate, write_pool
from spade.envs.pool_exchange import import_programs
from spade.envs.pool_hub import PREFIX, hub_pool, parse_ref, pool_cache
from spade.errors import InputError
from spade.registry import suggestion
from spade.types import content_id

if TYPE_CHECKING:
    from spade.config import ValidateConfig
    from spade.envs.sandbox import Sandbox

SHIPPED = Path(__file__).with_name("pools")


def shipped_pools() -> list[str]:
    """Names of the pools that come with the package."""
    return sorted(p.parent.name for p in SHIPPED.glob(f"*/{MANIFEST}"))


def check_ref(ref: str) -> None:
    """Find what would be wrong with a reference without fetching anything. Raises InputError."""
    if ref.startswith(PREFIX):
        parse_ref(ref)
    else:
        pool_of(ref)


def _local_pool(ref: str) -> Pool:
    if ref in shipped_pools() and not Path(ref).exists():
        return read_pool(SHIPPED / ref)
    if not Path(ref).exists():
        raise InputError(
            f"train.pool: there is no pool at {ref}{suggestion(ref, shipped_pools())}; "
            "spade pool make samples one"
        )
    return import_programs(Path(ref))


def pool_of(ref: str) -> Pool:
    """The programs of a reference, with the verdicts that came with them. Raises InputError."""
    return hub_pool(ref) if ref.startswith(PREFIX) else _local_pool(ref)


async def judged_pool(ref: str, sandbox: Sandbox, cfg: ValidateConfig) -> Pool:
    """The programs of a reference that are accepted here and now; earlier verdicts are believed as far as
    `spade.envs.pool.needs_validation` allows.

    Whatever had to be judged is kept in the cache, so that runs with other seeds need not do it again. Raises
    InputError when nothing is accepted.
    """
    pool = pool_of(ref)
    stamp = [
        pool.digest,
        cfg.model_dump(mode="json"),
        BATTERY_VERSION,
        platform.python_version(),
        sandbox.level,
    ]
    kept_in = pool_cache() / f"judged-{content_id(json.dumps(stamp))[:16]}"
    if (kept_in / MANIFEST).is_file():
        return read_pool(kept_in)
    kept, refused = await revalidate(pool, sandbox, cfg)
    if refused:
        codes = Counter(verdict.code for verdict in refused.values())
        why = ", ".join(f"{code} {count}" for code, count in codes.most_common(4))
        print(
            f"pool {ref}: {len(refused)} of {len(pool.programs)} programs are refused ({why}).",
            file=sys.stderr,
        )
        if not kept.programs:
            raise InputError(
                f"train.pool: no program of {ref} is accepted here ({why}); see spade pool validate"
            )
    if any(kept.provenance[p.id] is not pool.provenance.get(p.id) for p in kept.programs):
        _keep(kept_in, kept)
    return kept


def _keep(folder: Path, pool: Pool) -> None:
    """Write to the cache, which may not be there to be written to."""
    try:
        write_pool(folder, pool)
    except (OSError, InputError):
        print(f"the judged pool cannot be kept in {folder}; set SPADE_CACHE to a folder", file=sys.stderr)
