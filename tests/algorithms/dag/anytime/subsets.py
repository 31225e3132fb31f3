"""Every schedule of dag-auto's class of a tiny graph: all sets of reruns, each placed by the core."""

import itertools

from remat.placement import Unplaceable, place
from remat.plugin.emit import run_in_order
from remat.plugin.topological_order import reference_order
from remat.schedule.steps import StepBuilder, concatenate


def best_of_class(problem):
    """Return the minimum makespan over all sets of (stage, earlier task to recompute), or None."""
    graph = problem.graph
    order = reference_order(graph, problem.needed.once).tolist()
    allowed = [place for place, task in enumerate(order) if graph.recomputable[task] and not graph.once[task]]
    pairs = [(stage, again) for stage in range(1, len(order) + 1) for again in allowed if again < stage]
    first = [(stage, stage) for stage in range(len(order))]
    idle = without_idle_inputs(graph, order)
    found = []
    for count in range(len(pairs) + 1):
        for some in itertools.combinations(pairs, count):
            tasks = [order[again] for _, again in sorted([*first, *some])]
            steps = concatenate([idle, run_in_order(graph, problem.machine, tasks)])
            if not isinstance(place(graph, problem.machine, steps), Unplaceable):
                found.append(sum(graph.time[tasks].tolist()))
    return min(found, default=None)


def without_idle_inputs(graph, order):
    """Return a step that frees, before anything runs, the inputs that no task reads."""
    kept = {*graph.pinned, *(place.value for place in graph.outputs)}
    kept.update(value for task in order for value in graph.reads[task].tolist())
    builder = StepBuilder()
    if values := [place.value for place in graph.inputs if place.value not in kept]:
        builder.drop(values)
    return builder.build()
