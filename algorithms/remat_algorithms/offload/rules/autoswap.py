"""`autoswap`: score gaps by length, size and load of the absence; search the weights of the scores.

Zhang, Yeung, Shu, He, Wang 2019, "Efficient memory management for GPU-based deep learning systems". A gap lasts from
t1, when the run before it ends, to t2, when the run after it starts. By the times of its transfers, its value has left
at t1' = t1 + out and starts to return at t2' = t2 - back. The four scores are:

    DOA = t2' - t1'                                  duration of absence
    AOA = size DOA                                   area of absence (DOA / size, where DOA is negative)
    WDOA = integral of the load from t1' to t2'      AOA, where DOA is negative
    SWDOA = WDOA of the load that what has been picked leaves behind

Each is scaled to at most 1. Gaps are picked by a weighted sum of the four until the load fits. The fastest of the
schedules of all weights on a grid is taken. The paper searches the weights by Bayesian optimisation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal
from remat_algorithms.offload.swaps.gap_selection import BestPlan, Choice
from remat_algorithms.offload.swaps.offload_proposals import nothing_fits, proposal_of
from remat_algorithms.offload.swaps.routes import required_routes
from remat_algorithms.offload.swaps.swaps import Order

FloatArray = NDArray[np.float64]


class AutoswapOptions(Options):
    """Options of `autoswap`."""

    grid: int = Field(4, ge=1, le=12, description="parts into which the weights of the four scores are divided")


def solve(problem: Problem, options: AutoswapOptions, context: Context) -> Proposal:
    """Offload whole values of the reference order, picked by weighted scores.

    Takes instances of kind `chain` or `dag`, on a machine with links out of the processor's memory and back. A stop
    ends the search with the weights tried so far. Finds a schedule whenever the budget holds each single run and the
    other memories hold the rest.

    Raises
    ------
    remat.OptionError
        If the machine has no link out, or none back.

    Notes
    -----
    O(gaps (runs + gaps)) for each of the (grid + 3 choose 3) weights, and their dispatch.
    """
    choice = Choice(problem, Order.of(problem), required_routes(problem, "autoswap"))
    if choice.fits:
        plan = choice.plan([])
        if plan is None:  # the values that must leave, or begin elsewhere, exceed a memory
            return nothing_fits(choice, "autoswap")
        return proposal_of(plan, context, bound=plan.makespan, source="autoswap")
    scores = Scores.of(choice)
    search = BestPlan(problem, context)
    seen: set[frozenset[int]] = set()
    for weights in _weights(options.grid):
        chosen = choice.select(scores.ranking(choice, weights, context))
        if chosen is None:
            break  # all gaps together are not enough, in any order
        if frozenset(chosen) not in seen:
            seen.add(frozenset(chosen))
            search.consider(choice.plan(chosen))
        if search.done:
            break
    if search.best is None:
        return nothing_fits(choice, "autoswap")
    return proposal_of(search.best, context, source="autoswap")


@dataclass(frozen=True)
class Scores:
    """Scores of the candidate gaps.

    Attributes
    ----------
    gaps : (n,) int64
        The candidates.
    leaves, returns : (n,) float64
        t1' and t2'.
    absence, area, load : (n,) float64
        DOA, AOA, WDOA, not scaled.
    """

    gaps: NDArray[np.int64]
    leaves: FloatArray
    returns: FloatArray
    absence: FloatArray
    area: FloatArray
    load: FloatArray

    @staticmethod
    def of(choice: Choice) -> Scores:
        """Score a choice's candidates (O(runs + gaps log runs))."""
        gaps = choice.candidates
        begins = choice.order.start_times.astype(np.float64)
        machine, route = choice.problem.machine, choice.routes[0]
        sizes = choice.size[gaps]
        out = np.array([route.out_time(machine, size) for size in sizes.tolist()], dtype=np.float64)
        back = np.array([route.back_time(machine, size) for size in sizes.tolist()], dtype=np.float64)
        leaves, returns = begins[choice.after[gaps] + 1] + out, begins[choice.before[gaps]] - back
        absence = returns - leaves
        area = np.where(absence >= 0, absence * sizes, absence / sizes)
        load = weighted_absence(begins, choice.profile, leaves, returns, area)
        return Scores(gaps, leaves, returns, absence, area, load)

    def ranking(self, choice: Choice, weights: tuple[float, float, float, float], context: Context) -> list[int]:
        """Return the gaps in the order in which they are picked until the load fits, followed by the others.

        After a stop, the remaining gaps follow by their current scores.
        """
        fixed = sum(
            weight * _scaled(score)
            for weight, score in zip(weights, (self.absence, self.area, self.load), strict=False)
        )
        assert isinstance(fixed, np.ndarray)
        if weights[3] == 0:
            return [int(gap) for gap in self.gaps[np.argsort(-fixed, kind="stable")]]
        assert choice.budget is not None
        begins = choice.order.start_times.astype(np.float64)
        profile = choice.profile.copy()
        left = np.ones(len(self.gaps), dtype=bool)
        picked: list[int] = []
        score = fixed
        while left.any() and int(profile.max()) > choice.budget and not context.stopped:
            again = weighted_absence(begins, profile, self.leaves, self.returns, self.area)
            score = fixed + weights[3] * _scaled(again)
            best = int(np.argmax(np.where(left, score, -np.inf)))
            left[best] = False
            gap = int(self.gaps[best])
            picked.append(gap)
            inside = slice(int(choice.after[gap]) + 1, int(choice.before[gap]))
            if int(profile[inside].max()) > choice.budget:  # as they are taken
                profile[inside] -= choice.size[gap]
        # The load fits: the scores do not change any more.
        order = np.argsort(-score, kind="stable")
        return picked + [int(gap) for gap in self.gaps[order[left[order]]]]


def weighted_absence(
    begins: FloatArray, profile: NDArray[np.int64], leaves: FloatArray, returns: FloatArray, otherwise: FloatArray
) -> FloatArray:
    """Return the integral of the load over each absence; `otherwise` where a gap is too short for one.

    Parameters
    ----------
    begins : (runs+1,) float64
    profile : (runs,) int64
    leaves, returns, otherwise : (n,) float64

    Returns
    -------
    (n,) float64
    """
    sums = np.concatenate(([0.0], np.cumsum(np.diff(begins) * profile)))
    area = np.interp(returns, begins, sums) - np.interp(leaves, begins, sums)
    return np.where(returns >= leaves, area, otherwise)


def _scaled(scores: FloatArray) -> FloatArray:
    largest = float(np.abs(scores).max(initial=0))
    return scores / largest if largest > 0 else scores


def _weights(parts: int) -> Iterator[tuple[float, float, float, float]]:
    """Yield the points of a simplex grid, its corners first."""
    grid = [point for point in itertools.product(range(parts + 1), repeat=4) if sum(point) == parts]
    for a, b, c, d in sorted(grid, key=lambda point: (-max(point), point)):
        yield a / parts, b / parts, c / parts, d / parts
