"""`dag-exact`: the quickest of all schedules of a small task graph in one memory."""

from __future__ import annotations

from fractions import Fraction

from pydantic import Field

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
    run_in_order,
)
from remat_algorithms.dag.exact.masks import members
from remat_algorithms.dag.exact.search import Path, Work, lowest, quickest
from remat_algorithms.dag.exact.states import States

ONE_MEMORY = "sequential schedules in one memory"
"""Name of the class where the machine has more than one memory and one processor."""

MOST_TASKS = 256
"""Tasks, or values, beyond which no search is tried."""


class DagExactOptions(Options):
    """Options of `dag-exact`."""

    states: int = Field(500_000, ge=0, description="most states (sets of values that are asked for) to keep")


def solve(problem: Problem, options: DagExactOptions, context: Context) -> Proposal:
    """Find the quickest schedule: any order of the runs, any reruns, whichever alternative.

    Walks back from the end of a schedule (module `states`). There is nothing to choose but the last run before a state:
    any task that makes a value asked for, or that has yet to run. With S the state, a set of values and tasks,

        time(S) = min over t of time(S - writes(t) + reads(t)) + time of t,

    over the runs that fit. The order of the queue adds the time of all tasks that must run before a state (A*, with a
    consistent bound); a state that asks for all that another one does, and is no sooner reached, is left out.

    First the schedule of least peak is looked for in the same way (the highest place of a path instead of its length),
    as far as the budget asks for it: it is the incumbent, or shows that nothing fits, and which budget does.

    Takes instances of any kind, with up to `MOST_TASKS` tasks and values. Optimal, or infeasible, over all schedules
    (`ONE_MEMORY` on larger machines). If a limit is hit, which a note names, it gives the incumbent, if there is one,
    and the bound proved so far.
    """
    graph, machine = problem.graph, problem.machine
    scope = ALL_SCHEDULES if len(machine.memories) == 1 and len(machine.processors) == 1 else ONE_MEMORY
    if max(len(graph.tasks), len(graph.values)) > MOST_TASKS:
        note = f"more than {MOST_TASKS} tasks or values: not searched"
        return Proposal(termination=Termination.SIZE_LIMIT, notes=(note,))
    states = States(problem)
    return _Solve(problem, states, scope, options.states, context).answer()


class _Solve:
    """One solve: what is searched, and what has been found."""

    def __init__(self, problem: Problem, states: States, scope: str, limit: int, context: Context) -> None:
        self.problem, self.states, self.scope, self.context = problem, states, scope, context
        self.limit = limit
        self.work = Work(limit, lambda: context.stopped)
        self.best: Path | None = None

    def answer(self) -> Proposal:
        """Search first for room, then for time."""
        budget = self.problem.budget
        if budget is None:
            budget = _everything(self.problem)
        half = self.limit // 2
        low = lowest(self.states, budget, work := Work(half, self.work.stopped))
        self.work.left += work.left - half
        if low.finished and (low.value is None or low.value > budget):
            return self._infeasible(low.value)
        if low.tasks is not None:
            self._take(low)
        limit = None if self.best is None else self._time(self.best)
        path = quickest(self.states, budget, self.work, limit=limit, told=self._tell)
        if path.tasks is not None:
            self._take(path)
        if not path.finished:
            return self._limited(path.value)
        if self.best is None:
            return self._infeasible(None)
        makespan = self._makespan(self.best)
        return Proposal(
            steps=self._steps(self.best),
            makespan=makespan,
            bounds=(Bound(makespan, self.scope, "dag-exact"),),
            optimal_within=self.scope,
        )

    def _take(self, path: Path) -> None:
        self.best = path
        self.context.report(self._steps(path), makespan=self._makespan(path))

    def _tell(self, bound: int) -> None:
        self.context.report(bound=self._number(bound) if self.scope == ALL_SCHEDULES else None)

    def _infeasible(self, least: int | None) -> Proposal:
        own = self.problem.machine.processors[0].memory
        named = None if least is None else LeastBudget(least, None, sufficient=True, memory=own)
        return Proposal(infeasible_within=self.scope, least=named)

    def _limited(self, bound: int | None) -> Proposal:
        """What is known when a limit ends the search."""
        stopped = self.context.stopped
        why = "stopped" if stopped else f"the limit of {self.limit:,} states was reached"
        proved: Number = 0 if bound is None else self._number(bound)
        makespan = None if self.best is None else self._makespan(self.best)
        if makespan is not None:
            proved = min(proved, makespan)
        return Proposal(
            steps=None if self.best is None else self._steps(self.best),
            makespan=makespan,
            bounds=(Bound(proved, self.scope, "dag-exact"),),
            termination=self.context.termination if stopped else Termination.ITERATION_LIMIT,
            notes=(f"{why}: not proved",),
        )

    def _time(self, path: Path) -> int:
        """Time of a schedule in the unit of the states."""
        return sum(self.states.times[task] for task in path.tasks or ())

    def _number(self, time: int) -> Number:
        """Return a time in the instance's unit."""
        exact: Fraction = time * self.states.unit
        return int(exact) if exact.denominator == 1 and self.problem.graph.exact_times else float(exact)

    def _makespan(self, path: Path) -> Number:
        return self._number(self._time(path))

    def _steps(self, path: Path) -> Steps:
        """Return the steps of a schedule: inputs that no run finds are dropped first, every value after its last use."""
        problem = self.problem
        steps = run_in_order(problem.graph, problem.machine, path.tasks or [])
        unused = members(self.states.inputs & ~path.resident)
        if not unused:
            return steps
        head = StepBuilder()
        head.drop(unused, problem.machine.processors[0].memory)
        return concatenate([head.build(), steps])


def _everything(problem: Problem) -> int:
    """Bytes in which no schedule has to drop anything."""
    graph = problem.graph
    return graph.static_memory + 2 * int(graph.size.sum()) + int(graph.workspace.max())
