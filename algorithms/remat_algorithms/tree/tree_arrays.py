"""Task trees as arrays, with the common parts of all tree algorithms: numbering, memory along an order, the proposal.

All algorithms work on an in-tree, whose nodes follow their children. The schedules of an out-tree are those of the
in-tree in reverse, with the same memory at every node. While node i runs, both hold the outputs f of i and of its
children, and the workspace m of i. They also hold the output of every other node of which exactly one of the two has
run: the node or its parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import ALL_SCHEDULES, IntArray, LeastBudget, Problem, Proposal, Steps, TreeInstance, run_in_order

TRAVERSALS = "traversals in one memory"
"""Orders that run all tasks one after another in the working memory: the class of the exact algorithms."""


@dataclass(frozen=True)
class TaskTree:
    """An in-tree (an out-tree is reversed), numbered so that siblings are adjacent and precede their parents.

    Siblings are in the order of their node numbers, and the root is last. With this numbering the algorithms access
    memory almost sequentially, and the children of a node are a slice. That makes them several times as fast at 10^6
    nodes.

    Attributes
    ----------
    node : (nodes,) int64
        Node of the instance at each place.
    start, end : (nodes,) int64
        The children of each place are the places from `start` to `end` (exclusive).
    inner : (inner nodes,) int64
        The places that have children, in the order of their children: each after all places below it.
    size, workspace : (nodes,) int64
        f and m.
    """

    node: IntArray
    start: IntArray
    end: IntArray
    inner: IntArray
    size: IntArray
    workspace: IntArray

    @staticmethod
    def of(problem: Problem) -> TaskTree:
        """Number the tree of a problem of kind `tree`."""
        instance, graph = problem.instance, problem.graph
        assert isinstance(instance, TreeInstance)
        children = graph.reads if instance.orientation == "in" else graph.writes
        parent = np.full(len(children), -1, dtype=np.int64)
        parent[children.items] = children.rows
        return TaskTree.from_arrays(parent, graph.size, graph.workspace)

    @staticmethod
    def from_arrays(parent: IntArray, size: IntArray, workspace: IntArray) -> TaskTree:
        """Number an in-tree, with array operations only: O(n log n).

        Parameters
        ----------
        parent, size, workspace : (nodes,) int64
            Values of each node; the root's parent is -1.
        """
        n = len(parent)
        turn = _turns(parent)
        # Places are sorted by the turn of the parent, so that siblings are adjacent. The root has no parent.
        turn_above = np.where(parent < 0, n, turn[parent])
        node = np.argsort(turn_above, kind="stable")
        count = np.zeros(n + 1, dtype=np.int64)
        np.add.at(count, turn_above, 1)
        first = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(count)))
        place = np.empty(n, dtype=np.int64)
        place[node] = np.arange(n, dtype=np.int64)
        by_turn = np.empty(n, dtype=np.int64)
        by_turn[turn] = place
        own = turn[node]
        return TaskTree(
            node=node,
            start=first[own],
            end=first[own + 1],
            inner=by_turn[count[:n] > 0],
            size=size[node],
            workspace=workspace[node],
        )

    def __len__(self) -> int:
        return len(self.node)

    @property
    def root(self) -> int:
        """The last place."""
        return len(self.node) - 1

    @cached_property
    def read(self) -> IntArray:
        """Bytes of the children's outputs of each node."""
        total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.size)))
        read: IntArray = total[self.end] - total[self.start]
        return read

    @cached_property
    def requirement(self) -> IntArray:
        """Bytes that each node alone needs: its children's outputs, its workspace and its output."""
        return self.read + self.workspace + self.size

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Yield (place, start, end) for the places that have children, bottom-up."""
        inner = self.inner
        return zip(inner.tolist(), self.start[inner].tolist(), self.end[inner].tolist(), strict=True)

    def rows_top_down(self) -> Iterator[tuple[int, int, int]]:
        """Yield (place, start, end) for the places that have children, top-down."""
        inner = self.inner[::-1]
        return zip(inner.tolist(), self.start[inner].tolist(), self.end[inner].tolist(), strict=True)

    def memory_along(self, order: IntArray) -> IntArray:
        """Return the bytes held while each node of an order runs: O(n), exact.

        Parameters
        ----------
        order : (nodes,) int64
            Places, each once, after its children.
        """
        after = np.cumsum((self.size - self.read)[order])
        held: IntArray = after + (self.read + self.workspace)[order]
        return held

    def peak_of(self, order: IntArray) -> tuple[int, int]:
        """Return the peak of an order, and the first place that reaches it."""
        held = self.memory_along(order)
        place = int(np.argmax(held))
        return int(held[place]), int(order[place])


def _turns(parent: IntArray) -> IntArray:
    """Return numbers 0..n-1 for the nodes, each larger than those of its children: O(n log n)."""
    n = len(parent)
    node = np.arange(n, dtype=np.int64)
    root = parent < 0
    if (root | (parent > node)).all():
        return node
    if (parent < node).all():
        return node[::-1]
    # Depths by pointer jumping: each round doubles the distance to `above`, until all reach the root.
    above = np.where(root, node, parent)
    depth = (~root).astype(np.int64)
    while not root[above].all():
        depth += depth[above]
        above = above[above]
    turn = np.empty(n, dtype=np.int64)
    turn[np.argsort(-depth, kind="stable")] = node
    return turn


def postorder_by(tree: TaskTree, rank: list[int] | None = None) -> IntArray:
    """Return the post-order that visits the children of each node by `rank`: O(n).

    Parameters
    ----------
    tree
    rank : list of int, optional
        Places. The entries at the positions of a node's children are these children in the order of their visits.
        Default: unchanged.

    Returns
    -------
    (nodes,) int64
        Places.
    """
    n = len(tree)
    count = [1] * n  # number of nodes of each subtree
    for node, start, end in tree.rows():
        count[node] = 1 + sum(count[start:end])
    begin = [0] * n  # position at which each subtree begins
    for node, start, end in tree.rows_top_down():
        now = begin[node]
        for child in range(start, end) if rank is None else rank[start:end]:
            begin[child] = now
            now += count[child]
    order = np.empty(n, dtype=np.int64)
    order[np.array(begin, dtype=np.int64) + np.array(count, dtype=np.int64) - 1] = np.arange(n, dtype=np.int64)
    return order


def propose(problem: Problem, tree: TaskTree, order: IntArray, within: str) -> Proposal:
    """Convert an order of minimum peak to steps, or to a proof of infeasibility.

    Parameters
    ----------
    problem, tree
    order : (nodes,) int64
        Places, children first.
    within : str
        Class of schedules in which no order has a lower peak.

    Returns
    -------
    Proposal
        Claims the peak, and that the makespan (the sum of all times) is the minimum of the class.

    Notes
    -----
    Suppose that the order has the minimum peak of all traversals. Then no schedule needs less memory on a machine with
    one memory, even if several processors share it. Every task runs once and cannot be recomputed. Without a second
    memory, schedules contain no copies. No task runs in place.

    Take any valid schedule of an in-tree, and order its tasks by start time. When T_i starts, the schedule holds f_i
    and m_i. It also holds each f_j whose T_j has started before, unless its reader has started before T_i: outputs are
    allocated at the start of the writer and cannot be freed before the end of the reader. These are the bytes that the
    sequential order holds while it runs T_i.

    For an out-tree, order the tasks by end time instead, and consider the instant before T_i ends. With several
    memories, a schedule may move values away temporarily. The proof then covers only schedules that keep everything in
    the first memory.
    """
    peak, place = tree.peak_of(order)
    peak += problem.graph.static_memory
    if problem.budget is not None and peak > problem.budget:
        if within == TRAVERSALS and len(problem.machine.memories) == 1:
            within = ALL_SCHEDULES
        return Proposal(infeasible_within=within, least=LeastBudget(peak, int(tree.node[place]), sufficient=True))
    return Proposal(
        steps=steps_of(problem, tree, order),
        makespan=problem.no_recompute_time,
        peak=peak,
        optimal_within=within,
    )


def steps_of(problem: Problem, tree: TaskTree, order: IntArray) -> Steps:
    """Run the nodes in an order of the in-tree's places; in reverse for an out-tree."""
    assert isinstance(problem.instance, TreeInstance)
    nodes = tree.node[order]
    return run_in_order(problem.graph, problem.machine, nodes if problem.instance.orientation == "in" else nodes[::-1])
