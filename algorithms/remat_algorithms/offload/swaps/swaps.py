"""Orders of runs: accesses to each copy of a value, and the gaps in which it may or must be elsewhere.

A *gap* is the time between two accesses to a copy in the first processor's memory. A *swap* states that the value
spends a gap elsewhere. The rest follows: when the value can leave, when its bytes are free, by when it must be back.

Some transfers are not a choice. A value that begins elsewhere has to come before its first use: that gap is `away` in
any case. Values that a run on a processor of another memory reads, or that must end in another memory, have to be sent
there. Offloading a copy that is elsewhere anyway costs no transfer out: it is dropped, and returns from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from remat.plugin import IntArray, Machine, OptionError, Problem, TaskGraph, reference_order
from remat_algorithms.offload.swaps.program import Program, planned_profile
from remat_algorithms.offload.swaps.routes import Route, device_of, paths
from remat_algorithms.offload.swaps.transfers import program_of
from remat_algorithms.offload.swaps.value_copies import BEFORE_ALL, Copy, Gap, Swap


class Order:
    """An order of runs and the gaps between accesses in the first processor's memory.

    Parameters
    ----------
    graph : TaskGraph
    machine : Machine
    tasks : sequence of int
        Tasks in execution order, repeats allowed.
    processors : sequence of int, optional
        The processor of each run; default: the first one. Values that those in other memories read are sent to them.

    Raises
    ------
    remat.OptionError
        If a value is in no memory when it is needed.
    """

    def __init__(
        self, graph: TaskGraph, machine: Machine, tasks: Sequence[int], processors: Sequence[int] | None = None
    ) -> None:
        self.graph, self.machine, self.tasks = graph, machine, list(tasks)
        self.processors = [0] * len(self.tasks) if processors is None else list(processors)
        self.device = device_of(machine)
        self._ways: dict[int, dict[int, tuple[int, ...]]] = {}
        self.homes = self._homes()
        self.inputs = list(self.homes)
        places = [(place.value, machine.memory_index[place.memory] if place.memory else 0) for place in graph.outputs]
        self.outputs = {value for value, memory in places if memory == self.device}
        self.gaps: list[Gap] = []
        self.copies: list[Copy] = []
        self.drops: list[list[int]] = [[] for _ in self.tasks]
        self._walk([place for place in places if place[1] != self.device])

    def task_at(self, position: int) -> int | None:
        """Return the task at a position; None in an order without runs, whose values only come and go."""
        return self.tasks[position] if self.tasks else None

    @staticmethod
    def of(problem: Problem) -> Order:
        """Return every needed task once, in the reference order, as `keep-all` runs them."""
        return Order(problem.graph, problem.machine, reference_order(problem.graph, problem.needed.once).tolist())

    @cached_property
    def gaps_of_copy(self) -> dict[int, list[int]]:
        """Indices of the gaps of each copy that has any, in order."""
        return {copy.number: copy.gaps for copy in self.copies if copy.gaps}

    @cached_property
    def start_times(self) -> IntArray:
        """Start of each run if no run waits for transfers and, last, the end of the last one.

        Runs in other memories overlap with those of the first processor, and take no time here.
        """
        times = self.graph.time[self.tasks]
        if any(self.processors):
            memories = [self.machine.processors[processor].memory for processor in self.processors]
            times = np.where(np.array(memories) == self.device, times, 0)
        return np.concatenate(([0], np.cumsum(times)))

    def anyhow(self, copy: int) -> Route | None:
        """Return the route from the memory that holds a copy in any case; None if only the processor's memory does."""
        memory = self.copies[copy].refuge
        return None if memory is None else Route(memory, (), self.way(memory, self.device))

    def program(self, swaps: Iterable[Swap] = ()) -> Program:
        """Return the runs, and the transfers: those of the given swaps, and the mandatory ones.

        The swaps are of distinct gaps, those of one copy on one route. A copy that returns also stays where it waited
        if it will leave again: it need not be sent twice.
        """
        return program_of(self, swaps)

    def profile(self, swaps: Iterable[Swap] = ()) -> IntArray:
        """Return the bytes in the processor's memory during each run if no value stays longer than necessary."""
        return planned_profile(self.graph, self.machine, self.program(swaps))[self.device]

    def way(self, source: int, target: int) -> tuple[int, ...]:
        """Return the fewest links from one memory to another, through the processor's only if it is one of them.

        Raises
        ------
        remat.OptionError
            If no path exists.
        """
        known = self._ways.get(source)
        if known is None:
            avoided = None if source == self.device else self.device
            known = self._ways[source] = paths(self.machine, source, avoided=avoided)
        if target not in known:
            names = [self.machine.memories[memory].name for memory in (source, target)]
            raise OptionError(
                f"a value must go from {names[0]!r} to {names[1]!r}, but no links connect them", argument="machine"
            )
        return known[target]

    @cached_property
    def _rank(self) -> dict[int, int]:
        """Number of links from the processor's memory to each memory; unreachable ones come last."""
        ways = paths(self.machine, self.device, backward=True)
        far = len(self.machine.links) + 1
        return {memory: len(ways[memory]) if memory in ways else far for memory in range(len(self.machine.memories))}

    def _homes(self) -> dict[int, list[int]]:
        """Return the memories in which each input begins, the processor's first, then the nearest."""
        index = self.machine.memory_index
        found: defaultdict[int, list[int]] = defaultdict(list)
        for place in self.graph.inputs:
            found[place.value].append(index[place.memory] if place.memory else 0)
        return {value: self._by_distance(row) for value, row in found.items()}

    def _by_distance(self, memories: Iterable[int]) -> list[int]:
        return sorted(set(memories), key=lambda memory: (self._rank[memory], memory))

    def _walk(self, ends: Sequence[tuple[int, int]]) -> None:
        """Find the copies, their gaps and their last uses."""
        current: dict[int, Copy] = {}
        for value, memories in self.homes.items():
            away = [memory for memory in memories if memory != self.device]
            here = len(away) < len(memories)
            self._begin(current, value, BEFORE_ALL, here=here, home=away[0] if away else None)
        memory_of = [processor.memory for processor in self.machine.processors]
        order = np.array(self.tasks, dtype=np.int64)
        reads, writes = (row.gather(order).to_lists() for row in (self.graph.reads, self.graph.writes))
        for position, processor in enumerate(self.processors):
            memory = memory_of[processor]
            here = memory == self.device
            for value in reads[position]:
                self._read(self._current(current, value), position, memory)
            for value in writes[position]:
                old = current.get(value)
                if old is not None:
                    # A run that reads and writes a value replaces the old copy itself.
                    self._end(old, stays=here and old.last == position)
                self._begin(current, value, position, here=here, home=None if here else memory)
        for value, memory in ends:
            self._current(current, value).ends.append(memory)
        for value in sorted(self.outputs):
            self._read(self._current(current, value), len(self.tasks), self.device)
        for value, copy in current.items():
            self._end(copy, stays=value in self.outputs)

    def _begin(self, current: dict[int, Copy], value: int, position: int, *, here: bool, home: int | None) -> None:
        copy = Copy(len(self.copies), value, position, here, home, position)
        self.copies.append(copy)
        current[value] = copy

    def _current(self, current: dict[int, Copy], value: int) -> Copy:
        if value not in current:
            raise OptionError(f"{self.graph.values[value]!r} is in no memory when it is needed", argument="algorithm")
        return current[value]

    def _read(self, copy: Copy, position: int, memory: int) -> None:
        """Record an access; a value that must not be freed has no gaps."""
        if memory != self.device:
            copy.remote.setdefault(memory, []).append(position)
            return
        away = not copy.here and not copy.gaps
        if away or copy.value not in self.graph.pinned:
            copy.gaps.append(len(self.gaps))
            self.gaps.append(Gap(copy.value, copy.last, position, copy.number, away))
        copy.last = position

    def _end(self, copy: Copy, *, stays: bool) -> None:
        """Free a copy with its last use, unless it is sent away then."""
        if copy.home is not None or copy.remote or copy.ends:
            known = self._by_distance(m for m in (copy.home, *copy.remote, *copy.ends) if m is not None)
            copy.targets, copy.refuge = [memory for memory in known if memory != copy.home], known[0]
        copy.freed = not stays and copy.value not in self.graph.pinned
        if copy.freed and not copy.sent and copy.last != BEFORE_ALL and (copy.here or copy.gaps):
            self.drops[copy.last].append(copy.value)
