"""`rotor`: the optimal memory-persistent schedule of a heterogeneous chain.

Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova 2019, "Optimal checkpointing for heterogeneous chains: how
to train deep neural networks with limited memory". With m bytes beyond x_i, and the gradient really live:

    T(i, l, m) = min( save_time(i) + backward_time(i) + T(i+1, l, m - kept(i)),
                      min over j in i+1..l of sum_{i<=k<j} forward_time(k) + T(j, l, m - x_j) + T(i, j-1, m) )

where each way counts only if its forwards and its backward fit into m.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from remat.context import Context
from remat.options import Options
from remat.problem import Bound, LeastBudget, Problem, Proposal
from remat.units import Number, format_size
from remat_algorithms.chain.least_memory import LeastMemory
from remat_algorithms.chain.rotor_table import Grid, RotorTable
from remat_algorithms.chain.segments import PERSISTENT, RunList, Segments
from remat_algorithms.emit import run_in_order


class RotorOptions(Options):
    """Options of `rotor`."""

    slots: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="slots that the memory of the no-recompute schedule is divided into; exact where sizes allow it. "
        "Default: 1000, and more for short chains, up to 20000",
    )
    certificate: bool = Field(
        True, description="where sizes are rounded, fill a second table with sizes rounded down: a bound and a gap"
    )


def solve(problem: Problem, options: RotorOptions, context: Context) -> Proposal:
    """Solve a chain.

    Parameters
    ----------
    problem : Problem
        Of kind `chain` (or an `adjoint` without storage); only the first memory is used.
    options : RotorOptions
    context : Context
        When stopped before the table is full, the answer comes from the least-memory table.

    Returns
    -------
    Proposal
        Optimal within `PERSISTENT` where the sizes are whole slots or the two tables agree.

    Notes
    -----
    O(L^3 slots) time and O(L^2 slots) memory; O(L^3) for the least budget, in bytes. When everything fits
    without recomputation, that is returned at once.
    """
    chain = problem.chain
    segments = Segments.of(chain)
    resident = int(segments.activation[0]) + chain.static_memory
    budget = math.inf if problem.budget is None else problem.budget - resident
    if segments.saved_whole_need() <= budget:
        whole = RunList(segments, has_saving=chain.saves)
        for stage in range(segments.length):
            whole.save(stage)
        for stage in range(segments.length, -1, -1):
            whole.backward(stage)
        return Proposal(
            steps=run_in_order(problem.graph, problem.machine, whole.tasks),
            makespan=segments.time_without_recompute(),
            optimal_within=PERSISTENT,
        )
    room = int(budget)
    least = LeastMemory.of(segments)
    if least.least > room:
        task = least.binding_task(has_saving=chain.saves)
        proved = PERSISTENT if segments.whole_class else None
        return Proposal(infeasible_within=proved, least=LeastBudget(least.least + resident, task, sufficient=True))
    return _within(problem, segments, least, room, options, context)


def _within(
    problem: Problem, segments: Segments, least: LeastMemory, room: int, options: RotorOptions, context: Context
) -> Proposal:
    """Solve for a budget that is feasible, but too small to save everything.

    The schedule of least memory competes with the table's: near the least budget the slots may be too coarse
    to hold any, and so more memory never gives a worse answer.
    """
    unit, exact = _unit(segments, options.slots or _default_slots(segments.length))
    claimable = _claimable(segments)
    table = _table(segments, room, unit, context, up=True)
    runs = RunList(segments, has_saving=problem.chain.saves)
    least.schedule(runs)
    time: Number = problem.graph.time[runs.tasks].sum().item()
    notes = []
    if table is not None and table.best() <= time:
        runs = RunList(segments, has_saving=problem.chain.saves)
        table.schedule(runs)
        time = table.best()
    else:
        why = "stopped before the table was full" if table is None else "the budget is too tight for the slots"
        notes.append(f"{why}: the schedule is the one of least memory")
    makespan = _claim(segments, time) if claimable else None
    steps = run_in_order(problem.graph, problem.machine, runs.tasks)
    value, source = (makespan, "rotor") if exact and table is not None else (None, "rotor, sizes rounded down")
    if not segments.whole_class:
        value = None
    if not exact:
        notes.append(f"memory in slots of {format_size(unit, problem.units)}, stored sizes rounded up")
        if options.certificate and table is not None and claimable and segments.whole_class:
            del table  # two tables of a long chain need twice the memory
            context.report(steps, makespan=makespan, message="filling the second table, for the bound")
            lower = _table(segments, room, unit, context, up=False)
            value = None if lower is None or lower.best() == math.inf else _claim(segments, lower.best())
    # Float sums in another order differ in their last digits: nothing lies between such values.
    proved = value is not None and makespan is not None and (value >= makespan or _nearly(value, makespan))
    return Proposal(
        steps=steps,
        makespan=makespan,
        bounds=() if value is None else (Bound(value, PERSISTENT, source),),
        optimal_within=PERSISTENT if proved else None,
        termination=context.termination,
        notes=tuple(notes),
    )


def _table(segments: Segments, room: int, unit: int, context: Context, *, up: bool) -> RotorTable | None:
    return RotorTable.of(segments, Grid.of(segments, room, unit, up=up), stopped=lambda: context.stopped)


def _default_slots(stages: int) -> int:
    """Choose as many slots as cost about as much as reading the instance, at least 1000 (for the chain alone)."""
    return min(20_000, max(1000, 150_000_000 // (stages + 1) ** 3))


def _unit(segments: Segments, slots: int) -> tuple[int, bool]:
    """Choose the bytes per slot; the second entry says whether all stored sizes are whole slots.

    The unit depends on the chain alone, not on the budget: rows then stand for the same stored sizes under
    any budget, and more memory can only help.
    """
    whole = segments.saved_whole_need()
    common = math.gcd(*segments.kept.tolist(), *segments.activation[1:].tolist())
    if common and whole // common <= slots:
        return common, True
    return max(1, -(-whole // slots)), common == 0


def _claimable(segments: Segments) -> bool:
    """Whether the table's sums are exact enough to claim: integers beyond 2^53 are rounded."""
    exact_times = segments.backward_time.dtype == np.int64
    return not exact_times or (segments.length + 1) * segments.time_without_recompute() < 2**53


def _claim(segments: Segments, time: Number) -> Number:
    return round(time) if segments.backward_time.dtype == np.int64 else time


def _nearly(value: Number, makespan: Number) -> bool:
    return math.isclose(value, makespan, rel_tol=1e-12)
