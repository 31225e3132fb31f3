"""`autoswap`: score gaps by length, size and load of the absence; search the weights of the scores.

Zhang, Yeung, Shu, He, Wang 2019, "Efficient memory management for GPU-based deep learning systems". A gap lasts from
t1, when the run before it ends, to t2, when the run after it starts. By the times of its transfers, its value has left
at t1' = t1 + out and starts to return at t2' = t2 - back. The four scores are:

    DOA = t2' - t1'                                  duration of absence
    AOA = size DOA                                   area of absence (DOA / size, where DOA is negative)
    WDOA = integral of the load from t1' to t2'      AOA, where DOA is negative
    SWDOA = WDOA of the load that what has been picked leaves behind

Each is scaled to at most 1. Gaps are picked by a weighted sum of the four until the load fits. Bayesian optimisation
finds the weights. The single scores, and equal weights of two and of all, come first. Each round then tries the weights
whose makespan is expected to improve most on the best so far (`kit.gaussian_process`).

The paper's memory pool gives addresses to the values, the largest first, each in the smallest gap that holds it. With
`pool`, gaps are picked until these addresses fit the budget.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from remat.plugin import Context, Number, Options, Problem, Proposal, format_size
from remat_algorithms.kit.gaussian_process import GaussianProcess
from remat_algorithms.offload.rules.memory_pool import lives_of, pooled
from remat_algorithms.offload.swaps.gap_selection import BestPlan, Choice, Plan
from remat_algorithms.offload.swaps.offload_proposals import nothing_fits, proposal_of
from remat_algorithms.offload.swaps.routes import required_routes
from remat_algorithms.offload.swaps.swaps import Order

FloatArray = NDArray[np.float64]


MOST, WORK = 30, 1_000_000_000
"""Default number of rounds: at most `MOST`, fewer if each takes long."""

DRAWN, NEAR = 192, 64
"""Weights that a round chooses from: drawn evenly, and near the best ones."""

Weights = tuple[float, float, float, float]

FIRST: tuple[Weights, ...] = (
    *((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0.25, 0.25, 0.25, 0.25)),
    *((0.5, 0.5, 0, 0), (0.5, 0, 0.5, 0), (0.5, 0, 0, 0.5), (0, 0.5, 0.5, 0), (0, 0.5, 0, 0.5), (0, 0, 0.5, 0.5)),
)
"""Initial weights: each score alone, all, and pairs."""


class AutoswapOptions(Options):
    """Options of `autoswap`."""

    iterations: int | None = Field(
        None,
        ge=0,
        description=f"number of rounds of Bayesian optimization; default: up to {MOST}, fewer on large graphs",
    )
    grid: int | None = Field(
        None,
        ge=1,
        le=12,
        description="try all weights that are multiples of 1 / grid, in place of Bayesian optimization",
    )
    pool: bool = Field(
        False, description="offload until the addresses in a memory pool fit the budget; default: until the bytes do"
    )


def solve(problem: Problem, options: AutoswapOptions, context: Context) -> Proposal:
    """Offload whole values of the reference order, picked by weighted scores.

    Takes instances of kind `chain` or `dag`, on a machine with links out of the processor's memory and back. A stop
    ends the search with the best weights. Finds a schedule whenever the budget holds each single run and the
    other memories hold the rest; with `pool`, not always.

    Raises
    ------
    remat.OptionError
        If the machine has no link out, or none back.

    Notes
    -----
    O(gaps (runs + gaps)) for each of the weights that are tried, and their dispatch.
    """
    choice = Choice(problem, Order.of(problem), required_routes(problem, "autoswap"))
    if choice.fits and not options.pool:
        plan = choice.plan([])
        if plan is None:  # the values that must leave, or begin elsewhere, exceed a memory
            return nothing_fits(choice, "autoswap")
        return proposal_of(plan, context, bound=plan.makespan, source="autoswap")
    search = _Search(choice, context, pool=options.pool)
    if options.grid is not None:
        for weights in _weights(options.grid):
            if search.done or search.hopeless:
                break
            search.look_at(weights)
    else:
        rounds = options.iterations
        if rounds is None:
            gaps, runs = len(choice.candidates), len(choice.order.tasks)
            rounds = min(MOST, WORK // max(1, gaps * (runs + gaps)))
        _optimise(search, rounds, context.random())
    if search.best is None:
        found = nothing_fits(choice, "autoswap")
        no_layout = options.pool and not search.hopeless and found.least is None
        return Proposal(notes=("autoswap found no plan whose addresses fit",)) if no_layout else found
    notes = (f"the memory pool takes {format_size(search.arena(search.best), problem.units)}",) if options.pool else ()
    return proposal_of(search.best, context, source="autoswap", notes=notes)


class _Search(BestPlan):
    """The makespans of the tried weights, and the best plan."""

    def __init__(self, choice: Choice, context: Context, *, pool: bool) -> None:
        super().__init__(choice.problem, context)
        self.choice, self.pool = choice, pool
        self.scores = Scores.of(choice)
        self.seen: dict[tuple[int, ...], Number] = {}
        self.tried: list[tuple[Weights, Number]] = []
        self.hopeless = False  # all gaps together are not enough, in any order

    def arena(self, plan: Plan) -> int:
        """Return the bytes that the memory pool takes."""
        return lives_of(plan, self.problem).arena()

    def look_at(self, weights: Weights) -> None:
        """Plan with some weights."""
        ranking = self.scores.ranking(self.choice, weights, self.context)
        chosen = self.choice.select(ranking)
        if chosen is None:
            self.hopeless = True
            return
        # With a pool, further gaps may follow.
        key = tuple(ranking) if self.pool else tuple(sorted(chosen))
        if key not in self.seen:
            plan = self._pooled(ranking) if self.pool else self.choice.plan(chosen)
            self.seen[key] = math.inf if plan is None else plan.makespan
            self.consider(plan)
        self.tried.append((weights, self.seen[key]))

    def _pooled(self, ranking: list[int]) -> Plan | None:
        return pooled(self.choice, lambda tighter: tighter.plan(tighter.select(ranking)), self.arena)


def _optimise(search: _Search, rounds: int, draw: random.Random) -> None:
    """Try the first weights, then those of the largest expected improvement."""
    for weights in FIRST:
        if search.done or search.hopeless:
            return
        search.look_at(weights)
    for _ in range(rounds):
        if search.done or search.best is None:
            return
        points = np.array([weights for weights, _ in search.tried], dtype=np.float64)
        values = np.array([makespan for _, makespan in search.tried], dtype=np.float64)
        found = np.isfinite(values)
        values = np.where(found, values, 2 * values[found].max())  # weights that lead to no schedule
        candidates = _candidates(points[int(np.argmin(values))].tolist(), draw)
        process = GaussianProcess.of(points, values)
        best = int(np.argmax(process.expected_improvement(candidates, float(values.min()))))
        a, b, c, d = candidates[best].tolist()
        search.look_at((a, b, c, d))


def _candidates(best: list[float], draw: random.Random) -> FloatArray:
    """Draw weights that add up to 1: evenly on the faces of the simplex, and near the best ones."""
    even = [[draw.expovariate(1.0) * (draw.random() < 0.6) + 1e-9 for _ in best] for _ in range(DRAWN)]
    near = [[max(0.0, weight + draw.gauss(0.0, 0.1)) + 1e-9 for weight in best] for _ in range(NEAR)]
    found: FloatArray = np.array(even + near, dtype=np.float64)
    found /= found.sum(axis=1, keepdims=True)
    return found


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

    def ranking(self, choice: Choice, weights: Weights, context: Context) -> list[int]:
        """Return the gaps in the order in which they are picked until the load fits, followed by the others.

        After a stop, the remaining gaps follow by their current scores.
        """
        fixed = sum(
            weight * _scaled(score)
            for weight, score in zip(weights, (self.absence, self.area, self.load), strict=False)
        )
        assert isinstance(fixed, np.ndarray)
        if weights[3] == 0 or choice.budget is None:
            return [int(gap) for gap in self.gaps[np.argsort(-fixed, kind="stable")]]
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


def _weights(parts: int) -> Iterator[Weights]:
    """Yield the points of a simplex grid, its corners first."""
    grid = [point for point in itertools.product(range(parts + 1), repeat=4) if sum(point) == parts]
    for a, b, c, d in sorted(grid, key=lambda point: (-max(point), point)):
        yield a / parts, b / parts, c / parts, d / parts
