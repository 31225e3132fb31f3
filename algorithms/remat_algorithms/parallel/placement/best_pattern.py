"""Incumbent pattern: placements are scheduled and measured, and the fastest that fits is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from remat.placement import place_stream
from remat.placement.streams import PlacedStream
from remat.plugin import ALL_SCHEDULES, Bound, Context, Number, Problem, Proposal, Termination
from remat_algorithms.parallel.placement.model import Model

CONTIGUOUS = "contiguous placements"
"""Each device runs a difference of down-sets, and no value flows backwards in some order of the devices."""

ONE_PLACE = "placements of each task on one processor"

SAME = 1e-11
"""Relative difference up to which two times count as equal, to allow for rounding of sums."""

ROUNDS = 6
"""Maximum number of retries with less memory per device, when transient values do not fit along with the parameters."""


@dataclass
class Best:
    """Best pattern found.

    Attributes
    ----------
    problem, model, context
    placed : PlacedStream or None
        A pattern that fits.
    homes : list of list of int, or None
        Processors of its units, for each sample of a period.
    """

    problem: Problem
    model: Model
    context: Context
    placed: PlacedStream | None = None
    homes: list[list[int]] | None = None
    seen: dict[tuple[tuple[int, ...], ...], PlacedStream] = field(
        default_factory=dict[tuple[tuple[int, ...], ...], PlacedStream]
    )

    @property
    def time(self) -> Number | None:
        """Time per sample."""
        return None if self.placed is None else time_of(self.placed)

    def consider(self, placed: Sequence[int]) -> list[int]:
        """Schedule units on processors; return the missing bytes of each memory at the last period."""
        return self.consider_all([placed])

    def consider_all(self, homes: Sequence[Sequence[int]]) -> list[int]:
        """Schedule units on processors, for each sample of a period."""
        key = tuple(tuple(own) for own in homes)
        model = self.model
        found = self.seen.get(key)
        if found is None:
            found = place_stream(model.graph, model.machine, [model.homes(own) for own in homes])
            self.seen[key] = found
        time = time_of(found)
        known = self.time
        if found.fits and (known is None or time < known):
            self.placed, self.homes = found, [list(own) for own in homes]
            self.context.report(pattern=found.pattern, makespan=time)
        capacities = [memory.capacity for memory in model.machine.memories]
        return [0 if c is None else max(0, peak - c) for peak, c in zip(found.peaks, capacities, strict=True)]

    def proposal(
        self,
        bounds: Sequence[Bound] = (),
        *,
        optimal_within: str | None = None,
        infeasible_within: str | None = None,
        notes: Sequence[str] = (),
        termination: Termination | None = None,
    ) -> Proposal:
        """Return the proposal for the best pattern."""
        context, time = self.context, self.time
        bounds = [sharpened(bound, time) for bound in bounds]
        ended = context.termination if context.stopped else (termination or Termination.COMPLETED)
        if self.placed is None:
            return Proposal(
                bounds=tuple(bounds), infeasible_within=infeasible_within, notes=tuple(notes), termination=ended
            )
        return Proposal(
            pattern=self.placed.pattern,
            makespan=self.time,
            bounds=tuple(bounds),
            optimal_within=optimal_within,
            notes=tuple(notes),
            termination=ended,
        )


def time_of(placed: PlacedStream) -> Number:
    """Return the time per sample of a pattern."""
    period, samples = placed.pattern.period, placed.pattern.samples
    if isinstance(period, int) and period % samples == 0:
        return period // samples
    return period / samples


def sharpened(bound: Bound, time: Number | None) -> Bound:
    """Return a bound that equals a time except for rounding as exactly that time.

    Where rounding reaches whole times of this size, the bound stays: a smaller whole time may be possible.
    """
    if isinstance(time, int) and SAME * time >= 1:
        return bound
    if time is not None and abs(time - bound.value) <= SAME * time:
        return replace(bound, value=time)
    return bound


def over_all(value: float, source: str, *, whole: bool = False) -> Bound:
    """Return a bound over all schedules."""
    return Bound(int(value) if whole else value, ALL_SCHEDULES, source)
