"""`liu`: the traversal of a task tree with the minimum peak over all traversals.

Liu 1987, "An application of generalized tree pebbling to sparse matrix factorization". The best traversal of a subtree
is a sequence of *segments*. A segment is described by its hill h, the maximum number of bytes held above those at its
start, and its net n, the bytes at its end minus those at its start. Subtrees of the same parent are independent. Their
segments are interleaved in order of non-increasing h - n; the segments of one subtree are already in that order. Node i
follows, with h = f_1 + ... + f_c + m_i + f_i - (f_1 + ... + f_c) = m_i + f_i and n = f_i - (f_1 + ... + f_c). It is
merged with the segments before it while a pause between the two has no use:

    while a segment precedes it, (h', n') being the one of smallest h' - n', and n <= 0 or h' - n' <= h - n:
        h = max(h', n' + h),  n = n' + n.

A subtree is thus a heap of segments ordered by h - n, and the heaps of the children are melded at their parent.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from remat.plugin import Context, IntArray, Problem, Proposal
from remat_algorithms.tree.tree_arrays import TRAVERSALS, TaskTree, propose

COMPILED_FROM = 50_000
"""Number of nodes from which it pays to compile the merges (`remat_algorithms.tree.liu_kernel`)."""


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Run the traversal of minimum peak (`best_traversal`).

    Takes instances of kind `tree`. An out-tree is traversed in the reverse of the in-tree's order, with the same peak.
    Claims the peak. If the memory is smaller, the instance is infeasible: within all schedules on a machine with one
    memory (proof in `remat_algorithms.tree.tree_arrays.propose`), else within `TRAVERSALS`.
    """
    tree = TaskTree.of(problem)
    return propose(problem, tree, best_traversal(tree), TRAVERSALS)


def best_traversal(tree: TaskTree) -> IntArray:
    """Return a traversal of minimum peak.

    Returns
    -------
    (nodes,) int64
        Places of the tree.

    Notes
    -----
    Each node creates one segment, identified by that node, which is its last one. The nodes of a segment form a linked
    list (`first`, `following`), so two segments join in O(1). `code` packs h - n, which is never negative, and the node
    into one integer.

    The segment that contains a subtree's root is the last of the subtree and comes first in the parent's merge. It
    therefore stays out of the heap, which is empty or small for most subtrees. Of two heaps, the smaller one is moved.
    This takes O(n log n) while heaps are small, and O(n log^2 n) in the worst case. Binomial heaps, as in the paper,
    would give O(n log n).
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
    heaps: list[list[int] | None] = [None] * n  # for each subtree, all segments except the last
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
    """Pack h - n = m and the number of each leaf; the codes of other nodes are not used."""
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
