"""The least capacity of a memory with which a list of steps can be placed."""

from __future__ import annotations

from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.placement.outcome import Unplaceable
from remat.placement.place import place
from remat.schedule.steps import Steps

_LARGEST = 2**62


def least_capacity(graph: TaskGraph, machine: Machine, steps: Steps, overrun: Unplaceable) -> int | None:
    """Return the least capacity of the memory that is too small with which steps fit; None if none helps.

    The peak without a capacity may be more than that: where room is scarce, a step waits for what a transfer leaves.

    Parameters
    ----------
    graph, machine
        What is to be computed, and on what.
    steps : Steps
    overrun : Unplaceable
        What placement says of them on this machine.

    Notes
    -----
    Placement judges every trial: the answer is one that it takes, a byte less is what it does not. What a step that
    does not fit needs is tried next, in turn with a bisection: O(log capacity) placements, and mostly two.
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
