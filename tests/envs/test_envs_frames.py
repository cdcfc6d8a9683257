"""What crosses the channel: frames, columns of steps, long and odd texts, and waiting awake."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from itertools import count

import pytest
import pytest_asyncio
from envs_programs import ECHO, program, reply
from hypothesis import given
from hypothesis import strategies as st

from spade.config import SandboxConfig
from spade.envs import worker as worker_code
from spade.envs.channels import TURN_SECONDS, WATCH_PAUSE, Watch
from spade.envs.death import Ended
from spade.envs.sandbox import Sandbox
from spade.envs.wire import (
    MAX_FRAME,
    Op,
    OpResult,
    ProtocolError,
    StepResult,
    check_result,
    check_results,
    decode_answer,
    encode_frames,
)
from spade.errors import FaultCode, ProgramFault

LONGEST = 100_000
"""Characters of an action that reach the program."""


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig(cpu_seconds=0.3, wall_factor=10.0)) as running:
        yield running


@pytest.mark.parametrize("letter", ["a", "\U0001f600", "\ud83d", "\udc00", "\x00", '"', "\\"])
async def test_the_longest_action_reaches_the_program_whatever_it_consists_of(
    sandbox: Sandbox, letter: str
) -> None:
    body = (
        "return f'{len(action)} {len(set(action))} {ord(action[0])} {ord(action[-1])}', 0.0, False, False, {}"
    )
    worker = await sandbox.open(program(body))
    action = letter * (LONGEST + 7)
    results = await worker.batch([Op.reset(0, 1)] + [Op.step(0, action)] * 9)
    expected = StepResult(f"{LONGEST} 1 {ord(letter)} {ord(letter)}", 0.0, False, False)
    assert results[1:] == [expected] * 9
    assert await worker.step(0, action) == expected


async def test_an_unpaired_surrogate_is_not_paired_on_the_way(sandbox: Sandbox) -> None:
    worker = await sandbox.open(program("return str(len(action)), 0.0, False, False, {}"))
    await worker.reset(0, 1)
    for action in ("\ud83d\ude00", "\U0001f600", "\ude00\ud83d"):
        assert (await worker.step(0, action)).observation == str(len(action))


async def test_an_operation_larger_than_a_frame_is_a_fault_and_no_exception(sandbox: Sandbox) -> None:
    worker = await sandbox.open(ECHO)
    results = await worker.batch([Op.reset(0, 1), Op.play(0, 1, ["x" * 60_000] * 30)])
    assert isinstance(results[1], ProgramFault) and results[1].code is FaultCode.PROTOCOL
    assert worker.ended is Ended.CLOSED
    with pytest.raises(ProgramFault, match="frame"):
        await sandbox.open("#" * (MAX_FRAME + 1))


async def test_a_message_longer_than_the_channel_holds_ends_with_its_worker(sandbox: Sandbox) -> None:
    worker = await sandbox.open(ECHO)
    async with asyncio.timeout(30):
        results = await worker.batch([Op.reset(0, 1), Op.step(0, "loop")] + [Op.step(0, "a" * LONGEST)] * 20)
    assert isinstance(results[1], ProgramFault) and results[1] == results[-1]
    assert worker.ended is Ended.KILLED
    worker = await sandbox.open(ECHO)
    sending = asyncio.create_task(
        worker.batch([Op.reset(0, 1), Op.step(0, "loop")] + [Op.step(0, "a" * LONGEST)] * 20)
    )
    await asyncio.sleep(0.05)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert worker.ended is Ended.CLOSED
    again = await sandbox.open(ECHO)
    assert await again.reset(0, 1) == "seed 1"


@given(st.lists(st.sampled_from("srs"), min_size=1, max_size=300), st.booleans())
def test_frames_carry_every_operation_once_and_in_order(kinds: str, alone: bool) -> None:
    ops = [Op.step(k, f"a{k}") if kind == "s" else Op.reset(k, k) for k, kind in enumerate(kinds)]
    seen: list[list[object]] = []
    for frame in encode_frames(ops, alone):
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4 <= MAX_FRAME
        request = json.loads(frame[4:])
        assert (request[-1] == 1) is alone
        for operation in request[:-1] if alone else request:
            if operation[0] == "S":
                seen += [["s", i, action] for i, action in zip(*operation[1:], strict=True)]
            else:
                seen.append(operation)
    assert seen == [list(op) for op in ops]
    (exchange,) = encode_frames([Op.exchange("call", "{}")], alone)
    assert json.loads(exchange[4:]) == [["x", "call", "{}"]]


async def test_answers_in_several_frames_are_put_together(sandbox: Sandbox) -> None:
    worker = await sandbox.open(ECHO)
    ops = [Op.reset(k, k) for k in range(5)] + [Op.step(k % 5, f"a{k}") for k in range(700)]
    results = await worker.batch(ops)
    other = await sandbox.open(ECHO)  # two workers: one frame
    assert results == await other.batch(ops)
    assert results[5:8] == [StepResult(f"{k}:a{k}", 0.25, False, False) for k in range(3)]


async def test_a_worker_between_two_messages_uses_no_processor(sandbox: Sandbox) -> None:
    worker = await sandbox.open(ECHO)
    await worker.reset(0, 1)
    for k in range(50):
        await worker.step(0, str(k))
    used = worker.cpu_seconds
    await asyncio.sleep(0.3)
    assert 0.0 < used <= worker.cpu_seconds < used + 0.05  # it stays awake for less than a millisecond


async def test_long_answers_come_in_several_frames(sandbox: Sandbox) -> None:
    worker = await sandbox.open(reply(observation=r"'\u2603' * 60_000"))
    results = await worker.batch([Op.reset(0, 1)] + [Op.step(0, "go")] * 30)
    assert all(isinstance(r, StepResult) and len(r.observation.encode()) > 60_000 for r in results[1:])


class Scripted:
    """A stand-in for a program: its steps return, or raise, what they are told."""

    def __init__(self, answers: list[object]) -> None:
        self.answers = iter(answers)

    def step(self, action: str) -> object:
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Line:
    """A stand-in for the channel: frames end up in a list."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def send(self, body: str) -> None:
        self.frames.append(body.encode("ascii"))


STEPS = st.one_of(
    st.tuples(
        st.text(st.characters(codec=None), max_size=8).map(lambda t: t * 3000 if "z" in t else t),
        st.one_of(st.floats(), st.integers(-(2**60), 2**60), st.booleans(), st.none()),
        st.booleans(),
        st.booleans(),
        st.just({}),
    ),
    st.just(ValueError("no")),
    st.just(("too", "short")),
)


@given(st.lists(STEPS, min_size=1, max_size=12))
def test_steps_in_columns_arrive_as_steps_one_by_one(script: list[object]) -> None:
    def host(answers: list[object]) -> worker_code.Host:
        made = worker_code.Host({}, ([None], lambda: None))
        made.instances[0] = (Scripted(answers), None)
        return made

    line, ops = Line(), [Op.step(0, "a")] * len(script)
    answers = worker_code.Answers(line, [])  # type: ignore[arg-type]
    worker_code.row(host(script), answers, [0] * len(script), ["a"] * len(script))
    answers.flush()
    together: list[OpResult] = []
    for frame in line.frames:
        assert len(frame) <= MAX_FRAME
        together += check_results(ops, len(together), decode_answer(frame)[0])
    single = host(script)
    apart = [check_result(ops[0], single.perform(["s", 0, "a"])) for _ in script]
    assert [fault_text(r) for r in together] == [fault_text(r) for r in apart]


def fault_text(result: OpResult) -> object:
    return (result.code, result.detail) if isinstance(result, ProgramFault) else result


@pytest.mark.parametrize(
    "entry",
    [
        {"s": ["x"]},
        {"s": [], "e": ""},
        {"s": ["x"], "e": "4"},
        {"s": ["x"], "e": 0},
        {"s": ["x"], "e": "00"},
        {"s": ["x", 1], "e": "00"},
        {"s": ["x"], "e": "0", "w": [None]},
        {"s": ["x"], "e": "0", "w": [True]},
        {"s": ["x"], "e": "0", "w": [float("inf")]},
        {"s": ["x"], "e": "0", "w": []},
        {"s": ["x"] * 3, "e": "000"},
        {"s": ["x"] * 2, "e": "00"},
    ],
)
def test_wrong_columns_are_protocol_errors(entry: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        check_results([Op.step(0, "a"), Op.reset(0, 1), Op.step(0, "a")], 0, [entry])


async def test_a_lone_worker_does_not_keep_the_event_loop_to_itself(sandbox: Sandbox) -> None:
    worker = await sandbox.open(ECHO)
    await worker.reset(0, 1)
    turns, played = 0, False

    async def other() -> None:
        nonlocal turns
        while not played:
            turns += 1
            await asyncio.sleep(0)

    watcher = asyncio.create_task(other())
    started = time.monotonic()
    while turns < 3 and time.monotonic() - started < 60:
        answers = await worker.batch([Op.step(0, str(k)) for k in range(100)])
        assert [a.observation for a in answers if isinstance(a, StepResult)] == [f"1:{k}" for k in range(100)]
    played = True
    await watcher
    assert turns >= 3


async def test_columns_of_steps_keep_order_faults_and_rewards(sandbox: Sandbox) -> None:
    worker = await sandbox.open(ECHO)
    actions = ["a", "raise", "b", "win", "raise", "raise", "\u2603", ""]
    row = [Op.step(k % 2, action) for k, action in enumerate(actions)]
    results = await worker.batch([Op.reset(0, 1), Op.reset(1, 2), *row, Op.solution(0), Op.step(0, "z")])
    alone = [(await worker.batch([op]))[0] for op in row]
    for together, apart in zip(results[2:-2], alone, strict=True):
        if isinstance(apart, ProgramFault):
            assert isinstance(together, ProgramFault) and together.detail == apart.detail
        else:
            assert together == apart
    assert results[5] == StepResult("won", 1.0, True, False)
    assert results[8] == StepResult("1:\u2603", 0.25, False, False)
    assert results[-2:] == [["win"], StepResult("1:z", 0.25, False, False)]


def test_after_waiting_awake_in_vain_the_next_waits_are_left_out() -> None:
    watch, calls = Watch(), 0

    def more() -> bool:
        nonlocal calls
        calls += 1
        return True

    assert not watch.wait(more, lambda: 0)
    assert calls > 0
    calls = 0
    assert not any(watch.wait(more, lambda: 0) for _ in range(WATCH_PAUSE))
    assert calls == 0
    watch.wait(more, lambda: 0)
    assert calls > 0


def test_waiting_awake_ends_with_the_answer_and_gives_the_event_loop_its_turn() -> None:
    watch, left = Watch(), iter([True, True, False])
    started = time.monotonic()  # the next turn is due this long after the first, not after the second call
    assert watch.wait(lambda: next(left), lambda: 1)  # the first turn is due at once
    answers = count()  # always something new: it ends all the same
    assert watch.wait(lambda: True, lambda: next(answers))
    assert time.monotonic() - started >= TURN_SECONDS
