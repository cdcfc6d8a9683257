"""Documents that ground the Designer's briefs.

A corpus is the shipped one (`builtin`), a JSONL file (text under `text` or `orig_doc`, other fields kept as
metadata), a `.txt` or `.md` file, a folder of those, a sample of a hub data set (`hub:...`, see
`spade.design.corpus_hub`), or `none`. Drawing is without replacement within an epoch, in an order that
depends on seed and epoch only; the position is part of the checkpoint. Texts stay on disk: only offsets and
hashes are kept. Texts that are equal up to case and white space count once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade.errors import InputError
from spade.rng import child_rng
from spade.types import Document, content_id

BUILTIN = Path(__file__).with_name("corpus_builtin")

MAX_WORDS = 6000
"""Longer documents are cut here (the published games runs used the same limit)."""

HUB_SAMPLE = 15_000
"""Documents of a sample of a hub data set, as many as the published corpora had."""

NONE = "none"
NO_DOCUMENT = Document("", "", NONE)
"""What a brief without a document draws."""

TEXT_KEYS = ("text", "orig_doc")
"""Keys under which a row may hold its text; the first that does counts."""

_TEXT_SUFFIXES = {".txt", ".md"}


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one document lies: a whole file (`line_at` None) or one line of a JSONL file."""

    path: Path
    line_at: int | None
    id: str
    key: str
    """Hash of the text without case and white space: equal for texts that count once."""
    words: int


class Corpus:
    """A set of documents with a position in a shuffled order."""

    def __init__(
        self, name: str, entries: list[Entry], seed: int, max_words: int = MAX_WORDS, duplicates: int = 0
    ) -> None:
        self.name = name
        self.seed = seed
        self.max_words = max_words
        self.duplicates = duplicates
        """Documents left out because their text was there already."""
        self.entries = entries
        self._epoch = 0
        self._position = 0
        self._order: list[int] = []

    @staticmethod
    def load(ref: str, seed: int = 0, *, max_words: int = MAX_WORDS, sample: int = HUB_SAMPLE) -> Corpus:
        """Open `builtin`, a file, a folder, `hub:...` (its saved sample of `sample` documents) or `none`.

        Raises InputError naming the file and line that is wrong.
        """
        if ref == NONE:
            return Corpus(ref, [], seed, max_words)
        path = corpus_path(ref, sample)
        found: dict[str, Entry] = {}
        count = 0
        for entry in _entries(path, ref):
            count += 1
            found.setdefault(entry.key, entry)
        if not found:
            raise InputError(f"corpus {ref}: no documents found; give .jsonl, .txt or .md files with text")
        return Corpus(ref, list(found.values()), seed, max_words, count - len(found))

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def digest(self) -> str:
        """Hash of the set of documents."""
        return content_id("\n".join(sorted(e.id for e in self.entries)))

    def draw(self) -> Document:
        """The next document, cut to `max_words`; a new epoch reshuffles. `none` gives an empty one."""
        if not self.entries:
            return NO_DOCUMENT
        if not self._order:
            self._shuffle()
        if self._position >= len(self._order):
            self._epoch, self._position = self._epoch + 1, 0
            self._shuffle()
        document = read(self.entries[self._order[self._position]])
        self._position += 1
        return Document(document.id, cut(document.text, self.max_words), document.source, document.meta)

    @property
    def documents(self) -> Iterator[Document]:
        """All documents in file order, uncut."""
        return map(read, self.entries)

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
        self._order = list(range(len(self.entries)))
        child_rng(self.seed, "corpus", self._epoch).shuffle(self._order)


def corpus_path(ref: str, sample: int = HUB_SAMPLE) -> Path:
    """The file or folder behind a reference; a hub data set is sampled into the cache if it is not there."""
    if ref.startswith("hub:"):
        from spade.design.corpus_hub import saved_sample

        return saved_sample(ref, sample)
    return BUILTIN if ref == "builtin" else Path(ref)


def cut(text: str, words: int) -> str:
    """At most `words` words of a text, with a note where it was cut."""
    found = text.split()
    return text if len(found) <= words else " ".join(found[:words]) + " [text cut]"


def same_text_key(text: str) -> str:
    """Equal for texts that differ in case and white space only."""
    return content_id(" ".join(text.split()).casefold())


def row_text(row: Any, keys: Sequence[str] = TEXT_KEYS) -> str | None:
    """The text of a row under one of `keys`; None when it has none."""
    if not isinstance(row, dict):
        return None
    texts = (row.get(key) for key in keys)
    return next((text for text in texts if isinstance(text, str) and text.strip()), None)


def read(entry: Entry) -> Document:
    """The document of an entry, with the other fields of its row."""
    source = entry.path.name
    if entry.line_at is None:
        return Document(entry.id, _decode(entry.path.read_bytes(), str(entry.path)), source)
    with entry.path.open("rb") as file:
        file.seek(entry.line_at)
        row, text = _line(file.readline(), str(entry.path))
    if content_id(text) != entry.id:
        raise InputError(f"corpus file {entry.path} changed while it was in use; start the run again")
    return Document(entry.id, text, source, {k: v for k, v in row.items() if k not in TEXT_KEYS})


def _entry(path: Path, line_at: int | None, text: str) -> Entry:
    return Entry(path, line_at, content_id(text), same_text_key(text), len(text.split()))


def _entries(path: Path, ref: str) -> Iterator[Entry]:
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
            yield _entry(path, None, text)
    else:
        raise InputError(f"corpus {ref}: {path.name} is not a .jsonl, .txt or .md file")


def _jsonl_entries(path: Path) -> Iterator[Entry]:
    with path.open("rb") as file:
        number = 0
        while True:
            at = file.tell()
            line = file.readline()
            if not line:
                return
            number += 1
            if line.strip():
                yield _entry(path, at, _line(line, f"{path} line {number}")[1])


def _line(line: bytes, where: str) -> tuple[dict[str, Any], str]:
    """A row and its text."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"corpus {where}: not valid JSON") from error
    text = row_text(row)
    if text is None:
        raise InputError(f"corpus {where}: no text under the key 'text' or 'orig_doc'")
    return row, text


def _decode(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"corpus {where}: not UTF-8 text (byte {error.start})") from error
