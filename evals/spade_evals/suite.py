"""What an evaluation is: a fixed list of items, a way to play them, and a fingerprint of both.

    Suite.items(seed, limit) ─► [Item] ──Suite.run──► [ItemResult] ──summarise──► SuiteResult
                                   │
                     Protocol = suite, version, item hash, sampling, prompt, seed

Two results may be compared item by item exactly when their protocol fingerprints are equal. The protocol
says nothing of the checkpoint. A part is named `top` or `top/leaf`; see `spade_evals.stats`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from spade.config import PlayConfig
from spade.files import plain
from spade.types import Fault, Item, ItemResult, Scored, SuiteResult, content_id
from spade_evals import stats

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.serving.launch import ChatPolicy

OnDone = Callable[[int, int], None]
"""Called with (finished, total)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything a suite plays with."""

    chat: ChatPolicy
    sandbox: Sandbox
    play: PlayConfig
    seed: int
    on_done: OnDone | None = None
    user: ChatPolicy | None = None
    """Who plays the user in tasks that need one; a policy of its own."""
    user_key: dict[str, str] = field(default_factory=dict)
    """What tells users apart, for the protocol."""


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class About:
    """What `spade list suites` shows of a suite that is played, which has no data files.

    Stands as the class attribute `about`, so that nothing is built for a list.
    """

    size: int
    """Items without a limit."""
    source: str
    revision: str
    licence: str
    present: Callable[[], bool] = _always
    """Whether everything it needs is installed."""
    command: str = ""
    """Gets what is not."""


class Suite(Protocol):
    """One evaluation. `spade.registry` names them by factories that take no argument."""

    name: str
    version: int
    """Raised whenever items or scoring change."""

    def items(self, seed: int, limit: int | None) -> list[Item]:
        """The items, in playing order; `limit` takes that many, spread over all clusters."""
        ...

    def prompt(self, chat: ChatPolicy) -> str:
        """The text around an observation, for the fingerprint."""
        ...

    async def run(self, items: Sequence[Item], setting: Setting) -> list[ItemResult]:
        """Play `items`; one result each, in order. Faults are values in the results."""
        ...


@dataclass(frozen=True, slots=True)
class EvalProtocol:
    """What must be equal for two results to be comparable."""

    suite: str
    version: int
    items: str
    """Hash of all item ids, in order; ids contain the hash of what is played."""
    n_items: int
    sampling: dict[str, float]
    prompt: str
    seed: int

    @property
    def fingerprint(self) -> str:
        """16 hex digits over every field."""
        import json

        return content_id(json.dumps(plain(self), sort_keys=True))[:16]


def protocol_of(suite: Suite, items: Sequence[Item], setting: Setting) -> EvalProtocol:
    """The protocol under which `items` are about to be played."""
    limits = setting.play
    sampling = {
        "temperature": limits.temperature,
        "top_p": limits.top_p,
        "top_k": limits.top_k,
        "max_tokens": limits.max_tokens,
        "max_turns": limits.max_turns,
    }
    return EvalProtocol(
        suite=suite.name,
        version=suite.version,
        items=content_id("\n".join(item.id for item in items)),
        n_items=len(items),
        sampling={k: float(v) for k, v in sampling.items()},
        prompt=content_id(suite.prompt(setting.chat))[:16],
        seed=setting.seed,
    )


def take(items: Sequence[Item], limit: int | None) -> list[Item]:
    """At most `limit` items, as evenly over the clusters as possible, in the order given."""
    if limit is None or limit >= len(items):
        return list(items)
    rank: Counter[str] = Counter()
    keyed: list[tuple[int, str, int]] = []
    for place, item in enumerate(items):
        keyed.append((rank[item.cluster], content_id(item.cluster), place))
        rank[item.cluster] += 1
    kept = sorted(place for _, _, place in sorted(keyed)[:limit])
    return [items[place] for place in kept]


def values_by_part(results: Sequence[ItemResult]) -> dict[str, tuple[list[float], list[str]]]:
    """Scored values and their clusters for every leaf part; faults have no value and are left out."""
    parts: dict[str, tuple[list[float], list[str]]] = {}
    for row in results:
        if isinstance(row.outcome, Scored):
            values, clusters = parts.setdefault(row.part, ([], []))
            values.append(row.outcome.value)
            clusters.append(row.cluster)
    return parts


def summarise(
    suite: str, checkpoint: str, fingerprint: str, results: Sequence[ItemResult], played: set[str]
) -> SuiteResult:
    """Means with clustered standard errors for every part and for the score.

    `played` holds the leaf parts of all items. The score is NaN as long as one of them has no scored item: a
    part that is missing is never averaged as zero, nor left out of the average in silence.
    """
    columns = stats.column_means(values_by_part(results))
    score = columns.pop(stats.SCORE, (math.nan, math.nan, 0))
    if not played <= set(columns):
        score = (math.nan, math.nan, 0)
    kinds = Counter(str(row.outcome.kind) for row in results if isinstance(row.outcome, Fault))
    return SuiteResult(
        suite=suite,
        checkpoint=checkpoint,
        protocol=fingerprint,
        score=score,
        parts=columns,
        faults=dict(kinds),
        tokens=sum(row.tokens for row in results),
    )


def number(value: Any) -> float:
    """A number read back from JSON, where NaN is stored as null."""
    return math.nan if value is None else float(value)
