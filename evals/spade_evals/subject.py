"""The checkpoint under evaluation, and what its results are called."""

from __future__ import annotations

from dataclasses import dataclass, field

from spade_evals.provenance import Origin, checkpoint_hash, origin_of, run_of, step_of


@dataclass(frozen=True, slots=True)
class Subject:
    """The checkpoint under evaluation."""

    ref: str
    checkpoint: str
    """Content hash of the weights, or of the reference's words."""
    origin: Origin = field(default_factory=Origin)


def subject_of(ref: str) -> Subject:
    """Resolve a reference to its hash and training run. Raises InputError for an unknown one."""
    from spade.serving.launch import resolve_ref

    model = resolve_ref(ref)
    step = step_of(model.path) if model.step is None else model.step
    return Subject(ref, checkpoint_hash(model.path, ref), origin_of(run_of(model.path), step))


def task_name(suite: str, subject: Subject, seed: int, limit: int | None) -> str:
    """File name of a task: the suite, the step of the checkpoint, and what differs from the defaults."""
    step = subject.origin.step
    parts = [suite if step is None else f"{suite}@{step:06d}"]
    parts += [f"s{seed}"] if seed else []
    parts += [f"limit{limit}"] if limit is not None else []
    return "-".join(parts)
