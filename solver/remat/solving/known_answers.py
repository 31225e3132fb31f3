"""Cache of proved answers that also hold for other capacities."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Proposal, Status, Termination
from remat.plugin.registry import Algorithm
from remat.solving.result import Result
from remat.units import Number

Capacities = tuple[int | None, ...]


@dataclass(frozen=True)
class Answer:
    """An algorithm's proposal for some capacities, and its conclusion.

    Attributes
    ----------
    capacities : tuple of int or None
        Capacities of all memories; None is unbounded.
    peaks : tuple of int
        Verified; empty without a schedule.
    makespan : int or float
        Verified; 0 without a schedule.
    """

    capacities: Capacities
    proposal: Proposal
    result: Result
    peaks: tuple[int, ...]
    makespan: Number


@dataclass
class Known:
    """The proved answers of one algorithm, on one machine, for some capacities.

    Notes
    -----
    An optimal schedule of a class stays optimal for smaller memories if it still fits. A schedule that is as fast as an
    optimal schedule for larger memories is optimal too. If no schedule of a class fits, none fits smaller memories.
    Threads share immutable tuples, which are replaced; an answer that is lost in a race is computed later.

    Attributes
    ----------
    answers : tuple of Answer
        Answers with a schedule, the fastest first.
    refusals : tuple of Answer
        Answers without a schedule.
    """

    solver: Algorithm
    answers: tuple[Answer, ...] = field(default=())
    refusals: tuple[Answer, ...] = field(default=())

    def note(self, problem: Problem, proposal: Proposal, result: Result) -> None:
        """Store an answer if its proof holds for other capacities."""
        if result.termination is not Termination.COMPLETED or not self._keeps(proposal, result):
            return
        if result.report is None:
            refusal = Answer(capacities_of(problem), proposal, result, (), 0)
            self.refusals = (*(known for known in self.refusals if not _says_no_more(known, refusal)), refusal)
            return
        peaks = tuple(result.peak_memory[memory.name] for memory in problem.machine.memories)
        answer = Answer(capacities_of(problem), proposal, result, peaks, result.makespan or 0)
        others = [known for known in self.answers if not _says_no_more(known, answer)]
        insort(others, answer, key=_makespan)
        self.answers = tuple(others)

    def _keeps(self, proposal: Proposal, result: Result) -> bool:
        exact = self.solver.guarantee == "exact"
        if result.report is not None:
            plain = proposal.steps is not None and proposal.period is None
            proved = result.status is Status.OPTIMAL or (exact and result.optimal_within is not None)
            return plain and (proved or self.solver.guarantee == "strategy")
        empty = proposal.steps is None and proposal.pattern is None and proposal.orders is None
        least = proposal.least
        return empty and result.scope is not None and exact and (least is None or least.sufficient)

    def verified(self, proposal: Proposal) -> Result | None:
        """Return the earlier result with the same steps; None if there is none."""
        same = (answer.result for answer in self.answers if answer.proposal.steps is proposal.steps)
        return next(same, None)

    def at(self, problem: Problem) -> tuple[Proposal, Result | None] | None:
        """Return the known proposal for a problem, and its earlier result; None if none is known.

        Without a schedule there is no result.
        """
        capacities = capacities_of(problem)
        for refusal in self.refusals:
            if _refuses(refusal, capacities):
                return refusal.proposal, None
        best = next((answer for answer in self.answers if _fits(answer.peaks, capacities)), None)
        if best is None or not self._proved(best, problem, capacities):
            return None
        return replace(best.proposal, peak=None), best.result

    def _proved(self, best: Answer, problem: Problem, capacities: Capacities) -> bool:
        """Whether no schedule of the class is faster on these memories."""
        if self.solver.guarantee == "strategy":
            return True
        within = best.result.optimal_within
        if within == ALL_SCHEDULES and best.makespan <= problem.least_objective:
            return True
        return any(
            answer.makespan == best.makespan
            and answer.result.optimal_within == within
            and _no_more(capacities, answer.capacities)
            for answer in self.answers
        )


def _makespan(answer: Answer) -> Number:
    return answer.makespan


def capacities_of(problem: Problem) -> Capacities:
    """Return the capacities of all memories."""
    return tuple(memory.capacity for memory in problem.machine.memories)


def _says_no_more(one: Answer, other: Answer) -> bool:
    """Whether another answer covers all capacities of this one."""
    return one.peaks == other.peaks and one.makespan == other.makespan and _no_more(one.capacities, other.capacities)


def _fits(peaks: Sequence[int], capacities: Capacities) -> bool:
    return not any(capacity is not None and peak > capacity for peak, capacity in zip(peaks, capacities, strict=True))


def _no_more(less: Capacities, more: Capacities) -> bool:
    return all(
        larger is None or (smaller is not None and smaller <= larger)
        for smaller, larger in zip(less, more, strict=True)
    )


def _refuses(answer: Answer, capacities: Capacities) -> bool:
    """Whether these memories are too small: larger ones are, or one is below its minimum."""
    if _no_more(capacities, answer.capacities):
        return True
    least = answer.proposal.least
    if least is None:
        return False
    own = capacities[least.memory]
    others = (
        pair for place, pair in enumerate(zip(capacities, answer.capacities, strict=True)) if place != least.memory
    )
    return own is not None and own < least.size and all(one == other for one, other in others)
