"""`par-inner-first` and `par-deepest-first`: list scheduling of trees that does not look at the memory.

After Marchal, Sinnen and Vivien 2013, "Scheduling tree-shaped task graphs to minimize memory and makespan".
"""

from __future__ import annotations

from remat.plugin import Context, Problem, Proposal
from remat_algorithms.parallel.trees.parallel_tree import ParallelTree
from remat_algorithms.parallel.trees.priority_list import ChildrenFirst, list_schedule
from remat_algorithms.parallel.trees.timed_steps import emit, processors_of


def solve_inner_first(problem: Problem, options: None, context: Context) -> Proposal:
    """Emulate a post-order in parallel: ready inner nodes before leaves, both in the order of the best post-order.

    The paper leaves the order among inner nodes open. At most (2 - 1/P) times the makespan of any schedule of
    one-processor tasks; the peak has no bound (a leaf starts whenever a processor would idle). O(n log n).

    Takes instances of kind `tree`. Claims nothing. Under a budget, steps wait until their bytes fit; if they never do,
    nothing is found.
    """
    tree = ParallelTree.of(problem)
    inner = [node for node in tree.postorder if tree.children[node]]
    leaves = [node for node in tree.postorder if not tree.children[node]]
    return _schedule(problem, tree, inner + leaves)


def solve_deepest_first(problem: Problem, options: None, context: Context) -> Proposal:
    """Follow the critical path: the node from which the path to the root takes longest first.

    The path's time counts the node itself; of equal ones inner nodes come before leaves, then in the order of
    the best post-order. The makespan is within 2 - 1/P of that of any schedule of one-processor tasks; the
    peak has no bound. O(n log n).

    Takes instances of kind `tree`. Claims nothing. Under a budget, steps wait until their bytes fit; if they never do,
    nothing is found.
    """
    tree = ParallelTree.of(problem)
    return _schedule(problem, tree, deepest_first(tree))


def deepest_first(tree: ParallelTree) -> list[int]:
    """Return the nodes by non-increasing time to the root, inner nodes before leaves among equals."""
    depth, children = tree.depth, tree.children
    return sorted(tree.postorder, key=lambda node: (-depth[node], not children[node]))


def _schedule(problem: Problem, tree: ParallelTree, ranking: list[int]) -> Proposal:
    plan = list_schedule(tree, len(processors_of(problem)), ranking, ChildrenFirst(tree))
    assert plan is not None
    return Proposal(steps=emit(problem, tree, plan))
