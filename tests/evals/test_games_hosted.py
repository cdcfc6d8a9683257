"""Games of other libraries: the seam with a host of ours, reasoning-gym, TextArena where it is there."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from spade.config import PlayConfig, ServingConfig
from spade.envs.wire import Op, StepResult
from spade.errors import FaultCode, InputError, ProgramFault
from spade.serving.launch import open_chat
from spade_evals.question import GraderLost, GraderTimeout
from spade_evals.runner import run_eval
from spade_evals.suite import Setting
from spade_evals.suites import games_reasoning, games_textarena
from spade_evals.suites.games_hosted import HostedSandbox, HostedSuite, hosted_program, lost
from spade_evals.suites.games_pool import Game
from spade_evals.tasks.reasoning import configurations


class Echo:
    """A host: says the seed, and pays for saying it back. Multiples of 7 break, those of 11 are lost."""

    def __init__(self) -> None:
        self.seeds: dict[int, int] = {}
        self.closed = False

    def reset(self, instance: int, game: dict[str, Any], seed: int) -> str:
        if seed % 7 == 0:
            raise ProgramFault(FaultCode.EXCEPTION, "the library raised")
        self.seeds[instance] = seed
        return f"{game['word']} {seed}"

    def step(self, instance: int, action: str) -> StepResult:
        if self.seeds[instance] % 11 == 0:
            raise lost("killed")
        right = action == str(self.seeds[instance])
        return StepResult("right" if right else "Invalid", float(right), True, False)

    def solution(self, instance: int) -> str:
        return str(self.seeds[instance])

    def drop(self, instance: int) -> None:
        self.seeds.pop(instance, None)

    def close(self) -> None:
        self.closed = True


class EchoSuite(HostedSuite):
    name = "echo"
    seeds = 40

    def __init__(self) -> None:
        game = hosted_program("echo", "1", {"word": "say"}, "single_turn")
        super().__init__([Game("echo", "echo", 1, game)])
        self.hosts: list[Echo] = []

    def host(self) -> Echo:
        self.hosts.append(Echo())
        return self.hosts[-1]


async def test_play_drives_a_host_as_it_drives_programs() -> None:
    suite = EchoSuite()
    items = suite.items(0, None)
    for kind, value in (("oracle", 1.0), ("null", 0.0)):
        chat = await open_chat(f"scripted:{kind}", ServingConfig())
        rows = await suite.run(items, Setting(chat, None, PlayConfig(), 0))  # type: ignore[arg-type]
        await chat.policy.close()
        for item, row in zip(items, rows, strict=True):
            seed = item.payload["seed"]
            if seed % 7 == 0:
                assert row.outcome.kind.value == "program", seed  # type: ignore[union-attr]
            elif seed % 11 == 0:
                assert row.outcome.kind.value == "infrastructure"  # type: ignore[union-attr]
            else:
                assert row.outcome.value == value  # type: ignore[union-attr]
                assert row.facts == {"level": 1.0, "turns": 1.0, "invalid": 1.0 - value, "cut": 0.0}
        assert sum(i.payload["seed"] % 7 == 0 for i in items) > 1
        host = suite.hosts[-1]
        assert host.closed and host.seeds == {}


async def test_instances_have_numbers_of_their_own() -> None:
    sandbox = HostedSandbox(Echo())
    one, two = await sandbox.open('{"word": "a"}'), await sandbox.borrow('{"word": "b"}')
    assert await one.batch([Op.reset(0, 5), Op.reset(1, 6)]) == ["a 5", "a 6"]
    assert await two.batch([Op.reset(0, 8)]) == ["b 8"]
    [step] = await one.batch([Op.step(1, "I say \\boxed{6}")])
    assert step.reward == 1.0
    assert await two.solution(0) == "8"
    [fault] = await two.batch([Op.reset(3, 14)])
    assert isinstance(fault, ProgramFault)
    await one.batch([Op.drop(0)])
    await sandbox.give_back(one)
    assert sandbox.host.seeds.keys() == {3}  # type: ignore[attr-defined]


def test_another_version_of_a_library_is_another_item() -> None:
    ids = {hosted_program("x", v, {"g": g}, "multi_turn").id for v in "12" for g in "ab"}
    assert len(ids) == 4
    left = {item.id for item in EchoSuite().items(0, None)}
    other = EchoSuite()
    other.games = [Game("echo", "echo", 1, hosted_program("echo", "2", {"word": "say"}, "single_turn"))]
    assert left.isdisjoint(item.id for item in other.items(0, None))


# --- reasoning-gym -------------------------------------------------------------------------------------


def test_tasks_of_reasoning_gym_are_there_at_two_levels() -> None:
    found = games_reasoning.reasoning_games()
    tasks = {task for group in configurations().values() for task in group}
    assert {g.name for g in found} == tasks - set(games_reasoning.LEFT_OUT)
    assert {g.level for g in found} == {1, 2} and len(found) == 2 * len({g.name for g in found})
    assert {g.part for g in found} == {f"reasoning/{group}" for group in configurations()}


CHEAP = ("basic_arithmetic", "caesar_cipher", "number_sorting", "count_primes", "syllogism")


def some_reasoning() -> games_reasoning.ReasoningSuite:
    return games_reasoning.ReasoningSuite([g for g in games_reasoning.reasoning_games() if g.name in CHEAP])


def test_reasoning_gym_is_solved_by_its_own_answers_and_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(games_reasoning, "make_suite", some_reasoning)
    for name, kind in (("a", "oracle"), ("b", "oracle"), ("c", "null")):
        report: Any = run_eval(f"scripted:{kind}", "games-reasoning", tmp_path / name, quiet=True)
        assert report.result.faults == {}
        assert report.result.score[2] == 2 * len(some_reasoning().games) // 2
        assert (report.result.score[0] == 1.0) is (kind == "oracle")
        assert dict(report.levels).keys() == {"level 1", "level 2"}
    lines = [(tmp_path / n / "games-reasoning.jsonl").read_bytes() for n in "ab"]
    assert lines[0] == lines[1]
    first = json.loads(lines[0].splitlines()[0])
    assert "This is the only turn" in first["text"]


class OddScorer:
    """In place of the process: raises what it is told to, for answers and for the reference."""

    def __init__(self, on_answer: Exception | None, on_reference: Exception | None = None) -> None:
        self.on_answer, self.on_reference = on_answer, on_reference

    def make(self, task: str, config: dict[str, Any], seed: int, size: int) -> list[dict[str, Any]]:
        return [{"question": "?", "answer": "ref"}]

    def score(self, task: str, config: dict[str, Any], entry: dict[str, Any], answer: str) -> float:
        error = self.on_reference if answer == "ref" else self.on_answer
        if error is not None:
            raise error
        return 1.0 if answer == "ref" else 0.25

    def close(self) -> None:
        pass


GAME = {"task": "t", "config": {}}


def test_whose_fault_a_scorer_that_fails_is() -> None:
    def step(scorer: OddScorer, action: str) -> StepResult:
        host = games_reasoning.ReasoningHost(scorer)  # type: ignore[arg-type]
        host.reset(1, GAME, 0)
        return host.step(1, action)

    assert step(OddScorer(None), "ref") == StepResult("Right.", 1.0, True, False)
    assert step(OddScorer(None), "partly") == StepResult("Wrong.", 0.0, True, False)
    hung = step(OddScorer(GraderTimeout("ten seconds")), "9**9**9")
    assert (hung.reward, hung.terminated) == (0.0, True) and "ten seconds" in hung.observation
    with pytest.raises(ProgramFault) as found:
        step(OddScorer(GraderTimeout("x"), GraderTimeout("x")), "9")
    assert found.value.code is FaultCode.EXCEPTION
    with pytest.raises(ProgramFault) as found:
        step(OddScorer(GraderLost("killed")), "9")
    assert found.value.code is FaultCode.LOST


# --- TextArena -----------------------------------------------------------------------------------------

INSTALLED = importlib.util.find_spec("textarena") is not None


@pytest.fixture
def textarena() -> Any:
    if not INSTALLED:
        warnings.warn("tests of TextArena DID NOT RUN: install the extra 'games'", stacklevel=1)
        pytest.skip("textarena is not installed (extra 'games', make test-extras)")
    host = games_textarena.TextArenaHost()
    yield host
    host.close()


def play(
    host: games_textarena.TextArenaHost, number: int, name: str, seed: int, moves: list[str]
) -> list[Any]:
    seen: list[Any] = [host.reset(number, {"game": name, "turns": 25}, seed)]
    for move in moves:
        seen.append(host.step(number, move))
        if seen[-1].terminated:
            break
    return seen


MOVES = ["up", "[left]", "A C", "3", "[5]", "nonsense", "red", "[0 0]", "1 2 3", "down", "[hit]", "", "]["]


def test_every_game_of_the_list_starts_and_survives_any_move(textarena: Any) -> None:
    found = games_textarena.make_suite().games
    assert len(found) == len(games_textarena.GAMES) == 22
    for number, (name, _) in enumerate(games_textarena.GAMES.items()):
        for shift in range(0, len(MOVES), 3):
            seen = play(textarena, 100 * number + shift, name, 5, MOVES[shift:] + MOVES[:shift])
            assert len(seen[0]) > 50 and "at most 25 turns" in seen[0]
            assert all(-1.0 <= step.reward <= 1.0 for step in seen[1:])
            textarena.drop(100 * number + shift)


def test_games_side_by_side_do_not_touch_and_seeds_decide(textarena: Any) -> None:
    names = ["Bandit-v0", "Blackjack-v0", "2048-v0-ultra-easy", "FrozenLake-v0"]
    moves = {"Bandit-v0": ["red"] * 9, "Blackjack-v0": ["Hit", "Stand"] * 4}
    alone = [
        play(textarena, k, name, 3, moves.get(name, ["up", "right"] * 4)) for k, name in enumerate(names)
    ]
    for k, name in enumerate(names):
        assert textarena.reset(50 + k, {"game": name, "turns": 25}, 3) == alone[k][0]
    for turn in range(1, 9):
        for k, name in enumerate(names):
            if turn < len(alone[k]):
                move = moves.get(name, ["up", "right"] * 4)[turn - 1]
                assert textarena.step(50 + k, move) == alone[k][turn], (name, turn)
    firsts = {textarena.reset(90 + s, {"game": "FrozenLake-v0", "turns": 25}, s) for s in range(6)}
    assert len(firsts) > 3


def test_a_killed_process_is_replaced_and_its_games_go_on(textarena: Any) -> None:
    moves = ["[1]", "[2]", "[3]", "[4]", "[5]", "[6]"]
    whole = play(textarena, 1, "GuessTheNumber-v0", 12, moves)
    assert len(whole) > 4
    assert play(textarena, 2, "GuessTheNumber-v0", 12, moves[:2]) == whole[:3]
    os.kill(textarena.process.pid, signal.SIGKILL)
    while textarena.process.alive:
        time.sleep(0.01)
    assert [textarena.step(2, move) for move in moves[2:4]] == whole[3:5]


def test_winning_pays_and_a_refused_move_is_called_invalid(textarena: Any) -> None:
    textarena.reset(1, {"game": "TowerOfHanoi-v0", "turns": 25}, 0)
    assert textarena.step(1, "C A").observation.startswith("Invalid")
    rewards = [textarena.step(1, m) for m in ("A C", "A B", "C B", "A C", "B A", "B C", "A C")]
    assert rewards[-1].terminated and rewards[-1].reward == 1.0
    with pytest.raises(ProgramFault) as found:
        textarena.reset(2, {"game": "NoSuchGame-v0", "turns": 25}, 0)
    assert found.value.code is FaultCode.EXCEPTION


def test_textarena_through_the_whole_stack(textarena: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        report: Any = run_eval("scripted:random", "games-textarena", tmp_path / name, limit=24, quiet=True)
        assert report.result.faults == {} and report.result.score[2] == 24
    lines = [(tmp_path / n / "games-textarena-limit24.jsonl").read_bytes() for n in "ab"]
    assert lines[0] == lines[1]


@pytest.mark.skipif(INSTALLED, reason="textarena is installed")
def test_without_textarena_the_suite_says_how_to_get_it() -> None:
    with pytest.raises(InputError, match="needs the extra games; install it"):
        games_textarena.make_suite()
