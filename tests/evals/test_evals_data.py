"""Data files: formats, pinned hashes, absence, fetching. Presets: checked keys, values and templates."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from question_fakes import Sums, write_sums

from spade.errors import ConfigError, InputError
from spade.types import Message
from spade_evals import presets
from spade_evals.data import (
    FILE_KEY,
    DataAbsent,
    DataChanged,
    DataFile,
    Source,
    data_root,
    load_rows,
    present,
    read_rows,
)
from spade_evals.fetching import fetch
from spade_evals.presets import Ask, fill, load_preset, preset_of
from spade_evals.question import Question

ROWS = [{"q": "a\u2028b", "n": 1}, {"q": 'é, "x"\n', "n": 2}]
TEXT = {
    "x.jsonl": "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\n\n",
    "x.json": json.dumps(ROWS, indent=1),
}


# --- reading -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.jsonl.gz", "x.json.gz"])
def test_json_files_give_their_rows(tmp_path: Path, name: str) -> None:
    content = TEXT[name.removesuffix(".gz")].encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read_rows(tmp_path / name) == ROWS


def test_csv_and_parquet_give_their_rows(tmp_path: Path) -> None:
    from datasets import Dataset

    (tmp_path / "x.csv").write_text('q,n\n"a, ""b""\nc",1\nd,2\n', encoding="utf-8-sig")
    assert read_rows(tmp_path / "x.csv") == [{"q": 'a, "b"\nc', "n": "1"}, {"q": "d", "n": "2"}]
    Dataset.from_list(ROWS).to_parquet(tmp_path / "x.parquet")
    assert read_rows(tmp_path / "x.parquet") == ROWS


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.jsonl", b'{"a": 1}\n{"a": \n', r"x\.jsonl line 2 is not valid JSON"),
        ("x.jsonl", b"[1]\n", "row 1 is not an object"),
        ("x.json", b'{"a": 1}', "not a JSON list"),
        ("x.json", b"\xff\xfe", "not UTF-8"),
        ("x.jsonl.gz", b"plain", "not a whole gzip file"),
        ("x.parquet", b"plain", "not a parquet file"),
        ("x.tsv", b"a", "unknown kind of data file"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_rows(tmp_path / name)


# --- pinned hashes -------------------------------------------------------------------------------------


def test_changed_data_is_refused_or_recorded(tmp_path: Path) -> None:
    sha256 = write_sums(tmp_path)
    task = Sums(sha256=sha256, size=12)
    first = task.load(tmp_path)
    assert (len(first.questions), first.changed) == (12, ())
    write_sums(tmp_path, count=11)
    with pytest.raises(DataChanged, match="--allow-changed-data"):
        task.load(tmp_path)
    other = task.load(tmp_path, allow_changed=True)
    assert (len(other.questions), other.changed) == (11, ("sums/test.jsonl",))
    assert other.sha256 != first.sha256


def test_the_number_of_questions_is_checked(tmp_path: Path) -> None:
    write_sums(tmp_path, count=11)
    with pytest.raises(InputError, match="should have 12 questions, but its data makes 11"):
        Sums(size=12).load(tmp_path)


def test_rows_of_another_form_are_an_error_about_the_file(tmp_path: Path) -> None:
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums/test.jsonl").write_text('{"question": 1}\n')
    with pytest.raises(InputError, match=r"sums/test\.jsonl does not have the form of sums"):
        Sums().load(tmp_path)


def test_absent_data_says_how_to_get_it(tmp_path: Path) -> None:
    source = Source((DataFile("x/y.jsonl"),), "org/x", "1", "MIT", access="Ask its authors.")
    with pytest.raises(DataAbsent) as caught:
        load_rows(source, "x", tmp_path)
    assert caught.value.reason == f"no file {tmp_path}/x/y.jsonl (Ask its authors.)"
    assert caught.value.command == f"spade data get x data.root={tmp_path}"
    assert not present(source, tmp_path)


def test_several_files_tell_where_a_row_comes_from(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"n": name}) + "\n")
    source = Source((DataFile("a.jsonl"), DataFile("b.jsonl")), "org/x", "1", "MIT")
    rows = load_rows(source, "x", tmp_path).rows
    assert rows == [{"n": "a", FILE_KEY: "a.jsonl"}, {"n": "b", FILE_KEY: "b.jsonl"}]


def test_the_root_is_what_the_user_said_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPADE_DATA", str(tmp_path))
    assert data_root() == tmp_path
    assert data_root("/other") == Path("/other")
    monkeypatch.delenv("SPADE_DATA")
    assert data_root() == Path.home() / ".cache" / "spade" / "data"


def test_ids_depend_on_the_content_alone(tmp_path: Path) -> None:
    one = Question("t", "q", {"b": 1, "a": [2]}, name="1", meta={"x": "é"})
    same = Question("t", "q", {"a": [2], "b": 1}, name="other name", part="p", meta={"x": "é"})
    assert one.id == same.id == "t/9982c372d65da259"  # a new id would orphan every stored answer
    assert one.id != Question("t", "q", {"a": [2], "b": 2}, meta={"x": "é"}).id
    (tmp_path / "sums").mkdir()
    row = json.dumps({"q": "1 + 1", "a": 2, "id": "x"})
    (tmp_path / "sums/test.jsonl").write_text(f"{row}\n{row}\n")
    ids = [q.id for q in Sums().load(tmp_path).questions]
    assert ids[1] == f"{ids[0]}~2"


# --- fetching ------------------------------------------------------------------------------------------


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes | Exception) -> list[str]:
    asked: list[str] = []

    def get(url: str, **more: Any) -> httpx.Response:
        asked.append(url)
        if isinstance(content, Exception):
            raise content
        return httpx.Response(200, content=content, request=httpx.Request("GET", url))

    monkeypatch.setattr(httpx, "get", get)
    return asked


def test_fetch_writes_only_the_pinned_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = TEXT["x.jsonl"].encode()
    pinned = DataFile("d/x.jsonl", hashlib.sha256(content).hexdigest(), "https://example.org/x.jsonl.gz")
    source = Source((pinned,), "org/x", "1", "MIT")
    asked = serve(monkeypatch, gzip.compress(b"other"))
    with pytest.raises(InputError, match="not the pinned data"):
        fetch(source, "x", tmp_path)
    assert list(tmp_path.iterdir()) == []
    asked = serve(monkeypatch, gzip.compress(content))
    assert fetch(source, "x", tmp_path) == [tmp_path / "d/x.jsonl"]
    assert load_rows(source, "x", tmp_path).rows == ROWS
    fetch(source, "x", tmp_path)
    assert len(asked) == 1
    fetch(source, "x", tmp_path, force=True)
    assert len(asked) == 2


def test_fetch_says_what_to_do_without_network_or_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(monkeypatch, httpx.ConnectError("no route"))
    file = DataFile("x.jsonl", url="https://example.org/x.jsonl")
    with pytest.raises(InputError, match="check the network, or place the file at"):
        fetch(Source((file,), "org/x", "1", "MIT"), "x", tmp_path)
    bare = Source((DataFile("x.jsonl"),), "org/x", "1", "MIT", access="Ask its authors.")
    with pytest.raises(InputError, match=r"place the file at .*x\.jsonl \(Ask its authors\)"):
        fetch(bare, "x", tmp_path)


def test_fetch_says_what_makes_data_that_is_made_and_where_nothing_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = Source((DataFile("x.jsonl"),), "org/x", "1", "MIT", makes="spade data generate x")
    with pytest.raises(InputError, match="is made, not fetched; make it with: spade data generate x --out"):
        fetch(made, "x", tmp_path)
    with pytest.raises(DataAbsent) as absent:
        load_rows(made, "x", tmp_path / "a b")
    assert absent.value.command == f"spade data generate x --out '{tmp_path}/a b'"
    serve(monkeypatch, b"{}")
    (tmp_path / "file").write_text("")
    there = Source((DataFile("file/x.jsonl", url="https://example.org/x.jsonl"),), "org/x", "1", "MIT")
    with pytest.raises(InputError, match=r"cannot make the folder .*; name another one with data\.root=PATH"):
        fetch(there, "x", tmp_path)
    packed = Source((DataFile("x.jsonl", url="https://example.org/x.jsonl.gz"),), "org/x", "1", "MIT")
    with pytest.raises(InputError, match="gave no whole gzip file; try again, or place the file at"):
        fetch(packed, "x", tmp_path)


def test_fetch_keeps_a_split_as_json_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import datasets

    def load_dataset(*where: Any, **more: Any) -> Any:
        assert (where, more) == (("org/x", "hard"), {"split": "train", "revision": "r1"})
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    file = DataFile("x.jsonl", split="train", config="hard")
    fetch(Source((file,), "org/x", "r1", "MIT", hub="org/x"), "x", tmp_path)
    assert read_rows(tmp_path / "x.jsonl") == ROWS


# --- presets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["paper", "paper-offline", "smoke"])
def test_shipped_presets_are_read_and_can_be_copied(tmp_path: Path, name: str) -> None:
    preset = load_preset(name)
    assert preset.name == name and preset.about
    copy = tmp_path / "mine.yaml"
    copy.write_text((presets.FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert load_preset(str(copy)) == preset
    for style in ("boxed", "choice", "tagged", "code_function", "code_write", "code_problem"):
        assert preset.ask("x", style, "", n=1, max_tokens=1).template.count("{question}") == 1


def test_the_presets_say_what_they_are_named_for() -> None:
    paper = load_preset("paper").ask("aime25", "boxed", "", n=1, max_tokens=1)
    assert (paper.n, paper.max_tokens) == (32, 32768)
    offline = load_preset("paper-offline")
    aime = offline.ask("aime26", "boxed", "", n=1, max_tokens=1)
    assert (aime.n, aime.temperature, aime.top_p, aime.top_k) == (64, 1.0, 0.95, 20)
    assert offline.ask("gpqa_diamond", "choice", "", n=1, max_tokens=1).n == 8
    code = offline.ask("livecodebench", "code_problem", "", n=1, max_tokens=1)
    assert (code.temperature, code.max_tokens) == (0.2, 16384)


def test_what_wins_task_defaults_preset_samples() -> None:
    preset = preset_of({"defaults": {"top_p": 0.9}, "tasks": {"a": {"n": 4, "style": "own"}}}, "here")
    a = preset.ask("a", "boxed", "T {question}", n=2, max_tokens=7)
    assert (a.n, a.top_p, a.max_tokens, a.style, a.template) == (4, 0.9, 7, "own", "T {question}")
    assert preset.ask("b", "boxed", "T", n=2, max_tokens=7).n == 2
    assert preset.ask("a", "boxed", "T", n=2, max_tokens=7, samples=1).n == 1


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"default": {}}, "unknown key 'default' under preset in here; did you mean 'defaults'"),
        ({"defaults": {"temprature": 1}}, "did you mean 'temperature'"),
        ({"tasks": {"aime25": {"max_token": 1}}}, r"under tasks\.aime25 in here; did you mean 'max_tokens'"),
        ({"defaults": {"n": 0}}, r"defaults\.n in here is 0, but should be a whole number from 1"),
        ({"defaults": {"n": True}}, "but should be a whole number"),
        ({"defaults": {"top_p": 1.5}}, "a number from 0 to 1"),
        ({"defaults": {"temperature": float("nan")}}, "a number from 0"),
        ({"defaults": {"stop": "x"}}, "a list of texts"),
        ({"defaults": {"stop": [""]}}, "non-empty"),
        ({"defaults": {"thinking": "yes"}}, "true, false or null"),
        ({"prompts": {"boxed": "no place"}}, "has no {question}"),
        ({"tasks": [1]}, "tasks in here is not a section"),
        (["a"], "is not a section"),
    ],
)
def test_a_wrong_preset_is_one_sentence(tree: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        preset_of(tree, "here")


def test_unknown_and_unreadable_presets(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'paper'"):
        load_preset("papers")
    (tmp_path / "x.yaml").write_text("a: [1,\nb: {")
    with pytest.raises(ConfigError, match=r"x\.yaml line \d+ is not valid YAML"):
        load_preset(str(tmp_path / "x.yaml"))


@given(st.text(), st.text())
def test_templates_are_filled_in_one_pass(question: str, options: str) -> None:
    ask = Ask(template="{question} \\boxed{} {options} {other}")
    (message,) = ask.messages(question, {"options": options})
    assert message == Message("user", f"{question} \\boxed{{}} {options} {{other}}")


def test_a_system_message_comes_first_and_a_question_may_bring_its_own() -> None:
    ask = Ask(template="{question}", system="Be brief.")
    assert [m.role for m in ask.messages("q", {})] == ["system", "user"]
    own = (Message("system", "Mine."), Message("user", "q"))
    assert ask.messages(own, {}) == own
    assert fill("{a}{b}", {"a": "{b}", "b": "x"}) == "{b}x"
