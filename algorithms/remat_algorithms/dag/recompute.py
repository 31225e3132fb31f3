"""Runs that make again what the backward needs and the forward has not kept: each task once more, and no sooner."""

from __future__ import annotations

from collections.abc import Iterable

from remat_algorithms.dag.literature.retention_phases import Training

MOST_TASKS = 50_000
"""Most tasks of rules that plan in this way: nothing here is quadratic."""


def runs_with_remaking(training: Training, lost: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return all runs, and the place of each stage's own run among them.

    In the backward a stage's task is preceded by what makes again whatever it reads and is lost, and by what that reads
    in turn. What has been made again stays until its last use. O(accesses).

    Parameters
    ----------
    training : Training
    lost : iterable of int
        Values that the forward makes, and that are not there any more in the backward.
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
    """Append what makes a value, and first what that reads, where they are away; return what is there then."""
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
