"""The shipped corpus: enough documents, all different, short, plain."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

import spade

FOLDER = Path(spade.__file__).parent / "design" / "corpus_builtin"
TOPICS = ("algorithms", "everyday", "mathematics", "science")
Row = dict[str, str]


def shingles(text: str, size: int = 3) -> set[tuple[str, ...]]:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def near_duplicates(rows: list[Row], limit: float = 0.5) -> list[tuple[str, str]]:
    parts = [(row["id"], shingles(row["text"])) for row in rows]
    return [(a, b) for (a, x), (b, y) in combinations(parts, 2) if len(x & y) >= limit * len(x | y)]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    files = sorted(FOLDER.glob("*.jsonl"))
    assert [f.stem for f in files] == list(TOPICS)
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def test_there_are_enough_documents_of_every_topic(rows: list[Row]) -> None:
    assert len(rows) >= 200
    assert min(Counter(row["topic"] for row in rows)[topic] for topic in TOPICS) >= 50


def test_every_row_has_the_same_fields_and_says_its_topic(rows: list[Row]) -> None:
    for row in rows:
        assert list(row) == ["id", "title", "topic", "text"]
        assert row["id"].startswith(row["topic"] + "/"), row["id"]
        assert re.fullmatch(r"[a-z]+/[a-z0-9-]+", row["id"]), row["id"]


def test_ids_titles_and_texts_are_unique(rows: list[Row]) -> None:
    for field in ("id", "title", "text"):
        assert [v for v, n in Counter(row[field] for row in rows).items() if n > 1] == []


def test_texts_are_short_plain_and_whole(rows: list[Row]) -> None:
    for row in rows:
        assert 40 <= len(row["text"].split()) <= 90, (row["id"], len(row["text"].split()))
        assert row["text"].isascii() and row["title"].isascii(), row["id"]
        assert row["text"] == " ".join(row["text"].split()), row["id"]
        assert row["text"][0].isupper() or row["text"][0] in '"0123456789', row["id"]
        assert row["text"][-1] in '."?', row["id"]


def test_no_two_documents_are_near_duplicates(rows: list[Row]) -> None:
    assert near_duplicates(rows) == []


def test_the_duplicate_check_finds_a_lightly_edited_copy(rows: list[Row]) -> None:
    copy = {**rows[0], "id": "x/copy", "text": rows[0]["text"].replace("64", "32")}
    assert near_duplicates([*rows, copy]) == [(rows[0]["id"], "x/copy")]


def test_the_builtin_corpus_is_these_documents(rows: list[Row]) -> None:
    corpus = pytest.importorskip("spade.design.corpus").Corpus.load("builtin")
    assert {d.text for d in corpus.documents} == {row["text"] for row in rows}
