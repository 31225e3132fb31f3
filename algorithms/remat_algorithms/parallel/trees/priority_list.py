"""List scheduling of a tree: whenever processors are free, the available nodes of highest priority start.

If tasks can run on several processors, the free ones are divided equally among the nodes that start at that instant.
Without `parallel` in the instance, each node runs on one processor, as in the papers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from remat.plugin import Number
from remat_algorithms.parallel.trees.parallel_tree import ParallelTree
from remat_algorithms.parallel.trees.timed_steps import Plan

Release = Callable[[Sequence[int]], Iterable[int]]
"""Returns the nodes that become available, given those that have just ended (none at the start)."""


def list_schedule(tree: ParallelTree, processors: int, ranking: Sequence[int], release: Release) -> Plan | None:
    """Schedule a tree on some processors.

    Parameters
    ----------
    tree : ParallelTree
    processors : int
    ranking : sequence of int
        All nodes, highest priority first.
    release : callable
        See `Release`; all children of a returned node must have ended.

    Returns
    -------
    Plan or None
        None if some nodes never became available. O(n log n), plus the time of `release`.
    """
    count = len(tree)
    rank = [0] * count
    for position, node in enumerate(ranking):
        rank[node] = position
    start: list[Number] = [0] * count
    end: list[Number] = [0] * count
    on: list[Sequence[int]] = [()] * count
    order: list[int] = []
    free = list(range(processors))  # a heap: lowest number first
    available = [rank[node] for node in release(())]
    heapq.heapify(available)
    running: list[tuple[Number, int]] = []
    now: Number = 0
    while True:
        while available and free:
            node = ranking[heapq.heappop(available)]
            share = len(free) // (1 + min(len(available), len(free) - 1))
            mine = [heapq.heappop(free) for _ in range(tree.width(node, share))]
            start[node] = now
            finish = end[node] = now + tree.duration(node, len(mine))
            on[node] = mine
            order.append(node)
            heapq.heappush(running, (finish, node))
        if not running:
            break
        now = running[0][0]
        ended = []
        while running and running[0][0] == now:
            node = heapq.heappop(running)[1]
            ended.append(node)
            for processor in on[node]:
                heapq.heappush(free, processor)
        for node in release(ended):
            heapq.heappush(available, rank[node])
    return Plan(order, start, end, on) if len(order) == count else None


class ChildrenFirst:
    """Releases each node when all its children have ended."""

    def __init__(self, tree: ParallelTree) -> None:
        self._parent = tree.parent
        self._missing = [len(below) for below in tree.children]
        self._leaves = [node for node, below in enumerate(tree.children) if not below]

    def __call__(self, ended: Sequence[int]) -> list[int]:
        """Return the nodes whose last child has just ended (at the start, the leaves)."""
        if not ended:
            return self._leaves
        ready = []
        for node in ended:
            above = self._parent[node]
            if above >= 0:
                self._missing[above] -= 1
                if self._missing[above] == 0:
                    ready.append(above)
        return ready
