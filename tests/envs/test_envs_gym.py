"""Programs as gymnasium environments: the text space, gymnasium's own checks, faults, sharing, vectors."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_programs import CASES, ECHO, game, needs_cases
from gymnasium import error
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from spade import _gymnasium
from spade.config import SandboxConfig
from spade.envs import blocking
from spade.envs.blocking import BlockingSandbox
from spade.envs.gym_env import ACTION_CHARS, ProgramBroke, ProgramEnv, UnicodeText
from spade.envs.wire import MAX_FRAME, Op, encode_request
from spade.errors import InputError, ProgramFault, SandboxError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "environments.md"
ONE_TURN = "\n".join([game(turns=1), "TaskEnv.game_type = 'single_turn'", ""])
"""Reports its end as `truncated` after a wrong answer, as many programs with one turn do."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good game.py").write_text(game())
    (tmp_path / "one_turn.py").write_text(ONE_TURN)
    (tmp_path / "echo.py").write_text(ECHO)
    for number, code in enumerate(PAGE.read_text(encoding="utf-8").split("```python\n")[1:]):
        if "Env" in (text := code.partition("```")[0]) and "class " in text:
            (tmp_path / f"page{number}.py").write_text(text)
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a shared sandbox, a thread or a process behind."""
    before = zygotes()
    yield
    gc.collect()
    assert blocking._shared == {}
    assert [t for t in threading.enumerate() if t.name == "spade-sandbox"] == []
    assert zygotes() - before == set()


def zygotes() -> set[int]:
    """Living zygotes that this process started."""
    found = set()
    for task in Path("/proc/self/task").iterdir():  # a process belongs to the thread that started it
        with contextlib.suppress(OSError):
            for pid in (task / "children").read_text().split():
                if b"zygote.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.add(int(pid))
    return found


def make(path: Path, **options: Any) -> Any:
    return gymnasium.make("spade/Program-v0", path=path, **options)


# --- the space -----------------------------------------------------------------------------------------


@given(st.integers(0, 300), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_samples_are_members_and_follow_the_seed(size: int, seed: int) -> None:
    space, twin = UnicodeText(size, seed=seed), UnicodeText(size)
    twin.seed(seed)
    texts = [space.sample() for _ in range(5)]
    assert all(space.contains(t) and t in space for t in texts)
    assert [twin.sample() for _ in range(5)] == texts
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(texts)))) == texts
    for text in texts:
        text.encode("utf-8")


@given(st.text())
@settings(max_examples=50, deadline=None)
def test_any_unicode_text_is_a_member(text: str) -> None:
    assert UnicodeText(max(len(text), 1)).contains(text)
    assert UnicodeText(len(text)).contains(text)
    assert not UnicodeText(len(text)).contains(text + "x")


def test_the_space() -> None:
    space = UnicodeText(8, seed=1)
    assert space == UnicodeText(8) and space != UnicodeText(9) and space != gymnasium.spaces.Text(8)
    assert repr(space) == "UnicodeText(8)" and not space.is_np_flattenable
    assert not space.contains("\ud800") and not space.contains(b"x") and not space.contains(3)
    assert np.str_("é") in space
    long = UnicodeText(2000, seed=3)
    many = "".join(long.sample() for _ in range(20))
    assert any(c > "\uffff" for c in many) and any("\u0100" < c < "\ud800" for c in many)
    with pytest.raises(ValueError):
        space.sample(mask=(3, None))  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        space.from_jsonable(["\ud800"])
    with pytest.raises(ValueError):
        UnicodeText(-1)


def test_the_longest_action_fits_a_frame() -> None:
    assert len(encode_request([Op.step(0, "\U0001f600" * ACTION_CHARS)])) < MAX_FRAME
    assert UnicodeText(ACTION_CHARS).contains("\U0001f600" * ACTION_CHARS)


# --- gymnasium's checks --------------------------------------------------------------------------------


def test_gymnasiums_own_check_passes_without_a_warning(folder: Path) -> None:
    files = ["good game.py", "one_turn.py", *(p.name for p in sorted(folder.glob("page*.py")))]
    assert len(files) > 3
    kinds = set()
    for name in files:
        env = make(folder / name, render_mode="ansi")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(env.unwrapped)
        kinds.add(env.reset(seed=0)[1]["game_type"])
        env.close()
    assert kinds == {"single_turn", "multi_turn", "tool_use"}


@needs_cases
@pytest.mark.parametrize("name", ["good_sum", "good_guess_multi_turn", "good_grid_walk"])
def test_gymnasiums_own_check_on_the_good_cases(name: str) -> None:
    env = make(CASES / "planted" / f"{name}.py")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    env.close()


# --- episodes ------------------------------------------------------------------------------------------


def test_an_episode(folder: Path) -> None:
    env = make(folder / "good game.py", render_mode="ansi")
    first, info = env.reset(seed=5)
    assert info == {"seed": 5, "game_type": "multi_turn", "max_turns": 3, "tools": []}
    p, q = (int(w) for w in first.split() if w.isdigit())
    assert env.step("7")[:4] == ("wrong", 0.0, False, False)
    assert env.unwrapped.solution() == [f"\\boxed{{{p + q}}}"]
    assert env.step(f"\\boxed{{{p + q}}}") == ("right", 1.0, True, False, {"turn": 2, "paid": 1.0})
    assert env.render().splitlines() == [first, "> 7", "wrong", f"> \\boxed{{{p + q}}}", "right"]
    with pytest.raises(error.ResetNeeded):
        env.unwrapped.step("1")
    assert env.reset(seed=5)[0] == first
    env.close()
    env.close()
    with pytest.raises(error.ClosedEnvironmentError):
        env.unwrapped.reset()


def test_seeds_follow_gymnasiums_rules(folder: Path) -> None:
    env = make(folder / "echo.py").unwrapped
    firsts = [env.reset(seed=s)[0] for s in (9, None, None, 9, None)]
    assert firsts[0] == firsts[3] == "seed 9"  # the program's own seed, as in `spade envs run --seed 9`
    assert firsts[1] == firsts[4] != firsts[2]
    assert env.np_random_seed == 9
    with pytest.raises(InputError, match="no option 'level'"):
        env.reset(options={"level": 3})
    env.close()


def test_limits_and_rewards(folder: Path) -> None:
    env = make(folder / "echo.py", max_turns=2).unwrapped
    env.reset(seed=1)
    assert env.step("a") == ("1:\\boxed{a}", 0.0, False, False, {"turn": 1, "paid": 0.25})
    # What is paid on the way is no return, neither is it when the turns run out.
    assert env.step("b") == ("1:\\boxed{b}", 0.0, False, True, {"turn": 2, "paid": 0.25})
    env.close()
    env = make(folder / "one_turn.py").unwrapped
    env.reset(seed=1)
    assert env.step("wrong")[1:4] == (0.0, True, False)  # its only turn is over: nothing was cut short
    env.close()
    for options in ({"max_turns": 0}, {"render_mode": "human"}):
        with pytest.raises(InputError):
            ProgramEnv(folder / "echo.py", **options)


def test_a_tool_program(folder: Path) -> None:
    path = next(p for p in folder.glob("page*.py") if "ToolEnv" in p.read_text())
    env = make(path).unwrapped
    _, info = env.reset(seed=3)
    assert info["game_type"] == "tool_use" and info["tools"][0]["type"] == "function"
    plan = env.solution()
    results = [env.step(action) for action in plan]
    assert results[-1][1:4] == (1.0, True, False) and all(r[1] == 0.0 for r in results[:-1])
    env.close()


def test_actions_outside_the_space(folder: Path) -> None:
    env = make(folder / "echo.py").unwrapped
    with pytest.raises(error.ResetNeeded):
        env.step("a")
    env.reset(seed=1)
    for action in ("\ud800", "x" * (ACTION_CHARS + 1), 7, None):
        with pytest.raises(error.InvalidAction):
            env.step(action)
    assert env.step(np.str_("fine"))[0] == "1:\\boxed{fine}"
    env.close()


# --- faults --------------------------------------------------------------------------------------------

BROKEN = ECHO.replace("action ==", "action[7:-1] ==")


def test_a_fault_of_the_program_is_an_exception_and_the_next_reset_works(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    env = make(path).unwrapped
    for action, code in (("raise", "exception"), ("exit", "crash")):
        env.reset(seed=1)
        with pytest.raises(ProgramBroke, match=f"broken.py broke in step 1 .{code}") as caught:
            env.step(action)
        copied = pickle.loads(pickle.dumps(caught.value))
        assert isinstance(copied.fault, ProgramFault) and copied.fault.code == code
        assert str(copied) == str(caught.value)
        with pytest.raises(error.ResetNeeded):
            env.step("a")
    assert env.reset(seed=2)[0] == "seed 2"
    env.close()
    path.write_text("class AEnv:\n    pass\n")
    with pytest.raises(ProgramBroke, match="broke in loading"):
        make(path)
    with pytest.raises(InputError, match="no file"):
        make(tmp_path / "missing.py")


# --- sharing, threads, processes -----------------------------------------------------------------------


def test_environments_share_a_sandbox_and_the_last_one_ends_it(folder: Path) -> None:
    one, two = ProgramEnv(folder / "echo.py"), ProgramEnv(folder / "good game.py")
    assert len(zygotes()) == 1
    other = ProgramEnv(folder / "echo.py", sandbox=SandboxConfig(memory_mb=100))
    assert one._box is two._box is not other._box
    one.close()
    assert two.reset(seed=1)[0].startswith("add")
    two.close()
    assert not two._box.usable and other._box.usable
    del other  # never closed: garbage collection ends it


def test_a_sandbox_given_stays_open(folder: Path) -> None:
    with BlockingSandbox(SandboxConfig()) as box:
        env = make(folder / "echo.py", sandbox=box)
        assert env.spec is not None and copy.deepcopy(box) is box
        assert env.reset(seed=4)[0] == "seed 4"
        env.close()
        assert box.usable and box.level in ("L2s", "L2", "L3")
        with pytest.raises(ProgramFault):
            box.open("not python (")
    with pytest.raises(SandboxError, match="closed"):
        box.open(ECHO)


def test_a_sandbox_that_cannot_start_leaves_nothing() -> None:
    with pytest.raises(SandboxError):
        BlockingSandbox(SandboxConfig(force_level="L0"))


def test_a_forked_child_may_neither_use_nor_end_the_parents_sandbox(folder: Path) -> None:
    env = ProgramEnv(folder / "echo.py")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads: the point of this test
        pid = os.fork()
    if pid == 0:
        try:
            env.reset(seed=1)
        except SandboxError:
            env.close()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert env.reset(seed=3)[0] == "seed 3"
    env.close()


async def test_inside_a_running_event_loop(folder: Path) -> None:
    env = ProgramEnv(folder / "echo.py")
    assert env.reset(seed=6)[0] == "seed 6"
    env.close()


def test_a_vector_in_one_process(folder: Path) -> None:
    vector = gymnasium.make_vec(
        "spade/Program-v0", num_envs=3, vectorization_mode="sync", path=folder / "one_turn.py"
    )
    first, _ = vector.reset(seed=[1, 2, 3])
    sums = [str(sum(int(w) for w in text.split() if w.isdigit())) for text in first]
    _, rewards, terminated, truncated, _ = vector.step((sums[0], "7", sums[2]))
    assert list(rewards) == [1.0, 0.0, 1.0] and all(terminated) and not any(truncated)
    again, *_ = vector.step(("", "", ""))  # the next episodes
    assert all(text.startswith("add") for text in again) and again != first
    vector.close()


def test_a_vector_of_spawned_processes(folder: Path) -> None:
    vector = gymnasium.make_vec(
        "spade/Program-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False, "context": "spawn"},
        path=str(folder / "echo.py"),
    )
    first, _ = vector.reset(seed=[1, 2])
    assert first == ("seed 1", "seed 2")
    assert vector.step(("a", "b"))[0] == ("1:\\boxed{a}", "2:\\boxed{b}")
    vector.close()


# --- registration --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "imports",
    [
        "import spade, gymnasium",
        "import gymnasium, spade",
        "import spade.envs.gym_env, gymnasium",
        "import gymnasium.envs.registration as r; r._find_spec('spade:spade/Program-v0')",
    ],
)
def test_importing_spade_registers(imports: str) -> None:
    code = f"{imports}\nimport gymnasium\nprint(gymnasium.spec('spade/Program-v0').entry_point)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == _gymnasium.ENTRY_POINT, done.stderr


def test_asking_whether_gymnasium_is_there_does_not_use_the_registration_up() -> None:
    code = (
        "import spade, importlib.util, sys\nassert importlib.util.find_spec('gymnasium')\n"
        "assert 'gymnasium' not in sys.modules and 'numpy' not in sys.modules\n"
        "import gymnasium\nprint('spade/Program-v0' in gymnasium.registry)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


def test_an_unclosed_environment_does_not_hold_up_the_end_of_the_process(folder: Path) -> None:
    code = (
        "import glob, sys, gymnasium, spade\nenv = gymnasium.make('spade/Program-v0', path=sys.argv[1])\n"
        "print(env.reset(seed=1)[0], *(open(f).read() for f in glob.glob('/proc/self/task/*/children')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "echo.py")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith("seed 1 ")
    started = [Path("/proc", pid) for pid in done.stdout.split()[2:]]
    assert started
    for _ in range(200):
        if not any(path.exists() for path in started):
            break
        time.sleep(0.05)
    assert not any(path.exists() for path in started)
