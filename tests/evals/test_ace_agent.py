"""ACEBench-Agent through the whole pipeline: oracle, null, refused calls, the simulated user, resuming."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ace_data import write_items
from qa_data import DATA, needs
from question_fakes import FreePolicy, chat_of

from spade.config import ServingConfig
from spade.errors import BackendError, ConfigError
from spade.serving.chat import ChatPolicy
from spade.serving.scripted import ScriptedPolicy
from spade_evals.dialogue import Transcript
from spade_evals.presets import load_preset
from spade_evals.question import QuestionSuite, Task
from spade_evals.question_run import Options, ask_suite, regrade_suite
from spade_evals.runner import Subject
from spade_evals.suites.acebench.audit import UNSCORABLE
from spade_evals.suites.acebench.prompts import FINISH, NUDGE
from spade_evals.suites.acebench.tasks import AgentTask, MultiStep, MultiTurn
from spade_evals.task_report import SuiteReport
from spade_evals.users import OpenUser, open_user, scripted_reply, scripted_user, wanted_user

USER = OpenUser(scripted_user(), {"ref": "scripted:user"})


def says(fn: Callable[[str], str], free: bool = False) -> ChatPolicy:
    """A policy that answers by a function of the prompt."""
    made = FreePolicy if free else ScriptedPolicy
    return chat_of(made.from_function(fn, max_rows=4))


def hold(
    out: Path,
    tasks: list[Task],
    agent: ChatPolicy | str = "oracle",
    user: OpenUser | None = USER,
    root: Path | None = None,
    regrade: bool = False,
    **options: Any,
) -> SuiteReport:
    """Hold all conversations of tasks."""
    chat = agent if isinstance(agent, ChatPolicy) else chat_of(ScriptedPolicy(agent, max_rows=8))
    suite = QuestionSuite("talks", tasks)
    who, more = Subject("ckpt", "abc"), Options(data_root=root, **options)
    if regrade:
        return asyncio.run(regrade_suite(chat, suite, None, out, who, options=more))
    return asyncio.run(ask_suite(chat, suite, None, out, who, options=more, quiet=True, user=user))


def lines(out: Path, task: str) -> list[dict[str, Any]]:
    """The stored samples."""
    text = (out / "talks" / f"{task}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def preset(path: Path, **settings: Any) -> str:
    """A preset file with these settings for both tasks."""
    tasks = {"ace_multi_step": settings, "ace_multi_turn": settings}
    path.write_text(json.dumps({"defaults": {"temperature": 0.0, "max_tokens": 1000}, "tasks": tasks}))
    return str(path)


# --- the published items -------------------------------------------------------------------------------


@needs("acebench_en")
def test_oracle_and_null_on_the_published_items_under_both_variants(tmp_path: Path) -> None:
    report = hold(tmp_path, [MultiStep(), MultiTurn()], root=DATA)
    step, turn = (task.score for task in report.tasks)
    assert step is not None and turn is not None
    assert (step.all.mean, step.all.items, turn.all.mean, turn.all.items) == (1.0, 20, 1.0, 30)
    assert step.parts["process"].mean == 1.0
    assert step.parts["strict"].mean == pytest.approx(18 / 20)
    assert turn.all.items - turn.sound.items == 5

    strict = hold(
        tmp_path, [MultiStep(), MultiTurn()], root=DATA, preset=preset(tmp_path / "p.yaml", variant="strict")
    )
    step, turn = (task.score for task in strict.tasks)
    assert step is not None and turn is not None
    assert step.all.mean == pytest.approx(18 / 20)
    assert step.sound.mean == turn.all.mean == 1.0
    assert step.all.items - step.sound.items + turn.all.items - turn.sound.items == len(UNSCORABLE)
    assert step.parts["official"].mean == 1.0
    assert strict.result.protocol != report.result.protocol

    null = hold(tmp_path / "null", [MultiStep(), MultiTurn()], "null", root=DATA)
    assert null.result.score[0] == 0.0
    assert all(task.score and task.score.no_answer == 1.0 for task in null.tasks)


@needs("acebench_en")
def test_stored_conversations_are_graded_again_under_another_variant(tmp_path: Path) -> None:
    first = hold(tmp_path, [MultiStep()], root=DATA, preset=preset(tmp_path / "p.yaml", variant="official"))
    before = [line["text"] for line in lines(tmp_path, "ace_multi_step")]

    def refuse(prompt: str) -> str:
        raise AssertionError("nothing is to be asked again")

    again = hold(
        tmp_path, [MultiStep()], says(refuse), root=DATA, preset=preset(tmp_path / "p.yaml", variant="strict")
    )
    assert [line["text"] for line in lines(tmp_path, "ace_multi_step")] == before
    assert (first.result.score[0], again.result.score[0]) == (1.0, pytest.approx(0.9))
    assert hold(tmp_path, [MultiStep()], root=DATA, regrade=True).result.score == again.result.score


# --- the loops -----------------------------------------------------------------------------------------


def test_a_multi_step_agent_sees_results_but_not_its_own_calls(tmp_path: Path) -> None:
    seen: list[str] = []

    def agent(prompt: str) -> str:
        seen.append(prompt)
        replies = ["I think about it.", "[login_device()]", "[turn_on_wifi()]", FINISH]
        return replies[min(len(seen) - 1, 3)]

    data = write_items(tmp_path, "agent_multi_step", 1)
    report = hold(tmp_path, [MultiStep(data)], says(agent), root=tmp_path)
    assert report.result.score[0] == 1.0
    last = seen[-1]
    assert last.count("user:Please switch") == 1
    assert f"execution result:{NUDGE}\n" in last
    assert "execution result:[{'status': True, 'message': 'Wi-Fi has been turned on'}]" in last
    assert "[turn_on_wifi()]" not in last and "I think about it." not in last
    transcript = Transcript.of(lines(tmp_path, "ace_multi_step")[0]["text"])
    assert transcript.end == "done"
    assert [m.get("to") for m in transcript.messages if m["role"] == "assistant"] == ["execution"] * 3 + [
        "nobody"
    ]
    # said as the very first words, they do not end the conversation
    early = hold(tmp_path / "early", [MultiStep(data)], says(lambda prompt: FINISH), root=tmp_path)
    assert early.result.score[0] == 0.0
    assert len(Transcript.of(lines(tmp_path / "early", "ace_multi_step")[0]["text"]).messages) == 4


def test_a_conversation_ends_after_forty_messages(tmp_path: Path) -> None:
    data = write_items(tmp_path, "agent_multi_step", 1)
    hold(tmp_path, [MultiStep(data)], says(lambda prompt: "[login_device()]"), root=tmp_path)
    transcript = Transcript.of(lines(tmp_path, "ace_multi_step")[0]["text"])
    assert (transcript.end, len(transcript.messages)) == ("steps", 41)
    part = lines(tmp_path, "ace_multi_step")[0]["parts"]
    assert part == {"process": 0.5, "strict": 0.0}


def test_agent_and_user_take_turns(tmp_path: Path) -> None:
    """The agent asks, the user answers, the agent acts; each sees the other's words only."""
    asked: list[str] = []

    def agent(prompt: str) -> str:
        _, _, history = prompt.partition("The conversation so far:\n")
        if "agent:" not in history:
            return "Shall I log in?"
        if "execution:" not in history:
            return "[login_device(), turn_on_wifi()]"
        return "It is done. " + FINISH

    def user(prompt: str) -> str:
        asked.append(prompt)
        return scripted_reply(prompt)

    data = write_items(tmp_path, "agent_multi_turn", 1)
    report = hold(tmp_path, [MultiTurn(data)], says(agent), OpenUser(says(user), {"ref": "test"}), tmp_path)
    assert report.result.score[0] == 1.0
    [line] = lines(tmp_path, "ace_multi_turn")
    roles = [m["role"] for m in Transcript.of(line["text"]).messages]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant"]
    assert "Shall I log in?" in asked[1] and "Your task: Please switch Wi-Fi on" in asked[1]
    assert "login_device" not in asked[1]  # the user does not see the functions
    assert line["parts"] == {"process": 1.0, "strict": 1.0}


def test_generation_limits_reach_the_agent_and_are_counted(tmp_path: Path) -> None:
    limits: list[int] = []

    class Counting(ScriptedPolicy):
        async def generate(self, prompts: Any, params: Any, n: int = 1) -> Any:
            limits.extend(p.max_tokens for p in params)
            return await super().generate(prompts, params, n)

    data = write_items(tmp_path, "agent_multi_step", 1)
    hold(tmp_path, [MultiStep(data)], chat_of(Counting("null")), root=tmp_path)
    assert set(limits) == {1000}
    limits.clear()
    small = preset(tmp_path / "p.yaml", max_tokens=77)
    hold(tmp_path / "small", [MultiStep(data)], chat_of(Counting("null")), root=tmp_path, preset=small)
    assert set(limits) == {77}


def test_an_agent_without_room_ends_the_conversation(tmp_path: Path) -> None:
    data = write_items(tmp_path, "agent_multi_step", 2)
    chat = chat_of(ScriptedPolicy("null", context_length=200))
    report = hold(tmp_path, [MultiStep(data)], chat, root=tmp_path)
    score = report.tasks[0].score
    assert score is not None and score.truncated == 1.0
    assert score.verdicts == {"truncated": 2}


# --- calls that may not be run -------------------------------------------------------------------------

MALICIOUS = {
    "[__import__('os').system('touch /tmp/ace-was-here')]": "private_name",
    "__import__('os').system('touch /tmp/ace-was-here')": "private_name",
    "[login_device(), __import__('os').remove('x')]": "private_name",
    "[login_device(x=__import__('os').system('id'))]": "private_name",
    "[login_device(x=().__class__.__bases__)]": "private_name",
    "[login_device(x=open('/etc/passwd').read())]": "not_literal",
    "[login_device(x=[i for i in (1, 2)])]": "not_literal",
    "[login_device(x=f'{1}')]": "not_literal",
    "[login_device(x=9**9**9)]": "not_literal",
    "[delete_message(message_id=" + "9" * 5000 + ")]": "bad_number",
    "[delete_message(message_id='" + "a" * 50_000 + "')]": "too_long",
    "[" + ", ".join(["login_device()"] * 10_000) + "]": "too_",
    "[delete_message(message_id=" + "[" * 500 + "]" * 500 + ")]": "too_deep",
}


@pytest.mark.parametrize(
    ("task", "reply"),
    [
        (task, reply)
        for task in (MultiStep, MultiTurn)
        for reply in MALICIOUS
        if task is MultiStep or reply.startswith("[")  # without brackets it would go to the user
    ],
)
def test_malicious_calls_are_refused_and_nothing_of_the_reply_is_run(
    task: type[AgentTask], reply: str, tmp_path: Path
) -> None:
    data = write_items(tmp_path, task.category, 1)
    report = hold(tmp_path, [task(data)], says(lambda prompt: reply), root=tmp_path)
    [line] = lines(tmp_path, task.name)
    assert line["verdict"] == "refused"
    assert line["detail"].startswith(MALICIOUS[reply])
    assert line["outcome"]["value"] == 0.0
    assert line["extracted"] == ""  # not even the harmless call beside it
    assert Transcript.of(line["text"]).end == "refused"
    assert not Path("/tmp/ace-was-here").exists()
    assert f"{task.name}: process" in str(report) and "refused 1" in str(report)


# --- the simulated user --------------------------------------------------------------------------------


def test_without_a_user_the_task_is_not_run(tmp_path: Path) -> None:
    data = write_items(tmp_path, "agent_multi_turn", 1)
    report = hold(tmp_path, [MultiTurn(data)], user=None, root=tmp_path)
    [task] = report.tasks
    assert (task.state, task.command) == ("not run", "--user REF")
    assert "user" in task.reason
    assert not report.ok


def test_a_user_that_says_nothing_or_has_no_room_is_no_score_of_the_agent(tmp_path: Path) -> None:
    data = write_items(tmp_path, "agent_multi_turn", 2)
    silent = OpenUser(says(lambda prompt: ""), {"ref": "silent"})
    report = hold(tmp_path, [MultiTurn(data)], user=silent, root=tmp_path)
    score = report.tasks[0].score
    assert score is not None
    assert (score.faults, score.all.samples, score.missing) == ({"user": 2}, 0, 0)
    assert "faults of kind user: 2" in str(report)
    small = OpenUser(chat_of(ScriptedPolicy("null", context_length=50)), {"ref": "small"})
    again = hold(tmp_path / "small", [MultiTurn(data)], user=small, root=tmp_path)
    assert again.tasks[0].score is not None and again.tasks[0].score.faults == {"user": 2}
    [line, _] = lines(tmp_path / "small", "ace_multi_turn")
    assert "no room" in line["detail"]


def test_a_user_that_is_lost_leaves_the_sample_open(tmp_path: Path) -> None:
    class Broken(ScriptedPolicy):
        async def generate(self, prompts: Any, params: Any, n: int = 1) -> Any:
            raise BackendError("the endpoint is gone")

    data = write_items(tmp_path, "agent_multi_turn", 2)
    broken = OpenUser(chat_of(Broken("null")), {"ref": "broken"})
    report = hold(tmp_path, [MultiTurn(data)], user=broken, root=tmp_path)
    [task] = report.tasks
    assert task.state == "partial" and task.score is not None
    assert (task.score.missing, task.score.faults, task.score.all.samples) == (2, {}, 0)
    assert "plays the user" in task.reason
    again = hold(
        tmp_path, [MultiTurn(data)], user=OpenUser(scripted_user(), {"ref": "broken"}), root=tmp_path
    )
    assert again.complete and again.result.score[0] == 1.0


def test_who_the_user_is_belongs_to_the_protocol(tmp_path: Path) -> None:
    data = write_items(tmp_path, "agent_multi_turn", 1)

    def fingerprint(name: str, user: OpenUser = USER, **section: Any) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps({"defaults": {"temperature": 0.0}, "user": section}))
        report = hold(tmp_path / name, [MultiTurn(data)], user=user, root=tmp_path, preset=str(path))
        return report.result.protocol

    base = fingerprint("base")
    assert fingerprint("same") == base
    assert fingerprint("other", OpenUser(scripted_user(), {"ref": "another"})) != base
    assert fingerprint("warm", temperature=0.7) != base
    assert fingerprint("short", max_tokens=10) != base


def test_the_user_is_named_by_the_command_or_the_preset_and_never_the_tested_policy(tmp_path: Path) -> None:
    suites = [QuestionSuite("talks", [MultiTurn(write_items(tmp_path, "agent_multi_turn", 1))])]
    assert wanted_user(suites, None) == ""
    assert wanted_user(suites, Options(user="openai:m@http://x")) == "openai:m@http://x"
    path = tmp_path / "p.yaml"
    path.write_text('user: {ref: "scripted:user", max_tokens: 9}')
    assert wanted_user(suites, Options(preset=str(path))) == "scripted:user"
    alone = [QuestionSuite("alone", [MultiStep(write_items(tmp_path, "agent_multi_step", 1))])]
    assert wanted_user(alone, Options(user="scripted:user")) == ""

    async def opened() -> tuple[OpenUser, OpenUser]:
        tested = chat_of(ScriptedPolicy("oracle"))
        one = await open_user("scripted:oracle", ServingConfig(), ("scripted:oracle", tested))
        return one, await open_user("scripted:user", ServingConfig(), ("scripted:oracle", tested))

    one, two = asyncio.run(opened())
    assert not one.shared and not two.shared and one.key != two.key


def test_agent_and_user_have_seeds_of_their_own(tmp_path: Path) -> None:
    seeds: dict[str, list[int]] = {"agent": [], "user": []}

    def noting(role: str, kind: str) -> ChatPolicy:
        class Noting(ScriptedPolicy):
            async def generate(self, prompts: Any, params: Any, n: int = 1) -> Any:
                seeds[role].extend(p.seed for p in params)
                return await super().generate(prompts, params, n)

        return chat_of(Noting(kind))

    data = write_items(tmp_path, "agent_multi_turn", 2)
    user = OpenUser(noting("user", "constant:Go on."), {"ref": "constant"})
    hold(tmp_path, [MultiTurn(data)], noting("agent", "constant:Hm."), user, tmp_path)
    both = seeds["agent"] + seeds["user"]
    assert len(both) > 40 and len(set(both)) == len(both)


def test_a_preset_says_who_the_user_is_and_misspelt_keys_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    for text, words in (
        ("user: {reff: x}", "unknown key 'reff' under user"),
        ("user: {ref: 3}", "user.ref"),
        ("user: {temperature: hot}", "user.temperature"),
        ("user: {n: 2}", "unknown key 'n'"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            load_preset(str(path))
    path.write_text("tasks: {ace_multi_turn: {variant: lenient}}")
    data = write_items(tmp_path, "agent_multi_turn", 1)
    with pytest.raises(ConfigError, match="no variant 'lenient'"):
        hold(tmp_path / "out", [MultiTurn(data)], root=tmp_path, preset=str(path))


@needs("acebench_en")
def test_the_command_line_takes_a_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from spade.cli.main import main

    command = [
        "eval",
        "--ckpt",
        "scripted:oracle",
        "--suite",
        "acebench",
        "--limit",
        "2",
        f"data.root={DATA}",
    ]
    assert main([*command, "--out", str(tmp_path / "with"), "--user", "scripted:user"]) == 0
    assert "score 1.000" in capsys.readouterr().out
    assert main([*command, "--out", str(tmp_path / "without")]) == 1
    said = capsys.readouterr().out
    assert "ace_multi_turn: not run: needs a second model to play the user; get it with: --user REF" in said


# --- resuming ------------------------------------------------------------------------------------------

CHILD = """
import asyncio, json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ace_data import write_items
from test_ace_agent import USER, says
from spade_evals.question import QuestionSuite
from spade_evals.question_run import Options, ask_suite
from spade_evals.runner import Subject
from spade_evals.suites.acebench.tasks import MultiStep

root, out, slow = Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4] == "slow"
data = write_items(root, "agent_multi_step", 12)

def agent(prompt):
    if slow and "item 6" in prompt.replace("log in, 6", "item 6"):
        time.sleep(60)  # killed meanwhile
    return "[login_device(), turn_on_wifi()]" if "execution result" not in prompt else "finish conversation"

suite = QuestionSuite("talks", [MultiStep(data)])
report = asyncio.run(ask_suite(says(agent), suite, None, out, Subject("ckpt", "abc"),
                               options=Options(data_root=root), quiet=True, user=USER))
print(json.dumps([report.result.score, report.complete]))
"""


def test_a_killed_run_resumes_to_what_one_run_gives(tmp_path: Path) -> None:
    def child(out: Path, how: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(tmp_path), str(out), how]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))

    path = tmp_path / "killed" / "talks" / "ace_multi_step.jsonl"
    running = child(tmp_path / "killed", "slow")
    try:
        deadline = time.monotonic() + 60
        while not (path.is_file() and path.read_text().count("\n") >= 4):
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    stored = path.read_text().splitlines()
    assert 4 <= len(stored) < 12
    path.write_text(path.read_text() + '{"key": "torn')
    outputs = []
    for out in ("killed", "whole"):
        done = child(tmp_path / out, "fast")
        outputs.append(done.communicate(timeout=120)[0])
        assert done.returncode == 0
    assert outputs[0] == outputs[1] == "[[1.0, 0.0, 12], true]\n"
    assert path.read_text().splitlines()[: len(stored)] == stored  # nothing was asked twice

    def texts(out: str) -> dict[str, str]:
        return {line["item_id"]: line["text"] for line in lines(tmp_path / out, "ace_multi_step")}

    assert texts("killed") == texts("whole")


def test_engines_in_lockstep_and_free_ones_hold_the_same_conversations(tmp_path: Path) -> None:
    def agent(prompt: str) -> str:
        _, _, history = prompt.partition("The conversation so far:\n")
        return "[login_device(), turn_on_wifi()]" if "execution:" not in history else FINISH

    data = write_items(tmp_path, "agent_multi_turn", 9)
    texts = []
    for free in (False, True):
        out = tmp_path / str(free)
        report = hold(out, [MultiTurn(data)], says(agent, free), root=tmp_path)
        assert report.result.score[0] == 1.0
        texts.append({line["item_id"]: line["text"] for line in lines(out, "ace_multi_turn")})
    assert texts[0] == texts[1] and len(texts[0]) == 9
