"""Corpora: files, folders, hub data sets, and the commands that make and count them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade.cli.main import main
from spade.design import corpus_hub
from spade.design.corpus import NO_DOCUMENT, Corpus, cut, row_text, same_text_key
from spade.design.corpus_build import build_corpus, corpus_stats, histogram, stats_text
from spade.design.corpus_hub import HubSpec, parse_spec, sample_record, saved_sample
from spade.errors import InputError

Capture = pytest.CaptureFixture[str]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    rows: list[dict[str, Any]] = [{"text": f"document {i}", "url": f"u/{i}", "n": i} for i in range(5)]
    return write(tmp_path / "docs.jsonl", [*rows, {"orig_doc": " Document  0 "}, {"orig_doc": "last"}])


def test_each_epoch_shows_every_document_once_in_another_order(documents: Path) -> None:
    corpus = Corpus.load(str(documents), seed=3)
    assert len(corpus) == 6 and corpus.duplicates == 1  # equal up to case and white space
    first = [corpus.draw().text for _ in range(6)]
    second = [corpus.draw().text for _ in range(6)]
    assert sorted(first) == sorted(second) and first != second
    again = Corpus.load(str(documents), seed=3)
    assert [again.draw().text for _ in range(12)] == first + second
    other = Corpus.load(str(documents), seed=4)
    assert [other.draw().text for _ in range(6)] != first


def test_other_fields_are_kept_as_metadata(documents: Path) -> None:
    by_text = {d.text: d for d in Corpus.load(str(documents)).documents}
    assert by_text["document 2"].meta == {"url": "u/2", "n": 2} and by_text["last"].meta == {}
    assert by_text["document 2"].source == "docs.jsonl"
    drawn = {d.text: d.meta for corpus in [Corpus.load(str(documents))] for d in (corpus.draw(),)}
    assert all(by_text[text].meta == meta for text, meta in drawn.items())


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 99))
def test_a_loaded_position_goes_on_in_the_same_order(
    tmp_path_factory: pytest.TempPathFactory, drawn: int, size: int, seed: int
) -> None:
    rows = [{"text": f"text {i}"} for i in range(size)]
    path = write(tmp_path_factory.mktemp("corpus") / "docs.jsonl", rows)
    corpus = Corpus.load(str(path), seed=seed)
    seen = [corpus.draw().text for _ in range(drawn)]
    for epoch in range(drawn // size):
        assert len(set(seen[epoch * size : (epoch + 1) * size])) == size
    copy = Corpus.load(str(path), seed=seed)
    copy.load_state_dict(json.loads(json.dumps(corpus.state_dict())))
    assert [copy.draw().id for _ in range(12)] == [corpus.draw().id for _ in range(12)]


def test_a_changed_corpus_is_noticed(documents: Path) -> None:
    corpus = Corpus.load(str(documents))
    state = corpus.state_dict()
    documents.write_text('{"text": "other"}\n')
    with pytest.raises(InputError, match="not the one of the checkpoint"):
        Corpus.load(str(documents)).load_state_dict(state)
    with pytest.raises(InputError, match=r"changed while it was in use|not valid JSON"):
        [corpus.draw() for _ in range(6)]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("bad.jsonl", b'{"text": "a"}\n{oops\n', "line 2: not valid JSON"),
        ("bad.jsonl", b'{"title": "a"}\n', "line 1: no text"),
        ("bad.jsonl", b'["text"]\n', "line 1: no text"),
        ("bad.txt", b"\xff\xfe", "not UTF-8"),
        ("bad.pdf", b"x", "not a .jsonl"),
        ("bad.jsonl", b"\n", "no documents"),
    ],
)
def test_wrong_corpora_are_one_sentence(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        Corpus.load(str(tmp_path / name))


def test_folders_text_files_and_the_builtin_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.md").write_text("two")
    write(tmp_path / "deep" / "c.jsonl", [{"text": "three"}, {"text": "one"}])
    corpus = Corpus.load(str(tmp_path))
    assert sorted(d.text for d in corpus.documents) == ["one", "three", "two"] and corpus.duplicates == 1
    assert corpus_stats("builtin").documents >= 200
    with pytest.raises(InputError, match="no file or folder"):
        Corpus.load(str(tmp_path / "absent"))


def test_a_corpus_folder_may_not_lead_outside(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("not for the prompt")
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "fine.txt").write_text("a text")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(InputError, match=r"link\.txt leads out of the folder"):
        Corpus.load(str(folder))


def test_no_corpus_draws_empty_documents_and_can_be_resumed() -> None:
    corpus = Corpus.load("none")
    assert corpus.draw() == NO_DOCUMENT and len(corpus) == 0
    copy = Corpus.load("none")
    copy.load_state_dict(corpus.state_dict())
    assert copy.draw().text == ""
    with pytest.raises(InputError, match="not the one of the checkpoint"):
        corpus.load_state_dict(Corpus.load("builtin").state_dict())


def test_long_documents_are_cut_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two\nthree four five")
    assert Corpus.load(str(tmp_path), max_words=3).draw().text == "one two three [text cut]"
    assert Corpus.load(str(tmp_path), max_words=5).draw().text == "one two\nthree four five"
    assert cut("a b", 2) == "a b" and same_text_key(" A\nb") == same_text_key("a B")
    assert row_text({"text": " ", "orig_doc": "x"}) == "x" and row_text({"text": 3}) is None


# --- hub -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "spec"),
    [
        ("hub:owner/name", HubSpec("owner/name", None, None, "train", False)),
        ("hub:owner/name:en", HubSpec("owner/name", None, "en", "train", False)),
        ("hub:owner/name:en:test", HubSpec("owner/name", None, "en", "test", False)),
        ("hub:owner/name::test", HubSpec("owner/name", None, None, "test", False)),
        ("hub:owner/name@abc1:en", HubSpec("owner/name", "abc1", "en", "train", False)),
    ],
)
def test_hub_references(ref: str, spec: HubSpec) -> None:
    assert parse_spec(ref) == spec


@pytest.mark.parametrize("ref", ["hub:", "hub:a/b/c", "hub:a b/c", "hub:a/b:c:d:e"])
def test_wrong_hub_references_are_one_sentence(ref: str) -> None:
    with pytest.raises(InputError, match=r"write hub:owner/name"):
        parse_spec(ref)
    with pytest.raises(InputError, match="there is no folder"):
        parse_spec("hub:./absent")


class FakeStream:
    """What `load_dataset(streaming=True)` gives, as far as it is used."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def shuffle(self, seed: int, buffer_size: int) -> FakeStream:
        assert (seed, buffer_size) == (corpus_hub.SAMPLE_SEED, corpus_hub.BUFFER)
        return FakeStream(self.rows[::-1])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A hub of one data set, without network: `rows` and what was asked for."""
    import datasets
    import huggingface_hub

    state: dict[str, Any] = {"rows": [{"text": f"row {i}", "n": i} for i in range(9)], "calls": []}

    def load_dataset(path: str, name: str | None, **options: Any) -> FakeStream:
        state["calls"].append((path, name, options))
        if "error" in state:
            raise state["error"]
        return FakeStream(state["rows"])

    class Api:
        def dataset_info(self, repo: str, revision: str | None) -> Any:
            assert repo == "owner/name"
            return type("Info", (), {"sha": revision or "c0ffee"})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setenv("SPADE_CACHE", str(tmp_path / "cache"))
    yield state


def test_a_hub_sample_is_taken_once_and_kept(hub: dict[str, Any]) -> None:
    hub["rows"] += [{"text": "ROW  8"}, {"text": None, "n": 1}, {"other": b"x"}]
    corpus = Corpus.load("hub:owner/name:en", sample=4)
    assert sorted(d.text for d in corpus.documents) == ["ROW  8", "row 5", "row 6", "row 7"]
    assert next(d for d in corpus.documents if d.text == "row 7").meta == {"n": 7}
    (path, name, options) = hub["calls"][0]
    assert (path, name) == ("owner/name", "en")
    assert options == {"split": "train", "revision": "c0ffee", "streaming": True}
    file = saved_sample("hub:owner/name:en", 4)
    record = sample_record(file)
    assert record is not None and record["revision"] == "c0ffee" and record["count"] == 4
    hub["rows"] = [{"text": "the data set changed"}]
    again = Corpus.load("hub:owner/name:en", sample=4)
    assert again.digest == corpus.digest and len(hub["calls"]) == 1
    assert len(Corpus.load("hub:owner/name:en", sample=1)) == 1 and len(hub["calls"]) == 2
    file.write_text('{"text": "altered"}\n')
    with pytest.raises(InputError, match="was altered; delete"):
        Corpus.load("hub:owner/name:en", sample=4)


def test_a_named_revision_is_the_one_that_is_read(hub: dict[str, Any]) -> None:
    saved_sample("hub:owner/name@v7", 2)
    assert hub["calls"][0][2]["revision"] == "v7"


def test_a_hub_without_text_or_network_is_one_sentence_and_leaves_nothing(
    hub: dict[str, Any], tmp_path: Path
) -> None:
    hub["rows"] = [{"title": "x"}] * 3
    with pytest.raises(InputError, match="no row has text under text or orig_doc"):
        saved_sample("hub:owner/name", 4)
    hub["error"] = ConnectionError("no route to host\nmore")
    with pytest.raises(InputError, match=r"cannot be read \(no route to host\)"):
        saved_sample("hub:owner/name", 4)
    assert list((tmp_path / "cache" / "corpora").iterdir()) == []


def test_a_local_folder_in_the_hubs_format_is_streamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / "train.jsonl", [{"text": f"row {i}", "tags": ["a"]} for i in range(30)])
    corpus = Corpus.load(f"hub:{folder}", sample=10)
    texts = {d.text for d in corpus.documents}
    assert len(texts) == 10 and texts != {f"row {i}" for i in range(10)}  # a sample, not the head
    assert next(iter(corpus.documents)).meta == {"tags": ["a"]}
    write(folder / "train.jsonl", [{"text": "another"}])
    assert {d.text for d in Corpus.load(f"hub:{folder}", sample=10).documents} == texts
    with pytest.raises(InputError, match="cannot be read"):
        Corpus.load(f"hub:{folder}::test", sample=10)


# --- build and stats -----------------------------------------------------------------------------------


def test_build_filters_cuts_samples_and_keeps_fields(documents: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.jsonl"
    report = build_corpus(str(documents), out, sample=3, seed=1, min_words=2)
    assert (report.documents, report.duplicates, report.too_short, report.left_out) == (3, 1, 1, 2)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(row["text"] == f"document {row['n']}" and row["source"] == "docs.jsonl" for row in rows)
    assert [row["n"] for row in rows] == sorted(row["n"] for row in rows)
    again = build_corpus(str(documents), tmp_path / "again.jsonl", sample=3, seed=1, min_words=2)
    assert again == report
    other = build_corpus(str(documents), tmp_path / "other.jsonl", sample=3, seed=2, min_words=2)
    assert other.sha256 != report.sha256
    short = build_corpus(str(documents), tmp_path / "short.jsonl", max_words=1)
    assert short.cut == 5 and short.documents == 6
    with pytest.raises(InputError, match="exists already"):
        build_corpus(str(documents), out)
    with pytest.raises(InputError, match=r"not a \.jsonl file"):
        build_corpus(str(documents), tmp_path / "x.txt")
    with pytest.raises(InputError, match="no document has 9 words"):
        build_corpus(str(documents), tmp_path / "y.jsonl", min_words=9)


def test_stats_count_words_tokens_sources_and_lengths(documents: Path) -> None:
    stats = corpus_stats(str(documents), len)
    assert (stats.documents, stats.duplicates, stats.words) == (6, 1, 11)
    assert stats.tokens == stats.characters == 54
    assert (stats.words_median, stats.words_max) == (2, 2) and stats.sources == {"docs.jsonl": 6}
    assert stats.histogram == ((25, 6),) and corpus_stats(str(documents)).tokens is None
    assert histogram([1, 26, 7000]) == (
        *((25, 1), (50, 1), (100, 0), (200, 0), (400, 0), (800, 0), (1600, 0), (3200, 0), (6400, 0)),
        (None, 1),
    )
    text = stats_text("x", stats)
    assert "6 documents" in text and "54 tokens" in text and "#" in text
    assert "over 6400" in stats_text("x", corpus_stats_of([1, 7000]))


def corpus_stats_of(words: list[int]) -> Any:
    from dataclasses import replace

    return replace(corpus_stats("none"), histogram=histogram(words))


def test_the_commands(documents: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "made.jsonl"
    assert main(["corpus", "build", str(documents), "-o", str(out), "--sample", "4", "--json"]) == 0
    built = json.loads(capsys.readouterr().out)
    assert built["documents"] == 4 and built["file"] == str(out)
    assert main(["corpus", "stats", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 4
    assert main(["corpus", "stats", str(out)]) == 0
    assert "4 documents" in capsys.readouterr().out
    assert main(["corpus", "build", str(documents), "-o", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["corpus", "stats", str(out), "--model", "openai:gpt@http://x"]) == 2
    assert "cannot be counted" in capsys.readouterr().err


def test_tokens_are_those_of_the_model(shipped_model: Path, documents: Path) -> None:
    from spade.design.corpus_build import token_counter
    from spade.serving.render import Renderer

    count, renderer = token_counter(shipped_model), Renderer.from_folder(shipped_model)
    for text in ("a text of some words, 42", "<|end|> is text here", "class AEnv:\n    x = 1\n"):
        assert count(text) == renderer.count(text)
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        token_counter(documents.parent)
