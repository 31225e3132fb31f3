"""The integer program of `poet`: stages that each advance the frontier, with paging that takes time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import gcd

import numpy as np

from remat.plugin import BoolArray, IntArray, Machine, Number
from remat_algorithms.dag.programs.frontier import Frontier
from remat_algorithms.kit.programs.program import INFINITY, FloatArray, ProgramBuilder
from remat_algorithms.offload.poet.energy_costs import EnergyCosts

IDLE = 1e-3
"""Relative extra cost of a copy or a recomputation: none happens only because time is left for it."""

FINEST = 2**22
"""Sizes are exact in the program if the capacities are at most this multiple of their greatest common divisor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pager:
    """The second memory and its links.

    Attributes
    ----------
    home, memory : int
        The processor's memory and the second one, by index.
    out, back : int
        Links of the machine.
    out_time, back_time : list of numbers
        Transfer time of each value of the graph.
    room : int or None
        Bytes in the second memory without permanent residents; None is unbounded.
    begin : frozenset of int
        Values that begin in the second memory.
    stays : frozenset of int
        Those of them that stay there to the end, since they are pinned or outputs there.
    """

    home: int
    memory: int
    out: int
    back: int
    out_time: list[Number]
    back_time: list[Number]
    room: int | None
    begin: frozenset[int]
    stays: frozenset[int]


@dataclass(frozen=True, slots=True)
class EnergyGoal:
    """Minimum energy within a time.

    Attributes
    ----------
    costs : EnergyCosts
    deadline : int, float or None
        Latest end of the last stage.
    """

    costs: EnergyCosts
    deadline: Number | None


@dataclass(slots=True)
class Choice:
    """The decisions of a solution: runs (stage, position), and (stage, value) pairs that are paged out and back in."""

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
        Bytes in the working memory.
    goal : EnergyGoal, optional
        The energy to minimise instead of the makespan.
    stopped : callable
        Called for each stage while the program is built; `complete` tells whether it was built to the end.

    Notes
    -----
    After Patil et al. 2022, for stages t, positions k and values v, with their names:

        R[t,k]                the task at position k runs in stage t (binary)
        SRam[t,v], SSd[t,v]   v is in the first (second) memory when stage t begins
        MOut[t,v], MIn[t,v]   v is paged out (in) during stage t (binary)

        R[t,k] <= what is in the working memory before it, of each value that it reads
        SRam[t+1,v] <= what is there of v at the end of stage t + MIn[t,v],      MIn[t,v]  <= SSd[t,v]
        SSd[t+1,v]  <= SSd[t,v] + MOut[t,v],     MOut[t,v] <= all that is there of v throughout stage t

    A value that is paged in takes its bytes for the whole stage, in which it is neither readable nor computed. Within a
    stage, the residency of a value is a chain of segments between the runs that touch it, as in `dag.programs`. Given
    integral R, MOut and MIn, the smallest feasible segments are integral. Stages run one after the other, each as long
    as its busiest resource:

        minimise the sum of tau_t,   tau_t >= sum of the times of all in stage t that occupies one resource,

    plus a thousandth of the time of all copies and runs, which excludes useless ones. With a goal, the energy of all
    runs and copies is minimised, and the sum of tau_t has an upper bound. The objective therefore counts
    the time by which a channel exceeds the overlapped runs. On the processor's own channel, it counts all of it. Sizes
    are rounded up if they are too fine (`FINEST`).
    """

    def __init__(
        self,
        front: Frontier,
        machine: Machine,
        pager: Pager | None,
        budget: int,
        stopped: Callable[[], bool] = lambda: False,
        goal: EnergyGoal | None = None,
    ) -> None:
        self.front, self.machine, self.pager, self.goal = front, machine, pager, goal
        self.room = budget - front.fixed
        self.builder = ProgramBuilder()
        self.rooms = [self.room, 0 if pager is None or pager.room is None else pager.room]
        self.unit, self.exact = _memory_unit(front, max(self.rooms))
        longest = max([1, *front.time, *(pager.out_time + pager.back_time if pager else ())])
        self.time_unit: Number = longest if longest > 1024 or not isinstance(longest, int) else 1
        self.taus: list[int] = []
        self.bytes_in_place: list[int] = []
        self.runs: dict[tuple[int, int], int] = {}
        self.out: dict[tuple[int, int], int] = {}
        self.back: dict[tuple[int, int], int] = {}
        self.columns_of: dict[int, list[int]] = {}
        self._add_runs()
        self.complete = self._add_stages(stopped)
        self.deadline_row: int | None = None
        if goal is not None:
            self._set_goal(goal)

    def _column(self, value: int, *, integer: bool = False) -> int:
        """Add a column for the residency or the move of a value."""
        column = self.builder.add_column(integer=integer)
        self.columns_of.setdefault(value, []).append(column)
        return column

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

    def _add_stages(self, stopped: Callable[[], bool]) -> bool:
        """Add the stages one by one, without values that no earlier run produces or no later stage needs.

        Return whether all were added before a stop.
        """
        front, builder, pager = self.front, self.builder, self.pager
        begin = frozenset() if pager is None else pager.begin
        ram = {v: self._column(v) for v in sorted(front.inputs) if front.users[v] or v in front.outputs}
        disk = {v: self._column(v) for v in ram if v in begin}
        for stage in range(front.stages):
            if stopped():
                return False
            if pager is not None:
                self._add_paging(stage, pager, ram, disk)
            self._add_tau(stage, ram)
            kept = self._add_segments(stage, ram)
            ram = {}
            for v, column in kept.items():
                out, back = self.out.get((stage, v)), self.back.get((stage, v))
                if out is not None:
                    builder.add_row([(out, 1), (column, -1)], upper=0)
                if front.needed_until[v] > stage:
                    ram[v] = self._column(v)
                    arrives = [] if back is None else [(back, -1.0)]
                    builder.add_row([(ram[v], 1), (column, -1), *arrives], upper=0)
                before = disk.pop(v, None)
                sources = [source for source in (before, out) if source is not None]
                if sources and front.needed_until[v] > stage + 1:
                    disk[v] = self._column(v)
                    builder.add_row([(disk[v], 1), *((source, -1.0) for source in sources)], upper=0)
        for v in front.outputs:
            last = ram[v] if v in ram else builder.add_column(upper=0)
            builder.add_row([(last, 1)], lower=1)
        return True

    def _add_paging(self, stage: int, pager: Pager, ram: dict[int, int], disk: dict[int, int]) -> None:
        """Page out resident values that can return in time, and page in those that are away."""
        front, builder = self.front, self.builder
        held = []
        for v, resident in ram.items():
            size, away, stays = self._size(front.size[v]), disk.get(v), v in pager.stays
            if front.needed_until[v] > stage + 1 and not stays:
                out = self.out[stage, v] = self._column(v, integer=True)
                builder.add_row([(out, 1), (resident, -1)], upper=0)
                held.append((out, size))
                if away is not None:
                    builder.add_row([(out, 1), (away, 1)], upper=1)
            if away is not None:
                if not stays:
                    held.append((away, size))
                back = self.back[stage, v] = self._column(v, integer=True)
                builder.add_row([(back, 1), (away, -1)], upper=0)
                builder.add_row([(back, 1), (resident, 1)], upper=1)
        if pager.room is not None:
            builder.add_row(held, upper=float(pager.room // self.unit))

    def _add_tau(self, stage: int, ram: dict[int, int]) -> None:
        """Bound the length of the stage by the load of each of its resources."""
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
                own += [(columns[stage, v], float(times[v] / self.time_unit)) for v in ram if (stage, v) in columns]
        for entries in busy.values():
            for column, time in entries:
                self.builder.cost[column] = IDLE * (time + IDLE)
        tau = self.builder.add_column(cost=1, upper=INFINITY)
        self.taus.append(tau)
        for entries in busy.values():
            self.builder.add_row([(tau, 1), *((column, -time) for column, time in entries if time)], lower=0)

    def _set_goal(self, goal: EnergyGoal) -> None:
        """Replace the costs by energies, and bound the total length of the stages."""
        cost, costs = self.builder.cost, goal.costs
        cost[:] = [0.0] * len(cost)
        for (_, position), column in self.runs.items():
            cost[column] = float(costs.run[self.front.tasks[position]])
        if self.pager is not None:
            for link, columns in ((self.pager.out, self.out), (self.pager.back, self.back)):
                for (_, value), column in columns.items():
                    cost[column] = float(costs.byte[link] * self.front.size[value])
        if goal.deadline is not None:
            entries = [(tau, 1.0) for tau in self.taus]
            self.deadline_row = self.builder.add_row(entries, upper=float(goal.deadline / self.time_unit))

    def _add_segments(self, stage: int, ram: dict[int, int]) -> dict[int, int]:
        """Follow each value through the runs of a stage; return the columns of the residents at its end."""
        front, builder = self.front, self.builder
        live = dict(ram)
        for position in range(front.end[stage] + 1):
            run = self.runs.get((stage, position))
            if run is None:
                continue
            reads, writes = front.reads[position], front.writes[position]
            if not live.keys() >= set(reads):  # no earlier run can have produced them
                builder.add_row([(run, 1)], upper=0)
                continue
            after = {v: self._column(v) for v in dict.fromkeys((*reads, *writes))}
            for v, column in after.items():
                before = [(live[v], 1.0)] if v in live else []
                if v in reads:
                    builder.add_row([*before, (run, -1)], lower=0)
                    builder.add_row([(column, -1), *before], lower=0)
                else:
                    builder.add_row([*before, (run, 1)], upper=1)
                    builder.add_row([(column, -1), (run, 1), *before], lower=0)
                # A value is not computed while it is paged in, and not freed while it is paged out.
                out, back = self.out.get((stage, v)), self.back.get((stage, v))
                if back is not None and v not in reads:
                    builder.add_row([(back, 1), (run, 1)], upper=1)
                if out is not None:
                    builder.add_row([(out, 1), (column, -1)], upper=0)
            self._add_memory(stage, position, live, after)
            live |= after
        return live

    def _add_memory(self, stage: int, position: int, live: dict[int, int], after: dict[int, int]) -> None:
        front, builder, run = self.front, self.builder, self.runs[stage, position]
        held = [(column, self._size(front.size[v])) for v, column in live.items()]
        held += [(self.back[stage, v], self._size(front.size[v])) for v in live if (stage, v) in self.back]
        written, workspace = self._size(front.written[position]), self._size(front.workspace[position])
        handed = (
            [v for v in front.reads[position] if v not in front.writes[position]] if front.in_place[position] else []
        )
        if handed and written:
            own = builder.add_column(upper=written)
            self.bytes_in_place.append(own)
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

    def choice(self, solution: FloatArray | IntArray) -> Choice:
        """Read a solution."""

        def chosen(columns: dict[tuple[int, int], int]) -> set[tuple[int, int]]:
            return {key for key, column in columns.items() if solution[column] > 0.5}

        return Choice(chosen(self.runs), chosen(self.out), chosen(self.back))

    def decided(self, front: Frontier, runs: Iterable[tuple[int, int]]) -> tuple[BoolArray, IntArray]:
        """Return a mask of the columns that runs without paging decide, and their values.

        Parameters
        ----------
        front : Frontier
            That of the runs (stage, position): this program's own, or the one whose stages it has merged.
        runs : iterable of pairs
        """
        decided = np.zeros(len(self.builder.cost), dtype=bool)
        values = np.zeros(len(self.builder.cost), dtype=np.int64)
        decided[[*self.runs.values(), *self.out.values(), *self.back.values()]] = True
        for stage, position in runs:
            # The stage that ends at the same position or after it.
            values[self.runs[bisect_left(self.front.end, front.end[stage]), position]] = 1
        for key, column in self.runs.items():
            if self.builder.lower[column]:
                values[self.runs[key]] = 1
        return decided, values

    def makespan(self, choice: Choice) -> Number:
        """Return the total length of the stages of a choice: each as long as its busiest resource."""
        busy: dict[tuple[int, int], Number] = {}
        for stage, position in choice.runs:
            busy[stage, 0] = busy.get((stage, 0), 0) + self.front.time[position]
        if self.pager is not None:
            ways = (
                (self.pager.out, choice.out, self.pager.out_time),
                (self.pager.back, choice.back, self.pager.back_time),
            )
            for link, copies, times in ways:
                resource = self.machine.resource_of_link[link]
                for stage, value in copies:
                    busy[stage, resource] = busy.get((stage, resource), 0) + times[value]
        longest: dict[int, Number] = {}
        for (stage, _), time in busy.items():
            longest[stage] = max(longest.get(stage, 0), time)
        return sum(longest.values())


def _memory_unit(front: Frontier, room: int) -> tuple[int, bool]:
    """Return the unit of sizes, and whether all of them are multiples of it."""
    unit = max(1, gcd(*front.size, *front.written, *front.workspace))
    return (unit, True) if room <= unit * FINEST else (room // FINEST, False)
