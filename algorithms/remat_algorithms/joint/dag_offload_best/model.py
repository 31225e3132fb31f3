"""The model of `dag-offload-best`: runs, their processors, and their time with the required offloading."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from remat.plugin import (
    IntArray,
    Number,
    NumberArray,
    OptionError,
    Problem,
    StepBuilder,
    StepKind,
    Steps,
    concatenate,
    instant_array,
    reference_order,
    useful_runs,
)
from remat_algorithms.dag.plans.model import StageModel, stage_model
from remat_algorithms.joint.dag_offload_best.offload_priorities import LEAVES, Taste, gap_keys, taste_of
from remat_algorithms.kit.compile.lowering import can_compile
from remat_algorithms.offload.offload_greedy import rankings
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan
from remat_algorithms.offload.swaps.order_timing import Columns, Outline
from remat_algorithms.offload.swaps.program import run_time
from remat_algorithms.offload.swaps.routes import device_of, routes
from remat_algorithms.offload.swaps.swaps import Order

MORE = 0.2
"""Share of the drawn plans that offload more than necessary."""

WAITED = 1e-4
"""Minimum wait of a run that counts, as a share of the makespan."""

RANKINGS = 9
"""Number of rankings for offloading (see `remat_algorithms.offload.offload_greedy`, `rankings`)."""

COMPILED_AFTER = 3_000
"""Number of runs evaluated without compiled functions, which takes about as long as the compilation."""

NOISE = 0.3
"""Standard deviation of the logarithm of a drawn score."""


@dataclass(frozen=True)
class Runs:
    """Runs in order, and the tasks that run on the helper.

    Attributes
    ----------
    tasks : tuple of int
    helped : frozenset of int
        Tasks that the helper runs, whatever their positions.
    """

    tasks: tuple[int, ...]
    helped: frozenset[int] = frozenset()


Late = tuple[Sequence[int], Sequence[float]]
"""Positions of runs that waited, and the length of each wait."""


@dataclass(frozen=True)
class Attempt:
    """Result of some runs with a choice of offloaded values.

    Attributes
    ----------
    makespan : int or float
    tasks : tuple of int
        The processor's runs, without useless ones.
    late : (places, waits)
        The runs that waited, and the length of each wait; empty if there is a helper.
    plan, taste : callable
        Return the plan, and its offload priorities.
    away : callable
        Returns the bytes in other memories during each of the runs.
    """

    makespan: Number
    tasks: tuple[int, ...]
    late: Late
    plan: Callable[[], Plan | None]
    taste: Callable[[], Taste]
    away: Callable[[], IntArray]


class Setting:
    """A problem on a machine with memories other than the processor's.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.graph, self.machine = problem, problem.graph, problem.machine
        self.ways = routes(self.machine)
        self.device = device_of(self.machine)
        self.listed: list[int] = reference_order(self.graph, problem.needed.once).tolist()
        self.reads, self.writes = self.graph.reads.to_lists(), self.graph.writes.to_lists()
        self.times: list[Number] = self.graph.time.tolist()
        self.looked = 0  # total number of evaluated runs

    @cached_property
    def model(self) -> StageModel:
        """The tables of the search for recomputation only."""
        return stage_model(self.problem)

    @cached_property
    def given(self) -> frozenset[int]:
        """Values that are present at the start, in any memory."""
        return self.graph.available

    @cached_property
    def repeatable(self) -> list[bool]:
        """Whether each task may be recomputed."""
        return [bool(each) for each in (self.graph.recomputable & ~self.graph.once).tolist()]

    @cached_property
    def maker(self) -> list[int]:
        """The task that recomputes each value, -1 if none may."""
        items, task = self.model.tables.maker, self.model.task
        return [task[item] if item >= 0 else -1 for item in items]

    @cached_property
    def helper(self) -> int | None:
        """The fastest processor in another memory; None if there is none."""
        processors = self.machine.processors
        found = [number for number, each in enumerate(processors) if each.memory != self.device]
        return max(found, key=lambda number: (processors[number].speed, -number), default=None)

    @cached_property
    def elsewhere(self) -> frozenset[int]:
        """Values that begin or must end in other memories than the processor's."""
        first = self.machine.memories[0].name
        own = self.machine.memories[self.device].name
        places = (*self.graph.inputs, *self.graph.outputs)
        return frozenset(place.value for place in places if (place.memory or first) != own)

    @cached_property
    def movable(self) -> list[int]:
        """Tasks that the helper may run: no task reads their outputs, and they access values of other memories.

        This excludes tasks that update a value in place: the copy that they read would have to stay unchanged.
        """
        if self.helper is None:
            return []
        read = {value for task in self.listed for value in self.reads[task]}
        return [
            task
            for task in self.listed
            if read.isdisjoint(self.writes[task])
            and not self.elsewhere.isdisjoint((*self.reads[task], *self.writes[task]))
        ]

    @cached_property
    def left(self) -> list[tuple[int, int]]:
        """Initial values of other memories that need not stay to the end, with their memories; only for adjoints."""
        names, device = self.machine.memory_index, self.device
        if self.problem.kind != "adjoint":
            return []
        stay = {(names[place.memory] if place.memory else 0, place.value) for place in self.graph.outputs}
        begin = {(names[place.memory] if place.memory else 0, place.value) for place in self.graph.inputs}
        return sorted(place for place in begin - stay if place[0] != device and place[1] not in self.graph.pinned)

    def tidied(self, steps: Steps, makespan: Number) -> Steps:
        """Return the steps, followed by drops of the values in `left` that they have not dropped."""
        drop = np.flatnonzero(steps.kind != StepKind.RUN).tolist()
        gone = {(int(steps.source[step]), value) for step in drop for value in steps.drop[step].tolist()}
        rest = [place for place in self.left if place not in gone]
        if not rest:
            return steps
        builder = StepBuilder()
        for memory in sorted({memory for memory, _ in rest}):
            builder.drop([value for where, value in rest if where == memory], memory)
        return concatenate([steps, builder.build(instant_array([makespan] * len(builder)))])

    def helped_time(self, task: int) -> Number:
        """Return the time of a task on the helper."""
        assert self.helper is not None
        return run_time(self.machine.processors[self.helper], self.times[task])

    @cached_property
    def compiles(self) -> bool:
        """Whether compiled functions cover the problem, with or without a compiler on this machine."""
        return Columns.known(self.problem, self.ways)

    @cached_property
    def columns(self) -> Columns | None:
        """The compiled evaluation of runs on the processor alone."""
        return Columns(self.problem, self.ways[0]) if self.compiles and can_compile() else None

    def choice(self, runs: Runs) -> Choice | Outline | None:
        """Return the data of an order of runs, those of the helper last; None if the order is invalid."""
        self.looked += len(runs.tasks)
        if not runs.helped and self.looked > COMPILED_AFTER and self.columns is not None:
            return self.columns.look(runs.tasks)
        own = [task for task in runs.tasks if task not in runs.helped]
        others = [task for task in self.listed if task in runs.helped]
        tasks = useful_runs(self.graph, own + others)
        processors = [0] * (len(tasks) - len(others)) + [self.helper or 0] * len(others) if others else None
        try:
            order = Order(self.graph, self.machine, tasks, processors)
            return Choice(self.problem, order, self.ways, outputs=True)
        except OptionError:
            return None

    def plans(self, choice: Choice | Outline, order: Sequence[int]) -> Iterator[tuple[int, Attempt | None]]:
        """Yield the results of an order under some rankings for offloading, with the number of each ranking."""
        if choice.fits:
            yield 0, self.attempt(choice, [], [], [])
            return
        if not self.ways:
            return
        found = rankings(choice)
        for number in order:
            gaps = choice.select(found[number].tolist())
            free = [-1] * len(gaps or ())
            yield number, None if gaps is None else self.attempt(choice, gaps, free, free)

    def drawn(self, choice: Choice | Outline, taste: Taste, draw: random.Random) -> Attempt | None:
        """Return the result of an order with offloading close to given priorities, with some random changes."""
        if choice.fits:
            return self.attempt(choice, [], [], [])
        gaps = choice.candidates
        keys = gap_keys(choice.value)
        size, length = choice.size[gaps].astype(np.float64), choice.length[gaps].astype(np.float64)
        idle = np.maximum(length - draw.random() * choice.round_trip[gaps], length * 1e-3)
        noise = np.random.default_rng(draw.getrandbits(64)).normal(0, NOISE, len(gaps))
        score = np.log(np.maximum(idle, 1e-30)) + draw.random() * np.log(np.maximum(size, 1)) + noise
        score += taste.preferences(keys[gaps], draw)
        chosen = choice.select(gaps[np.argsort(-score, kind="stable")])
        if chosen is None:
            return None
        # Offloading more than necessary is allowed: runs then wait less for values in transfer.
        stays = np.zeros(len(choice.value), dtype=bool)
        stays[gaps] = True
        stays[chosen] = False
        free = np.flatnonzero(stays)
        more: list[int] = free[taste.needless(keys[free], draw)].tolist()
        if draw.random() < MORE and len(free):
            more = sorted({*more, *draw.choices(free.tolist(), k=draw.choice((1, 1, 2, 3)))})
        chosen += more
        # An early transfer may delay a more urgent one, on the channel or in memory.
        part = taste.parts(keys[chosen], draw)
        after, before = choice.after[chosen], choice.before[chosen]
        leave = np.where(part == LEAVES, after, -1)
        places = after + 1 + np.floor(np.maximum(part, 0) * (before - after - 1))
        back = np.where(part >= 0, places, -1).astype(np.int64)
        found = partial(taste_of, len(self.maker), keys[chosen], len(more), part)
        return self.attempt(choice, chosen, leave.tolist(), back.tolist(), found)

    def attempt(
        self,
        choice: Choice | Outline,
        gaps: Sequence[int],
        leave: Sequence[int],
        back: Sequence[int],
        taste: Callable[[], Taste] | None = None,
    ) -> Attempt | None:
        """Return the result of an order; None if it does not fit.

        Parameters
        ----------
        choice : Choice or Outline
        gaps : sequence of int
            The gaps in which values are offloaded.
        leave, back : sequences of int
            For each gap, the earliest runs with which the value leaves, and returns; -1: as early as possible.
        taste : callable, optional
            Returns the offload priorities; default: all transfers as early as possible.
        """
        if taste is None:
            taste = partial(_plain_taste, len(self.maker), choice, gaps)
        away = partial(_away, choice, gaps)
        if isinstance(choice, Choice):
            swaps = choice.routed(gaps)
            if swaps is None:
                return None
            timed = [
                replace(swap, leave_with=first, return_with=second)
                for swap, first, second in zip(swaps, leave, back, strict=True)
            ]
            plan = choice.dispatched(timed)
            return None if plan is None else _attempt_of(plan, taste, away)
        found = choice.timed(gaps, leave, back)
        if found is None:
            return None
        late = _late(choice.start_times, found.starts, found.makespan)
        plan_of = partial(choice.plan, gaps, leave, back)
        return Attempt(found.makespan, tuple(choice.tasks.tolist()), late, plan_of, taste, away)


def _attempt_of(plan: Plan, taste: Callable[[], Taste], away: Callable[[], IntArray]) -> Attempt:
    """Return a plan as an attempt, without the runs that the plan omitted as useless."""
    order = plan.order
    own = tuple(task for task, processor in zip(order.tasks, order.processors, strict=True) if processor == 0)
    late: Late = ((), ())
    if not any(order.processors):
        steps = plan.outcome.steps
        assert steps.start is not None
        late = _late(order.start_times, steps.start[steps.kind == StepKind.RUN], plan.makespan)
    return Attempt(plan.makespan, own, late, lambda: plan, taste, away)


def _plain_taste(values: int, choice: Choice | Outline, gaps: Sequence[int]) -> Taste:
    """Return the priorities that offload the values of some gaps, with all transfers as early as possible."""
    return taste_of(values, gap_keys(choice.value)[list(gaps)])


def _away(choice: Choice | Outline, gaps: Sequence[int]) -> IntArray:
    """Return the bytes in other memories during each run if the values of some gaps are offloaded."""
    change = np.zeros(len(choice.profile) + 1, dtype=np.int64)
    chosen = list(gaps)
    np.add.at(change, choice.after[chosen] + 1, choice.size[chosen])
    np.subtract.at(change, choice.before[chosen], choice.size[chosen])
    return np.cumsum(change[:-1])


def _late(free: NumberArray, starts: NumberArray, makespan: Number) -> Late:
    """Return the runs that waited, and the length of each wait, relative to their start times without waits."""
    waits = np.diff(starts.astype(np.float64) - free[:-1].astype(np.float64), prepend=0.0)
    places = np.flatnonzero(waits > WAITED * float(makespan))
    return places.tolist(), waits[places].tolist()
