"""Making a corpus file out of any source, and counting what a corpus holds."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spade.design.corpus import HUB_SAMPLE, Corpus, cut, read
from spade.errors import InputError
from spade.files import atomic_write

BINS = (25, 50, 100, 200, 400, 800, 1600, 3200, 6400)
"""Upper edges of the length histogram, in words."""
BAR = 40
"""Characters of the longest bar."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What `build_corpus` did: documents by fate, and the SHA-256 of the file."""

    documents: int
    duplicates: int
    too_short: int
    cut: int
    left_out: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """Counts of a corpus. `tokens` is None without a tokenizer; `histogram` has (upper edge, count)."""

    documents: int
    duplicates: int
    words: int
    characters: int
    tokens: int | None
    words_median: int
    words_max: int
    sources: dict[str, int]
    histogram: tuple[tuple[int | None, int], ...]
    digest: str


def build_corpus(
    ref: str,
    out: Path,
    *,
    sample: int | None = None,
    seed: int = 0,
    min_words: int = 1,
    max_words: int | None = None,
) -> BuildReport:
    """Write the documents of `ref` to the JSONL file `out`, duplicates and too short ones left out.

    `sample` takes that many of them at random, in their order; longer documents are cut to `max_words`.
    Raises InputError when `out` exists or nothing is left.
    """
    if out.exists():
        raise InputError(f"{out} exists already; choose another file")
    if out.suffix != ".jsonl":
        raise InputError(f"{out} is not a .jsonl file; name it so, for that is what is written")
    corpus = Corpus.load(ref, sample=sample or HUB_SAMPLE)
    kept = [e for e in corpus.entries if e.words >= min_words]
    short = len(corpus.entries) - len(kept)
    chosen = kept
    if sample is not None and sample < len(kept):
        order = sorted(random.Random(seed).sample(range(len(kept)), sample))
        chosen = [kept[i] for i in order]
    if not chosen:
        raise InputError(f"corpus {ref}: no document has {min_words} words; lower --min-words")
    lines = []
    for document in map(read, chosen):
        text = document.text if max_words is None else cut(document.text, max_words)
        meta = {"source": document.source, **document.meta}
        lines.append(json.dumps({"text": text, **meta}, ensure_ascii=False) + "\n")
    data = "".join(lines).encode()
    atomic_write(out, data)
    shortened = sum(max_words is not None and e.words > max_words for e in chosen)
    digest = hashlib.sha256(data).hexdigest()
    return BuildReport(len(chosen), corpus.duplicates, short, shortened, len(kept) - len(chosen), digest)


def corpus_stats(
    ref: str, count: Callable[[str], int] | None = None, sample: int = HUB_SAMPLE
) -> CorpusStats:
    """Count documents, words and, with `count`, tokens. Raises InputError for an unreadable corpus."""
    corpus = Corpus.load(ref, sample=sample)
    words = [e.words for e in corpus.entries]
    characters, tokens = 0, 0
    sources: Counter[str] = Counter()
    for document in corpus.documents:
        characters += len(document.text)
        tokens += count(document.text) if count is not None else 0
        sources[str(document.meta.get("source") or document.source)] += 1
    return CorpusStats(
        documents=len(corpus),
        duplicates=corpus.duplicates,
        words=sum(words),
        characters=characters,
        tokens=tokens if count is not None else None,
        words_median=sorted(words)[len(words) // 2] if words else 0,
        words_max=max(words, default=0),
        sources=dict(sources.most_common()),
        histogram=histogram(words),
        digest=corpus.digest,
    )


def token_counter(folder: Path) -> Callable[[str], int]:
    """Counts tokens as the model in `folder` does, special tokens disabled. Raises InputError."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InputError(f"{folder} has no tokenizer.json, so tokens cannot be counted; give another model")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def histogram(words: Sequence[int]) -> tuple[tuple[int | None, int], ...]:
    """Documents by length: (upper edge, count) up to the longest; the last edge is None when it is open."""
    rows: list[tuple[int | None, int]] = []
    low = 0
    for edge in BINS:
        rows.append((edge, sum(low < w <= edge for w in words)))
        low = edge
    rows.append((None, sum(w > low for w in words)))
    while len(rows) > 1 and not rows[-1][1]:
        rows.pop()
    return tuple(rows)


def stats_text(ref: str, stats: CorpusStats) -> str:
    """The counts for people, with the histogram as bars."""
    tokens = "" if stats.tokens is None else f", {stats.tokens:,} tokens"
    lines = [
        f"corpus {ref}: {stats.documents:,} documents, {stats.words:,} words{tokens}",
        f"duplicates left out: {stats.duplicates:,}",
        f"words of a document: median {stats.words_median:,}, longest {stats.words_max:,}",
        "sources: " + ", ".join(f"{name} {n:,}" for name, n in list(stats.sources.items())[:12]),
        f"digest: {stats.digest[:12]}",
    ]
    top = max((n for _, n in stats.histogram), default=0)
    low = 0
    for edge, n in stats.histogram:
        name = f"{low + 1:>5}-{edge}" if edge is not None else f"over {low}"
        lines.append(f"  {name:<12} {n:>7,}  {'#' * round(BAR * n / max(1, top))}")
        low = edge or low
    return "\n".join(lines)
