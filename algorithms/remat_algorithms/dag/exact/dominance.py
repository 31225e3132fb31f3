"""Sets at a price, and whether one of them is a part of another set and costs no more."""

from __future__ import annotations

from typing import Any


class Covers:
    """A trie of sets as bit masks, each with a price.

    Parameters
    ----------
    patience : int, optional
        Nodes after which a question is answered in the negative; default: none are too many.

    Notes
    -----
    A node is a dictionary from a member, as its bit, to the node of the sets that have it as their next one, lowest
    first; under 0 is the price of the set that ends there.
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
        """Whether some set, this one or a part of it, costs no more than `price`, as far as patience goes."""
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
