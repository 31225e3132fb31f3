"""Initial schedules for `offload-exact`: results of fast heuristics that belong to the searched class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from remat.plugin import WHOLE, Algorithm, Context, Problem, StepKind, Steps
from remat_algorithms.kit.delegation import asked
from remat_algorithms.kit.makespan import timed
from remat_algorithms.offload.exact.decision_space import Effort
from remat_algorithms.offload.exact.steps import Timed

SEARCHING = ("swapadvisor", "offload-dp", "pofo")
"""Algorithms that fill tables or search for long, and are therefore not run."""

FOR_PARAMETERS = ("weight-offload", "zero-offload", "l2l")
PROGRAMS = ("poet", "offload-exact")


def starts(problem: Problem, order: Sequence[int], effort: Effort, context: Context) -> Iterator[Timed]:
    """Yield placed schedules of the class, each from a different heuristic.

    Parameters
    ----------
    problem : Problem
    order : sequence of int
        All tasks in the order that is kept if there is no recomputation.
    effort : Effort
        The limits of the class.
    context : Context
    """
    for entry in _heuristics():
        if context.stopped:
            return
        if not entry.accepts(problem.kind):
            continue
        proposal = asked(entry, problem, context, share=0.05)
        if proposal is None or proposal.steps is None or not belongs(problem, proposal.steps, order, effort):
            continue
        placed = timed(problem, proposal.steps)
        if placed is not None:
            yield Timed(*placed)


def belongs(problem: Problem, steps: Steps, order: Sequence[int], effort: Effort) -> bool:
    """Whether the copies are whole and few enough, and the runs follow the order or are few enough."""
    if steps.on is not None or (steps.amount[steps.kind == StepKind.COPY] != WHOLE).any():
        return False
    copies = steps.kind == StepKind.COPY
    ways = zip(steps.item[copies].tolist(), steps.source[copies].tolist(), steps.target[copies].tolist(), strict=True)
    if max(Counter(ways).values(), default=0) > effort.copies:
        return False
    runs = steps.runs.tolist()
    if effort.runs:
        return max(Counter(runs).values(), default=0) <= effort.runs
    place_of = {task: place for place, task in enumerate(order)}
    places = [place_of[task] for task in runs]
    made = [value for task in runs for value in problem.graph.writes[task].tolist()]
    return sorted(set(places)) == places and len(set(made)) == len(made)


def _heuristics() -> list[Algorithm]:
    from remat_algorithms.offload.catalogue import ALGORITHMS

    others = (*SEARCHING, *FOR_PARAMETERS, *PROGRAMS)
    return [entry for entry in ALGORITHMS if entry.guarantee == "heuristic" and entry.name not in others]
