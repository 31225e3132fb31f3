"""`rotor-float`: the optimal floating schedule of a heterogeneous chain.

Persistent schedules (`rotor`) keep stored values until the backward that needs them. Floating ones may replace a
checkpoint by a later one. They may also drop a stage's input while the stage's saved values stay. Module `model`
defines the class, and `table` has the recurrence. Every persistent schedule is a floating one.
"""

from __future__ import annotations

import math

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
    format_size,
    run_in_order,
)
from remat_algorithms.chain.floating.model import FLOATING, LeastFloating, Needs
from remat_algorithms.chain.floating.table import FloatingTable, Slots, cell
from remat_algorithms.chain.rotor.rotor import RotorOptions
from remat_algorithms.chain.rotor.rotor import solve as solve_rotor
from remat_algorithms.chain.segments import RunList, Segments
from remat_algorithms.chain.unsupported import refuse_alternatives

CELLS = 40_000_000
"""Maximum number of table entries (of 8 bytes each)."""

WORK = 3_000_000_000
"""Maximum number of additions for a table."""

MOST_STAGES = 160
"""Maximum number of stages; longer chains use `rotor`, because the table would have too few slots to improve on it."""


class RotorFloatOptions(Options):
    """Options of `rotor-float`."""

    slots: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="number of slots into which the peak of the schedule without recomputation is divided; exact if "
        "all sizes are multiples of a slot. Default: what fits into a table of 320 MB and a few seconds, at most 4000",
    )
    certificate: bool = Field(
        True, description="if sizes are rounded, fill a second table with sizes rounded down, for a bound and a gap"
    )


def solve(problem: Problem, options: RotorFloatOptions, context: Context) -> Proposal:
    """Solve a chain.

    Takes instances of kind `chain` and uses only the working memory. If stopped before the table is full, the answer is
    that of `rotor`. Optimal within `FLOATING` if sizes are integer numbers of slots or the two tables agree. Never
    worse than `rotor`: its schedule competes, and so does the floating schedule of minimum memory.

    Notes
    -----
    O(L^4 slots / 12) time and O(L^3 slots / 3) memory, after `rotor`.
    """
    chain = problem.chain
    segments = Segments.of(chain)
    refuse_alternatives(problem, "rotor-float")
    persistent = solve_rotor(problem, RotorOptions(gap=None), context)
    saved_whole = segments.saved_whole_need() + int(chain.activation_size[0]) + chain.static_memory
    if problem.budget is None or problem.budget >= saved_whole:
        within = FLOATING if Needs.of(chain, segments).plain else None
        return Proposal(steps=persistent.steps, makespan=persistent.makespan, optimal_within=within)
    if segments.length > MOST_STAGES:
        return _without_table(persistent, f"more than {MOST_STAGES} stages: this is the schedule of rotor")
    needs = Needs.of(chain, segments)
    room = problem.budget - chain.static_memory
    least = LeastFloating.of(needs, stopped=lambda: context.stopped)
    if least is None:
        return _without_table(persistent, "stopped before the table was full", context)
    if least.whole > room:
        return _too_small(persistent, least.whole + chain.static_memory, plain=needs.plain)
    return _within(problem, segments, needs, least, room, persistent, options, context)


def _within(
    problem: Problem,
    segments: Segments,
    needs: Needs,
    least: LeastFloating,
    room: int,
    persistent: Proposal,
    options: RotorFloatOptions,
    context: Context,
) -> Proposal:
    """Solve for a budget that is feasible, but too small to save everything."""
    has_saving = problem.chain.saves
    unit, exact = slots_of(needs, segments, options.slots)
    runs = RunList(segments, has_saving=has_saving)
    least.schedule(runs)
    best, time = runs.tasks, total_time(problem, runs.tasks)
    if persistent.steps is not None:
        tasks = persistent.steps.runs.tolist()
        if total_time(problem, tasks) <= time:
            best, time = tasks, total_time(problem, tasks)
    table = FloatingTable.of(needs, Slots.of(room, unit, up=True), stopped=lambda: context.stopped)
    notes = [] if exact else [f"memory in slots of {format_size(unit, problem.units)}, stored sizes rounded up"]
    if table is None:
        notes.append("stopped before the table was full: the schedule is the best one without it")
    elif table.best() <= time:
        runs = RunList(segments, has_saving=has_saving)
        table.schedule(runs)
        best, time = runs.tasks, total_time(problem, runs.tasks)
    steps = run_in_order(problem.graph, problem.machine, best)
    bound: Number | None = None
    if table is not None and needs.plain and sums_exactly(problem, needs):
        if exact:
            bound = time
        elif options.certificate:
            del table  # two tables need twice the memory
            context.report(steps, makespan=time, message="filling the second table, for the bound")
            lower = FloatingTable.of(needs, Slots.of(room, unit, up=False), stopped=lambda: context.stopped)
            if lower is not None and lower.best() < math.inf:
                bound = round(lower.best()) if isinstance(time, int) else lower.best()
    # Float sums in different orders differ in their last digits; these differences are not gaps.
    whole = isinstance(time, int)
    proved = bound is not None and (bound >= time or (not whole and math.isclose(bound, time, rel_tol=1e-12)))
    return Proposal(
        steps=steps,
        makespan=time,
        bounds=() if bound is None else (Bound(min(bound, time), FLOATING, "rotor-float"),),
        optimal_within=FLOATING if proved else None,
        termination=context.termination,
        notes=tuple(notes),
    )


def _too_small(persistent: Proposal, size: int, *, plain: bool) -> Proposal:
    """Answer a budget below `size`, the minimum of the table, which is an upper bound unless the class is plain.

    Outside the class that the needs describe exactly, nothing is proved beyond what holds for all schedules.
    """
    if persistent.steps is not None:
        return _without_table(persistent, "too little memory for the table: this is the schedule of rotor")
    known = persistent.least
    if known is not None and known.sufficient and known.size <= size:
        named = known
    else:
        named = LeastBudget(size, None, sufficient=True)
    return Proposal(infeasible_within=FLOATING if plain else _over_all(persistent.infeasible_within), least=named)


def _over_all(scope: str | None) -> str | None:
    """Return a scope if it is all schedules: proofs of `rotor` over its own class say nothing about floating ones."""
    return scope if scope == ALL_SCHEDULES else None


def _without_table(persistent: Proposal, note: str, context: Context | None = None) -> Proposal:
    """Answer with the schedule of `rotor`, or with what its failure proves."""
    return Proposal(
        steps=persistent.steps,
        makespan=persistent.makespan,
        bounds=persistent.bounds,
        optimal_within=_over_all(persistent.optimal_within),
        infeasible_within=_over_all(persistent.infeasible_within),
        least=persistent.least,
        termination=persistent.termination if context is None else context.termination,
        notes=(*persistent.notes, note) if persistent.steps is not None else persistent.notes,
    )


def slots_of(needs: Needs, segments: Segments, slots: int | None) -> tuple[int, bool]:
    """Choose the bytes per slot; the second entry states whether all stored sizes are integer numbers of slots.

    The unit depends only on the chain, not on the budget, so that more memory can only help.
    """
    whole = segments.saved_whole_need() + int(needs.checkpoint[0])
    if slots is None:
        cells = cell(0, 0, needs.length + 1)
        slots = max(50, min(4000, CELLS // (2 * cells), WORK // (cells * (needs.length + 1))))
    common = math.gcd(*needs.checkpoint.tolist(), *needs.saving.tolist(), *needs.tape.tolist())
    if common and whole // common <= slots:
        return common, True
    return max(1, -(-whole // slots)), common == 0


def sums_exactly(problem: Problem, needs: Needs) -> bool:
    """Whether the table's sums are exact: integers beyond 2^53 are rounded."""
    once = needs.forward_time.sum() + needs.save_time.sum() + needs.backward_time.sum()
    return not problem.graph.exact_times or (needs.length + 1) * int(once) < 2**53


def total_time(problem: Problem, tasks: list[int]) -> Number:
    """Return the total time of sequential runs, summed as placement does."""
    times = problem.graph.time[tasks]
    return int(times.sum()) if problem.graph.exact_times else float(times.cumsum()[-1])
