"""What the documentation promises: links lead somewhere, commands exist, lists are current, examples work."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest

from spade.cli.main import VERBS, parser_of
from spade.config import Config
from spade.types import GameType

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "results", "benchmarks", "baselines", "evals")
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted(p for f in FOLDERS for p in (ROOT / f).rglob("*.md")),
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKE_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", t.lower()).strip().replace(" ", "-") for t in titles}


def broken_links(page: Path, text: str) -> list[str]:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    return broken


def shell_commands(text: str) -> list[list[str]]:
    whole = [block.replace("\\\n", " ") for block in blocks(text, "sh")]
    lines = [line.split(" #")[0] for block in whole for line in block.splitlines()]
    return [shlex.split(line.partition("&&")[0]) for line in lines if line.split("#")[0].strip()]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_internal_links_resolve(page: Path) -> None:
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


def test_a_broken_link_would_be_found() -> None:
    text = "[a](docs/install.md) [b](docs/nowhere.md) [c](docs/environments.md#no-such-part)"
    assert broken_links(ROOT / "README.md", text) == ["docs/nowhere.md", "docs/environments.md#no-such-part"]


def test_the_index_names_every_page_of_the_manual() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {name for name in pages if f"]({name})" not in index} == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_pages_exist(page: Path) -> None:
    for command in shell_commands(page.read_text(encoding="utf-8")):
        if Path(command[0]).name == "spade":
            assert command[1] in VERBS, " ".join(command)
        elif command[0] == "make":
            wanted = [word for word in command[1:] if "=" not in word]
            assert set(wanted) <= MAKE_TARGETS, " ".join(command)


def spade_commands(page: Path) -> list[list[str]]:
    """What follows `spade` in the commands of a page: of its shell blocks, and after `$` in its outputs."""
    text = page.read_text(encoding="utf-8")
    shown = [
        line[2:].split(" #")[0] for b in blocks(text, "text") for line in b.splitlines() if line[:2] == "$ "
    ]
    found = shell_commands(text) + [shlex.split(line) for line in shown if "spade " in line]
    return [command[1:] for command in found if Path(command[0]).name == "spade"]


def refusal(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says against a command before it does anything; empty for a good one."""
    try:
        args = parser_of(command[0]).parse_args(command[1:])
    except SystemExit as stop:
        return capsys.readouterr().err if stop.code else ""
    words = getattr(args, "overrides", [])
    return " ".join(word for word in words if not word.startswith("data.root=") and not is_key(word))


def is_key(word: str) -> bool:
    node: object = Config
    for part in word.partition("=")[0].split("."):
        fields = getattr(node, "model_fields", {})
        if part not in fields:
            return False
        node = fields[part].annotation
    return "=" in word


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_and_keys_in_pages_exist(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {shlex.join(c): why for c in spade_commands(page) if (why := refusal(c, capsys))} == {}


def test_an_option_or_key_that_does_not_exist_would_be_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--limits" in refusal(shlex.split("eval --ckpt embedded --limits 5"), capsys)
    assert refusal(shlex.split("train demo play.playz=3 seed=1"), capsys) == "play.playz=3"
    assert refusal(shlex.split("pool import games --out again validator.floor_max=0.34"), capsys) == ""


def test_shipped_configs_named_in_commands_load() -> None:
    from spade.config_load import config_names

    named = {
        command[2]
        for page in PAGES
        for command in shell_commands(page.read_text(encoding="utf-8"))
        if Path(command[0]).name == "spade" and command[1] == "train"
    }
    assert {n for n in named if not n.endswith(".yaml")} <= set(config_names())


def test_the_table_of_verbs_is_complete() -> None:
    assert sorted(re.findall(r"^\| `spade (\w+)` \|", README, re.M)) == sorted(VERBS)


def test_the_readme_is_short_and_has_the_place_for_the_demo_output() -> None:
    assert len(README.splitlines()) < 200
    assert README.index("<!-- DEMO-OUTPUT: begin -->") < README.index("<!-- DEMO-OUTPUT: end -->")


def test_everything_in_the_readme_tree_exists() -> None:
    tree = next(block for block in blocks(README, "text") if block.startswith("spade/"))
    folder = ""
    for line in tree.splitlines():
        entry = line.split()[0]
        if not line.startswith(" "):
            folder = entry
        path = ROOT / entry if not line.startswith(" ") else ROOT / folder / entry
        assert path.exists(), line
    named = {line.split()[0].rstrip("/") for line in tree.splitlines()}
    packages = {p.parent.name for p in (ROOT / "spade").glob("*/__init__.py")}
    assert packages <= named


def test_the_list_of_keys_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    config_table = importlib.import_module("config_table")
    text = config_table.PAGE.read_text(encoding="utf-8")
    assert text == config_table.page_with_current_keys(text), (
        "docs/configuration.md is out of date; run python tests/package/config_table.py --write"
    )


def test_the_list_of_modules_is_current() -> None:
    from spade.envs.contract import ALLOWED_MODULES

    text = " ".join((ROOT / "docs" / "environments.md").read_text(encoding="utf-8").split())
    listed = re.search(r"A program may import these modules: (.*?) \(", text)
    assert listed is not None
    assert re.findall(r"`(\w+)`", listed.group(1)) == list(ALLOWED_MODULES)


def test_pages_name_no_paths_of_one_machine() -> None:
    for page in PAGES:
        found = re.findall(r"(?<![\w.])/(?:home|root|work|tmp|Users)/\S*", page.read_text(encoding="utf-8"))
        assert found == [], name_of(page)


ENVIRONMENTS = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
EXAMPLES = [code for code in blocks(ENVIRONMENTS, "python") if re.search(r"^class \w+Env", code, re.M)]
KINDS = ["single_turn", "multi_turn", "tool_use"]


def test_there_is_an_example_of_each_kind() -> None:
    assert len(EXAMPLES) == len(KINDS)
    assert 'game_type = "single_turn"' in EXAMPLES[0] and "Env(ToolEnv)" in EXAMPLES[2]


@pytest.mark.parametrize(("code", "kind"), list(zip(EXAMPLES, KINDS, strict=True)), ids=KINDS)
def test_examples_pass_the_validator_with_the_strict_floor(code: str, kind: GameType) -> None:
    from spade.config import ValidateConfig
    from spade.envs import check_env

    for given in (None, kind):
        assert check_env(code, validator=ValidateConfig(floor_max=0.05), game_type=given).accepted


def test_the_table_of_stages_is_the_validators_own() -> None:
    from spade.envs.battery import STAGES

    table = ENVIRONMENTS.partition("## Validation")[2].partition("## Security")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == list(STAGES)


def test_every_reason_code_of_the_validator_is_explained() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "spade" / "envs").glob("*.py")]
    codes = {code for text in sources for code in re.findall(r'Refused\(\s*"(\w+)"', text)}
    assert len(codes) > 15
    assert {code for code in codes if f"`{code}`" not in ENVIRONMENTS} == set()


def test_every_fault_code_and_ending_is_explained() -> None:
    from spade.errors import FaultCode, FaultKind
    from spade.types import EpisodeEnd

    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    words = [*FaultCode, *FaultKind, *(end for end in EpisodeEnd if end is not EpisodeEnd.FAULT)]
    assert [word for word in words if f"`{word}`" not in text] == []
