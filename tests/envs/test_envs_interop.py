"""Pools for other frameworks: what is written, what comes back, and play inside the real packages.

The packages other than gymnasium are extras. Each is tried in a process of its own, since some seed or patch
what is global.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade.cli.main import main
from spade.config import SandboxConfig, ValidateConfig
from spade.envs.interop import FRAMEWORKS, export_framework
from spade.envs.interop.export import package_name, program_ids
from spade.envs.interop.foreign import adapted, is_foreign
from spade.envs.pool import Pool, read_pool, write_pool
from spade.envs.pool_exchange import import_programs
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate_many
from spade.errors import InputError
from spade.play.text_game import TextGame
from spade.types import EnvProgram
from tests.train.scripted_world import guess_program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "environments.md"
STOCK = next(
    c for c in PAGE.read_text(encoding="utf-8").split("```python\n") if "class StockEnv" in c
).partition("```")[0]
ROOT = Path(__file__).resolve().parents[2]
MODULES = {"gem": "gem", "verifiers": "verifiers", "openenv": "openenv"}
for _name in (name for name, module in MODULES.items() if find_spec(module) is None):
    warnings.warn(f"tests of pools inside {_name} DID NOT RUN: no module {MODULES[_name]}", stacklevel=1)


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(MODULES[name]) is None, reason=f"NOT RUN: needs the extra {name}")


@pytest.fixture(scope="module")
def pool() -> Pool:
    codes = {guess_program(16, 6): "multi_turn", STOCK: "tool_use"}
    programs = [
        EnvProgram.of(code, skill="S", game_type=kind, hint="h", source="pool")
        for code, kind in codes.items()
    ]  # type: ignore[arg-type]
    return Pool(tuple(programs), 7, {"licence": "MIT"})


@pytest.mark.parametrize("framework", list(FRAMEWORKS))
def test_every_export_holds_the_programs_and_comes_back(pool: Pool, framework: str, tmp_path: Path) -> None:
    out = export_framework(pool, tmp_path / "My Pool", framework)
    assert read_pool(out / "my_pool" / "pool") == pool
    assert import_programs(out) == pool
    assert json.loads((out / "my_pool" / "ids.json").read_text()) == program_ids(pool)
    texts = [
        p for p in out.rglob("*") if p.suffix in (".py", ".toml", ".md", ".yaml") or p.name == "Dockerfile"
    ]
    ours = [p for p in texts if "programs" not in p.parts]
    assert len(ours) >= 3
    assert not [p for p in ours if "@" in p.read_text().replace("@property", "").replace("@vf", "")]
    for path in (p for p in ours if p.suffix == ".py"):
        compile(path.read_text(), str(path), "exec")
    assert FRAMEWORKS[framework] in (out / "pyproject.toml").read_text()


def test_names_and_places(pool: Pool, tmp_path: Path) -> None:
    assert [package_name(t) for t in ("a b-c", "9 lives", "--", "Ü")] == [
        "a_b_c",
        "pool_9_lives",
        "pool",
        "pool",
    ]
    assert [name.split("-")[0] for name in program_ids(pool)] == ["Guess", "Stock"]
    with pytest.raises(InputError, match="is no name for a package"):
        export_framework(pool, tmp_path / "x", "gem", "My-Pool")
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "file").touch()
    with pytest.raises(InputError, match="is there already"):
        export_framework(pool, tmp_path / "y", "gem")


@given(st.text())
def test_any_folder_gives_a_package_name(text: str) -> None:
    name = package_name(text)
    assert name.isidentifier() and name.islower() and name.isascii()


def test_what_comes_back_may_not_leave_its_folder_or_differ(pool: Pool, tmp_path: Path) -> None:
    out = export_framework(pool, tmp_path / "one", "gem")
    file = next((out / "one" / "pool" / "programs").glob("*.py"))
    file.write_text(file.read_text() + "\n")
    with pytest.raises(InputError, match="does not match its sha256"):
        import_programs(out)
    other = export_framework(pool, tmp_path / "two", "gem")
    (other / "two" / "pool").rename(tmp_path / "outside")
    (other / "two" / "pool").symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match="symbolic link"):
        import_programs(other)


def test_the_command(pool: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pool(tmp_path / "pool", pool)
    out = tmp_path / "gems"
    command = ["pool", "export", str(tmp_path / "pool")]
    assert main([*command, "--format", "gem", "--name", "jewels", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"programs": 2, "out": str(out)}
    assert (out / "jewels" / "__init__.py").is_file()
    assert main([*command, "--name", "x", "--out", str(tmp_path / "z")]) == 2
    assert "--name belongs to the formats" in capsys.readouterr().err


def test_a_text_game_reads_whole_replies(pool: Pool) -> None:
    guess, stock = (TextGame(p) for p in pool.programs)
    try:
        first = guess.reset(3)
        assert "1 to 16" in first and "\\boxed{}" in first
        (winning,) = guess.solution()
        loose = guess.step("I would say 5 without a box")
        assert not loose.done and loose.reward == 0
        step = guess.step(f"<think>no \\boxed{{99}}</think> First \\boxed{{0}}, no: {winning}")
        assert (step.reward, step.terminated, step.done) == (1.0, True, True)
        listed = stock.reset(1)
        assert '"look_up"' in listed and "<tool_call>" in listed and len(stock.tools) == 3
        *calls, answer = stock.solution()
        assert [stock.step(call).done for call in calls] == [False] * len(calls)
        assert stock.step(answer).reward == 1.0 and stock.turns == len(calls) + 1
    finally:
        guess.close()
        stock.close()


# --- the other way ---------------------------------------------------------------------------------------


GEM_GAME = """
import random
from typing import Any, Optional, SupportsFloat, Tuple
from gem.core import Env
from gem.utils.constants import TERMINAL_STATE, LanguageGameReward
from gem.utils.parsing import extract_last_boxed_answer


class HalvesEnv(Env):
    max_turns = 7

    def __init__(self, top: int = 100, **_):
        super().__init__()
        self.top = top
        self.reset()

    def reset(self, seed: Optional[int] = None) -> Tuple[str, dict[str, Any]]:
        super().reset(seed)
        self.goal, self.turn = random.randint(1, self.top), 0
        return f"Find a number from 1 to {self.top}; write it in a box.", {}

    def step(self, action: str) -> Tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        self.turn += 1
        said = extract_last_boxed_answer(action)
        late = self.turn >= self.max_turns
        if said is None or not said.strip().isdigit():
            return "No number.", LanguageGameReward.format_error_reward, False, late, {}
        if int(said) == self.goal:
            return TERMINAL_STATE, LanguageGameReward.success_reward, True, False, {}
        return "higher" if int(said) < self.goal else "lower", 0.0, False, late, {}

    def solution(self):
        return str(self.goal)
"""
GYM_GAME = """
import gymnasium as gym
import numpy as np
from gymnasium import spaces


class TwiceEnv(gym.Env):
    metadata = {"render_modes": []}
    game_type = "single_turn"
    max_turns = 1

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Text(100)
        self.action_space = spaces.Text(20)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(100, 900))
        self.order = self.np_random.permutation([3, 5, 7])
        return f"What is {self.number} times {self.order[0]}?", {}

    def step(self, action):
        right = action == "\\\\boxed{" + self.solution() + "}"
        return "done", float(right), True, False, {}

    def solution(self):
        return str(self.number * self.order[0])
"""


async def test_sources_for_gem_and_gymnasium_become_programs(tmp_path: Path) -> None:
    (tmp_path / "halves.py").write_text(GEM_GAME)
    (tmp_path / "twice.py").write_text(GYM_GAME.replace("import numpy as np\n", ""))
    found = import_programs(tmp_path).programs
    assert not any(
        word in p.code for p in found for word in ("import gem", "gymnasium", "from gem", "spaces")
    )
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        verdicts = await validate_many(found, sandbox, ValidateConfig(floor_max=0.05))
    assert [v.code for v in verdicts] == ["accepted", "accepted"], [v.failed for v in verdicts]


def test_what_is_not_foreign_stays_as_it_is() -> None:
    for code in ("x = (", "import random\n", STOCK):
        assert adapted(code) == code
    assert not is_foreign("import gemma\n") and is_foreign("def f():\n    import gym\n")


# --- inside the packages ---------------------------------------------------------------------------------


def inside(out: Path, script: str, *args: str) -> str:
    """Run a script with the export importable; returns what it prints."""
    path = os.pathsep.join([str(out), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", script, *args]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, cwd=out)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


GYM = """
import gymnasium, shelf
made = {}
for name in shelf.IDS:
    env = gymnasium.make(name)
    first, info = env.reset(seed=3)
    assert first == env.reset(seed=3)[0] != ""
    for action in env.unwrapped.solution():
        observation, reward, terminated, truncated, _ = env.step(action)
    assert terminated and reward == 1.0, (name, observation)
    env.close()
    made[name] = reward
vector = gymnasium.make_vec(list(shelf.IDS)[0], num_envs=2, vectorization_mode="sync")
observations, _ = vector.reset(seed=[1, 2])
assert len(observations) == 2
vector.close()
print(made)
"""


def test_gymnasium_makes_and_plays_every_program(pool: Pool, tmp_path: Path) -> None:
    out = export_framework(pool, tmp_path / "shelf", "gymnasium")
    assert inside(out, GYM).count("1.0") == 2


GEM = """
import gem, shelf, random
for name in shelf.IDS:
    env = gem.make(name)
    random.seed(5); before = random.getstate()
    first, info = env.reset(seed=3)
    assert random.getstate() == before and info["seed"] == 3
    *some, last = env.game.solution()
    for action in some:
        assert env.step(action)[2] is False
    twin = env.spawn(same_state=True)
    results = [e.step(last) for e in (env, twin)]
    assert results[0] == results[1] and results[0][1:4] == (1.0, True, False), results
    env.close(); twin.close()
vector = gem.make_vec(list(shelf.IDS)[:1] * 2, seed=4)
observations, infos = vector.reset()
assert len(observations) == 2
print("played", len(shelf.IDS))
"""


@needs("gem")
def test_gem_makes_spawns_and_plays_every_program(pool: Pool, tmp_path: Path) -> None:
    out = export_framework(pool, tmp_path / "shelf", "gem")
    assert "played 2" in inside(out, GEM)


OPENENV = """
import socket, threading, time, uvicorn
from shelf import PoolAction, PoolClient
from shelf.server.app import app
from shelf.server.environment import PoolEnvironment, IDS
from spade.play.text_game import TextGame
from pathlib import Path
import shelf
with socket.socket() as s:
    s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
threading.Thread(target=server.run, daemon=True).start()
while not server.started: time.sleep(0.05)
url = f"http://127.0.0.1:{port}"
with PoolClient(base_url=url).sync() as one, PoolClient(base_url=url).sync() as two:
    for index, code in enumerate(IDS.values()):
        game = TextGame(Path(shelf.__file__).parent / "pool" / "programs" / f"{code}.py")
        first = game.reset(3)
        result = one.reset(index=index, seed=3)
        assert result.observation.text == first and result.observation.program == code and not result.done
        two.reset(program=code, seed=4)
        for reply in game.solution():
            result = one.step(PoolAction(message=reply))
        assert result.done and result.reward == 1.0, result
        assert one.state().step_count == len(game.solution())
        game.close()
    assert two.step(PoolAction(message="\\\\boxed{x}")).done is False
env = PoolEnvironment()
assert env.num_tasks("pool") == len(IDS) and env.get_task("pool", 1)["index"] == 1
server.should_exit = True
print("served", len(IDS))
"""


@needs("openenv")
def test_openenv_serves_the_pool_to_two_sessions(pool: Pool, tmp_path: Path) -> None:
    out = export_framework(pool, tmp_path / "shelf", "openenv")
    assert "served 2" in inside(out, OPENENV)
    done = subprocess.run(
        [sys.executable, "-m", "openenv.cli", "validate", str(out)], capture_output=True, text=True
    )
    print(done.stdout, done.stderr)


VERIFIERS = """
import asyncio, types
import verifiers.v1 as vf
from verifiers.v1.utils.loaders import environment_class, load_taskset, resolve_env_config, taskset_class
config = resolve_env_config({"taskset": {"id": "shelf", "seeds": 2}})
env = environment_class("shelf")(config)
tasks = list(env.taskset)
assert len(tasks) == 4 and len({t.key for t in tasks}) == 4 and tasks[0].data.prompt
from shelf import PoolEnv
from shelf import open_game


class Segment(types.SimpleNamespace):
    pass


class Talk:
    '''Stands in for the model: replies with the program's own solution, or with nonsense.'''

    def __init__(self, task, wins):
        self.trace = Record()
        game = open_game(task.data.program)
        game.reset(task.data.seed)
        self.replies = game.solution() if wins else ["\\\\boxed{zzz}"] * 60
        game.close()
        self.heard = []

    async def __aenter__(self): return self
    async def __aexit__(self, *_): return None
    async def turn(self, text=None):
        self.heard.append(text)
        if not self.replies:
            self.trace.errors.append("no endpoint")
            return Segment(terminated=True, last_reply="")
        return Segment(terminated=False, last_reply=self.replies[len(self.heard) - 1])


class Record:
    def __init__(self): self.rewards, self.metrics, self.errors = {}, {}, []
    def record_reward(self, name, value, weight): self.rewards[name] = value
    def record_metric(self, name, value): self.metrics[name] = value


async def play(task, wins, silent=False):
    talk = Talk(task, wins)
    talk.replies = [] if silent else talk.replies
    agents = types.SimpleNamespace(player=types.SimpleNamespace(interaction=lambda t: talk))
    await env.run(task, agents)
    return talk.trace


for task in tasks:
    won, lost = asyncio.run(play(task, True)), asyncio.run(play(task, False))
    assert won.rewards == {"program": 1.0} and lost.rewards == {"program": 0.0}, (won.rewards, lost.rewards)
assert asyncio.run(play(tasks[0], True, silent=True)).rewards == {}
print("played", len(tasks))
"""


@needs("verifiers")
def test_verifiers_loads_the_taskset_and_its_environment_plays(pool: Pool, tmp_path: Path) -> None:
    out = export_framework(pool, tmp_path / "shelf", "verifiers")
    assert "played 4" in inside(out, VERIFIERS)
