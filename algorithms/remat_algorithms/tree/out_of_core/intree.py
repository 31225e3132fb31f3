"""Task trees as in-trees, whatever their orientation, for the out-of-core algorithms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat.plugin import IntArray, Problem, TaskGraph, TreeInstance


@dataclass(frozen=True)
class InTree:
    """A task tree as an in-tree; an out-tree is the same tree run in reverse.

    Attributes
    ----------
    graph : TaskGraph
    children : list of list of int
        Children of each node, by number.
    root : int
    outward : bool
        Whether the tasks run from the root to the leaves.
    requirement : (nodes,) int64
        Bytes that each node alone needs: its children's outputs, its workspace and its output.
    """

    graph: TaskGraph
    children: list[list[int]]
    root: int
    outward: bool
    requirement: IntArray

    @staticmethod
    def of(problem: Problem) -> InTree:
        """Return the tree of a problem of kind `tree`."""
        instance, graph = problem.instance, problem.graph
        assert isinstance(instance, TreeInstance)
        outward = instance.orientation == "out"
        requirement = graph.workspace.copy()
        np.add.at(requirement, graph.reads.rows, graph.size[graph.reads.items])
        np.add.at(requirement, graph.writes.rows, graph.size[graph.writes.items])
        return InTree(
            graph=graph,
            children=(graph.writes if outward else graph.reads).to_lists(),
            root=instance.parent.index(-1),
            outward=outward,
            requirement=requirement,
        )

    def top_down(self) -> list[int]:
        """Return the nodes, each before its children."""
        order = [self.root]
        for node in order:
            order.extend(self.children[node])
        return order

    def postorder(self, children: list[list[int]]) -> IntArray:
        """Return the post-order that visits the children of each node in the given order (O(n))."""
        order = []
        stack = [self.root]
        # "Parent first, then its children from the last to the first" is the reversed post-order.
        while stack:
            node = stack.pop()
            order.append(node)
            stack.extend(children[node])
        return np.array(order[::-1], dtype=np.int64)

    def tasks(self, order: IntArray) -> IntArray:
        """Convert a traversal of the in-tree to an order of the tasks, or back."""
        return order[::-1] if self.outward else order

    def peak_of(self, order: IntArray) -> tuple[int, int]:
        """Return the peak of a traversal of the in-tree without evictions, and the node that sets it."""
        own = self.graph.size + self.graph.workspace
        read = self.requirement - own
        held = np.cumsum((self.graph.size - read)[order]) + (self.graph.workspace + read)[order]
        place = int(np.argmax(held))
        return int(held[place]), int(order[place])
