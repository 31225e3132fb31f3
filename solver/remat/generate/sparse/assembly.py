"""Assembly trees: supernodes of the elimination tree, amalgamated, with the sizes of their fronts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remat.generate.sparse.etree import column_counts, postordered
from remat.generate.sparse.pattern import Pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Storage of the entries of fronts and factors.

    Attributes
    ----------
    symmetric : bool
        Fronts keep one triangle; otherwise they are full squares.
    factors_in_core : bool
        The factors stay in memory, in a separate permanent area; otherwise they leave it as soon as they are computed.
    entry_bytes : int
        Bytes of one entry; 1 counts entries.
    """

    symmetric: bool = False
    factors_in_core: bool = False
    entry_bytes: int = 1

    def square(self, order: int) -> int:
        """Size of a front or contribution block of this order."""
        return (order * (order + 1) // 2 if self.symmetric else order * order) * self.entry_bytes


@dataclass(frozen=True)
class AssemblyTree:
    """Nodes in post-order (children first, the root last).

    Attributes
    ----------
    parent : list of int
        -1 for the root.
    pivots : list of int
        eta, the columns that a node eliminates; 0 for a virtual root that joins a forest.
    border : list of int
        cb, the order of its contribution block; the front's order is eta + cb.
    factor_entries : int
        Entries of one triangular factor, before amalgamation.
    """

    parent: list[int]
    pivots: list[int]
    border: list[int]
    factor_entries: int

    def __len__(self) -> int:
        return len(self.parent)

    def body(self, storage: Storage) -> dict[str, Any]:
        """Return the keys of a `tree` document: f = cb^2, m = (eta + cb)^2 - cb^2, and the work as time.

        The work of a node is the sum of the squares of the orders that its front shrinks through.
        """
        output = [storage.square(border) for border in self.border]
        fronts = [storage.square(eta + cb) for eta, cb in zip(self.pivots, self.border, strict=True)]
        work = [_squares(eta + cb) - _squares(cb) for eta, cb in zip(self.pivots, self.border, strict=True)]
        body: dict[str, Any] = {
            "parent": self.parent,
            "output_size": output,
            "workspace": [front - block for front, block in zip(fronts, output, strict=True)],
            "time": work,
        }
        if storage.factors_in_core:
            body["static_memory"] = sum(body["workspace"])
        return body


def _squares(n: int) -> int:
    return n * (n + 1) * (2 * n + 1) // 6


def assembly_tree(pattern: Pattern, *, relax: int = 0) -> AssemblyTree:
    """Return the assembly tree of a matrix in its given order.

    Nodes are fundamental supernodes (Liu, Ng and Peyton 1993): column j + 1 continues the supernode of j if j is its
    only child and its column is that of j without the first entry. Then, from the leaves up, each node absorbs children
    while it eliminates at most `relax` columns. Children whose absorption adds the fewest zeros come first (CHOLMOD's
    first rule). Children of an absorbed child become children of the node. A virtual root without columns joins a
    forest.

    Parameters
    ----------
    pattern : Pattern
        A pattern of order 1 or more.
    relax : int
        Maximum number of columns of a node that has absorbed children; 0 and 1 absorb nothing.

    Returns
    -------
    AssemblyTree
        Its pivots sum to the order of the matrix.
    """
    ordered, _, column_parent = postordered(pattern)
    counts = column_counts(ordered, column_parent)
    parent, pivots, border = _supernodes(column_parent, counts)
    if relax > 1:
        parent, pivots, border = _amalgamated(parent, pivots, border, relax)
    roots = [node for node, above in enumerate(parent) if above < 0]
    if len(roots) > 1:
        for root in roots:
            parent[root] = len(parent)
        parent.append(-1)
        pivots.append(0)
        border.append(0)
    return AssemblyTree(parent, pivots, border, sum(counts))


def _supernodes(parent: Sequence[int], counts: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    n = len(parent)
    children = [0] * n
    for above in parent:
        if above >= 0:
            children[above] += 1
    number: list[int] = []
    last: list[int] = []  # the last column of each supernode
    pivots: list[int] = []
    for j in range(n):
        if j and parent[j - 1] == j and children[j] == 1 and counts[j] == counts[j - 1] - 1:
            last[-1] = j
            pivots[-1] += 1
        else:
            last.append(j)
            pivots.append(1)
        number.append(len(last) - 1)
    condensed = [number[parent[j]] if parent[j] >= 0 else -1 for j in last]
    return condensed, pivots, [counts[j] - 1 for j in last]


def _amalgamated(
    parent: list[int], pivots: list[int], border: list[int], relax: int
) -> tuple[list[int], list[int], list[int]]:
    """Let each node, from the leaves up, absorb children up to `relax` columns; O(n log n)."""
    n = len(parent)
    children: list[list[int]] = [[] for _ in range(n)]
    for node, above in enumerate(parent):
        if above >= 0:
            children[above].append(node)
    eta = list(pivots)
    for node in range(n):
        # Zeros added by child c: eta_c columns grow from cb_c to eta + cb rows; the larger cb_c, the fewer in each.
        below = sorted((eta[c] * (eta[node] + border[node] - border[c]), c) for c in children[node])
        chosen = []
        room = relax - eta[node]
        for _, child in below:
            if eta[child] <= room:
                chosen.append(child)
                room -= eta[child]
        if not chosen:
            continue
        taken = set(chosen)
        kept = [c for c in children[node] if c not in taken]
        for child in chosen:
            eta[node] += eta[child]
            kept += children[child]
        children[node] = kept
    # The same nodes, renumbered by a post-order of what is left.
    stack = [node for node in range(n) if parent[node] < 0]
    order: list[int] = []
    while stack:
        node = stack.pop()
        order.append(node)
        stack += sorted(children[node])
    order.reverse()
    place = {node: position for position, node in enumerate(order)}
    above_of = [-1] * len(order)
    for node in order:
        for child in children[node]:
            above_of[place[child]] = place[node]
    return above_of, [eta[node] for node in order], [border[node] for node in order]
