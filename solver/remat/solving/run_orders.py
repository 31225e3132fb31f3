"""Local search over orders of runs in one memory, for orders whose addresses fit a capacity.

The search works on task numbers and lifetimes alone, which makes a change a thousand times cheaper than a placed and
verified schedule. Its arenas are estimates: the caller verifies and lays out each order that it yields.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from operator import itemgetter

from remat.graph.taskgraph import TaskGraph
from remat.plugin.problem import Problem
from remat.units import Number

Lifetime = tuple[int, int, int]
"""The first run, the run after the last one, and the size."""

Value = tuple[int, Number]
"""The bytes by which an arena exceeds the capacity, and the total run time."""

ROUNDS = ((5, 4_000), (50, 4_000), (500, 20_000))
"""Restarts, one after the other: the history length of late acceptance, and the number of changes. Greedy arenas have
wide plateaus, and no single history length leaves all of them."""

MOST_REFUSALS = 100
"""Orders that break a rule of which lifetimes know nothing, after which a search ends."""

NEAR, MOST_CHECKS = 0.04, 200
"""Share of the capacity by which a greedy arena may exceed it and still start an exact search, and the number of
searches."""


class RunOrders:
    """Lifetimes and total times of orders of runs in the working memory.

    Parameters
    ----------
    problem : Problem
        A problem with one processor.
    """

    def __init__(self, problem: Problem) -> None:
        graph, machine = problem.graph, problem.machine
        self.graph: TaskGraph = graph
        self.reads, self.writes = graph.reads.to_lists(), graph.writes.to_lists()
        self.size, self.workspace = graph.size.tolist(), graph.workspace.tolist()
        self.time: list[Number] = graph.time.tolist()
        self.in_place = graph.in_place.tolist()
        self.recomputable = (graph.recomputable & ~graph.once).tolist()
        self.makers = [graph.producers[value].tolist() for value in range(len(graph.values))]
        self.stays = {place.value for place in graph.outputs} | graph.pinned
        working = machine.processors[0].memory
        memory = machine.memories[working]
        assert memory.capacity is not None
        self.capacity = memory.capacity - graph.static_bytes(machine, working)

    def total_time(self, order: list[int]) -> Number:
        """Return the total time of the runs."""
        return sum(self.time[task] for task in order)

    def lifetimes(self, order: list[int]) -> list[Lifetime] | None:
        """Return the lifetimes of all copies and workspaces; None if a run reads a value that is not there.

        An output in place that takes over the bytes of an input begins after its run.
        """
        copies: list[list[int]] = []  # first run, the one after the last one, size
        current: dict[int, list[int]] = {}
        for value in self.graph.available:
            current[value] = [0, 0, self.size[value]]
            copies.append(current[value])
        for run, task in enumerate(order):
            for value in self.reads[task]:
                if value not in current:
                    return None
                current[value][1] = run + 1
            if self.workspace[task]:
                copies.append([run, run + 1, self.workspace[task]])
            for value in self.writes[task]:
                current[value] = [run, run + 1, self.size[value]]
                copies.append(current[value])
        for value in self.stays & current.keys():
            current[value][1] = len(order)
        self._take_over(order, copies)
        return [(start, end, size) for start, end, size in copies if start < end and size]

    def _take_over(self, order: list[int], copies: list[list[int]]) -> None:
        """Shorten lifetimes of outputs in place, or of their inputs, whichever are smaller."""
        runs = {run for run, task in enumerate(order) if self.in_place[task]}
        if not runs:
            return
        ending: dict[int, list[list[int]]] = {}
        for copy in copies:
            if copy[1] - 1 in runs and copy[0] < copy[1] - 1:
                ending.setdefault(copy[1] - 1, []).append(copy)
        for copy in sorted(copies, key=itemgetter(2), reverse=True):
            hosts = ending.get(copy[0])
            if hosts and copy[1] > copy[0] + 1:
                host = max(hosts, key=itemgetter(2))
                hosts.remove(host)
                if copy[2] <= host[2]:
                    copy[0] += 1
                else:
                    host[1] -= 1

    def changed(self, order: list[int], draw: random.Random, reruns: float) -> list[int] | None:
        """Return an order in which a run has moved, was added before a reader, or is left out; None without one."""
        changed = list(order)
        kind = draw.random()
        place = draw.randrange(len(order))
        if kind < reruns / 2:
            if order.count(order[place]) < 2:
                return None
            del changed[place]
        elif kind < reruns:
            makers = [
                task for value in self.reads[order[place]] for task in self.makers[value] if self.recomputable[task]
            ]
            if not makers:
                return None
            changed.insert(place, draw.choice(makers))
        else:
            moved = changed.pop(place)
            changed.insert(draw.randrange(len(changed) + 1), moved)
        return changed


def live_bytes(lives: list[Lifetime]) -> int:
    """Return the peak."""
    change: dict[int, int] = {}
    for start, end, size in lives:
        change[start] = change.get(start, 0) + size
        change[end] = change.get(end, 0) - size
    live = peak = 0
    for instant in sorted(change):
        live += change[instant]
        peak = max(peak, live)
    return peak


def greedy_arena(lives: list[Lifetime], enough: int) -> int:
    """Return the smallest arena of best-fit by size, area and start; the first one of at most `enough` bytes."""
    best = -1
    by_size = sorted(lives, key=lambda life: (-life[2], life[0] - life[1]))
    by_area = sorted(lives, key=lambda life: (life[0] - life[1]) * life[2])
    for order in (by_size, by_area, sorted(lives)):
        arena = _best_fit(order)
        if best < 0 or arena < best:
            best = arena
        if best <= enough:
            break
    return max(best, 0)


def _best_fit(lives: list[Lifetime]) -> int:
    """Place each lifetime in the smallest gap that is free throughout; return the arena."""
    placed: list[tuple[int, int, int, int]] = []  # low and high address, start, end; by low address
    arena = 0
    for start, end, size in lives:
        top, at, smallest = 0, -1, 0
        for low, high, begin, stop in placed:
            if begin < end and start < stop:
                if size <= low - top and (at < 0 or low - top < smallest):
                    at, smallest = top, low - top
                if high > top:
                    top = high
        if at < 0:
            at = top
        arena = max(arena, at + size)
        place = len(placed)
        while place and placed[place - 1][0] > at:
            place -= 1
        placed.insert(place, (at, at + size, start, end))
    return arena


@dataclass
class OrderSearch:
    """Local search with late acceptance: a change moves a run, or adds or removes a rerun.

    Attributes
    ----------
    orders : RunOrders
    fits : callable
        Tells, with a search, whether lifetimes have a layout within the capacity.
    draw : random.Random
    reruns : float
        Share of the changes that add or remove a rerun.
    refused : bool
        Set by the caller if a yielded order breaks a rule; the search may then yield another order of equal time.
    """

    orders: RunOrders
    fits: Callable[[list[Lifetime]], bool]
    draw: random.Random
    reruns: float
    refused: bool = False
    checks: int = 0
    nearest: int = field(default=1 << 62)

    def run(self, order: list[int], changes: int, target: Number, stopped: Callable[[], bool]) -> Iterator[list[int]]:
        """Yield orders that are expected to fit, each faster than the one before; stop at a time of `target`."""
        best = self._value(order)
        if best is None:
            return
        refusals = 0
        for late, length in cycle(ROUNDS):
            for changed, value in self._round(order, late, min(length, changes), stopped):
                if value >= best:
                    continue
                if value[0] == 0:
                    self.refused = False
                    yield changed
                    if self.refused:
                        refusals += 1
                        if refusals > MOST_REFUSALS:
                            return
                        continue
                best = value
                if best <= (0, target):
                    return
            changes -= length
            if changes <= 0 or stopped():
                return

    def _round(
        self, order: list[int], late: int, changes: int, stopped: Callable[[], bool]
    ) -> Iterator[tuple[list[int], Value]]:
        """Yield the accepted orders of one restart."""
        value = self._value(order)
        assert value is not None
        earlier = [value] * late
        for turn in range(changes):
            if stopped():
                return
            changed = self.orders.changed(order, self.draw, self.reruns)
            changed_value = None if changed is None else self._value(changed)
            if changed is None or changed_value is None:
                continue
            if changed_value <= max(value, earlier[turn % late]):
                order, value = changed, changed_value
                yield order, value
            earlier[turn % late] = value

    def _value(self, order: list[int]) -> Value | None:
        """Return the value of an order; None if it is invalid."""
        lives = self.orders.lifetimes(order)
        if lives is None:
            return None
        capacity = self.orders.capacity
        time = self.orders.total_time(order)
        peak = live_bytes(lives)
        excess = max(0, greedy_arena(lives, capacity) - capacity)
        if excess and peak <= capacity and self._is_near(excess) and self.fits(lives):
            return 0, time
        return excess, time

    def _is_near(self, excess: int) -> bool:
        """Whether the exact search is worth its time."""
        if self.checks >= MOST_CHECKS or excess > max(self.nearest, NEAR * self.orders.capacity):
            return False
        self.nearest = min(self.nearest, excess)
        self.checks += 1
        return True
