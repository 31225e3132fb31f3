"""Repeated training steps: the minimum period that the order on each resource allows.

The precedences within one training step, and from one step to the next, are difference constraints. Each start is at
least another start plus a time, less a whole number of periods. The minimum period at which no cycle of constraints is
longer than its periods is the maximum cycle ratio. It is found by repeatedly following a cycle that is too long.
Nothing starts earlier than in the schedule of a single step, so waiting for memory is preserved.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from remat.plugin import Machine, Number, StepBuilder, StepKind, Steps, TaskGraph, instant_array
from remat_algorithms.offload.swaps.program import run_time

INSTANT = 1e-9
"""Share of the makespan within which float times count as equal."""

ROUNDING = 2.0**-50
"""Maximum error of a sum of float times, as a share of the makespan."""


@dataclass(frozen=True, slots=True)
class Edge:
    """`target` starts at least `time` after `source` does, less `periods` periods."""

    source: int
    target: int
    time: Number
    periods: int = 0


@dataclass(frozen=True)
class Cycle:
    """The steps of every training step, with the starts of the first one, and its period."""

    steps: Steps
    period: Number
    busiest: str
    is_least: bool


def cycle_of(graph: TaskGraph, machine: Machine, steps: Steps) -> Cycle | None:
    """Repeat the steps of one training step with the minimum period; None if they do not fit.

    Parameters
    ----------
    graph : TaskGraph
        With its inputs at their homes, and its `renewals`.
    machine : Machine
    steps : Steps
        With start times.

    Notes
    -----
    Transfers that take new parameters home start as late as possible, so that the old ones are freed by then. If
    memories are bounded, longer periods are tried, up to the one that lets each training step end first. O(n) per try
    for n steps, times the rounds in which constraints settle, which are few.
    """
    repeat = _Repeat(graph, machine, steps)
    least = repeat.least_period()
    if least is None:
        return None
    alone = repeat.makespan
    periods = [least]
    if any(memory.capacity is not None for memory in machine.memories):
        tries = 16
        whole = isinstance(least, int) and isinstance(alone, int)
        for k in range(1, tries + 1):
            period: Number = least + (alone - least) * k // tries if whole else least + (alone - least) * k / tries
            periods.append(max(period, least))
    for period in dict.fromkeys(periods):
        starts = repeat.starts(period)
        if starts is not None and repeat.fits(starts, period):
            return Cycle(repeat.placed(starts), period, repeat.busiest, period <= repeat.load)
    return None


class _Repeat:
    """Steps as operations: their times, resources and precedences."""

    def __init__(self, graph: TaskGraph, machine: Machine, steps: Steps) -> None:
        assert steps.start is not None
        self.graph, self.machine, self.steps = graph, machine, steps
        self.count = len(steps)
        self.begin: list[Number] = steps.start.tolist()
        self.time = [self._time(k) for k in range(self.count)]
        self.makespan: Number = max(
            (begin + time for begin, time in zip(self.begin, self.time, strict=True)), default=0
        )
        self.lines = self._lines()
        loads = {name: sum(self.time[k] for k in line) for name, line in self.lines.items()}
        self.busiest = max(loads, key=lambda name: loads[name], default="")
        self.load: Number = loads.get(self.busiest, 0)
        self.home = self._late_ones()
        self.edges = [*self._data(), *self._turns(), *self._handed_on()]

    # --- what steps do ------------------------------------------------------------------------------------------------

    def _time(self, step: int) -> Number:
        kind, item = self.steps.kind[step], int(self.steps.item[step])
        if kind == StepKind.RUN:
            time: Number = self.graph.time[item].item()
            return time if item in self.graph.parts else run_time(self.machine.processors[self._processor(step)], time)
        if kind == StepKind.COPY:
            link = self.machine.link_index[int(self.steps.source[step]), int(self.steps.target[step])]
            return self.machine.links[link].time(int(self.graph.size[item]))
        return 0

    def _processor(self, step: int) -> int:
        on = [] if self.steps.on is None else self.steps.on[step].tolist()
        return int(on[0]) if on else 0

    def _held(self, step: int) -> Sequence[str]:
        machine, kind = self.machine, self.steps.kind[step]
        if kind == StepKind.DROP:
            return ()
        if kind == StepKind.COPY:
            link: int | None = machine.link_index[int(self.steps.source[step]), int(self.steps.target[step])]
        elif int(self.steps.item[step]) in self.graph.parts:
            memory = machine.processors[self._processor(step)].memory
            link = machine.link_index.get((memory, memory))
        else:
            return (machine.processors[self._processor(step)].name,)
        return () if link is None else [machine.resources[k] for k in machine.held_by_link[link]]

    def _accesses(self, step: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]:
        """Return what a step reads, writes and frees, as (memory, value)."""
        steps, graph, kind = self.steps, self.graph, self.steps.kind[step]
        drops = steps.drop[step].tolist()
        if kind == StepKind.COPY:
            item, source, target = int(steps.item[step]), int(steps.source[step]), int(steps.target[step])
            return [(source, item)], [(target, item)], [(source, value) for value in drops]
        if kind == StepKind.DROP:
            return [], [], [(int(steps.source[step]), value) for value in drops]
        memory, task = self.machine.processors[self._processor(step)].memory, int(steps.item[step])
        return (
            [(memory, value) for value in graph.reads[task].tolist()],
            [(memory, value) for value in graph.writes[task].tolist()],
            [(memory, value) for value in drops],
        )

    def _lines(self) -> dict[str, list[int]]:
        """Return the steps that occupy each resource, in order."""
        lines: dict[str, list[int]] = defaultdict(list)
        for step in sorted(range(self.count), key=lambda k: (self.begin[k], k)):
            for resource in self._held(step):
                lines[resource].append(step)
        return dict(lines)

    def _late_ones(self) -> dict[int, tuple[int, int]]:
        """Return transfers and collectives that replace a value for the next training step, and the replaced values.

        These have a whole period of slack: on each channel, they come after all others, in the order of their use.
        """
        old = {renewal.new: renewal.old for renewal in self.graph.renewals if renewal.lag > 1}
        index, first = self.machine.memory_index, self.machine.memories[0].name
        homes = {place.value: index[place.memory or first] for place in self.graph.inputs}
        found: dict[int, tuple[int, int]] = {}
        for step in range(self.count):
            item, kind = int(self.steps.item[step]), self.steps.kind[step]
            if kind == StepKind.COPY or (kind == StepKind.RUN and item in self.graph.parts):
                for memory, value in self._accesses(step)[1]:
                    if value in old and memory == homes[old[value]]:
                        found[step] = memory, old[value]
        return found

    # --- constraints --------------------------------------------------------------------------------------------------

    def _data(self) -> list[Edge]:
        """Return the precedences in one training step, from its reads, writes and frees."""
        edges: list[Edge] = []
        writer: dict[tuple[int, int], int] = {}
        users: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # since the value was written or freed
        for step, frees_now in self._in_time():
            reads, writes, frees = self._accesses(step)
            if frees_now:
                for place in frees:
                    before = [*users[place], *([writer[place]] if place in writer else [])]
                    edges += [Edge(user, step, self._before_free(user, step)) for user in before if user != step]
                    users[place] = [step]
                continue
            for place in reads:
                if place in writer:
                    edges.append(Edge(writer[place], step, self.time[writer[place]]))
            for place in writes:
                before = [*users[place], *([writer[place]] if place in writer else [])]
                edges += [Edge(user, step, self.time[user]) for user in before if user != step]
            for place in reads:
                users[place].append(step)
            for place in writes:
                writer[place], users[place] = step, []
        return edges

    def _before_free(self, user: int, step: int) -> Number:
        """Return the minimum time from a user of a value to the begin of a step that frees it at its own end.

        At one instant, steps that end free before others begin. A step of zero length must therefore not come at that
        end.
        """
        instant = isinstance(self.time[user], float) and self.time[user] <= INSTANT * self.makespan
        return 0 if self.time[user] == 0 or instant else self.time[user] - self.time[step]

    def _in_time(self) -> Iterator[tuple[int, bool]]:
        """Yield the begins of steps, and the times at which they free values (True), in chronological order."""
        events: list[tuple[Number, int, int, bool]] = []
        for step, begin in enumerate(self.begin):
            events.append((begin, 1, step, False))
            end = begin + self.time[step]
            # At one instant, earlier steps end first; a step of zero length begins and ends at its place in the list.
            events.append((end, 1 if end == begin else 0, step, True))
        for *_, step, frees_now in sorted(events):
            yield step, frees_now

    def _turns(self) -> list[Edge]:
        """Return the order on each resource: the first one of the next training step comes after the last."""
        edges: list[Edge] = []
        for line in self.lines.values():
            late = [step for step in line if step in self.home]
            turn = [step for step in line if step not in self.home] + sorted(late, key=self._use)
            edges += [Edge(one, other, self.time[one]) for one, other in itertools.pairwise(turn)]
            edges.append(Edge(turn[-1], turn[0], self.time[turn[-1]], 1))
        return edges

    def _use(self, step: int) -> Number:
        """Return the first use of the value that replaces an output of a step."""
        return min((self.begin[user] for user in self.users.get(self.home[step], ())), default=0)

    @cached_property
    def users(self) -> dict[tuple[int, int], list[int]]:
        """The steps that read or free each value in each memory."""
        found: dict[tuple[int, int], list[int]] = {}
        for step in range(self.count):
            reads, _, frees = self._accesses(step)
            for place in dict.fromkeys((*reads, *frees)):
                found.setdefault(place, []).append(step)
        return found

    def _handed_on(self) -> list[Edge]:
        """Return the constraints that a value for a later training step arrives before its use there."""
        index, first = self.machine.memory_index, self.machine.memories[0].name
        homes = {place.value: index[place.memory or first] for place in self.graph.inputs}
        made: dict[tuple[int, int], int] = {}
        for step in range(self.count):
            for place in self._accesses(step)[1]:
                made[place] = step
        edges: list[Edge] = []
        for renewal in self.graph.renewals:
            memory = homes[renewal.old]
            if (memory, renewal.new) in made:
                last = made[memory, renewal.new]
                users = self.users.get((memory, renewal.old), ())
                edges += [Edge(last, user, self.time[last], renewal.lag) for user in users]
        return edges

    # --- periods and starts -------------------------------------------------------------------------------------------

    def least_period(self) -> Number | None:
        """Return the maximum cycle ratio of the constraints: no shorter period has starts in these orders."""
        period: Fraction = Fraction(str(self.load)) if isinstance(self.load, float) else Fraction(self.load)
        period = max(period, Fraction(0))
        whole = all(isinstance(time, int) for time in (*self.time, *self.begin))
        for _ in range(64):
            number: Number = -(-period.numerator // period.denominator) if whole else float(period)
            circle = self._settle(number or (1 if whole else 1e-300))[1]
            if circle is None:
                return number or None
            periods = sum(edge.periods for edge in circle)
            if periods == 0:  # the constraints within one training step have no cycles
                return None
            longer = sum((Fraction(edge.time) for edge in circle), Fraction(0)) / periods
            period = max(longer, period * (1 + Fraction(1, 10**12)) if not whole else longer)
        return self.makespan or None

    def starts(self, period: Number) -> list[Number] | None:
        """Return the starts at a period, transfers home as late as possible; None if the period is infeasible."""
        found, _ = self._settle(period)
        return None if found is None else self._late(found, period)

    def _settle(self, period: Number) -> tuple[list[Number] | None, list[Edge] | None]:
        """Return the earliest starts at a period, or a cycle of constraints that is too long for it."""
        start = list(self.begin)
        slack = 0 if all(isinstance(time, int) for time in (period, *start)) else ROUNDING * float(self.makespan)
        leaving: list[list[Edge]] = [[] for _ in range(self.count)]
        for edge in self.edges:
            leaving[edge.source].append(edge)
        by: list[Edge | None] = [None] * self.count
        waiting, queued, rounds = list(range(self.count)), [True] * self.count, [0] * self.count
        position = 0
        while position < len(waiting):
            source = waiting[position]
            position += 1
            queued[source] = False
            for edge in leaving[source]:
                earliest = start[source] + edge.time - edge.periods * period
                if earliest <= start[edge.target] + slack:
                    continue
                start[edge.target], by[edge.target] = earliest, edge
                if queued[edge.target]:
                    continue
                rounds[edge.target] += 1
                if rounds[edge.target] % 8 == 0 and (circle := _circle(by, edge.target)) is not None:
                    return None, circle
                queued[edge.target] = True
                waiting.append(edge.target)
        return start, None

    def _late(self, start: list[Number], period: Number) -> list[Number]:
        """Delay the transfers home as much as their successors allow; all other steps stay."""
        latest = list(start)
        bound: dict[int, Number | None] = dict.fromkeys(self.home)
        leaving: dict[int, list[Edge]] = {step: [] for step in self.home}
        for edge in self.edges:
            if edge.source in leaving and edge.source != edge.target:
                leaving[edge.source].append(edge)
        for _ in range(4):  # consecutive ones on a channel settle at once, in reverse
            moved = False
            for step in sorted(self.home, key=lambda k: -start[k]):
                limits = [
                    (bound[edge.target] if edge.target in bound else latest[edge.target], edge)
                    for edge in leaving[step]
                ]
                known = [limit - edge.time + edge.periods * period for limit, edge in limits if limit is not None]
                if known and (bound[step] is None or min(known) < bound[step]):  # type: ignore[operator]
                    bound[step] = min(known)
                    moved = True
            if not moved:
                break
        for step, limit in bound.items():
            if limit is not None and limit > latest[step]:
                latest[step] = limit
        return latest if self._holds(latest, period) else start

    def _holds(self, start: Sequence[Number], period: Number) -> bool:
        slack = 4 * ROUNDING * float(self.makespan)
        return all(
            start[edge.target] + slack >= start[edge.source] + edge.time - edge.periods * period for edge in self.edges
        )

    # --- memory -------------------------------------------------------------------------------------------------------

    def fits(self, start: Sequence[Number], period: Number) -> bool:
        """Whether every memory can hold its values at any instant of a period."""
        machine, size = self.machine, self.graph.size.tolist()
        if all(memory.capacity is None for memory in machine.memories):
            return True
        spans: list[list[Span]] = [[] for _ in machine.memories]
        begun: dict[tuple[int, int], Moment] = {}
        gone: dict[tuple[int, int], Moment] = {}
        lag = {renewal.old: renewal.lag for renewal in self.graph.renewals}
        handed = {renewal.old: renewal.new for renewal in self.graph.renewals}
        for place in self.graph.inputs:
            memory = machine.memory_index[place.memory] if place.memory else 0
            if place.value not in lag:
                begun[memory, place.value] = (0, BEGINS, -1)
        instant = INSTANT * self.makespan
        for turn, step in enumerate(sorted(range(self.count), key=lambda k: (start[k], k))):
            _, writes, frees = self._accesses(step)
            instantly = self.time[step] <= instant
            first: Moment = (start[step], INSTANTLY if instantly else BEGINS, 2 * turn)
            last: Moment = (start[step] + self.time[step], INSTANTLY if instantly else ENDS, 2 * turn + 1)
            for key in writes:
                if key in begun:
                    spans[key[0]].append((begun[key], last, size[key[1]]))
                begun[key] = first
            for key in frees:
                if key in begun:
                    spans[key[0]].append((begun.pop(key), last, size[key[1]]))
                else:
                    gone[key] = last
            if self.steps.kind[step] == StepKind.RUN:
                memory = machine.processors[self._processor(step)].memory
                workspace = int(self.graph.workspace[int(self.steps.item[step])])
                spans[memory].append((first, last, workspace - self._reused(step, frees)))
        for (memory, value), (stop, *rank) in gone.items():  # handed on, and used up so many steps of training later
            made = begun.pop((memory, handed[value]), None) if value in handed else None
            if made is not None:
                spans[memory].append((made, (stop + lag[value] * period, rank[0], rank[1]), size[value]))
        end = max(one + time for one, time in zip(start, self.time, strict=True))
        for (memory, value), since in begun.items():
            spans[memory].append((since, (end, ENDS, 0), size[value]))
        return all(
            memory.capacity is None
            or self.graph.static_bytes(machine, index) + _most(spans[index], period) <= memory.capacity
            for index, memory in enumerate(machine.memories)
        )

    def _reused(self, step: int, frees: list[tuple[int, int]]) -> int:
        """Return the bytes of its freed values that a run in place takes over."""
        task = int(self.steps.item[step])
        if self.steps.kind[step] != StepKind.RUN or not self.graph.in_place[task]:
            return 0
        read = set(self.graph.reads[task].tolist())
        freed = sum(int(self.graph.size[value]) for _, value in frees if value in read)
        return min(freed, int(self.graph.size[self.graph.writes[task]].sum()))

    def placed(self, start: Sequence[Number]) -> Steps:
        """Return the steps with these starts, in their order.

        If a step that still reads a transfer's source begins within an instant of the transfer's end, a separate later
        step frees the source.
        """
        steps, builder = self.steps, StepBuilder()
        order = sorted(range(self.count), key=lambda k: (start[k], k))
        place = {step: at for at, step in enumerate(order)}
        late: defaultdict[int, list[int]] = defaultdict(list)
        instant = 2 * INSTANT * float(self.makespan)
        exact = all(isinstance(time, int) for time in (*self.time, *start))
        for step in () if exact else np.flatnonzero((steps.kind == StepKind.COPY) & (steps.drop.counts > 0)).tolist():
            end = start[step] + self.time[step]
            readers = self.users[int(steps.source[step]), int(steps.item[step])]
            near = [
                other
                for other in readers
                if place[other] > place[step]
                and abs(start[other] - end) <= instant
                and self.begin[other] <= self.begin[step] + self.time[step]
            ]
            if near:
                late[max(near, key=lambda other: place[other])].append(step)
        kept = {step for listed in late.values() for step in listed}
        starts: list[Number] = []
        for step in order:
            starts.append(start[step])
            item, source = int(steps.item[step]), int(steps.source[step])
            drops = steps.drop[step].tolist()
            if steps.kind[step] == StepKind.RUN:
                builder.run(item, drop=drops, on=() if steps.on is None else steps.on[step].tolist())
            elif steps.kind[step] == StepKind.COPY:
                builder.copy(item, source, int(steps.target[step]), drop=bool(drops) and step not in kept)
            else:
                builder.drop(drops, source)
            for other in late.get(step, ()):
                starts.append(max(start[one] + self.time[one] for one in (step, other)))
                builder.drop([int(steps.item[other])], int(steps.source[other]))
        return builder.build(instant_array(starts))


def _circle(by: Sequence[Edge | None], at: int) -> list[Edge] | None:
    """Follow the predecessors that delayed each step until one repeats; None if the path ends first."""
    seen: dict[int, int] = {}
    path: list[Edge] = []
    while at not in seen:
        seen[at] = len(path)
        edge = by[at]
        if edge is None:
            return None
        path.append(edge)
        at = edge.source
    return path[seen[at] :]


Moment = tuple[Number, int, int]
"""A time, and the order at that instant: the rank (below), then the turn."""

ENDS, INSTANTLY, BEGINS = range(3)
"""At one instant, ended values go first, then those of zero-length steps come and go, then new ones come."""

Span = tuple[Moment, Moment, int]
"""Begin, end and number of the resident bytes."""


def _most(spans: Sequence[Span], period: Number) -> int:
    """Return the maximum bytes at any instant if all spans repeat every period."""
    events: list[tuple[Number, int, int, int]] = []
    use = 0
    for begin, end, size in spans:
        for (time, rank, turn), amount in ((begin, size), (end, -size)):
            whole = time // period
            use -= int(amount * (whole + 1))
            events.append((time - whole * period, rank, turn, amount))
    most = use
    for _, group in itertools.groupby(sorted(events), key=lambda event: event[:3]):
        use += sum(amount for *_, amount in group)
        most = max(most, use)
    return most
