"""Occupancy of one resource modulo a period: arcs of a circle, and the first gap on it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from remat.units import Number


class Circle:
    """Disjoint intervals of time that repeat every period; adjacent intervals are merged.

    Parameters
    ----------
    period : number
        Positive.
    slack : number
        Tolerance of times; 0 for integers.
    """

    def __init__(self, period: Number, slack: Number) -> None:
        self._period, self._slack = period, slack
        # Where intervals begin or end within the period, including the seams of merged intervals.
        self._seams: list[Number] = []
        # Where each interval begins within the period, ascending; and its first and last instant as passed to `add`.
        self._phases: list[Number] = []
        self._spans: list[tuple[Number, Number]] = []

    def first_free(self, when: Number, length: Number) -> Number | None:
        """Return the first instant from `when` on at which a gap of this length begins; None if there is none.

        Notes
        -----
        A binary search, and one step for each interval that blocks the gap.
        """
        phases, spans, period, slack = self._phases, self._spans, self._period, self._slack
        count = len(phases)
        if not count:
            return when
        phase = when % period
        # By rounding, an interval of length 0 may begin within another one: look one further back. The gap around
        # `when` occurs once more at the end, complete.
        zero, back = when - phase, bisect_right(phases, phase) - 2
        for step in range(back, back + count + 3):
            turn, at = divmod(step, count)
            begin = zero + turn * period + phases[at]
            if begin >= when + length - slack:
                return when
            first, last = spans[at]
            end = last + round((begin - first) / period) * period
            if when < end - slack:
                if not length:
                    return self._seam(when)
                when = end
        return None

    def _seam(self, when: Number) -> Number:
        """Return the first seam from `when` on: steps that take no time fit there."""
        phase = when % self._period
        at = bisect_left(self._seams, phase - self._slack)
        if at < len(self._seams):
            return max(when, when - phase + self._seams[at])
        return when - phase + self._period + self._seams[0]

    def add(self, begin: Number, end: Number) -> None:
        """Mark the resource busy between two instants; it was free until now."""
        phases, spans = self._phases, self._spans
        phase = begin % self._period
        insort(self._seams, phase)
        insort(self._seams, end % self._period)
        at = (bisect_right if end > begin else bisect_left)(phases, phase)
        if begin == end and phases:
            first, last = spans[at - 1]
            if (begin - first) % self._period < last - first:
                return  # at a seam within a merged interval
        phases.insert(at, phase)
        spans.insert(at, (begin, end))
        at -= self._join(at, (at + 1) % len(phases))
        self._join((at - 1) % len(phases), at)

    def _join(self, one: int, other: int) -> int:
        """Merge two neighbours if they touch; return by how many positions the first of them moves up."""
        (begin, end), (first, last) = self._spans[one], self._spans[other]
        turns = round((end - first) / self._period)
        if one == other or abs(end - first - turns * self._period) > self._slack:
            return 0
        self._spans[one] = (begin, last + turns * self._period)
        del self._phases[other], self._spans[other]
        return int(other < one)
