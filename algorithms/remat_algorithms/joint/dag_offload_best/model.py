"""What the search of `dag-offload-best` works on: runs, where they run, and how long they take with what must leave."""

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
"""Share of the drawn plans in which more leaves than has to."""

WAITED = 1e-4
"""Share of the makespan from which a run has waited."""

RANKINGS = 9
"""Of what leaves first (see `offload_greedy.rankings`)."""

COMPILED_AFTER = 3_000
"""Runs that are looked at without compiled functions: that takes about as long as compiling them."""

NOISE = 0.3
"""Deviation of the logarithm of a drawn score."""


@dataclass(frozen=True)
class Runs:
    """Runs in order, and which of them the helper does.

    Attributes
    ----------
    tasks : tuple of int
    helped : frozenset of int
        Tasks that the helper runs, wherever they stand.
    """

    tasks: tuple[int, ...]
    helped: frozenset[int] = frozenset()


Late = tuple[Sequence[int], Sequence[float]]
"""Places of runs that waited, and for how long each."""


@dataclass(frozen=True)
class Attempt:
    """What some runs with what leaves come to.

    Attributes
    ----------
    makespan : int or float
    tasks : tuple of int
        The processor's runs, without those that were of no use.
    late : (places, waits)
        Which of them waited, and for how long; nothing where there is a helper.
    plan, taste : callable
        Make the plan, and the taste of what leaves in it.
    away : callable
        Returns the bytes that are elsewhere across each of the runs.
    """

    makespan: Number
    tasks: tuple[int, ...]
    late: Late
    plan: Callable[[], Plan | None]
    taste: Callable[[], Taste]
    away: Callable[[], IntArray]


class Setting:
    """A problem on a machine with memories behind the processor's.

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
        self.looked = 0  # runs, in all

    @cached_property
    def model(self) -> StageModel:
        """The tables of the search that only makes values again."""
        return stage_model(self.problem)

    @cached_property
    def given(self) -> frozenset[int]:
        """Values that are there from the start, wherever that is."""
        return self.graph.available

    @cached_property
    def repeatable(self) -> list[bool]:
        """Whether each task may run again."""
        return [bool(each) for each in (self.graph.recomputable & ~self.graph.once).tolist()]

    @cached_property
    def maker(self) -> list[int]:
        """The task that makes each value again, -1 where none may."""
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
        """Tasks that the helper may do: nobody reads what they make, some of which begins or ends elsewhere.

        Not those that change a value in place: the copy that they read would have to stay as it was.
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
        """Memories and values that lie there from the start, and need not at the end (adjoints leave nothing)."""
        names, device = self.machine.memory_index, self.device
        if self.problem.kind != "adjoint":
            return []
        stay = {(names[place.memory] if place.memory else 0, place.value) for place in self.graph.outputs}
        begin = {(names[place.memory] if place.memory else 0, place.value) for place in self.graph.inputs}
        return sorted(place for place in begin - stay if place[0] != device and place[1] not in self.graph.pinned)

    def tidied(self, steps: Steps, makespan: Number) -> Steps:
        """Return the steps, and at their end the drops of what would stay elsewhere for nobody."""
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
        """Return how long the helper takes for a task."""
        assert self.helper is not None
        return run_time(self.machine.processors[self.helper], self.times[task])

    @cached_property
    def compiles(self) -> bool:
        """Whether the problem is of the kind that compiled functions know; whether there is a compiler is no matter."""
        return Columns.known(self.problem, self.ways)

    @cached_property
    def columns(self) -> Columns | None:
        """What looks at runs of the processor's alone, compiled."""
        return Columns(self.problem, self.ways[0]) if self.compiles and can_compile() else None

    def choice(self, runs: Runs) -> Choice | Outline | None:
        """Return what is known of an order of runs, those of the helper last; None if it makes no sense."""
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
        """Yield what an order comes to, values leaving in each of some rankings, with the number of each."""
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
        """Return what an order comes to, values leaving much as a taste says, with some drawn changes."""
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
        # More than must leave may: runs wait less for what is still on its way out.
        stays = np.zeros(len(choice.value), dtype=bool)
        stays[gaps] = True
        stays[chosen] = False
        free = np.flatnonzero(stays)
        more: list[int] = free[taste.needless(keys[free], draw)].tolist()
        if draw.random() < MORE and len(free):
            more = sorted({*more, *draw.choices(free.tolist(), k=draw.choice((1, 1, 2, 3)))})
        chosen += more
        # What comes back, or leaves, as early as it can may keep the channel or the room from something more urgent.
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
        """Return what an order comes to; None where it does not fit.

        Parameters
        ----------
        choice : Choice or Outline
        gaps : sequence of int
            What leaves.
        leave, back : sequences of int
            With which runs each does, and comes back, at the earliest; -1: as soon as it can.
        taste : callable, optional
            Makes the taste of that; default: of all as early as it can.
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
    """Return a plan as an attempt; its runs without those that it left out, since nobody reads what they make."""
    order = plan.order
    own = tuple(task for task, processor in zip(order.tasks, order.processors, strict=True) if processor == 0)
    late: Late = ((), ())
    if not any(order.processors):
        steps = plan.outcome.steps
        assert steps.start is not None
        late = _late(order.start_times, steps.start[steps.kind == StepKind.RUN], plan.makespan)
    return Attempt(plan.makespan, own, late, lambda: plan, taste, away)


def _plain_taste(values: int, choice: Choice | Outline, gaps: Sequence[int]) -> Taste:
    """Return the taste that lets the values of some gaps leave, and come back, as early as they can."""
    return taste_of(values, gap_keys(choice.value)[list(gaps)])


def _away(choice: Choice | Outline, gaps: Sequence[int]) -> IntArray:
    """Return the bytes that are elsewhere across each run when the values of some gaps leave."""
    change = np.zeros(len(choice.profile) + 1, dtype=np.int64)
    chosen = list(gaps)
    np.add.at(change, choice.after[chosen] + 1, choice.size[chosen])
    np.subtract.at(change, choice.before[chosen], choice.size[chosen])
    return np.cumsum(change[:-1])


def _late(free: NumberArray, starts: NumberArray, makespan: Number) -> Late:
    """Return which runs waited, and for how long, by when they would start if nothing made them wait."""
    waits = np.diff(starts.astype(np.float64) - free[:-1].astype(np.float64), prepend=0.0)
    places = np.flatnonzero(waits > WAITED * float(makespan))
    return places.tolist(), waits[places].tolist()
