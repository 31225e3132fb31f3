"""Ordered groups of units, which contiguous placements cut.

Contiguous placements give each device the difference of two down-sets of an order (Tarnawski et al. 2020). No value
then flows backwards in some order of the devices. The order follows what units read from each other in the forward
pass. Tasks of phase ``backward`` are placed with the other tasks of their unit. A unit with only backward tasks joins a
unit that reads its outputs. Units that depend on each other form one group.

Two contractions are exact for all devices. They apply to groups without time and bytes. A group that reads nothing and
has a single reading group joins that group. A group that no group reads, and that reads only one group, joins it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from remat.plugin import NumberArray
from remat_algorithms.parallel.placement.model import Model


@dataclass(frozen=True)
class Passing:
    """A flow of a value between groups."""

    maker: int
    readers: tuple[int, ...]
    value: int


class Ordered(Protocol):
    """Groups in an order, and the flows between them."""

    @property
    def after(self) -> tuple[frozenset[int], ...]:
        """Groups that must precede each group."""
        ...

    def __len__(self) -> int: ...

    def flows(self) -> list[Passing]:
        """Return the flows between groups."""
        ...


@dataclass(frozen=True)
class Groups:
    """Groups of units, in topological order.

    Attributes
    ----------
    units : tuple of tuple of int
    after : tuple of frozenset of int
        Groups that must precede each group.
    exact : bool
        Whether contiguous placements of groups lose nothing compared to those of units.
    """

    model: Model
    units: tuple[tuple[int, ...], ...]
    after: tuple[frozenset[int], ...]
    exact: bool = True

    def __len__(self) -> int:
        return len(self.units)

    @property
    def of_unit(self) -> dict[int, int]:
        """Group of each unit."""
        return {unit: group for group, units in enumerate(self.units) for unit in units}

    def time(self) -> NumberArray:
        """Return the time of each group on each processor, as (processors, groups)."""
        columns = [self.model.time[:, list(units)].sum(axis=1) for units in self.units]
        found: NumberArray = np.stack(columns, axis=1)
        return found

    def size(self) -> list[int]:
        """Return the bytes of each group's parameters."""
        return [sum(self.model.size[unit] for unit in units) for units in self.units]

    def flows(self) -> list[Passing]:
        """Return the flows between groups."""
        group = self.of_unit
        found = []
        for flow in self.model.flows:
            maker = group[flow.maker]
            readers = tuple(sorted({group[reader] for reader in flow.readers} - {maker}))
            if readers:
                found.append(Passing(maker, readers, flow.value))
        return found

    def placed(self, homes: Sequence[int]) -> list[int]:
        """Return the processor of each unit, given those of the groups."""
        found = [-1] * self.model.units
        for units, home in zip(self.units, homes, strict=True):
            for unit in units:
                found[unit] = home
        return found


def groups_of(model: Model) -> Groups:
    """Return the groups of a model, in topological order."""
    edges = _edges(model)
    joined = _Union(model.units)
    for unit, other in _orphans(model):
        joined.join(unit, other)
    merged = _merged(model, joined, edges)
    while True:
        pairs = list(_vanishing(merged))
        if not pairs:
            return merged
        joined = _Union(model.units)
        for units in merged.units:
            for unit in units[1:]:
                joined.join(units[0], unit)
        for one, other in pairs:
            joined.join(merged.units[one][0], merged.units[other][0])
        merged = _merged(model, joined, edges)


def coarser(groups: Groups, most: int, stopped: Callable[[], bool] = lambda: False) -> Groups:
    """Return at most `most` groups: neighbours without groups between them are joined, shortest first.

    More groups remain after a stop. O(groups^2) for each join.
    """
    model = groups.model
    least = np.where(np.isfinite(model.time), model.time, np.inf).min(axis=0)
    while len(groups) > most and not stopped():
        time = [float(least[list(units)].sum()) for units in groups.units]
        pair = min(_joinable(groups), key=lambda ends: (time[ends[0]] + time[ends[1]], ends), default=None)
        if pair is None:
            break
        joined = _Union(model.units)
        for units in groups.units:
            for unit in units[1:]:
                joined.join(units[0], unit)
        joined.join(groups.units[pair[0]][0], groups.units[pair[1]][0])
        merged = _merged(model, joined, _edges(model))
        groups = Groups(model, merged.units, merged.after, exact=False)
    return groups


def _joinable(groups: Groups) -> Iterator[tuple[int, int]]:
    """Yield neighbours without another path between them; joining them creates no cycle."""
    above = _closures(groups)
    for group, before in enumerate(groups.after):
        for other in before:
            if not any(other in above[between] for between in before if between != other):
                yield other, group


def _closures(groups: Groups) -> list[set[int]]:
    """Return all groups that precede each group."""
    found: list[set[int]] = []
    for before in groups.after:
        own = set(before)
        for other in before:
            own |= found[other]
        found.append(own)
    return found


class _Union:
    """Union-find."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))

    def find(self, one: int) -> int:
        while self.parent[one] != one:
            self.parent[one] = self.parent[self.parent[one]]
            one = self.parent[one]
        return one

    def join(self, one: int, other: int) -> None:
        first, second = sorted((self.find(one), self.find(other)))
        self.parent[second] = first


def _edges(model: Model) -> list[tuple[int, int]]:
    """Return which unit reads from which in the forward pass, as (before, after)."""
    graph = model.graph
    backward = set() if graph.phase is None else {task for task, name in enumerate(graph.phase) if name == "backward"}
    maker: dict[int, int] = {}
    for task in sorted(model.unit_of):
        for value in graph.writes[task].tolist():
            maker.setdefault(value, task)
    found = set()
    for task, unit in model.unit_of.items():
        if task not in backward:
            for value in graph.reads[task].tolist():
                before = maker.get(value)
                if before is not None and before not in backward and model.unit_of[before] != unit:
                    found.add((model.unit_of[before], unit))
    return sorted(found)


def _orphans(model: Model) -> Iterator[tuple[int, int]]:
    """Yield units with only backward tasks, each with a unit that it joins."""
    phase = model.graph.phase
    if phase is None or all(name == "backward" for name in phase):
        return
    alone = {unit for unit, tasks in enumerate(model.tasks) if all(phase[task] == "backward" for task in tasks)}
    for unit in sorted(alone):
        reading = [reader for flow in model.flows if flow.maker == unit for reader in flow.readers]
        made = [flow.maker for flow in model.flows if unit in flow.readers]
        listed = [other for other in reading if other not in alone] or reading or made
        if listed:
            yield unit, listed[0]


def _merged(model: Model, joined: _Union, edges: Iterable[tuple[int, int]]) -> Groups:
    """Return the joined units as ordered groups; units that depend on each other form one group."""
    roots = sorted({joined.find(unit) for unit in range(model.units)})
    number = {root: index for index, root in enumerate(roots)}
    of_unit = [number[joined.find(unit)] for unit in range(model.units)]
    before: list[set[int]] = [set() for _ in roots]
    for one, other in edges:
        if of_unit[one] != of_unit[other]:
            before[of_unit[other]].add(of_unit[one])
    component = _components(before)
    count = max(component) + 1 if component else 0
    units: list[list[int]] = [[] for _ in range(count)]
    after: list[set[int]] = [set() for _ in range(count)]
    for unit in range(model.units):
        units[component[of_unit[unit]]].append(unit)
    for group, own in enumerate(before):
        after[component[group]] |= {component[other] for other in own} - {component[group]}
    return Groups(model, tuple(tuple(own) for own in units), tuple(frozenset(own) for own in after))


def _components(before: Sequence[set[int]]) -> list[int]:
    """Return the strong component of each node, numbered in topological order (Tarjan)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    found = [-1] * len(before)
    count = 0
    for root in range(len(before)):
        if root in order:
            continue
        order[root] = low[root] = len(order)
        stack.append(root)
        work = [(root, iter(sorted(before[root])))]
        while work:
            node, following = work[-1]
            for other in following:
                if other not in order:
                    order[other] = low[other] = len(order)
                    stack.append(other)
                    work.append((other, iter(sorted(before[other]))))
                    break
                if found[other] < 0:
                    low[node] = min(low[node], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    while True:
                        member = stack.pop()
                        found[member] = count
                        if member == node:
                            break
                    count += 1
    return found


def _vanishing(groups: Groups) -> Iterator[tuple[int, int]]:
    """Yield groups that may join another one without loss, at most one pair for each group."""
    model = groups.model
    free = {
        group
        for group, units in enumerate(groups.units)
        if not model.time[:, list(units)].any() and not any(model.size[unit] for unit in units)
    }
    flows = groups.flows()
    reads: dict[int, set[int]] = defaultdict(set)
    read_by: dict[int, set[int]] = defaultdict(set)
    for flow in flows:
        for reader in flow.readers:
            reads[reader].add(flow.maker)
            read_by[flow.maker].add(reader)
    taken: set[int] = set()
    for group in sorted(free):
        ends = None
        if not reads[group] and not groups.after[group] and len(read_by[group]) == 1:
            ends = next(iter(read_by[group]))
        elif not read_by[group] and len(reads[group]) == 1 and groups.after[group] <= reads[group]:
            ends = next(iter(reads[group]))
        if ends is not None and ends not in taken and group not in taken:
            taken |= {group, ends}
            yield group, ends
