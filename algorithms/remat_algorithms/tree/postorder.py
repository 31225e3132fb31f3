"""Post-orders of task trees: in the given order of the children, and with the minimum peak.

A post-order finishes a subtree before it starts the next. Its peak at node i is relative to the bytes held before the
subtree of i. With the children 1..c in their order (f outputs, m workspaces), it is

    P_i = max( max_k (f_1 + ... + f_{k-1} + P_k),  f_1 + ... + f_c + m_i + f_i ).
"""

from __future__ import annotations

from remat.plugin import Context, IntArray, Problem, Proposal
from remat_algorithms.tree.tree_arrays import TaskTree, postorder_by, propose, steps_of

POSTORDERS = "post-order traversals"


def solve_given(problem: Problem, options: None, context: Context) -> Proposal:
    """Run the post-order that takes the children of each node by number, in O(n).

    Takes instances of kind `tree`. An out-tree is traversed in the reverse of the in-tree's order, with the same peak.
    Returns this one schedule for every budget and claims its peak.
    """
    tree = TaskTree.of(problem)
    order = postorder_by(tree)
    peak, _ = tree.peak_of(order)
    return Proposal(
        steps=steps_of(problem, tree, order),
        makespan=problem.no_recompute_time,
        peak=peak + problem.graph.static_memory,
    )


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Run the post-order of minimum peak, in O(n log n) (`best_postorder`).

    Takes instances of kind `tree`. An out-tree is traversed in the reverse of the in-tree's order, with the same peak.
    Claims the peak. Infeasible within `POSTORDERS` if the memory is smaller.
    """
    tree = TaskTree.of(problem)
    return propose(problem, tree, best_postorder(tree), POSTORDERS)


def best_postorder(tree: TaskTree) -> IntArray:
    """Return the post-order of minimum peak.

    Liu 1986, "On the storage requirement in the out-of-core multifrontal method for sparse factorization": the children
    of each node in order of non-increasing P - f (ties by number). O(n log n).

    Returns
    -------
    (nodes,) int64
        Places of the tree.
    """
    f = tree.size.tolist()
    peak = tree.requirement.tolist()  # peak of a leaf; for a node with children, initially its own requirement
    loss = (-tree.workspace).tolist()  # f - P of a leaf: small where the subtree should run early
    rank = list(range(len(tree)))
    for node, start, end in tree.rows():
        highest = peak[node]
        if end - start == 1:
            reach = peak[start]
            if reach > highest:
                highest = reach
        else:
            below = sorted(rank[start:end], key=loss.__getitem__)
            rank[start:end] = below
            held = 0
            for child in below:
                reach = held + peak[child]
                if reach > highest:
                    highest = reach
                held += f[child]
        peak[node] = highest
        loss[node] = f[node] - highest
    return postorder_by(tree, rank)
