"""Suites of tasks with scripted policies: exact scores, blame, thoughts, resume, regrade, absent data."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from question_fakes import FreePolicy, Sums, ask, chat_of, lines, scripted, write_sums

from spade.errors import BackendError, ConfigError, FaultCode, InputError, ProgramFault
from spade.serving.chat import ChatPolicy
from spade.serving.policy import Completion, SamplingParams
from spade.serving.scripted import ScriptedPolicy
from spade.types import Message, StopReason
from spade_evals import stats
from spade_evals.compare import compare_runs
from spade_evals.question import (
    GraderLost,
    GraderTimeout,
    Question,
    QuestionSuite,
    Task,
    visible_answer,
)
from spade_evals.question_run import Options, SuiteReport, regrade_suite
from spade_evals.results import load
from spade_evals.runner import Subject
from spade_evals.scores import TaskScore


def score(report: SuiteReport, name: str = "sums") -> TaskScore:
    found = next(task.score for task in report.tasks if task.name == name)
    assert found is not None
    return found


def numbers(report: SuiteReport) -> dict[str, Any]:
    """All that must not depend on kills: scores without times."""
    from dataclasses import replace

    return {t.name: replace(t.score, seconds=0.0) for t in report.tasks if t.score is not None}


# --- scores --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("free", [False, True])
async def test_oracle_null_and_a_mixture_score_exactly(tmp_path: Path, free: bool) -> None:
    write_sums(tmp_path)
    kind = FreePolicy if free else ScriptedPolicy
    oracle = await ask(chat_of(kind("oracle", max_rows=5)), [Sums()], tmp_path, tmp_path / "o")
    assert (oracle.result.score[0], oracle.ok) == (1.0, True)
    assert score(oracle).verdicts == {"correct": 24}
    null = await ask(chat_of(kind("null", max_rows=5)), [Sums()], tmp_path, tmp_path / "n")
    assert null.result.score[0] == 0.0
    assert score(null).verdicts == {"no_answer": 24}
    assert score(null).no_answer == 1.0

    questions = Sums().load(tmp_path).questions
    known = {q.id for q in questions[:5]}
    mixed = kind.oracle_if(lambda i: i.program_id in known or i.seed == 0, max_rows=5)
    report = await ask(chat_of(mixed), [Sums()], tmp_path, tmp_path / "m", samples=4)
    right = 5 * 4 + 7
    found = score(report)
    assert found.all.mean == right / 48
    assert found.verdicts == {"correct": right, "no_answer": 21}
    assert found.pass_at[1] == pytest.approx(right / 48)
    assert found.pass_at[2] == pytest.approx((5 + 7 * (1 - math.comb(3, 2) / math.comb(4, 2))) / 12)
    assert found.pass_at[4] == 1.0
    per_item = [1.0] * 5 + [0.25] * 7
    mean = sum(per_item) / 12
    stderr = math.sqrt(sum((x - mean) ** 2 for x in per_item) / 11 / 12)
    assert found.all.stderr == pytest.approx(stderr)
    assert found.all.low < mean < found.all.high


async def test_the_score_is_the_mean_over_tasks_and_compare_reads_it(tmp_path: Path) -> None:
    write_sums(tmp_path, "small", 4)
    write_sums(tmp_path, "large", 20, shift=1)
    tasks: list[Task] = [Sums("small"), Sums("large")]
    right = {q.id for q in tasks[0].load(tmp_path).questions}
    half = ScriptedPolicy.oracle_if(lambda i: i.program_id in right)
    one = await ask(chat_of(half), tasks, tmp_path, tmp_path / "one", "a")
    assert one.result.score[0] == 0.5
    assert one.result.parts["small"][0] == 1.0
    await ask(scripted("null"), tasks, tmp_path, tmp_path / "two", "b")
    report = compare_runs([tmp_path / "two", f"mixed={tmp_path / 'one'}"])
    found = report.comparison("mixed")
    assert (found.difference, found.n) == (0.5, 24)
    assert load(tmp_path / "one").single is False
    await ask(scripted("null"), tasks, tmp_path, tmp_path / "three", "b", samples=1)
    assert compare_runs([tmp_path / "two", f"other={tmp_path / 'three'}"]).comparisons == ()


async def test_known_defects_are_scored_with_and_without(tmp_path: Path) -> None:
    write_sums(tmp_path)
    task = Sums(defects={"sums/3": "ambiguous"})
    bad = next(q.id for q in task.load(tmp_path).questions if q.name == "sums/3")
    policy = ScriptedPolicy.oracle_if(lambda i: i.program_id != bad)
    report = await ask(chat_of(policy), [task], tmp_path, tmp_path / "o")
    assert score(report).all.mean == pytest.approx(11 / 12)
    assert (score(report).sound.mean, score(report).sound.items) == (1.0, 11)
    assert "without 1 defective items 1.000" in str(report)


@given(st.integers(1, 9), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_right_sample(n: int, data: st.DataObject) -> None:
    right, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(itertools.combinations([True] * right + [False] * (n - right), k))
    assert stats.pass_at_k(n, right, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_the_interval_resamples_whole_clusters() -> None:
    rng = random.Random(3)
    clusters = [f"c{i}" for i in range(40) for _ in range(1 + i % 3)]
    values = [float(rng.random() < 0.6) for _ in clusters]
    mean, stderr, _ = stats.clustered_mean(values, clusters)
    low, high = stats.cluster_bootstrap(values, clusters)
    assert low < mean < high
    assert (high - low) / (2 * 1.96) == pytest.approx(stderr, rel=0.15)
    assert stats.cluster_bootstrap(values, clusters) == (low, high)
    same = stats.cluster_bootstrap(
        [v for v in values for _ in range(4)], [c for c in clusters for _ in range(4)]
    )
    assert same == pytest.approx((low, high))  # four copies of an answer are not four answers
    assert all(math.isnan(x) for x in stats.cluster_bootstrap([1.0, 0.0], ["a", "a"]))


async def test_a_limit_spreads_over_parts(tmp_path: Path) -> None:
    write_sums(tmp_path, count=9)

    class Parts(Sums):
        def read(self, rows: Any) -> list[Question]:
            return [Question(self.name, r["q"], r["a"], part=f"sums/{i // 3}") for i, r in enumerate(rows)]

    report = await ask(scripted(), [Parts()], tmp_path, tmp_path / "o", limit=3)
    assert {part: n for part, (_, _, n) in report.result.parts.items() if "/" in part} == {
        "sums/0": 2, "sums/1": 2, "sums/2": 2,
    }  # fmt: skip


def test_items_and_seeds_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from spade_evals.suites.smoke import make_suite\n"
        "from spade_evals.asking import sample_seed\n"
        "from spade_evals.planning import chosen\n"
        "for task in make_suite().tasks:\n"
        "    for q in chosen(task.load().questions, 2): print(q.id, sample_seed(0, q, 1))\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1")
    ]  # fmt: skip
    assert said[0] == said[1]
    assert len(said[0].splitlines()) == 30


# --- what an answer is, and who is to blame ------------------------------------------------------------


def test_thoughts_go_first_and_stop_texts_see_the_answer_only() -> None:
    assert visible_answer("<think>Q: no\n</think>yes Q: next", ("Q:",)) == "yes "
    assert visible_answer("so Q: hm</think>\\boxed{1}", ("Q:",), in_thought=True) == "\\boxed{1}"
    assert visible_answer("never closed", in_thought=True) == ""
    assert visible_answer("a STOP b END", ("END", "STOP")) == "a "


class Says(ScriptedPolicy):
    """Says `text(prompt)`; `stop` as given."""

    def __init__(self, text: str, stop: StopReason = StopReason.STOP, context: int = 1 << 20) -> None:
        super().__init__(f"constant:{text}", context_length=context)
        self.stop = stop
        self.asked: list[SamplingParams] = []

    async def generate(self, prompts: Any, params: Any, n: int = 1) -> list[list[Completion]]:
        self.asked += list(params)
        found = await super().generate(prompts, params, n)
        return [[Completion(c.token_ids, c.logprobs_T, self.stop) for c in row] for row in found]


@pytest.mark.parametrize(
    ("text", "verdict", "value"),
    [
        ("it is \\boxed{0}", "correct", 1.0),
        ("it is \\boxed{7}", "wrong", 0.0),
        ("<think>so", "truncated", 0.0),
    ],
)
async def test_a_cut_answer_is_graded_and_counted(
    tmp_path: Path, text: str, verdict: str, value: float
) -> None:
    write_sums(tmp_path, count=1)
    report = await ask(chat_of(Says(text, StopReason.LENGTH)), [Sums()], tmp_path, tmp_path / "o")
    assert score(report).verdicts == {verdict: 2}
    assert score(report).truncated == 1.0
    assert score(report).all.mean == value
    assert "100.0 %" in str(report)


async def test_a_prompt_without_room_is_a_truncated_answer(tmp_path: Path) -> None:
    write_sums(tmp_path, count=2)
    policy = Says("\\boxed{0}", context=20)
    report = await ask(chat_of(policy), [Sums()], tmp_path, tmp_path / "o")
    assert score(report).verdicts == {"truncated": 4}
    assert policy.asked == []
    assert {row["end"] for row in lines(tmp_path / "o")} == {"context"}


@pytest.mark.parametrize(
    ("error", "verdict"),
    [(GraderTimeout("9^9^9"), "grader_timeout"), (RecursionError("deep"), "ungradable")],
)
async def test_a_grader_that_fails_on_the_answer_makes_it_wrong(
    tmp_path: Path, error: Exception, verdict: str
) -> None:
    write_sums(tmp_path, count=3)

    def hook(answer: str, question: Question) -> None:
        if "boom" in answer:
            raise error

    report = await ask(chat_of(Says("boom")), [Sums(hook=hook)], tmp_path, tmp_path / "o")
    assert score(report).verdicts == {verdict: 6}
    assert (score(report).all.mean, score(report).all.samples) == (0.0, 6)
    assert report.ok


async def test_a_grader_that_fails_on_the_reference_is_a_fault_and_no_score(tmp_path: Path) -> None:
    write_sums(tmp_path, count=3)

    def hook(answer: str, question: Question) -> None:
        if question.name == "sums/1":
            raise ValueError("broken item")

    report = await ask(scripted("null"), [Sums(hook=hook)], tmp_path, tmp_path / "o")
    assert score(report).faults == {"grader": 2}
    assert score(report).all.samples == 4
    assert report.result.faults == {"grader": 2}


@pytest.mark.parametrize("error", [GraderLost("killed"), ProgramFault(FaultCode.LOST, "killed")])
async def test_a_lost_grader_is_tried_again_and_never_scored(tmp_path: Path, error: Exception) -> None:
    write_sums(tmp_path, count=3)
    calls: list[str] = []

    def once(answer: str, question: Question) -> None:
        calls.append(question.name)
        if calls.count(question.name) == 1:
            raise error

    fine = await ask(scripted(), [Sums(hook=once)], tmp_path, tmp_path / "once", samples=1)
    assert (fine.result.score[0], fine.ok) == (1.0, True)

    def always(answer: str, question: Question) -> None:
        if question.name == "sums/2":
            raise error

    report = await ask(scripted(), [Sums(hook=always)], tmp_path, tmp_path / "always", samples=1)
    assert (report.complete, report.ok) == (False, False)
    assert report.tasks[0].state == "partial"
    assert score(report).missing == 1
    assert score(report).all.samples == 2
    assert not load(tmp_path / "always").complete
    again = await ask(scripted(), [Sums()], tmp_path, tmp_path / "always", samples=1)
    assert (again.ok, score(again).all.samples) == (True, 3)
    assert len(lines(tmp_path / "always")) == 3


class Flaky(FreePolicy):
    """Fails `bad(request number)` requests."""

    def __init__(self, bad: Any) -> None:
        super().__init__("oracle")
        self.bad, self.requests = bad, 0

    async def generate(self, prompts: Any, params: Any, n: int = 1) -> list[list[Completion]]:
        self.requests += 1
        if self.bad(self.requests):
            raise BackendError("no answer from the endpoint")
        return await super().generate(prompts, params, n)


async def test_engine_errors_are_retried_and_a_dead_engine_ends_the_command(tmp_path: Path) -> None:
    write_sums(tmp_path)
    some = await ask(chat_of(Flaky(lambda k: k % 3 == 0)), [Sums()], tmp_path, tmp_path / "some")
    assert (some.result.score[0], some.ok) == (1.0, True)
    with pytest.raises(BackendError, match="in a row"):
        await ask(chat_of(Flaky(lambda k: k > 10)), [Sums()], tmp_path, tmp_path / "dead")
    assert len(lines(tmp_path / "dead")) == 10
    assert json.loads((tmp_path / "dead/quiz/run.json").read_text())["complete"] is False
    rest = await ask(chat_of(Flaky(lambda k: False)), [Sums()], tmp_path, tmp_path / "dead")
    assert numbers(rest) == numbers(some)


async def test_a_prompt_with_an_unknown_field_is_refused(tmp_path: Path) -> None:
    write_sums(tmp_path)
    preset = tmp_path / "mine.yaml"
    preset.write_text('prompts: {boxed: "{question} {options}"}')
    with pytest.raises(ConfigError, match=r"names \{options\}, which sums does not have; it has question"):
        await ask(scripted(), [Sums()], tmp_path, tmp_path / "o", preset=str(preset))
    preset.write_text('prompts: {boxed: "{question} \\\\boxed{answer}"}')
    assert (await ask(scripted(), [Sums()], tmp_path, tmp_path / "o", preset=str(preset))).ok


async def test_an_engine_stops_early_at_stop_texts_and_the_graded_text_stays(
    shipped_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same seeds with and without the watch: the answers agree up to the stop text, and cost less."""
    from spade.config import ServingConfig
    from spade.serving.launch import open_chat
    from spade_evals import asking

    write_sums(tmp_path, count=8)
    preset = tmp_path / "mine.yaml"
    preset.write_text(
        "prompts: {boxed: '{question}'}\ndefaults: {n: 2, temperature: 1.0, max_tokens: 24, stop: [a, '7']}\n"
    )
    runs = []
    for watched in (True, False):
        if not watched:
            monkeypatch.setattr(asking, "StopTexts", lambda *_: None)
        chat = await open_chat(str(shipped_model), ServingConfig(device="cpu", deterministic=True))
        await ask(chat, [Sums()], tmp_path, tmp_path / str(watched), preset=str(preset))
        await chat.policy.close()
        runs.append({(row["item_id"], row["sample"]): row for row in lines(tmp_path / str(watched))})
    early, late = runs
    stop = ("a", "7")
    assert {k: visible_answer(r["text"], stop) for k, r in early.items()} == {
        k: visible_answer(r["text"], stop) for k, r in late.items()
    }
    assert [r["verdict"] for _, r in sorted(early.items())] == [r["verdict"] for _, r in sorted(late.items())]
    # A limit that cut what came after the answer cut no answer.
    assert [r["end"] for _, r in sorted(early.items())] == [r["end"] for _, r in sorted(late.items())]
    shorter = [k for k in early if early[k]["tokens"] < late[k]["tokens"]]
    assert shorter and all(any(mark in early[k]["text"] for mark in stop) for k in shorter)
    assert all(early[k]["tokens"] <= late[k]["tokens"] for k in early)


# --- protocol and resume -------------------------------------------------------------------------------


async def test_the_same_seeds_for_every_checkpoint_and_order(tmp_path: Path) -> None:
    write_sums(tmp_path)
    seeds = []
    for checkpoint, rows in (("a", 3), ("b", 100)):
        policy = Says("\\boxed{1}")
        policy.max_rows = rows
        await ask(chat_of(policy), [Sums()], tmp_path, tmp_path / checkpoint, checkpoint)
        seeds.append([p.seed for p in policy.asked])
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 24
    other = Says("\\boxed{1}")
    await ask(chat_of(other), [Sums()], tmp_path, tmp_path / "c", seed=1)
    assert not {p.seed for p in other.asked} & set(seeds[0])


async def test_what_changes_the_protocol_and_what_does_not(tmp_path: Path) -> None:
    write_sums(tmp_path)
    preset = tmp_path / "mine.yaml"
    text = "prompts: {boxed: 'Say {question}'}\ndefaults: {n: 2, temperature: 1.0, max_tokens: 64}\n"
    preset.write_text(text)

    async def protocol(name: str, tasks: list[Task] | None = None, **options: Any) -> str:
        report = await ask(scripted(), tasks or [Sums()], tmp_path, tmp_path / name, name, **options)
        return report.result.protocol

    base = await protocol("a")
    assert await protocol("b") == base
    changed = [
        await protocol("c", seed=1),
        await protocol("d", samples=3),
        await protocol("e", limit=5),
        await protocol("f", [Sums(grader="sums-2")]),
        await protocol("g", preset=str(preset)),
    ]
    preset.write_text(text.replace("1.0", "0.5"))
    changed.append(await protocol("h", preset=str(preset)))
    write_sums(tmp_path, shift=1)
    changed.append(await protocol("i"))
    assert len({base, *changed}) == 8
    preset.write_text("name: other\n" + text.replace("1.0", "0.5"))
    assert await protocol("j", preset=str(preset), seed=0) != changed[5]  # the data changed in between
    write_sums(tmp_path)
    assert await protocol("k", preset=str(preset)) == changed[5]


async def test_answers_of_another_protocol_or_checkpoint_are_moved_aside(tmp_path: Path) -> None:
    write_sums(tmp_path)
    out = tmp_path / "o"
    await ask(scripted(), [Sums()], tmp_path, out)
    null = await ask(scripted("null"), [Sums()], tmp_path, out, "other")
    assert null.result.score[0] == 0.0
    assert len(lines(out)) == 24
    assert len(list((out / "quiz").glob("*.old.jsonl"))) == 1


async def test_a_torn_line_is_dropped_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    write_sums(tmp_path)
    out = tmp_path / "o"
    whole = await ask(scripted(), [Sums()], tmp_path, out)
    path = out / "quiz" / "sums.jsonl"
    before = path.read_bytes()
    path.write_bytes(before[:-30])
    assert numbers(await ask(scripted(), [Sums()], tmp_path, out)) == numbers(whole)
    assert len(lines(out)) == 24
    path.write_bytes(before.replace(b'{"key"', b'{"ke', 1))
    with pytest.raises(InputError, match=r"sums\.jsonl"):
        await ask(scripted(), [Sums()], tmp_path, out)


async def test_two_processes_never_write_one_file(tmp_path: Path) -> None:
    import fcntl

    write_sums(tmp_path)
    await ask(scripted(), [Sums()], tmp_path, tmp_path / "o")
    with (tmp_path / "o/quiz/sums.jsonl").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another spade eval"):
            await ask(scripted(), [Sums()], tmp_path, tmp_path / "o")


CHILD = """
import asyncio, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import question_fakes as fakes
root, out, free = Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4] == "free"

def slowly(answer, question):
    time.sleep(float(sys.argv[5]))

kind = fakes.FreePolicy if free else fakes.ScriptedPolicy
policy = kind("random", max_rows=7)
print("ready", flush=True)
asyncio.run(fakes.ask(fakes.chat_of(policy), [fakes.Sums(hook=slowly)], root, out, samples=3))
"""


@pytest.mark.parametrize("mode", ["lockstep", "free"])
async def test_killed_at_random_points_equals_one_go(tmp_path: Path, mode: str) -> None:
    write_sums(tmp_path, count=40)
    here = Path(__file__).parent
    rng = random.Random(7)
    out = tmp_path / "killed"
    killed = 0
    for _ in range(20):
        pause = "0.03" if killed < 3 else "0"  # long enough to be killed meanwhile on any machine
        argv = [sys.executable, "-c", CHILD, str(here), str(tmp_path), str(out), mode, pause]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=here.parent.parent) as child:
            assert child.stdout is not None
            child.stdout.readline()
            if killed < 3:
                time.sleep(rng.uniform(0.05, 0.3))
                os.kill(child.pid, signal.SIGKILL)
            killed += child.wait() == -signal.SIGKILL
        if child.returncode == 0:
            break
    assert killed >= 2
    policy = (FreePolicy if mode == "free" else ScriptedPolicy)("random", max_rows=7)
    again = await ask(chat_of(policy), [Sums()], tmp_path, out, samples=3)
    whole = await ask(chat_of(policy), [Sums()], tmp_path, tmp_path / "whole", samples=3)
    assert numbers(again) == numbers(whole)
    keys = [(row["item_id"], row["sample"]) for row in lines(out)]
    assert len(keys) == len(set(keys)) == 120
    texts = {(row["item_id"], row["sample"]): row["text"] for row in lines(tmp_path / "whole")}
    assert texts == {(row["item_id"], row["sample"]): row["text"] for row in lines(out)}


LOCAL = """
import asyncio, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import question_fakes as fakes
from spade.config import ServingConfig
from spade.serving.launch import open_chat
root, out = Path(sys.argv[2]), Path(sys.argv[3])

def slowly(answer, question):
    time.sleep(float(sys.argv[5]))

async def run():
    chat = await open_chat(sys.argv[4], ServingConfig(device="cpu", max_rows=5, deterministic=True))
    print("ready", flush=True)
    await fakes.ask(chat, [fakes.Sums(hook=slowly)], root, out, preset=str(root / "mine.yaml"))
    await chat.policy.close()

asyncio.run(run())
"""


async def test_the_local_engine_killed_at_random_points_equals_one_go(
    shipped_model: Path, tmp_path: Path
) -> None:
    """SIGKILL between any two answers, those of one batch included."""
    from spade.config import ServingConfig
    from spade.serving.launch import open_chat

    write_sums(tmp_path, count=20)
    preset = tmp_path / "mine.yaml"
    preset.write_text("prompts: {boxed: '{question}'}\ndefaults: {n: 3, temperature: 1.0, max_tokens: 10}\n")
    here, out, rng, killed = Path(__file__).parent, tmp_path / "killed", random.Random(3), 0
    argv = [sys.executable, "-c", LOCAL, str(here), str(tmp_path), str(out), str(shipped_model)]
    for _ in range(20):
        pause = "0.05" if killed < 2 else "0"
        with subprocess.Popen([*argv, pause], stdout=subprocess.PIPE, cwd=here.parent.parent) as child:
            assert child.stdout is not None
            child.stdout.readline()
            if killed < 2:
                time.sleep(rng.uniform(0.1, 0.6))
                os.kill(child.pid, signal.SIGKILL)
            killed += child.wait() == -signal.SIGKILL
        if child.returncode == 0:
            break
    assert killed == 2
    chat = await open_chat(str(shipped_model), ServingConfig(device="cpu", max_rows=5, deterministic=True))
    whole = await ask(chat, [Sums()], tmp_path, tmp_path / "whole", preset=str(preset))
    again = await ask(chat, [Sums()], tmp_path, out, preset=str(preset), checkpoint="abc")
    await chat.policy.close()
    assert numbers(again) == numbers(whole)
    rows = [{(row["item_id"], row["sample"]): row for row in lines(o)} for o in (out, tmp_path / "whole")]
    assert len(rows[0]) == len(lines(out)) == 60
    same = ("text", "end", "tokens", "verdict", "outcome", "extracted", "key")
    assert {k: [r[name] for name in same] for k, r in rows[0].items()} == {
        k: [r[name] for name in same] for k, r in rows[1].items()
    }
    assert len({row["text"] for row in rows[0].values()}) > 20


class Stopped(BaseException):
    """Ends a run in the middle of grading."""


async def test_the_local_engine_resumes_to_the_same_answers(tmp_path: Path) -> None:
    """Interrupted in the middle of a batch: the batch is computed again as a whole, stored answers stay."""
    from spade.config import ServingConfig
    from spade.serving.launch import open_chat

    write_sums(tmp_path, count=5)
    texts: list[dict[Any, str]] = []
    for stop_after in (None, 6):
        graded = 0

        def hook(answer: str, question: Question, stop_after: int | None = stop_after) -> None:
            nonlocal graded
            graded += 1
            if graded == stop_after:
                raise Stopped

        out = tmp_path / str(stop_after)
        cfg = ServingConfig(device="cpu", max_rows=4, deterministic=True)
        for tries in range(2 if stop_after else 1):
            chat = await open_chat("embedded", cfg)
            task = Sums(hook=hook if tries == 0 else None, max_tokens=8)
            try:
                await ask(chat, [task], tmp_path, out)
            except Stopped:
                assert 0 < len(lines(out)) < 10
            finally:
                await chat.policy.close()
        texts.append({(row["item_id"], row["sample"]): row["text"] for row in lines(out)})
    assert texts[0] == texts[1]
    assert len(set(texts[0].values())) > 1


# --- regrade -------------------------------------------------------------------------------------------


async def test_regrade_changes_the_grades_and_generates_nothing(tmp_path: Path) -> None:
    write_sums(tmp_path)
    out = tmp_path / "o"
    await ask(scripted(), [Sums()], tmp_path, out)
    texts = [row["text"] for row in lines(out)]

    class Other(Sums):
        def solution(self, question: Question) -> str | None:
            return "reference"

        async def grade(self, answer: str, question: Question, setting: Any) -> Any:
            if answer == "reference":
                return await super().grade(f"\\boxed{{{question.reference}}}", question, setting)
            if question.name == "sums/0":
                raise GraderTimeout
            return await super().grade(answer, question, setting)

    suite = QuestionSuite("quiz", [Other(grader="sums-2")], preset="smoke")
    silent = ScriptedPolicy("constant:never")
    options = Options(data_root=tmp_path)
    report = await regrade_suite(chat_of(silent), suite, None, out, Subject("ckpt", "abc"), options=options)
    assert silent.stats.requests == 0
    assert score(report).verdicts == {"correct": 22, "grader_timeout": 2}
    assert [row["text"] for row in lines(out)] == texts
    assert len({row["key"] for row in lines(out)}) == 1
    assert sum(item.value for item in load(out).items.values()) == 11
    # Asking again under the new grader finds everything answered.
    same = await ask(chat_of(silent), [Other(grader="sums-2")], tmp_path, out)
    assert silent.stats.requests == 0
    assert numbers(same) == numbers(report)
    # Back to the first grader: graded again, not asked again.
    back = await ask(chat_of(silent), [Sums()], tmp_path, out)
    assert silent.stats.requests == 0
    assert back.result.score[0] == 1.0


async def test_regrade_without_answers_or_on_other_data_is_refused(tmp_path: Path) -> None:
    write_sums(tmp_path)
    suite = QuestionSuite("quiz", [Sums()], preset="smoke")
    options = Options(data_root=tmp_path)
    with pytest.raises(InputError, match="no answers"):
        await regrade_suite(scripted(), suite, None, tmp_path / "o", Subject("c", "abc"), options=options)
    await ask(scripted(), [Sums()], tmp_path, tmp_path / "o")
    write_sums(tmp_path, shift=3)
    with pytest.raises(InputError, match="other data"):
        await regrade_suite(scripted(), suite, None, tmp_path / "o", Subject("c", "abc"), options=options)


# --- data that is not there ----------------------------------------------------------------------------


async def test_an_absent_task_is_a_row_and_never_averaged(tmp_path: Path) -> None:
    write_sums(tmp_path)
    tasks: list[Task] = [Sums(), Sums("gone")]
    report = await ask(scripted(), tasks, tmp_path, tmp_path / "o")
    assert report.ok is False
    assert report.complete is True
    assert math.isnan(report.result.score[0])
    gone = report.tasks[1]
    assert (gone.state, gone.command) == ("not run", f"spade data get gone data.root={tmp_path}")
    assert "gone: not run: no file" in str(report)
    allowed = await ask(scripted(), tasks, tmp_path, tmp_path / "o", allow_missing=True)
    assert (allowed.ok, allowed.result.score[0]) == (True, 1.0)
    assert "mean over the 1 tasks that ran" in str(allowed)


# --- the page ------------------------------------------------------------------------------------------


async def test_the_page_escapes_what_a_model_wrote(tmp_path: Path) -> None:
    write_sums(tmp_path, count=2)
    hostile = "<script>alert(1)</script>\\boxed{0}"
    await ask(chat_of(Says(hostile)), [Sums()], tmp_path, tmp_path / "o")
    page = (tmp_path / "o/quiz/index.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert 'data-verdict="correct"' in page and 'data-verdict="wrong"' in page
    assert "http" not in page.replace("http-equiv", "")


async def test_messages_of_a_question_are_sent_as_they_are(tmp_path: Path) -> None:
    write_sums(tmp_path, count=1)
    seen: list[str] = []

    def reply(text: str) -> str:
        seen.append(text)
        return "\\boxed{0}"

    class Chatty(Sums):
        def read(self, rows: Any) -> list[Question]:
            talk = (Message("system", "Be brief."), Message("user", "0 + 0 {question}"))
            return [Question(self.name, talk, 0)]

    policy = ScriptedPolicy.from_function(reply)
    await ask(ChatPolicy(policy.renderer, policy), [Chatty()], tmp_path, tmp_path / "o", samples=1)
    assert seen == ["[system]\nBe brief.\n[user]\n0 + 0 {question}"]
