"""Layouts in an arena of a given size, by the search over floors (`remat_algorithms.layout.section_floors_kernel`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from remat.plugin import FREE, Buffers, IntArray
from remat_algorithms.layout import section_floors_kernel as kernel
from remat_algorithms.layout.live_bytes import arena_bound, rows_of

FIRST_NODES = 2000
"""Decisions of the first runs: a few milliseconds."""

SYSTEMATIC, SLICE = 0.2, 20_000
"""Share of the work for the run without a limit, and the number of decisions of its time slice."""

SCORES = 3

NOISES = (1, 50, 100, 200, 400)
"""Random amounts, in thousandths, added to the ranks of buffers when they are reordered."""


class Found(NamedTuple):
    """The result of a search.

    Attributes
    ----------
    status : int
        `SOLVED`, `INFEASIBLE` or `LIMIT` of the kernel.
    offset : (buffers,) int64 or None
    work : int
        Work done, in visits of a buffer in a section.
    """

    status: int
    offset: IntArray | None
    work: int


@dataclass(frozen=True)
class Floors:
    """Plain buffers over sections, in units that divide all sizes and addresses.

    Attributes
    ----------
    count : int
        Buffers; the arrays have an additional row for each reserved range.
    capacity, unit : int
        Bytes of the arena, and of a unit.
    first, last, size, spare : (rows,) int64
        Sections, rounded size, and the amount that rounding added.
    fixed : (rows,) int64
        Fixed offset, or `FREE`.
    base : int
        The first address that is not reserved.
    begin, item, slot, position : int64
        The buffers of each section, and the position of each buffer in it.
    scores : (3, rows) int64
        Ranks by area, size and length, in thousandths.
    """

    count: int
    capacity: int
    unit: int
    first: IntArray
    last: IntArray
    size: IntArray
    spare: IntArray
    fixed: IntArray
    base: int
    begin: IntArray
    item: IntArray
    slot: IntArray
    position: IntArray
    scores: IntArray

    @classmethod
    def of(cls, buffers: Buffers, capacity: int, *, every: bool = False) -> Floors:
        """Build the tables for an arena of `capacity` bytes; reserved ranges above it do not count.

        `every` is that of `sections_of`.
        """
        most = -(-capacity // buffers.alignment) * buffers.alignment
        blocked = [(low, min(high, most)) for low, high in buffers.blocked if low < most]
        base = blocked.pop(0)[1] if blocked and blocked[0][0] == 0 else 0
        sections, first, last, size, fixed = rows_of(buffers, blocked, every=every)
        spare = np.zeros(len(size), dtype=np.int64)
        spare[: len(buffers)] = buffers.rounded - buffers.size
        unit = int(np.gcd.reduce(np.concatenate((size, fixed[fixed >= 0], [base])), initial=0))
        length = last - first
        slot = np.cumsum(length) - length
        owner = np.repeat(np.arange(len(size), dtype=np.int64), length)
        section = np.arange(len(owner), dtype=np.int64) - np.repeat(slot - first, length)
        order = np.argsort(section, kind="stable")
        position = np.empty(len(order), dtype=np.int64)
        position[order] = np.arange(len(order), dtype=np.int64)
        begin = np.searchsorted(section[order], np.arange(sections + 1)).astype(np.int64)
        area = size.astype(np.float64) * length
        ranks = (np.lexsort((size, area)), np.lexsort((length, size)), np.lexsort((size, length)))
        scores = np.empty((3, len(size)), dtype=np.int64)
        for row, rank in zip(scores, ranks, strict=True):
            row[rank] = np.arange(len(size), dtype=np.int64) * 1000 // max(len(size), 1)
        return cls(
            count=len(buffers),
            capacity=capacity,
            unit=unit,
            first=first,
            last=last,
            size=size // unit,
            spare=spare,
            fixed=np.where(fixed >= 0, fixed // unit, FREE),
            base=base // unit,
            begin=begin,
            item=owner[order],
            slot=slot,
            position=position,
            scores=scores,
        )


class FloorSearch:
    """A search for a layout of plain buffers in an arena of one size, which can be continued.

    Most runs order buffers by one of three scores plus noise. They stop early, since a run rarely corrects a wrong
    decision near its beginning; their limits follow Luby's sequence. Half of these runs use all sections and no
    dominance, which leaves more layouts to find. A share of the work goes to one run without a limit, which eventually
    finds a layout or proves that none exists.

    Parameters
    ----------
    buffers : Buffers
        Without groups.
    capacity : int
        Bytes of the arena.
    seed : int
    """

    def __init__(self, buffers: Buffers, capacity: int, seed: int = 0) -> None:
        self.capacity = capacity
        self._seed, self._restart, self._spent, self._patient = seed, 0, 0, 0
        self._last: _Run | None = None
        self._known: Found | None = None
        if arena_bound(buffers) > capacity:
            self._known = Found(kernel.INFEASIBLE, None, 0)
        elif not len(buffers):
            self._known = Found(kernel.SOLVED, np.zeros(0, dtype=np.int64), 0)
        else:
            floors = [Floors.of(buffers, capacity, every=loose) for loose in (False, True)]
            self._arenas = [_Arena(each, loose=loose) for loose, each in enumerate(floors)]
            if self._arenas[0].misfit:
                self._known = Found(kernel.INFEASIBLE, None, 0)

    def go_on(self, work: int, stopped: Callable[[], bool]) -> Found:
        """Search until a layout is found, all are excluded, or this much more work is done."""
        if self._known is not None:
            return self._known
        begin = self._spent
        while self._spent - begin < work and not stopped():
            found = self._go_on()
            self._spent += found.work
            if found.status != kernel.LIMIT:
                return found._replace(work=self._spent - begin)
        return Found(kernel.LIMIT, None, self._spent - begin)

    def _go_on(self) -> Found:
        """Do one short run, or a slice of the long one."""
        last = self._last
        if self._patient < SYSTEMATIC * self._spent:
            if last is None or last.is_full:
                room = 1 if last is None else 2 * last.room
                self._last = last = _Run(self._arenas[0], 0, 1, self._seed, room)
            found = last.go_on(SLICE)
            self._patient += found.work
            return found
        turn, kind = divmod(self._restart, 2 * SCORES)
        loose, score = divmod(kind, SCORES)
        run = _Run(self._arenas[loose], score, NOISES[turn % len(NOISES)], self._seed + self._restart)
        self._restart += 1
        return run.go_on(FIRST_NODES * _luby(turn + 1))


class _Arena:
    """The tables that all runs in an arena of one size share."""

    def __init__(self, floors: Floors, *, loose: int) -> None:
        sections = len(floors.begin) - 1
        self.floors, unit, capacity = floors, floors.unit, floors.capacity
        exact = not floors.spare.any()
        self.capacity = capacity // unit if exact else -(-capacity // unit)
        self.is_fixed = floors.fixed >= 0
        # Rounded sizes may end above the capacity although the true sizes do not.
        top = (capacity - floors.size * unit + floors.spare) // unit
        top[floors.count :] = floors.fixed[floors.count :]
        self.top = np.where(self.is_fixed, floors.fixed, top)
        self.lowest = np.where(self.is_fixed, floors.fixed, floors.base)
        self.misfit = bool((self.lowest > top).any())
        pinned = np.zeros(sections + 1, dtype=np.int64)
        for column, sign in ((floors.first, 1), (floors.last, -1)):
            np.add.at(pinned, column[self.is_fixed], sign)
        self.pinned = np.cumsum(pinned)[:sections]
        if loose or (capacity % unit and not exact):  # a buffer that an exchange moves up might end above the capacity
            self.pinned += 1
        inside = np.zeros(sections + 2, dtype=np.int64)
        np.add.at(inside, floors.first + 1, 1)
        np.add.at(inside, floors.last, -1)
        self.crossing = np.cumsum(inside)[: sections + 1]
        self.count = np.diff(floors.begin)
        self.rest = np.zeros(sections, dtype=np.int64)
        np.add.at(self.rest, np.repeat(np.arange(sections), self.count), floors.size[floors.item])


class _Run:
    """One search that can be continued."""

    def __init__(self, arena: _Arena, score: int, noise: int, seed: int, room: int = 1) -> None:
        floors = arena.floors
        rows, sections = len(floors.size), len(arena.count)
        self.room = room
        self._arena, self._counts = arena, kernel.Counts()
        self._counts.noise, self._counts.random = noise, (seed * 7919 + 1) & 0x7FFFFFFF
        none = np.zeros(sections + 1, dtype=np.int64)
        least = 1 if arena.is_fixed.any() else int(floors.size.min())
        tables = kernel.Sections(
            floors.first,
            floors.last,
            floors.size,
            arena.top,
            floors.slot,
            floors.begin,
            floors.scores[score],
            arena.pinned,
            arena.capacity,
            least,
        )
        depth = room * (4 * (rows + sections) + 64)
        trail, choices, parts = (np.empty((depth * each, 2), dtype=np.int64) for each in (64, 16, 4))
        self._search = kernel.Search(
            np.full(sections, floors.base, dtype=np.int64),
            arena.rest.copy(),
            arena.count.copy(),
            arena.crossing.copy(),
            none[:-1].copy(),
            arena.lowest.copy(),
            np.full(rows, FREE, dtype=np.int64),
            floors.item.copy(),
            floors.position.copy(),
            none.copy(),
            none[:-1].copy(),
            trail,
            np.empty((depth, kernel.FIELDS), dtype=np.int64),
            choices,
            parts,
            self._counts,
        )
        self._run = kernel.RUN.bind(tables, self._search)

    @property
    def is_full(self) -> bool:
        """Whether the arrays are full, so that the run cannot continue."""
        return bool(self._counts.full)

    def go_on(self, nodes: int) -> Found:
        """Search for `nodes` more decisions."""
        counts, floors = self._counts, self._arena.floors
        before, counts.limit = counts.work, counts.nodes + nodes
        status = self._run()
        offset = self._search.offset[: floors.count] * floors.unit if status == kernel.SOLVED else None
        return Found(status, offset, max(int(counts.work - before), 1))


def _luby(index: int) -> int:
    """Return the index-th number, from 1 on, of 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8, ... (Luby et al. 1993)."""
    while True:
        power = (index + 1).bit_length() - 1
        if index + 1 == 1 << power:
            return 1 << (power - 1)
        index -= (1 << power) - 1
