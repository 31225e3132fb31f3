"""Constraint program for one period: the device of each block of layers, and the times of its operations.

After Beaumont et al. 2021. The operations of a micro-batch form one path: forwards to the last block and backwards to
the first, with transfers between them. Given the offsets of all operations modulo the period, each should start at its
first offset after the end of its predecessor. This minimises the time for which every block keeps a micro-batch, for
all blocks at once, because its backward follows its forward on the path. Every wait is therefore shorter than a period.

A block holds an activation from the start of its forward to the end of its backward. A device therefore reaches its
peak at the start of a forward. At that time, each block holds the micro-batches that have started but not ended. The
variables are offsets and shifts, and the device of each block. For each pair of blocks on one device, a variable also
states which operations of one precede the start of the other's forward within a period.

For blocks of a single layer, the program counts only bytes that no pattern can avoid. It omits transient values,
workspaces and values saved for weight gradients. If it has no solution, no pattern has this period.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from remat.plugin import Number
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.solver_status import Outcome, watched
from remat_algorithms.parallel.pipeline.device_links import occupied_between
from remat_algorithms.parallel.pipeline.layer_blocks import Blocks
from remat_algorithms.parallel.pipeline.one_f_one_b_star import Hop, Times
from remat_algorithms.parallel.pipeline.periodic_pipelines import most_in_flight

REACH = 2**60
"""More steps than any instant of a program: its numbers have 64 bits."""


@dataclass(frozen=True)
class Found:
    """A solution: the device of each block, its times in steps, and the micro-batches that it keeps."""

    homes: tuple[int, ...]
    times: Times
    in_flight: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """Result of a program; without a solution, `refuted` states whether none exists."""

    found: Found | None
    refuted: bool


@dataclass(frozen=True)
class Asked:
    """Input of a program.

    Attributes
    ----------
    blocks : Blocks
    homes : tuple of tuple of int
        Allowed devices of each block.
    unit : int or float
        Times are rounded up to multiples of it.
    contiguous : bool
        Whether the blocks of a device are consecutive.
    less : tuple of int
        Reduction of each device's memory.
    work : float
        Limit in CP-SAT's own units.
    seed : int
    """

    blocks: Blocks
    homes: tuple[tuple[int, ...], ...]
    unit: Number = 1
    contiguous: bool = False
    less: tuple[int, ...] = ()
    work: float = 1.0
    seed: int = 0

    def steps(self, time: Number) -> int:
        """Return a time in steps, rounded up."""
        if isinstance(time, int) and isinstance(self.unit, int):
            return -(-time // self.unit)
        return math.ceil(time / self.unit * (1 - 1e-12))


@dataclass(frozen=True)
class _When:
    """An instant: its offset in the period, the number of the period, and the resulting time."""

    offset: Any
    shift: Any
    time: Any


@dataclass
class _Busy:
    """Operations of a device or a channel: start, positive duration (or none), and presence."""

    lasting: list[tuple[_When, int, Any]] = field(default_factory=list)
    instant: list[tuple[_When, Any]] = field(default_factory=list)


def solve(asked: Asked, period: int, stop: Callable[[], bool]) -> Answer:
    """Look for a pattern of a period, given in steps."""
    program = _Program(asked, period)
    if not program.possible:
        return Answer(None, True)
    solutions: list[Found] = []
    job = CpSatJob(
        program.model, threads=1, seed=asked.seed, seconds=None, chosen=program.chosen, found=solutions.append
    )
    job.solver.parameters.max_deterministic_time = asked.work
    answer = watched(job, stop)
    return Answer(solutions[-1] if solutions else None, answer.outcome is Outcome.INFEASIBLE)


def periods_of(blocks: Blocks) -> int:
    """Return the maximum number of periods between the first and the last operation of a micro-batch.

    Each block has four instants on the path, each at most one period after the previous one, plus their durations.
    """
    return 10 * len(blocks.parts) + 2


def longest_period(blocks: Blocks) -> int:
    """Return the longest period, in steps, whose program has numbers of 64 bits."""
    return REACH // (periods_of(blocks) + 2)


LARGEST_SUM = 2**62
"""Largest sum of products that the solver accepts."""


class _Program:
    """The program of one period."""

    def __init__(self, asked: Asked, period: int) -> None:
        from ortools.sat.python import cp_model

        self.asked, self.blocks, self.period = asked, asked.blocks, period
        self.model: Any = cp_model.CpModel()
        self.count = len(asked.blocks.parts)
        self.periods = periods_of(asked.blocks)
        self.busy: dict[object, _Busy] = {}
        self.both: dict[tuple[int, int, int], Any] = {}
        # Sums of bytes that the solver cannot add are counted in larger units, rounded such that no pattern is lost.
        blocks = asked.blocks
        largest = self.periods * sum((*blocks.held, *blocks.parameters)) + sum(blocks.fixed)
        largest += sum(limit for limit in blocks.capacity if limit is not None)
        self.byte = 1 + 2 * largest // LARGEST_SUM
        self.possible = all(asked.homes)
        if not self.possible:
            return
        self.on = [{home: self.model.new_bool_var("") for home in homes} for homes in asked.homes]
        for own in self.on:
            self.model.add_exactly_one(own.values())
        self.forward = [self._instant() for _ in range(self.count)]
        self.backward = [self._instant() for _ in range(self.count)]
        self.took = [[self._taken(block, half) for block in range(self.count)] for half in range(3)]
        self.whole = [one + other for one, other in zip(self.took[1], self.took[2], strict=True)]
        self.sent: list[_When] = []
        self.returned: list[_When] = []
        self._run()
        self._send()
        for busy in self.busy.values():
            self._serve(busy)
        self._break_symmetry()
        if asked.contiguous:
            self._follow_each_other()
        self.flown = [self._flown(block) for block in range(self.count)]
        if any(limit is not None for limit in asked.blocks.capacity):
            self._hold()

    def _instant(self) -> _When:
        offset = self.model.new_int_var(0, self.period - 1, "")
        shift = self.model.new_int_var(0, self.periods, "")
        return _When(offset, shift, offset + self.period * shift)

    def _of(self, time: Any) -> _When:
        """Return the instant of a time."""
        found = self._instant()
        self.model.add(found.time == time)
        return found

    def _steps(self, block: int, device: int) -> tuple[int, int, int]:
        """Return the steps of a block on a device: forward, backward, weight gradient."""
        time = self.blocks.time(block, device)
        assert time is not None
        first, other, half = time
        until = self.asked.steps(other)
        return self.asked.steps(first), until, self.asked.steps(other + half) - until

    def _taken(self, block: int, half: int) -> Any:
        return sum(on * self._steps(block, home)[half] for home, on in self.on[block].items())

    def _run(self) -> None:
        for device in range(self.blocks.devices):
            self.busy[device] = _Busy()
            terms = []
            for block, own in enumerate(self.on):
                if device in own:
                    first, other, half = self._steps(block, device)
                    terms.append((first + other + half) * own[device])
                    for when, took in ((self.forward[block], first), (self.backward[block], other + half)):
                        self._use(device, when, took, own[device])
            self.model.add(sum(terms) <= self.period)
        last = self.count - 1
        self._after(self.backward[last].time, self.forward[last].time + self.took[0][last])

    def _use(self, resource: object, when: _When, took: int, present: Any) -> None:
        busy = self.busy.setdefault(resource, _Busy())
        if took:
            busy.lasting.append((when, took, present))
        else:
            busy.instant.append((when, present))

    def _after(self, time: Any, end: Any) -> None:
        """Require that an operation waits for less than a period."""
        self.model.add(time >= end)
        self.model.add(time <= end + self.period - 1)

    def _send(self) -> None:
        """Add the transfers of each block to the next one and back; on one device they take no time."""
        steps = self.asked.steps
        for block in range(self.count - 1):
            hops = {
                (one, other): self.blocks.hop(block, one, other)
                for one in self.on[block]
                for other in self.on[block + 1]
                if one != other
            }
            ends = self.forward[block].time + self.took[0][block]
            starts = self.backward[block + 1].time + self.whole[block + 1]
            sent, returned = self._of(ends), self._of(starts)
            if any(hop is not None and hop != Hop() for hop in hops.values()):
                sent, returned = self._instant(), self._instant()
                self._after(sent.time, ends)
                self._after(returned.time, starts)
            for (one, other), hop in hops.items():
                cut = self._both(block, one, other)
                if hop is None:
                    self.model.add(cut == 0)
                    continue
                ready = steps(hop.forward + hop.later[0]), steps(hop.backward + hop.later[1])
                if max(ready) > REACH:
                    self.model.add(cut == 0)  # later than any instant of the program
                    continue
                out, back = occupied_between(self.blocks.problem.machine, one, other)
                for resource in out:
                    self._use(resource, sent, steps(hop.forward), cut)
                for resource in back:
                    self._use(resource, returned, steps(hop.backward), cut)
                if steps(hop.forward) > self.period or steps(hop.backward) > self.period:
                    self.model.add(cut == 0)
                ends_ = sent.time + ready[0]
                self.model.add(self.forward[block + 1].time >= ends_).only_enforce_if(cut)
                ends_ = returned.time + ready[1]
                self.model.add(self.backward[block].time >= ends_).only_enforce_if(cut)
            known = [hop for hop in hops.values() if hop is not None]
            arrived = [steps(sum(hop.later) + hop.forward + hop.backward) for hop in known]
            most = min(self.period - 1 + max(arrived, default=0), REACH)
            for when, begun in ((self.forward[block + 1], sent), (self.backward[block], returned)):
                self.model.add(when.time >= begun.time)
                self.model.add(when.time <= begun.time + most)
            self.sent.append(sent)
            self.returned.append(returned)

    def _both(self, block: int, one: int, other: int) -> Any:
        """Return whether a block is on one device and the next block on the other."""
        key = (block, one, other)
        if key not in self.both:
            first, second = self.on[block][one], self.on[block + 1][other]
            self.both[key] = both = self.model.new_bool_var("")
            self.model.add_bool_or([both, ~first, ~second])
            self.model.add_implication(both, first)
            self.model.add_implication(both, second)
        return self.both[key]

    def _serve(self, busy: _Busy) -> None:
        """Forbid overlaps modulo the period: each operation also appears one period earlier."""
        intervals = []
        for when, took, present in busy.lasting:
            for before in (0, self.period):
                begin = when.offset - before
                intervals.append(self.model.new_optional_fixed_size_interval_var(begin, took, present, ""))
        if len(intervals) > 2 or any(took > self.period for _, took, _ in busy.lasting):
            self.model.add_no_overlap(intervals)
        # An operation of zero length never interrupts another.
        for instant, there in busy.instant:
            for when, took, present in busy.lasting:
                before = self.model.new_bool_var("")
                self.model.add(instant.offset <= when.offset).only_enforce_if([before, there, present])
                self.model.add(instant.offset >= when.offset + took).only_enforce_if([~before, there, present])
                self.model.add(instant.offset >= when.offset + took - self.period).only_enforce_if([there, present])

    def _break_symmetry(self) -> None:
        """Require that interchangeable devices start in order."""
        blocks = self.blocks
        everybody = tuple(range(blocks.devices))
        if blocks.alike and not any(self.asked.less) and all(homes == everybody for homes in self.asked.homes):
            for device in range(1, blocks.devices):
                for block in range(self.count):
                    self.model.add(sum(self.on[k][device - 1] for k in range(block)) >= self.on[block][device])

    def _follow_each_other(self) -> None:
        """Require that the blocks of each device are consecutive."""
        for device in range(self.blocks.devices):
            begins = []
            for block, own in enumerate(self.on):
                if device in own:
                    begin = self.model.new_bool_var("")
                    before = self.on[block - 1].get(device, 0) if block else 0
                    self.model.add(begin >= own[device] - before)
                    begins.append(begin)
            self.model.add(sum(begins) <= 1)

    def _flown(self, block: int) -> Any:
        """Return the number of micro-batches of a block in flight."""
        instance = self.blocks.instance
        flown = self.model.new_int_var(1, most_in_flight(instance, self.periods), "")
        length = self.backward[block].time + self.whole[block] - self.forward[block].time
        self.model.add(self.period * flown >= length)
        return flown

    def _hold(self) -> None:
        """Limit the bytes of all blocks on a device at the start of each forward."""
        blocks, asked, model = self.blocks, self.asked, self.model
        ends = {}
        for block in range(self.count):
            if blocks.held[block]:
                # A single layer with separate weight gradients frees part of its bytes when the first half ends.
                first, end = blocks.parts[block]
                took = self.took[1][block] if end - first == 1 else self.whole[block]
                ends[block] = self._of(self.backward[block].time + took)
        self._average(ends)
        more = [self._versions(block) for block in range(self.count)]
        for at in range(self.count):
            room: Any = 0
            for device, on in self.on[at].items():
                limit = blocks.capacity[device]
                if limit is None:
                    most = sum(map(self._down, blocks.fixed)) + self._most()
                else:
                    most = self._up(limit - (asked.less[device] if asked.less else 0))
                room = room + on * most
            terms: list[Any] = []
            for block in range(self.count):
                together = self._together(at, block)
                if together is None:
                    continue
                terms.append(self._down(blocks.fixed[block]) * together)
                if more[block] is not None:
                    terms.append(self._where(together, more[block], self._most()))
                if block in ends:
                    held = self._held(at, block, ends[block])
                    terms.append(self._down(blocks.held[block]) * self._where(together, held, self.periods))
                    if blocks.shared[block] and block:
                        beside = self._beside(block)
                        if beside is not None:
                            # At most the true saving. The solver may choose the true value, so this loses nothing.
                            both = self._and(together, beside)
                            terms.append(-self._up(blocks.shared[block]) * self._product(both, held))
            model.add(sum(terms) <= room)

    def _average(self, ends: dict[int, _When]) -> None:
        """Limit the average memory use (Little's law): redundant, but worth its cost.

        This is omitted if bytes times time are too large for the solver.
        """
        blocks, model, period = self.blocks, self.model, self.period
        longest = period * self.periods
        most = max([*blocks.held, sum(blocks.fixed), *(limit for limit in blocks.capacity if limit is not None)])
        if most * longest * max(1, len(blocks.held)) > LARGEST_SUM:
            return
        everywhere: list[Any] = []
        for block, end in ends.items():
            alone = blocks.held[block] - blocks.shared[block]
            everywhere.append((block, alone, end.time - self.forward[block].time))
        for device, limit in enumerate(blocks.capacity):
            terms = []
            for block, alone, length in everywhere:
                if limit is not None and device in self.on[block]:
                    terms.append(alone * self._where(self.on[block][device], length, longest))
            if limit is not None and terms:
                own = [(size, on) for size, on in zip(blocks.fixed, self.on, strict=True) if device in on]
                fixed = sum(size * on[device] for size, on in own)
                model.add(sum(terms) + period * fixed <= period * limit)
        if None not in blocks.capacity and everywhere:
            room = sum(limit for limit in blocks.capacity if limit is not None) - sum(blocks.fixed)
            model.add(sum(alone * length for _, alone, length in everywhere) <= period * room)

    def _most(self) -> int:
        """Return an upper bound on all byte counts."""
        return self.periods * sum(map(self._down, (*self.blocks.held, *self.blocks.parameters))) + 1

    def _down(self, size: int) -> int:
        """Return bytes in units of the program, rounded down."""
        return size // self.byte

    def _up(self, size: int) -> int:
        """Return bytes in units of the program, rounded up."""
        return -(-size // self.byte)

    def _versions(self, block: int) -> Any:
        """Return the bytes of all additional versions of a block's parameters; None if it has only one."""
        size = self._down(self.blocks.parameters[block])
        if self.blocks.instance.weights == "single" or not size:
            return None
        if self.blocks.instance.weights == "stash":
            return size * (self.flown[block] - 1)
        several = self.model.new_bool_var("")
        self.model.add(self.flown[block] == 1).only_enforce_if(~several)
        return size * several

    def _together(self, one: int, other: int) -> Any:
        """Return whether two blocks are on the same device; None if they cannot be."""
        if one == other:
            return 1
        key = (min(one, other), max(one, other), -1)
        if key not in self.both:
            shared = [(self.on[one][device], self.on[other][device]) for device in self.on[one].keys() & self.on[other]]
            together: Any = self.model.new_bool_var("") if shared else None
            for first, second in shared:
                self.model.add_bool_or([together, ~first, ~second])
                self.model.add_bool_or([~together, ~first, second])
                self.model.add_bool_or([~together, first, ~second])
            if shared:
                self.model.add_bool_or([~together, *(first for first, _ in shared)])
            self.both[key] = together
        return self.both[key]

    def _beside(self, block: int) -> Any:
        """Return whether the previous block is on the same device."""
        return self._together(block, block - 1)

    def _and(self, one: Any, other: Any) -> Any:
        if isinstance(one, int):
            return other
        both = self.model.new_bool_var("")
        self.model.add_bool_or([both, ~one, ~other])
        self.model.add_implication(both, one)
        self.model.add_implication(both, other)
        return both

    def _where(self, there: Any, amount: Any, most: int) -> Any:
        """Return a number that is at least an amount if `there` holds, and may otherwise be 0."""
        if isinstance(there, int):
            return amount
        found = self.model.new_int_var(0, most, "")
        self.model.add(found >= amount).only_enforce_if(there)
        return found

    def _product(self, there: Any, amount: Any) -> Any:
        """Return an amount if `there` holds, else 0."""
        found = self.model.new_int_var(0, self.periods, "")
        self.model.add(found <= amount).only_enforce_if(there)
        self.model.add(found == 0).only_enforce_if(~there)
        return found

    def _held(self, at: int, block: int, end: _When) -> Any:
        """Return the number of micro-batches that a block holds when another's forward starts, including that one."""
        begins, instant = self.forward[block], self.forward[at]
        return self._since(begins, instant) - self._since(end, instant)

    def _since(self, event: _When, at: _When) -> Any:
        """Return how often an event has happened by an instant, up to a common constant."""
        if event is at:
            return 1 - event.shift
        happened = self.model.new_bool_var("")
        self.model.add(event.offset <= at.offset).only_enforce_if(happened)
        self.model.add(event.offset > at.offset).only_enforce_if(~happened)
        return happened - event.shift

    def chosen(self, value: Callable[[Any], int]) -> Found:
        """Return a solution."""

        def times(whens: Sequence[_When]) -> tuple[int, ...]:
            return tuple(value(when.offset) + self.period * value(when.shift) for when in whens)

        return Found(
            tuple(next(home for home, on in own.items() if value(on)) for own in self.on),
            Times(times(self.forward), times(self.backward), times(self.sent), times(self.returned)),
            tuple(value(flown) for flown in self.flown),
        )
