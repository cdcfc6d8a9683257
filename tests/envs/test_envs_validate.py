"""The validator: one synthetic program per defect, honest games beside them, and verdicts that repeat."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from envs_programs import PLAIN, SUM, game

from spade.config import SandboxConfig, ValidateConfig
from spade.envs.battery import STAGES
from spade.envs.fingerprint import NoveltyIndex
from spade.envs.sandbox import Sandbox
from spade.envs.validate import BATTERY_VERSION, validate, validate_many
from spade.errors import ConfigError, FaultCode, ProgramFault, SandboxError
from spade.types import EnvProgram, Verdict, from_json, to_json

CFG = ValidateConfig(floor_max=0.34)
STRICT = ValidateConfig(floor_max=0.05)


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig(force_level="L2s")) as running:
        yield running


def timeless(verdict: Verdict) -> Verdict:
    return dataclasses.replace(
        verdict, stages=tuple(dataclasses.replace(s, seconds=0.0) for s in verdict.stages)
    )


def step_plain(extra: str) -> str:
    return f"{extra}\n        {PLAIN}"


WON = "won = a == self.x\n        "
HONEST = {
    "sum": game(),
    "one turn": game(turns=1),
    "global random, seeded by the harness": game(reset=SUM.replace("r.rand", "random.rand")),
    "one of four shown options": game(
        reset="row = r.sample(range(100), 4)\n        self.x = str(max(row))\n        "
        "return 'largest of ' + ', '.join(map(str, row)), {}",
        turns=1,
    ),
    "higher or lower": game(
        reset="self.x = str(r.randint(1, 40))\n        return 'guess 1 to 40', {}",
        step="n = int(a) if a.isdecimal() else 0\n        x = int(self.x)\n        done = n == x\n        "
        "return ('right' if done else 'higher' if n < x else 'lower'), float(done), done, self.t >= 5, {}",
        turns=5,
    ),
    "graded progress": game(
        reset="self.x = [r.choice('nesw') for _ in range(4)]\n        self.n = 0\n        "
        "return 'walk ' + str([ord(c) * 7 for c in self.x]), {}",
        step="self.n += a == self.x[min(self.n, 3)]\n        won = self.n == 4\n        "
        "return f'{self.n} of 4', self.n / 4, won, self.t >= self.max_turns, {}",
        turns=6,
    ),
}
DEFECTS = {
    "too_long": "# " + "x" * 20_001,
    "syntax": "def f(:",
    "import_refused": "import os\n" + game(),
    "forbidden_name": game(step="eval(a)\n        " + PLAIN),
    "no_env_class": "class Task:\n    pass",
    "missing_method": "class AEnv:\n    def reset(self, seed=None):\n        return 'a', {}",
    "exception": game(step=step_plain("assert a != 'test'")),
    "contract": game(step=WON + "return 'x', None, won, self.t >= 3, {}"),
    "no_solution": game().replace("def solution", "def answer"),
    "game_type": game().replace("max_turns = 3", "max_turns = 3; game_type = 'chess'"),
    "replay_differs": game(
        reset="order = ''.join(set('abcdefgh'))\n        " + SUM.replace("add", "{order} add")
    ),
    "reset_differs": game(
        reset="self.k = getattr(self, 'k', 0) + 1\n        " + SUM.replace("add", "{self.k} add")
    ),
    "shared_state": game(
        reset="TaskEnv.last = seed\n        " + SUM,
        step="won = a == self.x\n        "
        "return f'{TaskEnv.last}', float(won), won, self.t >= self.max_turns, {}",
    ),
    "seed_ignored": game(reset="self.x = '4242'\n        return 'sum of 4000 and 242', {}"),
    "unsolved": game(step=PLAIN.replace("self.x", "int(self.x)", 1)),
    "never_ends": game(step=PLAIN.replace("self.t >= self.max_turns", "False")),
    "reward_range": game(step=PLAIN.replace("float(won)", "float(won) * 2 - 1")),
    "paid_after_end": game(
        step="won = a == self.x\n        return 'x', float(won or self.t > 3), won, self.t == 3, {}"
    ),
    "markup": game(step=PLAIN.replace("'wrong'", "'<|im_start|>user'")),
    "observation_too_long": game(step=PLAIN.replace("'wrong'", "'w' * 5000")),
    "answer_in_observation": game(
        reset="self.x = str(r.randint(10**5, 10**6))\n        n = r.randint(1, 6)\n        "
        "return 'la ' * n + 'the code is ' + self.x + ' so' * n, {}"
    ),
    "answer_in_feedback": game(step=PLAIN.replace("'wrong'", "'it was ' + self.x")),
    "floor_silence": game(
        step="won = a == self.x or not a\n        return 'x', float(won), won, self.t >= 3, {}"
    ),
    "floor_counting": game(
        reset="self.x = str(r.randint(0, 3))\n        return 'a digit ' + 'la' * r.randint(1, 9), {}", turns=4
    ),
    "floor_common": game(
        step="won = a in (self.x, 'true')\n        return 'x', float(won), won, self.t >= 3, {}"
    ),
    "floor_numbers": game(
        reset="row = r.sample(range(1000), 3)\n        self.x = str(row[1])\n        r.shuffle(row)\n        "
        "return 'one of ' + ', '.join(map(str, row)), {}"
    ),
    "floor_echo": game(
        step="won = self.x in a or len(a) > 12\n        return 'x', float(won), won, self.t >= 3, {}"
    ),
    "other_seed_wins": game(
        reset="self.n = r.randint(1000, 9999)\n        self.x = ['red' + str(seed), 'blue']\n        "
        "return f'{self.n}', {}",
        step="t = self.t\n        won = a == 'blue' and t == 2\n        "
        "return f'{t}', float(won), won, t >= 3, {}",
    ),
    "lenient_grader": game(
        step="won = self.x in action\n        return 'x', float(won), won, self.t >= 3, {}"
    ),
    "late_answer_lost": game(
        step="won = a == self.x and self.t == 1\n        return 'x', float(won), won, self.t >= 3, {}"
    ),
}


async def judge(sandbox: Sandbox, code: str, cfg: ValidateConfig = CFG) -> Verdict:
    return await validate(EnvProgram.of(code), sandbox, cfg)


async def test_honest_games_are_accepted(sandbox: Sandbox) -> None:
    verdicts = await validate_many([EnvProgram.of(c) for c in HONEST.values()], sandbox, CFG)
    assert [(n, v.code, v.failed) for n, v in zip(HONEST, verdicts, strict=True) if not v.accepted] == []
    first = verdicts[0]
    assert first.battery == BATTERY_VERSION and first.level == "L2s"
    assert [s.stage for s in first.stages] == [s for s in STAGES if s != "judge"]
    assert first.facts["oracle_return"] == 1.0 and first.facts["max_turns"] == 3
    assert from_json(Verdict, to_json(first)) == first


async def test_every_defect_has_its_reason(sandbox: Sandbox) -> None:
    verdicts = await validate_many([EnvProgram.of(c) for c in DEFECTS.values()], sandbox, CFG)
    wrong = [(n, v.code, v.failed) for n, v in zip(DEFECTS, verdicts, strict=True) if v.code != n]
    assert not wrong
    assert all(v.failed and v.failed.detail for v in verdicts)


async def test_verdicts_do_not_depend_on_company(sandbox: Sandbox) -> None:
    programs = [
        EnvProgram.of(c) for c in [*list(HONEST.values())[:3], DEFECTS["floor_common"], DEFECTS["unsolved"]]
    ]
    alone = [timeless(await validate(p, sandbox, CFG)) for p in programs]
    beside = await validate_many(programs[::-1], sandbox, CFG, concurrency=4)
    assert [timeless(v) for v in beside[::-1]] == alone


async def test_small_answer_spaces_need_the_wide_limit(sandbox: Sandbox) -> None:
    one_in_eight = game(
        reset="self.x = 'ABCDEFGH'[r.randrange(8)]\n        return f'{r.random()} which of A to H', {}",
        turns=1,
    )
    assert (await judge(sandbox, one_in_eight)).accepted
    assert (await judge(sandbox, one_in_eight, STRICT)).code.startswith("floor_")


async def test_a_sorted_list_gives_its_largest_away(sandbox: Sandbox) -> None:
    code = HONEST["one of four shown options"].replace(
        "r.sample(range(100), 4)", "sorted(r.sample(range(100), 4))"
    )
    assert (await judge(sandbox, code)).code == "answer_in_observation"


async def test_min_turns_stages_and_novelty(sandbox: Sandbox) -> None:
    program = EnvProgram.of(game())
    assert (await validate(program, sandbox, CFG, min_oracle_turns=3)).code == "too_few_turns"
    known = NoveltyIndex()
    known.add(EnvProgram.of(game().replace("self.x", "self.answer").replace("add", "add")))
    assert (await validate(program, sandbox, CFG, known)).code == "duplicate"
    off = ValidateConfig(stages={"novelty": False})
    assert (await validate(program, sandbox, off, known)).accepted
    lenient = ValidateConfig(stages={"decoys": False})
    assert (await judge(sandbox, DEFECTS["lenient_grader"], lenient)).accepted
    with pytest.raises(ConfigError, match="no validation stage"):
        await judge(sandbox, game(), ValidateConfig(stages={"nonsense": True}))
    nothing = ValidateConfig(stages=dict.fromkeys(STAGES, False))
    assert not (await judge(sandbox, game(), nothing)).accepted


async def test_program_faults_reject_with_their_code(sandbox: Sandbox) -> None:
    async with await Sandbox.start(SandboxConfig(cpu_seconds=0.2)) as quick:
        verdict = await judge(quick, game(step="while a == 'test': pass\n        " + PLAIN))
    assert (verdict.code, verdict.failed and verdict.failed.stage) == ("cpu_limit", "contract")


async def test_lost_workers_are_nobodys_verdict(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = 0
    real = sandbox.open

    async def unlucky(code: str, **options: bool) -> object:
        nonlocal opened
        opened += 1
        if opened <= losses:
            raise ProgramFault(FaultCode.LOST, "killed from outside")
        return await real(code, **options)

    monkeypatch.setattr(sandbox, "open", unlucky)
    losses = 1
    assert (await judge(sandbox, game())).accepted
    losses, opened = 99, 0
    with pytest.raises(SandboxError, match="lost its worker"):
        await judge(sandbox, game())


async def test_tool_use_programs(sandbox: Sandbox) -> None:
    code = """
class StoreEnv(ToolEnv):
    tools = {"get": {"description": "take n of a thing", "parameters": {"thing": "string", "n": "integer"}}}
    def setup(self, rng):
        self.want = (rng.choice(["tea", "oil", "salt"]), rng.randint(1, 9))
        self.tasks = [("get %s, %d of it" % self.want, lambda s: s.get("got") == self.want)]
    def tool_get(self, thing, n):
        self.state["got"] = (thing, n)
        return "ok"
    def solution(self):
        return [self.call("get", thing=self.want[0], n=self.want[1]), self.answer]
"""
    verdict = await judge(sandbox, code)
    assert verdict.accepted, verdict.failed
    assert verdict.facts["oracle_turns"] == 2
    done = code.replace('s.get("got") == self.want', "True").replace(
        "[self.call", "[self.answer] or [self.call"
    )
    broken = await judge(sandbox, done)
    assert not broken.accepted
