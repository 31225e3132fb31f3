"""Search for a better initial order: windows around the peak, then annealing of order and reruns together."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from remat.plugin import Context, IntArray, Number, Problem, Steps
from remat_algorithms.dag.anytime.improvement import attended
from remat_algorithms.dag.anytime.known_schedule import Known
from remat_algorithms.dag.anytime.local_search.annealer import Annealer, can_anneal
from remat_algorithms.dag.plans.model import StageModel, stage_model
from remat_algorithms.dag.plans.profile import profile
from remat_algorithms.dag.plans.search_state import ALPHAS, Plan, Search
from remat_algorithms.dag.steps import steps_of

REFERENCE = "schedules in the reference order"
IMPROVED = "schedules in the improved order"

FIRST_SHARE, WINDOWS_SHARE, SHARE, MENDING_SHARE = 0.35, 0.1, 0.4, 0.3
"""Maximum shares of the remaining time for a first plan, windows, annealing, and turning its result into a plan."""

FIRST_SECONDS, FIRST_REPAIRS = 10.0, 200
"""Limits on the first plan: seconds if there is no time limit, and repairs per task of a plan that does not fit."""

STEPS, INTERPRETED = 3200, 100
"""Maximum steps per task of the longest round, compiled and interpreted."""

COMPILED_FROM = 25
"""Minimum number of tasks for which compilation pays; it takes half a second, once in a process."""

ROUNDING = 1e-6
"""Tolerance for sums of times, in the tables' unit."""

OTHER_SEED = 1000
"""Added to the seed if a schedule is known: perhaps a solve with the same seed found it, and would find it again."""

FIRST_STEPS, LONGER = 100, 2
"""Steps per task of the first round, which gives an early result, and the growth factor of later rounds. More time only
adds rounds.
"""


@dataclass(frozen=True)
class Start:
    """The starting point of a solve.

    Attributes
    ----------
    model : StageModel
        In the order to use.
    scope : str
        The class of its plans.
    plan : Plan or None
        A plan that fits.
    steps : (Steps, makespan) or None
        A schedule that fits and is not a plan of the model.
    """

    model: StageModel
    scope: str = REFERENCE
    plan: Plan | None = None
    steps: tuple[Steps, Number] | None = None


def better_start(
    problem: Problem,
    reference: StageModel,
    context: Context,
    seconds: float,
    rounds: int | None,
    known: Known | None = None,
) -> Start:
    """Search for an order that takes less memory, or less time with reruns.

    Parameters
    ----------
    problem : Problem
    reference : StageModel
        In the reference order; simple, perhaps without the alternatives of the graph.
    context : Context
        Receives the best schedule so far.
    seconds : float
        Time limit for annealing if the solve has no time limit.
    rounds : int, optional
        Maximum steps per task of the longest round of annealing; the answer then does not depend on the clock.
    known : Known, optional
        A schedule whose runs the annealing continues from if they fit.
    """
    from remat_algorithms.dag.order.window_search import better_order

    budget, counted = problem.budget, rounds is not None
    first = _known_start(problem, reference, known)
    if first is None:
        first = Start(reference) if counted else _first_schedule(problem, reference, context)
    windows = _Share(context, math.inf if counted else WINDOWS_SHARE)
    order = better_order(problem, "dag-auto", lambda: windows.over)
    model, scope = (reference, REFERENCE) if order is None else (_model(problem, order), IMPROVED)
    if budget is None or _peak(model) <= budget or not can_anneal(model) or context.stopped:
        return Start(model, scope, steps=first.steps)
    share = _Share(context, math.inf if counted else SHARE, math.inf if counted else seconds)
    annealing = _Annealing(problem, Start(model, scope), first, context, share, known)
    annealing.work(1 if counted else context.threads, STEPS if rounds is None else min(rounds, STEPS))
    mending = _Share(context, math.inf if counted else MENDING_SHARE)
    other = annealing.start(mending)
    if other.plan is None and other.steps is None:
        plan = _first_plan(Search(model, budget, context.seed), None, mending)
        other = Start(model, scope, plan) if plan is not None else other
    if first.steps is not None and (other.steps is None or first.steps[1] < other.steps[1]):
        return replace(other, steps=first.steps)
    return other


def _first_schedule(problem: Problem, reference: StageModel, context: Context) -> Start:
    """Report an early schedule in the reference order and return it, if there is one."""
    if problem.budget is None or _peak(reference) <= problem.budget:
        return Start(reference)
    share = _Share(context, FIRST_SHARE, FIRST_SECONDS)
    search, plans = Search(reference, problem.budget, context.seed), list[Plan | None]()

    def work() -> None:
        plans.append(search.construct(ALPHAS[0]))
        for _ in range(FIRST_REPAIRS * reference.stages):
            if plans[-1] is not None or share.over:
                break
            plans.append(search.repair(1))

    with attended(work, lambda: share.over, search.stop):
        pass
    plan = plans[-1]
    if plan is None:
        return Start(reference)
    runs = reference.runs_of(plan.item, plan.full)
    steps, makespan = steps_of(problem, runs), reference.makespan(runs)
    context.report(steps, makespan=makespan)
    return Start(reference, REFERENCE, plan, (steps, makespan))


def _known_start(problem: Problem, reference: StageModel, known: Known | None) -> Start | None:
    """Return a known schedule with its plan, in its own order; None if it does not fit without its copies."""
    if known is None or problem.budget is None:
        return None
    if profile(problem.graph, problem.machine, known.runs).max(initial=reference.tables.static[0]) > problem.budget:
        return None
    model = known.model(problem, reference)
    plan = known.plan(model)
    fits = plan is not None and plan.peak <= problem.budget
    steps = steps_of(problem, known.runs), model.makespan(known.runs)
    return Start(model, REFERENCE if model is reference else IMPROVED, plan if fits else None, steps)


class _Share:
    """A share of the remaining time, or a number of seconds if there is no time limit."""

    def __init__(self, context: Context, share: float, seconds: float = math.inf) -> None:
        left = context.seconds_left
        self._context = context
        self.seconds = math.inf if share == math.inf else seconds if left is None else max(0.01, share * left)
        self._end = time.monotonic() + self.seconds

    @property
    def seconds_left(self) -> float:
        return self._end - time.monotonic()

    @property
    def over(self) -> bool:
        return self._context.stopped or time.monotonic() > self._end


def _peak(model: StageModel) -> int:
    """Return the peak of the order without reruns, in bytes."""
    return Search(model, 0, 0, compiled=False).measure(model.tables.first, range(model.stages)).peak


def _model(problem: Problem, tasks: Iterable[int]) -> StageModel:
    order: IntArray = np.array(list(tasks), dtype=np.int64)
    return stage_model(problem, order, alternatives=False)


class _Annealing:
    """Annealing of one problem, in one or two threads."""

    def __init__(
        self,
        problem: Problem,
        start: Start,
        listed: Start,
        context: Context,
        share: _Share,
        known: Known | None = None,
    ) -> None:
        """Begin in the start's order; `listed` is the reference order, perhaps with a plan, or a known schedule's."""
        self.problem, self.context, self.share, self._known = problem, context, share, known
        self.model, self.scope = start.model, start.scope
        self._listed = listed
        self.compiled = start.model.stages >= COMPILED_FROM
        self.annealers: list[Annealer] = []
        # Time and items of each thread's best sequence: a copy, complete whenever another thread reads it.
        self._found: dict[int, tuple[float, list[int]]] = {}
        # An interrupted solve answers with the last report.
        self._reported = math.inf if listed.steps is None else listed.steps[1] / start.model.time_unit

    def work(self, threads: int, steps: int) -> None:
        """Cool down in rounds of growing length in each thread, with at most `steps` steps per task in a round."""
        assert self.problem.budget is not None
        self.context.report(message="annealing order and reruns together")
        for number in range(min(2, threads) if self.compiled else 1):
            seed = self.context.seed + number + (OTHER_SEED if self._known is not None else 0)
            try:
                annealer = Annealer(self.model, self.problem.budget, seed, compiled=self.compiled)
            except (ImportError, OSError, RuntimeError):
                # Without a compiler, the interpreted code gives the same answers, but takes fewer steps.
                self.compiled = False
                annealer = Annealer(self.model, self.problem.budget, seed, compiled=False)
            self.annealers.append(annealer)
        self._begin_with_listed()
        steps = steps if self.compiled else min(steps, INTERPRETED)
        with ExitStack() as threads_of_others:
            for number, other in enumerate(self.annealers[1:], start=1):
                work = partial(self._rounds, number, steps)
                threads_of_others.enter_context(attended(work, self.over, other.stop))
            self._rounds(0, steps)
        self.report()

    def _begin_with_listed(self) -> None:
        """Give known schedules to the first thread, so that its result is no worse; continue from a given one."""
        plan, annealer = self._listed.plan, self.annealers[0]
        item = {task: number for number, task in enumerate(self.model.task)}
        if plan is not None and annealer.follow([item[self._listed.model.task[run]] for run in plan.item]):
            annealer.follow(self.model.tables.first)
        if self._known is not None:
            annealer.follow([item[task] for task in self._known.runs])
            annealer.follow(self.model.tables.first)

    def _rounds(self, number: int, steps: int) -> None:
        """Cool down repeatedly, each time for longer, except where the time limit would cut the round short."""
        annealer, share, length, last = self.annealers[number], self.share, min(FIRST_STEPS, steps // 4 + 1), 0.0
        while length <= steps and self._going_on(number) and LONGER * last <= share.seconds_left:
            start = time.monotonic()
            annealer.round(length * self.model.stages + 1, math.inf, lambda: self._going_on(number))
            last, length = time.monotonic() - start, length * LONGER
        self._keep(number)

    def _going_on(self, number: int) -> bool:
        self._keep(number)
        if number == 0:
            self.report()
        return not self.over()

    def _keep(self, number: int) -> None:
        """Copy the best sequence of a thread, in that thread."""
        annealer = self.annealers[number]
        if annealer.time < self._found.get(number, (math.inf,))[0]:
            self._found[number] = (annealer.time, annealer.best or [])

    def over(self) -> bool:
        """Whether the time is over, or a sequence without reruns fits."""
        least = min(annealer.time for annealer in self.annealers)
        return self.share.over or least <= self.model.once_time + ROUNDING

    def report(self) -> None:
        """Report the best schedule, from the thread that solves."""
        least, items = min(self._found.copy().values(), key=lambda found: found[0], default=(math.inf, []))
        if least < self._reported:
            self._reported = least
            steps, makespan = self._schedule(items)
            self.context.report(steps, makespan=makespan)

    def _schedule(self, items: Sequence[int]) -> tuple[Steps, Number]:
        runs = self.model.runs_of(items, [1] * len(items))
        return steps_of(self.problem, runs), self.model.makespan(runs)

    def start(self, mending: _Share) -> Start:
        """Return the order of the best sequence, with the plan or the schedule that it gives."""
        problem, model = self.problem, self.model
        annealer = min(self.annealers, key=lambda annealer: (annealer.time, annealer.excess))
        items = annealer.best or annealer.present
        places = {item: place for place, item in enumerate(dict.fromkeys(items))}
        if list(places) == list(range(len(places))):
            new, scope = model, self.scope
        elif [model.task[item] for item in places] == self._listed.model.task:
            new, scope = self._listed.model, self._listed.scope
        else:
            new, scope = _model(problem, (model.task[item] for item in places)), IMPROVED
        runs = sorted(set(_runs([places[item] for item in items], model.stages)))
        assert problem.budget is not None
        search = Search(new, problem.budget, self.context.seed)
        raw = search.measure([item for _, item in runs], [stage for stage, _ in runs])
        if raw.peak <= problem.budget:
            return Start(new, scope, raw)
        steps = None if annealer.best is None else self._schedule(annealer.best)
        return Start(new, scope, _first_plan(search, raw, mending), steps)


def _runs(places: Sequence[int], stages: int) -> list[tuple[int, int]]:
    """Return (stage, item) of the runs of a sequence whose first runs follow the order 0, 1, ..."""
    runs: list[tuple[int, int]] = []
    waiting: list[int] = []
    stage = 0
    for item in places:
        waiting.append(item)
        if item == stage:
            runs += [(stage, other) for other in waiting]
            waiting = []
            stage += 1
    return runs + [(stages, other) for other in waiting]


def _first_plan(search: Search, start: Plan | None, share: _Share) -> Plan | None:
    """Return the best plan that the greedy builds from `start`, or from the order; None if it finds none in time."""
    plans: list[Plan | None] = []

    def work() -> None:
        plans.extend(search.construct(alpha, start=start) for alpha in ALPHAS if not share.over)

    with attended(work, lambda: share.over, search.stop):
        pass
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.time, default=None)
