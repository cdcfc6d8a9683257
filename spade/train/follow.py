"""What the processes of a launch other than the first do: hold a part of the learner, and nothing else."""

from __future__ import annotations

import signal

from spade.config import Config
from spade.train.roles import learner_count, make_learner


def follow(cfg: Config) -> int:
    """Make the learners the first process makes, do what it tells until it is done; returns exit code 0.

    Ctrl-C is the first process's business: it finishes its step, saves, and lets the others go. Raises
    InputError or ConfigError for what the user named, and whatever a failing update raises.
    """
    from spade.learn.parallel import join
    from spade.serving.launch import resolve_ref

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    learners = [make_learner(cfg, resolve_ref(cfg.model)) for _ in range(learner_count(cfg))]
    join().follow()
    for learner in learners:
        learner.close()
    return 0
