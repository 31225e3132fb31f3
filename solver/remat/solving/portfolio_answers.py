"""Answers of the algorithms of a portfolio, and notes on what else the best one might gain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from remat.messages import listing
from remat.plugin import registry
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget, Proposal, Status, Termination
from remat.plugin.selection import Candidate
from remat.plugin.topological_order import in_listed_order
from remat.solving.minimum_budget import smallest_named
from remat.solving.result import Result


@dataclass(frozen=True, eq=False)  # one is not another one; their arrays cannot be compared
class Answer:
    """Answer of one algorithm: its proposal, with scopes for this machine, and its conclusion."""

    solver: registry.Algorithm
    proposal: Proposal
    result: Result
    candidate: Candidate
    seconds: float
    continues: bool  # from the best known schedule, where it runs again

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sort key of answers: a faster schedule (for a stream, a shorter period), then a stronger proof."""
        proof = {ALL_SCHEDULES: 0, None: 2}.get(self.result.optimal_within, 1)
        report = self.result.report
        length = 0 if report is None else report.makespan
        return (self.result.makespan is None, self.result.makespan or 0, length, proof)


def remarks(problem: Problem, answers: Sequence[Answer], best: Answer, order: str) -> Iterator[str]:
    """Yield notes on the gain of another order, algorithms without enough time, and unused parts of the machine."""
    yield from _worth(problem, answers, best, order)
    yield from _late(answers, best)
    machine, report = problem.machine, best.result.report
    assert report is not None
    if machine.links and not any(answer.solver.several_memories for answer in answers):
        yield "none of the algorithms that ran uses the links of this machine"
    if len(machine.processors) > 1:
        idle = [name.name for name in machine.processors if not report.busy.get(name.name)]
        if idle:
            verb = "is" if len(idle) == 1 else "are"
            yield f"of {len(machine.processors)} processors, {len(idle)} {verb} not used by this schedule"


def _late(answers: Sequence[Answer], best: Answer) -> Iterator[str]:
    """Name the algorithms that the time limit stopped before their first schedule: they may do better."""
    ended = {answer.solver.name: answer.proposal.termination for answer in answers}
    solved = {one.solver.name for one in answers if one.result.makespan is not None or one.result.scope}
    late = [name for name, how in ended.items() if how is Termination.TIME_LIMIT and name not in solved]
    if late and best.result.status is not Status.OPTIMAL:
        who = "it" if len(late) == 1 else "they"
        yield f"the time limit stopped {listing(late)} before a first schedule; with more time {who} may do better"


def _worth(problem: Problem, answers: Sequence[Answer], best: Answer, order: str) -> Iterator[str]:
    """Compare the best schedule with the best one of the other kind of order, where both are known."""
    if problem.kind != "dag" or problem.instance.is_stream:
        return
    solved = [answer for answer in answers if answer.result.columns is not None]
    graph = problem.graph
    listed = [a for a in solved if a.result.columns is not None and in_listed_order(graph, a.result.columns)]
    mine = best.result.makespan
    assert mine is not None
    if order == "listed":
        other = min((answer.result.makespan or 0 for answer in solved), default=mine)
        if other < mine:
            yield f"a free order of the tasks is worth {_share(mine, other)}: option order=free"
    elif best not in listed:
        if not listed:
            yield "the tasks run in another order than listed; option order=listed keeps that one"
            return
        other = min(answer.result.makespan or 0 for answer in listed)
        worth = _share(other, mine)
        yield f"the tasks run in another order than listed, which saves {worth}; option order=listed keeps that one"


def _share(more: float, less: float) -> str:
    return f"{100 * (more - less) / less:.3g} %" if less else "time"


def longest(every: Sequence[Answer], answers: Sequence[Answer]) -> Termination:
    """Return why a search ended: the last limit that stopped an algorithm, otherwise the reasons of `answers`."""
    said = {answer.candidate.key: answer.result.termination for answer in every}.values()
    for limit in (Termination.TIME_LIMIT, Termination.PATIENCE):
        if limit in said:
            return limit
    return next((answer.result.termination for answer in reversed(answers)), Termination.COMPLETED)


def refuted(problem: Problem, answers: Sequence[Answer]) -> tuple[str | None, LeastBudget | None]:
    """Return the class without a schedule, and the minimum budget at which it has one."""
    if problem.exceeded is not None:
        return None, smallest_named([answer.result.least_budget for answer in answers])
    without = [answer for answer in answers if answer.result.scope is not None]
    proved = [answer for answer in without if answer.result.scope == ALL_SCHEDULES]
    least = smallest_named([answer.result.least_budget for answer in proved or answers])
    if not without:
        return None, least
    # Among several classes, that of the algorithm that searches longest, and last.
    return (proved or without)[-1].result.scope, least
