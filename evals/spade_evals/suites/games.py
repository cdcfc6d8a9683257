"""The suite `games`: multi-turn environment programs that no model was trained on, at three levels.

The default is the shipped pool: six game skills and six tool-use skills, each program at three levels, played
from a few seeds. `spade eval --suite games --pool DIR` plays the programs of a folder instead. Two further
suites host games of other libraries: `games-textarena` and `games-reasoning`.

A part is `games/SKILL` or `tools/SKILL`, a cluster one program with all its levels. Besides the return every
item notes its level, turns and invalid actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spade.envs.contract import boxed_content
from spade.play.actions import codec_for
from spade.rng import child_seed
from spade.types import EnvProgram, Episode, EpisodeEnd, Instance, Item, ItemResult, Turn
from spade_evals.suite import About, Setting, take
from spade_evals.suites.games_pool import Game, folder_games, shipped_games, slug

if TYPE_CHECKING:
    from spade.serving.launch import ChatPolicy
    from spade_evals.suites.games_report import GamesReport
    from spade_evals.task_report import SuiteReport

SEEDS: Final = 4
"""Episodes of each program at each level."""

POOL_SEEDS: Final = 8
"""Episodes of each program of a folder."""

MAX_TEXT: Final = 4000
"""Characters of an episode's transcript kept with its result."""

INVALID: Final = "invalid"
"""How programs of the pool begin their answer to an action that they cannot use."""

TOOL_ERROR: Final = "error"
"""How `ToolEnv` and the tools of the pool begin their answer to a call that cannot be run."""

CUT: Final = (EpisodeEnd.UNFINISHED, EpisodeEnd.CONTEXT_LIMIT)
"""Ends by a limit on tokens; then the player could not say all it wanted to."""


class GamesSuite:
    """See the module text. `games` replaces the shipped pool."""

    name = "games"
    version = 1
    about = About(504, "42 programs of the package at three levels, by hand", "1", "MIT")
    seeds = SEEDS
    validated = True
    """The programs are known to keep their episodes apart, so that episodes may share a process."""

    def __init__(self, games: Sequence[Game] | None = None) -> None:
        self.games = list(games) if games is not None else shipped_games()

    def with_pool(self, folder: Path) -> GamesSuite:
        """The same suite on the programs of a folder. Raises InputError when it holds none."""
        return PoolSuite(folder)

    def items(self, seed: int, limit: int | None) -> list[Item]:
        """One item per program, level and seed; `limit` spreads over the programs, their levels in turn."""
        names = list(dict.fromkeys(game.name for game in self.games))
        ordered: list[Item] = []
        for place, name in enumerate(names):
            own = [game for game in self.games if game.name == name]
            own = own[place % len(own) :] + own[: place % len(own)]  # so that a limit takes all levels alike
            ordered += [self._item(game, seed, k) for k in range(self.seeds) for game in own]
        return take(ordered, limit)

    def _item(self, game: Game, seed: int, k: int) -> Item:
        program = game.program.id
        payload = {
            "program": program,
            "level": game.level,
            "seed": child_seed(seed, "games", program, k) % 2**31,
        }
        name = f"{game.part}/{game.name}/{game.level}/{program[:12]}/{k}"
        return Item(name, game.part, game.name, payload)

    def prompt(self, chat: ChatPolicy) -> str:
        """The first messages around a marker, of both kinds of programs."""
        from spade.design.prompts import agent_message, choose_template
        from spade.play.toolcalls import opening

        style = choose_template("auto", chat.policy.context_length)
        boxed = agent_message("OBSERVATION", None, style, codec_for("multi_turn").instruction).content
        return f"{boxed}\n{opening('INSTRUCTION', None).content}"

    async def run(self, items: Sequence[Item], setting: Setting) -> list[ItemResult]:
        """Play the items without hints."""
        return await self._play(items, setting, setting.sandbox)

    async def _play(
        self, items: Sequence[Item], setting: Setting, sandbox: Setting | object
    ) -> list[ItemResult]:
        from spade.play.schedule import play

        programs = {game.program.id: game.program for game in self.games}
        episodes = await play(
            [Instance(item.payload["program"], item.payload["seed"]) for item in items],
            programs,
            setting.chat,
            sandbox,  # type: ignore[arg-type]  # hosted games offer the few methods that play uses
            setting.play,
            seed=child_seed(setting.seed, "games-sampling"),
            shared_workers=self.validated,
            on_done=setting.on_done,
        )
        pairs = zip(items, episodes, strict=True)
        return [_result(item, episode, programs[item.payload["program"]]) for item, episode in pairs]

    def report(self, base: SuiteReport, rows: Sequence[ItemResult], run: Path | None) -> GamesReport:
        """The table by skill and by level; `run` is the training run of the checkpoint, if there is one."""
        from spade_evals.suites.games_check import code_twins
        from spade_evals.suites.games_report import report_of

        notes = code_twins(run, [game.program for game in self.games]) if run is not None else []
        return report_of(base, rows, notes)


class PoolSuite(GamesSuite):
    """The programs of a folder. They may be unvalidated, so each episode has a process of its own."""

    seeds = POOL_SEEDS
    validated = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder_games(folder))
        self.name = f"games-{slug(folder.resolve().name)}"

    def report(self, base: SuiteReport, rows: Sequence[ItemResult], run: Path | None) -> GamesReport:
        """As for the shipped pool, but a folder may well be what the run was trained on."""
        from spade_evals.suites.games_report import report_of

        return report_of(base, rows, [])


def make_suite() -> GamesSuite:
    """The registered factory."""
    return GamesSuite()


def _result(item: Item, episode: Episode, program: EnvProgram) -> ItemResult:
    lines = [episode.first_observation]
    for turn in episode.turns:
        lines += [f"> {turn.text.strip()}", turn.observation]
    facts = {
        "level": float(item.payload["level"]),
        "turns": float(len(episode.turns)),
        "invalid": float(sum(is_invalid(turn, program) for turn in episode.turns)),
        "cut": float(episode.end in CUT),
    }
    return ItemResult(
        item_id=item.id,
        part=item.part,
        cluster=item.cluster,
        sample=0,
        outcome=episode.outcome,
        end=episode.end.value,
        tokens=episode.sampled_tokens,
        text="\n".join(lines)[:MAX_TEXT],
        facts=facts,
    )


def is_invalid(turn: Turn, program: EnvProgram) -> bool:
    """Whether the turn held no action that the program could use: no box or call, or the program says so."""
    said = turn.observation.lstrip().casefold()
    if program.game_type == "tool_use":
        return turn.malformed or said.startswith(TOOL_ERROR)
    return boxed_content(turn.action) is None or said.startswith(INVALID)
