"""`capuchin`: first the swaps that computation hides, then for each value the cheaper of swapping and recomputing.

After Peng, Shi, Dai et al. 2020, "Capuchin: tensor-based GPU memory management for deep learning", with the accesses
known instead of measured. The free time of a gap is

    FT = length of the gap - time out - time back,

less the time during which earlier chosen swaps occupy the channels. A swap with FT >= 0 is hidden. Of the gaps that
free memory at overfull runs, hidden ones leave first, by descending free time. If that is not enough, the others follow
in the order of MSPS, the bytes that they save per second of recomputing their value. A value is recomputed if that
takes less time than its swap adds to the longest wait, -FT. A recomputed value makes the values that are computed from
it more expensive, and MSPS changes with every choice.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from remat.plugin import Context, Problem, Proposal
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan, best_of
from remat_algorithms.offload.swaps.offload_proposals import nothing_fits, proposal_of
from remat_algorithms.offload.swaps.recompute import Remaking
from remat_algorithms.offload.swaps.routes import routes
from remat_algorithms.offload.swaps.swaps import Order


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Choose hidden swaps, then swap or recompute one value after the other, until the load fits.

    Takes instances of kind `chain` or `dag`. Without links out of the processor's memory and back, values are only
    recomputed. A stop ends the choice early; then only swaps are tried. Gives the faster of two schedules: one keeps
    values that are recomputed on the path to other values, the other does not.

    Notes
    -----
    O(gaps^2) estimates of the recomputation time, each O(runs) at worst.
    """
    ways = routes(problem.machine)

    def stopped() -> bool:
        return context.stopped

    order = Order.of(problem)
    if not ways and stopped():  # what could still be answered takes longer
        return Proposal(termination=context.termination)
    choice = Choice(problem, order, ways)
    if choice.fits:
        plan = choice.plan([])
        if plan is None:  # the values that must leave, or begin elsewhere, exceed a memory
            return nothing_fits(choice, "capuchin")
        return proposal_of(plan, context, source="capuchin")
    hidden, exposed = by_free_time(choice, stopped)
    plan = best_of(_mixed(choice, hidden, exposed, stopped, keep=keep) for keep in (True, False))
    if plan is None and ways:
        # Recomputed values need memory as well; and the other memories may be too small.
        plan = choice.plan(choice.select([*hidden, *exposed]))
        if plan is None:
            alone = Choice(problem, choice.order, ())
            plan = best_of(_mixed(alone, *by_free_time(alone, stopped), stopped, keep=keep) for keep in (True, False))
    if plan is None:
        return Proposal(termination=context.termination, notes=("capuchin found no schedule within the budget",))
    return proposal_of(plan, context, source="capuchin")


def by_free_time(choice: Choice, stopped: Callable[[], bool]) -> tuple[list[int], list[int]]:
    """Return the hidden gaps that free memory at overfull runs, and all other candidates.

    Both lists have the most free time first, computed on otherwise idle channels. After a stop, gaps that were not
    examined count as not hidden.
    """
    gaps = choice.candidates
    if not choice.routes:
        return [], gaps.tolist()
    free = free_time(choice)[gaps]
    assert choice.budget is not None
    room = choice.budget - choice.profile
    hidden: list[int] = []
    exposed: list[int] = []
    for gap in gaps[np.argsort(-free, kind="stable")].tolist():
        inside = slice(int(choice.after[gap]) + 1, int(choice.before[gap]))
        if not stopped() and int(room[inside].min()) < 0 and wait(choice, [*hidden, gap]) <= 0:
            room[inside] += choice.size[gap]
            hidden.append(gap)
        else:
            exposed.append(gap)
    return hidden, exposed


def free_time(choice: Choice) -> np.ndarray:
    """Return FT of each gap alone; minus infinity without a route out and back."""
    if not choice.routes:
        return np.full(len(choice.size), -math.inf)
    free: np.ndarray = choice.length - choice.round_trip
    return free


def wait(choice: Choice, gaps: Sequence[int]) -> float:
    """Return the longest time for which a run would wait for one of several swaps; at most 0: all are hidden.

    Transfers out follow each other in the order in which their gaps begin. Transfers back follow each other in the
    order in which the gaps end, as late as possible. On a processor's own channel nothing is hidden. O(gaps log gaps).
    """
    if not choice.routes:
        return math.inf
    machine, route = choice.problem.machine, choice.routes[0]
    names = {processor.name for processor in machine.processors}
    if any(machine.links[link].channel in names for link in (*route.out, *route.back)):
        return float(sum(choice.round_trip[gap] for gap in gaps))
    legs = [choice.legs[gap] for gap in gaps]
    free = -math.inf
    left: dict[int, float] = {}
    for leg in sorted(legs, key=lambda leg: (leg.after, leg.gap)):
        free = max(free, leg.begin) + leg.out
        left[leg.gap] = free
    longest, free = -math.inf, math.inf
    for leg in sorted(legs, key=lambda leg: (-leg.before, leg.gap)):
        free = min(free, leg.end) - leg.back
        longest = max(longest, left[leg.gap] - free)
    return longest


class _Mixture:
    """Swapped gaps, and gaps whose values are recomputed."""

    def __init__(self, choice: Choice, *, keep: bool) -> None:
        self.choice, self.keep = choice, keep
        self.remaking = Remaking(choice.order)
        self.swapped: list[int] = []
        self.lost: list[int] = []
        self._repeated: tuple[int, _Repeated | None] = (-1, None)

    def arranged(self) -> _Arranged | None:
        """Return the order with recomputation, and its swapped gaps; None if a value cannot be recomputed.

        O(swapped gaps), and O(runs) if more is recomputed than at the last call.
        """
        if self._repeated[0] != len(self.lost):
            self._repeated = len(self.lost), self._repeat()
        repeated, base = self._repeated[1], self.choice.order
        if repeated is None:
            return None
        gaps, place = repeated.choice.order.gaps, repeated.place
        # A value that others are recomputed from has several gaps in place of one.
        swapped = []
        for index in self.swapped:
            gap = base.gaps[index]
            first, last = -1 if gap.after < 0 else place[gap.after], place[gap.before]
            parts = (part for part in repeated.gaps_of.get(gap.value, ()) if first <= gaps[part].after < last)
            swapped += [part for part in parts if gaps[part].before - gaps[part].after > 1]
        return _Arranged(repeated.choice, swapped, place)

    def _repeat(self) -> _Repeated | None:
        choice, base = self.choice, self.choice.order
        remade = self.remaking.order_without(self.lost, keep=self.keep)
        if remade is None:
            return None
        order = Order(base.graph, base.machine, remade.tasks)
        place = np.flatnonzero(np.array([*remade.origin, len(base.tasks)]) >= 0)
        gaps_of: defaultdict[int, list[int]] = defaultdict(list)
        for index, gap in enumerate(order.gaps):
            gaps_of[gap.value].append(index)
        return _Repeated(Choice(choice.problem, order, choice.routes), gaps_of, place)


@dataclass(frozen=True)
class _Repeated:
    """An order with recomputation, the gaps of each value in it, and the new positions of the original runs."""

    choice: Choice
    gaps_of: Mapping[int, Sequence[int]]
    place: np.ndarray


@dataclass(frozen=True)
class _Arranged:
    """An order with recomputation, its swapped gaps, and the new positions of the original runs."""

    choice: Choice
    swapped: list[int]
    place: np.ndarray

    def room(self) -> np.ndarray:
        """Bytes that each run leaves free."""
        choice = self.choice
        assert choice.budget is not None
        room = choice.budget - choice.profile
        for gap in self.swapped:
            room[int(choice.after[gap]) + 1 : int(choice.before[gap])] += choice.size[gap]
        return room

    def plan(self) -> Plan | None:
        """Dispatch the choice; None if it does not fit."""
        chosen = self.choice.select(self.swapped)
        return self.choice.plan(chosen)


def _mixed(
    choice: Choice, hidden: Sequence[int], exposed: list[int], stopped: Callable[[], bool], *, keep: bool
) -> Plan | None:
    """Decide one gap after the other until the load fits; None if it never does."""
    if stopped():  # before what remaking needs to know is gathered
        return None
    mixture = _Mixture(choice, keep=keep)
    mixture.swapped += hidden
    left = list(exposed)
    while not stopped():
        arranged = mixture.arranged()
        if arranged is None:
            return None
        plan = arranged.plan()
        if plan is not None:
            return plan
        over, place = arranged.room() < 0, arranged.place
        helpful = [
            index for index in left if over[_within(place, int(choice.after[index]), int(choice.before[index]))].any()
        ]
        if not helpful:
            return None
        times: list[float] = []
        for index in helpful:
            if stopped():
                return None
            times.append(float(mixture.remaking.time(index, mixture.lost)))
        savings = [_per_time(int(choice.size[index]), time) for index, time in zip(helpful, times, strict=True)]
        best = int(np.argmax(savings))
        index = helpful[best]
        left.remove(index)
        if times[best] < _added_wait(choice, mixture.swapped, index):
            mixture.lost.append(index)
        elif choice.routes:
            mixture.swapped.append(index)
    return None


def _added_wait(choice: Choice, swapped: Sequence[int], gap: int) -> float:
    if not choice.routes:
        return math.inf
    return wait(choice, [*swapped, gap]) - max(0.0, wait(choice, swapped))


def _within(place: np.ndarray, after: int, before: int) -> slice:
    """Return the runs of a gap at their new positions."""
    return slice(0 if after < 0 else int(place[after]) + 1, int(place[before]))


def _per_time(size: int, time: float) -> float:
    return math.inf if time == 0 else size / time
