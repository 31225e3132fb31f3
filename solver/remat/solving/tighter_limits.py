"""Schedules found with less memory than there is: some heuristics find a worse one with more.

A list heuristic takes what fits. With less memory it takes another task or device, and may end earlier (an anomaly of
list scheduling: Graham 1969). It behaves alike at all limits from the peak of its schedule to the limit that it had:
what fitted then fits now, and what did not fit does not. Therefore the next limit at which it may find another schedule
is one byte below that peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from remat.errors import AlgorithmError
from remat.plugin.context import Context
from remat.plugin.problem import Problem
from remat.plugin.registry import Algorithm
from remat.plugin.selection import Candidate
from remat.solving.conclusion import conclude
from remat.solving.portfolio_answers import Answer
from remat.units import format_size

MOST_LIMITS = 6
"""Maximum number of smaller limits that are tried for each memory."""

Select = Callable[[Problem], Sequence[Candidate]]
"""The algorithms to run on a problem: with less memory, others may suit it."""

Ask = Callable[[Problem, Candidate], Answer | None]
"""Runs an algorithm on a problem with less memory."""

Failed = Callable[[Algorithm, AlgorithmError], None]
"""Logs an algorithm whose claims do not hold."""


def tightened(
    problem: Problem, answers: Sequence[Answer], select: Select, ask: Ask, failed: Failed, context: Context
) -> Iterator[Answer]:
    """Yield faster schedules than those known that algorithms find with less memory, as answers for the problem.

    Parameters
    ----------
    problem : Problem
    answers : sequence of Answer
    select : callable
    ask : callable
    failed : callable
    context : Context
        Ends the search.

    Notes
    -----
    One memory after the other is limited, those that the problem limits only. Claims for less memory hold for less
    memory: they are left out.
    """
    best = min((one.result.makespan for one in answers if one.result.makespan is not None), default=None)
    for memory in problem.machine.memories:
        if memory.capacity is None:
            continue
        limit, needs = memory.capacity, {one.candidate.key: _need(one, memory.name) for one in answers}
        for _ in range(MOST_LIMITS):
            limit = max((size for need in needs.values() for size in (need, need - 1) if size < limit), default=-1)
            if limit < 0 or context.stopped:
                break
            other = problem.with_capacities({memory.name: limit})
            for candidate in select(other):
                if needs.get(candidate.key, limit) < limit:
                    continue
                answer = ask(other, candidate)  # none, once the time is over
                needs[candidate.key] = _need(answer, memory.name)
                makespan = None if answer is None else answer.result.makespan
                if answer is not None and makespan is not None and (best is None or makespan < best):
                    try:
                        yield _for_all_memory(problem, answer, memory.name, limit)
                    except AlgorithmError as error:
                        failed(answer.solver, error)
                    else:
                        best = makespan


def _need(answer: Answer | None, memory: str) -> int:
    """Return the peak of an answer; -1 without a schedule: there is none with less memory either."""
    solved = answer is not None and answer.result.makespan is not None
    return dict(answer.result.peak_memory).get(memory, -1) if answer is not None and solved else -1


def _for_all_memory(problem: Problem, answer: Answer, memory: str, limit: int) -> Answer:
    """Return an answer for the problem with the schedule of one with less memory, without the claims of that."""
    result = answer.result
    note = f"{answer.solver.name} found this schedule with {memory} limited to {format_size(limit, problem.units)}"
    plain = replace(
        answer.proposal,
        steps=result.columns if answer.proposal.steps is not None else None,
        bounds=(),
        optimal_within=None,
        notes=(*answer.proposal.notes, note),
    )
    found = conclude(problem, answer.solver, plain, result.options, seed=result.seed, verified=result)
    return replace(answer, proposal=plain, result=found)
