"""Speed of the checker of BFCL conversations, as a ratio to upstream's own in the same run.

    python benchmarks/agents.py                      # all 800 items, five agents: 4,000 conversations
    python benchmarks/agents.py --items 50 --repeats 3 data.root=PATH

Both check the same conversations, one after the other on one core, each in a process of its own; the figure
is processor time of those processes, so that a busy machine changes it little. Upstream's time is that inside
its checker; ours is all that the process does, reading requests and writing verdicts included. Needs the
package (`spade data get bfcl`). Verdicts are compared too: a ratio between checkers that disagree says
nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from machine import Load, machine

from spade.cli.data import split_root
from spade_evals.hosting.supervisor import Host
from spade_evals.suites.bfcl.multi_turn import MultiTurn, in_steps
from spade_evals.suites.bfcl.package import MULTI_TURN, Package, find_package

UPSTREAM = Path(__file__).with_name("bfcl_upstream.py")
AGENTS = ("oracle", "parallel", "silent", "without_last", "backwards")


def conversations(package: Package, root: Path | None, items: int) -> list[dict[str, Any]]:
    """The conversations of five agents on the first `items` of every category, as requests."""
    out = []
    for category in MULTI_TURN:
        for question in MultiTurn(category).load(root).questions[:items]:
            item = {**question.meta["item"], "package": str(package.path)}
            for agent in AGENTS:
                turns = played(agent, question.reference)
                out.append({"item": item, "turns": turns, "truth": question.reference})
    return out


def played(agent: str, truth: list[list[str]]) -> list[list[list[str]]]:
    """What an agent calls, by turn and step."""
    if agent == "silent":
        return [[] for _ in truth]
    if agent == "parallel":
        return [[turn] if turn else [] for turn in truth]
    if agent == "backwards":
        return [in_steps(turn[::-1]) for turn in truth]
    turns = [[list(step) for step in in_steps(turn)] for turn in truth]
    if agent == "without_last":
        next(turn for turn in reversed(turns) if turn)[-1].pop()
    return turns


def ours(requests: list[dict[str, Any]]) -> tuple[float, list[bool]]:
    """Processor seconds of one warm process of ours, and its verdicts."""
    child = Host("spade_evals.suites.bfcl.host")
    try:
        child.ask({"op": "check", **requests[0]}, 60.0)
        before = cpu_seconds(child.pid)
        verdicts = [bool(child.ask({"op": "check", **one}, 60.0)["valid"]) for one in requests]
        return cpu_seconds(child.pid) - before, verdicts
    finally:
        child.close()


def theirs(package: Package, requests: list[dict[str, Any]]) -> tuple[float, list[bool]]:
    """Processor seconds inside upstream's checker, and its verdicts."""
    lines = [json.dumps({"kind": "multi_turn", **one}) + "\n" for one in requests]
    command = [sys.executable, str(UPSTREAM), str(package.path)]
    done = subprocess.run(command, input="".join(lines), capture_output=True, text=True, check=True)
    *verdicts, last = [json.loads(line) for line in done.stdout.splitlines()]
    return float(last["seconds"]), [bool(one["valid"]) for one in verdicts]


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=200, help="of each category; default 200, all of them")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("where", nargs="*", metavar="data.root=PATH")
    args = parser.parse_args()
    root, _ = split_root(args.where)
    package = find_package("bfcl", root)
    requests = conversations(package, root, args.items)
    rows = []
    with Load() as load:
        for _ in range(args.repeats):
            upstream_seconds, expected = theirs(package, requests)
            own_seconds, found = ours(requests)
            if found != expected:
                raise SystemExit("the two checkers disagree; tests/evals/test_bfcl_multi_turn.py says where")
            rows.append((upstream_seconds, own_seconds))
    result = {
        "conversations": len(requests),
        "upstream_seconds": [round(up, 2) for up, _ in rows],
        "own_seconds": [round(own, 2) for _, own in rows],
        "speed_to_upstream": round(statistics.median(up / own for up, own in rows), 2),
        "correct": sum(found),
        "wall_seconds": round(load.seconds, 1),
        "cores_used_by_others": round(load.others, 2),
        "machine": machine(),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
