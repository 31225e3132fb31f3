"""`minmem`: the traversal of least memory by exploring the tree from its root with more and more memory.

Jacquelin, Marchal, Robert and Uçar 2011, "On optimal tree traversals for sparse matrix factorization", algorithms
Explore and MinMem. Seen from the root, running node i takes its output f_i away and brings its children's, and needs
f_i + m_i + f_1 + ... + f_c. The nodes that wait make a *cut* C. Explore(i, A) runs nodes of the subtree of i with A
bytes until it stands at the least cut that it can reach:

    while a node j of C can make progress with A_j = A - sum of f_k over the other nodes k of C:
        Explore(j, A_j), which comes to stand at a cut C_j;
        if C_j holds no more than f_j: put C_j into C in place of j.

It answers with the least memory with which it would get further: the least, over the nodes of C, of what a node needs
plus the outputs of the others. MinMem explores from the root, each time with what the last exploration lacked, and goes
on from the cuts at which that stood, until nothing waits. Backwards, the order is a traversal of the in-tree.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from remat.plugin import Context, IntArray, Problem, Proposal
from remat_algorithms.tree.tree_arrays import TRAVERSALS, TaskTree, propose


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Run the traversal of least peak (`least_memory_traversal`).

    Takes instances of kind `tree`; an out-tree is traversed in the reverse of the in-tree's order, with the same peak.
    Claims the peak. Infeasible if the memory is smaller: within all schedules on a machine with one memory
    (`remat_algorithms.tree.tree_arrays.propose` has the argument), else within `TRAVERSALS`.
    """
    tree = TaskTree.of(problem)
    return propose(problem, tree, least_memory_traversal(tree), TRAVERSALS)


def least_memory_traversal(tree: TaskTree) -> IntArray:
    """Return a traversal of least peak.

    Returns
    -------
    (nodes,) int64
        Places of the tree.

    Notes
    -----
    O(n height log n), O(n^2 log n) at worst and usually far less: an exploration begins only if it, or one inside it,
    is going to run a new node, and they nest no deeper than the tree. The paper has O(n^2), and looks through the whole
    cut for each step, where a heap names the node that needs least; of two cuts the smaller one moves.
    """
    exploration = _Exploration(tree)
    memory = int(tree.requirement.max())
    while memory >= 0:
        memory = exploration.explore(tree.root, memory)
    return exploration.order(tree.root)


class _Exploration:
    """The cuts at which the explorations of all subtrees stand.

    A waiting node j is known by one integer, its lack and its number packed: the lack is the memory with which
    exploring the subtree would get further, less f_j, which is what it needs above the bytes of the cut around it.

    Attributes
    ----------
    code : list of int
        Lack and number of each node.
    cut : list
        Heap of codes, the cut of each explored subtree; None where the node itself waits, and emptied where another
        cut has taken over.
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
        """Explore a subtree as far as it goes with so much memory (enough for some progress).

        Returns
        -------
        int
            The least memory with which it would go further; -1 when the whole subtree has run.
        """
        # The explorations that have begun, one inside the other, and the memory of each.
        path, memories = [root], [memory]
        while True:
            node, memory = path[-1], memories[-1]
            cut = self.cut[node]
            if cut is None:  # it runs, and its children wait
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
        """Return the nodes run from the root, backwards: children first."""
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
        """Replace a node in another's cut, from which it has been popped, by the cut inside it."""
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
