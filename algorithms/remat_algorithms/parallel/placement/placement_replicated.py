"""`placement-replicated`: parameters copied into several memories, with the load shared by fractions of the samples.

For given copies, the minimum time per sample is a linear program (`fractional_loads`). Branch and bound, best first,
searches for the copies on the relaxation of the same program. Each choice it meets becomes a pattern with as many
samples as the shares require, up to `samples`; it is scheduled and measured. The search starts from the answer of
`tarnawski-ip` (without its program), so it is never worse.

Without transfers, or if each unit stays in one place, the proofs hold for all schedules. Otherwise they hold for
schedules that run each task once per sample.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from pydantic import Field

from remat.plugin import ALL_SCHEDULES, Bound, Context, Options, Problem, Proposal, Termination
from remat_algorithms.parallel.placement.best_pattern import SAME, Best, sharpened
from remat_algorithms.parallel.placement.bounds import cheap_bounds
from remat_algorithms.parallel.placement.feasibility import refuse
from remat_algorithms.parallel.placement.fractional_loads import Copies, Fractions, Split, dealt
from remat_algorithms.parallel.placement.model import Model, model_of
from remat_algorithms.parallel.placement.tarnawski_dp import DownSetOptions, contiguous
from remat_algorithms.parallel.placement.tarnawski_ip import everywhere, walk_on

ONCE = "schedules that run each task once a sample"

WHOLE = 1e-6
"""Distance from 0 and 1 within which a copy counts as absent or present."""

MOST_TURNS = 40_000
"""Maximum number of runs and copies of a pattern."""


class ReplicatedOptions(Options):
    """Options of `placement-replicated`."""

    nodes: int = Field(
        default=400, ge=0, le=10_000_000, description="maximum number of nodes in the branch and bound over copies"
    )
    samples: int = Field(default=200, ge=1, le=100_000, description="maximum number of samples per period")
    moves: int = Field(
        default=2_000_000,
        ge=0,
        le=10**10,
        description="maximum number of moves in the local search for a placement without copies",
    )
    sets: int = Field(
        default=400_000,
        ge=2,
        le=10_000_000,
        description="maximum number of down-sets that the initial dynamic program examines",
    )


def solve(problem: Problem, options: ReplicatedOptions, context: Context) -> Proposal:
    """Copy parameters and share the load."""
    model = model_of(problem, "placement-replicated")
    refused = refuse(problem, model, context)
    if refused is not None:
        return refused
    bounds = list(cheap_bounds(model, context))
    for bound in bounds:
        context.report(bound=bound.value, scope=bound.scope)
    best = Best(problem, model, context)
    contiguous(best, DownSetOptions(sets=options.sets))
    walk_on(best, options.moves)
    search = _Search(best, options)
    search.run()
    within = None
    if search.bound is not None and search.bound > 0 and model.certain:
        scope = ALL_SCHEDULES if model.free or everywhere(model) else ONCE
        bound = sharpened(Bound(search.bound, scope, "shared loads"), best.time)
        within = scope if bound.value == best.time and scope != ALL_SCHEDULES else None
        bounds.append(bound)
    termination = Termination.COMPLETED if search.ended else Termination.ITERATION_LIMIT
    return best.proposal(bounds, optimal_within=within, termination=termination)


class _Search:
    """Branch and bound on the memories of inputs."""

    def __init__(self, best: Best, options: ReplicatedOptions) -> None:
        self.best, self.options = best, options
        self.model: Model = best.model
        self.fractions = Fractions(self.model, best.context)
        self.bound: float | None = None
        self.ended = False
        jobs = max(1, len(self.model.graph.tasks) + 2 * len(self.model.flows))
        self.samples = max(1, min(options.samples, MOST_TURNS // jobs))

    def run(self) -> None:
        """Search until the best solution is optimal or the node limit is reached."""
        context = self.best.context
        self._weigh(self._known())
        bound, root = self.fractions.solve({})
        if root is None:
            return
        # Bound of integral choices that may be unattainable, because of transient values or whole samples, or that
        # are unsolved.
        settled = math.inf
        queue: list[tuple[float, int, Copies, Split]] = [(bound, 0, {}, root)]
        nodes = ticket = 0
        while queue:
            bound, _, copies, split = heapq.heappop(queue)
            self.bound = min(bound, settled)
            time = self.best.time
            if time is not None and bound >= float(time) * (1 - SAME / 2):
                break
            if nodes >= self.options.nodes or context.stopped:
                return
            nodes += 1
            place = self._open(split, copies)
            self._weigh(self._rounded(split, copies))
            if place is None:
                settled = min(settled, bound)
                continue
            for there in (True, False):
                chosen = {**copies, place: there}
                if there and not self.fractions.fits(chosen):
                    continue
                own, part = self.fractions.solve(chosen)
                own = max(bound, own)
                if part is None:
                    settled = min(settled, own)
                elif time is None or own < float(time) * (1 - SAME / 2):
                    ticket += 1
                    heapq.heappush(queue, (own, ticket, chosen, part))
        # The queue is empty: no choice beats the best one.
        self.ended = True
        time = self.best.time
        self.bound = min(settled, math.inf if time is None else float(time) * (1 - SAME / 2))
        if not math.isfinite(self.bound):
            self.bound = None

    def _known(self) -> Copies | None:
        """Return the copies of the best placement found."""
        homes = self.best.homes
        if homes is None:
            return None
        copies: dict[tuple[int, int], bool] = dict.fromkeys(self.fractions.copy, False)
        for own in homes:
            for unit, processor in enumerate(own):
                for value in self.model.parameters[unit]:
                    copies[value, self.model.memory_of[processor]] = True
        return copies

    def _open(self, split: Split, copies: Copies) -> tuple[int, int] | None:
        """Return the fractional copy closest to one half; None without any."""
        halves = [
            (abs(part - 0.5), place)
            for place, part in split.copies.items()
            if place not in copies and WHOLE < part < 1 - WHOLE
        ]
        return min(halves, default=(0.0, None))[1]

    def _rounded(self, split: Split, copies: Copies) -> Copies | None:
        """Return copies that fit, preferring those with the largest fractions."""
        chosen: dict[tuple[int, int], bool] = dict(copies)
        listed = sorted(split.copies.items(), key=lambda item: (-item[1], item[0]))
        placed = {value for (value, _), there in copies.items() if there}
        for wanted in (True, False):
            # First place each input somewhere, then add the other copies.
            for place, part in listed:
                if place in chosen or (wanted and place[0] in placed) or (not wanted and part <= WHOLE):
                    continue
                if self.fractions.fits({**chosen, place: True}):
                    chosen[place] = True
                    placed.add(place[0])
        if len(placed) < len({value for value, _ in self.fractions.copy}):
            return None
        return dict.fromkeys(self.fractions.copy, False) | chosen

    def _weigh(self, copies: Copies | None) -> None:
        """Share the load for some copies, and schedule it."""
        if copies is None:
            return
        bound, split = self.fractions.solve(copies)
        time = self.best.time
        if split is None or (time is not None and bound >= float(time) * (1 - SAME / 2)):
            return
        for found in (split, self.fractions.with_fewest_transfers(copies, bound)):
            for homes in () if found is None else self._candidates(found):
                self.best.consider_all(homes)

    def _candidates(self, split: Split) -> Iterator[list[list[int]]]:
        """Yield the most promising placements of the samples of a period."""
        found = dealt(self.model, split.share, self.samples)
        # If two loads are equal except for rounding, prefer fewer samples.
        loads = [(self._load(homes) / len(homes) * (1 + SAME * len(homes)), index) for index, homes in enumerate(found)]
        time = self.best.time
        for load, index in sorted(loads)[:2]:
            if time is None or load < float(time):
                yield found[index]

    def _load(self, homes: list[list[int]]) -> float:
        busy = [0.0] * len(self.model.machine.resources)
        for own in homes:
            busy = [one + other for one, other in zip(busy, self.model.loads(own), strict=True)]
        return max(busy)
