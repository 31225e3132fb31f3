"""`minmem`: the traversal of minimum memory, by exploring the tree from its root with growing memory.

Jacquelin, Marchal, Robert and Uçar 2011, "On optimal tree traversals for sparse matrix factorization", algorithms
Explore and MinMem. Seen from the root, node i consumes its output f_i and produces the outputs of its children. It
needs f_i + m_i + f_1 + ... + f_c. The waiting nodes form a *cut* C. Explore(i, A) runs nodes of the subtree of i with A
bytes until it reaches the smallest reachable cut:

    while a node j of C can make progress with A_j = A - sum of f_k over the other nodes k of C:
        Explore(j, A_j), which stops at a cut C_j;
        if C_j holds at most f_j: replace j in C by C_j.

It returns the minimum memory for further progress. This is the minimum, over the nodes j of C, of what j needs plus the
outputs of the other nodes. MinMem explores from the root until no node waits. Each exploration gets the memory that the
previous one lacked, and resumes from its cuts. The reversed order is a traversal of the in-tree.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from remat.plugin import Context, IntArray, Problem, Proposal
from remat_algorithms.tree.tree_arrays import TRAVERSALS, TaskTree, propose


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Run the traversal of minimum peak (`least_memory_traversal`).

    Takes instances of kind `tree`. An out-tree is traversed in the reverse of the in-tree's order, with the same peak.
    Claims the peak. If the memory is smaller, the instance is infeasible: within all schedules on a machine with one
    memory (proof in `remat_algorithms.tree.tree_arrays.propose`), else within `TRAVERSALS`.
    """
    tree = TaskTree.of(problem)
    return propose(problem, tree, least_memory_traversal(tree), TRAVERSALS)


def least_memory_traversal(tree: TaskTree) -> IntArray:
    """Return a traversal of minimum peak.

    Returns
    -------
    (nodes,) int64
        Places of the tree.

    Notes
    -----
    O(n height log n), which is O(n^2 log n) in the worst case and usually far less. An exploration starts only if it,
    or one nested in it, will run a new node. The nesting is at most as deep as the tree. The paper has O(n^2) and scans
    the whole cut in each step. Here a heap finds the node with the smallest need, and of two cuts the smaller one is
    moved.
    """
    exploration = _Exploration(tree)
    memory = int(tree.requirement.max())
    while memory >= 0:
        memory = exploration.explore(tree.root, memory)
    return exploration.order(tree.root)


class _Exploration:
    """The current cuts of the explorations of all subtrees.

    A waiting node j is one integer: its lack and its number, packed. The lack is the memory with which an exploration
    of the subtree of j would progress, minus f_j. In other words, it is the need of j beyond the bytes of the
    surrounding cut.

    Attributes
    ----------
    code : list of int
        Lack and number of each node.
    cut : list
        Cut of each explored subtree, a heap of codes. None while the node itself waits; empty after another cut has
        absorbed it.
    held : list of int
        Bytes of that cut.
    first, last, following : list of int
        The nodes run in each subtree, in order, as linked lists.
    """

    def __init__(self, tree: TaskTree) -> None:
        n = len(tree)
        self.shift = n.bit_length()
        self.node_bits = (1 << self.shift) - 1
        self.size = tree.size.tolist()
        self.start, self.end = tree.start.tolist(), tree.end.tolist()
        lacks = (tree.workspace + tree.read).tolist()
        self.code = [lack << self.shift | node for node, lack in enumerate(lacks)]
        self.cut: list[list[int] | None] = [None] * n
        self.held = tree.read.tolist()
        self.first, self.last, self.following = list(range(n)), list(range(n)), [-1] * n

    def explore(self, root: int, memory: int) -> int:
        """Explore a subtree until the given memory (enough for some progress) allows no further step.

        Returns
        -------
        int
            Minimum memory for further progress; -1 when the whole subtree has run.
        """
        # The nested explorations in progress, and the memory of each.
        path, memories = [root], [memory]
        while True:
            node, memory = path[-1], memories[-1]
            cut = self.cut[node]
            if cut is None:  # it runs, and its children start to wait
                cut = self.cut[node] = self.code[self.start[node] : self.end[node]]
                heapify(cut)
            room = memory - self.held[node]
            if cut and cut[0] >> self.shift <= room:
                inside = heappop(cut) & self.node_bits
                path.append(inside)
                memories.append(room + self.size[inside])
                continue
            path.pop()
            memories.pop()
            need = (cut[0] >> self.shift) + self.held[node] if cut else -1
            if not path:
                return need
            above = path[-1]
            if self.held[node] <= self.size[node]:
                self._take_over(above, node, cut)
            else:
                self.code[node] = (need - self.size[node]) << self.shift | node
                heappush(self._cut_of(above), self.code[node])

    def order(self, root: int) -> IntArray:
        """Return the nodes run from the root, in reverse: children first."""
        nodes = []
        node = root
        while node >= 0:
            nodes.append(node)
            node = self.following[node]
        return np.array(nodes[::-1], dtype=np.int64)

    def _cut_of(self, node: int) -> list[int]:
        cut = self.cut[node]
        assert cut is not None, "only explored nodes have others inside"
        return cut

    def _take_over(self, node: int, inside: int, inner: list[int]) -> None:
        """Replace a node, popped from another node's cut, by its own cut."""
        self.held[node] += self.held[inside] - self.size[inside]
        self.following[self.last[node]] = self.first[inside]
        self.last[node] = self.last[inside]
        cut = self._cut_of(node)
        self.cut[inside] = []
        if len(inner) > len(cut):
            cut, inner = inner, cut
            self.cut[node] = cut
        if len(inner) * len(cut).bit_length() < len(cut):
            for code in inner:
                heappush(cut, code)
        elif inner:
            cut += inner
            heapify(cut)
