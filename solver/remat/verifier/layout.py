"""Check addresses: residencies that live in a memory at the same time must not overlap in address.

The check shares no code with the search for addresses. A sweep over time keeps the ranges in use in one sorted list.
It compares a new range with its neighbours only: ranges in the list are disjoint, since overlaps are reported and cut.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from remat.graph.taskgraph import IntArray
from remat.verifier.findings import Findings

HIGHEST = 2**63 - 1
"""Ends beyond the range of int64 are cut to this number, which is beyond every memory."""

CHUNK = 1000
"""Ranges that are kept in one list; twice as many are split."""

NONE = -1


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Residencies in one memory, with addresses.

    Attributes
    ----------
    first, last : (residencies,) int64
        Half-open interval of positions in the order of all events. A residency that ends where another begins does not
    overlap it in time.
    size, offset : (residencies,) int64
    hosts : mapping of residency to residencies, as (guest, host) rows: (pairs, 2) int64
        Pairs that may overlap: a guest is an output that its run writes in place over inputs that the run frees.
    arena : int or None
        End of the memory.
    alignment : int
    fixed : (residencies,) int64, optional
        Prescribed offset of each residency; -1: any.
    reserved : sequence of (int, int)
        Ranges of addresses that no residency may use.
    """

    first: IntArray
    last: IntArray
    size: IntArray
    offset: IntArray
    names: Sequence[str]
    hosts: IntArray | None = None
    arena: int | None = None
    alignment: int = 1
    fixed: IntArray | None = None
    reserved: Sequence[tuple[int, int]] = ()


def check_layout(placed: Placed, findings: Findings, step_of: IntArray | None = None) -> int:
    """Report violations of a layout; return its arena, the end of the highest residency.

    Parameters
    ----------
    placed : Placed
    findings : Findings
        Receives violations of the rules ``address-overlap`` and ``address-range``.
    step_of : (residencies,) int64, optional
        The step at which each residency begins; -1: before the first one.
    """

    def tell(row: int, rule: str, text: str) -> None:
        step = None if step_of is None or step_of[row] < 0 else int(step_of[row])
        findings.add(step, rule, f"{placed.names[row]} {text}")

    end = _ends(placed)
    for row in np.flatnonzero(placed.offset < 0).tolist():
        tell(row, "address-range", f"is at {placed.offset[row]}, below the memory")
    if placed.arena is not None:
        for row in np.flatnonzero(end > placed.arena).tolist():
            tell(row, "address-range", f"ends at {end[row]}, beyond the {placed.arena} bytes of the memory")
    for row in np.flatnonzero(placed.offset % placed.alignment).tolist():
        tell(row, "address-range", f"is at {placed.offset[row]}, which is not a multiple of {placed.alignment}")
    if placed.fixed is not None:
        for row in np.flatnonzero((placed.fixed >= 0) & (placed.fixed != placed.offset)).tolist():
            tell(row, "address-range", f"is at {placed.offset[row]}, but is fixed at {placed.fixed[row]}")
    for low, high in placed.reserved:
        for row in np.flatnonzero((placed.offset < high) & (end > low) & (placed.size > 0)).tolist():
            tell(
                row, "address-range", f"is at {placed.offset[row]}-{end[row]}, which overlaps the reserved {low}-{high}"
            )
    for row, other in _overlaps(placed):
        where = f"{placed.offset[row]}-{end[row]}"
        tell(
            row,
            "address-overlap",
            f"is at {where}, which overlaps {placed.names[other]} at {placed.offset[other]}-{end[other]}",
        )
    return int(end.max()) if len(end) else 0


def _ends(placed: Placed) -> IntArray:
    """Return the address after each residency."""
    return np.minimum(placed.offset, HIGHEST - placed.size) + placed.size


def _overlaps(placed: Placed) -> Iterator[tuple[int, int]]:
    """Yield each residency that overlaps an earlier one in time and address, with one of those earlier ones."""
    hosts: dict[int, set[int]] = {}
    if placed.hosts is not None:
        for guest, host in placed.hosts.tolist():
            hosts.setdefault(guest, set()).add(host)
    count = len(placed.size)
    # At one position ends come first; of what begins at one, the order does not matter.
    time = np.concatenate((placed.last, placed.first))
    kind = np.repeat((0, 1), count)
    events = np.lexsort((kind, time))
    kept = np.tile((placed.size > 0) & (placed.first < placed.last), 2)
    in_use = _Ranges()
    offset, end = placed.offset.tolist(), _ends(placed).tolist()
    nothing: set[int] = set()
    for event in events[kept[events]].tolist():
        if event < count:
            in_use.remove(event)
            continue
        row = event - count
        allowed = hosts.get(row, nothing)
        other = in_use.add(row, offset[row], end[row], allowed, placed.last)
        if other != NONE:
            yield row, other


class _Ranges:
    """Disjoint ranges of addresses in use, by ascending address, in chunks."""

    def __init__(self) -> None:
        self._chunks: list[list[tuple[int, int, int]]] = [[]]
        self._lows: list[tuple[int, int, int]] = []
        self._of: dict[int, list[tuple[int, int, int]]] = {}

    def add(self, row: int, low: int, high: int, allowed: set[int], last: IntArray) -> int:
        """Add the range of a residency; return one that it may not overlap, or `NONE`.

        It takes over the addresses that it shares with a host, since it outlives the host. Overlapping ranges are cut
        to keep all ranges disjoint.
        """
        found = NONE
        for piece in self._touched(low, high):
            _, _, owner = piece
            if owner not in allowed or last[owner] > last[row]:
                found = owner
            self._drop(piece)
            if piece[0] < low:
                self._put((piece[0], low, owner))
            if piece[1] > high:
                self._put((high, piece[1], owner))
        self._put((low, high, row))
        return found

    def remove(self, row: int) -> None:
        """Remove the addresses that a residency still holds."""
        for piece in list(self._of.get(row, ())):
            self._drop(piece)
        self._of.pop(row, None)

    def _touched(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """Return the ranges in use that overlap a given range, lowest first."""
        found: list[tuple[int, int, int]] = []
        number = max(bisect_right(self._lows, (low, -1, -1)) - 1, 0)
        # The last range that begins before `low` may reach into it; it is in this chunk, or in the one before.
        chunk = self._chunks[number]
        place = bisect_left(chunk, (low, -1, -1))
        if place > 0:
            if chunk[place - 1][1] > low:
                found.append(chunk[place - 1])
        elif number > 0 and self._chunks[number - 1][-1][1] > low:
            found.append(self._chunks[number - 1][-1])
        while number < len(self._chunks):
            chunk = self._chunks[number]
            while place < len(chunk):
                if chunk[place][0] >= high:
                    return found
                found.append(chunk[place])
                place += 1
            number, place = number + 1, 0
        return found

    def _put(self, piece: tuple[int, int, int]) -> None:
        self._of.setdefault(piece[2], []).append(piece)
        if not self._lows:
            self._chunks, self._lows = [[piece]], [piece]
            return
        number = max(bisect_right(self._lows, piece) - 1, 0)
        chunk = self._chunks[number]
        insort(chunk, piece)
        self._lows[number] = chunk[0]
        if len(chunk) > 2 * CHUNK:
            self._chunks[number : number + 1] = [chunk[:CHUNK], chunk[CHUNK:]]
            self._lows[number : number + 1] = [chunk[0], chunk[CHUNK]]

    def _drop(self, piece: tuple[int, int, int]) -> None:
        self._of[piece[2]].remove(piece)
        number = max(bisect_right(self._lows, piece) - 1, 0)
        chunk = self._chunks[number]
        del chunk[bisect_left(chunk, piece)]
        if chunk:
            self._lows[number] = chunk[0]
        elif len(self._chunks) > 1:
            del self._chunks[number], self._lows[number]
        else:
            self._lows = []
