"""Lower bounds for schedules that run given tasks once in a given order, with any offloading.

The fluid relaxation is after Beaumont, Eyraud-Dubois, Shilova 2020, "Optimal GPU-CPU offloading strategies for deep
neural network training". Slot t lasts from the end of run t-1 to the end of run t, tau_t; the sum of the slots is
minimised. Of each value, S_t bytes have left by the end of slot t, R_t still have to return after it, and
a_t <= min(S_t, R_t) are away during run t:

- tau_t is at least the time of run t, and that of the bytes that each channel moves in slot t;
- the values that run t reads are back before it starts: tau_t less the run's time is at least the time of their last
  bytes;
- the bytes of run t and of the values that are not away fit into the memory.

Latencies, transfers of whole values and bytes in flight only make schedules longer. If several links lead out of the
processor's memory (or in), they count as one with their total bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from remat.plugin import Context, IntArray, Link, Number
from remat_algorithms.kit.integral_bounds import raised
from remat_algorithms.kit.programs.program import INFINITY, ProgramBuilder
from remat_algorithms.kit.programs.solver_status import Outcome
from remat_algorithms.kit.programs.solvers import LINEAR, solve_program
from remat_algorithms.offload.swaps.gap_choice_facts import Gaps
from remat_algorithms.offload.swaps.gap_selection import Choice
from remat_algorithms.offload.swaps.routes import device_of

MOST_COLUMNS = 30_000
"""Largest program that is solved (some seconds); above it, only the bound by volume is computed."""

_SAFETY = 1e-6
"""Relative error that is allowed for a solver's optimum."""


def volume_bound(choice: Gaps) -> Number:
    """Return a bound from the fullest runs: bytes that must be away there leave before and return after. O(runs)."""
    times = choice.start_times
    total: Number = times[-1].item()
    if choice.fits or not len(choice.profile):
        return total
    assert choice.budget is not None
    away = np.maximum(choice.profile - choice.budget, 0)
    out, back = _links(choice)
    sent = np.maximum(away - _free_to_leave(choice), 0)
    before = np.maximum(times[:-1], sent * _time_per_byte(out))
    after = np.maximum(total - times[1:], away * _time_per_byte(back))
    longest = float((before + (times[1:] - times[:-1]) + after).max())
    return max(total, raised(choice.problem, longest * (1 - 1e-12)))


def _free_to_leave(choice: Gaps) -> IntArray:
    """Return for each run the bytes across it that are elsewhere anyway, and need not be sent."""
    change = np.zeros(len(choice.profile) + 1, dtype=np.int64)
    gaps = choice.candidates[choice.goes_anyhow[choice.candidates]]
    np.add.at(change, choice.after[gaps] + 1, choice.size[gaps])
    np.subtract.at(change, choice.before[gaps], choice.size[gaps])
    return np.cumsum(change[:-1])


def fluid_bound(choice: Choice, context: Context, *, seconds: float | None = None) -> Number:
    """Return the optimum of the fluid relaxation.

    The bound by volume replaces it if the program has more than `MOST_COLUMNS`, or if the time runs out. The program
    has three columns for each run that each gap spans.
    """
    bound = volume_bound(choice)
    if choice.fits or 3 * int((choice.before - choice.after).sum()) > MOST_COLUMNS:
        return bound
    relaxation = _Relaxation(choice)
    answer = solve_program(relaxation.builder.build(), LINEAR, context, seconds=seconds)
    if answer.outcome is not Outcome.OPTIMAL:
        return bound
    return max(bound, raised(choice.problem, answer.bound * relaxation.time_unit * (1 - _SAFETY)))


def _links(choice: Gaps) -> tuple[list[Link], list[Link]]:
    """Return the links out of the processor's memory, and those into it."""
    machine = choice.problem.machine
    device = device_of(machine)
    return [link for link in machine.links if link.source == device], [
        link for link in machine.links if link.target == device
    ]


def _time_per_byte(links: Sequence[Link]) -> float:
    """Return the time of a byte if all the links share the work; infinite without a link."""
    rate = sum(math.inf if link.bandwidth is None else float(link.bandwidth) for link in links)
    return 1 / rate if rate else math.inf


Entries = list[tuple[int, float]]


class _Relaxation:
    """The linear program. Times are shares of the runs' total, bytes of the largest profile."""

    def __init__(self, choice: Choice) -> None:
        self.choice, self.builder = choice, ProgramBuilder()
        order = choice.order
        count = len(order.tasks)
        self.time_unit = float(order.start_times[-1]) or 1.0
        self.byte_unit = float(choice.profile.max()) or 1.0
        self.times = (order.graph.time[order.tasks] / self.time_unit).tolist()
        self.slots = [self.builder.add_column(cost=1, lower=time, upper=INFINITY) for time in self.times]
        # For each slot: times of values that leave and return, values that return for its run, and offloaded values.
        self.leaving: list[Entries] = [[] for _ in range(count)]
        self.coming: list[Entries] = [[] for _ in range(count)]
        self.urgent: list[Entries] = [[] for _ in range(count)]
        self.away: list[Entries] = [[] for _ in range(count)]
        out, back = _links(choice)
        scale = self.byte_unit / self.time_unit
        self.out_time, self.back_time = _time_per_byte(out) * scale, _time_per_byte(back) * scale
        for index in choice.candidates.tolist():
            self._add_gap(index)
        self._add_slots(out, back)

    def _add_gap(self, index: int) -> None:
        choice, builder = self.choice, self.builder
        gap = choice.order.gaps[index]
        size = float(choice.size[index]) / self.byte_unit
        written = choice.order.gaps[choice.order.gaps_of_copy[gap.copy][0]].after
        sent = missing = -1
        # Values that are elsewhere anyway send nothing; other traffic on the links is left out.
        anyhow = bool(choice.goes_anyhow[index])
        for slot in range((gap.after if anyhow else written) + 1, gap.before):
            if not anyhow:
                sent = self._add_sent(slot, size, sent)
                if slot <= gap.after:
                    continue
            before, missing = missing, builder.add_column(upper=size)  # still to return after this slot
            if before >= 0:
                self.coming[slot].extend([(before, self.back_time), (missing, -self.back_time)])
                builder.add_row([(before, 1.0), (missing, -1.0)], lower=0)
            away = builder.add_column(upper=size)
            if not anyhow:
                builder.add_row([(sent, 1.0), (away, -1.0)], lower=0)
            builder.add_row([(missing, 1.0), (away, -1.0)], lower=0)
            self.away[slot].append((away, 1.0))
        self.coming[gap.before].append((missing, self.back_time))
        self.urgent[gap.before].append((missing, self.back_time))

    def _add_sent(self, slot: int, size: float, before: int) -> int:
        """Add the bytes that have left by the end of a slot, after those by the end of the one before (-1: none)."""
        sent = self.builder.add_column(upper=size)
        self.leaving[slot].append((sent, self.out_time))
        if before >= 0:
            self.leaving[slot].append((before, -self.out_time))
            self.builder.add_row([(sent, 1.0), (before, -1.0)], lower=0)
        return sent

    def _add_slots(self, out: Sequence[Link], back: Sequence[Link]) -> None:
        choice, machine = self.choice, self.choice.problem.machine
        processor = machine.processors[0].name
        single = len(out) == 1 and len(back) == 1
        shared = single and out[0].channel == back[0].channel
        waits = (
            bool(out) and all(link.channel == processor for link in out),
            all(link.channel == processor for link in back),
        )
        others = [memory.capacity for index, memory in enumerate(machine.memories) if index != device_of(machine)]
        elsewhere = None if None in others else sum(capacity or 0 for capacity in others)
        assert choice.budget is not None
        for slot, column in enumerate(self.slots):
            time = self.times[slot]
            loads = [self.leaving[slot] + self.coming[slot]] if shared else [self.leaving[slot], self.coming[slot]]
            for load, synchronous in zip(loads, waits, strict=False):
                if load:
                    self.builder.add_row([(column, 1.0), *_negative(load)], lower=time if synchronous else 0)
            if self.urgent[slot]:
                self.builder.add_row([(column, 1.0), *_negative(self.urgent[slot])], lower=time)
            need = (int(choice.profile[slot]) - choice.budget) / self.byte_unit
            if need > 0:
                self.builder.add_row(self.away[slot], lower=need)
            if elsewhere is not None and self.away[slot]:
                self.builder.add_row(self.away[slot], upper=elsewhere / self.byte_unit)


def _negative(entries: Entries) -> Entries:
    return [(column, -value) for column, value in entries]
