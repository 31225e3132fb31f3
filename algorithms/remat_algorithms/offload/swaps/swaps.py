"""Swaps: what leaves the processor's memory between two runs, as the transfers of a program.

An order of runs fixes when each copy of a value is written and read. Between two such accesses lies a *gap*; a *swap*
says that the value spends one elsewhere. Everything else follows: when the value can leave, when its bytes are free,
by when it must be back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import IntArray, Machine, OptionError, Problem, TaskGraph, reference_order
from remat_algorithms.offload.swaps.program import Program, Run, Transfer, planned_profile
from remat_algorithms.offload.swaps.routes import Route, device_of

BEFORE_ALL = -1
"""Position of what is resident at the start."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The time between two accesses to one copy of a value, by positions of runs.

    Attributes
    ----------
    value : int
    after, before : int
        The two runs; `BEFORE_ALL` for an input, the number of runs for an output.
    copy : int
        Which copy of which value: equal for the gaps of one copy.
    """

    value: int
    after: int
    before: int
    copy: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A gap that its value spends elsewhere.

    Attributes
    ----------
    gap : int
        Index of the gap.
    route : Route
    leave_with : int
        The run with whose start the copy may start at the earliest; -1: as soon as the value is there.
    gone_by : int or None
        A run that waits until the copy has ended; None: only when it needs the room.
    return_with : int
        The run with whose start it comes back; -1: as early as it is in nobody's way.
    back_by : int or None
        The run that waits for its return; None: the gap's end.
    """

    gap: int
    route: Route
    leave_with: int = -1
    gone_by: int | None = None
    return_with: int = -1
    back_by: int | None = None


class Order:
    """An order of runs on one processor and the gaps between accesses.

    Parameters
    ----------
    graph : TaskGraph
    machine : Machine
    tasks : sequence of int
        Tasks in execution order, repeats allowed; all on the first processor.

    Raises
    ------
    remat.OptionError
        If a value that is read, or an output that nothing writes, begins elsewhere than in the processor's memory, or
        if an output ends elsewhere.
    """

    def __init__(self, graph: TaskGraph, machine: Machine, tasks: Sequence[int]) -> None:
        self.graph, self.machine, self.tasks = graph, machine, list(tasks)
        device = machine.memories[device_of(machine)].name
        first = machine.memories[0].name
        elsewhere = [place.value for place in graph.outputs if (place.memory or first) != device]
        if elsewhere:
            raise OptionError(
                f"{graph.values[elsewhere[0]]!r} must end elsewhere than in {device!r}", argument="algorithm"
            )
        self.inputs = [place.value for place in graph.inputs if (place.memory or first) == device]
        self.outputs = {place.value for place in graph.outputs if (place.memory or first) == device}
        self.gaps: list[Gap] = []
        self.drops: list[list[int]] = [[] for _ in self.tasks]
        self._walk()

    @staticmethod
    def of(problem: Problem) -> Order:
        """Return every needed task once, in the reference order, as `keep-all` runs them."""
        return Order(problem.graph, problem.machine, reference_order(problem.graph, problem.needed.once).tolist())

    @cached_property
    def gaps_of_copy(self) -> dict[int, list[int]]:
        """Indices of the gaps of each copy, in order."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for index, gap in enumerate(self.gaps):
            found[gap.copy].append(index)
        return found

    @cached_property
    def start_times(self) -> IntArray:
        """When each run would start if nothing made it wait, and, last, when the last one would end."""
        return np.concatenate(([0], np.cumsum(self.graph.time[self.tasks])))

    def program(self, swaps: Iterable[Swap] = ()) -> Program:
        """Return the runs, and the transfers of the given swaps: of distinct gaps, those of one copy on one route.

        A copy that comes back stays where it waited, too, if it will leave again: it need not be sent twice.
        """
        chosen = {swap.gap: swap for swap in swaps}
        transfers: list[Transfer] = []
        drops = [list(row) for row in self.drops]
        for copies in self.gaps_of_copy.values():
            self._transfers_of_copy([chosen[index] for index in copies if index in chosen], transfers, drops)
        runs = [Run(task, drops=tuple(row)) for task, row in zip(self.tasks, drops, strict=True)]
        return Program(runs, transfers)

    def profile(self, swaps: Iterable[Swap] = ()) -> IntArray:
        """Return the bytes in the processor's memory during each run, nothing staying longer than it must."""
        return planned_profile(self.graph, self.machine, self.program(swaps))[device_of(self.machine)]

    def _walk(self) -> None:
        """Find the gaps and the last uses."""
        copies = 0
        current: dict[int, tuple[int, int]] = {}  # value: its copy and the run of its latest access
        for value in self.inputs:
            current[value] = (copies, BEFORE_ALL)
            copies += 1
        for position, task in enumerate(self.tasks):
            writes = self.graph.writes[task].tolist()
            for value in self.graph.reads[task].tolist():
                self._require(value, current)
                copy, latest = current[value]
                if value not in self.graph.pinned:
                    self.gaps.append(Gap(value, latest, position, copy))
                current[value] = (copy, position)
            for value in writes:
                if value in current:
                    self._drop(value, current[value][1], rewritten_by=position)
                current[value] = (copies, position)
                copies += 1
        for value in sorted(self.outputs):
            self._require(value, current)
        for value, (copy, latest) in current.items():
            if value in self.outputs and value not in self.graph.pinned:
                self.gaps.append(Gap(value, latest, len(self.tasks), copy))
            elif value not in self.outputs:
                self._drop(value, latest)

    def _require(self, value: int, current: Container[int]) -> None:
        if value not in current:
            name = self.machine.memories[device_of(self.machine)].name
            raise OptionError(f"{self.graph.values[value]!r} does not begin in {name!r}", argument="algorithm")

    def _drop(self, value: int, latest: int, rewritten_by: int | None = None) -> None:
        # A run that reads and writes a value replaces the old copy itself.
        if value not in self.graph.pinned and latest != BEFORE_ALL and latest != rewritten_by:
            self.drops[latest].append(value)

    def _transfers_of_copy(self, swaps: Sequence[Swap], transfers: list[Transfer], drops: list[list[int]]) -> None:
        """Append the transfers of one copy's swaps, in order of their gaps."""
        for number, swap in enumerate(swaps):
            gap = self.gaps[swap.gap]
            out = -1
            if number == 0:
                out = self._out(swap, gap, transfers)
            else:
                drops[gap.after].append(gap.value)  # what is elsewhere already is only dropped here
            self._back(swap, gap, out, transfers, keep=number + 1 < len(swaps))

    def _out(self, swap: Swap, gap: Gap, transfers: list[Transfer]) -> int:
        """Append the way out; return the index of its last transfer."""
        written = self.gaps[self.gaps_of_copy[gap.copy][0]].after
        count = len(self.tasks)
        for hop, link in enumerate(swap.route.out):
            is_last = hop + 1 == len(swap.route.out)
            transfers.append(
                Transfer(
                    value=gap.value,
                    link=link,
                    ready=written,
                    needed=count if swap.gone_by is None or not is_last else swap.gone_by,
                    last_use=gap.after if hop == 0 else BEFORE_ALL,
                    previous=-1 if hop == 0 else len(transfers) - 1,
                    begin=swap.leave_with,
                )
            )
        return len(transfers) - 1

    def _back(self, swap: Swap, gap: Gap, out: int, transfers: list[Transfer], *, keep: bool) -> None:
        """Append the way back, after the transfer `out` (-1: it is there already)."""
        for hop, link in enumerate(swap.route.back):
            is_first = hop == 0
            transfers.append(
                Transfer(
                    value=gap.value,
                    link=link,
                    ready=gap.after,
                    needed=gap.before if swap.back_by is None else swap.back_by,
                    last_use=None if is_first and keep else BEFORE_ALL,
                    previous=out if is_first else len(transfers) - 1,
                    begin=swap.return_with,
                    leaves=False,
                )
            )
