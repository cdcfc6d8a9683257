"""The battery as a whole: switches and parameters, stages of others, the judge, lookalikes, overrides."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from envs_programs import PLAIN, SUM, game

from spade import registry
from spade.config import SandboxConfig, ValidateConfig
from spade.envs.battery import OFF_BY_DEFAULT, STAGES, parameters_of, plan
from spade.envs.bench import Bench
from spade.envs.fingerprint import NoveltyIndex
from spade.envs.judge import UNJUDGED, JudgeUnreachable, question, read_verdict, without_comments
from spade.envs.sandbox import Sandbox
from spade.envs.screen import Refused
from spade.envs.validate import validate, validate_many
from spade.errors import BackendError, ConfigError
from spade.testing import check_stage_function
from spade.types import EnvProgram, Verdict, from_json, to_json

PLANTED = Path(__file__).parent / "planted"
PROGRAM = EnvProgram.of(game())
TOOLS = EnvProgram.of((PLANTED / "good_tool_bank.py").read_text())


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with await Sandbox.start(SandboxConfig(force_level="L2s")) as running:
        yield running


def only(**stages: bool | dict[str, object]) -> ValidateConfig:
    return ValidateConfig(stages={**dict.fromkeys(STAGES, False), **stages})


# --- switches and parameters ---------------------------------------------------------------------------


def test_the_plan_follows_the_config() -> None:
    assert [s.name for s in plan(ValidateConfig())] == [n for n in STAGES if n not in OFF_BY_DEFAULT]
    cfg = ValidateConfig(stages={"novelty": False, "late": {"enabled": False}, "floor": {"seeds": 8}})
    assert {"novelty", "late"}.isdisjoint(s.name for s in plan(cfg))
    assert next(s for s in plan(cfg) if s.name == "floor").run.keywords == {"seeds": 8}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ({"flor": True}, "no validation stage 'flor'.*'floor'"),
        ({"floor": {"seed": 3}}, r"no setting validator.stages.floor.seed; did you mean 'seeds'"),
        ({"floor": {"seeds": "many"}}, "floor.seeds cannot be 'many'"),
        ({"floor": {"seeds": 2.5}}, "must be a whole number"),
        ({"floor": {"seeds": True}}, "cannot be True"),
        ({"late": {"enabled": "no"}}, "late.enabled must be true or false"),
        ({"decoys": {"enabled": True, "limt": 0.3}}, "did you mean 'limit'"),
    ],
)
def test_unknown_stages_and_settings_are_errors(stages: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(ValidateConfig(stages=stages))  # type: ignore[arg-type]


def test_every_setting_of_every_stage_can_be_set_to_its_default() -> None:
    for name, stage in STAGES.items():
        plan(ValidateConfig(stages={name: {"enabled": True, **parameters_of(stage)}}))


@pytest.mark.parametrize("program", [PROGRAM, TOOLS], ids=["game", "tools"])
async def test_every_stage_can_run_alone(sandbox: Sandbox, program: EnvProgram) -> None:
    for name in STAGES:
        if name != "judge":
            verdict = await validate(program, sandbox, only(**{name: True}))
            assert verdict.accepted and [s.stage for s in verdict.stages] == [name], verdict.failed


async def test_parameters_reach_the_stage(sandbox: Sandbox) -> None:
    assert (await validate(PROGRAM, sandbox, only(oracle={"min_turns": 2}))).code == "too_few_turns"
    assert (await validate(TOOLS, sandbox, only(tool_schemas={"max_tools": 3}))).code == "tool_count"
    assert (await validate(TOOLS, sandbox, only(tool_criteria={"min_tasks": 4}))).code == "task_count"
    assert (
        await validate(PROGRAM, sandbox, only(observations={"max_chars": 5}))
    ).code == "observation_too_long"


async def test_a_long_task_needs_more_tools_and_instructions(sandbox: Sandbox) -> None:
    code = TOOLS.code.replace(
        '"freeze": {"description": "freeze or thaw an account", "parameters": ', "**{} and {"
    )
    small = EnvProgram.of(
        "class PairEnv(ToolEnv):\n"
        '    tools = {"put": {"description": "puts n", "parameters": {"n": "integer"}}}\n'
        "    def setup(self, rng):\n"
        "        self.n = rng.randint(100, 999)\n"
        '        self.tasks = [(f"put {self.n}", lambda s: s.get("n") == self.n)]\n'
        "    def tool_put(self, n):\n"
        '        self.state["n"] = n\n'
        '        return "put"\n'
        "    def solution(self):\n"
        '        return [self.call("put", n=self.n), self.answer]\n'
    )
    assert code != TOOLS.code
    assert (await validate(small, sandbox, ValidateConfig())).accepted
    assert (await validate(small, sandbox, ValidateConfig(), min_oracle_turns=3)).code == "tool_count"
    assert (await validate(TOOLS, sandbox, ValidateConfig(), min_oracle_turns=3)).accepted


# --- what a verdict says -------------------------------------------------------------------------------


async def test_a_verdict_names_its_circumstances(sandbox: Sandbox) -> None:
    verdict = await validate(PROGRAM, sandbox, ValidateConfig(seeds=5))
    assert len(verdict.seeds) == 5 and verdict.python.count(".") == 2 and verdict.level == "L2s"
    assert verdict.sketch and verdict.battery and all(s.seconds >= 0 for s in verdict.stages)
    assert from_json(Verdict, to_json(verdict)) == verdict


async def test_the_type_can_be_overridden(sandbox: Sandbox) -> None:
    boxless = game(step="won = action == self.x\n        return 'x', float(won), won, self.t >= 3, {}")
    program = EnvProgram.of(boxless)  # takes the bare action: as a game it cannot be won
    assert (await validate(program, sandbox, ValidateConfig())).code == "unsolved"
    verdict = await validate(program, sandbox, only(oracle=True), game_type="tool_use")
    assert verdict.accepted
    many = await validate_many([program], sandbox, only(load=True), game_type="chess")
    assert many[0].code == "game_type"


# --- stages of others ----------------------------------------------------------------------------------

OWN = '''
from spade.envs.screen import Refused

async def polite(bench, *, word="please"):
    """The first observation asks politely."""
    await bench.survey()
    if word not in bench.probes[0].observation:
        raise Refused("impolite", f"The first observation does not say {word}.")

def not_a_stage(bench):
    pass
'''


async def test_a_file_may_hold_a_stage(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    name = f"{tmp_path}/own.py:polite"
    verdict = await validate(PROGRAM, sandbox, ValidateConfig(stages={name: True}))
    assert (verdict.code, verdict.stages[-1].stage) == ("impolite", name)
    assert (await validate(PROGRAM, sandbox, ValidateConfig(stages={name: {"word": "add"}}))).accepted
    with pytest.raises(ConfigError, match="did you mean 'word'"):
        plan(ValidateConfig(stages={name: {"wrd": "add"}}))
    with pytest.raises(ConfigError, match="not an async function"):
        plan(ValidateConfig(stages={f"{tmp_path}/own.py:not_a_stage": True}))


async def short(bench: Bench, *, most: int = 10) -> None:
    """First observations have at most `most` characters."""
    await bench.survey()
    longest = max(len(p.observation) for p in bench.probes)
    if longest > most:
        raise Refused("talkative", f"A first observation has {longest} characters.")


async def unfinished(bench: Bench, *, most: int) -> None:
    """A stage whose parameter has no default."""


async def test_registered_stages_run_last_and_can_be_checked(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._ROWS["stage"], "short", "test_envs_battery:short")
    steps = plan(ValidateConfig(stages={"short": {"most": 30}, "judge": True}))
    assert [s.name for s in steps[-2:]] == ["short", "judge"]
    results = await check_stage_function(short, [game(), game(reset="self.x = '1'\n        return 'q', {}")])
    assert [r.code for r in results] == ["talkative", "ok"]
    with pytest.raises(AssertionError, match="no defaults"):
        await check_stage_function(unfinished, [])


# --- lookalikes ----------------------------------------------------------------------------------------

REWRITTEN = SUM.replace(
    "p, q = r.randint(100, 999), r.randint(100, 999)", "q = r.randint(100, 900)\n        p = q + 7"
)


async def test_a_rewritten_game_is_a_near_duplicate(sandbox: Sandbox) -> None:
    cfg = ValidateConfig()
    first = await validate(PROGRAM, sandbox, cfg)
    known = NoveltyIndex()
    known.add(PROGRAM, first.sketch)
    twin = EnvProgram.of(game(reset=REWRITTEN))
    verdict = await validate(twin, sandbox, cfg, known)
    assert verdict.code == "near_duplicate" and PROGRAM.id[:12] in (
        verdict.failed.detail if verdict.failed else ""
    )
    assert (await validate(twin, sandbox, ValidateConfig(stages={"near_duplicate": False}), known)).accepted
    small = await validate(twin, sandbox, ValidateConfig(floor_max=0.34), known)
    assert small.accepted and not small.sketch  # ranges are what small worlds differ in
    asked = ValidateConfig(floor_max=0.34, stages={"near_duplicate": {"in_small_worlds": True}})
    assert (await validate(twin, sandbox, asked, known)).code == "near_duplicate"
    for other in (
        game(turns=4),
        game(reset=SUM.replace("add", "sum up")),
        game(step=PLAIN.replace("wrong", "no")),
    ):
        assert (await validate(EnvProgram.of(other), sandbox, cfg, known)).accepted
    restored = NoveltyIndex()
    restored.load_state_dict(known.state_dict())
    assert restored.lookalike(first.sketch) == PROGRAM.id
    assert restored.lookalike(first.sketch, besides=PROGRAM.id) is None
    assert restored.lookalike("") is None


# --- the judge -----------------------------------------------------------------------------------------

JUDGED = ValidateConfig(stages={**dict.fromkeys(STAGES, False), "judge": True})
TALKING = '"""Say \\boxed{yes}."""\n# say yes\n' + game().replace(
    "max_turns = 3", 'max_turns = 3\n    "yes!"'
)


def test_the_judge_sees_code_alone() -> None:
    shown = question(TALKING, "multi_turn")
    body = shown.split("```python")[1]
    assert "say yes" not in shown.lower() and "yes!" not in body and "def step(self, action):" in body
    assert "predicate" in question(TALKING, "tool_use") and "predicate" not in shown
    assert without_comments("def f():\n    'doc'") == "def f():\n    pass"


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (r"Fine. \boxed{yes}", True),
        (r"\boxed{ NO }", False),
        (r"\boxed{no} but then \boxed{yes}", True),
        (r"<think>\boxed{yes}</think> well", None),
        (r"<think>\boxed{yes}", None),
        (r"\boxed{yes, maybe}", None),
        ("yes", None),
        ("", None),
    ],
)
def test_verdicts_are_read_strictly(reply: str, verdict: bool | None) -> None:
    assert read_verdict(reply) is verdict


async def test_the_judge_decides_and_silence_rejects(sandbox: Sandbox) -> None:
    asked: list[str] = []

    async def judged(reply: str) -> Verdict:
        async def judge(prompt: str) -> str:
            asked.append(prompt)
            return reply

        return await validate(PROGRAM, sandbox, JUDGED, judge=judge)

    assert (await judged(r"\boxed{yes}")).accepted
    assert (await judged(r"\boxed{no}")).code == "judge_no"
    assert (await judged("")).code == (await judged("I think so")).code == "judge_no_verdict"
    assert len(asked) == 4 and len(set(asked)) == 1
    with pytest.raises(ConfigError, match=r"validator\.judge\.model"):
        await validate(PROGRAM, sandbox, JUDGED)


async def test_a_judge_out_of_reach_is_nobodys_verdict(sandbox: Sandbox) -> None:
    async def gone(prompt: str) -> str:
        raise BackendError("the endpoint refused the connection")

    async def broken(prompt: str) -> str:
        raise ValueError("odd reply")

    with pytest.raises(JudgeUnreachable, match="refused the connection"):
        await validate(PROGRAM, sandbox, JUDGED, judge=gone)
    (verdict,) = await validate_many([PROGRAM], sandbox, JUDGED, judge=gone)
    assert not verdict.judged and not verdict.accepted and verdict.code == UNJUDGED
    failed = await validate(PROGRAM, sandbox, JUDGED, judge=broken)
    assert failed.judged and failed.code == "judge_no_verdict"
    assert dataclasses.replace(verdict, judged=True) != verdict


# --- hostile descriptions of tools ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "plan"),
    [
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": [["n"]]}, None),
        ({"type": "object", "properties": {"n": {"type": ["integer", ["x"]]}}}, None),
        ({"type": "object", "properties": {"n": "integer"}}, None),
        ({"type": "object", "properties": {"n": {"type": "integer", "enum": {}}}}, None),
        ({"n": "integer"}, ['<tool_call>{"name": ["put"], "arguments": {}}</tool_call>']),
        ({"n": "integer"}, ['<tool_call>{"name": "put", "arguments": [1]}</tool_call>']),
        ({"n": "integer"}, ["<tool_call>[[[[</tool_call>"]),
    ],
)
async def test_odd_descriptions_are_refused_and_break_nothing(
    sandbox: Sandbox, parameters: object, plan: list[str] | None
) -> None:
    code = (
        "class OddEnv(ToolEnv):\n"
        f"    tools = {{'put': {{'description': 'puts n', 'parameters': {parameters!r}}}}}\n"
        "    def setup(self, rng):\n"
        "        self.n = rng.randint(100, 999)\n"
        "        self.tasks = [(f'put {self.n}', lambda s: s.get('n') == self.n)]\n"
        "    def tool_put(self, n):\n"
        "        self.state['n'] = n\n"
        "        return 'put'\n"
        "    def solution(self):\n"
        f"        return {plan!r} or [self.call('put', n=self.n), self.answer]\n"
    )
    verdict = await validate(EnvProgram.of(code), sandbox, ValidateConfig())
    assert verdict.code in ("tool_schema", "solution_call", "exception"), verdict.failed
    alone = await validate(EnvProgram.of(code), sandbox, only(tool_criteria=True))
    assert not alone.accepted or plan is None
