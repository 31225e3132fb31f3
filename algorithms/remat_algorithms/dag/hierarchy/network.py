"""A training graph as a row of forward positions, and the backward positions that belong to each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import IntArray, Number
from remat_algorithms.dag.literature.retention_phases import Training

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Piece:
    """A measured list of runs.

    Attributes
    ----------
    time : int or float
    peak : int
        Bytes beyond those that the surroundings hold.
    needed : frozenset of int
        Values that must be resident at the start.
    """

    time: Number
    peak: int
    needed: frozenset[int]


@dataclass(frozen=True)
class Network:
    """The stages of a training graph by position: the forward in its order, then the backward by owner, last one first.

    Attributes
    ----------
    training : Training
    stage : list of int
        Stage of each position; below `forward` they are equal.
    owner : list of int
        For each backward position the forward position that it belongs to, descending.
    made : list of int
        Position that first writes each value; `NOWHERE` for inputs.
    reach : list of int
        For each value of the forward the last forward position that reads it, or that owns a reader; -1 if none.
    until : list of int
        For each value of the backward the owner of its last reader; -1 for outputs, and the maker's owner if none.
    held : list of bool
        Values of the forward that count from start to end: those that cannot be recomputed, outputs, and those that
        the backward of earlier positions reads.
    may_rerun : list of bool
        For each forward position.
    """

    training: Training
    stage: list[int]
    owner: list[int]
    made: list[int]
    reach: list[int]
    until: list[int]
    held: list[bool]
    may_rerun: list[bool]

    @property
    def forward(self) -> int:
        """Number of forward positions."""
        return self.training.forward

    @cached_property
    def reads(self) -> list[list[int]]:
        """Values that each position reads, once each."""
        return [list(dict.fromkeys(self.training.stages.reads[stage])) for stage in self.stage]

    @cached_property
    def writes(self) -> list[list[int]]:
        """Values that each position writes, once each."""
        return [list(dict.fromkeys(self.training.stages.writes[stage])) for stage in self.stage]

    @cached_property
    def time(self) -> list[Number]:
        """Time of each position."""
        return [self.training.stages.time[stage] for stage in self.stage]

    @cached_property
    def workspace(self) -> list[int]:
        """Workspace of each position."""
        stages = self.training.stages
        spaces: list[int] = stages.graph.workspace[[stages.tasks[stage] for stage in self.stage]].tolist()
        return spaces

    @cached_property
    def in_place(self) -> list[bool]:
        """Whether each position may take over bytes of its inputs."""
        stages = self.training.stages
        flags: list[bool] = stages.graph.in_place[[stages.tasks[stage] for stage in self.stage]].tolist()
        return flags

    @property
    def size(self) -> list[int]:
        """Bytes of each value."""
        return self.training.stages.size

    @cached_property
    def first_backward(self) -> list[int]:
        """For each cut, the first backward position whose owner is before the cut: [cut] begins the rest."""
        place, found = len(self.stage), []
        start = self.forward
        for cut in range(self.forward + 1):
            while place > start and self.owner[place - 1 - start] < cut:
                place -= 1
            found.append(place)
        return found

    def backward_of(self, low: int, high: int) -> range:
        """Return the backward positions that belong to forward positions from `low` to below `high`."""
        return range(self.first_backward[high], self.first_backward[low])

    @cached_property
    def _forward_values(self) -> tuple[IntArray, IntArray, IntArray]:
        values = [value for value, made in enumerate(self.made) if 0 <= made < self.forward and not self.held[value]]
        columns = ([self.made[value] for value in values], [self.reach[value] for value in values])
        sizes = np.array([self.size[value] for value in values], dtype=np.int64)
        return np.array(columns[0], dtype=np.int64), np.array(columns[1], dtype=np.int64), sizes

    @cached_property
    def cut_bytes(self) -> list[int]:
        """For each cut between forward positions, the bytes of values that are written before it and read after it."""
        made, reach, size = self._forward_values
        change = np.zeros(self.forward + 2, dtype=np.int64)
        alive = reach > made
        np.add.at(change, made[alive] + 1, size[alive])
        np.subtract.at(change, reach[alive] + 1, size[alive])
        bytes_at: list[int] = np.cumsum(change)[: self.forward + 1].tolist()
        return bytes_at

    def fresh_bytes(self, cuts: Sequence[int]) -> list[list[int]]:
        """Return for each pair of cuts the bytes made between them that are read behind the later one."""
        made, reach, size = self._forward_values
        found = [[0] * len(cuts) for _ in cuts]
        for column, later in enumerate(cuts):
            crossing = (made < later) & (reach >= later) & (made >= cuts[0])
            positions = np.searchsorted(made[crossing], cuts[: column + 1])
            sums = np.concatenate(([0], np.cumsum(size[crossing])))
            for row in range(column):
                found[row][column] = int(sums[-1] - sums[positions[row]])
        return found

    def made_within(self, low: int, high: int) -> list[int]:
        """Return the values that forward positions from `low` to below `high` make, without held ones."""
        return [
            value
            for position in range(low, high)
            for value in self.writes[position]
            if not self.held[value] and self.made[value] == position
        ]

    def measure(self, runs: Sequence[int], low: int, keep: Collection[int]) -> Piece:
        """Measure runs whose surroundings hold all values that were made before the forward position `low`.

        Parameters
        ----------
        runs : sequence of int
            Positions.
        low : int
        keep : collection of int
            Values that stay at the end.
        """
        alive = set(keep)
        drops: list[list[int]] = []
        for position in reversed(runs):
            touched = (*self.reads[position], *self.writes[position])
            drops.append([value for value in dict.fromkeys(touched) if value not in alive])
            alive.difference_update(self.writes[position])
            alive.update(self.reads[position])
        needed = frozenset(value for value in alive if self.counts(value, low))
        memory = peak = sum(self.size[value] for value in needed)
        resident = set(needed)
        time: Number = 0
        for position, drop in zip(runs, reversed(drops), strict=True):
            fresh = [value for value in self.writes[position] if value not in resident and self.counts(value, low)]
            written = sum(self.size[value] for value in fresh)
            gone = [value for value in drop if self.counts(value, low)]
            reused = 0
            if self.in_place[position]:
                reads = self.reads[position]
                reused = sum(self.size[value] for value in gone if value in reads)
            peak = max(peak, memory + max(0, written - reused) + self.workspace[position])
            memory += written - sum(self.size[value] for value in gone)
            resident.update(fresh)
            resident.difference_update(gone)
            time += self.time[position]
        return Piece(time, peak, needed)

    def counts(self, value: int, low: int) -> bool:
        """Whether a value counts beyond the surroundings of the forward positions from `low`."""
        return self.made[value] >= low and not self.held[value]


def network_of(training: Training) -> Network:
    """Assign each backward stage to a forward position, and order the backward by them; O(accesses).

    A backward stage belongs to the last forward stage whose values it reads, but to none behind those of the backward
    stages before it. The order of accesses to a value with several makers stays.
    """
    stages, forward = training.stages, training.forward
    owner = _owners(training)
    order = [*range(forward), *sorted(range(forward, len(stages)), key=lambda stage: (-owner[stage], stage))]
    made = [NOWHERE] * len(stages.maker)
    reach = [-1] * len(made)
    until = [forward] * len(made)
    held = [False] * len(made)
    for position, stage in enumerate(order):
        for value in stages.reads[stage]:
            if position < forward:
                reach[value] = max(reach[value], position)
            elif made[value] < forward:
                reach[value] = max(reach[value], owner[stage])
                held[value] |= made[value] >= 0 and owner[stage] < made[value]
            else:
                until[value] = min(until[value], owner[stage])
        for value in stages.writes[stage]:
            if made[value] == NOWHERE:
                made[value] = position
                until[value] = owner[stage] if position >= forward else until[value]
    for value, maker in enumerate(stages.maker):
        if 0 <= made[value] < forward and (stages.fixed[value] or maker >= forward):
            held[value] = True
    for value in stages.ends:
        if made[value] < forward:
            held[value] = made[value] >= 0
        else:
            until[value] = -1
    rerun = [bool(writes) and not any(stages.fixed[value] for value in writes) for writes in stages.writes[:forward]]
    return Network(training, order, [owner[stage] for stage in order[forward:]], made, reach, until, held, rerun)


def _owners(training: Training) -> list[int]:
    stages, forward = training.stages, training.forward
    owner = [0] * len(stages)
    writers = [0] * len(stages.maker)
    for row in stages.writes:
        for value in row:
            writers[value] += 1
    latest = [forward - 1] * len(stages.maker)
    for stage in range(len(stages)):
        if stage < forward:
            owner[stage] = stage
            continue
        read = [stages.maker[value] for value in stages.reads[stage] if 0 <= stages.maker[value] < forward]
        mine = max(read, default=forward - 1)
        touched = [*stages.reads[stage], *(value for value in stages.writes[stage] if writers[value] > 1)]
        owner[stage] = max(0, min([mine, *(latest[value] for value in touched)]))
        for value in stages.writes[stage]:
            latest[value] = min(latest[value], owner[stage])
        for value in stages.reads[stage]:
            if writers[value] > 1:
                latest[value] = min(latest[value], owner[stage])
    return owner
