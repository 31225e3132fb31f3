"""The constraint program of Moccasin (Bartan et al. 2023): retention intervals of the copies of values."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from math import gcd
from typing import Any

from remat.plugin import Number
from remat_algorithms.dag.programs.formulation import TooLarge
from remat_algorithms.dag.programs.frontier import Frontier
from remat_algorithms.dag.programs.search import Runs, Search

FINEST = 2**48
"""Maximum number of units of an exact capacity; CP-SAT multiplies capacities by the length of the horizon."""

DEAREST = 2**52
"""The same for total times; CP-SAT returns its bounds in float64."""


class Intervals:
    """The model, and the meaning of its variables.

    Parameters
    ----------
    front : Frontier
    budget : int
        Bytes.
    copies : int
        Maximum number of runs of one task.
    most_cost : float
        The time of a known schedule beyond the forced runs; costlier schedules are excluded.
    stopped : callable
        Checked continually: a large program takes seconds.

    Raises
    ------
    TooLarge
        If `stopped` returns true.

    Attributes
    ----------
    infeasible : bool
        Whether the inputs of some forced run cannot be present.
    exact : bool
        Whether neither sizes nor times were rounded (down).

    Notes
    -----
    A slot is a pair (stage, position) at which a task may run, numbered in the order of execution. Each task has up to
    C runs. The first run of a needed task is in its own stage; the others are optional, at any of the task's slots,
    ascending. Each run starts a copy of each output, retained over [start, end], and

        for each run that reads a value: some copy has start < slot of the run <= end,
        at each slot: sum of the sizes of the retained copies + workspace <= B      (`cumulative`).

    A run in place may take over the bytes of a copy, which then ends at the slot before it. The bytes of these copies
    beyond the run's own outputs are added at its slot, so that the larger of both counts.
    """

    def __init__(
        self,
        front: Frontier,
        budget: int,
        copies: int,
        most_cost: float,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.cp: Any = import_module("ortools.sat.python.cp_model")
        self.front, self.most_cost, self.stopped = front, most_cost, stopped
        self.model = self.cp.CpModel()
        self.infeasible = False
        self.room = budget - front.fixed
        self.slots = [
            (stage, position)
            for stage in range(front.stages)
            for position in range(front.end[stage] + 1)
            if front.may_run(stage, position)
        ]
        self.slot = {key: index for index, key in enumerate(self.slots)}
        self.slots_of: list[list[int]] = [[] for _ in front.tasks]
        for index, (_, position) in enumerate(self.slots):
            self.slots_of[position].append(index)
        self._scale()
        self._add_runs(copies)
        self._add_copies()
        self._add_reads()
        self._add_memory()

    # --- units --------------------------------------------------------------------------------------------------------

    def _scale(self) -> None:
        front = self.front
        unit = 0
        for size in (*front.size, *front.written, *front.workspace):
            unit = gcd(unit, size)
        exact_unit = max(1, unit)
        self.memory_unit = max(exact_unit, self.room // FINEST)
        self.exact = self.memory_unit == exact_unit
        total = sum(front.time)
        self.time_unit: Number
        if isinstance(total, int):
            common = 0
            for time in front.time:
                common = gcd(common, int(time))
            common = max(1, common)
            self.time_unit = max(common, total // DEAREST)
            self.exact = self.exact and self.time_unit == common
        else:
            self.time_unit = total / DEAREST if total else 1.0

    def units(self, time: Number) -> int:
        """Return a time in units, rounded down."""
        return int(time // self.time_unit)

    def raise_bound(self, search: Search) -> Callable[[float], None]:
        """Return the function that passes a bound on the objective to the search."""

        def take(objective: float) -> None:
            extra = max(0, math.ceil(objective - 1e-6)) * self.time_unit
            search.take_bound(self.front.base_time + extra)

        return take

    def _look_at_the_clock(self) -> None:
        if self.stopped():
            raise TooLarge("the time was over while the constraint program was built")

    # --- model --------------------------------------------------------------------------------------------------------

    def _add_runs(self, copies: int) -> None:
        """Add slots and presence of the runs of each position."""
        front, model = self.front, self.model
        self.runs: list[list[tuple[Any, Any]]] = []  # for each position: (slot, present)
        cost = []
        for position in range(len(front.tasks)):
            self._look_at_the_clock()
            own = self.slots_of[position]
            runs: list[tuple[Any, Any]] = []
            later = own
            if front.forced[position]:
                fixed = self.slot[front.first[position], position]
                runs.append((model.new_constant(fixed), True))
                later = [slot for slot in own if slot > fixed]
            count = 1 if front.single[position] else min(copies, len(own))
            if self.units(front.again[position]) * self.time_unit > self.most_cost:
                count = len(runs)
            while len(runs) < count and later:
                slot = model.new_int_var_from_domain(self.cp.Domain.from_values(later), "")
                present = model.new_bool_var("")
                model.add(slot == later[0]).only_enforce_if(~present)
                if runs and runs[-1][1] is not True:
                    before, there = runs[-1]
                    model.add_implication(present, there)
                    model.add(slot > before).only_enforce_if(present)
                cost.append(self.units(front.again[position]) * present)
                runs.append((slot, present))
            self.runs.append(runs)
        if cost:
            model.minimize(sum(cost))
            if math.isfinite(self.most_cost):
                model.add(sum(cost) <= math.ceil(self.most_cost / self.time_unit))

    def _add_copies(self) -> None:
        """Add the retention of each copy: (start or None for an input's, end or None for empty values, present)."""
        front, model = self.front, self.model
        horizon = len(self.slots)
        self.copies: dict[int, list[tuple[Any, Any, Any]]] = {}
        self.demands: list[tuple[Any, int]] = []
        for value, size in enumerate(front.size):
            self._look_at_the_clock()
            if not (front.makers[value] or front.users[value] or value in front.outputs):
                continue
            starts: list[tuple[Any, Any]] = [(None, True)] if value in front.inputs else []
            starts += [run for position in front.makers[value] for run in self.runs[position]]
            rows: list[tuple[Any, Any, Any]] = []
            for start, present in starts:
                end = None
                amount = size // self.memory_unit
                if amount:
                    end = model.new_int_var(-1, horizon, "")
                    begin = 0 if start is None else start
                    length = model.new_int_var(0, horizon + 1, "")
                    if start is not None:
                        model.add(end >= start)
                    interval = model.new_optional_interval_var(begin, length, end + 1, present, "")
                    self.demands.append((interval, amount))
                rows.append((start, end, present))
            self.copies[value] = rows
            if value in front.outputs:
                self._read(value, horizon, True, None)

    def _read(self, value: int, slot: Any, reader: Any, taken: Any) -> None:
        """Require a retained copy of a value at a slot, if the reader is present."""
        model = self.model
        picks = []
        for start, end, present in self.copies.get(value, ()):
            pick = model.new_bool_var("")
            if present is not True:
                model.add_implication(pick, present)
            if start is not None:
                model.add(start < slot).only_enforce_if(pick)
            if end is not None:
                model.add(slot <= (end if taken is None else end + taken)).only_enforce_if(pick)
            picks.append(pick)
        if reader is True:
            if not picks:
                self.infeasible = True
            model.add_bool_or(picks)
        else:
            model.add_bool_or([*picks, ~reader])

    def _add_reads(self) -> None:
        front, model = self.front, self.model
        horizon = len(self.slots)
        for position, runs in enumerate(self.runs):
            self._look_at_the_clock()
            reads, writes = front.reads[position], set(front.writes[position])
            dead = front.written[position] - sum(front.size[value] for value in writes)
            for slot, present in runs:
                taken: list[Any] = []
                for value in reads:
                    own = None
                    amount = front.size[value] // self.memory_unit
                    if front.in_place[position] and amount and value not in writes:
                        own = model.new_bool_var("")
                        taken.append(amount * own)
                    self._read(value, slot, present, own)
                least = (dead + front.workspace[position]) // self.memory_unit
                if taken:
                    extra = model.new_int_var(0, self.room // self.memory_unit, "")
                    written = -(-front.written[position] // self.memory_unit)
                    base = front.workspace[position] // self.memory_unit + dead // self.memory_unit
                    model.add(extra >= base)
                    model.add(extra >= sum(taken) - written + base)
                    self._instant(slot, present, extra)
                elif least:
                    self._instant(slot, present, least)
        self.horizon = horizon

    def _instant(self, slot: Any, present: Any, amount: Any) -> None:
        interval = self.model.new_optional_fixed_size_interval_var(slot, 1, present, "")
        self.demands.append((interval, amount))

    def _add_memory(self) -> None:
        capacity = self.room // self.memory_unit
        if capacity < 0:
            self.infeasible = True
        elif self.demands:
            self.model.add_cumulative(
                [interval for interval, _ in self.demands], [amount for _, amount in self.demands], capacity
            )

    # --- solutions ----------------------------------------------------------------------------------------------------

    def chosen(self, value: Callable[[Any], int]) -> Runs:
        """Return the runs (stage, position) of a solution."""
        return [
            self.slots[value(slot)] for runs in self.runs for slot, present in runs if present is True or value(present)
        ]

    def hint(self, chosen: Runs) -> None:
        """Add a schedule as a hint; the solver completes it."""
        per_task: dict[int, list[int]] = {}
        for stage, position in chosen:
            per_task.setdefault(position, []).append(self.slot[stage, position])
        for position, runs in enumerate(self.runs):
            fixed = [self.slot[self.front.first[position], position]] if self.front.forced[position] else []
            slots = sorted(set(per_task.get(position, ())) - set(fixed))
            optional = [run for run in runs if run[1] is not True]
            for index, (slot, present) in enumerate(optional):
                self.model.add_hint(present, index < len(slots))
                if index < len(slots):
                    self.model.add_hint(slot, slots[index])
