"""`madpipe`: cuts for streams, with several stages on one device (after Beaumont, Eyraud-Dubois and Shilova 2022).

**Cuts.** For a period T, stages are built from the last layer to the first. A *normal* device holds one stage. One
*special* device may hold any number. Let V be the time from the first forward of the stages built up to now to the end
of their backward, as in 1F1B* (see `one_f_one_b_star`). A stage with work U in front of them keeps

    g = ceil(V' / T),    V' = V (+) transfers (+) U

micro-batches, where V (+) x is V + x, or T ceil(V / T) + x if x begins a group.

The stage fits a normal device if U <= T and if the memory holds its parameters, their versions for g, and g
activations. On the special device, the works sum to at most T. The bytes, with g - 1 activations per stage, sum to at
most its memory, as in the paper. The device may hold more than that, but its stages rarely reach their maxima at the
same time.

A label (V, work and bytes of the special device) is kept per first layer, last normal device, and whether the last
stage is special. A label is discarded if another one is at most as large in all three. The paper uses these figures as
indices, rounded to a grid. Without a special device, a label is only V. This is exact: if the smallest V does not fit,
no V fits.

**Pattern.** Stages on distinct devices run as 1F1B*, in the smallest period that fits. Otherwise a constraint program
for each trial period (`period_program`) replaces the paper's integer program.

T is bisected. Devices are used in order. Each choice of the special device is tried, except among identical devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pydantic import Field

from remat.plugin import Context, Number, Options, Pattern, Problem, Proposal, Termination
from remat_algorithms.parallel.pipeline.device_orders import on_device_orders
from remat_algorithms.parallel.pipeline.layer_blocks import Blocks, blocks_of
from remat_algorithms.parallel.pipeline.one_f_one_b_star import Row, Star, more_gap, whole_periods
from remat_algorithms.parallel.pipeline.one_f_one_b_star import least_period as least_star
from remat_algorithms.parallel.pipeline.period_program import Asked
from remat_algorithms.parallel.pipeline.period_search import (
    least_period,
    star_pattern,
    steps_below,
    steps_from,
    unit_of,
)
from remat_algorithms.parallel.pipeline.periodic_pipelines import CHANGING, most_in_flight, stream_of, versions_of

HALVINGS = 20
"""Number of bisection steps for the period of the cuts, if times are not integers."""

ROUNDS = 4
"""Maximum number of retries with less memory per device, when transient values do not fit along with the kept ones."""


class MadPipeOptions(Options):
    """Options of `madpipe`."""

    special: bool = Field(default=True, description="let one device hold several stages")
    blocks: int = Field(
        default=60,
        ge=1,
        le=1000,
        description="maximum number of blocks into which layers are merged; more are more exact and slower",
    )
    labels: int = Field(
        default=16,
        ge=1,
        le=10_000,
        description="maximum number of partial solutions to keep for each cut of the layers",
    )
    work: float = Field(
        default=0.2, gt=0, le=1e6, description="work limit of each program, in CP-SAT's deterministic units"
    )


@dataclass(frozen=True)
class Allocation:
    """Stages, as cuts of the blocks, and their devices."""

    cuts: tuple[int, ...]
    homes: tuple[int, ...]

    @property
    def is_contiguous(self) -> bool:
        """Whether every device holds at most one stage."""
        return len(set(self.homes)) == len(self.homes)


@dataclass(frozen=True, slots=True)
class _Label:
    """Label of a partial solution: the stages from a layer to the last.

    `gap` is V. `work` and `size` belong to the special device. `normal` is the first normal device in use, and `home`
    the device of the first stage.
    """

    gap: Number
    work: Number
    size: int
    first: int
    normal: int
    home: int
    before: _Label | None

    def is_as_good(self, other: _Label) -> bool:
        return self.gap <= other.gap and self.work <= other.work and self.size <= other.size


class Cutting:
    """Dynamic program over cuts.

    Parameters
    ----------
    blocks : Blocks
    special : int or None
        Device that may hold several stages.
    labels : int
        Maximum number of labels of one place.
    less : sequence of int
        Reduction of each device's memory.
    """

    def __init__(self, blocks: Blocks, special: int | None, labels: int, less: tuple[int, ...]) -> None:
        self.blocks, self.special, self.labels, self.less = blocks, special, labels, less
        self.normal = [device for device in range(blocks.devices) if device != special]
        self.stage = cache(self._stage)

    def _stage(self, first: int, end: int) -> Blocks:
        return self.blocks.joined((first, end))

    def allocation(self, period: Number) -> Allocation | None:
        """Return the stages with the smallest V for a period; None without any."""
        count = len(self.blocks.parts)
        places: list[dict[tuple[int, bool], list[_Label]]] = [{} for _ in range(count + 1)]
        places[count][len(self.normal), False] = [_Label(0, 0, 0, count, len(self.normal), -1, None)]
        for end in range(count, 0, -1):
            for labels in places[end].values():
                for label in self._thinned(labels):
                    for longer in self._longer(label, period):
                        key = (longer.normal, longer.home == self.special)
                        _keep(places[longer.first].setdefault(key, []), longer)
        found = [one for labels in places[0].values() for one in labels]
        if not found:
            return None
        at: _Label | None = min(found, key=lambda one: (one.gap, one.work, one.size))
        cuts, homes = [], []
        while at is not None:
            cuts.append(at.first)
            homes.append(at.home)
            at = at.before
        return Allocation(tuple(cuts), tuple(homes[:-1]))

    def _thinned(self, labels: list[_Label]) -> list[_Label]:
        """Return at most `labels` of the labels, evenly spread."""
        if len(labels) <= self.labels:
            return labels
        ordered = sorted(labels, key=lambda label: (label.gap, label.work, label.size))
        last = len(ordered) - 1
        return [ordered[k * last // max(1, self.labels - 1)] for k in range(self.labels)]

    def _longer(self, label: _Label, period: Number) -> Iterator[_Label]:
        """Yield the labels with one more stage in front."""
        for home, normal in self._homes(label):
            begun = self._sent(label, home, period)
            if begun is None:
                continue
            for first in range(label.first - 1, -1, -1):
                stage = self.stage(first, label.first)
                taken = stage.time(0, home)
                if taken is None:
                    break
                load = sum(taken)
                work = label.work + load if home == self.special else label.work
                if load > period or work > period:
                    break
                gap = begun + more_gap(begun, period, load) + load
                size = self._size(label, stage, home, max(1, whole_periods(gap, period)))
                if size is not None:
                    yield _Label(gap, work, size, first, normal, home, label)

    def _homes(self, label: _Label) -> Iterator[tuple[int, int]]:
        """Yield the possible devices of a stage in front, each with the first normal device then in use."""
        for normal in range(label.normal - 1, -1, -1):
            yield self.normal[normal], normal
            if self.blocks.alike:
                break
        if self.special is not None and label.home != self.special:
            yield self.special, label.normal

    def _sent(self, label: _Label, home: int, period: Number) -> Number | None:
        """Return V with the transfers to the next stage; None without links, or if transfers exceed a period."""
        if label.home < 0:
            return 0
        hop = self.blocks.hop(label.first - 1, home, label.home)
        if hop is None or hop.load > period:
            return None
        gap = label.gap + hop.later[0]
        if hop.is_shared:
            gap += more_gap(gap, period, hop.load)
        return gap + hop.forward + hop.backward + hop.later[1]

    def _size(self, label: _Label, stage: Blocks, home: int, kept: int) -> int | None:
        """Return the special device's bytes with another stage that keeps `kept` micro-batches; None if it is over."""
        instance, limit = self.blocks.instance, self.blocks.capacity[home]
        if kept > most_in_flight(instance, kept):
            return None
        size = stage.fixed[0] + (versions_of(instance.weights, kept) - 1) * stage.parameters[0]
        before = label.size if home == self.special else 0
        if limit is not None and before + size + kept * stage.held[0] > limit - self.less[home]:
            return None
        return label.size if home != self.special else before + size + (kept - 1) * stage.held[0]


def _keep(labels: list[_Label], label: _Label) -> None:
    """Add a label unless another dominates it; remove the labels that it dominates."""
    if not any(other.is_as_good(label) for other in labels):
        labels[:] = [other for other in labels if not label.is_as_good(other)]
        labels.append(label)


class _Search:
    """Best pattern found, and the search for better ones."""

    def __init__(self, problem: Problem, options: MadPipeOptions, context: Context) -> None:
        self.instance = stream_of(problem, "madpipe", CHANGING)
        self.blocks = blocks_of(problem, self.instance, options.blocks)
        self.options, self.context = options, context
        self.best = star_pattern(problem, context)
        self.unit = unit_of(self.blocks)
        self.seen: set[Allocation] = set()

    def run(self, special: int | None) -> Number | None:
        """Bisect the period of the cuts; return the smallest feasible one, or None if a device needed less memory."""
        less = (0,) * self.blocks.devices
        exact: Number | None = None
        for number in range(ROUNDS):
            allocation, period = self._bisected(special, less)
            exact = exact if number else period
            if allocation is None or self.context.stopped:
                break
            over = self._consider(allocation, period or 0, less)
            if not any(over):
                break
            exact = None
            less = tuple(one + more for one, more in zip(less, over, strict=True))
        return exact

    def _bisected(self, special: int | None, less: tuple[int, ...]) -> tuple[Allocation | None, Number | None]:
        """Return the cuts of the smallest feasible period; with a special device, also try intermediate cuts."""
        cutting = Cutting(self.blocks, special, self.options.labels, less)
        low: Number = self.blocks.least_period or 1
        high: Number = self.blocks.time_of_one
        found, best = cutting.allocation(low), low
        if found is not None:
            return found, low
        found, best = cutting.allocation(high), high
        for _ in range(200 if self.blocks.whole else HALVINGS):
            if found is None or self.context.stopped or (self.blocks.whole and high - low <= 1):
                break
            middle: Number = (low + high) // 2 if self.blocks.whole else (low + high) / 2
            tried = cutting.allocation(middle)
            if tried is None:
                low = middle
            else:
                found, best, high = tried, middle, middle
                if special is not None and not tried.is_contiguous:
                    self._consider(tried, middle, less)
        return found, best

    def _consider(self, allocation: Allocation, period: Number, less: tuple[int, ...]) -> list[int]:
        """Find the smallest period of an allocation; return the bytes by which 1F1B* exceeds each device's capacity."""
        if allocation.is_contiguous:
            return self._as_star(allocation, less)
        if allocation in self.seen or (self.best is not None and period >= self.best.period):
            return []
        self.seen.add(allocation)
        stages = self.blocks.joined(allocation.cuts)
        asked = Asked(
            stages,
            tuple((home,) for home in allocation.homes),
            self.unit,
            work=self.options.work,
            seed=self.context.seed,
        )
        loads = [0] * stages.devices
        for stage, home in enumerate(allocation.homes):
            loads[home] += sum(map(asked.steps, stages.time(stage, home) or ()))
        high = steps_from(stages.time_of_one, self.unit)
        if self.best is not None:
            high = min(high, steps_below(self.best.period, self.unit))
        found = least_period(asked, max(1, *loads), high, lambda: self.context.stopped)
        self._better(found.pattern)
        return []

    def _as_star(self, allocation: Allocation, less: tuple[int, ...]) -> list[int]:
        stages, homes = self.blocks.joined(allocation.cuts), allocation.homes
        each = [stages.time(stage, home) or (0, 0, 0) for stage, home in enumerate(homes)]
        hops = [stages.hop(stage, *homes[stage : stage + 2]) for stage in range(len(homes) - 1)]
        row = Row(
            tuple(time[0] for time in each),
            tuple(time[1] + time[2] for time in each),
            tuple(hop for hop in hops if hop is not None),
        )

        def fits(found: Star) -> bool:
            for stage, (home, kept) in enumerate(zip(homes, found.kept, strict=True)):
                limit, versions = stages.capacity[home], versions_of(self.instance.weights, kept)
                size = stages.fixed[stage] + (versions - 1) * stages.parameters[stage] + kept * stages.held[stage]
                if limit is not None and size > limit - less[home]:
                    return False
                if kept > most_in_flight(self.instance, kept):
                    return False
            return True

        found = least_star(row, fits)
        if found is None:
            return []
        pattern = stages.pattern(homes, found.period, found)
        over = stages.excess(pattern, found.kept)
        if not any(over):
            self._better(pattern)
        return over

    def _better(self, pattern: Pattern | None) -> None:
        if pattern is not None and (self.best is None or pattern.period < self.best.period):
            self.best = pattern


def solve(problem: Problem, options: MadPipeOptions, context: Context) -> Proposal:
    """Find cuts with one stage per device, then with a special device, and keep the pattern with the smallest period.

    Raises
    ------
    OptionError
        If parameters do not change during the stream, or links wait for others.
    """
    return on_device_orders(problem, context, lambda problem, context: _solved(problem, options, context))


def _solved(problem: Problem, options: MadPipeOptions, context: Context) -> Proposal:
    search = _Search(problem, options, context)
    least = search.run(None)
    blocks = search.blocks
    best = search.best
    merged = "" if len(blocks.parts) == search.instance.length else f"with {len(blocks.parts)} blocks of layers, "
    note = f"{merged}no {'whole ' if blocks.whole else ''}period is below {blocks.least_period}"
    if blocks.whole and best is not None and least is not None and not merged:
        note = f"of all cuts with one stage a device, in their order, 1F1B* has no whole period below {least}; {note}"
    if options.special:
        for device in range(blocks.devices - 1, -1, -1):
            if not context.stopped and (device == blocks.devices - 1 or not blocks.alike):
                search.run(device)
    return Proposal(
        pattern=search.best,
        notes=() if search.best is None else (note,),
        termination=context.termination if context.stopped else Termination.COMPLETED,
    )
