"""Task trees as arrays, and what every algorithm on them shares: numbering, memory along an order, the proposal.

All algorithms think of an in-tree, whose nodes come after their children. An out-tree's schedules are the reverse of
the in-tree's, with the same memory at every node: while node i runs, both hold the outputs f of i and of its
children, the workspace m of i, and the outputs of all other nodes of which exactly one end (the node, or its parent)
has run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import ALL_SCHEDULES, IntArray, LeastBudget, Problem, Proposal, Steps, TreeInstance, run_in_order

TRAVERSALS = "traversals in one memory"
"""Orders of all tasks, one after the other, everything in the working memory: the class of the exact algorithms."""


@dataclass(frozen=True)
class TaskTree:
    """An in-tree (an out-tree is turned round), numbered so that children are neighbours and come before their parents.

    Children stand in the order of their node numbers; the root comes last. The numbering makes the algorithms read
    memory nearly in order, and lets them take slices for the children of a node: several times as fast at 10^6 nodes.

    Attributes
    ----------
    node : (nodes,) int64
        Node of the instance at each place.
    start, end : (nodes,) int64
        The children of each place are the places from `start` up to `end`.
    inner : (inner nodes,) int64
        The places that have children, by their children: each after all places below it.
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
        """Number an in-tree: O(n log n), array operations only.

        Parameters
        ----------
        parent, size, workspace : (nodes,) int64
            Of each node; the root's parent is -1.
        """
        n = len(parent)
        turn = _turns(parent)
        # Places go by the turn of the parent, so that siblings are neighbours; the root is nobody's child.
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
        """Bytes that each node needs by itself: its children's outputs, its workspace, its own output."""
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
        """Return the peak of an order, and the first place at which it stands."""
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
    # Depths by pointer jumping: each round doubles the distance to `above`, until all stand at the root.
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
        Places; those of a node's children stand where the children do, in the order of their visits. Default: as
        they are.

    Returns
    -------
    (nodes,) int64
        Places.
    """
    n = len(tree)
    count = [1] * n  # nodes of each subtree
    for node, start, end in tree.rows():
        count[node] = 1 + sum(count[start:end])
    begin = [0] * n  # when each subtree is begun
    for node, start, end in tree.rows_top_down():
        now = begin[node]
        for child in range(start, end) if rank is None else rank[start:end]:
            begin[child] = now
            now += count[child]
    order = np.empty(n, dtype=np.int64)
    order[np.array(begin, dtype=np.int64) + np.array(count, dtype=np.int64) - 1] = np.arange(n, dtype=np.int64)
    return order


def propose(problem: Problem, tree: TaskTree, order: IntArray, within: str) -> Proposal:
    """Turn an order of least peak into steps, or into the proof that there are none.

    Parameters
    ----------
    problem, tree
    order : (nodes,) int64
        Places, children first.
    within : str
        The class of schedules in which no order has a lower peak.

    Returns
    -------
    Proposal
        Claims the peak, and that the makespan (the sum of all times) is the least of the class.

    Notes
    -----
    If the order has the least peak of all traversals, no schedule whatever does with less on a machine with one
    memory, however many processors share it. Every task runs once and nothing can be recomputed; there are no
    copies, as no other memory is there; nothing runs in place. Take any valid schedule of an in-tree, and order
    its tasks by their starts. When T_i starts, the schedule holds f_i and m_i, and each f_j whose T_j has started
    before and whose reader has not, or is T_i: outputs are allocated at the start of the writer, and may not be
    freed before the end of the reader. These are the bytes of the sequential order while it runs T_i. For an
    out-tree order by the ends instead, and look at the moment before T_i ends. With several memories values might
    be moved away for a while, so there the proof covers only schedules that keep all in the first one.
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
    """Run the nodes in an order of the in-tree's places; backwards for an out-tree."""
    assert isinstance(problem.instance, TreeInstance)
    nodes = tree.node[order]
    return run_in_order(problem.graph, problem.machine, nodes if problem.instance.orientation == "in" else nodes[::-1])
