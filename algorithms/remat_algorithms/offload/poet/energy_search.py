"""The least energy of any schedule of a small instance, by best-first search over the states of its memories."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from remat.plugin import Number, Problem, StepBuilder, Steps
from remat_algorithms.dag.exact.bit_masks import mask_of
from remat_algorithms.offload.exact.integer_scaling import rational, transfer_time
from remat_algorithms.offload.poet.energy_costs import EnergyCosts

MOST_STATES = 40_000
"""Maximum states whose successors are tried."""

MOST_PLACES = 60
"""Maximum pairs of a value and a memory; larger instances are not searched."""

MOST_DROPPED = 12
"""Maximum values of one memory among which those to drop are chosen."""


@dataclass(frozen=True, slots=True)
class LeastEnergy:
    """The result of the search.

    Attributes
    ----------
    steps : Steps or None
        With start times; None if there is no schedule, or none was found.
    proved : bool
        Whether every schedule of the class has been considered.
    """

    steps: Steps | None
    proved: bool


class _Step(NamedTuple):
    """A run or a copy; places (memory, value) are bits.

    `gone` are inputs whose bytes a run in place hands on; `unread` are outputs that nobody reads. `added` are bytes in
    each memory while the step lasts.
    """

    task: int
    value: int
    link: int
    resource: int
    duration: int
    energy: int
    reads: int
    writes: int
    gone: int
    unread: int
    added: tuple[int, ...]


class _State(NamedTuple):
    """Resident places, finished tasks that matter later, and running steps as (time left, step)."""

    resident: int
    done: int
    running: tuple[tuple[int, int], ...]


class _Node(NamedTuple):
    """A state that was reached: when, from which other one, and the step that then started."""

    state: _State
    energy: int
    time: int
    parent: int
    step: int
    dropped: int


def least_energy(
    problem: Problem, costs: EnergyCosts, deadline: Number | None, stopped: Callable[[], bool]
) -> LeastEnergy | None:
    """Find a schedule of least energy among those that end by a deadline; None if the instance is too large.

    The class: all schedules that run tasks on the first processor and move whole values, with any recomputation. Each
    step starts at 0 or when another one ends, and values are freed only if their bytes are needed. Any schedule of the
    class can be turned into such a one of the same or less energy that ends no later. Without a deadline, one step at a
    time is enough: the steps in the order of their starts need no more memory one after the other.

    A state may be reached with several pairs of energy and time; only those that no other pair dominates are kept. The
    energy of the mandatory tasks that have not run is a lower bound on what is still to come. Exponential in the number
    of values.
    """
    space = _Space.of(problem, costs, deadline)
    return None if space is None else _Search(space, stopped).run()


@dataclass(frozen=True, eq=False)
class _Space:
    """The steps of an instance, and its limits; times and energies in units that make them integers."""

    problem: Problem
    steps: tuple[_Step, ...]
    size: tuple[int, ...]
    room: tuple[float, ...]
    inputs: int
    outputs: int
    pinned: int
    must: int
    single: int
    least: tuple[int, ...]
    duration: tuple[int, ...]
    deadline: int | None
    ticks: int

    @staticmethod
    def of(problem: Problem, costs: EnergyCosts, deadline: Number | None) -> _Space | None:
        """Return the space of a problem; None if it is too large or has a task that overwrites what it reads."""
        graph, machine = problem.graph, problem.machine
        values, memories = len(graph.values), len(machine.memories)
        if values * memories > MOST_PLACES or len(graph.tasks) > MOST_PLACES:
            return None
        home, first = machine.processors[0].memory, machine.memories[0].name
        place = machine.memory_index
        inputs = {(entry.value, place[entry.memory or first]) for entry in graph.inputs}
        outputs = {(entry.value, place[entry.memory or first]) for entry in graph.outputs}
        pinned = {key for key in inputs if key[0] in graph.pinned}

        def mask(keys: set[tuple[int, int]]) -> int:
            return sum(1 << memory * values + value for value, memory in keys)

        reads, writes = graph.reads.to_lists(), graph.writes.to_lists()
        if any(
            {*own} & {*made} or any((v, home) in pinned for v in made) for own, made in zip(reads, writes, strict=True)
        ):
            return None
        durations = [rational(time) for time in graph.time.tolist()]
        sizes = graph.size.tolist()
        copies = [
            (link, value, transfer_time(graph.link_for(ends, value), size))
            for link, ends in enumerate(machine.links)
            if ends.source != ends.target
            for value, size in enumerate(sizes)
        ]
        end = None if deadline is None else rational(deadline)
        ticks = math.lcm(*(time.denominator for time in (*durations, *(c[2] for c in copies), end or Fraction(0))))
        unit = math.lcm(*(rational(one).denominator for one in costs.figures()))
        steps: list[_Step] = []
        readable = {v for own in reads for v in own} | {v for v, _ in outputs}
        for task, (own, made) in enumerate(zip(reads, writes, strict=True)):
            for taken in _handed_over(graph.in_place[task], [v for v in dict.fromkeys(own) if (v, home) not in pinned]):
                extra = max(0, sum(sizes[v] for v in {*made}) - sum(sizes[v] for v in taken))
                added = [0] * memories
                added[home] = extra + int(graph.workspace[task])
                steps.append(
                    _Step(
                        task,
                        -1,
                        -1,
                        0,
                        int(durations[task] * ticks),
                        int(rational(costs.run[task]) * unit),
                        mask({(v, home) for v in own}),
                        mask({(v, home) for v in made}),
                        mask({(v, home) for v in taken}),
                        mask({(v, home) for v in made if v not in readable}),
                        tuple(added),
                    )
                )
        for link, value, time in copies:
            ends = machine.links[link]
            if (value, ends.target) in pinned:
                continue
            added = [sizes[value] if memory == ends.target else 0 for memory in range(memories)]
            energy = int(rational(costs.byte[link]) * unit * sizes[value])
            resource = machine.resource_of_link[link]
            keys = mask({(value, ends.source)}), mask({(value, ends.target)})
            steps.append(_Step(-1, value, link, resource, int(time * ticks), energy, *keys, 0, 0, tuple(added)))
        return _Space(
            problem=problem,
            steps=tuple(steps),
            size=tuple(sizes),
            room=tuple(
                math.inf if memory.capacity is None else memory.capacity - graph.static_bytes(machine, index)
                for index, memory in enumerate(machine.memories)
            ),
            inputs=mask(inputs),
            outputs=mask(outputs),
            pinned=mask(pinned),
            must=mask_of(np.flatnonzero(problem.needed.forced | graph.once | graph.required).tolist()),
            single=mask_of(np.flatnonzero(graph.once | ~graph.recomputable).tolist()),
            least=tuple(int(rational(energy) * unit) for energy in costs.run),
            duration=tuple(int(time * ticks) for time in durations),
            deadline=None if end is None else int(end * ticks),
            ticks=ticks,
        )

    def used(self, resident: int, running: tuple[tuple[int, int], ...]) -> list[int]:
        """Return the bytes in each memory."""
        count = len(self.size)
        found = [
            sum(size for value, size in enumerate(self.size) if resident >> memory * count + value & 1)
            for memory in range(len(self.room))
        ]
        for _, number in running:
            for memory, added in enumerate(self.steps[number].added):
                found[memory] += added
        return found

    def to_go(self, state: _State) -> int:
        """Return a lower bound on the energy of the steps that have not started."""
        return self._left(state, self.least)

    def in_time(self, state: _State, time: int) -> bool:
        """Whether the processor can still run the mandatory tasks before the deadline."""
        if self.deadline is None:
            return True
        longest = max((left for left, _ in state.running), default=0)
        busy = sum(left for left, number in state.running if self.steps[number].task >= 0)
        return time + max(longest, busy + self._left(state, self.duration)) <= self.deadline

    def _left(self, state: _State, figures: tuple[int, ...]) -> int:
        """Return the sum of figures of the mandatory tasks that have not started."""
        begun = state.done
        for _, number in state.running:
            task = self.steps[number].task
            begun |= 1 << task if task >= 0 else 0
        return sum(figure for task, figure in enumerate(figures) if (self.must & ~begun) >> task & 1)


def _handed_over(in_place: bool, own: list[int]) -> Iterator[tuple[int, ...]]:
    """Yield the sets of inputs that a run may free at its end to hand on their bytes."""
    yield ()
    if in_place:
        for count in range(1, len(own) + 1):
            yield from itertools.combinations(own, count)


class _Search:
    """Best-first search; see `least_energy`."""

    def __init__(self, space: _Space, stopped: Callable[[], bool]) -> None:
        self.space, self.stopped = space, stopped
        self.nodes: list[_Node] = []
        self.queue: list[tuple[int, int, int]] = []
        self.known: dict[_State, list[tuple[int, int]]] = {}
        self.partial = False  # whether some successor was left out

    def run(self) -> LeastEnergy:
        """Take up the states in order of energy until one is a finished schedule."""
        space = self.space
        start = _State(space.inputs, 0, ())
        if any(used > room for used, room in zip(space.used(space.inputs, ()), space.room, strict=True)):
            return LeastEnergy(None, True)
        self._reach(start, 0, 0, -1, -1, 0)
        count = 0
        while self.queue:
            if count >= MOST_STATES or self.stopped():
                return LeastEnergy(None, False)
            count += 1
            index = heapq.heappop(self.queue)[2]
            node = self.nodes[index]
            if (node.energy, node.time) not in self.known[node.state]:
                continue  # dominated since
            if self._finished(node.state):
                return LeastEnergy(self._steps(index), not self.partial)
            self._expand(index, node)
        return LeastEnergy(None, not self.partial)

    def _finished(self, state: _State) -> bool:
        space = self.space
        complete = state.done & space.must == space.must
        return not state.running and complete and state.resident & space.outputs == space.outputs

    def _reach(self, state: _State, energy: int, time: int, parent: int, step: int, dropped: int) -> None:
        """Record a state unless another path reaches it with at most the same cost and time."""
        space = self.space
        if not space.in_time(state, time):
            return
        labels = self.known.setdefault(state, [])
        if any(e <= energy and t <= time for e, t in labels):
            return
        labels[:] = [(e, t) for e, t in labels if e < energy or t < time]
        labels.append((energy, time))
        self.nodes.append(_Node(state, energy, time, parent, step, dropped))
        heapq.heappush(self.queue, (energy + space.to_go(state), time, len(self.nodes) - 1))

    def _expand(self, index: int, node: _Node) -> None:
        space, state = self.space, node.state
        if state.running:
            after, passed = self._wait(state)
            self._reach(after, node.energy, node.time + passed, index, -1, 0)
        if state.running and space.deadline is None:
            return
        busy = {space.steps[number].resource for _, number in state.running}
        reading = writing = 0
        for _, number in state.running:
            reading |= space.steps[number].reads
            writing |= space.steps[number].writes
        for number, step in enumerate(space.steps):
            if step.resource in busy or not self._may_start(state, step, reading, writing):
                continue
            # Previous copies of the run's outputs are freed first, which never costs anything.
            again = step.writes & state.resident
            if again & (reading | space.pinned):
                continue
            resident = state.resident & ~again
            running = tuple(sorted((*state.running, (step.duration, number))))
            fixed = reading | writing | step.reads | space.pinned
            for dropped in self._making_room(resident, running, resident & ~fixed):
                begun = _State(resident & ~dropped, state.done, running)
                self._start(begun, node, index, number, dropped | again)

    def _start(self, begun: _State, node: _Node, index: int, number: int, dropped: int) -> None:
        step = self.space.steps[number]
        energy = node.energy + step.energy
        time = 0 if self.space.deadline is None else step.duration
        if time == 0:  # it is over at once; without a deadline, times do not matter
            begun = self._ended(begun._replace(running=tuple(r for r in begun.running if r[1] != number)), [number])
        self._reach(begun, energy, node.time, index, number, dropped)

    def _may_start(self, state: _State, step: _Step, reading: int, writing: int) -> bool:
        space = self.space
        if step.reads & ~state.resident or step.reads & writing or step.writes & (reading | writing):
            return False
        if step.task >= 0:
            own = 1 << step.task
            if state.done & own & space.single:
                return False
            useful = own & space.must & ~state.done or step.writes & ~state.resident
            if not useful:
                return False
        elif step.writes & state.resident:
            return False
        for left, number in state.running:
            other = space.steps[number]
            if (other.gone & step.reads and step.duration > left) or (step.gone & other.reads and left > step.duration):
                return False  # it would be freed while the other one reads it
        return True

    def _making_room(self, resident: int, running: tuple[tuple[int, int], ...], droppable: int) -> list[int]:
        """Return the smallest sets of places to free until everything fits."""
        space, count = self.space, len(self.space.size)
        choices = [0]
        for memory, used in enumerate(space.used(resident, running)):
            excess = used - space.room[memory]
            if excess <= 0:
                continue
            own = [v for v, size in enumerate(space.size) if size and droppable >> memory * count + v & 1]
            if len(own) > MOST_DROPPED:
                self.partial = True
                return []
            found = []
            for some in itertools.chain.from_iterable(itertools.combinations(own, k) for k in range(1, len(own) + 1)):
                freed = sum(space.size[v] for v in some)
                if freed >= excess and all(freed - space.size[v] < excess for v in some):
                    found.append(sum(1 << memory * count + v for v in some))
            choices = [one | other for one in choices for other in found]
        return choices

    def _wait(self, state: _State) -> tuple[_State, int]:
        """Let time pass until a step ends."""
        passed = state.running[0][0]
        over = [number for left, number in state.running if left == passed]
        still = tuple((left - passed, number) for left, number in state.running if left > passed)
        return self._ended(state._replace(running=still), over), passed

    def _ended(self, state: _State, numbers: list[int]) -> _State:
        """Return the state after some steps have ended."""
        space = self.space
        resident, done = state.resident, state.done
        for number in numbers:
            step = space.steps[number]
            resident = (resident | step.writes) & ~step.unread & ~step.gone
            if step.task >= 0:
                done |= 1 << step.task & (space.must | space.single)
        return _State(resident, done, state.running)

    # --- the schedule -------------------------------------------------------------------------------------------------

    def _steps(self, index: int) -> Steps:
        """Return the steps that lead to a node, with their starts."""
        space, path = self.space, []
        while index >= 0:
            path.append(self.nodes[index])
            index = self.nodes[index].parent
        builder, starts, now = StepBuilder(), [], 0
        for node in reversed(path):
            if node.step < 0:
                continue
            step = space.steps[node.step]
            starts += [now if space.deadline is None else node.time] * self._add(builder, step, node.dropped)
            now += step.duration
        exact = all(start % space.ticks == 0 for start in starts)
        times = [start // space.ticks if exact else start / space.ticks for start in starts]
        return builder.build().placed(np.array(times, dtype=np.int64 if exact else np.float64))

    def _add(self, builder: StepBuilder, step: _Step, dropped: int) -> int:
        """Add a step, and before it the drops that it needs; return the number of added steps."""
        machine, count = self.space.problem.machine, len(self.space.size)
        before = len(builder)
        for memory in range(len(machine.memories)):
            values = [v for v in range(count) if dropped >> memory * count + v & 1]
            if values:
                builder.drop(values, memory)
        if step.task >= 0:
            freed = step.gone | step.unread
            builder.run(
                step.task, drop=[v for v in range(count) if freed >> machine.processors[0].memory * count + v & 1]
            )
        else:
            ends = machine.links[step.link]
            builder.copy(step.value, ends.source, ends.target)
        return len(builder) - before
