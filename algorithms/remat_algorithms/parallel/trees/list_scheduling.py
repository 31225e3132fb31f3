"""`par-inner-first` and `par-deepest-first`: list scheduling of trees that ignores the memory.

After Marchal, Sinnen and Vivien 2013, "Scheduling tree-shaped task graphs to minimize memory and makespan".
"""

from __future__ import annotations

from remat.plugin import Context, Problem, Proposal
from remat_algorithms.parallel.trees.parallel_tree import ParallelTree
from remat_algorithms.parallel.trees.priority_list import ChildrenFirst, list_schedule
from remat_algorithms.parallel.trees.timed_steps import emit, processors_of


def solve_inner_first(problem: Problem, options: None, context: Context) -> Proposal:
    """Emulate a post-order in parallel: ready inner nodes before leaves, both in the order of the best post-order.

    The paper leaves the order among inner nodes open. The makespan is at most (2 - 1/P) times that of any schedule of
    one-processor tasks. The peak is unbounded, because a leaf starts whenever a processor would be idle. O(n log n).

    Takes instances of kind `tree`. Claims nothing. Under a budget, steps wait until their bytes fit; if they never do,
    no schedule is returned.
    """
    tree = ParallelTree.of(problem)
    inner = [node for node in tree.postorder if tree.children[node]]
    leaves = [node for node in tree.postorder if not tree.children[node]]
    return _schedule(problem, tree, inner + leaves)


def solve_deepest_first(problem: Problem, options: None, context: Context) -> Proposal:
    """Follow the critical path: the node with the longest path to the root runs first.

    The length of the path includes the node itself. On ties, inner nodes precede leaves, then the best post-order
    decides. The makespan is at most (2 - 1/P) times that of any schedule of one-processor tasks; the peak is unbounded.
    O(n log n).

    Takes instances of kind `tree`. Claims nothing. Under a budget, steps wait until their bytes fit; if they never do,
    no schedule is returned.
    """
    tree = ParallelTree.of(problem)
    return _schedule(problem, tree, deepest_first(tree))


def deepest_first(tree: ParallelTree) -> list[int]:
    """Return the nodes by non-increasing time to the root; on ties, inner nodes precede leaves."""
    depth, children = tree.depth, tree.children
    return sorted(tree.postorder, key=lambda node: (-depth[node], not children[node]))


def _schedule(problem: Problem, tree: ParallelTree, ranking: list[int]) -> Proposal:
    plan = list_schedule(tree, len(processors_of(problem)), ranking, ChildrenFirst(tree))
    assert plan is not None
    return Proposal(steps=emit(problem, tree, plan))
