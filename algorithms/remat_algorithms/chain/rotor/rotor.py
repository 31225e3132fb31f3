"""`rotor`: the optimal memory-persistent schedule of a heterogeneous chain.

Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova 2019, "Optimal checkpointing for heterogeneous chains: how
to train deep neural networks with limited memory". With m bytes beyond x_i, and the gradient really live:

    T(i, l, m) = min( min over v of time(i, v) + T(i+1, l, m - kept(i, v)),
                      min over j in i+1..l of sum_{i<=k<j} forward_time(k) + T(j, l, m - x_j) + T(i, j-1, m) )

where each way counts only if its forwards and its backward fit into m, and v runs over the variants of stage i (the
paper has one; a choice of variants is that of Zhao et al. 2023, "Rockmate"). Whether an input goes early, because
its backward does not read it, is told apart in the states of `states`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, Field

from remat.plugin import Bound, Context, LeastBudget, Number, Options, Problem, Proposal, format_size, run_in_order
from remat_algorithms.chain.least_memory import LeastMemory
from remat_algorithms.chain.rotor.slots import MOST_BYTES, Search, check_size, default_slots, is_long, table_bytes
from remat_algorithms.chain.segments import PERSISTENT, Segments


def _share(given: object) -> object:
    """Read `0.5%` as 0.005."""
    if isinstance(given, str) and given.strip().endswith("%"):
        try:
            return float(given.strip()[:-1]) / 100
        except ValueError:
            return given
    return given


class RotorOptions(Options):
    """Options of `rotor`."""

    slots: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="most slots that the memory is divided into; exact where sizes allow it. "
        "Default: 1000 (fewer where a table would be too large), and more for short chains, up to 20000",
    )
    certificate: bool = Field(
        True, description="where sizes are rounded, fill a second table with sizes rounded down: a bound and a gap"
    )
    gap: Annotated[float | None, BeforeValidator(_share)] = Field(
        None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="the argument `gap` of every solve, under its old name: refine the slots until the schedule is "
        "within this share of the bound for its class: 0.005, or 0.5%",
    )


class Setting:
    """A chain, and what every budget has in common."""

    def __init__(self, problem: Problem, context: Context) -> None:
        self.problem, self.context = problem, context
        self.segments = Segments.of(problem.chain)
        self.resident = int(self.segments.activation[0]) + problem.chain.static_memory
        self.whole = self.segments.states.whole()
        self.exact_times = self.segments.backward_time.dtype == np.int64
        # Whether the table's sums are exact enough to claim: integers beyond 2^53 are rounded.
        self.claimable = not self.exact_times or (self.segments.length + 1) * self.whole.time < 2**53
        self._least: LeastMemory | None = None

    @property
    def least(self) -> LeastMemory:
        """The least-memory table, filled when first asked for."""
        if self._least is None:
            self._least = LeastMemory.of(self.segments, stopped=lambda: self.context.stopped)
        return self._least

    def time_of(self, runs: Sequence[int]) -> Number:
        """Total time of some runs."""
        time: Number = self.problem.graph.time[np.asarray(runs, dtype=np.int64)].sum().item()
        return time

    def claim(self, time: float) -> Number | None:
        """Turn a table's time into a claim."""
        if not self.claimable:
            return None
        return round(time) if self.exact_times else time

    def nothing_recomputed(self) -> Proposal:
        """Propose the schedule that saves every stage through once."""
        states, ways = self.segments.states, self.whole.ways
        loss = int(states.backward_task[states.start[-2]])
        runs = [*states.forward_task[list(ways)].tolist(), loss, *states.backward_task[list(reversed(ways))].tolist()]
        return Proposal(
            steps=run_in_order(self.problem.graph, self.problem.machine, runs),
            makespan=self.whole.time,
            optimal_within=PERSISTENT,
        )

    def too_small(self) -> Proposal:
        """Answer a budget below the least memory."""
        least = self.least
        if not least.exact:
            return Proposal(termination=self.context.termination, notes=("stopped before the least memory was known",))
        named = LeastBudget(least.least + self.resident, least.binding_task(), sufficient=True)
        return Proposal(infeasible_within=PERSISTENT, least=named)

    def propose(self, runs: Sequence[int], time: float, lower: float, notes: Sequence[str]) -> Proposal:
        """Propose a schedule with a bound of its class (-inf: none)."""
        makespan, value = self.claim(time), None
        if self.claimable and lower > -math.inf:
            value = self.claim(lower)
        # Float sums in another order differ in their last digits: nothing lies between such values.
        proved = value is not None and makespan is not None and (value >= makespan or nearly(value, makespan))
        return Proposal(
            steps=run_in_order(self.problem.graph, self.problem.machine, list(runs)),
            makespan=makespan,
            bounds=() if value is None else (Bound(value, PERSISTENT, "rotor"),),
            optimal_within=PERSISTENT if proved else None,
            termination=self.context.termination,
            notes=tuple(notes),
        )


def solve(problem: Problem, options: RotorOptions, context: Context) -> Proposal:
    """Solve a chain.

    Parameters
    ----------
    problem : Problem
        Of kind `chain` (or an `adjoint` without storage); only the first memory is used.
    options : RotorOptions
    context : Context
        When stopped before the table is full, the answer comes from the least-memory table, or from a coarser one.

    Returns
    -------
    Proposal
        Optimal within `PERSISTENT` where the sizes are whole slots or the two tables agree.

    Notes
    -----
    O(L^3 slots) time and O(L^2 slots) memory; O(L^3) for the least budget, in bytes. When everything fits
    without recomputation, that is returned at once. More memory never gives a worse answer, unless the time ran out;
    with the option `gap`, up to the gap.

    Raises
    ------
    remat.OptionError
        If the tables would be too large.
    """
    setting = Setting(problem, context)
    room = math.inf if problem.budget is None else problem.budget - setting.resident
    if setting.whole.need <= room:
        return setting.nothing_recomputed()
    slots = options.slots or default_slots(setting.segments)
    check_size(setting.segments, slots)
    if setting.least.least > room:
        return setting.too_small()
    return _within(setting, int(room), slots, options)


def _within(setting: Setting, room: int, slots: int, options: RotorOptions) -> Proposal:
    """Solve for a budget that is feasible, but too small to save everything.

    The schedule of least memory competes with the table's: near the least budget the slots may be too coarse
    to hold any.
    """
    problem, context, segments = setting.problem, setting.context, setting.segments
    gap = _gap_of(options, context)
    certificate = options.certificate or gap is not None
    search = Search(segments, setting.least, setting.whole, room, context, certificate)
    search.start(setting.time_of(setting.least.runs()))
    notes = []

    def report(count: int) -> None:
        steps = run_in_order(problem.graph, problem.machine, search.runs)
        context.report(steps, makespan=setting.claim(search.time), message=f"{count} slots")

    going = True
    if is_long(segments, slots):
        going = search.glance(slots // 4)
        report(slots // 4)
    while going and search.fill(slots):
        report(slots)
        if search.exact or gap is None or search.gap <= gap:
            break
        if table_bytes(segments, 2 * slots) > MOST_BYTES:
            notes.append(f"the gap asked for needs more than {slots:,} slots, whose tables are too large")
            break
        slots *= 2
    return setting.propose(search.runs, search.time, search.lower, [*notes, *_rounding(setting, search)])


def _gap_of(options: RotorOptions, context: Context) -> float | None:
    """Return the gap that is asked for: by the option, or of the whole solve."""
    return options.gap if options.gap is not None else context.gap


def _rounding(setting: Setting, search: Search) -> list[str]:
    """Say how the figures came about."""
    notes = []
    if not search.from_table:
        stopped = search.unit is None
        why = "stopped before the table was full" if stopped else "the budget is too tight for the slots"
        notes.append(f"{why}: the schedule is the one of least memory")
    if search.unit is not None and not search.exact:
        size = format_size(search.unit, setting.problem.units)
        within = ""
        if setting.claimable and 0 < search.gap < math.inf:
            within = f"; at most {100 * search.gap:.2g} % above the optimum of its class"
        notes.append(f"memory in slots of {size}, stored sizes rounded up{within}")
    return notes


def nearly(value: Number, makespan: Number) -> bool:
    """Whether two times differ by no more than float rounding; whole ones are equal or they are not."""
    if isinstance(value, int) and isinstance(makespan, int):
        return value == makespan
    return math.isclose(value, makespan, rel_tol=1e-12)
