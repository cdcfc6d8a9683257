"""What the evaluation of a suite that is played leaves on disk.

`<task>.jsonl` has one line per item, written as items finish; `<task>.json` has the result, its protocol and
where the checkpoint comes from. Samples of another protocol or checkpoint are moved aside, never mixed in. An
infrastructure fault is not kept as an answer: such items are played again on the next run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spade.errors import FaultKind
from spade.files import append_lines, cut_torn_line, plain, read_jsonl
from spade.types import Fault, ItemResult, SuiteResult, from_json
from spade_evals.subject import Subject
from spade_evals.suite import EvalProtocol

FORMAT = "spade-eval-1"


def lost(result: SuiteResult) -> int:
    """Items that the machinery lost; the next run plays them again."""
    return result.faults.get(FaultKind.INFRASTRUCTURE.value, 0)


class Samples:
    """The item results of one task on disk, keyed by protocol and checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = ""

    def load(self, key: str, wanted: set[str]) -> dict[str, ItemResult]:
        """What is already there for `key`, by item id. A file of another key is moved aside."""
        self.key = key
        if not self.path.exists():
            return {}
        cut_torn_line(self.path)
        rows = read_jsonl(self.path)
        other = next((str(row.get("key")) for row in rows if row.get("key") != key), None)
        if other is not None:
            self.path.rename(self.path.with_name(f"{self.path.stem}.{other[:12]}.old.jsonl"))
            return {}
        results = [from_json(ItemResult, row) for row in rows]
        return {r.item_id: r for r in results if r.item_id in wanted and not _lost(r)}

    def append(self, rows: Sequence[ItemResult]) -> None:
        """Write finished items; on return they are on disk."""
        append_lines(self.path, [{"key": self.key, **plain(row)} for row in rows])


def _lost(row: ItemResult) -> bool:
    return isinstance(row.outcome, Fault) and row.outcome.kind is FaultKind.INFRASTRUCTURE


def document(
    result: SuiteResult, protocol: EvalProtocol, subject: Subject, samples: str, seconds: float
) -> dict[str, Any]:
    """The result document; `samples` names the file of lines beside it."""
    return {
        "format": FORMAT,
        "complete": not lost(result),
        "result": plain(result),
        "fingerprint": protocol.fingerprint,
        "protocol": plain(protocol),
        "ref": subject.ref,
        "checkpoint": subject.checkpoint,
        "origin": plain(subject.origin),
        "samples": samples,
        "seconds": round(seconds, 2),
    }
