"""Orders as strings of segments, and the combination of the best strings of two sets of tasks.

A segment is a run of consecutive tasks with two figures: its hill h (maximum bytes above its start) and its net n
(bytes that it leaves behind). Segments that release memory (n < 0) come early, in ascending order of hill. The others
(n >= 0) come late, in descending order of h - n:

    key = (0, h)  if n < 0,   (1, n - h)  if n >= 0.

Liu 1987 (trees: n >= 0), Abdel-Wahab and Kameda 1978 (series-parallel precedence). A string is kept in normal form: its
keys are strictly ascending. If the next segment's key is not larger, the two become one segment with
h = max(h_1, n_1 + h_2), n = n_1 + n_2. Parallel composition merges strings by key. Series composition concatenates them
and normalizes at the seam.
"""

from __future__ import annotations

from bisect import insort

Segment = tuple[tuple[int, int], int, int, int, int, int]
"""Key, serial number (which orders equal keys), hill, net, first and last task."""

String = list[Segment]


class Strings:
    """The strings of sets of tasks; each task belongs to one of them.

    Parameters
    ----------
    hill, net : list of int
        Hill and net of each task.
    """

    def __init__(self, hill: list[int], net: list[int]) -> None:
        self._hill, self._net = hill, net
        self._next = [-1] * len(hill)
        self._serial = 0

    def single(self, task: int) -> String:
        """Return the string of one task."""
        return [self._segment(self._hill[task], self._net[task], task, task)]

    def parallel(self, one: String, other: String) -> String:
        """Merge two strings without precedence between them; consumes both. O(the shorter, times log)."""
        if len(one) < len(other):
            one, other = other, one
        if len(other) * 8 < len(one):
            for segment in other:
                insort(one, segment)
        else:
            one += other
            one.sort()  # two ascending runs: merged in linear time
        return one

    def series(self, one: String, other: String) -> String:
        """Concatenate two strings; consumes both."""
        taken = 0
        pending: Segment | None = None
        while taken < len(other):
            segment = other[taken] if pending is None else self._joined(pending, other[taken])
            taken += 1
            while one and one[-1][0] >= segment[0]:
                segment = self._joined(one.pop(), segment)
            pending = segment
            if taken == len(other) or other[taken][0] > pending[0]:
                break
        if pending is None:
            return one
        if len(one) < len(other) - taken:
            other[:taken] = [*one, pending]
            return other
        one.append(pending)
        one += other[taken:]
        return one

    def order(self, string: String) -> list[int]:
        """Return the tasks of a string."""
        tasks = []
        for segment in string:
            task = segment[4]
            tasks.append(task)
            while task != segment[5]:
                task = self._next[task]
                tasks.append(task)
        return tasks

    def _segment(self, hill: int, net: int, first: int, last: int) -> Segment:
        self._serial += 1
        return ((0, hill) if net < 0 else (1, net - hill), self._serial, hill, net, first, last)

    def _joined(self, one: Segment, other: Segment) -> Segment:
        self._next[one[5]] = other[4]
        return self._segment(max(one[2], one[3] + other[2]), one[3] + other[3], one[4], other[5])


def highest(string: String) -> int:
    """Return the maximum bytes above the start of a string."""
    top = held = 0
    for _, _, hill, net, _, _ in string:
        top = max(top, held + hill)
        held += net
    return top
