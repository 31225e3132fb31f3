"""Checkpoints of a forward graph by dividing it: the division tree of Feng and Huang, for graphs of any width.

Feng and Huang 2018/2021 divide a graph into *closed sets*. A closed set lies between two vertices, and only these join
it to the rest. A set is a row of smaller sets (type 1), several parallel sets between the same two vertices (type 2),
or any other (type 3). For a largest segment of c bytes, the minimum checkpoint bytes follow from the leaves up:

- Each set between u and v has a table. For u and v stored or free, it lists the bytes stored inside against those of
  the open segments at u and at v. If these are connected inside, they are one segment. Rows and parallel sets combine
  their tables. If u is stored and v is the next stored vertex of a row, the entry is an edge of the paper's
  accessibility graph.
- In a set of type 3, the ends of all inner sets are stored. Then those that leave no segment above c are freed, the
  largest first, if necessary in exchange for smaller neighbours. The paper stores all of them, or none.

Sets of types 1 and 2 are found by removing vertices with one or two neighbours. The remainder is of type 3.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from operator import itemgetter
from typing import NamedTuple

FRONT = 20
"""Maximum number of table entries for one choice at its ends; longer lists are thinned."""

STORED, FREE = 0, 1
CHECKPOINT = -1


class Chosen(NamedTuple):
    """Vertices stored in a set: a tree, which joins the choices of two sets without a copy."""

    vertex: int
    left: Chosen | None
    right: Chosen | None


class Entry(NamedTuple):
    """A choice of vertices of a set to store.

    Attributes
    ----------
    stored : int
        Bytes of the vertices stored inside.
    first, second : int
        Bytes inside that are connected to the first and to the second end, if these are free.
    chosen : Chosen or None
    """

    stored: int
    first: int
    second: int
    chosen: Chosen | None


Entries = list[Entry]


class Table(NamedTuple):
    """The entries of a set between two ends.

    Attributes
    ----------
    apart : tuple of lists of Entry
        At ``2 * state of the first end + state of the second``, `STORED` or `FREE`: the ends are not connected.
    joined : list of Entry
        Both ends are free and connected: `first` has the bytes inside of their segment.
    """

    apart: tuple[Entries, Entries, Entries, Entries]
    joined: Entries


_NOTHING = Entry(0, 0, 0, None)
_EDGE = Table(([_NOTHING], [_NOTHING], [_NOTHING], []), [_NOTHING])


def divided_bytes(before: Sequence[Sequence[int]], weight: Sequence[int], limit: int) -> tuple[int, list[int]]:
    """Return checkpoints that leave segments of at most `limit` bytes, and their bytes, which are few.

    O(vertices) combinations of tables of at most `FRONT` entries.

    Parameters
    ----------
    before : sequence of sequences of int
        For each vertex the earlier ones that it is joined to.
    weight : sequence of int
        Bytes of each vertex.
    limit : int
    """
    checkpoints = _Division(before, weight, limit).checkpoints()
    return sum(weight[vertex] for vertex in checkpoints), checkpoints


def freed(
    before: Sequence[Sequence[int]], weight: Sequence[int], total: int, checkpoints: Sequence[int]
) -> tuple[int, list[int]]:
    """Free checkpoints, the largest first, while the sum of their bytes and of the largest segment falls."""
    groups = _Groups(before, weight, checkpoints)
    largest = groups.largest
    for vertex in sorted(checkpoints, key=lambda vertex: (-weight[vertex], vertex)):
        together = max(largest, groups.with_vertex(vertex))
        if together - weight[vertex] < largest:
            groups.free(vertex)
            total += together - largest - weight[vertex]
            largest = together
    return total, sorted(groups.stored)


def segments_of(before: Sequence[Sequence[int]], checkpoints: Iterable[int]) -> list[int]:
    """Return for each vertex the name (a vertex) of its component without the checkpoints, or `CHECKPOINT`."""
    groups = _Groups(before, [0] * len(before), checkpoints)
    return [CHECKPOINT if vertex in groups.stored else groups.name(vertex) for vertex in range(len(before))]


def largest_segment(before: Sequence[Sequence[int]], weight: Sequence[int], checkpoints: Iterable[int]) -> int:
    """Return the bytes of the largest connected component without the checkpoints."""
    return _Groups(before, weight, checkpoints).largest


class _Groups:
    """The segments that checkpoints leave, updated as checkpoints are freed one by one."""

    def __init__(self, before: Sequence[Sequence[int]], weight: Sequence[int], checkpoints: Iterable[int]) -> None:
        self.weight, self.stored = weight, set(checkpoints)
        self.near: list[list[int]] = [list(earlier) for earlier in before]
        for vertex, earlier in enumerate(before):
            for other in earlier:
                self.near[other].append(vertex)
        self.root = list(range(len(before)))
        self.total = [0 if vertex in self.stored else weight[vertex] for vertex in range(len(before))]
        for vertex, earlier in enumerate(before):
            for other in earlier:
                if vertex not in self.stored and other not in self.stored:
                    self._join(vertex, other)

    @property
    def largest(self) -> int:
        """Bytes of the largest segment."""
        return max((self.total[self._find(vertex)] for vertex in range(len(self.root))), default=0)

    def name(self, vertex: int) -> int:
        """Return the vertex that represents the segment of a free vertex."""
        return self._find(vertex)

    def with_vertex(self, vertex: int) -> int:
        """Bytes of the segment that would result from freeing a stored vertex."""
        return self.weight[vertex] + sum(self.total[root] for root in self._around(vertex))

    def instead_of(self, vertex: int, limit: int) -> list[int] | None:
        """Return neighbours to store in exchange for freeing a stored vertex; None if they take as many bytes.

        A segment that touches the vertex in one place is cut off there, the cheapest for its bytes first.
        """
        touching: dict[int, list[int]] = {}
        for other in self.near[vertex]:
            if other not in self.stored:
                touching.setdefault(self._find(other), []).append(other)
        over = self.weight[vertex] + sum(self.total[root] for root in touching) - limit
        spent, instead = 0, []
        single = [
            (self.weight[near[0]], self.total[root], near[0]) for root, near in touching.items() if len(near) == 1
        ]
        for price, size, other in sorted(single, key=lambda each: (each[0] / max(1, each[1]), each[2])):
            if over <= 0:
                break
            over -= size
            spent += price
            instead.append(other)
        return None if over > 0 or (instead and spent >= self.weight[vertex]) else instead

    def free(self, vertex: int) -> None:
        """Free a stored vertex."""
        around = self._around(vertex)
        self.stored.discard(vertex)
        self.total[vertex] = self.weight[vertex]
        for root in around:
            self._join(vertex, root)

    def _around(self, vertex: int) -> list[int]:
        return sorted({self._find(other) for other in self.near[vertex] if other not in self.stored})

    def _find(self, vertex: int) -> int:
        while self.root[vertex] != vertex:
            self.root[vertex] = self.root[self.root[vertex]]
            vertex = self.root[vertex]
        return vertex

    def _join(self, one: int, other: int) -> None:
        one, other = self._find(one), self._find(other)
        if one != other:
            self.root[one] = other
            self.total[other] += self.total[one]


class _Division:
    """A graph whose sets are replaced by tables, for one limit c on segments."""

    def __init__(self, before: Sequence[Sequence[int]], weight: Sequence[int], limit: int) -> None:
        self.before, self.weight, self.limit = before, weight, limit
        # For each vertex, the entries of the part that hangs on it alone, itself included: if stored, and if free.
        self.alone: list[tuple[Entries, Entries]] = [
            ([Entry(size, 0, 0, Chosen(vertex, None, None))], [Entry(0, size, 0, None)] if size <= limit else [])
            for vertex, size in enumerate(weight)
        ]
        # Tables between neighbours, at the smaller one; they begin at the smaller one.
        self.near: list[set[int]] = [set(earlier) for earlier in before]
        for vertex, earlier in enumerate(before):
            for other in earlier:
                self.near[other].add(vertex)
        self.tables: dict[tuple[int, int], Table] = {}

    def checkpoints(self) -> list[int]:
        """Return vertices to store."""
        left = self._reduced()
        found: list[int] = []
        for vertex in left:
            stored, free = self.alone[vertex]
            found += _vertices(_fewest(stored if self.near[vertex] else [*free, *stored]))
            for other in self.near[vertex]:
                if vertex < other:
                    found += _vertices(_fewest(self._table(vertex, other).apart[0]))
        groups = _Groups(self.before, self.weight, found)
        for vertex in sorted(left, key=lambda vertex: (-self.weight[vertex], vertex)):
            if vertex not in groups.stored:
                continue
            instead = groups.instead_of(vertex, self.limit)
            if instead:
                groups = _Groups(self.before, self.weight, [*(groups.stored - {vertex}), *instead])
            elif instead is not None:
                groups.free(vertex)
        return sorted(groups.stored)

    def _reduced(self) -> list[int]:
        """Replace rows and parallel sets by tables; return the remaining vertices, which are ends of sets of type 3."""
        rows: list[list[int]] = [[], [], []]
        for vertex, near in enumerate(self.near):
            if 1 <= len(near) <= 2:
                rows[len(near)].append(vertex)
        gone: set[int] = set()
        while rows[1] or rows[2]:
            vertex = (rows[1] or rows[2]).pop()
            neighbours = sorted(self.near[vertex])
            if vertex in gone or not 1 <= len(neighbours) <= 2:
                continue
            gone.add(vertex)
            if len(neighbours) == 1:
                self._hang(vertex, neighbours[0])
            else:
                self._bridge(vertex, *neighbours)
            for other in neighbours:
                if 1 <= len(self.near[other]) <= 2:
                    rows[len(self.near[other])].append(other)
        return [vertex for vertex in range(len(self.near)) if vertex not in gone]

    def _table(self, first: int, second: int) -> Table:
        """Return the table of the set between two neighbours, as seen from the first."""
        if first < second:
            return self.tables.get((first, second), _EDGE)
        table = self.tables.get((second, first), _EDGE)
        turned = [[entry._replace(first=entry.second, second=entry.first) for entry in row] for row in table.apart]
        return Table((turned[0], turned[2], turned[1], turned[3]), table.joined)

    def _part(self, vertex: int, other: int) -> Table:
        """Remove the set between two neighbours from the graph."""
        table = self._table(vertex, other)
        self.near[vertex].discard(other)
        self.near[other].discard(vertex)
        self.tables.pop((min(vertex, other), max(vertex, other)), None)
        return table

    def _hang(self, vertex: int, other: int) -> None:
        """Merge a vertex with one neighbour into the part that hangs on that neighbour."""
        table = self._part(other, vertex)
        states = []
        for state in (STORED, FREE):
            shut, loose, tied = self._halves(table, state, vertex)
            hanging = [Entry(one.stored, one.first, 0, one.chosen) for one in (*shut, *loose, *tied)]
            states.append(_front(self._summed(_front(hanging), self.alone[other][state])))
        self.alone[other] = states[0], states[1]

    def _bridge(self, vertex: int, first: int, second: int) -> None:
        """Replace a vertex between two neighbours by the row of the sets on both sides of it."""
        left, right = self._part(first, vertex), self._part(vertex, second)
        apart: list[Entries] = [[], [], [], []]
        joined: Entries = []
        for state in (STORED, FREE):
            shut, loose, tied = self._halves(left, state, vertex)
            for end in (STORED, FREE):
                found = apart[2 * state + end]
                found += (
                    Entry(one.stored + two.stored, one.first, two.second, _both(one, two))
                    for one, two in product(shut, right.apart[end])
                )
                found += self._closed(loose, right.apart[2 + end])
                found += self._hung(tied, right.apart[2 + end])
                if end == FREE:
                    found += self._hung(right.joined, [_turn(one) for one in loose], turned=True)
            joined += self._summed(tied, right.joined)
        row = Table((_front(apart[0]), _front(apart[1]), _front(apart[2]), _front(apart[3])), _front(joined))
        if second in self.near[first]:
            row = self._beside(self._part(first, second), row)
        self.near[first].add(second)
        self.near[second].add(first)
        self.tables[first, second] = row

    def _halves(self, table: Table, state: int, vertex: int) -> tuple[Entries, Entries, Entries]:
        """Join a set with the vertex at its second end and the part that hangs there, for a state of its first end.

        Returns
        -------
        (entries, entries, entries)
            The vertex is stored; it is free, and `second` has the bytes of its segment; it is free and connected
            to the first end, and `first` has the bytes of both.
        """
        stored, free = self.alone[vertex]
        shut = [
            Entry(one.stored + two.stored, one.first, 0, _both(one, two))
            for one, two in product(table.apart[2 * state], stored)
        ]
        loose = [
            Entry(one.stored + two.stored, one.first, one.second + two.first, _both(one, two))
            for one, two in product(table.apart[2 * state + 1], free)
            if one.second + two.first <= self.limit
        ]
        tied = self._summed(table.joined, free) if state == FREE else []
        return _front(shut), _front(loose), _front(tied)

    def _closed(self, ones: Entries, others: Entries) -> Iterator[Entry]:
        """Join two sets at a free vertex whose segment ends there."""
        for one, two in product(ones, others):
            if one.second + two.first <= self.limit:
                yield Entry(one.stored + two.stored, one.first, two.second, _both(one, two))

    def _hung(self, tied: Entries, others: Entries, *, turned: bool = False) -> Iterator[Entry]:
        """Join two sets at a free vertex whose segment is that of the first end; of the second end, if `turned`."""
        for one, two in product(tied, others):
            together = one.first + two.first
            if together <= self.limit:
                first, second = (two.second, together) if turned else (together, two.second)
                yield Entry(one.stored + two.stored, first, second, _both(one, two))

    def _summed(self, ones: Entries, others: Entries) -> Entries:
        """Add the parts that hang on one end in two sets."""
        return [
            Entry(one.stored + two.stored, one.first + two.first, 0, _both(one, two))
            for one, two in product(ones, others)
            if one.first + two.first <= self.limit
        ]

    def _beside(self, one: Table, other: Table) -> Table:
        """Join two parallel sets between the same two vertices."""
        rows = [
            [
                Entry(a.stored + b.stored, a.first + b.first, a.second + b.second, _both(a, b))
                for a, b in product(mine, its)
                if max(a.first + b.first, a.second + b.second) <= self.limit
            ]
            for mine, its in zip(one.apart, other.apart, strict=True)
        ]
        whole = [
            [entry._replace(first=entry.first + entry.second, second=0) for entry in table.apart[3]]
            for table in (one, other)
        ]
        joined = self._summed(one.joined, [*other.joined, *whole[1]]) + self._summed(whole[0], other.joined)
        return Table((_front(rows[0]), _front(rows[1]), _front(rows[2]), _front(rows[3])), _front(joined))


def _turn(entry: Entry) -> Entry:
    return entry._replace(first=entry.second, second=entry.first)


def _both(one: Entry, other: Entry) -> Chosen | None:
    if one.chosen is None or other.chosen is None:
        return one.chosen or other.chosen
    return Chosen(-1, one.chosen, other.chosen)


def _fewest(entries: Entries) -> Chosen | None:
    return min(entries, key=lambda entry: entry.stored).chosen


def _vertices(chosen: Chosen | None) -> Iterator[int]:
    waiting = [chosen]
    while waiting:
        one = waiting.pop()
        if one is not None:
            if one.vertex >= 0:
                yield one.vertex
            waiting += (one.left, one.right)


def _front(entries: Entries) -> Entries:
    """Remove dominated entries, and thin the rest evenly to at most `FRONT`."""
    if len(entries) < 2:
        return entries
    kept: Entries = []
    firsts: list[int] = []  # of the entries, ascending; `seconds` falls, because dominated entries are removed
    seconds: list[int] = []
    for entry in sorted(entries, key=itemgetter(0, 1, 2)):
        place = bisect_right(firsts, entry.first)
        if place and seconds[place - 1] <= entry.second:
            continue
        end = place
        while end < len(seconds) and seconds[end] >= entry.second:
            end += 1
        firsts[place:end], seconds[place:end] = [entry.first], [entry.second]
        kept.append(entry)
    if len(kept) <= FRONT:
        return kept
    return [kept[k * (len(kept) - 1) // (FRONT - 1)] for k in range(FRONT)]
