"""The simulation of `dtr`: resident, evicted and locked values while the stages run within a limit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from remat.plugin import Context, Number
from remat_algorithms.dag.literature.retention import Stages


class Heuristic(StrEnum):
    """DTR's ranking of the values that it may evict."""

    FULL = "h"
    CLASSES = "eq"
    LOCAL = "local"
    LEAST_RECENTLY_USED = "lru"
    SIZE = "size"
    MSPS = "msps"


class GaveUp(Exception):
    """A value does not fit, the time exceeds its limit, or the context is stopped."""


@dataclass(frozen=True)
class Program:
    """The data that all limits share.

    Attributes
    ----------
    stages : Stages
    """

    stages: Stages

    @cached_property
    def cost(self) -> list[Number]:
        """For each value, the time of the cheapest task that can recompute it."""
        stages = self.stages
        times, found = stages.graph.time.tolist(), []
        for value, maker in enumerate(stages.maker):
            found.append(times[stages.rival(maker, (value,))] if maker >= 0 else 0)
        return found

    @cached_property
    def parents(self) -> list[list[int]]:
        """For each value that may be recomputed, the evictable values that it is computed from."""
        stages, fixed = self.stages, self.stages.fixed.tolist()
        return [
            [other for other in stages.reads[maker] if not fixed[other]] if maker >= 0 and not fixed[value] else []
            for value, maker in enumerate(stages.maker)
        ]

    @cached_property
    def children(self) -> list[list[int]]:
        """For each value, the evictable values that are computed from it."""
        found: list[list[int]] = [[] for _ in self.parents]
        for value, parents in enumerate(self.parents):
            for other in parents:
                found[other].append(value)
        return found

    @cached_property
    def last_use(self) -> list[int]:
        """For each value the last stage that reads it in the program; after all stages for values wanted at the end."""
        stages = self.stages
        found = [max(readers, default=maker) for readers, maker in zip(stages.readers, stages.maker, strict=True)]
        for value in stages.ends:
            found[value] = len(stages)
        return found

    @cached_property
    def horizon(self) -> list[int]:
        """For each value the last stage that may need it, recomputation included."""
        found, fixed = list(self.last_use), self.stages.fixed.tolist()
        for stage in range(len(self.stages) - 1, -1, -1):
            again = [found[value] for value in self.stages.writes[stage] if not fixed[value]]
            for value in self.stages.reads[stage] if again else ():
                found[value] = max(found[value], *again)
        return found

    @cached_property
    def dying(self) -> list[list[int]]:
        """For each stage the values that no later stage may need."""
        found: list[list[int]] = [[] for _ in range(len(self.stages) + 1)]
        for value, stage in enumerate(self.horizon):
            if stage >= 0:
                found[stage].append(value)
        return found


class Simulation:
    """One pass over the program within a limit.

    Parameters
    ----------
    program : Program
    limit : int
        Bytes, static memory and inputs included.
    heuristic : Heuristic
    longest : int or float, optional
        Total time at which to give up.
    """

    def __init__(self, program: Program, limit: int, heuristic: Heuristic, longest: Number | None = None) -> None:
        stages, count = program.stages, len(program.stages.maker)
        self.program, self.stages, self.limit, self.heuristic = program, stages, limit, heuristic
        self.longest = longest
        self.runs: list[int] = []
        self.evictions: list[int] = []
        self.clock: Number = 0
        own = stages.machine.processors[0].memory
        names = [memory.name for memory in stages.machine.memories]
        here = [place.value for place in stages.graph.inputs if (place.memory or names[0]) == names[own]]
        self.resident = [False] * count
        for value in here:
            self.resident[value] = True
        static = stages.graph.static_memory if own == 0 else 0
        self.memory = static + sum(size for value, size in enumerate(stages.size) if self.resident[value])
        self.evicted = [False] * count
        self.locks = [0] * count
        self.accessed: list[Number] = [0] * count
        self.fixed = stages.fixed.tolist()
        self._neighbourhood: list[Number | None] = [None] * count
        self._class = list(range(count))
        self._class_cost: list[Number] = [0] * count
        self._pinned = stages.graph.pinned

    def perform(self, stage: int, context: Context | None = None) -> None:
        """Run a stage (the one after the last provides the wanted values); raise `GaveUp` if it cannot run."""
        stages, at_end = self.stages, stage == len(self.stages)
        reads = list(stages.ends) if at_end else stages.reads[stage]
        pending = [(-1 if at_end else stages.tasks[stage], reads)]
        self._lock(reads)
        while pending:
            task, reads = pending[-1]
            missing = next((value for value in reads if not self.resident[value]), None)
            if missing is not None:
                maker = stages.rival(stages.maker[missing], (missing,))
                needs = stages.graph.reads[maker].tolist()
                pending.append((maker, needs))
                self._lock(needs)
                continue
            if task >= 0:
                self._run(task, reads, context)
            for value in reads:
                self.locks[value] -= 1
            pending.pop()
        if not at_end:
            self._release(stage)

    def _lock(self, values: list[int]) -> None:
        for value in values:
            self.locks[value] += 1

    def _run(self, task: int, reads: list[int], context: Context | None) -> None:
        graph, size = self.stages.graph, self.stages.size
        writes = graph.writes[task].tolist()
        added = sum(size[value] for value in writes)
        workspace = int(graph.workspace[task])
        while self.memory + added + workspace > self.limit:
            if context is not None and context.stopped:
                raise GaveUp
            self._evict(self._choose())
        self.memory += added - sum(size[value] for value in writes if self.resident[value])
        self.runs.append(task)
        self.clock += graph.time[task].item()
        if self.longest is not None and self.clock > self.longest:
            raise GaveUp
        for value in writes:
            self.resident[value] = True
            if self.evicted[value]:
                self._return(value)
        for value in (*reads, *writes):
            self.accessed[value] = self.clock

    def _release(self, stage: int) -> None:
        """Forget values that no later stage may need, and evict those that the program has read for the last time."""
        for value in self.program.dying[stage]:
            if self.resident[value] and value not in self._pinned:
                self.resident[value] = False
                self.memory -= self.stages.size[value]
            if self.evicted[value]:
                self._return(value)
        for value in (*self.stages.reads[stage], *self.stages.writes[stage]):
            if self.resident[value] and not self.fixed[value] and self.program.last_use[value] <= stage:
                self._evict(value)

    # --- eviction ---------------------------------------------------------------------------------------------------

    def _choose(self) -> int:
        """Return the value to evict: the smallest h; of equals the larger, then the first."""
        size, best, chosen = self.stages.size, None, -1
        for value, there in enumerate(self.resident):
            if there and not self.locks[value] and not self.fixed[value] and size[value]:
                key = (self.score(value), -size[value])
                if best is None or key < best:
                    best, chosen = key, value
        if chosen < 0:
            raise GaveUp
        self.evictions.append(chosen)
        return chosen

    def score(self, value: int) -> float:
        """Return h of a value; the smallest is evicted first (see `remat_algorithms.dag.literature.dtr`)."""
        size, stale = self.stages.size[value], self.clock - self.accessed[value]
        match self.heuristic:
            case Heuristic.SIZE:
                return 1 / size
            case Heuristic.LEAST_RECENTLY_USED:
                return 1 / stale if stale else float("inf")
            case Heuristic.MSPS:
                return self._cost(value) / size
        return self._cost(value) / (size * stale) if stale else float("inf")

    def _cost(self, value: int) -> Number:
        own = self.program.cost[value]
        match self.heuristic:
            case Heuristic.LOCAL:
                return own
            case Heuristic.CLASSES:
                beside = (*self.program.parents[value], *self.program.children[value])
                classes = {self._root(other) for other in beside if self.evicted[other]}
                return own + sum(self._class_cost[root] for root in sorted(classes))
        known = self._neighbourhood[value]
        if known is None:
            found = self._reach(value, self.program.parents)
            if self.heuristic is Heuristic.FULL:
                found |= self._reach(value, self.program.children)
            known = sum(self.program.cost[other] for other in sorted(found))
            self._neighbourhood[value] = known
        return own + known

    def _reach(self, value: int, edges: list[list[int]]) -> set[int]:
        """Return the evicted values that paths of evicted values along these edges connect to a value."""
        found: set[int] = set()
        frontier = [value]
        while frontier:
            for other in edges[frontier.pop()]:
                if self.evicted[other] and other not in found:
                    found.add(other)
                    frontier.append(other)
        return found

    def _evict(self, value: int) -> None:
        self.resident[value] = False
        self.memory -= self.stages.size[value]
        if self.program.horizon[value] < 0:
            return
        self.evicted[value] = True
        if self.heuristic is Heuristic.CLASSES:
            self._class[value], self._class_cost[value] = value, self.program.cost[value]
            for other in (*self.program.parents[value], *self.program.children[value]):
                if self.evicted[other] and other != value:
                    self._join(value, other)
        else:
            self._forget_around(value)

    def _return(self, value: int) -> None:
        """Remove a value from the evicted ones: it is resident again, or dead."""
        if self.heuristic is Heuristic.CLASSES:
            self._class_cost[self._root(value)] -= self.program.cost[value]
        else:
            self._forget_around(value)
        self.evicted[value] = False

    def _forget_around(self, value: int) -> None:
        """Forget the sums of all values whose evicted neighbourhood may contain this one."""
        seen, frontier = {value}, [value]
        self._neighbourhood[value] = None
        while frontier:
            current = frontier.pop()
            for other in (*self.program.parents[current], *self.program.children[current]):
                self._neighbourhood[other] = None
                if self.evicted[other] and other not in seen:
                    seen.add(other)
                    frontier.append(other)

    def _root(self, value: int) -> int:
        while self._class[value] != value:
            self._class[value] = self._class[self._class[value]]
            value = self._class[value]
        return value

    def _join(self, one: int, other: int) -> None:
        root, below = self._root(one), self._root(other)
        if root != below:
            self._class[below] = root
            self._class_cost[root] += self._class_cost[below]
