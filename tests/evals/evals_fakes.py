"""A suite without models: items with scripted outcomes, and the little a runner asks of a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from spade.errors import FaultKind
from spade.types import Fault, Item, ItemResult, Scored
from spade_evals.suite import Setting, take

PARTS = (("a/easy", 40), ("a/hard", 40), ("b", 60))


def fake_items(seed: int = 0) -> list[Item]:
    """Items of four programs a part; ids do not depend on the seed."""
    return [
        Item(f"{part}/p{k % 4}/{k}", part, f"{part}-p{k % 4}") for part, size in PARTS for k in range(size)
    ]


class FakeSuite:
    """Scores come from `value(item_id)`: a float, or a FaultKind."""

    name = "fake"
    version = 1

    def __init__(self, value: Callable[[str], float | FaultKind], crash_after: int | None = None) -> None:
        self.value, self.crash_after = value, crash_after
        self.played: list[str] = []

    def items(self, seed: int, limit: int | None) -> list[Item]:
        return take(fake_items(seed), limit)

    def prompt(self, chat: Any) -> str:
        return "prompt"

    async def run(self, items: Sequence[Item], setting: Setting) -> list[ItemResult]:
        if self.crash_after is not None and len(self.played) >= self.crash_after:
            raise KeyboardInterrupt
        self.played += [item.id for item in items]
        out = []
        for count, item in enumerate(items, start=1):
            value = self.value(item.id)
            outcome = Fault(value, "step", "x") if isinstance(value, FaultKind) else Scored(value, value >= 1)
            out.append(ItemResult(item.id, item.part, item.cluster, 0, outcome, "terminated", 3))
            if setting.on_done is not None:
                setting.on_done(count, len(items))
        return out


def fake_chat(rows: int = 16) -> Any:
    """The attributes of a chat policy that the runner reads."""
    return SimpleNamespace(policy=SimpleNamespace(lockstep=True, max_rows=rows, context_length=2048))
