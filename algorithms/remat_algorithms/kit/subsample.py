"""Evenly spaced subsample of a list, including its first and last entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Entry = TypeVar("Entry")


def spread_out(entries: Sequence[Entry], count: int) -> list[Entry]:
    """Return at most `count` of the entries, in order."""
    if len(entries) <= count:
        return list(entries)
    if count == 1:
        return [entries[-1]]
    return [entries[round(index * (len(entries) - 1) / (count - 1))] for index in range(count)]
