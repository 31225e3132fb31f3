"""Every schedule of dag-auto's class of a tiny graph: all sets of reruns, each placed by the core."""

import itertools

from remat.placement import Unplaceable, place
from remat_algorithms.dag.keep_all import reference_order
from remat_algorithms.emit import run_in_order


def best_of_class(problem):
    """Return the least makespan over all sets of (stage, earlier task to run again), or None."""
    graph = problem.graph
    order = reference_order(graph, problem.needed.once).tolist()
    allowed = [place for place, task in enumerate(order) if graph.recomputable[task] and not graph.once[task]]
    pairs = [(stage, again) for stage in range(1, len(order) + 1) for again in allowed if again < stage]
    first = [(stage, stage) for stage in range(len(order))]
    found = []
    for count in range(len(pairs) + 1):
        for some in itertools.combinations(pairs, count):
            tasks = [order[again] for _, again in sorted([*first, *some])]
            steps = run_in_order(graph, problem.machine, tasks)
            if not isinstance(place(graph, problem.machine, steps), Unplaceable):
                found.append(sum(graph.time[tasks].tolist()))
    return min(found, default=None)
