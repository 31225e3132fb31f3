"""A lower bound on the makespan of every schedule of an adjoint, by a relaxation of Walther and Griewank's optimum."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import accumulate

import numpy as np

from remat.plugin import Context, Number, NumberArray, Problem
from remat_algorithms.adjoint.binomial.revolve import problem_backward_time
from remat_algorithms.adjoint.unequal.walther_griewank import Splits, table_work
from remat_algorithms.joint.adjoint_best.capacity_prices import capacity_prices
from remat_algorithms.joint.adjoint_best.reversal_table import MOST_SUMS, EqualSteps, least_time
from remat_algorithms.joint.adjoint_best.taped_runs import least_runs
from remat_algorithms.kit.binomial import advances
from remat_algorithms.kit.integral_bounds import raised

MOST_WORK = 10**9
MOST_STEPS = 1500

UNEQUAL_SUMS = 10**7
"""Maximum sums of the recurrence for unequal steps, for which it says less: a hundredth of a second."""

MOST_HALVINGS = 60
"""Maximum number of evaluations for the minimum over the numbers of states."""


def lower_bound(problem: Problem, context: Context) -> Number:
    """Return a bound for all schedules, including overlapped, partial and parallel moves.

    At any time, the states that exist completely, in any memory, take no more bytes than all memories have. Let k be
    the number of smallest states that fit into these bytes; then at most k states exist. One of them is the working
    one, so the schedule uses k - 1 slots of unlimited size. Walther and Griewank (2008) give the minimum forward time
    for slots. For long loops, the bound is Revolve's number of advances times the minimum forward time, with at least
    one advance to each state.

    If levels occupy the processor, two more arguments apply.

    - At some time, k states exist that are used later. Those of their bytes that do not fit into the quick memories
      have been written to slow ones, and will be read. The bound is the minimum over k of the forward time with k - 1
      slots and the time of these writes and reads (`_with_slow_levels`).
    - Let s and y be the minimum state and adjoint. A backward leaves at most M - s - y bytes of other states in the
      working memory of M bytes. If that is less than s, the state from which the next sweep starts must be read, and
      must have been written, at least in part. The same optimum then includes the minimum time for a write and a read
      of s - (M - s - y) bytes. The e states that the first backward finds in the working memory, completely or in part,
      save one write and one read each, which are subtracted.

    If tapes can be stored, k counts the smallest states and tapes, and the first two arguments apply with one
    difference: replace each stored tape by the state that its step read. The result is a schedule without tapes that
    runs a step once more if its last tape was made before its backward was due. So the forward time of all steps, once
    each, is subtracted. `taped_runs` counts the runs where tapes take more bytes than states; then the minimum over k
    becomes one over the bytes in memory during a backward (`_taped`).

    With the minimum sizes and times of all steps, the recurrence of `reversal_table` gives the optimum for equal steps
    in one memory, and for one slow memory a bound close to it. It applies to loops for which its table is not too
    large.

    Parameters
    ----------
    problem : Problem
        A problem of kind `adjoint`.
    context : Context
        Tells when to stop while a table is filled.
    """
    chain, machine = problem.chain, problem.machine
    backward = problem_backward_time(problem)
    n = chain.length + 1
    if n == 1 or len(machine.processors) > 1:
        return 0
    facts = _Facts.of(problem)
    early = facts.forward.sum().item() if chain.saves else 0  # advances that may be the making of a tape
    capacities = [memory.capacity for memory in machine.memories]
    room = None if None in capacities else sum(c for c in capacities if c is not None) - chain.static_memory
    slots = n if room is None else max(1, facts.fitting(room) - 1)
    least = facts.least_forward(slots, context)
    if least is None:
        return 0
    best: Number = max(0, least - early)
    for quick in _quick_memories(problem, max(facts.sizes)):
        best = max(best, _with_slow_levels(problem, facts, quick, slots, context) - early)
    if chain.saves:
        best = max(best, _taped(problem, room))
    best = max(best, _by_recurrence(problem, room, context))
    capacity = capacities[0]
    if capacity is not None and not chain.saves and not facts.is_long(slots):
        alone = capacity - chain.static_memory
        spare = max(0, alone - facts.sizes[0] - int(chain.gradient_size.min()))
        costs = _least_transfers(problem, facts.sizes[0] - spare)
        if costs is not None and spare < facts.sizes[0]:
            write, read = costs
            paid = Splits.of(facts.forward, slots, write=np.full(n, write), read=np.full(n, read), context=context)
            if paid is not None:
                given = problem.instance.initial_level is not None
                extra = max(0, -(-alone // facts.sizes[0]) - 1)
                best = max(best, paid.lower_bound + (0 if given else write) - extra * (write + read))
    return max(best + backward, capacity_prices(problem, lambda: context.stopped))


@dataclass(frozen=True)
class _Facts:
    """Forward times of all steps but the last, and the sizes of what memories can hold.

    Attributes
    ----------
    forward : (n-1,) numbers
    sizes : list of int
        Ascending.
    total : list of int
        Bytes of the k smallest of them, for k = 0, 1, ...
    levels : dict
        The levels of Walther and Griewank's table so far, which all numbers of slots share.
    """

    forward: NumberArray
    sizes: list[int]
    total: list[int]
    levels: dict[str, list[NumberArray]] = field(default_factory=dict[str, list[NumberArray]])

    @staticmethod
    def of(problem: Problem) -> _Facts:
        chain = problem.chain
        count = chain.length
        sizes, forward = chain.activation_size[: count + 1].tolist(), chain.forward_time[:count]
        if chain.saves:
            sizes += chain.saved_size[:count].tolist()
            forward = np.minimum(forward, chain.saving_forward_time[:count])
        sizes.sort()
        return _Facts(forward, sizes, list(accumulate(sizes, initial=0)))

    def fitting(self, room: int) -> int:
        """Return how many of the smallest sizes fit."""
        return max(0, bisect_right(self.total, room) - 1)

    def is_long(self, slots: int) -> bool:
        """Whether a table of the minimum forward times would be too large."""
        n = len(self.forward) + 1
        return n > MOST_STEPS or table_work(n, min(slots, n)) > MOST_WORK

    def least_forward(self, slots: int, context: Context) -> Number | None:
        """Return a bound on the forward time with these slots; None if the context stops it."""
        n, least = len(self.forward) + 1, self.forward.min().item()
        if least == self.forward.max().item() or self.is_long(slots):
            return self.forward.sum().item() + (advances(n, slots) - (n - 1)) * least  # type: ignore[no-any-return]
        free = Splits.of(self.forward, slots, context=context, known=self.levels)
        return None if free is None else free.lower_bound


def _quick_memories(problem: Problem, largest: int) -> Iterator[frozenset[int]]:
    """Yield sets of memories: the working one, and those to and from which `largest` bytes move quickest."""
    machine = problem.machine
    dearest: dict[int, Number] = {}
    for link in machine.links:
        for end in {link.source, link.target} - {0}:
            dearest[end] = dearest.get(end, 0) + link.time(largest)
    for limit in sorted({0, *dearest.values()})[:-1]:
        yield frozenset({0, *(memory for memory, time in dearest.items() if time <= limit)})


@dataclass(frozen=True)
class _Crossing:
    """Transfers between the quick memories and the others that occupy the processor.

    Attributes
    ----------
    room : int
        Bytes of the quick memories.
    starts, rates : list of numbers
        Minimum time of a write and of a read: for each, and for each byte.
    spared : number
        Time that is saved if the first state is given.
    """

    room: int
    starts: list[Number]
    rates: list[Number]
    spared: Number

    @staticmethod
    def of(problem: Problem, quick: frozenset[int]) -> _Crossing | None:
        """Return the transfers; None if they are free or overlap."""
        chain, machine = problem.chain, problem.machine
        capacities = [machine.memories[memory].capacity for memory in quick]
        crossing = [
            [link for link in machine.links if link.source in inside and link.target not in inside]
            for inside in (quick, frozenset(range(len(machine.memories))) - quick)
        ]
        links = [link for way in crossing for link in way]
        occupied = all(machine.resource_of_link[machine.link_index[link.source, link.target]] == 0 for link in links)
        if None in capacities or not all(crossing) or not occupied or any(link.packed for link in links):
            return None
        room = sum(capacity for capacity in capacities if capacity is not None) - chain.static_memory
        starts = [min(link.latency for link in way) for way in crossing]
        rates = [min(0 if link.bandwidth is None else 1 / link.bandwidth for link in way) for way in crossing]
        given = problem.instance.initial_level is not None
        return _Crossing(room, starts, rates, starts[0] + rates[0] * int(chain.activation_size[0]) if given else 0)

    def time(self, more: int, largest: int) -> Number:
        """Return the minimum time to write and read so many bytes, in states and tapes up to the largest."""
        if more <= 0:
            return 0
        paid: Number = -(-more // largest) * sum(self.starts) + more * sum(self.rates) - self.spared
        return max(0, paid)


def _with_slow_levels(problem: Problem, facts: _Facts, quick: frozenset[int], slots: int, context: Context) -> Number:
    """Return the minimum over the numbers of states of forward time and mandatory transfers; 0 if those overlap."""
    crossing = _Crossing.of(problem, quick)
    if crossing is None:
        return 0

    def moved(states: int) -> Number:
        return crossing.time(facts.total[min(states, len(facts.sizes))] - crossing.room, facts.sizes[-1])

    return _least_sum(
        lambda k: facts.least_forward(max(1, k - 1), context), moved, max(1, facts.fitting(crossing.room)), slots + 1
    )


def _taped(problem: Problem, room: int | None) -> Number:
    """Return a bound on the time of repeated runs and mandatory transfers of a loop whose tapes can be stored."""
    chain, n = problem.chain, problem.chain.length
    state, tape = int(chain.activation_size[: n + 1].min()), int(chain.saved_size[:n].min())
    adjoint = int(chain.gradient_size.min())
    whole = int(chain.activation_size[: n + 1].sum() + chain.saved_size[:n].sum()) + adjoint
    most = whole if room is None else min(whole, room)
    if min(state, tape) < 1 or most < 1:
        return 0
    least: Number = np.minimum(chain.forward_time[:n], chain.saving_forward_time[:n]).min().item()
    largest = int(max(chain.activation_size[: n + 1].max(), chain.saved_size[:n].max()))

    def repeated(size: int) -> Number:
        return (least_runs(n, size, state, tape, adjoint) - n) * least

    best = repeated(most)
    for quick in _quick_memories(problem, largest):
        crossing = _Crossing.of(problem, quick)
        if crossing is not None:
            moved = partial(_moved, crossing, largest)
            best = max(best, _least_sum(repeated, moved, max(1, crossing.room), most))
    return best


def _by_recurrence(problem: Problem, room: int | None, context: Context) -> Number:
    """Return a bound on the time of repeated runs and mandatory transfers by `reversal_table`."""
    chain, once = problem.chain, problem.chain.length
    runs = np.minimum(chain.forward_time, chain.saving_forward_time) if chain.saves else chain.forward_time
    least: Number = runs[:once].min().item()
    loop = EqualSteps(
        steps=once if chain.saves else once + 1,
        state=int(chain.activation_size[: once + 1].min()),
        adjoint=int(chain.gradient_size.min()),
        tape=int(chain.saved_size[:once].min()) if chain.saves else None,
        forward=least,
    )
    columns = [runs[:once], chain.activation_size[: once + 1], chain.saved_size[:once] if chain.saves else runs[:0]]
    sums = MOST_SUMS if all(len(set(column.tolist())) < 2 for column in columns) else UNEQUAL_SUMS
    sweep: Number = 0 if chain.saves else chain.forward_time[:once].sum().item()
    found: list[Number] = [0]

    def add(time: Fraction, spared: Number = 0) -> None:
        if time:
            found.append(sweep + raised(problem, time - once * Fraction(least) - Fraction(spared)))

    if room is not None:
        add(least_time(loop, room, slow=False, stopped=lambda: context.stopped, sums=sums))
    for quick in _quick_memories(problem, max(loop.state, loop.tape or 0)):
        crossing = _Crossing.of(problem, quick)
        if crossing is not None:
            write, read = (start + rate for start, rate in zip(crossing.starts, crossing.rates, strict=True))
            moving = replace(loop, write=write, read=read)
            add(
                least_time(moving, crossing.room, slow=True, stopped=lambda: context.stopped, sums=sums),
                crossing.spared,
            )
    return max(found)


def _moved(crossing: _Crossing, largest: int, size: int) -> Number:
    return crossing.time(size - crossing.room, largest)


def _least_sum(
    falling: Callable[[int], Number | None], rising: Callable[[int], Number], first: int, last: int
) -> Number:
    """Return a bound on the minimum of a falling and a rising function's sum over a range, by halving (best first)."""
    found = falling(max(first, last))
    if found is None:
        return 0
    parts = [(found + rising(first), first, max(first, last), found)]
    for _ in range(MOST_HALVINGS):
        value, low, high, at_high = parts[0]
        if low == high:
            break
        middle = (low + high) // 2
        at_middle = falling(middle)
        if at_middle is None:
            break
        heapq.heapreplace(parts, (max(value, at_middle + rising(low)), low, middle, at_middle))
        heapq.heappush(parts, (max(value, at_high + rising(middle + 1)), middle + 1, high, at_high))
    return parts[0][0]


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
