"""A lower bound on the makespan of every schedule of an adjoint: Walther and Griewank's optimum, relaxed."""

from __future__ import annotations

import numpy as np

from remat.plugin import Context, Number, Problem
from remat_algorithms.adjoint.binomial.revolve import problem_backward_time
from remat_algorithms.adjoint.unequal.walther_griewank import Splits, table_work
from remat_algorithms.kit.binomial import advances

MOST_WORK = 10**9
MOST_STEPS = 1500


def lower_bound(problem: Problem, context: Context) -> Number:
    """Return a bound that holds for all schedules, overlapped, partial and parallel moves included.

    At any time the states that exist wholly, wherever their bytes lie, take no more bytes than all memories have, so
    there are at most k of them, the number of smallest states with so many bytes. With one of them the working one,
    that is a schedule with k - 1 slots without size, whose least forward time is Walther and Griewank's (2008); for
    long loops, Revolve's number of advances times the least forward time, and at least one advance to each state.

    Where the levels occupy the processor, a backward leaves at most M - s - y bytes of other states in the working
    memory of M bytes (s, y: least state and adjoint). If that is less than s, the state from which the next sweep
    starts has to be read, and must have been written, at least in part: the same optimum then counts the least time for
    a write and a read of s - (M - s - y) bytes. The e states that the first backward finds in the working memory,
    wholly or in part, save one write and one read each, which are taken off again.

    Where tapes can be stored, nothing but the core's own bound is claimed (0).

    Parameters
    ----------
    problem : Problem
        Of kind `adjoint`.
    context : Context
        Asked whether to stop while a table is filled.
    """
    chain, machine = problem.chain, problem.machine
    backward = problem_backward_time(problem)
    n = chain.length + 1
    if n == 1 or len(machine.processors) > 1 or chain.saves:
        return 0
    sizes = sorted(chain.activation_size[:n].tolist())
    capacities = [memory.capacity for memory in machine.memories]
    room = None if None in capacities else sum(c for c in capacities if c is not None) - chain.static_memory
    slots = n if room is None else max(1, _fitting(sizes, room) - 1)
    forward = chain.forward_time[: n - 1]
    if n > MOST_STEPS or table_work(n, min(slots, n)) > MOST_WORK:
        least = forward.min().item()
        return forward.sum().item() + (advances(n, slots) - (n - 1)) * least + backward  # type: ignore[no-any-return]
    free = Splits.of(forward, slots, context=context)
    if free is None:
        return 0
    best: Number = free.lower_bound
    capacity = capacities[0]
    if capacity is not None:
        alone = capacity - chain.static_memory
        spare = max(0, alone - sizes[0] - int(chain.gradient_size.min()))
        costs = _least_transfers(problem, sizes[0] - spare)
        if costs is not None and spare < sizes[0]:
            write, read = costs
            paid = Splits.of(forward, slots, write=np.full(n, write), read=np.full(n, read), context=context)
            if paid is not None:
                given = problem.instance.initial_level is not None
                extra = max(0, -(-alone // sizes[0]) - 1)
                best = max(best, paid.lower_bound + (0 if given else write) - extra * (write + read))
    return best + backward


def _fitting(sizes: list[int], room: int) -> int:
    """Return how many of the smallest sizes fit."""
    for count, size in enumerate(sizes):
        room -= size
        if room < 0:
            return count
    return len(sizes)


def _least_transfers(problem: Problem, size: int) -> tuple[Number, Number] | None:
    """Return the least times to write and to read so many bytes; None where a link overlaps, or nothing is paid."""
    machine = problem.machine
    if len(machine.memories) == 1 or any(resource != 0 for resource in machine.resource_of_link):
        return None
    found: list[Number] = []
    for into in (False, True):
        times = [link.time(size) for link in machine.links if (link.target == 0 if into else link.source == 0)]
        if not times:
            return None
        # A move in parts pays at least the least latency, and its bytes at the greatest bandwidth.
        found.append(min(times))
    return (found[0], found[1]) if any(found) else None
