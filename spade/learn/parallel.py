"""Several processes behind one learner: the first leads, the others do as they are told.

The process of rank 0 owns the run: rollouts, rewards, records, checkpoints. Before a learner's method that
needs everybody it *tells* the others which one and with what, and all of them run it; the others, in
`follow`, do nothing else. Messages go over a gloo group of their own, whatever carries the gradients, so that
a follower can wait for hours while rank 0 plays.

    rank 0:  learner.step(samples)  ->  team.tell(learner, "step", samples)  ->  its share  ->  team.add(...)
    others:  team.follow()          ->  learner.step(samples)                ->  its share  ->  team.add(...)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from spade.learn.ranks import world

T = TypeVar("T")

PATIENCE = timedelta(days=14)
"""How long a follower waits for the next message; a leader that dies is noticed at once all the same."""


class Team:
    """The processes that share the work of this one's learners. A team of one communicates with nobody."""

    def __init__(self, rank: int = 0, size: int = 1, group: Any = None) -> None:
        self.rank, self.size = rank, size
        self._group = group
        self._learners: list[Any] = []
        self._dismissed = False

    @property
    def leads(self) -> bool:
        """Whether this process is the one that owns the run."""
        return self.rank == 0

    def enlist(self, learner: Any) -> None:
        """Give `learner` its number; every process must make its learners in the same order."""
        self._learners.append(learner)

    def tell(self, learner: Any, method: str, *args: Any, **kwargs: Any) -> None:
        """Rank 0: make the others call this method of their copy of `learner`. Nothing elsewhere."""
        if self.size > 1 and self.leads:
            number = next(i for i, one in enumerate(self._learners) if one is learner)
            self._broadcast((number, method, args, kwargs))

    def dismiss(self) -> None:
        """Rank 0: end `follow` in the others. Idempotent."""
        if self.size > 1 and self.leads and not self._dismissed:
            self._dismissed = True
            self._broadcast(None)

    def share(self, values: Sequence[T]) -> list[T]:
        """This process's part of a list that all of them hold: every `size`-th entry."""
        return list(values[self.rank :: self.size])

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, in place; the same bits everywhere."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([t.detach().reshape(-1) for t in tensors])
        dist.all_reduce(flat, group=self._group)
        for tensor, total in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def gather(self, value: T) -> list[T]:
        """The value of every process, in the order of their ranks, in all of them."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self._group)
        return found

    def follow(self) -> None:
        """Run what rank 0 tells, until it dismisses. Whatever a method raises ends this process."""
        while (said := self._broadcast(None)) is not None:
            number, method, args, kwargs = said
            getattr(self._learners[number], method)(*args, **kwargs)

    def _broadcast(self, message: Any) -> Any:
        box = [message]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]


def join() -> Team:
    """The team of this process, by the variables its launcher set: one for the life of the process, or a new
    team of one.

    Uses the process group that is there, or opens one over gloo. Raises InputError for variables that
    contradict each other.
    """
    rank, size = world()
    return Team() if size == 1 else _team(rank, size)


@functools.cache
def _team(rank: int, size: int) -> Team:
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=PATIENCE)
    return Team(rank, size, dist.new_group(backend="gloo", timeout=PATIENCE))
