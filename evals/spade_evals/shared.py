"""The items of an evaluation on several nodes of a Ray cluster (`serving.shards`, extra `ray`).

    driver: plan, grid, files ── block of items ──► EvalShard on a node: engine, sandbox, user
                 ▲                                        │
                 └──────── rows, written here once ◄──────┘

Every shard holds the whole model and plays whole blocks, so that nodes exchange items and results, never
tokens. Shards write nothing; a row is on disk when its block has come back. When a node is lost, its block
goes to another one, and the part of it that was finished is done again. Seeds belong to items, so it does not
matter who plays them; on engines whose rows do not depend on their company (`serving.deterministic`) the
results are those of one process. What is no item of a suite (tasks of lm-evaluation-harness) is divided by
sequences, as in training.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spade.cluster import connect, ray_errors
from spade.config import SandboxConfig, ServingConfig
from spade.errors import BackendError
from spade.serving.chat import ChatPolicy
from spade.serving.shards import Failed, ShardedPolicy
from spade.types import Item, ItemResult
from spade_evals.answers import AnswerLog, Key
from spade_evals.asking import GIVE_UP, OnAnswer
from spade_evals.data import data_root
from spade_evals.dialogue import DialogueTask
from spade_evals.planning import Options, Plan
from spade_evals.question import Question
from spade_evals.shards import Bench, EvalShard, Found, TaskBlock
from spade_evals.sharing import WorkerLost, block_size, share
from spade_evals.suite import Setting
from spade_evals.users import OpenUser

STOP_SECONDS = 15.0
"""Patience with shards that are asked to end; then they are ended."""


class SharedPolicy(ShardedPolicy):
    """The shards as the driver sees them. What is asked of it as a policy is divided by sequences."""

    def __init__(self, engines: Sequence[Any], facts: dict[str, Any]) -> None:
        super().__init__(engines, facts)
        self.user_key: dict[str, str] = facts["user"]

    async def play(
        self, suite: str, items: Sequence[Item], setting: Setting, took: Callable[[list[ItemResult]], None]
    ) -> None:
        """Play items; `took` is called with the results of each block.

        Raises BackendError when every shard is lost, and what playing raises.
        """
        blocks = self.blocks(items)

        def arguments(block: Sequence[Item]) -> tuple[Any, ...]:
            return suite, block, setting.play, setting.seed

        await self.share(blocks, "play", arguments, lambda _, rows: took(rows))

    def blocks(self, items: Sequence[Any]) -> list[Sequence[Any]]:
        """`items` cut into blocks, in order."""
        size = block_size(len(items), max(1, len(self._engines)), self.engine_rows, self.lockstep)
        return [items[at : at + size] for at in range(0, len(items), size)]

    async def share(
        self,
        blocks: Sequence[Any],
        name: str,
        arguments: Callable[[Any], tuple[Any, ...]],
        took: Callable[[Any, Any], None],
    ) -> None:
        """Have the shards' method `name` called for every block; `took` gets each block and its result."""
        lost = ray_errors()

        async def run(number: int, block: Any) -> Any:
            if number not in self._engines:
                raise WorkerLost
            try:
                result = await getattr(self._engines[number], name).remote(*arguments(block))
            except lost as error:
                self._lose(number, error)
                raise WorkerLost from error
            if isinstance(result, Failed):
                raise result.error()
            return result

        if not self._engines:
            raise BackendError("Every engine of the Ray cluster is lost")
        await share(blocks, list(self._engines), run, took, at_once=1 if self.lockstep else 2)

    async def close(self) -> None:
        """See `ShardedPolicy.close`; the shards end what they have started."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._each(lambda engine: engine.stop.remote()), STOP_SECONDS)
        await super().close()


class SharedAsker:
    """Asks one task through the shards; the counterpart of `asking.Asker`."""

    def __init__(
        self, suite: str, plan: Plan, setting: Setting, options: Options, log: AnswerLog, on_answer: OnAnswer
    ) -> None:
        policy = setting.chat.policy
        assert isinstance(policy, SharedPolicy)
        self.policy, self.plan, self.log, self.lost, self.problem = policy, plan, log, 0, ""
        self._on_answer, self._in_row = on_answer, 0
        task = plan.task
        self._block = TaskBlock(
            suite=suite, task=task.name, ask=plan.ask,
            user_ask=task.user_ask if isinstance(task, DialogueTask) else None,
            root=data_root(options.data_root).absolute(), allow_changed=options.allow_changed,
            sha256=plan.loaded.sha256, seed=setting.seed, units=(), have=frozenset(),
        )  # fmt: skip

    async def run(self, questions: Sequence[Question]) -> None:
        """Ask for every sample that is missing. Raises BackendError when the engines fail for good."""
        units: list[Key] = [(q.id, sample) for q in questions for sample in range(self.plan.ask.n)]
        if not self.policy.lockstep:
            units = [unit for unit in units if unit not in self.log.answers]
        blocks = [b for b in self.policy.blocks(units) if any(unit not in self.log.answers for unit in b)]
        await self.policy.share(blocks, "ask", self._arguments, self._took)

    def _arguments(self, units: Sequence[Key]) -> tuple[TaskBlock]:
        have = frozenset(unit for unit in units if unit in self.log.answers)
        return (replace(self._block, units=tuple(units), have=have),)

    def _took(self, units: Sequence[Key], found: Found) -> None:
        for answer in found.answers:
            self.log.add(answer)
            self._on_answer(answer)
        self.lost += found.lost
        self.problem = found.problem or self.problem
        if found.failed is not None:
            raise found.failed.error()
        self._in_row = 0 if found.answers else self._in_row + found.lost
        if self._in_row >= GIVE_UP:
            raise BackendError(
                f"{self.problem}; {self._in_row} samples in a row were lost. Run the same command to resume"
            )


async def open_shared(
    ref: str,
    suites: Mapping[str, Any],
    serving: ServingConfig,
    sandbox: SandboxConfig,
    *,
    pool: Path | None = None,
    user: str = "",
) -> ChatPolicy:
    """Open a checkpoint on `serving.shards` shards for `suites` (by the name they are registered under).

    Raises InputError for an unknown checkpoint, without Ray or without a cluster, and BackendError,
    SandboxError or ConfigError when a shard does not start.
    """
    from spade.serving.checkpoint_files import read_config
    from spade.serving.launch import resolve_ref
    from spade.serving.render import Renderer

    model = resolve_ref(ref)
    assert model.path is not None, "open_shared is for checkpoints"
    workers = max(1, sandbox.max_workers // serving.shards)
    bench = Bench(
        ref=ref,
        sandbox=sandbox.model_copy(update={"nodes": "local", "max_workers": workers}),
        suites={suite.name: name for name, suite in suites.items()},
        pool=pool,
        user=user,
        folder=str(Path.cwd()),
    )
    await asyncio.to_thread(connect, f"serving.shards={serving.shards}")  # before anything large is loaded
    read_config(model.path)
    renderer = Renderer.from_folder(model.path)
    policy = await SharedPolicy.open(model.path.absolute(), serving, EvalShard, bench)
    return ChatPolicy(renderer, policy, model)


def shared_user(chat: ChatPolicy) -> OpenUser:
    """The user as the driver sees it: its key; the shards do the talking."""
    assert isinstance(chat.policy, SharedPolicy)
    return OpenUser(chat, chat.policy.user_key, shared=True)
