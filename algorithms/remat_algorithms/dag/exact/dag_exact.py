"""`dag-exact`: the fastest of all schedules of a small task graph in one memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from pydantic import Field

from remat.placement import Unplaceable, place
from remat.plugin import (
    ALL_SCHEDULES,
    Bound,
    Context,
    LeastBudget,
    Number,
    Options,
    Problem,
    Proposal,
    StepBuilder,
    Steps,
    Termination,
    concatenate,
    reference_order,
    run_in_order,
    useful_runs,
)
from remat_algorithms.dag.exact.bit_masks import members
from remat_algorithms.dag.exact.search import Path, Work, beam, lowest, quickest
from remat_algorithms.dag.exact.states import States

ONE_MEMORY = "sequential schedules in one memory"
"""Name of the class if the machine has more than one memory or processor."""

MOST_TASKS = 256
"""Maximum number of tasks, and of values, for a search."""


BRIEF = 2_000
"""States that the first, short search may keep before the solve searches for better incumbents."""

NARROW, WIDE = (16, 64), (256, 1024, 4096, 16384)
"""Beam widths of the searches for incumbents, before and after the search for a proof."""


class DagExactOptions(Options):
    """Options of `dag-exact`."""

    states: int = Field(400_000, ge=0, description="maximum number of states (sets of required values) to keep")


def solve(problem: Problem, options: DagExactOptions, context: Context) -> Proposal:
    """Find the fastest schedule over all orders, all recomputations and all alternative producers.

    The search goes backwards from the end of a schedule (module `states`). Its only choice is the last run before a
    state: any task that computes a required value, or that has yet to run. With S the state, a set of values and tasks,

        time(S) = min over t of time(S - writes(t) + reads(t)) + time of t,

    over the runs that fit. The queue is ordered by this time plus the time of all tasks that must run before the state
    (A*, with a consistent bound). A state is left out if it requires a superset of another state and is reached no
    sooner.

    The first incumbent is the reference order or the known schedule (a warm start, or the best one of other
    algorithms). If neither fits, a search of the same kind, by the highest memory on the path instead of its length,
    minimizes the peak until the budget holds. Its result is the incumbent, or it proves infeasibility and gives the
    minimum budget. If a short search proves nothing, beam searches look for better
    incumbents. They keep a limited number of states for each number of runs.

    Accepts instances of any kind. With more than `MOST_TASKS` tasks or values it only tries the reference order.
    Optimal, or infeasible, over all schedules (`ONE_MEMORY` on larger machines). If the search hits a limit, a note
    names it, and the proposal holds the incumbent, if any, and the bound proved until then. Times are added without
    rounding, so optimality does not depend on the order of a sum.
    """
    graph, machine = problem.graph, problem.machine
    scope = ALL_SCHEDULES if len(machine.memories) == 1 and len(machine.processors) == 1 else ONE_MEMORY
    if max(len(graph.tasks), len(graph.values)) > MOST_TASKS:
        return _unsearched(problem)
    return _Solve(problem, scope, options.states, context).answer()


def _unsearched(problem: Problem) -> Proposal:
    """Return the proposal for a graph that is too large: the reference order, if that fits."""
    note = f"more than {MOST_TASKS} tasks or values: not searched"
    limited = Proposal(termination=Termination.SIZE_LIMIT, notes=(note,))
    if problem.exceeded is not None:
        return limited
    steps = run_in_order(problem.graph, problem.machine, reference_order(problem.graph, problem.needed.once))
    if isinstance(place(problem.graph, problem.machine, steps), Unplaceable):
        return limited
    return replace(limited, steps=steps, makespan=problem.no_recompute_time)


class _Solve:
    """State of one solve.

    Attributes
    ----------
    tasks : list of int or None
        The runs of the incumbent.
    time : int or None
        Its time, in the unit of the states.
    bound : int
        Lower bound on the time of every schedule, in the same unit.
    """

    def __init__(self, problem: Problem, scope: str, limit: int, context: Context) -> None:
        self.problem, self.scope, self.context = problem, scope, context
        self.states = States(problem)
        self.limit = limit
        self.work = Work(limit, lambda: context.stopped)
        self.tasks: list[int] | None = None
        self.time: int | None = None
        self.bound = self.states.time_before(self.states.end) or 0

    def answer(self) -> Proposal:
        """Search for a schedule that fits, then for the fastest one.

        The first search for time is short, which is enough for most small graphs. A long one follows if necessary.
        """
        budget = self.problem.budget
        room = _everything(self.problem) if budget is None else budget
        once: list[int] = reference_order(self.problem.graph, self.problem.needed.once).tolist()
        for tasks in (self._known(), once):
            if tasks is not None and self._fits(tasks, room):
                self._take(tasks)
        if self.tasks is None:
            part = self.work.part(self.limit // 4)
            low = lowest(self.states, room, part)
            self.work.give_back(part)
            if low.finished and (low.value is None or low.value > room):
                return self._infeasible(low)
            self._take(low.tasks)
        finished = self._search(room, min(BRIEF, self.work.left // 4))
        if not finished and not self.work.over:
            self._widen(room, NARROW, self.work.left // 4)
            finished = self._search(room, 2 * self.work.left // 3)
            if not finished:
                self._widen(room, WIDE, self.work.left)
        if not finished:
            return self._limited()
        if self.time is None:
            return self._infeasible(lowest(self.states, room + 1, self.work.part(self.limit // 4)))
        makespan = self._number(self.time)
        bounds = (Bound(makespan, self.scope, "dag-exact"),)
        return Proposal(steps=self._steps(), makespan=makespan, bounds=bounds, optimal_within=self.scope)

    def _known(self) -> list[int] | None:
        """Return the runs of the best known schedule, without its copies; None if there is none."""
        steps = self.context.known_steps
        return None if steps is None else useful_runs(self.problem.graph, steps.runs)

    def _fits(self, tasks: Sequence[int], room: int) -> bool:
        """Whether runs in this order read only inputs and what earlier ones wrote, and fit."""
        required, peak = self.states.replay(tasks)
        return not required & ~self.states.inputs and peak <= room

    def _search(self, room: int, share: int) -> bool:
        """Search for a schedule faster than the incumbent; return whether the search settled the question."""
        part = self.work.part(share)
        path = quickest(self.states, room, part, limit=self.time, told=self._tell)
        self.work.give_back(part)
        self._take(path.tasks)
        if not path.finished and path.value is not None:
            self._tell(path.value)
        return path.finished

    def _widen(self, room: int, widths: Sequence[int], share: int) -> None:
        """Search for better incumbents with wider and wider beams until the share is spent."""
        part = self.work.part(share)
        for width in widths:
            if part.over:
                break
            self._take(beam(self.states, room, width, part, self.time).tasks)
        self.work.give_back(part)

    def _take(self, tasks: list[int] | None) -> None:
        """Take over an incumbent, unless it is None or no faster."""
        time = None if tasks is None else sum(self.states.times[task] for task in tasks)
        if time is not None and (self.time is None or time < self.time):
            self.tasks, self.time = tasks, time
            self.context.report(self._steps(), makespan=self._number(self.time))

    def _tell(self, bound: int) -> None:
        self.bound = max(self.bound, bound)
        self.context.report(bound=self._proved, scope=self.scope)

    def _infeasible(self, low: Path) -> Proposal:
        """Return the proposal if no schedule fits, with the minimum budget or a lower bound on it."""
        own = self.problem.machine.processors[0].memory
        named = None if low.value is None else LeastBudget(low.value, None, sufficient=low.finished, memory=own)
        return Proposal(infeasible_within=self.scope, least=named)

    def _limited(self) -> Proposal:
        """Return the proposal after a limit has ended the search."""
        stopped = self.context.stopped
        why = "stopped" if stopped else f"the limit of {self.limit:,} states was reached"
        return Proposal(
            steps=self._steps(),
            makespan=None if self.time is None else self._number(self.time),
            bounds=(Bound(self._proved, self.scope, "dag-exact"),),
            termination=self.context.termination if stopped else Termination.ITERATION_LIMIT,
            notes=(f"{why}: not proved",),
        )

    @property
    def _proved(self) -> Number:
        """The proved bound, which is at most the time of the incumbent."""
        return self._number(self.bound if self.time is None else min(self.bound, self.time))

    def _number(self, time: int) -> Number:
        """Return a time in the instance's unit."""
        exact: Fraction = time * self.states.unit
        return int(exact) if exact.denominator == 1 and self.problem.graph.exact_times else float(exact)

    def _steps(self) -> Steps | None:
        """Return the steps of the incumbent, preceded by drops of the inputs that its runs do not need at the start."""
        if self.tasks is None:
            return None
        problem = self.problem
        steps = run_in_order(problem.graph, problem.machine, self.tasks)
        found, _ = self.states.replay(self.tasks)
        unused = members(self.states.inputs & ~found)
        if not unused:
            return steps
        head = StepBuilder()
        head.drop(unused, problem.machine.processors[0].memory)
        return concatenate([head.build(), steps])


def _everything(problem: Problem) -> int:
    """Return a number of bytes in which no schedule has to drop anything."""
    graph = problem.graph
    return graph.static_memory + 2 * int(graph.size.sum()) + int(graph.workspace.max())
