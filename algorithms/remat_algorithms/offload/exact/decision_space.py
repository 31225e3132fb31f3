"""Possible runs, copies and residencies in the schedules that `offload-exact` searches, without times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from remat.plugin import Problem
from remat_algorithms.offload.exact.integer_scaling import Scale, rational, transfer_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Limits of the schedules in the class.

    Attributes
    ----------
    copies : int
        Maximum copies of one value over one link.
    runs : int
        Maximum runs of one task. 0: the reference order, each task at most once, no value computed twice.
    """

    copies: int
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Act:
    """A possible run (`link` -1, `item` a task) or copy (`item` a value)."""

    item: int
    link: int
    duration: Fraction
    must: bool


@dataclass(frozen=True, slots=True)
class Slot:
    """A residency of a value in a memory, created by an act (-1: resident from the start)."""

    value: int
    memory: int
    maker: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A solution in numbers.

    Attributes
    ----------
    start : dict of int to int
        Start tick of each act that happens.
    reads : dict of int to list of int
        Slots that each of these acts reads.
    taken : set of (act, slot)
        Slots whose bytes a run in place hands on to its outputs.
    stays : set of int
        Slots that last to the end.
    """

    start: dict[int, int]
    reads: dict[int, list[int]]
    taken: set[tuple[int, int]]
    stays: set[int]


class Setting:
    """The possible acts and slots of a problem, without times.

    Acts are listed runs first, in the reference order. `reads[act]` are the (value, memory) pairs that an act reads.
    """

    def __init__(self, problem: Problem, order: Sequence[int], effort: Effort) -> None:
        graph, machine = problem.graph, problem.machine
        self.problem, self.effort = problem, effort
        self.home = machine.processors[0].memory
        self.size: list[int] = graph.size.tolist()
        first = machine.memories[0].name
        place = machine.memory_index
        inputs = dict.fromkeys((entry.value, place[entry.memory or first]) for entry in graph.inputs)
        self.outputs = dict.fromkeys((entry.value, place[entry.memory or first]) for entry in graph.outputs)
        self.pinned = {key for key in inputs if key[0] in graph.pinned}
        reads, writes = graph.reads.to_lists(), graph.writes.to_lists()
        must = (problem.needed.forced | graph.once).tolist()
        single = (graph.once | ~graph.recomputable).tolist()
        time = graph.time.tolist()
        self.acts: list[Act] = []
        self.reads: list[list[tuple[int, int]]] = []
        self.slots: list[Slot] = [Slot(value, memory, -1) for value, memory in inputs]
        self.rank: list[int] = []
        """For each act, its number among those of its task, or of its value over its link."""
        for task in order:
            for rank in range(1 if single[task] else max(1, effort.runs)):
                self._add(Act(task, -1, rational(time[task]), must[task] and rank == 0), rank)
                self.reads.append([(value, self.home) for value in dict.fromkeys(reads[task])])
                made = [(value, self.home) for value in dict.fromkeys(writes[task])]
                self.slots += [Slot(*key, len(self.acts) - 1) for key in made if key not in self.pinned]
        self.runs = len(self.acts)
        made_here = {value for task in order for value in writes[task]} | {value for value, _ in inputs}
        for value in sorted(made_here):
            for link in self._links(value):
                ends = machine.links[link]
                for rank in range(min(1, effort.copies) if self._ample(ends.target) else effort.copies):
                    time = transfer_time(graph.link_for(ends, value), self.size[value])
                    self._add(Act(value, link, time, False), rank)
                    self.reads.append([(value, ends.source)])
                    self.slots.append(Slot(value, ends.target, len(self.acts) - 1))

    def _add(self, act: Act, rank: int) -> None:
        self.acts.append(act)
        self.rank.append(rank)

    def _links(self, value: int) -> list[int]:
        """Return the links over which a copy of a value may be useful."""
        links = self.problem.machine.links
        ways = [(link.source, link.target) for link in links]
        sources = {slot.memory for slot in self.slots if slot.value == value and slot.maker < self.runs}
        wanted = {self.home, *(memory for output, memory in self.outputs if output == value)}
        here, there = _closure(sources, ways), _closure(wanted, [(target, source) for source, target in ways])
        taken = self.pinned
        return [
            index
            for index, (source, target) in enumerate(ways)
            if source in here and target in there and (value, target) not in taken
        ]

    def _ample(self, memory: int) -> bool:
        """Whether a remote memory can hold everything at once; no value then needs to go there twice."""
        capacity = self.problem.machine.memories[memory].capacity
        return memory != self.home and (capacity is None or sum(self.size) + self.fixed[memory] <= capacity)

    @property
    def durations(self) -> list[Fraction]:
        """Durations of all acts."""
        return [act.duration for act in self.acts]

    @property
    def demands(self) -> list[int]:
        """Bytes of every value and every workspace."""
        graph = self.problem.graph
        return [*self.size, *graph.workspace.tolist()]

    @property
    def fixed(self) -> list[int]:
        """Bytes that are occupied in each memory throughout, in addition to values."""
        count = len(self.problem.machine.memories)
        return [self.problem.graph.static_memory if memory == 0 else 0 for memory in range(count)]

    def least_units(self, scale: Scale) -> int:
        """Return the total time of the mandatory runs, in units of time."""
        return sum(scale.length(act.duration) for act in self.acts if act.must) // scale.ticks

    def resource(self, act: int) -> int:
        """Return the resource that an act occupies."""
        link = self.acts[act].link
        return 0 if link < 0 else self.problem.machine.resource_of_link[link]

    def latest_uses(self) -> dict[int, int]:
        """Find for tasks that may be repeated the act before which they must end to be useful, if one exists.

        That act is a run that happens exactly once. Every other act that may use the task's values, directly or through
        further runs, must come before it, because it reads values that only their outputs can provide.
        """
        graph = self.problem.graph
        last = {act.item: index for index, act in enumerate(self.acts[: self.runs]) if act.must}
        count = [act.item for act in self.acts[: self.runs]].count
        last = {task: act for task, act in last.items() if count(task) == 1}
        readers, writes = graph.readers.to_lists(), graph.writes.to_lists()
        before = _ancestors(last, graph.reads.to_lists(), graph.producers.to_lists())
        outputs = {value for value, _ in self.outputs}
        optional = dict.fromkeys(act.item for act in self.acts[: self.runs] if act.item not in last)
        users: dict[int, set[int]] = {task: set() for task in optional}
        changed = True
        while changed:
            changed = False
            for task in optional:
                direct = {reader for value in writes[task] for reader in readers[value]}
                found = users[task].union(*({r} if r in last else users.get(r, set()) for r in direct))
                changed |= found != users[task]
                users[task] = found
        latest = {}
        for task in optional:
            if outputs.isdisjoint(writes[task]):
                for user in users[task]:
                    if users[task] <= before[user] | {user}:
                        latest[task] = last[user]
        return latest


def _ancestors(last: dict[int, int], reads: list[list[int]], producers: list[list[int]]) -> dict[int, set[int]]:
    """Return for each task that runs once the direct and indirect sole producers of its inputs: they precede it."""
    direct = {
        task: {
            producers[value][0] for value in reads[task] if len(producers[value]) == 1 and producers[value][0] in last
        }
        for task in last
    }
    before = {task: set(own) for task, own in direct.items()}
    for _ in last:
        for own in before.values():
            own.update(*(before[task] for task in tuple(own)))
    return before


def _closure(start: set[int], ways: list[tuple[int, int]]) -> set[int]:
    reached = set(start)
    for _ in ways:
        reached |= {target for source, target in ways if source in reached}
    return reached
