"""Traversals of a task tree on which the eviction rules work."""

from __future__ import annotations

from typing import Literal

from remat.plugin import IntArray, Problem, reference_order
from remat_algorithms.tree.liu import best_traversal
from remat_algorithms.tree.out_of_core.intree import InTree
from remat_algorithms.tree.postorder import best_postorder
from remat_algorithms.tree.tree_arrays import TaskTree

Traversal = Literal["liu", "liu-postorder", "postorder", "listed"]


def traverse(problem: Problem, tree: InTree, traversal: Traversal) -> IntArray:
    """Return a traversal of the in-tree.

    Parameters
    ----------
    problem : Problem
    tree : InTree
        Tree of the same problem.
    traversal : str
        `liu`: the traversal of minimum peak. `liu-postorder`: the post-order of minimum peak. `postorder`: the
        post-order that takes children by number. `listed`: the tasks by number, or the closest topological order.

    Returns
    -------
    (nodes,) int64
        An out-tree runs it in reverse.
    """
    match traversal:
        case "liu":
            return least_peak_traversal(problem)
        case "liu-postorder":
            by_place = TaskTree.of(problem)
            return by_place.node[best_postorder(by_place)]
        case "postorder":
            return tree.postorder(tree.children)
        case "listed":
            return tree.tasks(reference_order(problem.graph, problem.needed.once))


def least_peak_traversal(problem: Problem) -> IntArray:
    """Return Liu's traversal, of minimum peak over all traversals."""
    by_place = TaskTree.of(problem)
    return by_place.node[best_traversal(by_place)]
