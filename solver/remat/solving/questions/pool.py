"""Pool of the verified answers and proofs of a question, at many budgets for one memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from remat.plugin import registry
from remat.plugin.problem import Problem, budgeted_memories
from remat.plugin.proposal import ALL_SCHEDULES, Bound, LeastBudget, Proposal, Status
from remat.solving.conclusion import conclude, holds
from remat.solving.minimum_budget import largest_peak
from remat.solving.result import Result


def with_budget(problem: Problem, memory: int, budget: int | None) -> Problem:
    """Return the problem with another capacity of one memory (by index); for a device memory, of all devices."""
    memories = budgeted_memories(problem.instance, problem.machine, memory)
    return problem.with_capacities({problem.machine.memories[index].name: budget for index in memories})


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A verified answer at a budget, and its proposal.

    `asked` is the budget that the algorithm received; None for a breakpoint, or without a limit. `allowed` is the time
    limit of the solve in seconds; None without one.
    """

    memory: int
    asked: int | None
    solver: registry.Algorithm
    problem: Problem
    proposal: Proposal
    result: Result
    allowed: float | None = None

    @property
    def budget(self) -> int | None:
        """The capacity of the budgeted memory."""
        return self.problem.machine.memories[self.memory].capacity

    @property
    def peak(self) -> int | None:
        """The verified peak of that memory, or the largest of devices with one budget; None without a schedule."""
        return largest_peak(self.result, self.memory)

    @property
    def least(self) -> LeastBudget | None:
        """The minimum budget that the answer names for that memory; None if it names none."""
        least, problem = self.result.least_budget, self.problem
        own = budgeted_memories(problem.instance, problem.machine, self.memory)
        return least if least is not None and least.memory in own else None

    @property
    def size(self) -> float:
        """The budget; infinite if there is none."""
        return math.inf if self.budget is None else self.budget

    @property
    def starts(self) -> bool:
        """Whether other solves can start from the schedule: it is no pattern of a stream."""
        return self.result.pattern is None and self.result.steady is None

    @property
    def solved(self) -> bool:
        """Whether there is a schedule."""
        return self.result.status in (Status.OPTIMAL, Status.FEASIBLE)

    def at_peak(self) -> Answered:
        """Return the same schedule on a machine with exactly its peak as capacity.

        Proofs for the larger budget (bounds, optimality) also hold for the smaller one.
        """
        peak = self.peak
        return self if peak is None or peak == self.budget else self.at(peak)

    def at(self, budget: int | None, bounds: Sequence[Bound] = (), *, claims: bool = True) -> Answered:
        """Return the same schedule on a machine with another budget, which it must fit.

        `bounds` hold for that budget. Proofs for a larger budget hold for a smaller one; `claims` selects
        whether to keep them.
        """
        problem = with_budget(self.problem, self.memory, budget)
        proposal = replace(self.proposal, steps=self.result.columns if self.proposal.steps is not None else None)
        if not claims:
            proposal = replace(proposal, bounds=(), optimal_within=None)
        proposal = replace(proposal, bounds=(*proposal.bounds, *bounds))
        result = conclude(
            problem,
            self.solver,
            proposal,
            self.result.options,
            seed=self.result.seed,
            solve_seconds=self.result.solve_seconds,
            verified=self.result,
        )
        return replace(self, problem=problem, proposal=proposal, result=result)


class Pool:
    """Best known schedules and bounds of a question, for every budget.

    A schedule with peak p answers every budget of at least p. A bound holds for the budget of its proof and for all
    smaller ones.

    Attributes
    ----------
    front : list of Answered
        Pareto-optimal schedules by ascending peak: each is faster than all with at most its peak.
    answers : list of Answered
        All answers, in the order in which they came.
    refuted : float
        The largest budget that is proved too small for all schedules; -1 if there is none.
    """

    def __init__(self) -> None:
        self.front: list[Answered] = []
        self.answers: list[Answered] = []
        self.refuted: float = -1

    def note(self, answer: Answered) -> None:
        """Record an answer."""
        self.answers.append(answer)
        if answer.solved:
            self._enter(answer)
            return
        result = answer.result
        if result.scope == ALL_SCHEDULES:
            self.refuted = max(self.refuted, answer.size)
        least = answer.least
        if least is not None and least.scope == ALL_SCHEDULES:
            self.refuted = max(self.refuted, least.size - 1)

    def _enter(self, answer: Answered) -> None:
        if any(not _faster(answer, known) for known in self.front if (known.peak or 0) <= (answer.peak or 0)):
            return
        kept = [known for known in self.front if (known.peak or 0) < (answer.peak or 0) or _faster(known, answer)]
        self.front = sorted([*kept, answer], key=lambda known: known.peak or 0)

    def fastest(self, budget: float | None) -> Answered | None:
        """Return the fastest schedule that fits a budget."""
        fitting = [known for known in self.front if budget is None or (known.peak or 0) <= budget]
        return fitting[-1] if fitting else None

    def longest(self, budget: int, solver: registry.Algorithm) -> Answered | None:
        """Return the answer of an algorithm, or form of the portfolio, that had the most time at a budget."""
        own = [one for one in self.answers if one.asked == budget and one.solver == solver and one.allowed is not None]
        return max(own, key=lambda one: one.allowed or 0.0, default=None)

    def next_above(self, budget: float | None) -> Answered | None:
        """Return the schedule with the smallest peak above a budget."""
        return next((known for known in self.front if budget is not None and (known.peak or 0) > budget), None)

    @property
    def smallest(self) -> Answered | None:
        """The schedule with the smallest peak."""
        return self.front[0] if self.front else None

    def bound(self, budget: float | None) -> Bound | None:
        """Return the best bound over all schedules at a budget."""
        size = math.inf if budget is None else budget
        proved = [bound for known in self.answers if known.size >= size for bound in known.result.bounds]
        whole = [bound for bound in proved if bound.scope == ALL_SCHEDULES]
        return max(whole, key=lambda bound: bound.value, default=None)

    def gap(self, budget: float | None) -> float | None:
        """Return the distance of the fastest schedule to the best bound, as a share; None without a schedule."""
        best, bound = self.fastest(budget), self.bound(budget)
        if best is None or bound is None or best.result.makespan is None:
            return None
        makespan = best.result.makespan
        return max(0.0, (makespan - bound.value) / makespan) if makespan else 0.0

    def best(self, budget: int | None) -> Answered | None:
        """Return the fastest schedule that fits a budget, as an answer at that budget with the best bound."""
        found, bound = self.fastest(budget), self.bound(budget)
        if found is None:
            return None
        bound = bound if bound is not None and holds(bound, found.result) else None
        size = math.inf if budget is None else budget
        within = found.result.optimal_within
        # Optimality in a class holds if it was proved for this budget or a larger one.
        kept = found.size >= size or any(
            known.size >= size
            and known.result.optimal_within == within
            and known.result.makespan == found.result.makespan
            for known in self.answers
        )
        if found.size == size and bound is None:
            return found
        return found.at(budget, () if bound is None else (bound,), claims=kept)


def _faster(one: Answered, other: Answered) -> bool:
    assert one.result.makespan is not None
    assert other.result.makespan is not None
    return one.result.makespan < other.result.makespan
