"""A plug-in for remat: its catalogue is metadata only, the solver is imported when somebody uses it."""

from remat.plugin import Algorithm

catalogue = (
    Algorithm(
        name="random-order",
        solver="remat_random_order.solver:solve",
        options="remat_random_order.solver:RandomOrderOptions",
        kinds=("dag",),
        summary="runs each required task once, in the best of several random topological orders",
        guarantee="heuristic",
        complexity="O(tries * size)",
        needs_slack="an output in place of an input counts in addition",
        reference="-",
        anytime=True,
    ),
)
