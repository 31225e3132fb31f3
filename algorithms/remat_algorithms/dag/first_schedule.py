"""A quick first schedule of a large task graph: the reference order with evictions and recomputations.

Anytime algorithms report it before any longer search, so that they have an answer whenever they are stopped.
The tasks run in the reference order. If the next run does not fit, the schedule evicts the value whose next use in that
order is farthest. If an evicted value is needed, its fastest producer recomputes it, which may evict other values.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from remat.plugin import Context, Problem, reference_order
from remat_algorithms.dag.steps import resident_at_ends, steps_of
from remat_algorithms.kit.makespan import timed

LARGE = 300
"""Minimum number of tasks for this schedule: other algorithms answer smaller graphs at once."""

MOST_RUNS, MOST_IN_ALL = 30, 200_000
"""Limits on the number of runs: per task, and in total. Beyond them the construction gives up."""

LOOKED_AT = 256
"""Number of runs between two checks of the clock."""

NEVER = 2**62
"""The next use of a value that is not used any more."""


def report_first(problem: Problem, context: Context) -> bool:
    """Report a first schedule of a large graph that recomputes in one memory; return whether there is one.

    Without a time limit, no first schedule is needed.
    """
    small = len(problem.graph.tasks) < LARGE
    if small or context.deadline is None or context.has_schedule or problem.exceeded is not None:
        return False
    runs = first_runs(problem, lambda: context.stopped)
    if runs is None:
        return False
    found = timed(problem, steps_of(problem, runs))
    if found is None:
        return False
    steps, makespan = found
    context.report(steps, makespan=makespan, message="first schedule")
    return True


def first_runs(problem: Problem, stopped: Callable[[], bool] = lambda: False) -> list[int] | None:
    """Return the runs of a schedule that fits into the first processor's memory; None if this heuristic finds none.

    O(accesses log accesses), where recomputations count as accesses too.
    """
    order = reference_order(problem.graph, problem.needed.once).tolist()
    if len(order) != int(problem.needed.once.sum()):
        return None
    eviction = _Eviction(problem, order, stopped)
    return eviction.runs if eviction.go() else None


class _Eviction:
    """The contents of the memory while the runs follow the order."""

    def __init__(self, problem: Problem, order: list[int], stopped: Callable[[], bool]) -> None:
        graph, machine = problem.graph, problem.machine
        own = machine.processors[0].memory
        self.order, self.stopped, self.runs = order, stopped, list[int]()
        self.reads, self.writes = graph.reads.to_lists(), graph.writes.to_lists()
        self.size, self.workspace = graph.size.tolist(), graph.workspace.tolist()
        self.in_place = graph.in_place.tolist()
        here, stays = resident_at_ends(graph, machine)
        capacity = machine.memories[own].capacity
        self.room = NEVER if capacity is None else capacity - graph.static_bytes(machine, own)
        self.maker, may_go = _makers(problem)
        self.stays = stays.tolist()
        for value, maker in enumerate(self.maker):
            self.stays[value] |= value in graph.pinned or (maker < 0 and not may_go[value])
        self.uses: list[list[int]] = [[] for _ in self.size]
        for place in range(len(order) - 1, -1, -1):
            for value in self.reads[order[place]]:
                self.uses[value].append(place)
        self.resident = [False] * len(self.size)
        self.locked = [0] * len(self.size)
        self.queue: list[tuple[int, int]] = []
        self.used = self.place = 0
        for value in here.nonzero()[0].tolist():
            self._enter(value)

    def go(self) -> bool:
        """Follow the order; return whether everything fits."""
        for place, task in enumerate(self.order):
            self.place = place
            if not self._perform(task):
                return False
            for value in self.reads[task]:
                if self.uses[value] and self.uses[value][-1] <= place:
                    self.uses[value].pop()
                    self._queue(value)
        return True

    def _perform(self, task: int) -> bool:
        """Run a task after the recomputations that its inputs need."""
        stack: list[tuple[int, list[int]]] = [(task, [])]
        above = {task}
        while stack:
            task, held = stack[-1]
            missing = -1
            for value in self.reads[task]:
                if not self.resident[value]:
                    missing = value
                elif value not in held:
                    self.locked[value] += 1
                    held.append(value)
            if missing < 0:
                if not self._run(task):
                    return False
                stack.pop()
                above.discard(task)
                for value in held:
                    self.locked[value] -= 1
                    self._queue(value)
                continue
            maker = self.maker[missing]
            if maker < 0 or maker in above:
                return False
            stack.append((maker, []))
            above.add(maker)
        return True

    def _run(self, task: int) -> bool:
        if len(self.runs) >= min(MOST_RUNS * len(self.order), max(MOST_IN_ALL, 2 * len(self.order))):
            return False
        if len(self.runs) % LOOKED_AT == LOOKED_AT - 1 and self.stopped():
            return False
        written = self.writes[task]
        new = [value for value in dict.fromkeys(written) if not self.resident[value]]
        need = sum(self.size[value] for value in new) + self.workspace[task]
        last = task == self.order[self.place]
        spent = [value for value in self.reads[task] if self._is_spent(value, last)] if self.in_place[task] else []
        for value in written:
            self.locked[value] += 1
        if spent and self._make_room(need, unused=True):
            spent = []  # no need to overwrite an input
        fits = self._make_room(need - min(need - self.workspace[task], sum(self.size[value] for value in spent)))
        for value in written:
            self.locked[value] -= 1
        if not fits:
            return False
        self.runs.append(task)
        for value in spent:
            self.resident[value] = False
            self.used -= self.size[value]
        for value in new:
            self._enter(value)
        return True

    def _is_spent(self, value: int, last: bool) -> bool:
        """Whether no run after this one reads a value; `last`: this run is the one that the order has reached."""
        uses = self.uses[value]
        over = not uses or (last and len(uses) == 1 and uses[0] <= self.place)
        return over and not self.stays[value] and self.locked[value] == 1

    def _make_room(self, need: int, *, unused: bool = False) -> bool:
        """Free `need` bytes by evicting values with the farthest next use; `unused`: only those without a next use."""
        aside = list[tuple[int, int]]()
        while self.used + need > self.room and self.queue and (not unused or self.queue[0][0] == -NEVER):
            entry = heapq.heappop(self.queue)
            value = entry[1]
            if not self.resident[value] or entry[0] != -self._next(value):
                continue
            if self.locked[value]:
                aside.append(entry)
                continue
            self.resident[value] = False
            self.used -= self.size[value]
        for entry in aside:
            heapq.heappush(self.queue, entry)
        return self.used + need <= self.room

    def _enter(self, value: int) -> None:
        self.resident[value] = True
        self.used += self.size[value]
        self._queue(value)

    def _next(self, value: int) -> int:
        return self.uses[value][-1] if self.uses[value] else NEVER

    def _queue(self, value: int) -> None:
        """Add a value to the eviction queue if it may be evicted."""
        lost = self.maker[value] < 0 and self.uses[value]
        if self.resident[value] and not self.stays[value] and not lost:
            heapq.heappush(self.queue, (-self._next(value), value))


def _makers(problem: Problem) -> tuple[list[int], list[bool]]:
    """Return the fastest task that can recompute each value, or -1; and whether it may be dropped after its last use.

    A value that no task can recompute may be dropped only if no recomputation reads it.
    """
    graph = problem.graph
    time = graph.time.tolist()
    again = (graph.recomputable & ~graph.once).tolist()
    makers, may_go = list[int](), list[bool]()
    for able, users in zip(graph.producers.to_lists(), graph.readers.to_lists(), strict=True):
        able = [task for task in able if again[task]]
        makers.append(min(able, key=lambda task: (time[task], task), default=-1))
        may_go.append(not any(again[task] for task in users))
    return makers, may_go
