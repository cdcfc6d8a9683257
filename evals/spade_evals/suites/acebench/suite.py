"""The suites `acebench` and `acebench-full`: factories without argument, rows of `spade.registry`."""

from __future__ import annotations

from spade_evals.question import QuestionSuite, Task
from spade_evals.suites.acebench.single import GroupTask, SingleTask, SpecialTask
from spade_evals.suites.acebench.sources import FILES
from spade_evals.suites.acebench.tasks import MultiStep, MultiTurn


def make_suite() -> QuestionSuite:
    """The two agent categories."""
    return QuestionSuite("acebench", [MultiStep(), MultiTurn()])


def make_full() -> QuestionSuite:
    """All 17 categories in three parts, `normal`, `special`, `agent`; the score is their plain mean."""
    agents = {task.category: task for task in (MultiStep, MultiTurn)}
    tasks: list[Task] = []
    for category in FILES:
        group, _, rest = category.partition("_")
        part = f"{group}/{rest}"
        if category in agents:
            tasks.append(agents[category](part=part))
        elif category.startswith("normal_multi_turn"):
            tasks.append(GroupTask(category, part=part))
        else:
            tasks.append((SpecialTask if group == "special" else SingleTask)(category, part=part))
    return QuestionSuite("acebench-full", tasks)
