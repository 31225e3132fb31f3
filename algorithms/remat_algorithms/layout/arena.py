"""The smallest arena: greedy layouts, then searches that find others, or improve the best one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from remat.plugin import FREE, THIS_SCHEDULE, Buffers, Context, IntArray, LayoutProposal, Termination, arena_of
from remat_algorithms.layout.best_fit import ORDERS, Gaps, Order
from remat_algorithms.layout.live_bytes import arena_bound, sections_of

if TYPE_CHECKING:
    from remat_algorithms.layout.layout_search import LayoutSearch

MOST_PLACES = 20_000_000
"""Pairs of a buffer and a section of its life beyond which nothing is searched."""

GREEDY_PLACES = 200_000
"""Number of buffers above which only the two quick orders run."""

CHEAP_ORDERS: tuple[Order, ...] = ("start", "lifetime")

FIRST_WORK = 20_000_000
"""Work of the first search in an arena of one size; it doubles each time all sizes were searched in vain."""

ORDER_SHARE, ORDER_WORK, ROUNDS = 0.25, 1_000_000_000, 16
"""Share of the work that is left, and most of it, for other orders of best-fit, where searches with so many times the
first work were in vain."""

LOWEST_SHARE = 2
"""Work for the lowest arena, relative to that for each other one: most instances have a layout of this size."""

HALVINGS = 5
"""Number of arenas to try between the lower bound and the largest one; each halves the distance."""

HELP_ROUNDS = 16
"""The search for a layout of a given capacity turns to other searches where this many times the first work was in
vain."""


@dataclass
class _Best:
    """The best known layout and bound."""

    buffers: Buffers
    bound: int
    offset: IntArray | None = None
    arena: int = 0
    work: int = 0

    def take(self, offset: IntArray) -> None:
        """Keep a layout if its arena is smaller."""
        arena = arena_of(self.buffers, offset)
        if self.offset is None or arena < self.arena:
            self.offset, self.arena = offset, arena

    @property
    def is_enough(self) -> bool:
        """Whether the layout fits, or cannot be better."""
        if self.offset is None:
            return False
        capacity = self.buffers.capacity
        return self.arena <= self.bound or (capacity is not None and self.arena <= capacity)


def smallest_arena(buffers: Buffers, context: Context, *, work: int | None, greedy: bool = True) -> LayoutProposal:
    """Search for a layout that fits the capacity, or for the smallest arena without a capacity.

    Parameters
    ----------
    work : int, optional
        Units of work of the search, of about a nanosecond each; None: until it is done, or stopped.
    greedy : bool
        Whether best-fit comes first. Without it, it is asked only where the arena is to be minimised.
    """
    best = _Best(buffers, arena_bound(buffers))
    if buffers.capacity is not None and best.bound > buffers.capacity:
        return LayoutProposal(bound=best.bound, infeasible_within=THIS_SCHEDULE)
    if greedy or buffers.capacity is None:
        for offset in _greedy(buffers, context):
            best.take(offset)
            if best.is_enough:
                break
    complete, termination = True, Termination.COMPLETED
    if not best.is_enough:
        complete, termination = _search(best, context, work)
    fits = best.offset is not None and (buffers.capacity is None or best.arena <= buffers.capacity)
    proved = not fits and complete
    return LayoutProposal(
        offset=best.offset if fits else None,
        bound=best.bound,
        infeasible_within=THIS_SCHEDULE if proved else None,
        termination=termination,
        work=best.work,
    )


def _greedy(buffers: Buffers, context: Context) -> Iterator[IntArray]:
    gaps = Gaps(buffers)
    for order in ORDERS if len(buffers) <= GREEDY_PLACES else CHEAP_ORDERS:
        yield gaps.place(order)
        if context.stopped:
            return


def _search(best: _Best, context: Context, work: int | None) -> tuple[bool, Termination]:
    """Search until the layout is enough; return whether every arena below it is excluded, and why it stopped."""
    from remat_algorithms.layout.beam import Beams
    from remat_algorithms.layout.ejection import Ejections
    from remat_algorithms.layout.reinsertion import Reinsertions
    from remat_algorithms.layout.section_floors import FloorSearch
    from remat_algorithms.layout.section_floors_kernel import INFEASIBLE, SOLVED

    _, first, last = sections_of(best.buffers)
    if int((last - first).sum()) > MOST_PLACES:
        return False, Termination.SIZE_LIMIT
    buffers, expand = _hulls(best.buffers)
    exact = buffers is best.buffers
    step = _step(buffers)
    excluded = best.bound - step if exact else arena_bound(buffers) - step  # no layout of these has such an arena
    most, turn = FIRST_WORK, 0
    searches = [kind(buffers, context) for kind in (Reinsertions, Ejections, Beams)]
    plain: IntArray | None = None
    lowest: FloorSearch | None = None
    while not best.is_enough:
        capacity = best.buffers.capacity
        high = capacity if capacity is not None else best.arena - step
        low = excluded + step
        if low > high:
            return exact, Termination.COMPLETED
        # The bound itself is what most instances allow; then the middle, then ever nearer to what is known to do.
        target = high if capacity is not None else _target(low, high, step, turn)
        left = None if work is None else work - best.work
        if context.stopped or (left is not None and left <= 0):
            return False, context.termination if context.stopped else Termination.ITERATION_LIMIT
        limit = LOWEST_SHARE * most if target == low else most
        limit = limit if left is None else min(limit, left)
        if turn == 0:
            lowest = lowest if lowest and lowest.capacity == target else FloorSearch(buffers, target, context.seed)
        floors = lowest if lowest and turn == 0 else FloorSearch(buffers, target, context.seed + turn)
        found = floors.go_on(limit, lambda: context.stopped)
        best.work += found.work
        if found.status == SOLVED and found.offset is not None:
            best.take(expand(found.offset))
            plain, turn = found.offset, 0
        elif found.status == INFEASIBLE:
            excluded, turn = target, 0
            if exact:
                best.bound = max(best.bound, target + step)
        else:
            turn += 1
            if target == high:
                if capacity is None or most >= HELP_ROUNDS * FIRST_WORK:
                    arenas = range(low, best.arena, step) if capacity is None else range(high, high + 1)
                    plain = _help(best, searches, best.offset if exact else plain, expand, arenas, work)
                if most == ROUNDS * FIRST_WORK:
                    _reorder(best, context, left)
                most, turn = 2 * most, 0
    return exact, Termination.COMPLETED


def _help(
    best: _Best,
    searches: Sequence[LayoutSearch],
    plain: IntArray | None,
    expand: Callable[[IntArray], IntArray],
    arenas: range,
    work: int | None,
) -> IntArray | None:
    """Run other searches for some of these arenas, each with its share of the work of the search over floors.

    `plain` is the best layout of plain buffers. Return the new one.
    """
    floors = best.work - sum(search.work for search in searches)
    for search in searches:
        limit = search.share * floors
        while not best.is_enough and len(arenas):
            left = int(limit) - search.work
            left = left if work is None else min(left, work - best.work)
            if left <= 0:
                break
            before = search.work
            offset = search.below(arenas, left, plain)
            best.work += search.work - before
            if offset is None:
                break
            best.take(expand(offset))
            plain = offset
            arenas = range(arenas.start, best.arena, arenas.step)
    return plain


def _reorder(best: _Best, context: Context, left: int | None) -> None:
    """Try other orders of best-fit with a part of the work that is left."""
    from remat_algorithms.layout.order_search import reordered

    work = ORDER_WORK if left is None else min(ORDER_WORK, int(ORDER_SHARE * left))
    best.work += work
    for offset in reordered(best.buffers, context, work):
        best.take(offset)
        if best.is_enough:
            return


def _target(low: int, high: int, step: int, turn: int) -> int:
    """Return the arena to try at a turn: the lowest first, then arenas that halve the distance to the highest."""
    if turn == 0:
        return low
    rest = (high - low) // step >> turn if turn <= HALVINGS else 0
    return high - rest * step if rest else high


def _step(buffers: Buffers) -> int:
    """Return the number that divides the difference of any two arenas."""
    addresses = [address for pair in buffers.blocked for address in pair]
    fixed = [] if buffers.fixed is None else buffers.fixed[buffers.is_fixed].tolist()
    return int(np.gcd.reduce(np.array([*addresses, *fixed, *buffers.size.tolist(), *_alignment(buffers)])))


def _alignment(buffers: Buffers) -> list[int]:
    return [buffers.alignment] if (buffers.rounded != buffers.size).any() else []


def _hulls(buffers: Buffers) -> tuple[Buffers, Callable[[IntArray], IntArray]]:
    """Return plain buffers that enclose the groups, and what makes offsets of buffers of theirs."""
    if buffers.group is None:
        return buffers, lambda offset: offset
    assert buffers.shift is not None
    shift = buffers.shift
    _, group = np.unique(buffers.group, return_inverse=True)
    group = group.ravel()
    count = int(group.max(initial=-1)) + 1
    start = np.full(count, buffers.start.max(initial=0), dtype=np.int64)
    end, size = np.zeros((2, count), dtype=np.int64)
    np.minimum.at(start, group, buffers.start)
    np.maximum.at(end, group, buffers.end)
    np.maximum.at(size, group, shift + buffers.size)
    fixed = None
    if buffers.fixed is not None:
        fixed = np.full(count, FREE, dtype=np.int64)
        held = np.flatnonzero(buffers.is_fixed)
        fixed[group[held]] = buffers.fixed[held] - shift[held]
    hulls = replace(buffers, start=start, end=end, size=size, fixed=fixed, group=None, shift=None, names=())
    return hulls, lambda offset: offset[group] + shift
