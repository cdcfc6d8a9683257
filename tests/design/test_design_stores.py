"""Corpus, memory and pool: deterministic, checkpointed, and careful with files from elsewhere."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from spade.config import MemoryConfig
from spade.design.corpus import Corpus
from spade.envs.memory import Memory, Record, outline
from spade.envs.pool import Pool, read_pool, save_program, write_pool
from spade.errors import InputError
from spade.types import EnvProgram
from tests.play.programs import COUNT, GUESS


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    rows = [{"text": f"document {i}"} for i in range(5)] + [{"orig_doc": "document 0"}, {"orig_doc": "last"}]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return path


def test_each_epoch_shows_every_document_once_in_another_order(documents: Path) -> None:
    corpus = Corpus.load(str(documents), seed=3)
    assert len(corpus) == 6  # one duplicate
    first = [corpus.draw().text for _ in range(6)]
    second = [corpus.draw().text for _ in range(6)]
    assert sorted(first) == sorted(second) and first != second
    again = Corpus.load(str(documents), seed=3)
    assert [again.draw().text for _ in range(12)] == first + second


@pytest.mark.parametrize("drawn", [0, 4, 6, 9])
def test_a_loaded_position_goes_on_in_the_same_order(documents: Path, drawn: int) -> None:
    corpus = Corpus.load(str(documents), seed=3)
    for _ in range(drawn):
        corpus.draw()
    copy = Corpus.load(str(documents), seed=3)
    copy.load_state_dict(json.loads(json.dumps(corpus.state_dict())))
    assert [copy.draw().id for _ in range(8)] == [corpus.draw().id for _ in range(8)]


def test_a_changed_corpus_is_noticed(documents: Path) -> None:
    state = Corpus.load(str(documents)).state_dict()
    documents.write_text('{"text": "other"}\n')
    with pytest.raises(InputError, match="not the one of the checkpoint"):
        Corpus.load(str(documents)).load_state_dict(state)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("bad.jsonl", b'{"text": "a"}\n{oops\n', "line 2: not valid JSON"),
        ("bad.jsonl", b'{"title": "a"}\n', "line 1: no text"),
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
    assert sorted(d.text for d in Corpus.load(str(tmp_path)).documents) == ["one", "two"]
    assert Corpus.load("builtin").stats()["documents"] >= 40
    with pytest.raises(InputError, match="no file or folder"):
        Corpus.load(str(tmp_path / "absent"))


def record(number: int, solve: float, regret: float | None = 0.1, code: str = GUESS) -> Record:
    return Record(f"p{number}", code, "Optimization", solve, solve, regret, number)


def words(text: str) -> int:
    return len(text.split())


def test_memory_forgets_the_oldest_and_draws_by_range() -> None:
    memory = Memory(MemoryConfig(enabled=True, capacity=4, tokens=10_000))
    for number, solve in enumerate([0.5, 0.5, 1.0, 0.0, 0.12, 0.3]):
        memory.add(record(number, solve))
    assert [r.program_id for r in memory.records] == ["p2", "p3", "p4", "p5"]
    drawn = memory.draw("Optimization", random.Random(0), words)
    assert drawn == memory.draw("Optimization", random.Random(0), words)
    assert [e.program_id for e in drawn if e.label == "a good game"] == ["p5"]
    assert {e.label for e in drawn if e.program_id in ("p2", "p3")} <= {"too easy", "too hard"}
    assert all(e.program_id != "p4" for e in drawn)  # neither good nor bad
    assert memory.draw("Causal Inference", random.Random(0), words) == ()


def test_positives_come_from_the_highest_regrets() -> None:
    memory = Memory(MemoryConfig(enabled=True, positives=2, negatives=0, tokens=10_000))
    for number in range(30):
        memory.add(record(number, 0.5, regret=number / 30))
    drawn = {e.program_id for s in range(20) for e in memory.draw("Optimization", random.Random(s), words)}
    assert drawn <= {f"p{n}" for n in range(20, 30)} and len(drawn) > 3


def test_exemplars_keep_to_their_budget_and_show_an_outline_instead() -> None:
    memory = Memory(MemoryConfig(enabled=True, positives=1, negatives=0, tokens=20))
    memory.add(record(1, 0.5))
    (shown,) = memory.draw("Optimization", random.Random(0), words)
    assert words(shown.text) <= 20 and shown.text.startswith("class GuessEnv")
    assert "find the number from 1 to 8" in outline(GUESS)
    assert outline("not python (") == ""
    other = Memory(MemoryConfig(enabled=True))
    other.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert other.records == memory.records


def test_memory_that_is_off_shows_nothing() -> None:
    memory = Memory(MemoryConfig(enabled=False))
    memory.add(record(1, 0.5))
    assert memory.draw("Optimization", random.Random(0), words) == ()


@pytest.fixture
def pool() -> Pool:
    programs = (EnvProgram.of(GUESS, skill="A", source="pool"), EnvProgram.of(COUNT, hint="h", source="pool"))
    return Pool(programs, 123, {"model": "m"})


def test_a_pool_survives_the_disk(tmp_path: Path, pool: Pool) -> None:
    write_pool(tmp_path, pool)
    assert read_pool(tmp_path) == pool
    assert save_program(tmp_path / "programs", pool.programs[0]).read_text() == GUESS


def edit(folder: Path, **changes: object) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["programs"][0] |= changes
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["../outside.py", "/etc/hostname", "programs/link.py", "programs/none.py"])
def test_a_manifest_cannot_leave_its_folder(tmp_path: Path, pool: Pool, name: str) -> None:
    folder = tmp_path / "pool"
    folder.mkdir()
    write_pool(folder, pool)
    (tmp_path / "outside.py").write_text("x")
    (folder / "programs" / "link.py").symlink_to(tmp_path / "outside.py")
    edit(folder, file=name)
    with pytest.raises(InputError):
        read_pool(folder)


def test_an_altered_program_is_noticed(tmp_path: Path, pool: Pool) -> None:
    write_pool(tmp_path, pool)
    (tmp_path / "programs" / f"{pool.programs[0].id}.py").write_text("x = 1\n")
    with pytest.raises(InputError, match="does not match its sha256"):
        read_pool(tmp_path)


def test_an_empty_or_absent_pool_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pool manifest"):
        read_pool(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 1, "programs": []}')
    with pytest.raises(InputError, match="lists no programs"):
        read_pool(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 9}')
    with pytest.raises(InputError, match="format 9"):
        read_pool(tmp_path)


def test_a_corpus_folder_may_not_lead_outside(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("not for the prompt")
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "fine.txt").write_text("a text")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(InputError, match=r"link\.txt leads out of the folder"):
        Corpus.load(str(folder))
