"""`liu`: the traversal of a task tree that needs the least memory, over all traversals.

Liu 1987, "An application of generalized tree pebbling to sparse matrix factorization". The best traversal of a
subtree is a sequence of *segments*, each known by its hill h, the most bytes held above those at its start, and its
net n, the bytes by which it ends above its start. Subtrees whose parent has not run do not depend on each other: their
segments are interleaved in order of non-increasing h - n, in which each subtree's own stand already. Then node i
follows, with h = f_1 + ... + f_c + m_i + f_i - (f_1 + ... + f_c) = m_i + f_i and n = f_i - (f_1 + ... + f_c), and is
merged with the segments before it for as long as stopping between the two is no use:

    while there is a segment (h', n') before it, the one of least h' - n', and n <= 0 or h' - n' <= h - n:
        h = max(h', n' + h),  n = n' + n.

So a subtree is a heap of segments by h - n, and the heaps of the children are melded at their parent.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from remat.plugin import Context, IntArray, Problem, Proposal
from remat_algorithms.tree.tree_arrays import TRAVERSALS, TaskTree, propose

COMPILED_FROM = 50_000
"""Nodes from which compiling the merges (`remat_algorithms.tree.liu_kernel`) pays."""


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Run the traversal of least peak (`best_traversal`).

    Takes instances of kind `tree`; an out-tree is traversed in the reverse of the in-tree's order, with the same peak.
    Claims the peak. Infeasible if the memory is smaller: within all schedules on a machine with one memory
    (`remat_algorithms.tree.tree_arrays.propose` has the argument), else within `TRAVERSALS`.
    """
    tree = TaskTree.of(problem)
    return propose(problem, tree, best_traversal(tree), TRAVERSALS)


def best_traversal(tree: TaskTree) -> IntArray:
    """Return a traversal of least peak.

    Returns
    -------
    (nodes,) int64
        Places of the tree.

    Notes
    -----
    Each node makes one segment, known by the node, which is its last one. Its nodes are a linked list (`first`,
    `following`), so that segments join in O(1); `code` packs its h - n, never negative, and the node into one
    integer. A node's own segment is the last of its subtree's and comes first when the parent merges, so it stays out
    of the heap, which for most subtrees is empty or small; of two heaps the smaller one moves. That is O(n log n) as
    long as heaps are small, and O(n log^2 n) at worst (with binomial heaps, as in the paper, it would be O(n log n)).
    """
    n = len(tree)
    if n >= COMPILED_FROM:
        from remat_algorithms.tree.liu_kernel import traversal

        return traversal(tree.inner, tree.start, tree.end, tree.workspace + tree.size, tree.size - tree.read)
    shift = n.bit_length()
    node_bits = (1 << shift) - 1
    hill = (tree.workspace + tree.size).tolist()
    net = (tree.size - tree.read).tolist()
    first = list(range(n))
    following = [-1] * n
    code = _leaf_codes(tree, shift)
    heaps: list[list[int] | None] = [None] * n  # of each subtree: all segments but the last
    for node, start, end in tree.rows():
        if end - start == 1:
            segments, heap = [code[start]], heaps[start]
        else:
            segments = sorted(code[start:end], reverse=True)
            filled = [heap for heap in heaps[start:end] if heap]
            heap = _melded(filled) if filled else None
        h, gain, head = hill[node], net[node], node
        while True:
            if heap and (not segments or heap[0] < segments[-1]):
                least = heap[0]
                if gain > 0 and least >> shift > h - gain:
                    break
                heappop(heap)
            elif segments:
                least = segments[-1]
                if gain > 0 and least >> shift > h - gain:
                    break
                segments.pop()
            else:
                break
            other = least & node_bits
            before = net[other]
            h += before
            if hill[other] > h:
                h = hill[other]
            gain += before
            following[other] = head
            head = first[other]
        hill[node], net[node], first[node] = h, gain, head
        code[node] = (h - gain) << shift | node
        if segments:
            heap = _extended(heap, segments)
        if heap:
            heaps[node] = heap
    last = sorted(heaps[tree.root] or (), reverse=True)
    order: list[int] = []
    for segment in [*(each & node_bits for each in last), tree.root]:
        node = first[segment]
        while node >= 0:
            order.append(node)
            node = following[node]
    return np.array(order, dtype=np.int64)


def _leaf_codes(tree: TaskTree, shift: int) -> list[int]:
    """Pack h - n = m and the number of each leaf; what this makes of the other nodes is not used."""
    node = np.arange(len(tree), dtype=np.int64)
    if int(tree.workspace.max()).bit_length() + shift < 63:
        codes: list[int] = ((tree.workspace << shift) | node).tolist()
        return codes
    return [workspace << shift | number for number, workspace in enumerate(tree.workspace.tolist())]


def _melded(heaps: list[list[int]]) -> list[int]:
    """Move the segments of all heaps into the largest."""
    largest = max(heaps, key=len)
    melded = largest
    for heap in heaps:
        if heap is not largest:
            melded = _extended(melded, heap)
            heap.clear()
    return melded


def _extended(heap: list[int] | None, more: list[int]) -> list[int]:
    """Add segments to a heap: one by one if they are few, else all at once."""
    if not heap:
        return sorted(more)
    if len(more) * len(heap).bit_length() < len(heap):
        for segment in more:
            heappush(heap, segment)
    else:
        heap += more
        heapify(heap)
    return heap
