"""The held-out pool of the suite `games`: what it covers, that skill and nothing else wins it, who saw it.

`SPADE_SOAK=1` (`make soak`) plays many more seeds and validates every level.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from games_play import floors, garbage, load, play, solve
from games_players import PLAYERS

from spade.config import SandboxConfig, ValidateConfig
from spade.design.skills import SKILLS
from spade.embedded.mechanics import registry, sample_program, tool_registry
from spade.envs.sandbox import Sandbox
from spade.envs.validate import validate_many
from spade.errors import InputError
from spade.rng import child_rng
from spade.types import EnvProgram
from spade_evals.suites import games_check, games_pool, heldout

SOAK = bool(os.environ.get("SPADE_SOAK"))
ROOT = Path(__file__).resolve().parents[2]
GAMES = games_pool.shipped_games()
NAMES = sorted({game.name for game in GAMES})
SEEDS = range(400 if SOAK else 15)
FLOOR_SEEDS = range(7000, 7000 + (100 if SOAK else 3))


def of(name: str) -> list[games_pool.Game]:
    return [game for game in GAMES if game.name == name]


# --- what is there -------------------------------------------------------------------------------------


def test_every_skill_has_programs_and_every_program_three_levels() -> None:
    assert len(NAMES) >= 40
    assert Counter(game.level for game in GAMES) == dict.fromkeys((1, 2, 3), len(NAMES))
    assert len({game.program.id for game in GAMES}) == len(GAMES)
    skills = Counter(game.program.skill for game in GAMES if game.level == 1)
    assert set(skills) == {*games_pool.GAME_SKILLS, *games_pool.TOOL_SKILLS} <= set(SKILLS)
    assert min(skills.values()) >= 3
    for game in GAMES:
        assert game.part.split("/")[0] == ("tools" if game.program.game_type == "tool_use" else "games")
        assert game.part.split("/")[1] == games_pool.slug(game.program.skill)


def test_the_manifest_lists_every_file_and_nothing_else(tmp_path: Path) -> None:
    copy = tmp_path / "pool"
    shutil.copytree(games_pool.FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shipped = (copy / "manifest.json").read_bytes()
    assert games_pool.write_manifest(copy).read_bytes() == shipped, "raise the version, and write it anew"
    assert len(list(copy.rglob("*.py"))) == len(NAMES)
    file = copy / "optimization" / "long_haul.py"
    file.write_text(file.read_text().replace("litres", "gallons"))
    with pytest.raises(InputError, match=r"long_haul\.py is not the file that manifest\.json lists"):
        games_pool.shipped_games(copy)
    file.unlink()
    with pytest.raises(InputError, match="install SPADE again"):
        games_pool.shipped_games(copy)


def test_a_level_is_one_line_of_the_text() -> None:
    assert games_pool.at_level("a\nLEVEL = 1\nb LEVEL = 1", 3) == "a\nLEVEL = 3\nb LEVEL = 1"
    for text in ("", "LEVEL = 2", "LEVEL = 1\nLEVEL = 1"):
        with pytest.raises(InputError, match="one line 'LEVEL = 1'"):
            games_pool.at_level(text, 2)


# --- that it can be won, and how -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_wins_at_every_level_and_takes_turns(name: str) -> None:
    for game in of(name):
        make = load(game)
        results = [solve(game, make, seed)[:2] for seed in SEEDS]
        assert {value for value, _ in results} == {1.0}, game.level
        if game.level > 1 and game.program.game_type != "single_turn":
            assert sum(turns for _, turns in results) / len(results) >= 3
        assert max(turns for _, turns in results) <= make().max_turns <= 25


@pytest.mark.parametrize("name", NAMES)
def test_players_without_skill_get_next_to_nothing(name: str) -> None:
    for game in of(name):
        means = floors(game, load(game), FLOOR_SEEDS)
        worst = max(means, key=means.__getitem__)
        # One lucky episode of three says little; a hundred of them decide.
        assert means[worst] <= (0.12 if SOAK else 0.5), (game.level, worst, means[worst])
        assert sum(means.values()) / len(means) <= 0.02, game.level


@pytest.mark.parametrize("name", PLAYERS)
def test_skilled_players_win_by_observing(name: str) -> None:
    player, levels = PLAYERS[name]
    for game in (g for g in of(name) if g.level in levels):
        make = load(game)
        won = 0.0
        for seed in range(100, 106):
            env = make()
            env.said, _ = env.reset(seed)
            won += player(env, make.reset.__globals__)  # type: ignore[attr-defined]
        assert won >= 5, game.level


@pytest.mark.parametrize("name", NAMES)
def test_texts_say_how_to_act_and_bad_actions_are_called_bad(name: str) -> None:
    for game in of(name):
        env = load(game)()
        first, _ = env.reset(3)
        reply = env.step(garbage(game))[0]
        if game.program.game_type == "tool_use":
            assert "<answer>done</answer>" in first
            assert env.step(env.call("no_such_tool"))[0].startswith("error")
        else:
            assert "\\boxed{" in first and reply.startswith("Invalid")
        assert 20 < len(first) < 2600


def test_the_same_seed_is_the_same_episode_and_episodes_do_not_touch() -> None:
    rng = random.Random(5)
    for game in GAMES:
        make, seed = load(game), rng.randrange(10**6)
        env, used = make(), make()
        alone = solve(game, make, seed)
        used.reset(seed + 1)
        play(used, [garbage(game)] * 2)
        assert used.reset(seed) == env.reset(seed)
        again = solve(game, lambda: used, seed)  # noqa: B023  # used at once
        assert again == alone, game.name


# --- the validator -------------------------------------------------------------------------------------


async def test_the_validator_accepts_every_program_by_default() -> None:
    chosen = [g for g in GAMES if SOAK or g.level == 1 + NAMES.index(g.name) % 3]
    assert len(chosen) == (len(GAMES) if SOAK else len(NAMES))
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        verdicts = await validate_many([g.program for g in chosen], sandbox, ValidateConfig())
    pairs = list(zip(chosen, verdicts, strict=True))
    refused = {(g.name, g.level): v.failed for g, v in pairs if not v.accepted}
    assert refused == {}
    assert {v.facts["oracle_return"] for _, v in pairs} == {1.0}
    assert sum(v.facts["floor_return"] for _, v in pairs) / len(pairs) <= 0.02


# --- that nobody has seen it ---------------------------------------------------------------------------


def corpus(count: int) -> list[EnvProgram]:
    """Programs of the embedded model's pretraining corpus: games and tool use, all mechanics, all levels."""
    rng = child_rng(0, "games near-duplicates")
    rows = [sample_program(rng, tools=k % 4 == 0) for k in range(count)]
    rows += [sample_program(rng, name=name, level=level) for name in registry() for level in range(3)]
    rows += [
        sample_program(rng, name=name, level=level, tools=True)
        for name in tool_registry()
        for level in range(3)
    ]
    return [games_pool.program_of(code) for code in dict.fromkeys(row.code for row in rows)]


def shown() -> list[EnvProgram]:
    """Programs that stand in briefs and in the manual, and programs of pools that come with the project."""
    texts = [p.read_text() for p in (ROOT / "spade" / "design" / "prompts").glob("*.j2")]
    texts += [p.read_text() for p in (ROOT / "docs").glob("*.md")]
    codes = [code for text in texts for code in re.findall(r"```python\n(.*?)```", text, re.S)]
    folders = [ROOT / "baselines", ROOT / "results", ROOT / "benchmarks" / "programs"]
    codes += [p.read_text() for folder in folders for p in folder.rglob("*.py")]
    return [games_pool.program_of(code) for code in codes if "Env" in code and "class " in code]


def test_no_program_of_corpus_pools_or_briefs_is_one_of_these_by_code() -> None:
    held = [game.program for game in GAMES if game.level == 1]
    others = [*corpus(3000 if SOAK else 60), *shown(), *(p.program for p in heldout.make_suite().programs)]
    assert len(others) > 150
    assert games_check.twins_by_code(others, held) == []
    assert games_check.twins_by_code(held, held, 0.999)[0][2] == 1.0
    apart = games_check.twins_by_code(held[:1], held[1:], 0.0)
    assert apart[0][2] < 0.3
    disguised = held[3].code.replace("self.turn", "self.moment").replace("Env:", "OtherEnv:  # new")
    found = games_check.twins_by_code([games_pool.program_of(disguised)], held)
    assert [row[1] for row in found] == [held[3].id]
    levels = [game.program for game in GAMES if game.level == 3][:: 1 if SOAK else 4]
    assert {row[0] for row in games_check.twins_by_code(levels, held, 0.95)} == {p.id for p in levels}


async def test_no_corpus_program_looks_and_plays_like_one_of_these() -> None:
    held = [game.program for game in GAMES if game.level == 1]
    others = corpus(600 if SOAK else 0)
    assert len(others) > 50
    disguised = held[3].code.replace("self.turn", "self.moment")
    twin = games_pool.program_of(disguised)
    async with await Sandbox.start(SandboxConfig()) as sandbox:
        assert await games_check.twins_by_behaviour(others, held, sandbox) == []
        assert await games_check.twins_by_behaviour([twin], held, sandbox) == [(twin.id, held[3].id)]
