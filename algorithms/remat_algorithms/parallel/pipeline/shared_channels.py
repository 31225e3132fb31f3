"""Periodic patterns where transfers share channels with those of other stages, or occupy devices.

As in 1F1B*, times are found from the last stage to the first. Each backward and its transfer begin as soon as their
resources are free modulo the period. Each forward and its transfer then begin as late as their resources are free. No
two operations therefore overlap on a resource. If links share no channels, the pattern is that of 1F1B*.
Otherwise it may keep more micro-batches than necessary, and a shorter period may exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from remat.plugin import Number
from remat_algorithms.parallel.pipeline.one_f_one_b_star import Row, Star, whole_periods

Held = tuple[int, ...]
"""Resources (by index) that an operation occupies."""


@dataclass(frozen=True)
class Occupied:
    """Resources of stages in a row.

    Attributes
    ----------
    stages : (stages,) tuple of Held
        Resources of the forward and the backward.
    hops : (stages - 1,) tuple of (Held, Held)
        Resources of the transfer to the next stage, and of the transfer back.
    """

    stages: tuple[Held, ...]
    hops: tuple[tuple[Held, Held], ...]

    @property
    def are_apart(self) -> bool:
        """Whether each resource serves a single stage, or a single pair of neighbours."""
        users = [set(held) for held in self.stages] + [{*out, *back} for out, back in self.hops]
        return sum(map(len, users)) == len(set[int]().union(*users))


@dataclass
class _Calendar:
    """Occupied times of each resource, modulo a period.

    Attributes
    ----------
    period : int or float
    slack : int or float
        Difference of times that are equal; 0 if all are integers.
    taken : dict of int to list of (int or float, int or float)
        Starts and durations by resource.
    """

    period: Number
    slack: Number
    taken: dict[int, list[tuple[Number, Number]]] = field(default_factory=dict[int, list[tuple[Number, Number]]])

    def earliest(self, ready: Number, length: Number, held: Held) -> Number | None:
        """Reserve the first free time from `ready` on; return its start, or None if there is none."""
        start = ready
        for _ in range(self._most_moves(held)):
            blocking = self._blocking(start, length, held)
            if blocking is None:
                return self._reserved(start, length, held)
            begin, taken = blocking
            start += (begin + taken - start) % self.period
        return None

    def latest(self, until: Number, length: Number, held: Held) -> Number | None:
        """Reserve the last free time that ends at `until` or before; return its start, or None if there is none."""
        start = until - length
        for _ in range(self._most_moves(held)):
            blocking = self._blocking(start, length, held)
            if blocking is None:
                return self._reserved(start, length, held)
            begin, _ = blocking
            start -= (start + length - begin) % self.period
        return None

    def _most_moves(self, held: Held) -> int:
        """Return how often a start can move within one period, plus one: each reservation moves it at most once."""
        return 2 + sum(len(self.taken.get(resource, ())) for resource in held)

    def _reserved(self, start: Number, length: Number, held: Held) -> Number:
        for resource in held:
            self.taken.setdefault(resource, []).append((start, length))
        return start

    def _blocking(self, start: Number, length: Number, held: Held) -> tuple[Number, Number] | None:
        """Return a reservation that overlaps with an operation, as start and duration."""
        return next(
            (
                one
                for resource in dict.fromkeys(held)
                for one in self.taken.get(resource, ())
                if self._overlap(start, length, *one)
            ),
            None,
        )

    def _overlap(self, start: Number, length: Number, begin: Number, taken: Number) -> bool:
        """Whether two operations overlap modulo the period; one without duration may be at either end of another."""
        after = (begin - start) % self.period
        if min(length, taken) <= self.slack and min(after, self.period - after) <= self.slack:
            return False
        return after < length - self.slack or after + taken > self.period + self.slack


def pattern_in_turns(row: Row, occupied: Occupied, period: Number) -> Star | None:
    """Return a pattern of a period that is at least `Row.least_period`; None if some operation does not fit in.

    Notes
    -----
    With the period `Row.time`, there always is a pattern: operations follow each other.
    """
    times = (period, *row.forward, *row.backward, *(time for hop in row.hops for time in (hop.forward, hop.backward)))
    times += tuple(time for hop in row.hops for time in hop.later)
    calendar = _Calendar(period, 0 if all(isinstance(time, int) for time in times) else 1e-12 * period)
    ahead: Number = 0
    behind: Number = 0
    found: dict[str, list[Number]] = {"forward": [], "backward": [], "sent": [], "returned": []}
    for stage in range(len(row.forward) - 1, -1, -1):
        if stage < len(row.hops):
            hop, (out, back) = row.hops[stage], occupied.hops[stage]
            returned = calendar.earliest(behind, hop.backward, back)
            sent = calendar.latest(ahead - hop.later[0], hop.forward, out)
            if returned is None or sent is None:
                return None
            found["sent"].append(sent)
            found["returned"].append(returned)
            ahead, behind = sent, returned + hop.backward + hop.later[1]
        backward = calendar.earliest(behind, row.backward[stage], occupied.stages[stage])
        forward = calendar.latest(ahead, row.forward[stage], occupied.stages[stage])
        if backward is None or forward is None:
            return None
        found["backward"].append(backward)
        found["forward"].append(forward)
        ahead, behind = forward, backward + row.backward[stage]
    return _star(row, found, period)


def _star(row: Row, found: dict[str, list[Number]], period: Number) -> Star:
    """Return times, listed from the last stage to the first, as a pattern that begins at 0."""
    first = min(found["forward"])

    def listed(name: str) -> tuple[Number, ...]:
        return tuple(time - first for time in reversed(found[name]))

    forward, backward = listed("forward"), listed("backward")
    ends: Sequence[Number] = [begin + time for begin, time in zip(backward, row.backward, strict=True)]
    kept = (max(1, whole_periods(end - begin, period)) for begin, end in zip(forward, ends, strict=True))
    return Star(forward, backward, listed("sent"), listed("returned"), period, tuple(kept))
