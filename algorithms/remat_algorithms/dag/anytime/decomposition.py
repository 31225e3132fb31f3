"""Decomposition at separators: solve each kind of part once, concatenate the schedules, and add the bounds.

Recomputations of a part count in the part. Consider the fullest moment of a part, in any order of the whole graph.
The values that its tasks have computed and that its other tasks still need are resident then, or runs of the part's
tasks recompute them. The parts' bounds therefore add up, both those for the listed order and those for all orders.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from remat.placement import Unplaceable, place
from remat.plugin import (
    ALL_SCHEDULES,
    Bound,
    Context,
    Number,
    Progress,
    Proposal,
    Steps,
    Termination,
    useful_runs,
)
from remat_algorithms.dag.anytime.local_search.reordering import REFERENCE
from remat_algorithms.dag.anytime.order_attempt import NEAR, Attempt
from remat_algorithms.dag.anytime.separators import Parts
from remat_algorithms.dag.anytime.shared_incumbent import Race
from remat_algorithms.dag.moments.integer_facts import Facts
from remat_algorithms.dag.moments.peak import Peak
from remat_algorithms.dag.plans.model import stage_model
from remat_algorithms.dag.steps import steps_of
from remat_algorithms.kit.integral_bounds import raised

OFTEN = 1.0
"""Seconds between two reports of joined schedules."""

NAME = "dag-auto"


@dataclass
class Parted:
    """The state of a solve in parts.

    Attributes
    ----------
    parts : Parts
    context : Context
    patience : float
    iterations : int or None
        Rounds of ruin and recreate for each kind.
    attempts : list of Attempt
        One for each kind.
    listed, overall : list of Fraction
        For each kind, a lower bound on the recomputation time of one part: in the listed order, and in any order.
    """

    parts: Parts
    context: Context
    patience: float
    iterations: int | None = None
    attempts: list[Attempt] = field(default_factory=list)
    listed: list[Fraction] = field(default_factory=list)
    overall: list[Fraction] = field(default_factory=list)
    _peaks: list[Peak] = field(default_factory=list)
    _told: float = -math.inf
    _answer: tuple[Steps, Number] | None = None

    def begin(self) -> bool:
        """Search for a first schedule; return whether one was found."""
        for kind in range(len(self.parts.first)):
            problem = self.parts.problem_of(kind, bounding=False)
            model = stage_model(problem)
            context = self.context.aside()
            context.gap = self.context.gap
            assert problem.budget is not None
            race = Race(problem, model, context, problem.budget, self.patience)
            attempt = Attempt(race, self.iterations)
            self.attempts.append(attempt)
            attempt.begin()
            if race.best is None:
                attempt.build()
            if race.best is None:
                return False
        return self._join(last=True)

    def prove(self, near: float) -> None:
        """Bound the whole, kind by kind, up to the share `near` of the time of all tasks."""
        listed, overall = list[Fraction](), list[Fraction]()
        for kind in range(len(self.parts.first)):
            if len(self._peaks) == kind:
                problem = self.parts.problem_of(kind, bounding=True)
                facts = Facts.of(problem, np.arange(len(problem.graph.tasks), dtype=np.int64))
                assert problem.budget is not None
                self._peaks.append(Peak(facts, problem.budget, self.context.seed, lambda: self.context.stopped))
                if self._peaks[kind].at is not None:
                    self._peaks[kind].relax()
            peak = self._peaks[kind]
            bounds = 0.0, 0.0
            if peak.at is not None:
                answer = peak.solve(near)
                bounds = answer.bound, peak.for_all(answer, near)
            # A schedule is known, so an infinite bound cannot be right: ignore it.
            units = [Fraction(0) if bound == math.inf else Fraction(bound) * peak.facts.unit for bound in bounds]
            listed.append(units[0])
            overall.append(units[1])
        self.listed = [max(pair) for pair in zip(listed, self.listed or listed, strict=True)]
        self.overall = [max(pair) for pair in zip(overall, self.overall or overall, strict=True)]
        self.context.report(bound=self.bound(self.overall), scope=ALL_SCHEDULES)

    def bound(self, kinds: list[Fraction]) -> Number:
        """Return a bound on the makespan of the whole, from the recomputation times of the kinds."""
        problem = self.parts.problem
        counts = self.parts.counts
        more = sum((count * each for count, each in zip(counts, kinds, strict=False)), Fraction(0))
        value = raised(problem, Fraction(problem.no_recompute_time) + more)
        return value if self._answer is None else min(value, self._answer[1])

    def finish(self) -> Termination:
        """Improve kind by kind, the one with the most time first, with a share of the time for each."""
        counts = self.parts.counts
        weights = [
            count * attempt.race.model.once_time * attempt.race.model.time_unit
            for count, attempt in zip(counts, self.attempts, strict=True)
        ]
        order = sorted(range(len(counts)), key=lambda kind: -weights[kind])
        for number, kind in enumerate(order):
            if self.context.stopped:
                break
            race = self.attempts[kind].race
            left = sum(weights[other] for other in order[number:]) or 1.0
            if self.context.deadline is not None:
                seconds = self.context.deadline - time.monotonic()
                race.context.deadline = time.monotonic() + seconds * weights[kind] / left
            race.context.listener = self._told_of
            self.attempts[kind].prove()
            self.attempts[kind].finish()
            self._join(last=True)
        if not self.context.stopped:
            self.prove(0.0)
        return self.context.termination

    def _told_of(self, _: Progress) -> None:
        self._join(last=False)

    def _join(self, *, last: bool) -> bool:
        """Concatenate the best plans of the kinds and report the schedule; at intervals, or always if `last`."""
        if not last and time.monotonic() - self._told < OFTEN:
            return False
        runs = []
        for attempt in self.attempts:
            race, best = attempt.race, attempt.race.best
            if best is None:
                return False
            runs.append(race.model.runs_of(best.item, best.full))
        problem = self.parts.problem
        tasks = useful_runs(problem.graph, self.parts.joined(runs))
        makespan: Number = problem.graph.time[np.array(tasks, dtype=np.int64)].sum().item()
        if self._answer is not None and makespan >= self._answer[1]:
            return True
        steps = steps_of(problem, tasks)
        if isinstance(place(problem.graph, problem.machine, steps), Unplaceable):
            return False
        self._answer = steps, makespan
        self._told = time.monotonic()
        self.context.report(steps, makespan=makespan)
        return True

    def conclude(self, termination: Termination) -> Proposal:
        """Return the final proposal."""
        assert self._answer is not None
        steps, makespan = self._answer
        listed, overall = self.bound(self.listed), self.bound(self.overall)
        exact = isinstance(makespan, int)
        within = ALL_SCHEDULES if exact and overall == makespan else REFERENCE if exact and listed == makespan else None
        bounds = [Bound(overall, ALL_SCHEDULES, NAME)]
        if listed > overall:
            bounds.append(Bound(listed, REFERENCE, NAME))
        return Proposal(
            steps=steps, makespan=makespan, bounds=tuple(bounds), optimal_within=within, termination=termination
        )


def solve_in_parts(parts: Parts, context: Context, patience: float, iterations: int | None) -> Proposal | None:
    """Solve a graph in parts; None if some part has no schedule, or the joined schedule does not fit."""
    parted = Parted(parts, context, patience, iterations)
    if not parted.begin():
        return None
    parted.prove(NEAR)
    return parted.conclude(parted.finish())
