"""`capuchin`: first the swaps that other runs hide, then, value by value, the cheaper of swapping and remaking.

After Peng, Shi, Dai et al. 2020, "Capuchin: tensor-based GPU memory management for deep learning", the accesses known
instead of measured. The free time of a gap is

    FT = length of the gap - time out - time back,

and a swap with FT >= 0 is hidden. Such gaps leave first, the one of most free time first. If that is not enough, the
others are looked at in the order of MSPS, the bytes that they save per second of remaking their value: a value is
remade where that takes less time than the part of its swap that is not hidden, -FT. What is remade makes the values
that are made from it dearer, so that MSPS changes with every choice.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remat.context import Context
from remat.problem import Problem, Proposal
from remat_algorithms.offload.choice import Choice, Plan, best_of
from remat_algorithms.offload.proposals import proposal_of
from remat_algorithms.offload.remaking import Remaking
from remat_algorithms.offload.routes import routes
from remat_algorithms.offload.swaps import Order


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Swap what is hidden, then swap or remake, value by value, until the load fits.

    Parameters
    ----------
    problem : Problem
        Of kind `chain` or `dag`. Without a way out of the processor's memory and back, values are only remade.
    options : None
    context : Context
        The choice ends early when it is stopped.

    Returns
    -------
    Proposal
        The quicker of two schedules: one keeps what is remade on the way to other values, one does not.

    Notes
    -----
    O(gaps^2) estimates of what remaking takes, each O(runs) at worst.
    """
    ways = routes(problem.machine)
    choice = Choice(problem, Order.of(problem), ways)
    if choice.fits:
        plan = choice.dispatched([])
        assert plan is not None, "nothing moves"
        return proposal_of(plan, context, source="capuchin")
    hidden, exposed = by_free_time(choice)
    chosen = choice.select(hidden)
    if chosen is not None:
        plan = choice.plan(chosen)
        if plan is not None:
            return proposal_of(plan, context, source="capuchin")
    plan = best_of(_mixed(choice, hidden, exposed, context, keep=keep) for keep in (True, False))
    if plan is None and ways:
        # What is remade needs room as well; and the other memories may be too small.
        plan = choice.plan(choice.select([*hidden, *exposed]))
        alone = Choice(problem, choice.order, ())
        if plan is None:
            plan = best_of(_mixed(alone, *by_free_time(alone), context, keep=keep) for keep in (True, False))
    if plan is None:
        return Proposal(termination=context.termination, notes=("capuchin found no schedule within the budget",))
    return proposal_of(plan, context, source="capuchin")


def by_free_time(choice: Choice) -> tuple[list[int], list[int]]:
    """Return the candidate gaps whose swaps are hidden, the most free time first, and the others."""
    gaps = choice.candidates
    free = free_time(choice)[gaps]
    ranked = np.argsort(-free, kind="stable")
    return gaps[ranked[free[ranked] >= 0]].tolist(), gaps[ranked[free[ranked] < 0]].tolist()


def free_time(choice: Choice) -> np.ndarray:
    """Return FT of each gap; minus infinity where there is no way out and back."""
    if not choice.routes:
        return np.full(len(choice.size), -math.inf)
    free: np.ndarray = choice.length - choice.round_trip
    return free


class _Mixture:
    """Gaps that are swapped and gaps whose values are remade."""

    def __init__(self, choice: Choice, *, keep: bool) -> None:
        self.choice, self.keep = choice, keep
        self.remaking = Remaking(choice.order)
        self.swapped: list[int] = []
        self.lost: list[int] = []

    def arranged(self) -> _Arranged | None:
        """Return the order with its repeats, and the swapped gaps there; None if something cannot be remade."""
        choice, base = self.choice, self.choice.order
        remade = self.remaking.order_without(self.lost, keep=self.keep)
        if remade is None:
            return None
        order = Order(base.graph, base.machine, remade.tasks)
        place = np.flatnonzero(np.array([*remade.origin, len(base.tasks)]) >= 0)
        gaps_of: defaultdict[int, list[int]] = defaultdict(list)
        for index, gap in enumerate(order.gaps):
            gaps_of[gap.value].append(index)
        # A value that something is remade from has several gaps where it had one.
        swapped = []
        for index in self.swapped:
            gap = base.gaps[index]
            first, last = -1 if gap.after < 0 else place[gap.after], place[gap.before]
            parts = (part for part in gaps_of[gap.value] if first <= order.gaps[part].after < last)
            swapped += [part for part in parts if order.gaps[part].before - order.gaps[part].after > 1]
        return _Arranged(Choice(choice.problem, order, choice.routes), swapped, place)


@dataclass(frozen=True)
class _Arranged:
    """An order with repeats, the gaps that are swapped in it, and where the runs of the first order are in it."""

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
        """Dispatch what has been chosen; None where it does not fit."""
        chosen = self.choice.select(self.swapped)
        if chosen is None:
            return None
        return self.choice.plan(chosen) if chosen else self.choice.dispatched([])


def _mixed(choice: Choice, hidden: Sequence[int], exposed: list[int], context: Context, *, keep: bool) -> Plan | None:
    """Decide gap after gap until the load fits; None where it never does."""
    mixture = _Mixture(choice, keep=keep)
    mixture.swapped += hidden
    free = free_time(choice)
    left = list(exposed)
    while not context.stopped:
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
        times = [float(mixture.remaking.time(index, mixture.lost)) for index in helpful]
        savings = [_per_time(int(choice.size[index]), time) for index, time in zip(helpful, times, strict=True)]
        best = int(np.argmax(savings))
        index = helpful[best]
        left.remove(index)
        if times[best] < -free[index]:
            mixture.lost.append(index)
        elif choice.routes:
            mixture.swapped.append(index)
    return None


def _within(place: np.ndarray, after: int, before: int) -> slice:
    """Return the runs of a gap where they are now."""
    return slice(0 if after < 0 else int(place[after]) + 1, int(place[before]))


def _per_time(size: int, time: float) -> float:
    return math.inf if time == 0 else size / time
