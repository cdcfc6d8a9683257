"""Documents that ground the Designer's briefs.

A corpus is the shipped one (`builtin`), a JSONL file (text under `text` or `orig_doc`), a `.txt` or `.md`
file, or a folder of those. Drawing is without replacement within an epoch, in an order that depends on seed
and epoch only; the position is part of the checkpoint. Texts stay on disk: only offsets and hashes are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.rng import child_rng
from spade.types import Document, content_id

BUILTIN = Path(__file__).with_name("corpus_builtin")

MAX_WORDS = 6000
"""Longer documents are cut here (the published runs used the same limit)."""

_TEXT_SUFFIXES = {".txt", ".md"}


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where one document lies: a whole file (`line_at` None) or one line of a JSONL file."""

    path: Path
    line_at: int | None
    id: str


class Corpus:
    """A set of documents with a position in a shuffled order."""

    def __init__(self, name: str, entries: list[_Entry], seed: int) -> None:
        self.name = name
        self.seed = seed
        self._entries = entries
        self._epoch = 0
        self._position = 0
        self._order: list[int] = []

    @staticmethod
    def load(ref: str, seed: int = 0) -> Corpus:
        """Open `builtin`, a file or a folder. Raises InputError naming the file and line that is wrong."""
        path = BUILTIN if ref == "builtin" else Path(ref)
        entries: list[_Entry] = []
        seen: set[str] = set()
        for entry in _entries(path, ref):
            if entry.id not in seen:
                seen.add(entry.id)
                entries.append(entry)
        if not entries:
            raise InputError(f"corpus {ref}: no documents found; give .jsonl, .txt or .md files with text")
        return Corpus(ref, entries, seed)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def digest(self) -> str:
        """Hash of the set of documents."""
        return content_id("\n".join(sorted(e.id for e in self._entries)))

    def draw(self) -> Document:
        """The next document; a new epoch reshuffles."""
        if not self._order:
            self._shuffle()
        if self._position >= len(self._order):
            self._epoch, self._position = self._epoch + 1, 0
            self._shuffle()
        entry = self._entries[self._order[self._position]]
        self._position += 1
        return Document(entry.id, _cut(_read(entry)), str(entry.path.name))

    @property
    def documents(self) -> Iterator[Document]:
        """All documents in file order (for statistics)."""
        for entry in self._entries:
            yield Document(entry.id, _read(entry), str(entry.path.name))

    def stats(self) -> dict[str, float]:
        """Number of documents, words and characters."""
        lengths = [(len(d.text.split()), len(d.text)) for d in self.documents]
        words = sorted(w for w, _ in lengths)
        return {
            "documents": len(lengths),
            "words": sum(words),
            "characters": sum(c for _, c in lengths),
            "words_median": words[len(words) // 2],
            "words_max": words[-1],
        }

    def state_dict(self) -> dict[str, Any]:
        """Epoch and position, plus the digest that must match on load."""
        return {"epoch": self._epoch, "position": self._position, "digest": self.digest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken. Raises InputError when the documents are not the same."""
        if state["digest"] != self.digest:
            raise InputError(
                f"corpus {self.name} is not the one of the checkpoint; restore it or start a new run"
            )
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._shuffle()

    def _shuffle(self) -> None:
        self._order = list(range(len(self._entries)))
        child_rng(self.seed, "corpus", self._epoch).shuffle(self._order)


def _entries(path: Path, ref: str) -> Iterator[_Entry]:
    if path.is_dir():
        for child in sorted(path.rglob("*")):
            if child.is_file() and child.suffix in {".jsonl", *_TEXT_SUFFIXES}:
                if not child.resolve().is_relative_to(path.resolve()):
                    where = f"corpus {ref}: {child.name}"
                    raise InputError(f"{where} leads out of the folder; copy the file into it")
                yield from _entries(child, ref)
    elif not path.is_file():
        raise InputError(f"corpus {ref}: there is no file or folder {path}")
    elif path.suffix == ".jsonl":
        yield from _jsonl_entries(path)
    elif path.suffix in _TEXT_SUFFIXES:
        text = _decode(path.read_bytes(), str(path))
        if text.strip():
            yield _Entry(path, None, content_id(text))
    else:
        raise InputError(f"corpus {ref}: {path.name} is not a .jsonl, .txt or .md file")


def _jsonl_entries(path: Path) -> Iterator[_Entry]:
    with path.open("rb") as file:
        number = 0
        while True:
            at = file.tell()
            line = file.readline()
            if not line:
                return
            number += 1
            if line.strip():
                yield _Entry(path, at, content_id(_line_text(line, f"{path} line {number}")))


def _line_text(line: bytes, where: str) -> str:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"corpus {where}: not valid JSON") from error
    text = row.get("text", row.get("orig_doc")) if isinstance(row, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"corpus {where}: no text under the key 'text' or 'orig_doc'")
    return text


def _read(entry: _Entry) -> str:
    if entry.line_at is None:
        return _decode(entry.path.read_bytes(), str(entry.path))
    with entry.path.open("rb") as file:
        file.seek(entry.line_at)
        return _line_text(file.readline(), str(entry.path))


def _decode(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"corpus {where}: not UTF-8 text (byte {error.start})") from error


def _cut(text: str) -> str:
    words = text.split()
    return text if len(words) <= MAX_WORDS else " ".join(words[:MAX_WORDS]) + " [text cut]"
