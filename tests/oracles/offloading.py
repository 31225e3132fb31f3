"""Exhaustive search over schedules with several memories, the reference for `offload-exact` on tiny instances.

The search covers schedules of whole values on the first processor. Each step starts at time 0 or when another one ends,
and values are dropped only to free memory. Any schedule can be turned into one of these that ends no later.
"""

import heapq
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from . import lowering


def least_makespan(document, budget=None, *, recompute=False, states=None, order=None):
    """Return the minimum makespan (a fraction if transfer times are fractions), or None without a schedule.

    Parameters
    ----------
    document : dict
        An instance, of a few stages or tasks.
    budget : int, optional
        Capacity of the working memory (of the quickest storage level of an adjoint).
    recompute : bool
        Whether tasks may run again, in any order. Else each runs at most once, in the reference order, and makes
        nothing that was made before.
    states : int, optional
        Give up (`math.nan`) after so many.
    order : list of str, optional
        Tasks that run, and for the first time in this order. Others may run again, or for the first time, at any time.
    """
    space = _Space(document, budget, recompute, order)
    start = space.start()
    # Inputs that serve nobody count, too, before anything frees them.
    if not space.fits((space.inputs, *start[1:])):
        return None
    # A* with a bound that never overestimates; a state is taken up again if it is reached sooner.
    best, settled = {start: 0}, {}
    queue = [(space.to_go(start), 0, start)]
    ticket = itertools.count(1)
    while queue:
        _, _, state = heapq.heappop(queue)
        time = best[state]
        if settled.get(state, math.inf) <= time:
            continue
        settled[state] = time
        if space.finished(state):
            return time
        if states is not None and len(settled) > states:
            return math.nan
        for passed, after in space.moves(state):
            if time + passed < best.get(after, math.inf):
                best[after] = time + passed
                heapq.heappush(queue, (time + passed + space.to_go(after), -next(ticket), after))
    return None


@dataclass(frozen=True, eq=False)
class _Step:
    """A run or a copy; its reads, writes and hand-overs are bit masks over (memory, value)."""

    duration: float
    resource: object
    reads: int
    writes: int
    gone: int = 0
    task: int = -1
    added: tuple = ()  # bytes in each memory while it lasts


class _Space:
    """States and moves.

    A state is (resident, done, place, running): memory contents as a bit mask; relevant finished tasks as a bit mask;
    the next position in the reference order; running steps as sorted (remaining time, step number).
    """

    def __init__(self, document, budget, recompute, first=None):
        graph, machine = lowering.lower(document), lowering.machine(document, budget)
        self.recompute = recompute
        self.memories = list(machine.memories)
        self.values = list(graph.values)
        self.size = list(graph.values.values())
        self.bits = len(self.memories) * len(self.values)
        self.room = [math.inf if room is None else room for room in machine.memories.values()]
        self.static = [graph.static if memory == machine.first else 0 for memory in self.memories]
        processor, home = next(iter(machine.processors.items()))
        names = list(graph.tasks)
        self.tasks = list(graph.tasks.values())
        order = [names.index(name) for name in _reference_order(graph, document["kind"])]

        def place(value, memory):
            return 1 << (self.memories.index(memory) * len(self.values) + self.values.index(value))

        def mask(values):
            return sum(place(value, home) for value in set(values))

        self.inputs = sum(place(*entry) for entry in set(graph.inputs))
        self.outputs = sum(place(*entry) for entry in set(graph.outputs))
        self.pinned = sum(place(*entry) for entry in set(graph.inputs) if entry[0] in graph.pinned)
        self.read = [mask(task.reads) for task in self.tasks]
        self.written = [mask(task.writes) for task in self.tasks]
        self.must = sum(1 << i for i, task in enumerate(self.tasks) if task.required or task.once)
        self.first = [names.index(name) for name in first or ()]
        for task in self.first:
            self.must |= 1 << task
        self.single = sum(1 << i for i, task in enumerate(self.tasks) if task.once or not task.recomputable)
        self.steps = []
        self.order = order  # of tasks
        self.runs = [[] for _ in self.tasks]
        for index, task in enumerate(self.tasks):
            own = [v for v in sorted(set(task.reads)) if not place(v, home) & self.pinned] if task.in_place else []
            for taken in itertools.chain.from_iterable(itertools.combinations(own, k) for k in range(len(own) + 1)):
                written = sum(graph.values[value] for value in task.writes)
                extra = max(0, written - sum(graph.values[value] for value in taken)) + task.workspace
                added = tuple(extra if memory == home else 0 for memory in self.memories)
                self.runs[index].append(len(self.steps))
                self.steps.append(
                    _Step(task.time, processor, self.read[index], self.written[index], mask(taken), index, added)
                )
        self.copies = []
        for link in machine.links:
            for value, size in graph.values.items():
                added = tuple(size if memory == link.target else 0 for memory in self.memories)
                ends = place(value, link.source), place(value, link.target)
                self.copies.append(len(self.steps))
                time = _transfer(link, size, graph.ratios.get(value))
                self.steps.append(_Step(time, link.channel, *ends, added=added))

    def start(self):
        return self._tidy(self.inputs, 0, 0, ())

    def finished(self, state):
        resident, done, _, running = state
        return not running and done & self.must == self.must and resident & self.outputs == self.outputs

    # --- memory -------------------------------------------------------------------------------------------------------

    @cache  # noqa: B019  (a space lives as long as one search)
    def bytes(self, resident):
        """Return the bytes of resident values in each memory."""
        count = len(self.values)
        return [
            static + sum(self.size[v] for v in range(count) if resident >> (memory * count + v) & 1)
            for memory, static in enumerate(self.static)
        ]

    def used(self, resident, running):
        used = list(self.bytes(resident))
        for _, number in running:
            for memory, added in enumerate(self.steps[number].added):
                used[memory] += added
        return used

    def fits(self, state):
        return all(used <= room for used, room in zip(self.used(state[0], state[3]), self.room, strict=True))

    # --- moves --------------------------------------------------------------------------------------------------------

    def moves(self, state):
        """Yield (time that passes, next state)."""
        resident, _, _, running = state
        reading = writing = 0
        for _, number in running:
            reading |= self.steps[number].reads
            writing |= self.steps[number].writes
        if running:
            yield from self._wait(state)
        busy = {self.steps[number].resource for _, number in running}
        for number, then_done, then_place in self._startable(state):
            step = self.steps[number]
            blocked = step.reads & writing or step.writes & (reading | writing)
            if step.resource in busy or step.reads & ~resident or blocked:
                continue
            began = tuple(sorted((*running, (step.duration, number))))
            droppable = resident & ~(reading | writing | step.reads | self.pinned)
            for dropped in self._making_room(resident, began, droppable):
                after = (resident & ~dropped, then_done, then_place, began)
                if step.duration == 0:
                    yield from self._wait(after)
                else:
                    yield 0, self._tidy(*after)

    def _making_room(self, resident, running, droppable):
        """Yield the least sets of values to drop until everything fits."""
        over = [used - room for used, room in zip(self.used(resident, running), self.room, strict=True)]
        choices = [0]
        for memory, excess in enumerate(over):
            if excess <= 0:
                continue
            base = memory * len(self.values)
            own = [base + v for v, size in enumerate(self.size) if size and droppable >> (base + v) & 1]
            found = []
            for some in itertools.chain.from_iterable(itertools.combinations(own, k) for k in range(len(own) + 1)):
                freed = [self.size[bit - base] for bit in some]
                if sum(freed) >= excess and all(sum(freed) - size < excess for size in freed):
                    found.append(sum(1 << bit for bit in some))
            choices = [one | other for one in choices for other in found]
        return choices

    def _startable(self, state):
        """Yield what might start, with the tasks done and the place in the order after that."""
        resident, done, place, _ = state
        if self.recompute:
            for task in self.order:
                own = 1 << task
                if task in self.first and any(not done >> t & 1 for t in self.first[: self.first.index(task)]):
                    continue
                if done & own & self.single:
                    continue
                if own & self.must & ~done or self.written[task] & ~resident:
                    kept = done | own & (self.must | self.single)
                    yield from ((number, kept, 0) for number in self.runs[task])
        else:
            made = 0
            for task in range(len(self.tasks)):
                made |= self.written[task] if done >> task & 1 else 0
            for position in range(place, len(self.order)):
                task = self.order[position]
                own = 1 << task
                if own & self.must or not self.written[task] & made:
                    yield from ((number, done | own, position + 1) for number in self.runs[task])
                if own & self.must:
                    break
        for number in self.copies:
            # A copy onto itself only takes more memory.
            if self.steps[number].reads & resident and not self.steps[number].writes & resident:
                yield number, done, place

    def _wait(self, state):
        """Let time pass until something ends: writes are complete, then what is handed on goes."""
        resident, done, place, running = state
        passed = running[0][0]
        still = tuple((remaining - passed, number) for remaining, number in running if remaining != passed)
        ended = [self.steps[number] for remaining, number in running if remaining == passed]
        gone = in_use = 0
        for step in ended:
            resident |= step.writes
            gone |= step.gone
        for _, number in still:
            in_use |= self.steps[number].reads | self.steps[number].writes
        if not gone & in_use:
            yield passed, self._tidy(resident & ~gone, done, place, still)

    # --- what is still of use -----------------------------------------------------------------------------------------

    def _tidy(self, resident, done, place, running):
        """Drop values without further use, which loses no schedule."""
        keep = self._wanted(done, place) | self.pinned
        for _, number in running:
            keep |= self.steps[number].reads | self.steps[number].writes
        return resident & keep, done, place, running

    @cache  # noqa: B019
    def _wanted(self, done, place):
        """Return values that may still be read or are outputs, in all memories."""
        wanted = self._anywhere(self.outputs)
        if not self.recompute:
            for task in self.order[place:]:
                wanted |= self._anywhere(self.read[task])
            return wanted
        useful = self.must & ~done
        while True:
            before = useful, wanted
            for task in range(len(self.tasks)):
                if useful >> task & 1:
                    wanted |= self._anywhere(self.read[task])
                elif not (done & self.single) >> task & 1 and self.written[task] & wanted:
                    useful |= 1 << task
            if (useful, wanted) == before:
                return wanted

    def _anywhere(self, places):
        count = len(self.values)
        values = 0
        for memory in range(len(self.memories)):
            values |= places >> (memory * count) & ((1 << count) - 1)
        return sum(values << (memory * count) for memory in range(len(self.memories)))

    def to_go(self, state):
        """Return a time that the processor must still work at least."""
        resident, done, _, running = state
        there = resident
        longest = left = 0
        for remaining, number in running:
            longest = max(longest, remaining)
            step = self.steps[number]
            there |= step.writes
            left += remaining if step.task >= 0 else 0
        return max(longest, left + self._work(done, self._anywhere(there)))

    @cache  # noqa: B019
    def _work(self, done, there):
        """Time of the tasks that must still run, and of the quickest maker of each stage's missing values."""
        needed = self.must & ~done
        extra, covered = 0, 0
        while True:
            missing = 0
            for task in range(len(self.tasks)):
                if (needed | extra) >> task & 1:
                    missing |= self.read[task] & ~there
                    covered |= self.written[task]
            more = 0
            for value in range(self.bits):
                if missing & ~covered & (1 << value):
                    makers = [task for task in range(len(self.tasks)) if self.written[task] >> value & 1]
                    if len(makers) == 1:
                        more |= 1 << makers[0]
            if not more & ~extra:
                break
            extra |= more
        # Values that several tasks can make: each group of makers counts once.
        total = sum(task.time for i, task in enumerate(self.tasks) if (needed | extra) >> i & 1)
        taken = needed | extra
        for value in range(self.bits):
            if missing & ~covered & (1 << value):
                makers = sum(1 << task for task in range(len(self.tasks)) if self.written[task] >> value & 1)
                if makers and not makers & taken:
                    total += min(task.time for i, task in enumerate(self.tasks) if makers >> i & 1)
                    taken |= makers
        return total


def _transfer(link, size, own):
    """Return latency + size / bandwidth, exactly: ends at one instant must be equal. `own`: of the bytes of a value."""
    if link.packed is not None:
        return link.latency + size * link.per_byte(own)
    return link.latency + (0 if link.bandwidth is None else Fraction(size, link.bandwidth))


def _reference_order(graph, kind):
    """List the tasks: of a chain stage by stage, the backwards in reverse; of a graph as they become ready."""
    if kind in ("chain", "adjoint"):
        forward = [name for name in graph.tasks if name.startswith("F")]
        backward = [name for name in graph.tasks if name.startswith("B")]
        stage = {name: int(name.lstrip("FeB").split(".")[0]) for name in forward + backward}
        forward.sort(key=lambda name: (stage[name], name.startswith("Fe"), name))
        backward.sort(key=lambda name: (-stage[name], name))
        return [*forward, "loss", *backward]
    available = {value for value, _ in graph.inputs}
    left, order = list(graph.tasks), []
    while left:
        ready = next(name for name in left if available.issuperset(graph.tasks[name].reads))
        left.remove(ready)
        order.append(ready)
        available.update(graph.tasks[ready].writes)
    return order
