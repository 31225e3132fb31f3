"""Dynamic program over down-sets: the ordered stages that minimise the load of the busiest device.

With k_1, k_2, ... devices of each class, and load_c(S) of a stage S on a device of class c,

    dp[I][k] = min over c, I' in I of max(dp[I'][k - e_c], load_c(I - I'))

(Tarnawski et al. 2020, there for accelerators and CPUs). The search considers only loads up to a limit, and only states
whose remaining work fits on the remaining devices within it. A limit closer to the optimum leaves fewer stages. Limits
therefore rise from a lower bound, and the first feasible one gives the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.parallel.placement import downset_table_kernel
from remat_algorithms.parallel.placement.downsets import DownSets
from remat_algorithms.parallel.placement.groups import Groups, Ordered
from remat_algorithms.parallel.placement.model import Model

FINEST = 2**58
"""Maximum total time in steps."""

NO_LIMIT = 2**61
"""Bytes of a memory without a limit."""

SLICE = 16
"""Number of down-sets extended between two checks for a stop."""

COMPILED_FROM = 200
"""Number of down-sets from which the kernel is compiled."""

FIRST_RISE, RISE = 0.0025, 2.0
"""Initial relative excess of the limit over the bound, and the factor by which it grows."""


@dataclass(frozen=True)
class Staged:
    """Times and bytes of stages, in integer steps.

    Attributes
    ----------
    groups : Ordered
    classes : tuple of tuple of int
        Identical processors.
    step : float
        Time of a step; 1 if all times are integers.
    time : (classes, groups) int64
    unable : (classes, groups) bool
    away, back : (classes, flows) int64
        Time for which a flow occupies a device's channels when sent or received.
    size, held : lists of int
        Bytes of each group, and its bytes per micro-batch in flight.
    flights : int
        Maximum number of micro-batches in flight; the k-th stage has min(k, flights).
    error : int
        Maximum error of a load, in steps.
    """

    groups: Ordered
    classes: tuple[tuple[int, ...], ...]
    step: float
    time: IntArray
    unable: np.ndarray
    away: IntArray
    back: IntArray
    pays: tuple[tuple[bool, bool, bool], ...]
    room: tuple[int, ...]
    size: tuple[int, ...]
    held: tuple[int, ...] = ()
    flights: int = 0
    error: int = 0

    def without_transfers(self) -> Staged:
        """Return the same with transfers that take no time."""
        return replace(self, away=np.zeros_like(self.away), back=np.zeros_like(self.back))

    @property
    def states(self) -> int:
        """Number of combinations of used devices of each class."""
        return math.prod(len(own) + 1 for own in self.classes)

    @property
    def least(self) -> IntArray:
        """Time of each group on the fastest class that can run it."""
        found: IntArray = np.where(self.unable, np.iinfo(np.int64).max, self.time).min(axis=0)
        return found

    @property
    def speeds(self) -> list[float]:
        """Maximum work of a device of each class in minimum times, per unit of time."""
        least = self.least
        found = []
        for time, unable in zip(self.time, self.unable, strict=True):
            able = ~unable & (least > 0)
            found.append(float((least[able] / time[able]).max(initial=0.0)))
        return found

    @property
    def bound(self) -> int:
        """Lower bound on the largest load: all work at the total speed of the devices, and the longest group."""
        speed = sum(len(own) * one for own, one in zip(self.classes, self.speeds, strict=True))
        share = float(self.least.sum()) / speed * (1 - 1e-12) if speed else 0.0
        return max(math.floor(share), int(self.least.max(initial=0)))


def staged(model: Model, groups: Groups, less: Sequence[int] = (), *, whole: bool = False) -> Staged:
    """Return the times and bytes of stages of a stream, with each memory reduced by `less`.

    Processors in one memory each have a share of it, or with `whole` all of it.
    """
    classes = model.classes
    first = [own[0] for own in classes]
    time = groups.time()[first]
    flows = groups.flows()
    ports = [_port(model, processor) for processor in first]
    away = np.array([[port.away(flow.value) for flow in flows] for port in ports], dtype=np.float64)
    back = np.array([[port.back(flow.value) for flow in flows] for port in ports], dtype=np.float64)
    away, back = (costs.reshape(len(first), len(flows)) for costs in (away, back))
    unable = ~np.isfinite(time)
    time = np.where(unable, 0.0, time)
    total = float(time.max(axis=0).sum() + away.max(axis=0, initial=0).sum() + back.max(axis=0, initial=0).sum())
    step = 1.0 if model.whole or not total else total / FINEST
    room = []
    for processor in first:
        memory = model.memory_of[processor]
        shared = 1 if whole else sum(other == memory for other in model.memory_of)
        limit = model.room[memory]
        room.append(NO_LIMIT if limit is None else (limit - (less[memory] if less else 0)) // shared)
    return Staged(
        groups,
        classes,
        step,
        np.rint(time / step).astype(np.int64),
        unable,
        np.rint(away / step).astype(np.int64),
        np.rint(back / step).astype(np.int64),
        tuple(port.pays for port in ports),
        tuple(room),
        tuple(groups.size()),
        tuple([0] * len(groups)),
        0,
        0 if step == 1.0 else len(groups) + len(flows) + 64,
    )


@dataclass(frozen=True)
class Port:
    """The channels of a device: on a star those to the hub and back, else the slowest ones.

    Attributes
    ----------
    away_links, back_links : tuple of int
    pays : tuple of bool
        Whether sending blocks the device, whether receiving does, and whether both share one channel.
    """

    model: Model
    away_links: tuple[int, ...]
    back_links: tuple[int, ...]
    pays: tuple[bool, bool, bool]

    def away(self, value: int) -> float:
        """Return the time for which sending a value occupies a channel."""
        return max((float(self.model.copy_time(link, value)) for link in self.away_links), default=0.0)

    def back(self, value: int) -> float:
        """Return the time for which receiving a value occupies a channel."""
        return max((float(self.model.copy_time(link, value)) for link in self.back_links), default=0.0)


def _port(model: Model, processor: int) -> Port:
    machine, memory = model.machine, model.memory_of[processor]
    if model.star is not None:
        ends = (model.star.away[memory], model.star.back[memory])
        away, back = (tuple([link] if memory != model.star.hub and link >= 0 else list[int]()) for link in ends)
    else:
        homes = set(model.memory_of) - {memory}
        links = list(enumerate(machine.links))
        away = tuple([k for k, link in links if link.source == memory and link.target in homes])
        back = tuple([k for k, link in links if link.target == memory and link.source in homes])
    held = [{resource for link in links for resource in machine.held_by_link[link]} for links in (away, back)]
    processors = set(range(len(machine.processors)))
    one_way = bool((held[0] & held[1]) - processors)
    return Port(model, away, back, (processor in held[0], processor in held[1], one_way))


@dataclass
class Search:
    """The dynamic program on some down-sets: limits rise until a solution exists.

    Attributes
    ----------
    costs : Staged
    sets : DownSets
    visits : int
        Number of stages examined.
    refuted : int
        No stages keep all loads within this value.
    """

    costs: Staged
    sets: DownSets
    stopped: Callable[[], bool] = lambda: False
    most: float = math.inf
    visits: int = 0
    refuted: int = -1
    ended: bool = True
    _records: Any = None
    _first: Any = field(default=None, repr=False)

    def best(self, lower: int, upper: int | None) -> list[tuple[int, int]] | None:
        """Return the best stages with a load of at most `upper`; `homes_of` gives the processors of their groups.

        Returns
        -------
        list of (down-set, class), or None
            End and class of each stage, first to last. None if none exist, or if the work limit is reached (`ended` is
            then False). In both cases, no stages have a load of at most `refuted`.
        """
        top = self._top() if upper is None else upper
        self.refuted = max(self.refuted, lower - 1)
        rise = FIRST_RISE if len(self.sets) * self.costs.states > 20_000 else math.inf
        while self.refuted < top:
            limit = top if math.isinf(rise) else min(top, lower + max(1, math.ceil(rise * max(1, lower))))
            if limit > self.refuted:
                found = self._filled(limit)
                if not self.ended:
                    return None
                if found is not None:
                    return found
                self.refuted = limit
            rise *= RISE
        return None

    def _top(self) -> int:
        costs = self.costs
        ways = costs.away.sum(axis=1).max(initial=0) + costs.back.sum(axis=1).max(initial=0)
        return int(costs.time.max(axis=0).sum() + ways)

    def _filled(self, limit: int) -> list[tuple[int, int]] | None:
        records = self._prepared()
        table, walked = records[3], records[5]
        table.value[:] = -1
        table.value[0, 0] = 0
        fill = self._bound(records)
        walked.next = 0
        while walked.next < len(self.sets) - 1:
            before = walked.visits
            fill(min(walked.next + SLICE, len(self.sets) - 1), limit)
            self.visits += walked.visits - before
            if self.stopped() or self.visits > self.most:
                self.ended = False
                return None
        last = table.value[len(self.sets) - 1]
        states = np.flatnonzero(last >= 0)
        if not len(states):
            return None
        state = int(states[np.argmin(last[states])])
        return self._stages(table, state)

    def loads(self, stages: Sequence[tuple[int, int]]) -> list[int]:
        """Return the loads of the given stages, in steps."""
        costs, before, found = self.costs, 0, []
        flows = costs.groups.flows()
        for end, kind in stages:
            own = set(self.sets.between(before, end))
            away = sum(
                int(costs.away[kind, k]) for k, f in enumerate(flows) if f.maker in own and not set(f.readers) <= own
            )
            back = sum(
                int(costs.back[kind, k]) for k, f in enumerate(flows) if f.maker not in own and own & set(f.readers)
            )
            pays = costs.pays[kind]
            work = int(costs.time[kind, sorted(own)].sum()) + away * pays[0] + back * pays[1]
            found.append(max(work, away + back if pays[2] else max(away, back)))
            before = end
        return found

    def _stages(self, table: downset_table_kernel.Table, state: int) -> list[tuple[int, int]]:
        steps = self._steps()
        at, found = len(self.sets) - 1, []
        while at:
            kind = int(table.kind[at, state])
            found.append((at, kind))
            at, state = int(table.came[at, state]), state - steps[kind]
        return found[::-1]

    def _steps(self) -> list[int]:
        steps = [1]
        for own in self.costs.classes[:-1]:
            steps.append(steps[-1] * (len(own) + 1))
        return steps

    def _bound(self, records: Any) -> Callable[[int, int], None]:
        if self._first is None:
            if len(self.sets) >= COMPILED_FROM:
                from remat_algorithms.parallel.placement.downset_table_compiled import FILL

                self._first = FILL.bind(*records)
            else:
                self._first = lambda *numbers: downset_table_kernel.fill(*records, *numbers)
        return self._first  # type: ignore[no-any-return]

    def _prepared(self) -> Any:
        if self._records is None:
            self._records = _records(self.costs, self.sets, self._steps())
        return self._records


def _records(costs: Staged, sets: DownSets, steps: Sequence[int]) -> Any:
    kinds, count, states = len(costs.classes), len(costs.groups), costs.states
    each = downset_table_kernel.Sets(
        sets.start,
        sets.group,
        sets.target,
        np.stack([sets.totals(row) for row in costs.time.tolist()]),
        np.stack([sets.totals(row) for row in costs.unable.astype(np.int64).tolist()]),
        sets.totals(costs.least.tolist()),
        sets.totals(costs.size),
        sets.totals(costs.held or [0] * count),
    )
    used = np.zeros(states, dtype=np.int64)
    left = np.zeros(states, dtype=np.float64)
    speeds = costs.speeds
    for state in range(states):
        for kind, own in enumerate(costs.classes):
            digit = state // steps[kind] % (len(own) + 1)
            used[state] += digit
            left[state] += (len(own) - digit) * speeds[kind]
    pays_away, pays_back, one_way = np.array(costs.pays, dtype=np.int64).reshape(-1, 3).T.copy()
    devices = downset_table_kernel.Devices(
        np.array([len(own) for own in costs.classes], dtype=np.int64),
        np.array(steps, dtype=np.int64),
        np.array(costs.room, dtype=np.int64),
        pays_away,
        pays_back,
        one_way,
        left,
        used,
        costs.flights,
    )
    table = downset_table_kernel.Table(*(np.full((len(sets), states), -1, dtype=np.int64) for _ in range(3)))
    flows = costs.groups.flows()
    scratch = downset_table_kernel.Scratch(
        np.zeros(len(sets), dtype=np.int64),
        *(np.zeros(count + 2, dtype=np.int64) for _ in range(3)),
        *(np.zeros(max(1, len(flows)), dtype=np.int64) for _ in range(2)),
    )
    return each, _passes(costs, kinds), devices, table, scratch, downset_table_kernel.Walked()


def _passes(costs: Staged, kinds: int) -> downset_table_kernel.Passes:
    entries: list[list[tuple[int, int]]] = [[] for _ in range(len(costs.groups))]
    flows = costs.groups.flows()
    for index, flow in enumerate(flows):
        entries[flow.maker].append((index, 1))
        for reader in flow.readers:
            entries[reader].append((index, 2))
    start = np.zeros(len(entries) + 1, dtype=np.int64)
    np.cumsum([len(own) for own in entries], out=start[1:])
    listed = [entry for own in entries for entry in own] or [(0, 1)]
    blank = np.zeros((kinds, 1), dtype=np.int64)
    return downset_table_kernel.Passes(
        start,
        np.array([flow for flow, _ in listed], dtype=np.int64),
        np.array([role for _, role in listed], dtype=np.int64),
        np.array([len(flow.readers) for flow in flows] or [0], dtype=np.int64),
        np.ascontiguousarray(costs.away if flows else blank),
        np.ascontiguousarray(costs.back if flows else blank),
    )


def homes_of(costs: Staged, sets: DownSets, stages: Sequence[tuple[int, int]]) -> list[int]:
    """Return the processor of each group, for the stages found by a search."""
    left = [list(own) for own in costs.classes]
    found = [-1] * len(costs.groups)
    before = 0
    for end, kind in stages:
        processor = left[kind].pop(0)
        for group in sets.between(before, end):
            found[group] = processor
        before = end
    return found


def orders(groups: Ordered) -> Iterator[list[int]]:
    """Yield some orders of the groups: as listed, breadth first, and depth first."""
    count = len(groups)
    following: list[list[int]] = [[] for _ in range(count)]
    for group, before in enumerate(groups.after):
        for other in before:
            following[other].append(group)
    for deep in (None, False, True):
        if deep is None:
            yield list(range(count))
            continue
        missing = [len(before) for before in groups.after]
        ready = [group for group in range(count) if not missing[group]]
        order = []
        while ready:
            group = ready.pop() if deep else ready.pop(0)
            order.append(group)
            for other in following[group]:
                missing[other] -= 1
                if not missing[other]:
                    ready.append(other)
        yield order
