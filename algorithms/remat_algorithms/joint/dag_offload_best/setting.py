"""What the search of `dag-offload-best` works on: runs, where they run, and how long they take with what must leave."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from remat.plugin import (
    Number,
    OptionError,
    Problem,
    StepBuilder,
    StepKind,
    Steps,
    concatenate,
    number_array,
    reference_order,
    useful_runs,
)
from remat_algorithms.dag.plans.model import StageModel, stage_model
from remat_algorithms.offload.offload_greedy import rankings
from remat_algorithms.offload.swaps.choice import Choice, Plan
from remat_algorithms.offload.swaps.copies import Swap
from remat_algorithms.offload.swaps.program import run_time
from remat_algorithms.offload.swaps.routes import device_of, routes
from remat_algorithms.offload.swaps.swaps import Order

LATER = 0.15
"""Share of the swaps that a drawn plan keeps from leaving, or coming back, as early as they can."""

MORE = 0.4
"""Share of the drawn plans in which more leaves than has to."""

WAITED = 1e-4
"""Share of the makespan from which a run has waited."""

RANKINGS = 9
"""Of what leaves first (see `offload_greedy.rankings`)."""

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
        """Tasks that the helper may do: nobody reads what they make, some of which begins or ends elsewhere."""
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
        return concatenate([steps, builder.build(number_array([makespan] * len(builder)))])

    def helped_time(self, task: int) -> Number:
        """Return how long the helper takes for a task."""
        assert self.helper is not None
        return run_time(self.machine.processors[self.helper], self.times[task])

    def choice(self, runs: Runs) -> Choice | None:
        """Return what is known of an order of runs, those of the helper last; None if it makes no sense."""
        own = [task for task in runs.tasks if task not in runs.helped]
        others = [task for task in self.listed if task in runs.helped]
        tasks = useful_runs(self.graph, own + others)
        processors = [0] * (len(tasks) - len(others)) + [self.helper or 0] * len(others) if others else None
        try:
            order = Order(self.graph, self.machine, tasks, processors)
            return Choice(self.problem, order, self.ways, outputs=True)
        except OptionError:
            return None

    def plans(self, choice: Choice, order: Sequence[int]) -> Iterator[tuple[int, Plan | None]]:
        """Yield plans of an order, values leaving in each of some rankings, with the number of each."""
        if choice.fits:
            yield 0, choice.plan([])
            return
        found = rankings(choice)
        for number in order:
            yield number, choice.plan(choice.select(found[number].tolist()))

    def drawn(self, choice: Choice, draw: random.Random) -> Plan | None:
        """Return a plan of an order, values leaving in a drawn ranking."""
        if choice.fits:
            return choice.plan([])
        gaps = choice.candidates
        size, length = choice.size[gaps].astype(np.float64), choice.length[gaps].astype(np.float64)
        idle = np.maximum(length - draw.random() * choice.round_trip[gaps], length * 1e-3)
        noise = np.array([draw.gauss(0, NOISE) for _ in range(len(gaps))])
        score = np.log(np.maximum(idle, 1e-30)) + draw.random() * np.log(np.maximum(size, 1)) + noise
        chosen = choice.select(gaps[np.argsort(-score, kind="stable")])
        if chosen is not None and draw.random() < MORE:
            # More than must leave may: runs wait less for what is still on its way out.
            others = sorted(set(gaps.tolist()) - set(chosen))
            chosen = chosen + draw.sample(others, min(len(others), draw.choice((1, 1, 2, 3))))
        swaps = None if chosen is None else choice.routed(chosen)
        if swaps is None:
            return None
        # What comes back, or leaves, as early as it can may keep the channel or the room from something more urgent.
        return choice.dispatched([later(swap, choice, draw) if draw.random() < LATER else swap for swap in swaps])


Late = tuple[Sequence[int], Sequence[float]]
"""Places of runs that waited, and for how long each."""


def own_runs(plan: Plan, helped: frozenset[int]) -> Runs:
    """Return the runs of a plan without those that it left out, since nobody reads what they make."""
    own = zip(plan.order.tasks, plan.order.processors, strict=True)
    return Runs(tuple(task for task, processor in own if processor == 0), helped)


def late_runs(plan: Plan) -> Late:
    """Return which of `own_runs` waited, those of a helper left out; nothing where there is one."""
    if any(plan.order.processors):
        return (), ()
    steps, starts = plan.outcome.steps, plan.order.start_times.astype(np.float64)
    assert steps.start is not None
    begins = steps.start[steps.kind == StepKind.RUN].astype(np.float64)
    waits = np.diff(begins - starts[:-1], prepend=0.0)
    places = np.flatnonzero(waits > WAITED * float(plan.makespan))
    return places.tolist(), waits[places].tolist()


def later(swap: Swap, choice: Choice, draw: random.Random) -> Swap:
    """Let a swap leave, or come back, only from some run on."""
    gap = choice.order.gaps[swap.gap]
    if draw.random() < 0.3 and gap.after >= 0:
        return replace(swap, leave_with=gap.after)
    return replace(swap, return_with=draw.randint(gap.after + 1, gap.before - 1))
