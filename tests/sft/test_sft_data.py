"""Sources become conversations, and conversations the tokens a model would be sampled with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spade.config import Config
from spade.design.corpus import Corpus
from spade.design.parse import extract_code
from spade.design.prompts import agent_message, designer_messages
from spade.envs.pool import Pool, write_pool
from spade.errors import InputError
from spade.play.actions import BoxedCodec
from spade.runs import RunFolder
from spade.serving.render import Renderer
from spade.sft.data import Choice, Talk, read_source
from spade.sft.rows import IGNORED, Row, cut, rows_of
from spade.types import EnvProgram, Message, ToolCall

CODE = "class GuessEnv:\n    def reset(self, seed):\n        return 'go', {}\n"


@pytest.fixture(scope="module")
def renderer(shipped_model: Path) -> Renderer:
    return Renderer.from_folder(shipped_model)


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- sources ---------------------------------------------------------------------------------------------


def test_messages_and_prompt_completion_pairs_are_read(tmp_path: Path) -> None:
    say = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes."}]
    call = {"type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    path = lines(
        tmp_path / "a.jsonl",
        {"messages": say},
        {"prompt": "Q", "completion": "A"},
        {
            "prompt": say,
            "completion": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}],
        },
        {
            "messages": [say[0], {"role": "assistant", "content": None, "tool_calls": [call]}],
            "tools": [{"a": 1}],
        },
    )
    talks = read_source(path, Choice())
    assert talks[0] == Talk((Message("user", "Hi."), Message("assistant", "Yes.")))
    assert talks[1] == Talk((Message("user", "Q"), Message("assistant", "A")), first=1)
    assert talks[2].first == 2 and len(talks[2].messages) == 4
    assert talks[3].messages[1].tool_calls == (ToolCall("look", {"at": 1}),) and talks[3].tools == ({"a": 1},)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"text": "x"}, "neither messages nor prompt"),
        ({"messages": []}, "not empty"),
        ({"messages": [{"role": "user", "content": "x"}]}, "the assistant says nothing"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "needs a role"),
        ({"messages": [{"role": "user", "content": 3}]}, "needs a role"),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"name": "x"}]}]},
            "a tool call needs",
        ),
        ({"prompt": "x", "completion": "y", "tools": "z"}, "list of schemas"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: dict[str, Any], why: str) -> None:
    path = lines(tmp_path / "a.jsonl", {"prompt": "Q", "completion": "A"}, row)
    with pytest.raises(InputError, match=f"line 2.*{why}"):
        read_source(path, Choice())


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no data to learn from"):
        read_source(tmp_path, Choice())


def test_programs_answer_the_brief_they_were_written_for(tmp_path: Path) -> None:
    document = list(Corpus.load("builtin").documents)[3]
    program = EnvProgram.of(CODE, skill="Logical Deduction")
    write_pool(tmp_path, Pool((program,)))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["programs"][0]["brief"] = {"document": document.id, "difficulty": "hard"}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (talk,) = read_source(tmp_path, Choice())
    wanted = designer_messages(document.text, program.skill, "multi_turn", "hard", (), "short")
    assert talk.messages[:-1] == wanted
    assert extract_code(talk.messages[-1].content) == CODE
    with pytest.raises(InputError, match="nothing to learn from"):
        read_source(tmp_path, Choice(roles=("agent",)))


def run_folder(path: Path, game_type: str = "multi_turn") -> Path:
    cfg = Config.model_validate({"out": str(path), "design": {"game_type": game_type}})
    folder = RunFolder.create_or_resume(cfg, "train", "test")
    row = {"first": "Guess.", "actions": ["\\boxed{3}", "\\boxed{4}"], "observations": ["higher", "won"]}
    folder.append_many(
        "episodes.jsonl",
        [
            {**row, "step": 1, "hinted": False, "value": 1.0},
            {**row, "step": 1, "hinted": True, "value": 1.0},
            {**row, "step": 1, "hinted": False, "value": 0.5},
            {**row, "step": 1, "hinted": False, "value": None},
            {**row, "step": 2, "hinted": False, "value": 0.0, "actions": [], "observations": []},
        ],
    )
    write_pool(path / "pool", Pool((EnvProgram.of(CODE, skill="Optimization"),)))
    folder.finish()
    return path


def test_a_run_gives_its_good_plain_plays_and_its_programs(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    talks = read_source(run, Choice())
    assert len(talks) == 2 and len(read_source(run, Choice(min_return=0.5))) == 3
    (play,) = read_source(run, Choice(roles=("agent",)))
    assert [m.role for m in play.messages] == ["user", "assistant", "user", "assistant"]
    assert play.messages[0] == agent_message("Guess.", None, "short", BoxedCodec.instruction)
    assert [m.content for m in play.messages[1:]] == ["\\boxed{3}", "higher", "\\boxed{4}"]


def test_tool_use_plays_are_left_out(tmp_path: Path) -> None:
    assert len(read_source(run_folder(tmp_path / "run", "tool_use"), Choice())) == 1


# --- tokens ----------------------------------------------------------------------------------------------


def test_a_conversation_is_the_stream_that_sampling_would_make(renderer: Renderer) -> None:
    says = [
        Message("user", "One."),
        Message("assistant", "Two."),
        Message("user", "3"),
        Message("assistant", "4"),
    ]
    (row,) = rows_of(renderer, Talk(tuple(says)))
    ids = renderer.start(says[:1])
    said: list[int] = []
    for k in (1, 3):
        reply = [*renderer.said_ids(says[k].content), renderer.stop_token_ids[0]]
        said += reply
        ids += reply + (renderer.extend(says[: k + 1], says[k + 1 : k + 2], reply) if k == 1 else [])
    assert row.input_ids == ids
    assert [t for t in row.labels if t != IGNORED] == said
    assert all(label in (IGNORED, token) for label, token in zip(row.labels, row.input_ids, strict=True))


def test_only_replies_from_the_completion_on_are_learned(renderer: Renderer) -> None:
    says = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("assistant", "d"))
    (whole,), (part,) = (list(rows_of(renderer, Talk(says, first=first))) for first in (0, 2))
    assert whole.input_ids == part.input_ids
    learned = [t for t in part.labels if t != IGNORED]
    assert learned == [*renderer.said_ids("d"), renderer.stop_token_ids[0]]


def test_a_template_that_rewrites_gives_one_row_a_reply(
    renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renderer, "append_only", False)
    says = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("assistant", "d"))
    rows = list(rows_of(renderer, Talk(says)))
    assert len(rows) == 2 and len(list(rows_of(renderer, Talk(says, first=2)))) == 1
    assert rows[1].input_ids[: -len(renderer.said_ids("d")) - 1] == renderer.start(says[:3])


def test_calls_are_written_as_the_model_would(renderer: Renderer) -> None:
    says = (Message("user", "a"), Message("assistant", "Well.", (ToolCall("look", {"at": 1}),)))
    (row,) = rows_of(renderer, Talk(says))
    text = renderer.shown([t for t in row.labels if t != IGNORED])
    assert text.startswith("Well.\n<tool_call>") and '"name": "look"' in text


def test_rows_are_cut_and_dropped_when_nothing_is_left() -> None:
    row = Row([1, 2, 3, 4], [IGNORED, IGNORED, 3, 4])
    assert cut(row, 9) == row and cut(row, 3) == Row([1, 2, 3], [IGNORED, IGNORED, 3]) and cut(row, 2) is None
