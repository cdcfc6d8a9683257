"""The training loop, on one page.

    programs = source.begin_step(step)            design, validate, hint  (or draw from a pool)
    groups   = play(programs)                     plain plays; hinted ones on the same seeds
    credits  = source.observe(step, groups)       regret, rewards, advantages
    learner.step(samples(credits))                one update of the one policy behind both roles
    publish(learner, policy)                      play goes on with the new weights

Nothing here knows whether programs come from self-play or from a pool, and the learner knows neither roles'
meaning nor environments. Every random decision has a seed of its own, derived from the run's seed and what is
decided, so a run that was killed and resumed makes the same decisions as one that was not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spade import registry
from spade.config import Config
from spade.interrupt import StopFlag
from spade.runs import RunFolder
from spade.train.checks import check_run
from spade.train.groups import check_faults, play_groups
from spade.train.ledger import Ledger
from spade.train.lens import EntropyLens, open_lens
from spade.train.record import episode_rows, play_metrics, sample_metrics, samples_of
from spade.train.roles import Roles, open_roles
from spade.train.source import EnvSource, World
from spade.train.state import drop_rows_after, restore_state, train_state
from spade.train.token_rows import token_rows

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.learn.trainer import CompactLearner
    from spade.report.progress import Progress
    from spade.serving.chat import ChatPolicy

OnCheckpoint = Callable[["ChatPolicy", "Sandbox", int], Awaitable[str]]
"""Called with the Agent, the sandbox and the step: before the first step and after each checkpoint. It may
use both, is called again for the last step when a run is resumed, and returns a line to show, or nothing."""

LR_END = 0.1
"""A linear schedule ends at this share of the learning rate, so that the last plays still teach."""


def run_training(
    cfg: Config,
    folder: RunFolder,
    stop: StopFlag,
    *,
    chat: ChatPolicy | None = None,
    learner: CompactLearner | None = None,
    on_checkpoint: OnCheckpoint | None = None,
) -> dict[str, Any]:
    """Train in an open run folder, from its last checkpoint if it has one; returns a summary.

    Ends after `train.steps`, when the token budget is spent, or at the end of the step in which `stop` was
    requested. `chat` and `learner` replace the ones `cfg` asks for (tests). Raises InputError or
    ConfigError for what the user named, SandboxError or BackendError when too much breaks.
    """
    check_run(cfg)
    return asyncio.run(_train(cfg, folder, stop, chat, learner, on_checkpoint))


async def _train(
    cfg: Config,
    folder: RunFolder,
    stop: StopFlag,
    chat: ChatPolicy | None,
    learner: CompactLearner | None,
    on_checkpoint: OnCheckpoint | None,
) -> dict[str, Any]:
    from spade.envs.sandbox import Sandbox

    roles = await open_roles(cfg, chat, learner)
    try:
        async with await Sandbox.start(cfg.sandbox) as sandbox:
            folder.update_record(sandbox_level=sandbox.level)
            world = World(cfg, roles.agent, sandbox, folder, Ledger(), roles.designer)
            source: EnvSource = registry.resolve("source", cfg.train.source)(world)
            return await _steps(Run(world, source, roles, stop, open_lens(world, roles), on_checkpoint))
    finally:
        await roles.close()


@dataclass(slots=True)
class Run:
    """Everything a step touches."""

    world: World
    source: EnvSource
    roles: Roles
    stop: StopFlag
    lens: EntropyLens | None = None
    on_checkpoint: OnCheckpoint | None = None
    steps: int = 0
    """Finished steps."""

    @property
    def ending(self) -> bool:
        """Whether no further step follows: the steps are done, or the budget is spent and nothing is owed."""
        cfg = self.world.cfg
        spent = self.world.ledger.share_of(cfg.budget) >= 1.0
        return self.steps >= cfg.train.steps or (spent and not self.source.owes_play)


async def _steps(run: Run) -> dict[str, Any]:
    from spade.report.progress import Progress

    cfg, world = run.world.cfg, run.world
    _resume(run)
    await run.roles.publish()
    with Progress(cfg.train.steps, cfg.name, cfg.budget.total_tokens) as progress:
        await _look(run, progress)
        while not run.ending and not run.stop.requested:
            row = await _step(run)
            world.folder.append("metrics.jsonl", row)
            progress.row(row)
            if run.ending or run.stop.requested or run.steps % cfg.train.checkpoint_every == 0:
                _save(run)
                await _look(run, progress)
    world.folder.update_record(ledger=world.ledger.summary())
    return {"steps": run.steps, **world.ledger.summary()}


async def _step(run: Run) -> dict[str, Any]:
    """One step: play, judge, learn, publish. Returns its row of `metrics.jsonl`."""
    cfg, world, source, step = run.world.cfg, run.world, run.source, run.steps
    before = dict(world.ledger.seconds)
    programs = await source.begin_step(step)
    with world.ledger.phase("play"):
        groups = await play_groups(world, programs, step)
    check_faults(groups, cfg.train.max_fault_share, step + 1)
    credits = await source.observe(step, groups)
    run.steps += 1
    if run.ending:
        credits += source.flush()
    samples = samples_of(credits)
    seen = await run.lens.before(step, samples) if run.lens is not None else {}
    with world.ledger.phase("learn"):
        temperature = {"agent": cfg.play.temperature, "designer": cfg.design.temperature}
        before_update = run.roles.updates
        scale = _lr_scale(cfg, step, world.ledger)
        learned = run.roles.step(samples, temperature, scale)
        world.ledger.count("optimiser_steps", run.roles.updates - before_update)
        world.ledger.count("tokens_trained", sum(sum(s.mask) for s in samples if s.advantage))
        await run.roles.publish()
    if run.lens is not None:
        seen |= await run.lens.after(run.steps, groups, ending=run.ending, measured=bool(seen))
    world.folder.append_many("episodes.jsonl", episode_rows(run.steps, groups))
    renderer, kept = world.chat.renderer, cfg.train.token_rows
    world.folder.append_many("tokens.jsonl", token_rows(run.steps, groups, samples, renderer, kept))
    numbers = {**source.metrics(), **sample_metrics(samples), **seen}
    return play_metrics(run.steps, groups, numbers, learned, world.ledger, before)


def _lr_scale(cfg: Config, step: int, ledger: Ledger) -> float:
    """Learning rate as a multiple of the configured one; `linear` falls with whatever ends the run."""
    if cfg.learner.lr_schedule == "constant":
        return 1.0
    spent = max(step / cfg.train.steps, ledger.share_of(cfg.budget))
    return max(LR_END, 1.0 - spent)


def _resume(run: Run) -> None:
    """Go back to the last checkpoint, or to the very start when there is none."""
    state = run.roles.load(run.world.folder.path)
    if state is not None:
        run.steps = restore_state(state, run.source, run.world.ledger)
        if run.lens is not None and "lens" in state:
            run.lens.load_state_dict(state["lens"])
    drop_rows_after(run.world.folder, run.steps)


def _save(run: Run) -> None:
    world = run.world
    with world.ledger.phase("checkpoint"):
        state = train_state(run.steps, run.source, world.ledger)
        if run.lens is not None:
            state["lens"] = run.lens.state_dict()
        run.roles.save(world.folder.path, run.steps, state, world.cfg.train.keep)


async def _look(run: Run, progress: Progress) -> None:
    """Have the weights of this step evaluated, if somebody wants to know."""
    if run.on_checkpoint is None or run.stop.requested:
        return
    world = run.world
    with world.ledger.phase("eval"):
        line = await run.on_checkpoint(run.roles.agent, world.sandbox, run.steps)
    if line:
        progress.note(line)
    await run.roles.publish()  # drops what the engine kept of it: the next step is that of a run resumed here
