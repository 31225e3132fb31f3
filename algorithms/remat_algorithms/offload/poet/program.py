"""The integer program of `poet`: stages that each advance the frontier, with paging that takes time."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd

from remat.plugin import Machine, Number
from remat_algorithms.dag.programs.frontier import Frontier
from remat_algorithms.kit.programs.program import INFINITY, FloatArray, ProgramBuilder

IDLE = 1e-3
"""What a copy or a rerun costs besides, in its own time: none is made only because there is time for it."""

FINEST = 2**22
"""Sizes are exact in the program if the capacities are at most so many times their greatest common divisor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pager:
    """The second memory and the ways to it.

    Attributes
    ----------
    home, memory : int
        The processor's memory and the second one, by index.
    out, back : int
        Links of the machine.
    out_time, back_time : list of numbers
        What each value of the graph takes.
    room : int or None
        Bytes in the second memory; None is unbounded.
    begin : frozenset of int
        Values that lie in the second memory from the start.
    """

    home: int
    memory: int
    out: int
    back: int
    out_time: list[Number]
    back_time: list[Number]
    room: int | None
    begin: frozenset[int]


@dataclass(slots=True)
class Choice:
    """What a solution decides: runs (stage, position), and (stage, value) that are paged out and back in."""

    runs: set[tuple[int, int]] = field(default_factory=set)
    out: set[tuple[int, int]] = field(default_factory=set)
    back: set[tuple[int, int]] = field(default_factory=set)


class PoetProgram:
    """Columns and rows.

    Parameters
    ----------
    front : Frontier
        Tasks by position, and the stages in which they may run.
    machine : Machine
    pager : Pager or None
        None: nothing is paged.
    budget : int
        Bytes in the first memory.

    Notes
    -----
    After Patil et al. 2022, for stages t, positions k and values v, with their names:

        R[t,k]                the task at position k runs in stage t (binary)
        SRam[t,v], SSd[t,v]   v is in the first (second) memory when stage t begins
        MOut[t,v], MIn[t,v]   v is paged out (in) during stage t (binary)

        R[t,k] <= what is in the first memory before it, of each value that it reads
        SRam[t+1,v] <= what is there of v at the end of stage t + MIn[t,v],      MIn[t,v]  <= SSd[t,v]
        SSd[t+1,v]  <= SSd[t,v] + MOut[t,v],     MOut[t,v] <= all that is there of v throughout stage t

    A value that is paged in takes its bytes for the whole stage, in which it is neither there nor made. Within a stage
    the residency of a value is a chain of segments between the runs that touch it, as in `dag.programs`;
    given integer R, MOut and MIn, the least feasible segments are integers. Stages follow each other, each as long as
    its busiest resource:

        minimise the sum of tau_t,   tau_t >= sum of the times of all in stage t that occupies one resource,

    and a thousandth of the time of all copies and runs, so that there are none in vain;
    so what a channel takes beyond the runs beside it is paid for, and on the processor's own channel all of it. Sizes
    are rounded up where they are too fine (`FINEST`).
    """

    def __init__(self, front: Frontier, machine: Machine, pager: Pager | None, budget: int) -> None:
        self.front, self.machine, self.pager = front, machine, pager
        self.room = budget - front.fixed
        self.builder = ProgramBuilder()
        self.values = [v for v in range(len(front.size)) if front.makers[v] or front.users[v] or v in front.outputs]
        self.rooms = [self.room, 0 if pager is None or pager.room is None else pager.room]
        self.unit, self.exact = _memory_unit(front, max(self.rooms))
        longest = max([1, *front.time, *(pager.out_time + pager.back_time if pager else ())])
        self.time_unit: Number = longest if longest > 1024 or not isinstance(longest, int) else 1
        self.taus: list[int] = []
        self.runs: dict[tuple[int, int], int] = {}
        self.out: dict[tuple[int, int], int] = {}
        self.back: dict[tuple[int, int], int] = {}
        self._add_runs()
        self._add_stages()

    def _size(self, size: int) -> float:
        return float(-(-size // self.unit))

    def _add_runs(self) -> None:
        front = self.front
        for stage in range(front.stages):
            for position in range(front.end[stage] + 1):
                own = front.forced[position] and front.first[position] == stage
                if front.may_run(stage, position) and (own or not (front.forced[position] and front.single[position])):
                    self.runs[stage, position] = self.builder.add_column(lower=1 if own else 0, integer=True)
        for position, single in enumerate(front.single):
            columns = [
                (self.runs[stage, position], 1.0) for stage in range(front.stages) if (stage, position) in self.runs
            ]
            if single and len(columns) > 1:
                self.builder.add_row(columns, upper=1)

    def _add_stages(self) -> None:
        front, builder, pager = self.front, self.builder, self.pager
        begin = frozenset() if pager is None else pager.begin
        ram = {v: builder.add_column(upper=1 if v in front.inputs else 0) for v in self.values}
        disk = {v: builder.add_column(upper=1 if v in begin else 0) for v in self.values} if pager else {}
        for stage in range(front.stages):
            if pager is not None:
                self._add_paging(stage, pager, ram, disk)
            self._add_tau(stage)
            kept = self._add_segments(stage, ram)
            for v in self.values:
                after = builder.add_column()
                arrives = [(self.back[stage, v], -1.0)] if pager else []
                builder.add_row([(after, 1), (kept[v], -1), *arrives], upper=0)
                ram[v] = after
                if pager is not None:
                    builder.add_row([(self.out[stage, v], 1), (kept[v], -1)], upper=0)
                    later = builder.add_column()
                    builder.add_row([(later, 1), (disk[v], -1), (self.out[stage, v], -1)], upper=0)
                    disk[v] = later
        for v in front.outputs:
            builder.lower[ram[v]] = 1

    def _add_paging(self, stage: int, pager: Pager, ram: dict[int, int], disk: dict[int, int]) -> None:
        builder = self.builder
        held = []
        for v in self.values:
            out = self.out[stage, v] = builder.add_column(integer=True)
            back = self.back[stage, v] = builder.add_column(integer=True)
            builder.add_row([(out, 1), (ram[v], -1)], upper=0)
            builder.add_row([(out, 1), (disk[v], 1)], upper=1)
            builder.add_row([(back, 1), (disk[v], -1)], upper=0)
            builder.add_row([(back, 1), (ram[v], 1)], upper=1)
            held += [(disk[v], self._size(self.front.size[v])), (out, self._size(self.front.size[v]))]
        if pager.room is not None:
            builder.add_row(held, upper=float(pager.room // self.unit))

    def _add_tau(self, stage: int) -> None:
        """Make the stage as long as each of its resources is busy."""
        front, machine, pager = self.front, self.machine, self.pager
        busy: dict[int, list[tuple[int, float]]] = {0: []}
        for position in range(front.end[stage] + 1):
            if (stage, position) in self.runs:
                busy[0].append((self.runs[stage, position], float(front.time[position] / self.time_unit)))
        if pager is not None:
            for link, columns, times in (
                (pager.out, self.out, pager.out_time),
                (pager.back, self.back, pager.back_time),
            ):
                own = busy.setdefault(machine.resource_of_link[link], [])
                own += [(columns[stage, v], float(times[v] / self.time_unit)) for v in self.values]
        for entries in busy.values():
            for column, time in entries:
                self.builder.cost[column] = IDLE * (time + IDLE)
        tau = self.builder.add_column(cost=1, upper=INFINITY)
        self.taus.append(tau)
        for entries in busy.values():
            self.builder.add_row([(tau, 1), *((column, -time) for column, time in entries if time)], lower=0)

    def _add_segments(self, stage: int, ram: dict[int, int]) -> dict[int, int]:
        """Follow each value through the runs of a stage; return the columns of what is left at its end."""
        front, builder = self.front, self.builder
        live = dict(ram)
        for position in range(front.end[stage] + 1):
            run = self.runs.get((stage, position))
            if run is None:
                continue
            reads, writes = front.reads[position], front.writes[position]
            after = {v: builder.add_column() for v in dict.fromkeys((*reads, *writes))}
            for v, column in after.items():
                if v in reads:
                    builder.add_row([(live[v], 1), (run, -1)], lower=0)
                    builder.add_row([(column, 1), (live[v], -1)], upper=0)
                else:
                    builder.add_row([(live[v], 1), (run, 1)], upper=1)
                    builder.add_row([(column, 1), (live[v], -1), (run, -1)], upper=0)
                if self.pager is not None:
                    # What is on its way in is not made meanwhile; what is on its way out does not go yet.
                    if v not in reads:
                        builder.add_row([(self.back[stage, v], 1), (run, 1)], upper=1)
                    builder.add_row([(self.out[stage, v], 1), (column, -1)], upper=0)
            self._add_memory(stage, position, live, after)
            live |= after
        return live

    def _add_memory(self, stage: int, position: int, live: dict[int, int], after: dict[int, int]) -> None:
        front, builder, run = self.front, self.builder, self.runs[stage, position]
        held = [(live[v], self._size(front.size[v])) for v in self.values]
        if self.pager is not None:
            held += [(self.back[stage, v], self._size(front.size[v])) for v in self.values]
        written, workspace = self._size(front.written[position]), self._size(front.workspace[position])
        handed = (
            [v for v in front.reads[position] if v not in front.writes[position]] if front.in_place[position] else []
        )
        if handed and written:
            own = builder.add_column(upper=INFINITY)
            entries = [(own, 1.0), (run, -written)]
            for v in handed:
                size = float(front.size[v] // self.unit)
                entries += [(live[v], size), (after[v], -size)]
            builder.add_row(entries, lower=0)
            held += [(own, 1.0), (run, workspace)]
        else:
            held.append((run, written + workspace))
        builder.add_row([entry for entry in held if entry[1]], upper=float(self.room // self.unit))

    # --- solutions ----------------------------------------------------------------------------------------------------

    def choice(self, solution: FloatArray) -> Choice:
        """Read a solution."""

        def chosen(columns: dict[tuple[int, int], int]) -> set[tuple[int, int]]:
            return {key for key, column in columns.items() if solution[column] > 0.5}

        return Choice(chosen(self.runs), chosen(self.out), chosen(self.back))

    def makespan(self, solution: FloatArray) -> float:
        """Return how long the stages of a solution take together."""
        return float(solution[self.taus].sum()) * float(self.time_unit)


def _memory_unit(front: Frontier, room: int) -> tuple[int, bool]:
    """Return the unit of sizes, and whether all of them are multiples of it."""
    unit = max(1, gcd(*front.size, *front.written, *front.workspace))
    return (unit, True) if room <= unit * FINEST else (room // FINEST, False)
