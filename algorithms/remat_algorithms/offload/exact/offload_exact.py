"""`offload-exact`: the best offloading of whole values, by constraint programming (for small instances)."""

from __future__ import annotations

import math
import time
from functools import partial

from pydantic import Field

from remat.placement import Unplaceable, place
from remat.plugin import (
    ALL_SCHEDULES,
    Context,
    LeastBudget,
    Number,
    OptionError,
    Options,
    Problem,
    Proposal,
    Termination,
    reference_order,
    run_in_order,
)
from remat_algorithms.kit.incumbent import Incumbent
from remat_algorithms.kit.integral_bounds import raised
from remat_algorithms.kit.makespan import timed
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.solver_status import Answer, Outcome, watched
from remat_algorithms.offload.exact.decision_space import Effort, Plan, Setting
from remat_algorithms.offload.exact.initial_schedules import starts
from remat_algorithms.offload.exact.integer_scaling import Scale, rational, scales
from remat_algorithms.offload.exact.model import Model
from remat_algorithms.offload.exact.steps import Timed, timed_steps

COPIES = 2
RUNS = 2
MOST_ACTS = 600
"""Maximum number of possible runs and copies; the program grows with their square."""

GROWTH = 1.3
"""Ratio of the second makespan limit to the first; each further ratio is larger by this factor."""

NEARLY = 0.05
"""A solver that stops without an answer this many seconds before its limit has met it: its clock is another one."""

DEFAULT_WORK = 0.5
"""Maximum work on each program without a limit from the caller, in CP-SAT's units: five to twenty seconds."""

NAME = "offload-exact"


class OffloadExactOptions(Options):
    """Options of `offload-exact`."""

    recompute: bool = Field(default=False, description="allow recomputation in addition to offloading")
    copies: int = Field(default=COPIES, ge=0, le=20, description="maximum number of copies of one value over one link")
    runs: int = Field(default=RUNS, ge=1, le=20, description="maximum number of runs of one task, with `recompute`")
    work: float | None = Field(
        default=None,
        gt=0,
        description="work limit of each program, in CP-SAT's deterministic units (about 10 s each); with one thread, "
        f"the result does not depend on the clock. Default: no limit with a time limit, otherwise {DEFAULT_WORK:g}",
    )


def scope_of(options: OffloadExactOptions) -> str:
    """Return the name of the searched class of schedules."""
    copies = f"at most {options.copies} copies of a value over a link"
    if options.recompute:
        return f"whole-value offloading with recomputation, at most {options.runs} runs of a task, {copies}"
    return f"whole-value offloading in the reference order, {copies}"


def solve(problem: Problem, options: OffloadExactOptions, context: Context) -> Proposal:
    """Find the schedule of minimum makespan that moves values as a whole.

    Without `recompute`, each task runs at most once, in the reference order. For a chain, that is F or Fe of each
    stage, the loss, and the B's backwards; the best of alternatives is chosen. Any value may be copied out and back
    between any two of its uses, as the links allow. With `recompute`, tasks may be repeated, in any order that their
    reads allow. `remat_algorithms.offload.exact.model` states the program, which CP-SAT solves.

    If times or sizes are too fine for integers, the program is solved twice: rounded up for the schedule, and rounded
    down for the bound. The result is called optimal only if both are equal.

    Takes instances of kind `chain`, `adjoint` or `dag`; uses the first processor, and all memories and links. The steps
    have start times. The result is optimal, or infeasible, within `scope_of(options)` if that is proved.

    Raises
    ------
    OptionError
        If more than `MOST_ACTS` runs and copies would have to be considered, or if a task reads a value that it writes.
    """
    return solve_below(problem, options, context, None)


def solve_below(problem: Problem, options: OffloadExactOptions, context: Context, known: Number | None) -> Proposal:
    """Do the same as `solve`, but only for schedules shorter than a known makespan; there may be none."""
    search = _Search(problem, options, context, known)
    order = _order(problem)
    if len(order) > MOST_ACTS:  # counted before anything is built
        raise _too_large(problem, f"{len(order):,} runs", options)
    once = Setting(problem, order, Effort(copies=options.copies))
    again = Effort(copies=options.copies, runs=options.runs)
    setting = Setting(problem, order, again) if options.recompute else once
    _refuse(problem, setting, options)
    if problem.exceeded is not None:
        return Proposal(infeasible_within=ALL_SCHEDULES, least=problem.exceeded)
    early = search.keeping_all()
    if early is not None:
        return early
    if context.stopped:
        return search.propose()
    for start in starts(problem, order, setting.effort, context) if known is None else ():
        search.take(start, start.makespan)
    if options.recompute:
        search.start_from(once)
    return search.run(setting)


def _order(problem: Problem) -> list[int]:
    """Return all tasks in the reference order; of a chain stage by stage, so that F and Fe may follow each other."""
    graph = problem.graph
    if problem.kind not in ("chain", "adjoint"):
        everything = graph.required | True
        return [int(task) for task in reference_order(graph, everything)]
    chain = problem.chain
    length, stages = chain.length, chain.alternatives.stage.tolist()
    saves = len(stages) if chain.saves else 0
    ways_of: list[list[int]] = [[] for _ in range(length)]
    for way, stage in enumerate(stages):
        ways_of[stage].append(way)
    order = []
    for stage in range(length):
        order.append(stage)
        order += [length + way for way in ways_of[stage] if way < saves]
    order.append(length + saves)
    for stage in reversed(range(length)):
        order += [length + saves + 1 + way for way in ways_of[stage]]
    return order


def _refuse(problem: Problem, setting: Setting, options: OffloadExactOptions) -> None:
    graph = problem.graph
    if len(setting.acts) > MOST_ACTS:
        raise _too_large(problem, f"{len(setting.acts):,} possible runs and copies", options)
    for task, (reads, writes) in enumerate(zip(graph.reads.to_lists(), graph.writes.to_lists(), strict=True)):
        for value in writes:
            if value in reads or value in graph.pinned:
                kind = "its own input" if value in reads else "a pinned input"
                raise OptionError(
                    f"{NAME} cannot let task {graph.described(task, repr)} write {kind} {graph.values[value]!r}",
                    argument="algorithm",
                )


def _too_large(problem: Problem, acts: str, options: OffloadExactOptions) -> OptionError:
    least = "" if options.copies < 2 and (not options.recompute or options.runs < 2) else ", or lower its options"
    return OptionError(
        f"{NAME} is for small instances: {len(problem.graph.tasks)} tasks and {len(problem.graph.values)} values "
        f"would take {acts}, and at most {MOST_ACTS} are considered; use another algorithm{least}",
        argument="algorithm",
    )


class _Search(Incumbent[Timed]):
    """The best known schedule and bound."""

    def __init__(self, problem: Problem, options: OffloadExactOptions, context: Context, known: Number | None) -> None:
        several = len(problem.machine.processors) > 1
        scope = scope_of(options) + (", on the first processor" if several else "")
        super().__init__(context, lambda found: found.steps, scope=scope, known=known)
        unlimited = context.seconds_left is not None  # a caller who sets a time limit accepts its length
        self.problem, self.work = problem, options.work or (None if unlimited else DEFAULT_WORK)
        self.by_default = options.work is None and not unlimited
        self.notes: list[str] = []
        self.timed_out = False

    def keeping_all(self) -> Proposal | None:
        """Return the schedule that runs each task once and moves nothing, if it fits and cannot be beaten."""
        problem = self.problem
        home = problem.machine.memories[problem.machine.processors[0].memory].name
        first = problem.machine.memories[0].name
        ends = (*problem.graph.inputs, *problem.graph.outputs)
        forced = sum(problem.graph.time[problem.needed.forced].tolist())
        if any((place.memory or first) != home for place in ends):
            return None
        if problem.no_recompute_time > problem.needed.packed_time + forced:
            return None
        order = reference_order(problem.graph, problem.needed.once)
        steps = run_in_order(problem.graph, problem.machine, order)
        placed = place(problem.graph, problem.machine, steps)
        if isinstance(placed, Unplaceable):
            return None
        steps = steps.placed(placed.start)
        least = problem.no_recompute_time
        self.context.report(steps, makespan=least)
        self.take_bound(least)
        return Proposal(steps=steps, makespan=least, bounds=self.bounds(NAME), optimal_within=self.scope)

    def start_from(self, setting: Setting) -> None:
        """Search for a schedule of a smaller class first."""
        left = self.context.seconds_left
        scale = scales(setting.durations, setting.demands)[0]
        self._solve(setting, scale, None if left is None else left / 2, bounds=False)

    def run(self, setting: Setting) -> Proposal:
        """Solve the program, or both programs."""
        chosen = scales(setting.durations, setting.demands)
        if len(chosen) == 1:
            outcome = self._solve(setting, chosen[0], self.context.seconds_left, bounds=True)
            return self._infeasible() if outcome is Outcome.INFEASIBLE else self.propose(outcome is Outcome.OPTIMAL)
        left = self.context.seconds_left
        self._solve(setting, chosen[0], None if left is None else left / 2, bounds=False)
        if not self.context.stopped:
            outcome = self._solve(setting, chosen[1], self.context.seconds_left, bounds=True)
            if outcome is Outcome.INFEASIBLE:
                return self._infeasible()
        made = "none was found" if self.best is None else f"the makespan is {self.best.makespan:g}"
        bound = "nothing is proved" if self.bound is None else f"it is at least {self.bound:g}"
        self.notes.append(
            f"too fine figures for the solver: with all rounded up, {made}; with all rounded down, {bound}"
        )
        return self.propose(self.best is not None and self.bound == self.best.makespan)

    def _solve(self, setting: Setting, scale: Scale, seconds: float | None, *, bounds: bool) -> Outcome:
        """Solve one program within growing makespan limits, only for schedules better than the best known one.

        Its bounds count if `bounds` is set; its schedules count if they are valid for the instance. "Optimal" then
        refers to the best known schedule.
        """
        end = None if seconds is None else time.monotonic() + seconds
        top = None if self.least is None else math.ceil(rational(self.least) / scale.time_unit) - 1
        if top is not None and top < 0:
            return Outcome.OPTIMAL  # no schedule takes less than zero time
        most, ratio, work = setting.least_units(scale), GROWTH, self.work
        while True:
            if self.context.stopped or (work is not None and work <= 0):
                return Outcome.UNKNOWN
            most = most if top is None else min(most, top)
            model = Model(setting, scale, most)

            def told(objective: float) -> None:
                if bounds and math.isfinite(objective):
                    self.take_bound(raised(self.problem, _time(math.ceil(objective - 1e-6), scale)))

            left = None if end is None else max(0.0, end - time.monotonic())
            job = CpSatJob(
                model.model,
                threads=self.context.threads,
                seed=self.context.seed,
                seconds=left,
                chosen=model.plan,
                found=partial(self.offer, model) if scale.up else None,
                bounded=told,
            )
            if work is not None:
                job.solver.parameters.max_deterministic_time = work
            answer: Answer = watched(job, lambda: self.context.interrupted, left)
            assert not job.refusal, f"CP-SAT refuses the program: {job.refusal}"
            if work is not None:
                work -= job.work
            if answer.outcome in (Outcome.OPTIMAL, Outcome.FEASIBLE):
                told(answer.bound)
            if answer.outcome is not Outcome.INFEASIBLE:
                if answer.outcome is not Outcome.OPTIMAL and end is not None and end - time.monotonic() < NEARLY:
                    self.timed_out = True
                return answer.outcome
            told(most + 1)
            if most == top:
                return Outcome.OPTIMAL
            if model.whole:
                return Outcome.INFEASIBLE
            most, ratio = max(most + 1, int(most * ratio)), ratio * GROWTH

    def offer(self, model: Model, plan: Plan) -> None:
        """Keep a schedule if it is better; on a coarse scale, first move each step to its earliest start."""
        found = timed_steps(model.setting, model.scale, model.length, plan)
        placed = timed(self.problem, found.steps)
        if placed is not None and placed[1] < found.makespan:
            found = Timed(*placed)
        self.take(found, found.makespan)

    def _infeasible(self) -> Proposal:
        budget, home = self.problem.budget, self.problem.machine.processors[0].memory
        least = None if budget is None else LeastBudget(budget + 1, None, False, home)
        return Proposal(infeasible_within=self.scope, least=least, notes=tuple(self.notes))

    def propose(self, proved: bool = False) -> Proposal:
        """Return the best known proposal."""
        context = self.context
        bounds = self.bounds(NAME)
        termination = Termination.COMPLETED
        if not proved and (context.stopped or self.timed_out or self.best is None):
            limit = Termination.TIME_LIMIT if self.timed_out or self.work is None else Termination.ITERATION_LIMIT
            termination = context.termination if context.stopped else limit
            if termination is Termination.ITERATION_LIMIT and self.by_default:
                self.notes.append(
                    f"not proved within {self.work:g} units of work; with a time limit the search continues"
                )
        if self.best is None:
            return Proposal(bounds=bounds, termination=termination, notes=tuple(self.notes))
        return Proposal(
            steps=self.best.steps,
            makespan=self.best.makespan,
            bounds=bounds,
            optimal_within=self.scope if proved else None,
            termination=termination,
            notes=tuple(self.notes),
        )


def _time(units: int, scale: Scale) -> Number:
    time = units * scale.time_unit
    return int(time) if time.denominator == 1 else float(time)
