"""Times to write each state to a storage level, and to read it back."""

from __future__ import annotations

import numpy as np

from remat.plugin import IntArray, NumberArray, OptionError, Problem, number_array


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


def check_working_room(problem: Problem, name: str) -> None:
    """Refuse a working memory in which not every largest state, adjoint and tape fit together.

    Only a machine or budget given by hand has less; what no schedule could do is left to the bounds.

    Raises
    ------
    remat.OptionError
    """
    chain, memory = problem.chain, problem.machine.memories[0]
    need = chain.static_memory + int(chain.activation_size.max()) + int(chain.gradient_size.max())
    need += int(chain.saved_size.max(initial=0))
    if len(problem.machine.memories) == 1 or memory.capacity is None or memory.capacity >= need:
        return
    bound = problem.memory_bounds[0]
    if bound is None or bound.size <= memory.capacity:
        raise OptionError(
            f"{name} needs {need} in {memory.name}, for a state, an adjoint and a tape, and it has {memory.capacity}",
            argument="algorithm",
        )
