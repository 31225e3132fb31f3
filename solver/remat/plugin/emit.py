"""Shared emitters: convert the decisions of an algorithm to steps."""

from __future__ import annotations

import numpy as np

from remat.errors import OptionError
from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, Ragged, TaskGraph
from remat.schedule.steps import Steps

MOST_RUNS = 20_000_000
"""Maximum number of runs and copies of a schedule that is built in memory."""


RUNS_A_SECOND = 750_000
"""Number of runs that are built, placed and verified per second."""


def check_length(runs: int, name: str, limit: float | None = None) -> None:
    """Reject a schedule with too many steps before it exhausts memory or time.

    Parameters
    ----------
    runs : int
        Runs and copies of the schedule.
    name : str
        The algorithm that would build it.
    limit : float, optional
        Time limit of the solve, in seconds. It permits `RUNS_A_SECOND` runs for each second and for one more.

    Raises
    ------
    remat.OptionError
    """
    # Ignore milliseconds: they pass between the start of the solve and its first check of the clock.
    most = MOST_RUNS if limit is None else min(MOST_RUNS, int(RUNS_A_SECOND * (1 + round(limit, 1))))
    if runs > most:
        within = f" within {limit:.3g} s" if most < MOST_RUNS and limit is not None else ""
        raise OptionError(
            f"{name} would take {runs:,} steps here; at most {most:,} are built{within}", argument="algorithm"
        )


def useful_runs(graph: TaskGraph, tasks: IntArray | list[int]) -> list[int]:
    """Omit runs whose values are all dropped unread; a task that must run keeps one run.

    The remaining runs are valid in the same order, need no more memory at any run, and contain no unread run. For
    example, a gradient that is only an output is not written early where it cannot be kept, only to be recomputed.

    Parameters
    ----------
    graph : TaskGraph
    tasks : (runs,) ints
        Tasks in execution order, repeats allowed.

    Returns
    -------
    list of int
        O(accesses).
    """
    runs = np.asarray(tasks, dtype=np.int64).tolist()
    return [runs[place] for place in useful_places(graph, runs)]


def useful_places(graph: TaskGraph, tasks: IntArray | list[int]) -> list[int]:
    """Return the positions of the runs that `useful_runs` keeps, in order."""
    order = np.asarray(tasks, dtype=np.int64)
    runs: list[int] = order.tolist()
    left = np.bincount(order, minlength=len(graph.tasks)).tolist()
    must = (graph.required | graph.once).tolist()
    pinned = graph.pinned
    alive = {place.value for place in graph.outputs} | pinned
    reads, writes = graph.reads.gather(order).to_lists(), graph.writes.gather(order).to_lists()
    kept = []
    for place in range(len(runs) - 1, -1, -1):
        task, written = runs[place], writes[place]
        if (must[task] and left[task] == 1) or not alive.isdisjoint(written):
            kept.append(place)
            alive.difference_update(value for value in written if value not in pinned)
            alive.update(reads[place])
        else:
            left[task] -= 1
    return kept[::-1]


def unread_tasks(graph: TaskGraph) -> BoolArray:
    """Return which tasks write only values that no task reads: they may run where that costs least, if at all."""
    read = np.bincount(graph.reads.items, minlength=len(graph.values)) > 0
    wanted = np.bincount(graph.writes.rows[read[graph.writes.items]], minlength=len(graph.tasks)) > 0
    return np.asarray((graph.writes.counts > 0) & ~wanted, dtype=bool)


def run_in_order(graph: TaskGraph, machine: Machine, tasks: IntArray | list[int]) -> Steps:
    """Run tasks one after the other in one memory, freeing every value after its last use.

    A copy of a value lives from the run that writes it to its last reader before the next run that writes it. The run
    that writes a copy without readers also frees it. Outputs and pinned inputs stay. No other choice of drops needs
    less memory for this order of runs.

    Parameters
    ----------
    graph, machine
    tasks : (runs,) ints
        Tasks in execution order, repeats allowed.

    Returns
    -------
    Steps
        Without start times. O(accesses log accesses).
    """
    order = np.asarray(tasks, dtype=np.int64)
    reads, writes = graph.reads.gather(order), graph.writes.gather(order)
    step = np.concatenate((reads.rows, writes.rows))
    value = np.concatenate((reads.items, writes.items))
    is_write = np.concatenate((np.zeros(len(reads.items), dtype=bool), np.ones(len(writes.items), dtype=bool)))
    # By value, then by time; within a run, reads precede writes.
    sequence = np.lexsort((is_write, step, value))
    step, value, is_write = step[sequence], value[sequence], is_write[sequence]
    last = np.ones(len(value), dtype=bool)
    same_next = value[1:] == value[:-1]
    last[:-1] = ~same_next
    # An access is a copy's last use if the value's next access rewrites it in a later run. (A run that reads and
    # writes a value replaces the old copy.)
    dies = np.zeros(len(value), dtype=bool)
    dies[:-1] = same_next & is_write[1:] & (step[1:] > step[:-1])
    stays = np.zeros(len(graph.values), dtype=bool)
    memory = machine.memories[machine.processors[0].memory].name
    first = machine.memories[0].name
    stays[[place.value for place in graph.outputs if (place.memory or first) == memory]] = True
    pinned = np.zeros(len(graph.values), dtype=bool)
    pinned[list(graph.pinned)] = True
    freed = (dies | (last & ~stays[value])) & ~pinned[value]
    free_step, free_value = step[freed], value[freed]
    by_step = np.argsort(free_step, kind="stable")
    counts = np.bincount(free_step, minlength=len(order))
    drop = Ragged(np.concatenate(([0], np.cumsum(counts))), free_value[by_step])
    return Steps.of_runs(order, drop)
