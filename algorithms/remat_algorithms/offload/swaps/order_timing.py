"""Makespans of orders of runs with offloading, by compiled functions over arrays; the steps only on demand.

They support the usual machine (`Columns.known`). Their results equal those of `gap_selection.Choice` to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from remat.plugin import BoolArray, IntArray, Number, NumberArray, Problem, number_array
from remat_algorithms.offload.swaps.gap_choice_facts import Gaps
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan
from remat_algorithms.offload.swaps.order_kernel import timing
from remat_algorithms.offload.swaps.order_kernel.kernel_structs import Figures, Given, Moves, Runs
from remat_algorithms.offload.swaps.order_kernel.timing import LOOK, NOW, SELECT, TIME
from remat_algorithms.offload.swaps.program import run_time
from remat_algorithms.offload.swaps.routes import Route, device_of
from remat_algorithms.offload.swaps.swaps import Order
from remat_algorithms.offload.swaps.value_copies import Swap

EXACT = 2**53
"""Integral times above which floats are not exact."""

LONGEST = 64
"""Maximum of runs and of transfers, as a multiple of the graph's tasks and values; far above any real order."""


@dataclass(frozen=True)
class Timed:
    """An order of runs with offloading, and its makespan.

    Attributes
    ----------
    makespan : int or float
    tasks : (runs,) ints
    starts : (runs,) ints or floats
    """

    makespan: Number
    tasks: IntArray
    starts: NumberArray


class Columns:
    """A problem, and arrays for orders of its runs.

    Parameters
    ----------
    problem : Problem
    route : Route
        The route on a machine that is `known`.
    compiled : bool
    """

    def __init__(self, problem: Problem, route: Route, *, compiled: bool = True) -> None:
        self.problem, self.route, self.compiled = problem, route, compiled
        self.given = _given(problem, route)
        self.latest: Outline | None = None
        self._accesses = np.diff(self.given.read_start), np.diff(self.given.write_start)
        self._most_runs, self._most_accesses = 0, 0

    @staticmethod
    def known(problem: Problem, routes: Sequence[Route]) -> bool:
        """Whether the arrays represent everything that matters of a problem.

        The processor's memory has a budget. Links lead to the nearest memory, which is unbounded, and back, overlapped
        with runs. No value begins or ends elsewhere, and no run is of a special kind.
        """
        machine, graph = problem.machine, problem.graph
        special = graph.parts or graph.types or graph.tied or graph.placeable or graph.pairs
        if not routes or problem.budget is None or special:
            return False
        device, route = device_of(machine), routes[0]
        if len(route.out) != 1 or len(route.back) != 1 or machine.memories[route.memory].capacity is not None:
            return False
        if any(machine.resource_of_link[link] < len(machine.processors) for link in (*route.out, *route.back)):
            return False
        places = (*graph.inputs, *graph.outputs)
        if {machine.memory_index[place.memory] if place.memory else 0 for place in places} - {device}:
            return False
        given = _given(problem, route)
        return float(given.time.sum() + given.out.sum() + given.back.sum()) * LONGEST < EXACT

    def look(self, tasks: Sequence[int]) -> Outline | None:
        """Analyse an order of runs; None if a value is not resident when a run reads it."""
        order = np.asarray(tasks, dtype=np.int64)
        self._grow(order)
        self.runs.asked[: len(order)] = order
        self.latest = None
        if not self.act(LOOK, len(order)):
            return None
        self.latest = Outline(self)
        return self.latest

    def _grow(self, order: IntArray) -> None:
        """Enlarge the arrays for an order, and bind the functions to them."""
        accesses = sum(int(each[order].sum()) for each in self._accesses)
        accesses += len(self.given.inputs) + len(self.given.outputs)
        if len(order) <= self._most_runs and accesses <= self._most_accesses:
            return
        self._most_runs, self._most_accesses = 2 * len(order), 2 * accesses
        self.runs = _room_of_runs(self.given, self._most_runs, self._most_accesses)
        self.moves = _room_of_moves(self.given, self._most_runs, self._most_accesses)
        records = (self.given, self.runs, self.moves)
        self.act: Callable[[int, int], bool] = partial(timing.act, *records)
        if self.compiled:
            from remat_algorithms.offload.swaps.order_kernel import kernel

            self.act = kernel.ACT.bind(*records)


class Outline(Gaps):
    """An order of runs, with the facts for choosing among its gaps: `Choice` without its objects.

    Parameters
    ----------
    columns : Columns
        They have just analysed it.
    """

    def __init__(self, columns: Columns) -> None:
        runs, figures = columns.runs, columns.runs.figures
        self.columns, self.problem, self.budget = columns, columns.problem, columns.given.capacity
        self.tasks = runs.task[: figures.runs].copy()
        self.profile = runs.profile[: figures.runs].copy()
        self.after = runs.gap_after[: figures.gaps].copy()
        self.before = runs.gap_before[: figures.gaps].copy()
        self.value = runs.gap_value[: figures.gaps].copy()
        self.size = columns.given.size[self.value]

    @cached_property
    def start_times(self) -> NumberArray:
        """Start of each run if no run waits for transfers and, last, the end of the last one."""
        return np.concatenate(([0], np.cumsum(self.problem.graph.time[self.tasks])))

    @cached_property
    def candidates(self) -> IntArray:
        """Gaps with at least one run between, of values with at least one byte."""
        return np.flatnonzero((self.before - self.after > 1) & (self.size > 0))

    @cached_property
    def goes_anyhow(self) -> BoolArray:
        """Whether each gap's value is in another memory in any case: none is."""
        return np.zeros(len(self.after), dtype=bool)

    @cached_property
    def transfer_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Times of each gap's transfers, out and back."""
        given = self.columns.given
        return given.out[self.value].astype(np.float64), given.back[self.value].astype(np.float64)

    def select(self, ranking: Iterable[int] | IntArray) -> list[int] | None:
        """Take gaps in the order of a ranking; see `Choice.select`."""
        self._again()
        order = np.asarray(ranking, dtype=np.int64)
        moves = self.columns.moves
        moves.ranking[: len(order)] = order
        if not self.columns.act(SELECT, len(order)):
            return None
        chosen: list[int] = moves.taken[: self.columns.runs.figures.chosen].tolist()
        return chosen

    def timed(self, gaps: Sequence[int], leave_with: Sequence[int], return_with: Sequence[int]) -> Timed | None:
        """Return the makespan when the values of some gaps leave; None if they do not fit.

        Parameters
        ----------
        gaps, leave_with, return_with : sequences of int
            See `copies.Swap`.
        """
        self._again()
        moves, figures = self.columns.moves, self.columns.runs.figures
        moves.chosen[: figures.gaps] = 0
        moves.chosen[list(gaps)] = 1
        moves.leave_with[list(gaps)] = leave_with
        moves.return_with[list(gaps)] = return_with
        if not self.columns.act(TIME, 0):
            return None
        return Timed(moves.clock[NOW].item(), self.tasks, moves.started[: figures.runs].copy())

    def plan(self, gaps: Sequence[int], leave_with: Sequence[int], return_with: Sequence[int]) -> Plan | None:
        """Return that plan, with its steps."""
        problem, route = self.problem, self.columns.route
        choice = Choice(problem, Order(problem.graph, problem.machine, self.tasks.tolist()), (route,), outputs=True)
        return choice.dispatched(
            [
                Swap(gap=gap, route=route, leave_with=leave, return_with=back)
                for gap, leave, back in zip(gaps, leave_with, return_with, strict=True)
            ]
        )

    def _again(self) -> None:
        """Analyse the order again if another one has been analysed since."""
        if self.columns.latest is not self:
            self.columns.look(self.tasks)
            self.columns.latest = self


def _given(problem: Problem, route: Route) -> Given:
    """Return the arrays of a problem."""
    graph, machine = problem.graph, problem.machine
    sizes = graph.size.tolist()
    run_times = [run_time(machine.processors[0], time) for time in graph.time.tolist()]
    (out,), (back,) = route.out, route.back
    links = (machine.links[out], machine.links[back])
    ways = [[graph.link_for(link, value).time(size) for value, size in enumerate(sizes)] for link in links]
    kind = number_array([time for row in (run_times, *ways) for time in row]).dtype
    channels = [machine.resource_of_link[link] for link in (out, back)]
    stays, pinned = np.zeros((2, len(sizes)), dtype=np.int64)
    outputs = sorted({place.value for place in graph.outputs})
    stays[outputs] = 1
    pinned[sorted(graph.pinned)] = 1
    device = device_of(machine)
    capacity = machine.memories[device].capacity
    assert capacity is not None
    return Given(
        read_start=_whole(graph.reads.start),
        read=_whole(graph.reads.items),
        write_start=_whole(graph.writes.start),
        write=_whole(graph.writes.items),
        workspace=_whole(graph.workspace),
        in_place=_whole(graph.in_place),
        must=_whole(graph.required | graph.once),
        time=np.array(run_times, dtype=kind),
        size=_whole(graph.size),
        pinned=pinned,
        stays=stays,
        out=np.array(ways[0], dtype=kind),
        back=np.array(ways[1], dtype=kind),
        inputs=_whole(list(dict.fromkeys(place.value for place in graph.inputs))),
        outputs=_whole(outputs),
        static=graph.static_bytes(machine, device),
        capacity=capacity,
        out_channel=int(channels[0] > channels[1]),
        back_channel=int(channels[1] > channels[0]),
    )


def _whole(values: Any) -> IntArray:
    return np.ascontiguousarray(values, dtype=np.int64)


def _room_of_runs(given: Given, runs: int, accesses: int) -> Runs:
    """Return arrays for `runs` runs with `accesses` accesses."""

    def rows(count: int, width: int) -> list[IntArray]:
        return [np.zeros(width, dtype=np.int64) for _ in range(count)]

    return Runs._make(
        [
            *rows(3, runs + 1),
            *rows(1, runs + 2),
            *rows(1, len(given.must)),
            *rows(1, len(given.size)),
            *rows(6, accesses),
            *rows(4, accesses),
            *rows(1, runs + 1),
            *rows(2, 2 * accesses),
            Figures(),
        ]
    )


def _room_of_moves(given: Given, runs: int, accesses: int) -> Moves:
    """Return arrays for offloading in `runs` runs with `accesses` accesses."""
    kind, values = given.time.dtype, len(given.size)

    def rows(count: int, width: int, kind: Any = np.int64) -> list[Any]:
        return [np.zeros(width, dtype=kind) for _ in range(count)]

    return Moves._make(
        [
            *rows(2, accesses),
            *rows(1, runs + 1),
            *rows(3, accesses),
            *rows(12, 2 * accesses),
            *rows(4, runs + 1),
            *rows(1, values),
            *rows(1, runs + 1, kind),
            *rows(1, 4, kind),
            *rows(2, values + 1),
            *rows(2, 3 * accesses),
            *rows(1, runs + 3),
            *rows(1, 2 * accesses),
        ]
    )
