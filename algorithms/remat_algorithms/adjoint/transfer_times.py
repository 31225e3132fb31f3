"""Times to write each state to a storage level, and to read it back."""

from __future__ import annotations

import numpy as np

from remat.plugin import IntArray, NumberArray, Problem, number_array


def state_transfer_times(problem: Problem, level: int) -> tuple[NumberArray, NumberArray] | None:
    """Return the times to write and to read each state x_i; None where transfers overlap with computing.

    Parameters
    ----------
    problem : Problem
    level : int
        Index of a storage level; 0 (everything in one memory) takes no time.
    """
    sizes = problem.chain.activation_size
    if level == 0:
        return np.zeros(len(sizes), dtype=np.int64), np.zeros(len(sizes), dtype=np.int64)
    write, read = transfer_times_of(problem, sizes, 0, level), transfer_times_of(problem, sizes, level, 0)
    return None if write is None or read is None else (write, read)


def transfer_times_of(problem: Problem, sizes: IntArray, source: int, target: int) -> NumberArray | None:
    """Return the time to move each size between two memories; None if the channel is not the processor's own."""
    machine = problem.machine
    link = machine.link_index[source, target]
    if machine.resource_of_link[link] != 0:
        return None
    distinct, which = np.unique(sizes, return_inverse=True)
    times = [machine.links[link].time(size) for size in distinct.tolist()]
    return number_array(times)[which]
