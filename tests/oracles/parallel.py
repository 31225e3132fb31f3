"""Exhaustive search over parallel schedules of tiny task graphs: several processors, and whole values on links.

The search covers all schedules in which each step starts at time 0 or when another step ends, and values are freed only
when memory is needed. Every schedule of whole values can be turned into one of these that ends no later. Times are
exact fractions. Without links the result is the minimum makespan of all schedules; with links, of the schedules that
copy whole values.
"""

import heapq
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from . import lowering


def least_makespan(document, budget=None, *, states=None):
    """Return the minimum makespan of an instance on all its processors.

    Parameters
    ----------
    document : dict
        An instance with a few tasks. See `supports`.
    budget : int or dict, optional
        As in `lowering.machine`.
    states : int, optional
        Give up after so many states.

    Returns
    -------
    Fraction or float
        `math.inf` if there is no schedule, `math.nan` if the search gave up.
    """
    space = _Space(lowering.lower(document), lowering.machine(document, budget))
    start = space.start()
    if start is None:
        return math.inf
    best, settled = {start: Fraction(0)}, {}
    queue, ticket = [(space.to_go(start), 0, start)], itertools.count(1)
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
    return math.inf


def supports(document):
    """Whether the search covers an instance: no stream, no placeable inputs, no collectives, no delayed transfers."""
    if document["kind"] == "pipeline" or any(document.get(key) is not None for key in ("stream", "staleness")):
        return False
    machine = lowering.machine(document)
    graph = lowering.lower(document, machine)
    plain_links = all(not link.delay and not link.also for link in machine.links)
    return plain_links and not graph.placeable and not any(task.parts for task in graph.tasks.values())


@dataclass(frozen=True, eq=False)
class _Step:
    """A run or a copy. Places, which are (memory, value) pairs, are bits of whole numbers."""

    duration: Fraction
    resources: frozenset
    reads: int
    writes: int
    freed: int = 0  # at its end
    task: int = -1
    added: tuple = ()  # bytes in each memory while it lasts


class _Space:
    """The states (resident places, tasks that have run, running steps) and the moves between them."""

    def __init__(self, graph, machine):
        self.graph, self.machine = graph, machine
        self.memories, self.values = list(machine.memories), list(graph.values)
        self.size = [graph.values[value] for _ in self.memories for value in self.values]
        self.capacity = [math.inf if size is None else size for size in machine.memories.values()]
        self.static = [machine.static.get(name, 0) for name in self.memories]
        self.static[self.memories.index(machine.first)] += graph.static
        self.tasks = list(graph.tasks.values())
        self.inputs = self._mask(graph.inputs)
        self.outputs = self._mask(graph.outputs)
        self.pinned = self._mask([place for place in graph.inputs if place[0] in graph.pinned])
        self.must = sum(1 << i for i, task in enumerate(self.tasks) if task.required or task.once)
        self.single = sum(1 << i for i, task in enumerate(self.tasks) if task.once or not task.recomputable)
        self.steps = [*self._runs(), *self._copies()]
        self.least_time = [
            min((step.duration for step in self.steps if step.task == i), default=Fraction(0))
            for i in range(len(self.tasks))
        ]
        self.twins = self._twins()

    def _bit(self, value, memory):
        return 1 << (self.memories.index(memory) * len(self.values) + self.values.index(value))

    def _mask(self, places):
        return sum(self._bit(*place) for place in set(places))

    def _runs(self):
        for number, task in enumerate(self.tasks):
            for chosen in self._processors(task):
                speed = min(self.machine.speeds.get(name, 1) for name in chosen)
                kinds = tuple(self.machine.types.get(name, "") for name in chosen)
                time = lowering.run_time(task, len(chosen), speed, kinds)
                if time is None:
                    continue
                home = self.machine.processors[chosen[0]]
                reads, writes = ([(value, home) for value in names] for names in (task.reads, task.writes))
                free = [place for place in sorted(set(reads)) if not self._mask([place]) & self.pinned]
                written = sum(self.graph.values[value] for value in task.writes)
                for count in range(len(free) + 1 if task.in_place else 1):
                    for freed in itertools.combinations(free, count):
                        replaced = sum(self.graph.values[value] for value, _ in freed)
                        added = max(0, written - replaced) + task.workspace
                        yield _Step(
                            Fraction(time),
                            frozenset(chosen),
                            self._mask(reads),
                            self._mask(writes),
                            self._mask(freed),
                            number,
                            tuple(added if memory == home else 0 for memory in self.memories),
                        )

    def _processors(self, task):
        """Yield the sets of processors on which a task may run."""
        most = task.parallel["max"] if task.parallel else 1
        for count in range(1, most + 1):
            for chosen in itertools.combinations(self.machine.processors, count):
                homes = {self.machine.processors[name] for name in chosen}
                if len(homes) == 1 and (task.on is None or set(chosen) <= set(task.on)):
                    yield chosen

    def _copies(self):
        for link in self.machine.links:
            if link.source == link.target:
                continue
            for value, size in self.graph.values.items():
                own = self.graph.ratios.get(value)
                sent = 0 if link.bandwidth is None else Fraction(size) / Fraction(link.bandwidth)
                if own is not None and link.packed is not None:
                    sent = size * link.per_byte(own)
                ends = self._bit(value, link.source), self._bit(value, link.target)
                added = tuple(size if memory == link.target else 0 for memory in self.memories)
                yield _Step(Fraction(link.latency) + sent, frozenset([link.channel]), *ends, added=added)

    def _twins(self):
        """Return, for each processor, the equal ones that are listed before it: an idle one of these is used first."""
        machine = self.machine
        channels = {link.channel for link in machine.links}
        named = {name for task in self.tasks for name in task.on or ()}

        def about(name):
            return machine.processors[name], machine.speeds.get(name, 1), machine.types.get(name, "")

        twins = {}
        for name in machine.processors:
            own = name not in channels and name not in named
            twins[name] = [
                other
                for other in itertools.takewhile(lambda one, name=name: one != name, machine.processors)
                if own and other not in channels and other not in named and about(other) == about(name)
            ]
        return twins

    # --- states -------------------------------------------------------------------------------------------------------

    def start(self):
        """Return the first state; None if the inputs do not fit."""
        state = self.inputs, 0, ()
        return self._tidy(*state) if self._excess(*state[::2]) == [0] * len(self.memories) else None

    def finished(self, state):
        """Whether everything has run, and every output is in its place."""
        resident, done, running = state
        return not running and done & self.must == self.must and resident & self.outputs == self.outputs

    @cache  # noqa: B019  (a space lives as long as one search)
    def _bytes(self, resident):
        count = len(self.values)
        return [
            static + sum(self.size[bit] for bit in range(count * k, count * (k + 1)) if resident >> bit & 1)
            for k, static in enumerate(self.static)
        ]

    def _excess(self, resident, running):
        used = list(self._bytes(resident))
        for _, number in running:
            used = [one + more for one, more in zip(used, self.steps[number].added, strict=True)]
        return [max(0, one - most) for one, most in zip(used, self.capacity, strict=True)]

    def moves(self, state):
        """Yield (time that passes, next state)."""
        resident, done, running = state
        if running:
            yield from self._wait(state)
        reading = writing = 0
        busy = set()
        for _, number in running:
            reading |= self.steps[number].reads
            writing |= self.steps[number].writes
            busy |= self.steps[number].resources
        useful = self._useful(done)
        for number, step in enumerate(self.steps):
            if step.resources & busy or step.reads & ~resident or step.reads & writing:
                continue
            if step.writes & (reading | writing) or not self._serves(step, resident, done, useful):
                continue
            if any(self._twin_is_idle(resource, busy | step.resources) for resource in step.resources):
                continue
            own = 1 << step.task if step.task >= 0 else 0
            began = tuple(sorted((*running, (step.duration, number))))
            free = resident & ~(reading | writing | step.reads | self.pinned)
            for dropped in self._making_room(resident, began, free):
                after = resident & ~dropped, done | own & (self.must | self.single), began
                if step.duration:
                    yield 0, self._tidy(*after)
                else:
                    yield from self._wait(after)

    def _twin_is_idle(self, resource, busy):
        twins = self.twins.get(resource, ()) if isinstance(resource, str) else ()
        return any(other not in busy for other in twins)

    def _serves(self, step, resident, done, useful):
        if step.task < 0:
            return not step.writes & resident
        own = 1 << step.task
        if done & own & self.single:
            return False
        return bool(own & self.must & ~done or (own & useful and step.writes & ~resident))

    def _making_room(self, resident, running, free):
        """Yield the least sets of values to free until everything fits."""
        choices, count = [0], len(self.values)
        for memory, excess in enumerate(self._excess(resident, running)):
            if excess:
                own = range(count * memory, count * (memory + 1))
                bits = [bit for bit in own if free >> bit & 1 and self.size[bit]]
                choices = [one | other for one in choices for other in self._least_sets(bits, excess)]
        return choices

    def _least_sets(self, bits, excess):
        for some in itertools.chain.from_iterable(itertools.combinations(bits, k) for k in range(1, len(bits) + 1)):
            freed = [self.size[bit] for bit in some]
            if sum(freed) >= excess and sum(freed) - min(freed) < excess:
                yield sum(1 << bit for bit in some)

    def _wait(self, state):
        """Yield what is there when the next running step ends; writes are complete first, then values are freed."""
        resident, done, running = state
        passed = running[0][0]
        still = tuple((left - passed, number) for left, number in running if left != passed)
        freed = in_use = 0
        for left, number in running:
            step = self.steps[number]
            if left == passed:
                resident |= step.writes
                freed |= step.freed
            else:
                in_use |= step.reads | step.writes
        if not freed & in_use:
            yield passed, self._tidy(resident & ~freed, done, still)

    def _tidy(self, resident, done, running):
        """Free what nothing can use any more: that loses no schedule."""
        keep = self._wanted(done) | self.pinned
        for _, number in running:
            keep |= self.steps[number].reads | self.steps[number].writes
        return resident & keep, done, running

    # --- what is still of use -----------------------------------------------------------------------------------------

    @cache  # noqa: B019
    def _closure(self, done):
        useful = self.must & ~done
        wanted = {value for value, _ in self.graph.outputs}
        while True:
            before = useful, len(wanted)
            for number, task in enumerate(self.tasks):
                own = 1 << number
                if useful & own:
                    wanted.update(task.reads)
                elif not done & self.single & own and wanted.intersection(task.writes):
                    useful |= own
            if (useful, len(wanted)) == before:
                return useful, self._mask([(value, memory) for value in wanted for memory in self.memories])

    def _useful(self, done):
        return self._closure(done)[0]

    def _wanted(self, done):
        return self._closure(done)[1]

    def to_go(self, state):
        """Return a time that must still pass at least."""
        _, done, running = state
        longest = max((left for left, _ in running), default=Fraction(0))
        runs = sum((left * len(self.steps[n].resources) for left, n in running if self.steps[n].task >= 0), Fraction(0))
        parallel = any(task.parallel for task in self.tasks)
        work = sum(self.least_time[i] for i in range(len(self.tasks)) if self.must & ~done & 1 << i)
        if parallel:  # a task may take less than its time times its processors
            return longest
        return max(longest, (runs + work) / len(self.machine.processors))
