"""Elimination trees: the tree itself, post-orders, and the column counts of the factor without the factor."""

from __future__ import annotations

from collections.abc import Sequence

from remat.generate.sparse.pattern import Pattern


def elimination_tree(pattern: Pattern) -> list[int]:
    """Return the parent of every column in the elimination tree; -1 for roots.

    Liu 1986: column j becomes the parent of the root of each neighbour i < j; the paths to the roots are
    compressed. Nearly O(entries).
    """
    parent = [-1] * len(pattern)
    shortcut = [-1] * len(pattern)
    for j, neighbours in enumerate(pattern.lists()):
        for i in neighbours:
            if i >= j:
                break
            while shortcut[i] != -1 and shortcut[i] != j:
                above = shortcut[i]
                shortcut[i] = j
                i = above
            if shortcut[i] == -1:
                shortcut[i] = j
                parent[i] = j
    return parent


def postorder(parent: Sequence[int]) -> list[int]:
    """Return a post-order of a forest, children by rising number; O(n), without recursion."""
    n = len(parent)
    children: list[list[int]] = [[] for _ in range(n)]
    stack: list[int] = []
    for node in range(n):
        (stack if parent[node] < 0 else children[parent[node]]).append(node)
    # "Parent first, children last to first", backwards.
    order = []
    while stack:
        node = stack.pop()
        order.append(node)
        stack += children[node]
    order.reverse()
    return order


def postordered(pattern: Pattern) -> tuple[Pattern, list[int], list[int]]:
    """Renumber a pattern by a post-order of its elimination tree, which changes no fill.

    Returns
    -------
    pattern : Pattern
    order : list of int
        What was index ``order[i]`` is index i.
    parent : list of int
        The elimination tree in the new numbers.
    """
    parent = elimination_tree(pattern)
    order = postorder(parent)
    place = [0] * len(order)
    for position, node in enumerate(order):
        place[node] = position
    return pattern.permuted(order), order, [place[parent[node]] if parent[node] >= 0 else -1 for node in order]


def column_counts(pattern: Pattern, parent: Sequence[int]) -> list[int]:
    """Return the entries of each column of the Cholesky factor, the diagonal included.

    The algorithm of Gilbert, Ng and Peyton 1994 counts row subtrees by their leaves. Column j is a leaf of row i's
    subtree if A has the entry (i, j) and no entry of row i in a descendant of j. Each further leaf overlaps with the
    previous leaf from their lowest common ancestor on. Nearly O(entries).

    Parameters
    ----------
    pattern : Pattern
        Numbered by a post-order of its elimination tree (`postordered`).
    parent : sequence of int
        The elimination tree.
    """
    n = len(pattern)
    first = list(range(n))  # the first descendant of each column
    leaf = [True] * n
    for j in range(n):
        above = parent[j]
        if above >= 0:
            leaf[above] = False
            first[above] = min(first[above], first[j])
    counts = [int(leaf[j]) for j in range(n)]
    previous_leaf = [-1] * n
    latest_first = [-1] * n
    ancestor = list(range(n))
    for j, neighbours in enumerate(pattern.lists()):
        above = parent[j]
        if above >= 0:
            counts[above] -= 1
        for i in reversed(neighbours):
            if i <= j:
                break
            if first[j] <= latest_first[i]:
                continue
            latest_first[i] = first[j]
            counts[j] += 1
            other = previous_leaf[i]
            previous_leaf[i] = j
            if other >= 0:
                common = other
                while ancestor[common] != common:
                    common = ancestor[common]
                while ancestor[other] != common:
                    ancestor[other], other = common, ancestor[other]
                counts[common] -= 1
        if above >= 0:
            ancestor[j] = above
    for j in range(n):
        if parent[j] >= 0:
            counts[parent[j]] += counts[j]
    return counts
