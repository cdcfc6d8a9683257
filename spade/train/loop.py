"""The training loop, on one page.

    programs = source.begin_step(step)            design, validate, hint  (or draw from a pool)
    groups   = play(programs)                     plain plays; hinted ones on the same seeds
    credits  = source.observe(step, groups)       regret, rewards, advantages
    learner.step(samples(credits))                one update of the one policy behind both roles
    publish(learner, policy)                      play goes on with the new weights

One step off (`train.staleness: 1`) the last two lines run beside the first three of the next step.

Nothing here knows whether programs come from self-play or from a pool, and the learner knows neither roles'
meaning nor environments. Every random decision has a seed of its own, derived from the run's seed and what is
decided, so a run that was killed and resumed makes the same decisions as one that was not.
"""

from __future__ import annotations

import asyncio
import time
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
from spade.train.made import Made, made_of
from spade.train.record import episode_rows
from spade.train.roles import Roles, open_roles
from spade.train.source import EnvSource, World
from spade.train.state import drop_rows_after, restore_state, train_state
from spade.train.token_rows import token_rows
from spade.train.tracking import open_sinks, sink_failures
from spade.train.watch import STEP, Watchdog

if TYPE_CHECKING:
    from spade.envs.sandbox import Sandbox
    from spade.learn.background import Background
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
    requested. `chat` and `learner` replace the ones `cfg` asks for (tests). `on_checkpoint` evaluates, in the
    loop. Raises InputError or ConfigError for what the user named, SandboxError or BackendError when too much
    breaks.
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
    from spade.envs.nodes import start_sandbox

    with Watchdog.of(cfg, folder.path) as watch:
        roles = await open_roles(cfg, chat, learner)
        background = _background(cfg)
        try:
            async with await start_sandbox(cfg.sandbox) as sandbox:
                folder.update_record(sandbox_level=sandbox.level)
                world = World(cfg, roles.agent, sandbox, folder, Ledger(watch.stage), roles.designer)
                source: EnvSource = registry.resolve("source", cfg.train.source)(world)
                lens = open_lens(world, roles)
                return await _steps(Run(world, source, roles, stop, lens, on_checkpoint, background))
        finally:
            if background is not None:
                background.close()
            await roles.close()


def _background(cfg: Config) -> Background | None:
    """The learner's own thread, if steps overlap."""
    if not cfg.train.staleness:
        return None
    from spade.learn.background import Background

    return Background()


@dataclass(slots=True)
class Run:
    """Everything a step touches."""

    world: World
    source: EnvSource
    roles: Roles
    stop: StopFlag
    lens: EntropyLens | None = None
    on_checkpoint: OnCheckpoint | None = None
    background: Background | None = None
    """Where the update runs one step off."""
    steps: int = 0
    """Finished steps."""
    made: int = 0
    """Generated steps."""

    @property
    def ending(self) -> bool:
        """Whether no further step is generated: the steps are done, or the budget is spent and nothing is
        owed."""
        cfg = self.world.cfg
        spent = self.world.ledger.share_of(cfg.budget) >= 1.0
        return self.made >= cfg.train.steps or (spent and not self.source.owes_play)


async def _steps(run: Run) -> dict[str, Any]:
    from spade.report.progress import Progress

    cfg, world = run.world.cfg, run.world
    made = _resume(run)
    await run.roles.publish()
    progress_bar = Progress(cfg.train.steps, cfg.name, cfg.budget.total_tokens)
    with progress_bar as progress, open_sinks(cfg, world.folder) as sinks:
        await _look(run, progress)
        while (made is not None or not run.ending) and not run.stop.requested:
            row, made = await _learn(run, made or await _generate(run))
            world.folder.append("metrics.jsonl", row)
            progress.row(row)
            sinks.log(row)
            last = made is None and run.ending
            if last or run.stop.requested or run.steps % cfg.train.checkpoint_every == 0:
                _save(run, made)
                await _look(run, progress)
    world.folder.update_record(ledger=world.ledger.summary())
    return {"steps": run.steps, **world.ledger.summary(), **sink_failures(world.folder, sinks)}


async def _generate(run: Run) -> Made:
    """One step up to its update: design, play, judge. Its plays are on disk before they are judged."""
    cfg, world, source, step = run.world.cfg, run.world, run.source, run.made
    STEP.set(step + 1)
    before, began = dict(world.ledger.seconds), time.perf_counter()
    programs = await source.begin_step(step)
    with world.ledger.phase("play"):
        groups = await play_groups(world, programs, step)
    world.folder.append_many("episodes.jsonl", episode_rows(step + 1, groups))
    check_faults(groups, cfg.train.max_fault_share, step + 1)
    credits = await source.observe(step, groups)
    run.made += 1
    if run.ending:
        credits += source.flush()
    numbers, wall = source.metrics(), time.perf_counter() - began
    made = made_of(run.made, groups, credits, numbers, world.ledger, before, wall)
    renderer, kept = world.chat.renderer, cfg.train.token_rows
    world.folder.append_many("tokens.jsonl", token_rows(run.made, groups, made.samples, renderer, kept))
    return made


async def _learn(run: Run, made: Made) -> tuple[dict[str, Any], Made | None]:
    """Train on a generated step and publish the weights; one step off, generate the next one meanwhile.

    Returns the row of `metrics.jsonl`, and the next step if it was generated.
    """
    cfg, ledger, began = run.world.cfg, run.world.ledger, time.perf_counter()
    before, following = dict(ledger.seconds), None
    seen = await run.lens.before(made.step - 1, made.samples) if run.lens is not None else {}
    measured, ages = bool(seen), {}
    scale = _lr_scale(cfg, made.step - 1, ledger)
    ledger.count("tokens_trained", sum(sum(s.mask) for s in made.samples if s.advantage))
    if run.background is None:
        learned = await _update(run, made, scale)
    else:
        ages = made.ages(run.roles.versions)
        update = asyncio.create_task(_update(run, made, scale), name=f"update of step {made.step}")
        try:
            following = None if run.ending else await _generate(run)
        finally:
            learned = await update  # in any case: nothing is closed under it
    STEP.set(made.step)
    with ledger.phase("learn"):
        await run.roles.publish()
    run.steps += 1
    if run.lens is not None:
        ending = following is None and run.ending
        seen |= await run.lens.after(run.steps, made.returns, ending=ending, measured=measured)
    phases: list[str] = [name for name in ("learn", "lens") if name in ledger.seconds]
    spent = {name: ledger.seconds[name] - before.get(name, 0.0) for name in phases}
    wall = time.perf_counter() - began + (made.whole_seconds if run.background is None else 0.0)
    return made.whole_row({**seen, **ages}, learned, spent, wall), following


async def _update(run: Run, made: Made, scale: float) -> dict[str, float]:
    """The update of one step: here, or one step off in its own thread."""
    cfg, roles, ledger = run.world.cfg, run.roles, run.world.ledger
    STEP.set(made.step)
    temperature = {"agent": cfg.play.temperature, "designer": cfg.design.temperature}
    before = roles.updates

    def step() -> dict[str, float]:
        return roles.step(made.samples, temperature, scale)

    with ledger.phase("learn"):
        if run.background is None:
            async with roles.asleep(cfg.serving.vllm.sleep):
                learned = step()
        else:
            learned = await run.background.call(step)
    ledger.count("optimiser_steps", roles.updates - before)
    return learned


def _lr_scale(cfg: Config, step: int, ledger: Ledger) -> float:
    """Learning rate as a multiple of the configured one; `linear` falls with whatever ends the run."""
    if cfg.learner.lr_schedule == "constant":
        return 1.0
    spent = max(step / cfg.train.steps, ledger.share_of(cfg.budget))
    return max(LR_END, 1.0 - spent)


def _resume(run: Run) -> Made | None:
    """Go back to the last checkpoint, or to the very start when there is none; returns the step that had been
    generated and not trained on."""
    made, folder = None, run.world.folder
    state = run.roles.load(folder.path)
    if state is not None:
        run.steps, made = restore_state(state, run.source, run.world.ledger)
        if run.lens is not None and "lens" in state:
            run.lens.load_state_dict(state["lens"])
    run.made = run.steps if made is None else made.step
    drop_rows_after(folder, run.steps, run.made)
    return made


def _save(run: Run, made: Made | None) -> None:
    world = run.world
    with world.ledger.phase("checkpoint"):
        state = train_state(run.steps, run.source, world.ledger, made)
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
