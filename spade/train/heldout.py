"""What a run must not train on: the programs of the held-out suite."""

from __future__ import annotations

from spade.types import EnvProgram


def heldout_programs() -> dict[str, EnvProgram]:
    """Programs of the held-out suite, which no design may equal; empty when they are not installed."""
    try:
        from spade.embedded.heldout import heldout_programs as listed
    except ImportError:
        return {}
    programs = [EnvProgram.of(row.code, source="heldout") for row in listed()]
    return {p.id: p for p in programs}
