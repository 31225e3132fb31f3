"""`postorder-min-io`: the post-order of a tree with the minimum I/O volume.

Agullo, Guermouche and L'Excellent 2010, "Reducing the I/O volume in sparse out-of-core multifrontal methods". Let M be
the bytes of memory, P_i the peak of the subtree of i, and A_i = min(M, P_i) its use of the memory. The children of each
node run in order of non-increasing A - f, and

    V_i = max(0, max_j (A_j + f_1 + ... + f_{j-1}) - M) + V_1 + ... + V_c.

V_root bytes are written and read again. They belong to the values used furthest in the future, which are divisible.
"""

from __future__ import annotations

from dataclasses import dataclass

from remat.plugin import Context, IntArray, Problem, Proposal
from remat_algorithms.tree.out_of_core.driver import Method, solve_with
from remat_algorithms.tree.out_of_core.eviction_rules import FurthestInFuture
from remat_algorithms.tree.out_of_core.intree import InTree
from remat_algorithms.tree.out_of_core.model import DiskOptions, Store

SCOPE = "post-order traversals with divisible files"


def solve(problem: Problem, options: DiskOptions, context: Context) -> Proposal:
    """Solve a task tree in O(n log n).

    Takes instances of kind `tree`. An out-tree runs the in-tree's traversal in reverse. Bytes that are out of memory
    between two tasks are out of it in reverse, too, so the volume is the same. The note states the I/O volume, which is
    the minimum over all post-orders. The makespan is that of this schedule; it is not claimed unless the links take no
    time. Infeasible if a task does not fit.

    Raises
    ------
    remat.OptionError
        If the option `disk` names no suitable memory.
    """
    tree, store = InTree.of(problem), Store.of(problem, options)

    def order(capacity: int | None) -> IntArray:
        return best_postorder_for_io(tree, capacity).order

    method = Method(order=order, policy=FurthestInFuture, scope=SCOPE, least_of="all post-orders")
    return solve_with(problem, tree, store, method)


@dataclass(frozen=True, slots=True)
class IOPostorder:
    """A post-order of the in-tree, and the bytes that it writes under a capacity: V_root."""

    order: IntArray
    volume: int


def best_postorder_for_io(tree: InTree, capacity: int | None) -> IOPostorder:
    """Return the post-order with the minimum I/O volume under a capacity, by the recurrence above.

    Parameters
    ----------
    tree : InTree
    capacity : int or None
        M after the static bytes, at least the largest requirement of a node. None means unbounded: the result is Liu's
        best post-order, with volume 0.

    Returns
    -------
    IOPostorder
        O(n log n); ties are broken by the numbers of the children.
    """
    f = tree.graph.size.tolist()
    children = [list(below) for below in tree.children]
    # P of a leaf. For a node with children, initially its own requirement, which fits.
    taken = tree.requirement.tolist()
    volume = 0
    for node in reversed(tree.top_down()):
        below = children[node]
        if len(below) > 1:
            below.sort(key=lambda child: f[child] - taken[child])
        held = highest = 0
        for child in below:
            highest = max(highest, held + taken[child])
            held += f[child]
        if capacity is not None and highest > capacity:
            volume += highest - capacity  # V_root is the sum of these additions over all nodes
            highest = capacity
        taken[node] = max(taken[node], highest)
    return IOPostorder(tree.postorder(children), volume)
