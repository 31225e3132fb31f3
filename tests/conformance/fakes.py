"""Algorithms with one defect each, which the suite must find, and two sound ones, which it must let pass."""

import itertools
import threading

import numpy as np
from pydantic import BaseModel, Field

from remat.errors import OptionError
from remat.plugin.emit import run_in_order
from remat.plugin.options import Options
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Bound, LeastBudget, Proposal, Status, Termination
from remat.plugin.registry import Algorithm
from remat.schedule.steps import Steps
from remat.solving.conclusion import conclude
from remat_algorithms.dag import keep_all

FINISH = threading.Event()
"""Lets the algorithms that never stop end, once a test has seen enough of them."""


def steps_of(problem):
    return keep_all.solve(problem, None, None).steps


def fits(problem):
    """Return the minimum budget of the keep-all schedule, and whether the present budget suffices."""
    machine = problem.machine.with_capacities({memory.name: None for memory in problem.machine.memories})
    free = conclude(Problem(problem.instance, machine), SOUND, Proposal(steps=steps_of(problem)), {})
    peak = free.peak_memory[machine.memories[0].name]
    return peak, problem.budget is None or problem.budget >= peak


def sound(problem, options, context):
    """Keep-all."""
    return Proposal(steps=steps_of(problem), makespan=problem.no_recompute_time)


class Stepwise(Options):
    """Options of `stepwise`."""

    rounds: int = Field(3, ge=1, description="how many times the schedule is improved")


def stepwise(problem, options, context):
    """Anytime: starts with superfluous runs, and leaves them out one by one."""
    peak, enough = fits(problem)
    if not enough:
        return Proposal(infeasible_within="orders", least=LeastBudget(peak, None, True))
    order = steps_of(problem).runs.tolist()
    again = [task for task in order[-1:] if problem.graph.recomputable[task] and not problem.graph.once[task]]
    best = None
    for spare in range(options.rounds, -1, -1):
        steps = run_in_order(problem.graph, problem.machine, order + again * spare)
        if fits_now(problem, steps):
            best = steps
            context.report(steps, bound=0, scope=ALL_SCHEDULES)
        if context.stopped and best is not None:
            break
    return Proposal(steps=best, termination=context.termination)


def fits_now(problem, steps):
    return conclude(problem, SOUND, Proposal(steps=steps), {}).status in (Status.OPTIMAL, Status.FEASIBLE)


# --- what is wrong with the answer ------------------------------------------------------------------------------------


def wrong_makespan(problem, options, context):
    """Claims too little."""
    return Proposal(steps=steps_of(problem), makespan=problem.no_recompute_time - 1)


def wrong_peak(problem, options, context):
    """Claims a peak out of the blue."""
    return Proposal(steps=steps_of(problem), peak=123456789)


def false_bound(problem, options, context):
    """Claims a bound above its own schedule."""
    bound = Bound(problem.no_recompute_time + 1, ALL_SCHEDULES, "hope")
    return Proposal(steps=steps_of(problem), bounds=(bound,))


def nameless_bound(problem, options, context):
    """Does not say for which schedules its bound holds."""
    return Proposal(steps=steps_of(problem), bounds=(Bound(0, "", "hope"),))


def missing_step(problem, options, context):
    """Forgets the first run."""
    return Proposal(steps=run_in_order(problem.graph, problem.machine, steps_of(problem).runs[1:]))


def raises(problem, options, context):
    """Takes a tight budget for a reason to raise."""
    if not fits(problem)[1]:
        raise RuntimeError("out of memory")
    return sound(problem, options, context)


def refuses_budgets(problem, options, context):
    """Takes a tight budget for a reason to refuse."""
    if not fits(problem)[1]:
        raise OptionError("the budget is too small for me")
    return sound(problem, options, context)


def refuses_all(problem, options, context):
    """Solves nothing."""
    raise OptionError("this algorithm is on strike")


def refuses_mutely(problem, options, context):
    """Does not say why."""
    raise OptionError("no")


def returns_none(problem, options, context):
    """Returns no proposal."""


# --- what is wrong between answers ------------------------------------------------------------------------------------


def wasteful(problem, options, context):
    """Needs more time where there is more memory, and calls it optimal."""
    steps = steps_of(problem)
    if problem.budget is None:
        again = [t for t in steps.runs[-1:] if problem.graph.recomputable[t] and not problem.graph.once[t]]
        steps = run_in_order(problem.graph, problem.machine, [*steps.runs, *again])
    elif not fits(problem)[1]:
        return Proposal(infeasible_within="orders", least=LeastBudget(fits(problem)[0], None, True))
    return Proposal(steps=steps, optimal_within="orders")


def reserves(problem, options, context):
    """Needs a byte more than its schedule."""
    peak, enough = fits(problem)
    if problem.budget is not None and (not enough or problem.budget == peak):
        return Proposal()
    return sound(problem, options, context)


def gives_up(problem, options, context):
    """Claims infeasibility at every budget, although it finds a schedule without one."""
    if problem.budget is not None:
        return Proposal(infeasible_within=ALL_SCHEDULES, least=LeastBudget(problem.budget + 1, None, False))
    return sound(problem, options, context)


def slower_prepared(problem, options):
    """Prepared, it answers with what the last task takes once more."""

    def solve(problem, context):
        steps = steps_of(problem)
        again = [t for t in steps.runs[-1:] if problem.graph.recomputable[t] and not problem.graph.once[t]]
        return Proposal(steps=run_in_order(problem.graph, problem.machine, [*steps.runs, *again]))

    return solve


def fickle(problem, options, context):
    """A strategy whose schedule depends on the budget."""
    if problem.budget is None:
        return Proposal(steps=Steps.of_runs(steps_of(problem).runs))
    return sound(problem, options, context)


def least(offset):
    def solve(problem, options, context):
        """Report a wrong minimum budget."""
        peak, enough = fits(problem)
        if enough:
            return sound(problem, options, context)
        return Proposal(infeasible_within="orders", least=LeastBudget(max(0, peak + offset), None, True))

    return solve


too_little = least(-1)
too_much = least(1)


def least_is_no_more(problem, options, context):
    """Names the budget that it has as the least one."""
    if fits(problem)[1]:
        return sound(problem, options, context)
    return Proposal(infeasible_within="orders", least=LeastBudget(problem.budget, None, False))


# --- what is wrong with the manners -----------------------------------------------------------------------------------


CALLS = itertools.count()
"""Dice would fall alike now and then, and the defect with them."""


def unseeded(problem, options, context):
    """Answers differently each time, with the same seed."""
    steps = steps_of(problem)
    again = [t for t in steps.runs[-1:] if problem.graph.recomputable[t] and not problem.graph.once[t]]
    runs = [*steps.runs, *again * (next(CALLS) % 99)]
    return Proposal(steps=run_in_order(problem.graph, problem.machine, runs))


def changes_times(problem, options, context):
    """Writes into the problem's arrays."""
    problem.graph.time[:] = 0
    return Proposal(steps=steps_of(problem))


def changes_chain(problem, options, context):
    """Writes into the arrays of the chain."""
    problem.chain.forward_time[:] += 1
    return Proposal(steps=steps_of(problem))


def never_stops(problem, options, context):
    """Waits for better times."""
    FINISH.wait()
    return sound(problem, options, context)


def hides_interruption(problem, options, context):
    """Calls everything a time limit."""
    return Proposal(steps=steps_of(problem), termination=Termination.TIME_LIMIT)


def reports_nonsense(problem, options, context):
    """Reports incumbents that are no schedules."""
    context.report(Steps.of_runs(np.array([0, 0, 0])))
    return sound(problem, options, context)


# --- what is wrong with the options -----------------------------------------------------------------------------------


class Undescribed(Options):
    """Options without help."""

    rounds: int = 3


class Loose(BaseModel):
    """Options that are no `Options`."""

    rounds: int = Field(3, description="how many")


def entry(name, function, guarantee="heuristic", **more):
    more = {"summary": "a fake", "complexity": "O(1)", "reference": "-", "kinds": ("taskgraph",)} | more
    solver = f"{__name__}:{function}"
    return Algorithm(name=name, solver=solver, guarantee=guarantee, within="orders", **more)


SOUND = entry("sound", "sound", "strategy")
FAKES = {
    algorithm.name: algorithm
    for algorithm in (
        SOUND,
        entry("stepwise", "stepwise", options=f"{__name__}:Stepwise", anytime=True),
        entry("wrong-makespan", "wrong_makespan"),
        entry("wrong-peak", "wrong_peak"),
        entry("false-bound", "false_bound"),
        entry("nameless-bound", "nameless_bound"),
        entry("missing-step", "missing_step"),
        entry("raises", "raises"),
        entry("refuses-budgets", "refuses_budgets"),
        entry("refuses-all", "refuses_all"),
        entry("refuses-mutely", "refuses_mutely"),
        entry("returns-none", "returns_none"),
        entry("wasteful", "wasteful", "exact"),
        entry("reserves", "reserves"),
        entry("gives-up", "gives_up", "exact"),
        entry("fickle", "fickle", "strategy"),
        entry("slower-prepared", "sound", prepare=f"{__name__}:slower_prepared"),
        entry("too-little", "too_little", "exact"),
        entry("too-much", "too_much", "exact"),
        entry("least-is-no-more", "least_is_no_more", "exact"),
        entry("unseeded", "unseeded"),
        entry("changes-times", "changes_times"),
        entry("changes-chain", "changes_chain"),
        entry("never-stops", "never_stops", anytime=True),
        entry("hides-interruption", "hides_interruption"),
        entry("reports-nonsense", "reports_nonsense", anytime=True),
        entry("undescribed", "sound", options=f"{__name__}:Undescribed"),
        entry("loose", "sound", options=f"{__name__}:Loose"),
        entry("Bad_Name", "sound"),
        entry("silent", "sound", summary=""),
        entry("no-kinds", "sound", kinds=()),
        entry("odd-kinds", "sound", kinds=("chains",)),
        entry("nowhere", "nothing_of_this_name"),
        entry("needs-more", "sound", requires=("a_module_that_nobody_has",)),
    )
}
