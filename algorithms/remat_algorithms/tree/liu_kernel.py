"""Compiled twin of `remat_algorithms.tree.liu`: the same merging, with skew heaps in arrays.

Each node creates one segment, so the heap links of a segment have a fixed position in the arrays. Heaps of any sizes
meld in O(log n) amortised (Sleator & Tarjan 1986, "Self-adjusting heaps").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.kit.compile.lowering import Kernel


class Tree(NamedTuple):
    """Places with children, bottom-up, and the ranges of all children (as in `TaskTree`)."""

    inner: IntArray
    start: IntArray
    end: IntArray


class Segments(NamedTuple):
    """Segments, each identified by its last node.

    Attributes
    ----------
    hill, net, key : (nodes,) int64
        h, n and h - n.
    first, following : (nodes,) int64
        First node of each segment, and successor of each node; -1 after the last.
    left, right : (nodes,) int64
        Children of a segment in its heap; -1 for none.
    heap : (nodes,) int64
        Smallest of all segments of a subtree except its last; -1 for none.
    order : (nodes,) int64
        The traversal.
    """

    hill: IntArray
    net: IntArray
    key: IntArray
    first: IntArray
    following: IntArray
    left: IntArray
    right: IntArray
    heap: IntArray
    order: IntArray


def traverse(tree: Tree, segments: Segments) -> None:
    """Merge all subtrees and write the traversal."""
    for row in range(tree.inner.shape[0]):
        node = tree.inner[row]
        heap = -1
        for child in range(tree.start[node], tree.end[node]):
            heap = meld(segments, meld(segments, heap, segments.heap[child]), child)
        hill, net, head = segments.hill[node], segments.net[node], node
        while heap >= 0:
            if net > 0 and segments.key[heap] > hill - net:
                break
            least = heap
            heap = meld(segments, segments.left[least], segments.right[least])
            hill = max(segments.hill[least], segments.net[least] + hill)
            net += segments.net[least]
            segments.following[least] = head
            head = segments.first[least]
        segments.hill[node] = hill
        segments.net[node] = net
        segments.key[node] = hill - net
        segments.first[node] = head
        segments.heap[node] = heap
    root = segments.heap.shape[0] - 1
    heap = int(segments.heap[root])
    # The smallest segment comes last. As segments leave the heap, each points to the one that left before it.
    behind = root
    while heap >= 0:
        least = heap
        heap = meld(segments, segments.left[least], segments.right[least])
        segments.heap[least] = behind
        behind = least
    count = 0
    while behind != root:
        count = write_down(segments, behind, count)
        behind = int(segments.heap[behind])
    write_down(segments, root, count)


def write_down(segments: Segments, segment: int, count: int) -> int:
    """Append the nodes of a segment to the traversal; return the new number of nodes."""
    node = segments.first[segment]
    while node >= 0:
        segments.order[count] = node
        count += 1
        node = segments.following[node]
    return count


def before(segments: Segments, one: int, other: int) -> bool:
    """Whether a segment precedes another one."""
    a, b = segments.key[one], segments.key[other]
    return a < b or (a == b and one < other)


def meld(segments: Segments, one: int, other: int) -> int:
    """Meld two heaps; return the smallest segment."""
    if one < 0:
        return other
    if other < 0:
        return one
    if before(segments, other, one):
        one, other = other, one
    top = one
    while True:
        below = segments.right[one]
        segments.right[one] = segments.left[one]
        if below < 0:
            segments.left[one] = other
            return top
        if before(segments, other, below):
            segments.left[one] = other
            one, other = other, below
        else:
            segments.left[one] = below
            one = below


TRAVERSE = Kernel(traverse)


def traversal(inner: IntArray, start: IntArray, end: IntArray, hill: IntArray, net: IntArray) -> IntArray:
    """Return the traversal of minimum peak, given `hill` = m + f and `net` = f minus the bytes read, per node."""
    n = len(hill)
    none = np.full((4, n), -1, dtype=np.int64)
    segments = Segments(
        hill=np.array(hill),
        net=np.array(net),
        key=hill - net,
        first=np.arange(n, dtype=np.int64),
        following=none[0],
        left=none[1],
        right=none[2],
        heap=none[3],
        order=np.empty(n, dtype=np.int64),
    )
    TRAVERSE.bind(Tree(*map(np.ascontiguousarray, (inner, start, end))), segments)()
    return segments.order
