"""`rotor`: the optimal memory-persistent schedule of a heterogeneous chain.

Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova 2019, "Optimal checkpointing for heterogeneous chains: how to train
deep neural networks with limited memory". With m bytes beyond x_i, and the gradient that is actually live:

    T(i, l, m) = min( min over v of time(i, v) + T(i+1, l, m - kept(i, v)),
                      min over j in i+1..l of sum_{i<=k<j} forward_time(k) + T(j, l, m - x_j) + T(i, j-1, m) )

An option counts only if its forwards and its backward fit into m. v ranges over the variants of stage i. The paper has
one; a choice of variants is that of Zhao et al. 2023, "Rockmate". The states of `states` distinguish inputs that are
dropped early because their backward does not read them.

The paper divides the memory into slots. Here T(i, l, .) is a front, a list of (bytes, time), and exact. Fronts are
short (`front_table`), and shorter for a tighter time limit, which `search` sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import BeforeValidator, Field

from remat.plugin import (
    Bound,
    Context,
    LeastBudget,
    Number,
    OptionError,
    Options,
    Problem,
    Proposal,
    Steps,
    run_in_order,
)
from remat_algorithms.chain.minimum_memory import LeastMemory
from remat_algorithms.chain.rotor.search import Found, Search
from remat_algorithms.chain.rotor.tick_costs import Costs
from remat_algorithms.chain.segments import PERSISTENT, Segments


def _share(given: object) -> object:
    """Read `0.5%` as 0.005."""
    if isinstance(given, str) and given.strip().endswith("%"):
        try:
            return float(given.strip()[:-1]) / 100
        except ValueError:
            return given
    return given


LARGEST_BYTES = 16_000_000_000
"""Maximum size of the tables."""

COARSE = 16
"""Maximum ratio between the time for which ticks were chosen and that of a schedule; it bounds the lost bits."""

CELL_BYTES = 28
"""Bytes of each segment apart from its front: its position, its limit, and its minimum memory."""


class RotorOptions(Options):
    """Options of `rotor`."""

    gone: ClassVar = dict.fromkeys(("slots", "certificate"), "fronts are exact to the byte")

    gap: Annotated[float | None, BeforeValidator(_share)] = Field(
        None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="old name of the `gap` argument: stop when the gap to the bound for the class is at most this "
        "share, for example 0.005 or 0.5%",
    )


class Setting:
    """A chain, with the data common to all budgets.

    Attributes
    ----------
    work : int
        Points that all searches have merged.
    """

    def __init__(self, problem: Problem, context: Context) -> None:
        self.problem, self.context = problem, context
        self.segments = Segments.of(problem.chain)
        self.resident = int(self.segments.activation[0]) + problem.chain.static_memory
        self.whole = self.segments.states.whole()
        self.costs = Costs.of(self.segments)
        self._least: LeastMemory | None = None
        self._made: tuple[list[int], Steps, Number] | None = None
        self.work = 0

    def asked(self, problem: Problem, context: Context) -> None:
        """Go on to another budget of the same chain."""
        self.problem, self.context = problem, context
        if self._least is not None and not self._least.exact:
            self._least = None

    @property
    def least(self) -> LeastMemory:
        """The minimum-memory table, filled on first use."""
        if self._least is None:
            self._least = LeastMemory.of(self.segments, stopped=lambda: self.context.stopped)
        return self._least

    def time_of(self, runs: Sequence[int]) -> Number:
        """Return the total time of some runs."""
        time: Number = self.problem.graph.time[np.asarray(runs, dtype=np.int64)].sum().item()
        return time

    def check_size(self) -> None:
        """Refuse tables that would exhaust the machine's memory.

        Raises
        ------
        remat.OptionError
        """
        states, length = len(self.segments.states.stage), self.segments.length
        needed = CELL_BYTES * states * (length + 1)
        if needed > LARGEST_BYTES:
            raise OptionError(
                f"rotor's tables for {length:,} stages take {needed / 1e9:,.0f} GB, more than "
                f"{LARGEST_BYTES / 1e9:.0f} GB; use periodic",
                argument="algorithm",
            )

    def search(
        self, rooms: Sequence[int], options: RotorOptions, report: Callable[[Found], None] = lambda found: None
    ) -> Search:
        """Search for the fastest schedules within some memory sizes."""
        search = self._searched(self.costs, rooms, options, report)
        for room, found in search.found.items():
            if found.uses_capped:
                search.found[room] = self._rescaled(found, room, options, report)
        return search

    def _searched(
        self, costs: Costs, rooms: Sequence[int], options: RotorOptions, report: Callable[[Found], None]
    ) -> Search:
        gap = gap_of(options, self.context)
        search = Search(
            self.segments, costs, rooms, self.context, lambda: self.least, self.time_of, gap=gap, report=report
        )
        search.go()
        self.work += search.work
        return search

    def _rescaled(self, found: Found, room: int, options: RotorOptions, report: Callable[[Found], None]) -> Found:
        """Search again in ticks that suit the schedule found, until the result is hardly faster than the last one."""
        time = float(self.time_of(found.runs()))
        while not self.context.stopped:
            costs = Costs.of(self.segments, longest=time)
            other = self._searched(costs, [room], options, report).found[room]
            if other.excess is None:
                return found
            quicker = float(self.time_of(other.runs()))
            if quicker > time:  # the search was stopped
                return found
            found, before, time = other, time, quicker
            if quicker * COARSE >= before:
                return found
        return found

    def nothing_recomputed(self) -> Proposal:
        """Propose the schedule that saves every stage once."""
        states, ways = self.segments.states, self.whole.ways
        loss = int(states.backward_task[states.start[-2]])
        runs = [*states.forward_task[list(ways)].tolist(), loss, *states.backward_task[list(reversed(ways))].tolist()]
        return Proposal(
            steps=run_in_order(self.problem.graph, self.problem.machine, runs),
            makespan=self.whole.time,
            optimal_within=PERSISTENT,
        )

    def too_small(self, least: LeastMemory | None = None) -> Proposal:
        """Propose for a budget below the minimum memory, whose table is filled if it is not given."""
        least = self.least if least is None else least
        if not least.exact:
            return Proposal(
                termination=self.context.termination, notes=("stopped before the minimum memory was known",)
            )
        named = LeastBudget(least.least + self.resident, least.binding_task(), sufficient=True)
        return Proposal(infeasible_within=PERSISTENT, least=named)

    def propose(self, found: Found, notes: Sequence[str] = ()) -> Proposal:
        """Propose the best schedule found, with a bound of its class.

        If the schedule equals the previous one, its steps are the same object for all budgets.
        """
        runs = found.runs()
        if self._made is None or self._made[0] != runs:
            self._made = runs, run_in_order(self.problem.graph, self.problem.machine, runs), self.time_of(runs)
        _, steps, makespan = self._made
        bounds: tuple[Bound, ...] = ()
        if self._claimable(found) and not found.uses_capped and (found.proved or found.lower > 0):
            value = makespan if found.proved else min(makespan, _bound(found))
            bounds = (Bound(value, PERSISTENT, "rotor"),)
        return Proposal(
            steps=steps,
            makespan=makespan,
            bounds=bounds,
            optimal_within=PERSISTENT if bounds and found.proved else None,
            termination=self.context.termination,
            notes=(*notes, *self._notes(found)),
        )

    def _claimable(self, found: Found) -> bool:
        """Whether bounds can be claimed; integer times that are too large for ticks are rounded."""
        return found.costs.exact or self.segments.backward_time.dtype != np.int64

    def _notes(self, found: Found) -> list[str]:
        """Explain why a schedule is not proved optimal."""
        if found.proved:
            return []
        if found.least and self.context.stopped:
            return ["stopped before the fronts were full: the schedule is the one with the smallest memory"]
        lower = found.costs.whole + found.lower
        if not self._claimable(found) or lower <= 0 or found.excess is None:
            return []
        share = (found.excess - found.lower) / lower
        return [f"at most {100 * share:.2g} % above the optimum of its class"]


def _bound(found: Found) -> Number:
    """Return the lower bound on the time of all schedules."""
    time = found.costs.time(found.lower)
    return time if found.costs.exact else time * (1 - 1e-12)


def solve(problem: Problem, options: RotorOptions, context: Context) -> Proposal:
    """Solve a chain.

    Parameters
    ----------
    problem : Problem
        A problem of kind `chain` (or an `adjoint` without storage); only the working memory is used.
    options : RotorOptions
    context : Context
        If stopped before the fronts are complete, the answer is the best schedule found, or that of minimum memory.

    Returns
    -------
    Proposal
        Optimal within `PERSISTENT`; with a gap if one was requested, if the time ran out, or if fronts grew too long.

    Notes
    -----
    O(L^3) sums of fronts at most, which a time limit makes few and short. If everything fits without recomputation,
    that schedule is returned immediately.
    """
    return solve_in(Setting(problem, context), options)


def solve_in(setting: Setting, options: RotorOptions) -> Proposal:
    """Solve as `solve` does, for the budget of a setting's problem."""
    problem, context = setting.problem, setting.context
    room = math.inf if problem.budget is None else problem.budget - setting.resident
    if setting.whole.need <= room:
        return setting.nothing_recomputed()
    setting.check_size()

    def report(found: Found) -> None:
        if not found.proved:
            runs = found.runs()
            steps = run_in_order(problem.graph, problem.machine, runs)
            context.report(steps, makespan=setting.time_of(runs), message="a schedule within a limit")

    search = setting.search([int(room)], options, report)
    found = search.found[int(room)]
    return setting.too_small() if found.excess is None else setting.propose(found)


def gap_of(options: RotorOptions, context: Context) -> float | None:
    """Return the requested gap: of the option, or of the whole solve."""
    return options.gap if options.gap is not None else context.gap


def nearly(value: Number, makespan: Number) -> bool:
    """Whether two times differ only by float rounding; integers must be equal."""
    if isinstance(value, int) and isinstance(makespan, int):
        return value == makespan
    return math.isclose(value, makespan, rel_tol=1e-12)
