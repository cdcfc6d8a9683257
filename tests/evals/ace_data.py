"""The published ACEBench-Agent items, recorded runs of their milestones, and a small item made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from qa_data import DATA

from spade_evals.data import DataFile, Source

FOLDER = DATA / "acebench_en"


def rows(name: str) -> list[dict[str, Any]]:
    """The lines of a file of the folder."""
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def agent_items() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Id -> item and its annotation, of both categories."""
    found = {}
    for category in ("agent_multi_step", "agent_multi_turn"):
        answers = {row["id"]: row for row in rows(f"possible_answer/data_{category}.json")}
        found |= {row["id"]: (row, answers[row["id"]]) for row in rows(f"data_{category}.json")}
    return found


def phone(wifi: bool = True, logged_in: bool = True) -> dict[str, Any]:
    """The configuration of a phone."""
    return {"BaseApi": {"wifi": wifi, "logged_in": logged_in}}


FUNCTIONS = [
    {
        "name": "turn_on_wifi",
        "description": "Turn on WiFi connection.",
        "parameters": {"type": "dict", "required": [], "properties": {}},
    },
    {
        "name": "login_device",
        "description": "Log in to the device.",
        "parameters": {"type": "dict", "required": [], "properties": {}},
    },
    {
        "name": "delete_message",
        "description": "Delete a message.",
        "parameters": {
            "type": "dict",
            "required": ["message_id"],
            "properties": {"message_id": {"type": "integer", "description": "Number."}},
        },
    },
]


def write_items(root: Path, category: str, count: int = 6) -> Source:
    """Items made here, in the published form: turn Wi-Fi on and log in. Returns their source."""
    items, answers = [], []
    for number in range(count):
        name = f"{category}_{number}"
        items.append(
            {
                "id": name,
                "question": f"Please switch Wi-Fi on and log in, {number}.",
                "initial_config": phone(wifi=False, logged_in=False),
                "function": FUNCTIONS,
                "involved_classes": ["BaseApi"],
            }
        )
        answers.append(
            {
                "id": name,
                "ground_truth": [{"BaseApi": {"wifi": True, "logged_in": True}}],
                "mile_stone": ["[login_device()]", "[turn_on_wifi()]"],
            }
        )
    paths = [f"made/data_{category}.jsonl", f"made/possible_answer/data_{category}.jsonl"]
    for path, lines in zip(paths, (items, answers), strict=True):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return Source(tuple(map(DataFile, paths)), "made in the test", "1", "MIT", count)
