"""Near-duplicates by behaviour: two programs that look and are played the same are the same game.

A *sketch* is what a game shows with everything masked that depends on the seed: its observations over several
seeds and a fixed set of actions, the words of its winning actions, its turn limits. The code does not count,
so rewriting a known game does not make it new; a constant that a player sees does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from spade.envs.bench import Bench
from spade.envs.contract import bare
from spade.envs.screen import Refused
from spade.envs.wire import PlayTrace

MASK = "#"
_PIECE = re.compile(r"\w+|[^\w\s]")
MAX_LINES = 64
MIN_TEXTS = 3


async def near_duplicate(bench: Bench, *, threshold: float = 1.0, in_small_worlds: bool = False) -> None:
    """No known program looks and is played like this one.

    `threshold` is the similarity of sketches from which on two programs count as one game; 1 means equal.
    Where worlds are small (`validator.floor_max` above 0.2) programs differ in little but the ranges that
    they draw from, which no player sees: there nothing is refused, unless `in_small_worlds` says so.
    """
    if bench.small_worlds and not in_small_worlds:
        return
    await bench.perform()
    bench.sketch = sketch(bench)
    if bench.known is None:
        return
    twin = bench.known.lookalike(bench.sketch, threshold, besides=bench.program.id)
    if twin is not None:
        raise Refused("near_duplicate", f"It looks and is played like program {twin[:12]}.")


def sketch(bench: Bench) -> str:
    """The sketch as hashes of its parts, 8 hex digits each, sorted and joined by commas."""
    parts = {f"turns {bench.info_turns} {bench.game_type}"}
    firsts = [p.observation for p in (*bench.probes, *bench.floor_probes)]
    parts |= {f"first {line}" for line in masked(firsts)}
    for kind, traces in (("idle", bench.idle), ("won", bench.oracle)):
        parts |= {f"{kind} {line}" for line in _feedback(traces)}
    actions = [[bare(a) for a in p.actions] for p in bench.probes]
    parts |= {f"action {line}" for line in _vocabulary(actions)}
    hashes = {hashlib.sha256(p.encode("utf-8", "surrogatepass")).hexdigest()[:8] for p in parts}
    return ",".join(sorted(hashes))


def masked(texts: Sequence[str]) -> set[str]:
    """Texts cut into pieces, with every piece masked that does not stand in all texts; runs of masks are one.

    A piece that varies with the seed is a value of the task; what all seeds share is the game itself.
    """
    rows = [_PIECE.findall(text.casefold()) for text in texts]
    if len(rows) < MIN_TEXTS:
        return set()  # what varies cannot be told from what does not
    shared = set.intersection(*map(set, rows))
    lines = set()
    for row in rows:
        kept: list[str] = []
        for piece in row:
            piece = piece if piece in shared else MASK
            if piece != MASK or not kept or kept[-1] != MASK:
                kept.append(piece)
        lines.add(" ".join(kept))
    return set(sorted(lines)[:MAX_LINES])


def _feedback(traces: Sequence[PlayTrace]) -> set[str]:
    """Observations after steps, masked over the seeds turn by turn and joined."""
    lines: set[str] = set()
    longest = max((len(t.rewards) for t in traces), default=0)
    for turn in range(1, min(longest, MAX_LINES) + 1):
        lines |= masked([t.observations[turn] for t in traces if turn < len(t.observations)])
    return lines


def _vocabulary(plans: Sequence[Sequence[str]]) -> set[str]:
    """Words of the winning actions that many seeds share; numbers and words of single seeds are masked."""
    rows = [{w for a in plan for w in _PIECE.findall(a.casefold())} for plan in plans]
    common = {w for row in rows for w in row if sum(w in other for other in rows) * 2 >= len(rows)}
    return {w for w in common if not w.isdigit()} or {MASK}
