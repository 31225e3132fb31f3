"""Runs that recompute the lost values for the backward, each task at most once more and as late as possible."""

from __future__ import annotations

from collections.abc import Iterable

from remat_algorithms.dag.literature.retention_phases import Training

MOST_TASKS = 50_000
"""Maximum number of tasks for rules that plan with this module, in which no step is quadratic."""


def runs_with_remaking(training: Training, lost: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return all runs, and the position of each stage's first run among them.

    Before a backward task, the runs recompute the lost values that it reads, and recursively the lost inputs of these
    recomputations. A recomputed value stays until its last use. O(accesses).

    Parameters
    ----------
    training : Training
    lost : iterable of int
        Values that the forward computes and that are not resident when the backward begins.
    """
    stages, forward = training.stages, training.forward
    away = {value for value in lost if not stages.fixed[value]}.difference(stages.ends)
    tasks = list(stages.tasks[:forward])
    places = list(range(forward))
    for stage in range(forward, len(stages)):
        for value in stages.reads[stage]:
            if value in away:
                remake(training, value, away, tasks)
        places.append(len(tasks))
        tasks.append(stages.tasks[stage])
    return tasks, places


def remake(training: Training, value: int, away: set[int], tasks: list[int]) -> list[int]:
    """Append the runs that recompute a value, preceded by those for its missing inputs; return the values made."""
    stages, waiting = training.stages, [value]
    back: list[int] = []
    while waiting:
        value = waiting[-1]
        if value not in away:
            waiting.pop()
            continue
        stage = stages.maker[value]
        missing = [read for read in stages.reads[stage] if read in away]
        if missing:
            waiting += missing
            continue
        wanted = [made for made in stages.writes[stage] if made in away]
        tasks.append(stages.rival(stage, wanted))
        back += wanted
        away.difference_update(wanted)
    return back
