"""The minimum capacity of a memory with which a list of steps can be placed."""

from __future__ import annotations

from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.placement.outcome import Unplaceable
from remat.placement.place import place
from remat.schedule.steps import Steps

_LARGEST = 2**62


def peak_of(graph: TaskGraph, machine: Machine, steps: Steps, memory: int | None = None) -> int:
    """Return the minimum capacity of a memory with which steps can be placed, whatever its budget.

    Of steps that run one after the other this is their peak, static bytes included. With transfers it may be less than
    the peak without a budget: in a full memory, a step waits for the bytes that a transfer releases.

    Parameters
    ----------
    graph, machine
        The task graph, and the machine that runs it (``problem.graph`` and ``problem.machine``).
    steps : Steps
    memory : int, optional
        Index of the memory; default is that of the first processor. The others have no limit.

    Raises
    ------
    ValueError
        If the steps cannot be placed in any capacity.

    Notes
    -----
    O(log capacity) placements, and usually two or three.

    Examples
    --------
    >>> import remat
    >>> from remat.placement import peak_of
    >>> chain = remat.chain(forward_time=[1, 1], backward_time=1, output_size=4, input_size=2)
    >>> result = remat.solve(chain, algorithm="keep-all")
    >>> peak_of(result.graph, result.machine, result.columns) == result.peak_memory["memory"]
    True
    """
    name = machine.memories[machine.processors[0].memory if memory is None else memory].name
    empty = machine.with_capacities({one.name: None for one in machine.memories} | {name: 0})
    outcome = place(graph, empty, steps)
    if not isinstance(outcome, Unplaceable):
        return 0
    found = least_capacity(graph, empty, steps, outcome)
    if found is None:
        raise ValueError(f"step {outcome.step} cannot be placed in any capacity of {name!r}")
    return found


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
