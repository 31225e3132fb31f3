"""Dominance between sets with prices: a set is dominated by a subset that costs no more."""

from __future__ import annotations

from typing import Any


class Covers:
    """A trie of sets as bit masks, each with a price.

    Parameters
    ----------
    patience : int, optional
        Maximum number of nodes per query; a query that exceeds it answers no. Default: no limit.

    Notes
    -----
    A node is a dictionary. It maps a member, as its bit, to the node of the sets in which that member comes next, in
    ascending order. Key 0 holds the price of the set that ends at the node.
    """

    def __init__(self, patience: int | None = None) -> None:
        self._patience = patience
        self._root: dict[int, Any] = {}

    def add(self, mask: int, price: int) -> None:
        """Add a set, or lower its price."""
        node = self._root
        while mask:
            low = mask & -mask
            mask ^= low
            below = node.get(low)
            if below is None:
                below = node[low] = {}
            node = below
        node[0] = min(price, node.get(0, price))

    def has_part(self, mask: int, price: int) -> bool:
        """Whether the query finds, within its patience, a subset of this set (or itself) that costs at most `price`."""
        open_nodes = [self._root]
        left = self._patience
        while open_nodes:
            if left is not None:
                left -= 1
                if left < 0:
                    return False
            for member, below in open_nodes.pop().items():
                if member & mask:
                    open_nodes.append(below)
                elif not member and below <= price:
                    return True
        return False
