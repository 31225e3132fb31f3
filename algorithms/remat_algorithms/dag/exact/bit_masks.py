"""Sums and unions over sets that are bit masks, one byte at a time."""

from __future__ import annotations

from collections.abc import Sequence


class Sums:
    """Table for sums of weights over the members of a set.

    Parameters
    ----------
    weights : sequence of int
        Weights of bit 0, bit 1, ...
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self._tables = [_sums(weights[first : first + 8]) for first in range(0, len(weights), 8)]

    def of(self, mask: int) -> int:
        """Return the sum over the members of a set."""
        total = 0
        for table in self._tables:
            if not mask:
                break
            total += table[mask & 255]
            mask >>= 8
        return total


class Unions:
    """Table for unions of sets over the members of a set.

    Parameters
    ----------
    sets : sequence of int
        Sets of bit 0, bit 1, ...
    """

    def __init__(self, sets: Sequence[int]) -> None:
        self._tables = [_unions(sets[first : first + 8]) for first in range(0, len(sets), 8)]

    def of(self, mask: int) -> int:
        """Return the union over the members of a set."""
        union = 0
        for table in self._tables:
            if not mask:
                break
            union |= table[mask & 255]
            mask >>= 8
        return union


def members(mask: int) -> list[int]:
    """Return the members of a set, in ascending order."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def mask_of(items: Sequence[int]) -> int:
    """Return the set with these members."""
    mask = 0
    for item in items:
        mask |= 1 << item
    return mask


def _sums(weights: Sequence[int]) -> list[int]:
    table = [0]
    for weight in weights:
        table += [total + weight for total in table]
    return table


def _unions(sets: Sequence[int]) -> list[int]:
    table = [0]
    for one in sets:
        table += [union | one for union in table]
    return table
