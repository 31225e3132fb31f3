"""The dynamic program of a level: which option each part takes, and which parts are recomputed from which cut.

The parts 0..m-1 of a level are a chain whose links are cuts. At a cut, everything is kept that later positions read.
C[i, j, M] is the minimum time to run the forward of the parts i..j once more, and their backward, within M bytes:

    C[i, j, M] = min of  time(i, o) + C[i + 1, j, M - fresh(i, i + 1) - saved(i, o)]      over the options o of part i,
                         forward(i..k-1) + C[k, j, M - fresh(i, k)] + C[i, k - 1, M]      over i < k <= j.

This is the recurrence of rotor (Beaumont et al. 2019) over parts with options, as in Rockmate (Zhao et al. 2023). A
second table follows the first forward: E[k, h] is the minimum time to have run the parts before k and to hold h bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remat_algorithms.dag.hierarchy.options import Option, Subgraph, gradient_bytes

FloatArray = NDArray[np.float64]
ShortArray = NDArray[np.int16]

NEVER = float("inf")


@dataclass(frozen=True)
class Level:
    """A subgraph, its parts, and the options of each; memory counts in slots, rounded up.

    Attributes
    ----------
    whole : Subgraph
    parts : list of Subgraph
    options : list of lists of Option
    slots : int
        Slots of the memory with which every part saves what its fastest option needs.
    """

    whole: Subgraph
    parts: Sequence[Subgraph]
    options: Sequence[Sequence[Option]]
    slots: int
    _tables: dict[tuple[int, int], tuple[FloatArray, ShortArray]] = field(default_factory=dict)

    @cached_property
    def cuts(self) -> list[int]:
        """Forward positions between parts."""
        return [*(part.low for part in self.parts), self.whole.high]

    @cached_property
    def fresh(self) -> list[list[int]]:
        """Bytes kept at the later cut of a pair that the earlier one does not keep."""
        return self.whole.network.fresh_bytes(self.cuts)

    @cached_property
    def gradients(self) -> list[int]:
        """Bytes of gradients at each cut."""
        return gradient_bytes(self.whole.network, self.cuts, self.whole)

    @cached_property
    def bytes(self) -> int:
        """Bytes with which every part saves what its fastest option needs."""
        held, most = 0, 1
        for place, options in enumerate(self.options):
            most = max(most, held + options[0].forward_peak, held + self._backward_peak(place, options[0]))
            held += self.fresh[place][place + 1] + options[0].saved
        return most

    @cached_property
    def unit(self) -> int:
        """Bytes of a slot."""
        return max(1, -(-self.bytes // self.slots))

    @cached_property
    def highest(self) -> int:
        """Slots within which the fastest options of all parts fit, rounding included."""
        return self.slots_of(self.bytes) + 2 * len(self.parts) + 2

    def slots_of(self, size: int) -> int:
        """Return the slots that hold so many bytes."""
        return -(-size // self.unit)

    def _backward_peak(self, place: int, option: Option) -> int:
        return self.gradients[place + 1] - self.parts[place].entering + option.backward_peak

    @cached_property
    def fast_peak(self) -> list[list[int]]:
        """Peak of the forward of parts i..k-1 if only the next cut is kept."""
        count = len(self.parts)
        found = [[0] * (count + 1) for _ in range(count)]
        for first in range(count):
            peak = 0
            for last in range(first, count):
                peak = max(peak, self.fresh[first][last] + self.parts[last].fast_peak)
                found[first][last + 1] = peak
        return found

    @cached_property
    def fast_time(self) -> list[float]:
        """Time of the forward of all parts before each one."""
        return [0.0, *np.cumsum([float(part.forward_time) for part in self.parts]).tolist()]

    def table(self, first: int, last: int) -> tuple[FloatArray, ShortArray]:
        """Return C[first, last, .] and its choices: an option, or minus the part from which the rest is solved."""
        known = self._tables.get((first, last))
        if known is not None:
            return known
        size = self.highest + 1
        best, choice = np.full(size, NEVER), np.full(size, -1, dtype=np.int16)
        after = self.gradients[last + 1]
        for number, option in enumerate(self.options[first]):
            need = self.slots_of(max(after + option.forward_peak, self._backward_peak(first, option)))
            time = float(self.parts[first].forward_time + option.time)
            if first == last:
                values = np.where(np.arange(size) >= need, time, NEVER)
            else:
                kept = self.slots_of(self.fresh[first][first + 1] + option.saved)
                values = time + _shifted(self.table(first + 1, last)[0], kept, need)
            better = values < best
            best[better], choice[better] = values[better], number
        for middle in range(first + 1, last + 1):
            need = self.slots_of(after + self.fast_peak[first][middle])
            kept = self.slots_of(self.fresh[first][middle])
            values = _shifted(self.table(middle, last)[0], kept, need) + self.table(first, middle - 1)[0]
            values += self.fast_time[middle] - self.fast_time[first]
            better = values < best
            best[better], choice[better] = values[better], -middle
        self._tables[first, last] = best, choice
        return best, choice

    def descent(self, limit: int) -> Descent:
        """Return the table E of the first forward within `limit` slots."""
        count = len(self.parts)
        times = np.full((count + 1, limit + 1), NEVER)
        origin = np.full((count + 1, limit + 1, 2), -1, dtype=np.int16)
        times[0, 0] = 0.0
        for place, part in enumerate(self.parts):
            for number, option in enumerate(self.options[place]):
                most = limit - self.slots_of(max(option.forward_peak, self._backward_peak(place, option)))
                kept = self.slots_of(self.fresh[place][place + 1] + option.saved)
                most = min(most, limit - kept)
                if most >= 0:
                    values = times[place, : most + 1] + float(part.forward_time + option.time)
                    _improve(times[place + 1], origin[place + 1], values, kept, (place, number))
            for later in range(place + 1, count + 1):
                kept = self.slots_of(self.fresh[place][later])
                most = min(limit - self.slots_of(self.fast_peak[place][later]), limit - kept)
                if most >= 0:
                    again = self.table(place, later - 1)[0][limit - most : limit + 1][::-1]
                    values = times[place, : most + 1] + again + (self.fast_time[later] - self.fast_time[place])
                    _improve(times[later], origin[later], values, kept, (place, -later))
        return Descent(self, limit, times, origin)

    def again(self, first: int, last: int, memory: int) -> list[int]:
        """Return the positions of the schedule behind C[first, last, memory]."""
        runs: list[int] = []
        waiting: list[tuple[int, int, int] | list[int]] = [(first, last, memory)]
        while waiting:
            item = waiting.pop()
            if isinstance(item, list):
                runs += item
                continue
            first, last, memory = item
            chosen = int(self.table(first, last)[1][memory])
            if chosen < 0:
                middle = -chosen
                runs += self._forward_again(first, middle)
                kept = self.slots_of(self.fresh[first][middle])
                waiting += [(first, middle - 1, memory), (middle, last, memory - kept)]
                continue
            option = self.options[first][chosen]
            runs += self._forward_again(first, first + 1)
            waiting.append(self.parts[first].positions(option.runs))
            if first < last:
                kept = self.slots_of(self.fresh[first][first + 1] + option.saved)
                waiting.append((first + 1, last, memory - kept))
        return runs

    def _forward_again(self, first: int, end: int) -> list[int]:
        may_rerun = self.whole.network.may_rerun
        return [position for position in range(self.cuts[first], self.cuts[end]) if may_rerun[position]]


@dataclass(frozen=True)
class Descent:
    """The table E of a level, and the part and choice before each state."""

    level: Level
    limit: int
    times: FloatArray
    origin: ShortArray

    @property
    def last(self) -> FloatArray:
        """Minimum time by the slots held after the last part."""
        row: FloatArray = self.times[-1]
        return row

    def runs(self, held: int) -> list[int]:
        """Return the backward positions of the schedule that holds so many slots after the last part."""
        level, place, runs = self.level, len(self.level.parts), []
        while place:
            before, chosen = self.origin[place, held].tolist()
            if chosen >= 0:
                option = level.options[before][chosen]
                held -= level.slots_of(level.fresh[before][place] + option.saved)
                runs += level.parts[before].positions(option.runs)
            else:
                held -= level.slots_of(level.fresh[before][place])
                runs += level.again(before, place - 1, self.limit - held)
            place = before
        return runs


def _shifted(values: FloatArray, kept: int, need: int) -> FloatArray:
    """Return the values with `kept` slots less, and never below `need` slots."""
    found = np.full(len(values), NEVER)
    if kept < len(values):
        found[kept:] = values[: len(values) - kept]
    found[:need] = NEVER
    return found


def _improve(times: FloatArray, origin: Any, values: FloatArray, kept: int, choice: tuple[int, int]) -> None:
    target = times[kept : kept + len(values)]
    better = values < target
    target[better] = values[better]
    origin[kept : kept + len(values)][better] = choice
