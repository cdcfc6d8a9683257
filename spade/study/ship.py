"""Make the shipped checkpoints: `python -m spade.study.ship [CACHE]`, about ten minutes on one idle core.

One trunk of size S0 and five dialled priors go into `spade/study/fixture/`. Their names are the hashes of
their recipes, so that a changed recipe is noticed: the old files are then simply no longer found.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from spade.study.settings import Start
from spade.study.stages import FIXTURE, ensure, stage_record

PRIORS = ("1e-5", "1e-4", "1e-3", "1e-2", "3e-2")


def shipped_starts() -> list[Start]:
    """The trunk, then the dialled priors."""
    return [Start(), *(Start(chain=(f"dial={rho}",)) for rho in PRIORS)]


def ship(cache: Path) -> None:
    """Build what is missing in `cache` and replace the fixture by it."""
    import torch

    torch.set_num_threads(1)
    cache.mkdir(parents=True, exist_ok=True)
    made = []
    for start in shipped_starts():
        made.append(ensure(start, cache))
        print(
            f"{made[-1].name} {'/'.join(start.chain) or 'trunk'}: {stage_record(made[-1])['measured']}",
            flush=True,
        )
    copied = FIXTURE.with_name(".fixture")
    shutil.rmtree(copied, ignore_errors=True)
    for folder in made:
        shutil.copytree(folder, copied / folder.name)
    shutil.rmtree(FIXTURE, ignore_errors=True)
    copied.rename(FIXTURE)


if __name__ == "__main__":
    ship(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/study-fixture"))
