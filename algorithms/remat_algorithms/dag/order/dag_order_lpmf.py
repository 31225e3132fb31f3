"""`dag-order-lpmf`: depth first from the ends, the branch of largest peak memory first."""

from __future__ import annotations

from remat.plugin import Context, Problem, Proposal
from remat_algorithms.dag.order.dag_order_greedy import proved_bound
from remat_algorithms.dag.order.model import OrderModel, order_model
from remat_algorithms.dag.order.order_proposal import propose


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Order a task graph by largest peak memory first.

    This is Liu's rule for post-orders (1986), applied to graphs. Each task gets the peak P and the residue f of the
    sub-graph of its ancestors, treated as a tree, so each value counts once for each of its readers:

        P_t = max( max_k (f_1 + ... + f_{k-1} + P_k),  f_1 + ... + f_c + hill_t ),

    over its predecessors by non-increasing P - f. A depth-first traversal from the ends then visits the predecessors of
    each task in that order. On an in-tree it is Liu's best post-order. The name and the idea come from the literature
    on series-parallel graphs; the rule is ours. O(edges log edges).

    Accepts instances of any kind. Claims makespan and peak; unknown if the order does not fit and no bound proves that
    no order does.

    Raises
    ------
    OptionError
        If a value has several origins.
    """
    model = order_model(problem, "dag-order-lpmf")
    bound, setting = proved_bound(model)
    return propose(problem, model, largest_peak_first(model), bound=bound, setting=setting)


def largest_peak_first(model: OrderModel) -> list[int]:
    """Return the order of `solve`."""
    n = len(model)
    peak, residue = [0] * n, [0] * n
    branches: list[list[int]] = []
    inputs = [sum(model.size[v] for v in model.reads[t] if model.producer[v] < 0) for t in range(n)]
    for task in range(n):
        below = sorted(model.predecessors[task], key=lambda other: residue[other] - peak[other])
        held, highest = 0, 0
        for other in below:
            highest = max(highest, held + peak[other])
            held += residue[other]
        added = model.written[task]
        if model.in_place[task]:
            added = max(0, added - sum(model.size[value] for value in model.reads[task]))
        peak[task] = max(highest, held + inputs[task] + added + model.workspace[task])
        residue[task] = model.written[task] - model.unread[task]
        branches.append(below)
    ends = sorted((t for t in range(n) if not model.successors[t]), key=lambda t: residue[t] - peak[t])
    order: list[int] = []
    seen = [False] * n
    stack = [(end, 0) for end in reversed(ends)]
    while stack:
        task, position = stack.pop()
        if position == 0:
            if seen[task]:
                continue
            seen[task] = True
        below = branches[task]
        while position < len(below) and seen[below[position]]:
            position += 1
        if position < len(below):
            stack.append((task, position + 1))
            stack.append((below[position], 0))
        else:
            order.append(task)
    return order
