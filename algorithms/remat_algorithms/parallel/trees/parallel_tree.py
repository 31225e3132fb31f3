"""Task trees as plain lists, seen as in-trees, with the quantities that the parallel algorithms use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import Number, Problem, TreeInstance
from remat_algorithms.tree.liu import best_traversal
from remat_algorithms.tree.postorder import best_postorder
from remat_algorithms.tree.tree_arrays import TaskTree


@dataclass(frozen=True)
class ParallelTree:
    """An in-tree; an out-tree is planned as its time-reversed in-tree.

    Attributes
    ----------
    places : TaskTree
        The tree as the sequential algorithms see it.
    inward : bool
        Orientation of the instance.
    parent : list of int
        -1 for the root.
    children : list of list of int
        In the order of the best post-order (Liu 1986).
    size, workspace : list of int
        f and m.
    time : list of int or float
        Time on one processor.
    most, alpha : list or None
        On p <= `most` processors, a node takes time / p^alpha. None means one processor each.
    postorder : list of int
        The best post-order.
    """

    places: TaskTree
    inward: bool
    parent: list[int]
    children: list[list[int]]
    size: list[int]
    workspace: list[int]
    time: list[Number]
    most: list[int] | None
    alpha: list[float] | None
    postorder: list[int]

    @staticmethod
    def of(problem: Problem) -> ParallelTree:
        """Read the tree of a problem of kind `tree` (O(n log n))."""
        instance, graph = problem.instance, problem.graph
        assert isinstance(instance, TreeInstance)
        inward = instance.orientation == "in"
        places = TaskTree.of(problem)
        order = places.node[best_postorder(places)]
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order), dtype=np.int64)
        place = rank.tolist().__getitem__
        children = (graph.reads if inward else graph.writes).to_lists()
        for nodes in children:
            if len(nodes) > 1:
                nodes.sort(key=place)
        return ParallelTree(
            places=places,
            inward=inward,
            parent=list(instance.parent),
            children=children,
            size=graph.size.tolist(),
            workspace=graph.workspace.tolist(),
            time=graph.time.tolist(),
            most=None if graph.parallel_max is None else graph.parallel_max.tolist(),
            alpha=None if graph.parallel_alpha is None else graph.parallel_alpha.tolist(),
            postorder=order.tolist(),
        )

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def root(self) -> int:
        """The node without a parent."""
        return self.postorder[-1]

    @cached_property
    def need(self) -> list[int]:
        """Bytes while each node runs: its children's outputs, its workspace and its output."""
        size = self.size
        return [
            sum([size[child] for child in below]) + extra + own
            for below, extra, own in zip(self.children, self.workspace, size, strict=True)
        ]

    @cached_property
    def work(self) -> list[Number]:
        """W_i: time of each subtree on one processor."""
        work = list(self.time)
        for node in self.postorder[:-1]:
            work[self.parent[node]] += work[node]
        return work

    @cached_property
    def peak(self) -> list[int]:
        """Peak of each subtree in the best post-order."""
        peak = [0] * len(self)
        size, need = self.size, self.need
        for node in self.postorder:
            held = 0
            highest = need[node]
            for child in self.children[node]:
                if held + peak[child] > highest:
                    highest = held + peak[child]
                held += size[child]
            peak[node] = highest
        return peak

    @cached_property
    def depth(self) -> list[Number]:
        """Time of the path from each node to the root, both included: the minimum time from its start to the end."""
        depth = list(self.time)
        for node in reversed(self.postorder[:-1]):
            depth[node] += depth[self.parent[node]]
        return depth

    def width(self, node: int, processors: int) -> int:
        """Return how many of the given processors a node can use."""
        return 1 if self.most is None else min(processors, self.most[node])

    def duration(self, node: int, processors: int) -> Number:
        """Return the time of a node on the given number of processors."""
        if processors == 1 or self.alpha is None:
            return self.time[node]
        return self.time[node] / float(processors ** self.alpha[node])

    def optimal_traversal(self) -> Traversal:
        """Return the traversal of minimum peak (`liu`), O(n log n) in practice."""
        return self._measured(self.places.node[best_traversal(self.places)].tolist())

    def best_postorder(self) -> Traversal:
        """Return the best post-order with its peak."""
        return self._measured(self.postorder)

    def _measured(self, order: list[int]) -> Traversal:
        size, need, children = self.size, self.need, self.children
        held, highest, where = 0, -1, order[0]
        for node in order:
            below = sum([size[child] for child in children[node]])
            if held - below + need[node] > highest:
                highest, where = held - below + need[node], node
            held += size[node] - below
        return Traversal(order, highest, where)


@dataclass(frozen=True, slots=True)
class Traversal:
    """A sequential order of an in-tree, its peak (without static memory), and a node that reaches the peak."""

    order: list[int]
    peak: int
    node: int
