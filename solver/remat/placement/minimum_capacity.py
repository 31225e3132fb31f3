"""The minimum capacity of a memory with which a list of steps can be placed."""

from __future__ import annotations

from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.placement.outcome import Unplaceable
from remat.placement.place import place
from remat.schedule.steps import Steps

_LARGEST = 2**62


def least_capacity(graph: TaskGraph, machine: Machine, steps: Steps, overrun: Unplaceable) -> int | None:
    """Return the minimum capacity of the memory that is too small with which the steps fit; None if none helps.

    The peak without a capacity may be larger: in a full memory, a step waits for the bytes that a transfer releases.

    Parameters
    ----------
    graph, machine
        The task graph, and the machine that runs it.
    steps : Steps
    overrun : Unplaceable
        The result of placing the steps on this machine.

    Notes
    -----
    Placement checks every trial: it accepts the answer, and rejects one byte less. Trials alternate between the bytes
    that the rejected step needs and a bisection: O(log capacity) placements, and usually two.
    """
    name = machine.memories[overrun.memory].name
    low, high, at_low = overrun.needed, None, True
    while high is None or low < high:
        if at_low:
            trial = low
        else:
            trial = max(low, min(2 * low, _LARGEST)) if high is None else (low + high) // 2
        at_low = not at_low
        outcome = place(graph, machine.with_capacities({name: trial}), steps)
        if not isinstance(outcome, Unplaceable):
            high = trial
        elif outcome.memory != overrun.memory:
            return None
        else:
            low = max(trial + 1, outcome.needed)
    return high
