"""What a portfolio has not tried, but would try within a time limit that the user sets."""

from __future__ import annotations

from collections.abc import Iterable, Set

from remat.plugin import selection
from remat.plugin.problem import Problem
from remat.plugin.proposal import Untried
from remat.plugin.selection import Candidate
from remat.solving.portfolio_answers import Answer

MOST_ASKED_OTHERS = 50_000
"""Most tasks for which algorithms for other instances are asked in the time that is left."""

GROWTH = 4
"""Factor between the work of a round in which the best searchers run deeper, and the next one."""

FACTORS = tuple(GROWTH**k for k in (1, 2, 3))
"""Multiples of their work in the first rounds within a time limit."""


def untried(problem: Problem, asked: Set[str], searchers: Iterable[Answer]) -> Untried:
    """Return what a time limit would add.

    Parameters
    ----------
    problem : Problem
    asked : set of str
        The keys of all candidates that have run, or have refused the problem.
    searchers : iterable of Answer
        The best answers, of algorithms whose work is limited.
    """
    chosen = selection.candidates(problem, timed=True)
    known = chosen.every if len(problem.graph.tasks) <= MOST_ASKED_OTHERS else chosen.asked
    longer = [one.candidate.algorithm.name for one in searchers if _has_more_work(one.candidate, asked)]
    new = [one.algorithm.name for one in known if one.key not in asked]
    return Untried(tuple(dict.fromkeys(longer)), tuple(name for name in dict.fromkeys(new) if name not in longer))


def _has_more_work(candidate: Candidate, asked: Set[str]) -> bool:
    """Whether a multiple of its work is more than it has done."""
    more = [candidate.with_work(factor) for factor in FACTORS]
    return any(one.work_limits != candidate.work_limits and one.key not in asked for one in more)
