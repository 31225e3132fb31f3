"""A lower bound on the makespan of every schedule of an adjoint, by a relaxation of Walther and Griewank's optimum."""

from __future__ import annotations

import numpy as np

from remat.plugin import Context, Number, Problem
from remat_algorithms.adjoint.binomial.revolve import problem_backward_time
from remat_algorithms.adjoint.unequal.walther_griewank import Splits, table_work
from remat_algorithms.kit.binomial import advances

MOST_WORK = 10**9
MOST_STEPS = 1500


def lower_bound(problem: Problem, context: Context) -> Number:
    """Return a bound for all schedules, including overlapped, partial and parallel moves.

    At any time, the states that exist completely, in any memory, take no more bytes than all memories have. Let k be
    the number of smallest states that fit into these bytes; then at most k states exist. One of them is the working
    one, so the schedule uses k - 1 slots of unlimited size. Walther and Griewank (2008) give the minimum forward time
    for slots. For long loops, the bound is Revolve's number of advances times the minimum forward time, with at least
    one advance to each state.

    If the levels occupy the processor, a second argument applies. Let s and y be the minimum state and adjoint. A
    backward leaves at most M - s - y bytes of other states in the working memory of M bytes. If that is less than s,
    the state from which the next sweep starts must be read, and must have been written, at least in part. The same
    optimum then includes the minimum time for a write and a read of s - (M - s - y) bytes. The e states that the first
    backward finds in the working memory, completely or in part, save one write and one read each, which are subtracted.

    If tapes can be stored, k counts the smallest states and tapes, and the first argument applies with one difference:
    replace each stored tape by the state that its step read. The result is a schedule without tapes that runs a step
    once more if its last tape was made before its backward was due. So the forward time of all steps, once each, is
    subtracted.

    Parameters
    ----------
    problem : Problem
        Of kind `adjoint`.
    context : Context
        Tells when to stop while a table is filled.
    """
    chain, machine = problem.chain, problem.machine
    backward = problem_backward_time(problem)
    n = chain.length + 1
    if n == 1 or len(machine.processors) > 1:
        return 0
    sizes = chain.activation_size[:n].tolist()
    forward = chain.forward_time[: n - 1]
    early: Number = 0  # the time of advances that may be the making of a tape
    if chain.saves:
        sizes += chain.saved_size[: n - 1].tolist()
        forward = np.minimum(forward, chain.saving_forward_time[: n - 1])
        early = forward.sum().item()
    sizes.sort()
    capacities = [memory.capacity for memory in machine.memories]
    room = None if None in capacities else sum(c for c in capacities if c is not None) - chain.static_memory
    slots = n if room is None else max(1, _fitting(sizes, room) - 1)
    if n > MOST_STEPS or table_work(n, min(slots, n)) > MOST_WORK:
        least = forward.min().item()
        advanced = forward.sum().item() + (advances(n, slots) - (n - 1)) * least
        return max(0, advanced - early) + backward  # type: ignore[no-any-return]
    free = Splits.of(forward, slots, context=context)
    if free is None:
        return 0
    best: Number = max(0, free.lower_bound - early)
    capacity = capacities[0]
    if capacity is not None and not chain.saves:
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
    """Return the minimum times to write and to read `size` bytes; None if a link overlaps, or transfers are free."""
    machine = problem.machine
    if len(machine.memories) == 1 or any(resource != 0 for resource in machine.resource_of_link):
        return None
    found: list[Number] = []
    for into in (False, True):
        times = [link.time(size) for link in machine.links if (link.target == 0 if into else link.source == 0)]
        if not times:
            return None
        # A move in parts takes at least the minimum latency, and its bytes move at most at the maximum bandwidth.
        found.append(min(times))
    return (found[0], found[1]) if any(found) else None
