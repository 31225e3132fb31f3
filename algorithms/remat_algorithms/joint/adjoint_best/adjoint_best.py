"""`adjoint-best`: steps of any times and sizes on any storage levels, or in one memory; anytime.

The parts run in this order, and each tries to beat the best schedule found before:

1. For equal steps with tapes, the schedule of `reversal_schedules`. It is optimal in one memory if tapes have at least
   the size of states, and these of adjoints. Then every other algorithm for adjoints that accepts the instance
   (`initial_schedules`): the result is never worse than any of them. Loops of moderate length also run as chains: in
   `rotor-float` for the working memory alone, with states and tapes, and in `remat-offload-best` with storage, to which
   any value may be moved.
2. Tables over ranges of steps: one over bytes of the working memory and free bytes or prices of levels
   (`working_table`), one over free bytes of all levels (`persistent_table`), and in one memory one over blocks of steps
   and free bytes (`block_table`). They give the best persistent schedule, except where a level has a price, sizes are
   rounded up to the units of a table, or blocks have several steps.
3. Exact solution of tiny instances, by a shortest path over the placement of states (`search`). The best schedule of 1.
   and 2. prunes most of the search.
4. Large neighborhood search: the search of 3. replaces a window of the schedule by the shortest path between its ends,
   until the time or the iterations end. This undoes the roundings and uses the free working memory before the first
   adjoint. It also finds schedules that are not persistent.
5. For small instances with storage, the constraint program of `offload-exact`, in which any value may be moved, also
   during computation. It takes about a second for tiny instances, and longer only under a time limit.

The model of 2. to 4. has whole states that move one at a time, adjoints that stay in the working memory, and tapes that
are computed right before their backward. It does not apply if transfers overlap with computation. Then the answer for a
machine without overlap is placed on the real one. The lower bound (`bound`) holds for all schedules.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from pydantic import Field

from remat.placement import Placement, place
from remat.plugin import (
    ALL_SCHEDULES,
    Bound,
    Context,
    LeastBudget,
    Number,
    Options,
    Problem,
    Proposal,
    Steps,
    Termination,
)
from remat_algorithms.adjoint.applicability import uniform_adjoint
from remat_algorithms.joint.adjoint_best.block_table import LITTLE_WORK, MUCH_WORK, BlockTable
from remat_algorithms.joint.adjoint_best.bound import lower_bound
from remat_algorithms.joint.adjoint_best.initial_schedules import (
    LITTLE,
    starts,
    sufficient,
    whole_values,
    within_given_time,
)
from remat_algorithms.joint.adjoint_best.model import Model, Operation, cost, operations_of, steps_of, without_unread
from remat_algorithms.joint.adjoint_best.persistent_table import LevelTable, stores
from remat_algorithms.joint.adjoint_best.remaining_time import RemainingTime
from remat_algorithms.joint.adjoint_best.search import Search
from remat_algorithms.joint.adjoint_best.window_search import Windows
from remat_algorithms.joint.adjoint_best.working_table import WorkingTable
from remat_algorithms.kit.incumbent import Incumbent
from remat_algorithms.kit.makespan import timed

WHOLE_MOVES = "schedules that move whole states, one at a time"
EXACT_STEPS = 10
"""Maximum number of steps for the exact search; beyond, it would not end."""

MOST_OPERATIONS = 20_000
"""Maximum length of a schedule whose windows are searched."""


MOST_SUMS = 10_000
"""Maximum number of sums of sizes that are listed as budgets."""


class AdjointBestOptions(Options):
    """Options of `adjoint-best`."""

    iterations: int = Field(
        200,
        ge=0,
        description="maximum number of windows that the local search tries, and of rounds of the offloading search",
    )
    moves: int = Field(
        300_000, ge=0, description="maximum number of moves in the exact search, which runs on tiny instances only"
    )
    window: int = Field(6_000, ge=1, description="maximum number of moves in the search of one window")
    work: float | None = Field(
        None,
        ge=0,
        le=10_000,
        description="work limit of the constraint programs for small instances with storage, in CP-SAT's "
        "deterministic units (about 10 s each). Default: no limit with a time limit; otherwise a small one for up to "
        "10 steps, and 0 beyond",
    )


def solve(problem: Problem, options: AdjointBestOptions, context: Context) -> Proposal:
    """Solve any adjoint, as well as time allows.

    Accepts instances of kind `adjoint`. The parts share a time limit; without one, the result depends only on the
    options and the seed. It is never worse than any other algorithm for adjoints with default options (that ended in
    its share of the time). If the exact search ends, the result is proved optimal among schedules that move whole
    states one at a time, and in one memory among all schedules.

    Notes
    -----
    The other algorithms' time, O(n^3 cells) for the table, and `window` moves for each iteration.
    """
    proposal = _found(problem, options, context)
    model = Model.of(problem)
    if proposal.infeasible_within is None or proposal.least is not None or model is None:
        return proposal
    least = _least(model, options, problem.chain.static_memory)
    if least is not None and proposal.infeasible_within == WHOLE_MOVES:
        least = _least_of_all(problem, options, context, least)
    return replace(proposal, least=least)


def _found(problem: Problem, options: AdjointBestOptions, context: Context) -> Proposal:
    """Search for a schedule by all means; without one, return the proofs."""
    best = Incumbent[Steps](context, lambda steps: steps, scope=ALL_SCHEDULES)
    proposal = _moving_states(problem, options, best, context)
    bound = max((bound.value for bound in proposal.bounds if bound.scope == ALL_SCHEDULES), default=0)
    if proposal.infeasible_within == ALL_SCHEDULES or best.makespan <= bound:
        return proposal
    before = best.makespan
    if problem.machine.links and not context.stopped:
        work = _work(problem, options, context)
        for start in whole_values(problem, context, work, None if best.steps is None else best.makespan):
            best.take(start.steps, start.makespan, bound=bound, message=start.name)
    if best.steps is None or best.makespan == before:
        return proposal
    # Proofs about schedules that move whole states do not apply to this one.
    bounds = tuple(bound for bound in proposal.bounds if bound.scope == ALL_SCHEDULES)
    ending = context.termination
    return Proposal(steps=best.steps, makespan=best.makespan, bounds=bounds, termination=ending, notes=proposal.notes)


def _work(problem: Problem, options: AdjointBestOptions, context: Context) -> float:
    """Return the work limit of constraint programs; infinite if only the clock counts."""
    if options.work is not None:
        return options.work
    if within_given_time(context):
        return inf
    return LITTLE if problem.chain.length <= EXACT_STEPS else 0.0


def _moving_states(problem: Problem, options: AdjointBestOptions, best: Incumbent[Steps], context: Context) -> Proposal:
    """Run all parts except constraint programming; fill `best`."""
    model = Model.of(problem)
    bound: Number = problem.no_recompute_time
    early = problem.chain.saves and uniform_adjoint(problem)  # takes little time, and often ends the search
    if early:
        bound = max(bound, lower_bound(problem, context))
    for start in starts(problem, context, options.iterations):
        if isinstance(start, Proposal):
            return start
        bound = max(bound, start.bound)
        best.take(start.steps, start.makespan, bound=bound, message=start.name)
        if best.makespan <= bound:
            break  # proved: no other start is better
    if model is None and best.makespan > bound and not context.stopped:
        _one_at_a_time(problem, options, best, bound)
    if best.makespan > bound and not early:
        # A closed form takes no time; the tables of others end at once if no time is left.
        bound = max(bound, lower_bound(problem, context))
    if model is None or best.makespan <= bound:
        return _conclude(problem, model, context, best, bound, options)
    operations = None if context.stopped else _from_table(model, context)
    if operations is not None:
        steps = steps_of(problem, operations)
        if isinstance(place(problem.graph, problem.machine, steps), Placement):
            best.take(steps, cost(model, operations), bound=bound, message="table")
        else:
            operations = None
    exact = _exact(problem, model, options, context, best, bound)
    if exact is not None:
        return exact
    _search_windows(problem, model, options, context, best, bound, operations)
    return _conclude(problem, model, context, best, bound, options)


def _one_at_a_time(problem: Problem, options: AdjointBestOptions, best: Incumbent[Steps], bound: Number) -> None:
    """Offer the schedule for a machine without overlapping transfers; placed here, its transfers do overlap."""
    machine = problem.machine
    links = tuple(replace(link, channel=machine.processors[0].name) for link in machine.links)
    context = best.context.aside()
    problem_there = problem.on(replace(machine, links=links))
    there = Incumbent[Steps](context, lambda steps: steps, scope=ALL_SCHEDULES)
    proposal = _moving_states(problem_there, options, there, context)
    if proposal.steps is None:
        return
    placed = timed(problem, proposal.steps)
    if placed is not None:
        best.take(*placed, bound=bound, message="transfers one at a time")


def _exact(
    problem: Problem, model: Model, options: AdjointBestOptions, context: Context, best: Incumbent[Steps], bound: Number
) -> Proposal | None:
    """Run the exact search if the instance is tiny; None if it did not end."""
    if model.steps > EXACT_STEPS or options.moves == 0 or context.stopped:
        return None
    scope = ALL_SCHEDULES if len(model.capacity) == 1 and not problem.chain.saves else WHOLE_MOVES
    if not model.fits(model.start):
        return None
    search = Search(model, model.start, remaining=RemainingTime.of(problem, model, context))
    found = search.run(limit=options.moves, below=best.makespan, stopped=lambda: context.stopped)
    if not search.ended:
        return None
    if found is not None:
        best.take(steps_of(problem, found[1]), found[0], bound=bound, message="exact search")
    if best.steps is None:
        return Proposal(infeasible_within=scope)
    proved = Bound(best.makespan, scope, "adjoint-best")
    everywhere = Bound(bound, ALL_SCHEDULES, "adjoint-best")
    # If another algorithm beats the class with stored tapes or adjoints, its schedule is outside the class.
    own = scope == ALL_SCHEDULES or found is not None or operations_of(model, problem, best.steps) is not None
    within = scope if own else None
    return Proposal(steps=best.steps, makespan=best.makespan, bounds=(proved, everywhere), optimal_within=within)


def _least(model: Model, options: AdjointBestOptions, static: int) -> LeastBudget | None:
    """Return the minimum capacity of the first level, or of the single memory, by bisection with the exact search."""
    memory = 1 if len(model.capacity) > 1 else 0
    low = model.capacity[memory]
    high = max(low, 0) + sum(model.state) + sum(model.adjoint) + max(model.extra)

    def feasible(capacity: int) -> bool:
        capacities = [*model.capacity]
        capacities[memory] = capacity
        wider = replace(model, capacity=capacities)
        found = wider.fits(wider.start) and Search(wider, wider.start).run(limit=options.moves)
        return bool(found)

    if not feasible(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if feasible(middle):
            high = middle
        else:
            low = middle
    return LeastBudget(high + (0 if memory else static), None, True, memory)


def _least_of_all(problem: Problem, options: AdjointBestOptions, context: Context, least: LeastBudget) -> LeastBudget:
    """Return the minimum budget for which any part finds a schedule, not only the exact search.

    A bisection below the budget that suffices for that search. Each trial solves the instance: first for the budget
    that another algorithm reports as sufficient, then for one byte less. The result is sufficient, and with one byte
    less all parts fail.
    """
    name, low, high = (
        problem.machine.memories[least.memory].name,
        problem.machine.memories[least.memory].capacity,
        least.size,
    )
    if low is None:
        return least
    trial = min(sufficient(problem, context, least.memory), default=high - 1)
    works = any(processor.memory == least.memory for processor in problem.machine.processors)
    static = problem.graph.static_bytes(problem.machine, least.memory)
    sizes = [static, *problem.chain.activation_size.tolist(), *problem.chain.saved_size.tolist()]
    sums = None if works else sums_between(sizes, low, high)  # a storage level holds whole states and tapes
    while high - low > 1 and not context.stopped:
        if not low < trial < high:
            trial = (low + high) // 2
        if sums is not None:
            open_ = sums[bisect_right(sums, low) : bisect_left(sums, high)]
            if not open_:
                break
            # The largest sum up to the trial: what lies between admits the same schedules.
            trial = open_[max(0, bisect_right(open_, trial) - 1)]
        found = _found(problem.on(problem.machine.with_capacities({name: trial})), options, context.aside())
        if found.steps is None:
            low, trial = trial, high
        else:
            high, trial = trial, trial - 1
    return replace(least, size=high)


def sums_between(sizes: Sequence[int], low: int, high: int) -> list[int] | None:
    """Return the sums of some of the sizes between two figures, ascending; None if there are more than `MOST_SUMS`."""
    sums = {0}
    for size in sizes:
        sums |= {known + size for known in sums if known + size < high}
        if len(sums) > MOST_SUMS:
            return None
    return sorted(total for total in sums if total > low)


def _search_windows(
    problem: Problem,
    model: Model,
    options: AdjointBestOptions,
    context: Context,
    best: Incumbent[Steps],
    bound: Number,
    operations: list[Operation] | None,
) -> None:
    """Search windows of the best schedule, or of the table's schedule if the model cannot express the best one."""
    if best.steps is None or len(best.steps) > MOST_OPERATIONS:
        return
    current = operations_of(model, problem, best.steps) or operations
    if current is None:
        return
    windows = Windows(model, current, context.random(), limit=options.window)
    for _ in range(options.iterations):
        if context.stopped or best.makespan <= bound:
            return
        if windows.step(lambda: context.stopped):
            makespan = cost(model, windows.operations)
            if makespan < best.makespan:
                best.take(steps_of(problem, windows.operations), makespan, bound=bound, message="window")


def _from_table(model: Model, context: Context) -> list[Operation] | None:
    found: list[list[Operation]] = []
    if len(model.capacity) == 1:
        for work in (LITTLE_WORK, MUCH_WORK):
            table = BlockTable(model, work)
            if table.possible and table.fill(lambda: context.stopped):
                found += filter(None, [table.operations()])
            if table.possible and table.whole:
                break
        return min(found, key=lambda operations: cost(model, operations), default=None)
    working = WorkingTable.of(model)
    if working is not None:
        found += filter(None, [working.best(lambda: context.stopped)])
    places = stores(model)
    if places and (not found or (working is not None and working.priced)) and not context.stopped:
        levels = LevelTable(model, places)
        if levels.possible and levels.fill(lambda: context.stopped):
            found += filter(None, [levels.operations()])
    return min(found, key=lambda operations: cost(model, operations), default=None)


def _conclude(
    problem: Problem,
    model: Model | None,
    context: Context,
    best: Incumbent[Steps],
    bound: Number,
    options: AdjointBestOptions,
) -> Proposal:
    termination = context.termination
    if best.steps is None:
        return Proposal(termination=termination)
    steps, makespan = best.steps, best.makespan
    if model is not None and len(steps) <= MOST_OPERATIONS:
        operations = operations_of(model, problem, steps) or []
        fewer = without_unread(operations)
        if len(fewer) < len(operations):
            steps, makespan = steps_of(problem, fewer), min(makespan, cost(model, fewer))
    if termination is Termination.COMPLETED and makespan > bound and options.iterations:
        termination = Termination.ITERATION_LIMIT
    notes = () if model is not None else ("transfers overlap with computing: the best of the other algorithms, placed",)
    bounds = (Bound(bound, ALL_SCHEDULES, "adjoint-best"),) if bound else ()
    claim = makespan if makespan < inf else None
    within = ALL_SCHEDULES if bound and claim is not None and claim <= bound else None
    return Proposal(
        steps=steps, makespan=claim, bounds=bounds, optimal_within=within, termination=termination, notes=notes
    )
