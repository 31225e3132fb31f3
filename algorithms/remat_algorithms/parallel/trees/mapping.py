"""`all-to-all`, `proportional` and `memory-aware`: static mappings of a tree's nodes to groups of processors."""

from __future__ import annotations

from collections.abc import Sequence

from remat.plugin import Context, OptionError, Problem, Proposal
from remat_algorithms.parallel.trees.parallel_tree import ParallelTree
from remat_algorithms.parallel.trees.processor_shares import budgets, waves
from remat_algorithms.parallel.trees.sequential_peak import fitting
from remat_algorithms.parallel.trees.timed_steps import Plan, emit, follow, processors_of, room

ROUNDING = (
    "fractional processor shares are rounded: children with a share of at least 1 get separate processors, "
    "the others are packed on single processors"
)


def solve_all_to_all(problem: Problem, options: None, context: Context) -> Proposal:
    """Run every node on all processors, one node after another, in the best post-order.

    The peak is that of the sequential post-order. The makespan is the sum of w_i / min(P, max)^alpha. O(n log n).

    Takes instances of kind `tree`, with `parallel` if there are several processors. Returns this one schedule and
    claims its peak.

    Raises
    ------
    OptionError
        If there are several processors and nodes can use only one.
    """
    count = len(processors_of(problem))
    if count > 1 and problem.graph.parallel_max is None:
        raise OptionError(
            f"'all-to-all' puts all {count} processors on every node, and the nodes of this tree use one "
            "each; give the instance `parallel`, or use 'proportional'",
            argument="algorithm",
        )
    tree = ParallelTree.of(problem)
    plan = _one_by_one(tree, tree.postorder, count)
    static = problem.graph.static_memory if problem.machine.processors[0].memory == 0 else 0
    return Proposal(steps=emit(problem, tree, plan), peak=tree.peak[tree.root] + static)


def solve_proportional(problem: Problem, options: None, context: Context) -> Proposal:
    """Map subtrees to disjoint groups of processors, in proportion to their work.

    After Pothen & Sun 1993, "A mapping algorithm for parallel sparse Cholesky factorization". The root runs on all P
    processors. Each child gets p_i = p W_i / W of its parent's p processors, where W_i is the work of its subtree and W
    that of all siblings. `parallel.trees.processor_shares` describes the rounding. A node runs on as many of its
    subtree's processors as the instance's `parallel` allows, starting with the first. A subtree on one processor runs
    in the best post-order. The mapping ignores memory. O(n log n).

    Takes instances of kind `tree`. Claims nothing. Under a budget, steps wait until their bytes fit; if they never do,
    no schedule is returned.
    """
    tree = ParallelTree.of(problem)
    plan = _map_tree(tree, len(processors_of(problem)), None)
    return Proposal(steps=emit(problem, tree, plan), notes=(ROUNDING,))


def solve_memory_aware(problem: Problem, options: None, context: Context) -> Proposal:
    """Map proportionally where the memory allows it, and run siblings sequentially elsewhere.

    After Agullo et al. 2016, "Robust memory-aware mappings for parallel multifrontal factorizations", for one memory
    that all processors share. A subtree on q > 1 processors has a budget B, at least its post-order peak. Its children
    run at the same time, as in `proportional`, if their minimum needs (their post-order peaks) sum to at most B. The
    rest of B goes to the groups of several processors, in proportion to these needs.

    Otherwise the children run in waves, in the best post-order. Each wave has all q processors. It takes as many
    children as fit along with the outputs of earlier waves, at least one. If the budget is below the peak of the best
    post-order but at least the minimum peak of all traversals, all nodes run sequentially. O(n log n).

    Takes instances of kind `tree`. Stays within the budget whenever some schedule does; otherwise infeasible (see
    `fitting`).
    """
    tree = ParallelTree.of(problem)
    count = len(processors_of(problem))
    traversal = fitting(problem, tree)
    if isinstance(traversal, Proposal):
        return traversal
    if traversal.order is tree.postorder:
        return Proposal(steps=emit(problem, tree, _map_tree(tree, count, room(problem))), notes=(ROUNDING,))
    note = "no post-order fits the budget: all nodes run one after the other, in Liu's order"
    return Proposal(steps=emit(problem, tree, _one_by_one(tree, traversal.order, count)), notes=(note,))


def _one_by_one(tree: ParallelTree, order: Sequence[int], processors: int) -> Plan:
    """Plan one node after another, each on as many processors as it can use."""
    # All of them use the first processor, which keeps them in order.
    return follow(tree, order, [range(tree.width(node, processors)) for node in range(len(tree))], processors)


def _map_tree(tree: ParallelTree, processors: int, budget: int | None) -> Plan:
    """Map all nodes top-down and compute their times; a budget of None means unlimited.

    A subtree is (root, first processor, number of processors, budget, gate). The gate of a wave opens when the previous
    wave has ended. On one processor, no decision is needed.
    """
    on: list[Sequence[int]] = [()] * len(tree)
    gates = [-1] * len(tree)
    gate_nodes: list[list[int]] = []
    backwards = []
    stack = [(tree.root, 0, processors, budget, -1)]
    while stack:
        node, first, count, bound, gate = stack.pop()
        on[node] = range(first, first + tree.width(node, count))
        gates[node] = gate
        backwards.append(node)
        below = tree.children[node]
        if count == 1:
            stack.extend([(child, first, 1, None, gate) for child in below])
            continue
        held = 0
        previous: list[int] = []
        for wave in waves(tree, below, count, bound):
            if previous:
                gate_nodes.append(previous)
                gate = len(gate_nodes) - 1
            for group, shares in zip(wave, budgets(tree, wave, None if bound is None else bound - held), strict=True):
                place = first + group.first
                for child, share in zip(group.children, shares, strict=True):
                    stack.append((child, place, group.processors, share, gate))
            previous = [child for group in wave for child in group.children]
            held += sum([tree.size[child] for child in previous])
    return follow(tree, backwards[::-1], on, processors, gates, gate_nodes)
