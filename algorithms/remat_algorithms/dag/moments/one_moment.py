"""Exact solution for one moment in one memory: a sweep over the reruns, from the last task to the first.

Let R be the set of tasks that rerun after the moment. A value is needed if a first run after the moment reads it, if it
must be present at the end, or if a task of R reads it. A needed value whose producer is not in R is kept. The program
is

    minimize the sum of c_k over R,   subject to the sum of M_v over kept v <= B (argument `room`).

The sweep decides the tasks from the last to the first. The decided tasks matter only through the set of values that
they need from undecided producers. In a network, these are a handful. For a price p per byte, the minimum of c(R) + p
M(R) is a shortest path over these sets. Let L be its length. Then

    c(R) - (L - p B) = (c(R) + p M(R) - L) + p (B - M(R)),

a sum of two terms that are at least 0 for all R that fit. All R within D of the bound L - p B therefore pass through
labels (set, bytes, time) whose first term is at most D, measured by the exact distance to the end. The sweep lists
these labels. It discards those that another label of the same set dominates in bytes and time. It ends with the best
label, or with a proof that the optimum is more than D above the bound; then it doubles D. Equal layers give equal
labels, which a branch and bound would enumerate. If a set has too many labels, those of nearly equal bytes merge into
one with the minimum bytes and the minimum time. The bound remains valid, and a solution's own bytes decide whether it
fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.dag.moments.formulation import YES, MomentProgram
from remat_algorithms.dag.moments.integer_facts import Facts

WIDEST = 61
"""Bits of bytes times their price, and of time, in all."""

MOST_SETS, MOST_STATES = 512, 400_000
"""Maximum number of sets between two tasks, and in total, for a sweep."""

FEW_LABELS, MOST_LABELS = 1 << 13, 1 << 17
"""Maximum labels per set before labels of nearly equal bytes merge: initially, and after repeated sweeps."""

FIRST, LAST, WIDER = 20, 8, 4
"""Exponents of two: divisors of the total rerun time that give the first and the last distance from the bound, and the
maximum growth factor between distances.
"""


@dataclass(frozen=True)
class Swept:
    """Result of the sweep.

    Attributes
    ----------
    bound : int
        Lower bound on every solution, in units of time.
    again : set of int or None
        Tasks that rerun in the best solution found; None if no solution found fits.
    cost : int
        Their time.
    """

    bound: int
    again: set[int] | None
    cost: int


Choice = tuple[int, int, int, int]
"""Bytes, units of time, the set after the choice, and the task that reruns or -1."""

Steps = list[dict[int, tuple[Choice, ...]]]
"""For each decision, and each set before it, the choices."""


def sweep(
    built: MomentProgram, price: float, *, stopped: Callable[[], bool], near: int = 0, most: int = FEW_LABELS
) -> Swept | None:
    """Solve a program of one moment in one memory; None for other programs, or if there are too many sets.

    Parameters
    ----------
    built : MomentProgram
        For one moment in a listed order, without secondary memories, and with at most one producer for each value.
    price : float
        Units of time per byte, near the optimum of the relaxation.
    stopped : callable
        Checked at each decision.
    near : int
        Sufficient distance of a solution from the bound, in units of time.
    most : int
        Initial maximum of labels per set.

    Notes
    -----
    O(tasks * sets * labels of a set).
    """
    plain = len(built.moments) == 1 and built.behind is None and built.order.listed
    if not plain or any(len(makers) > 1 for makers in built.facts.makers) or not 0 <= price < math.inf:
        return None
    decisions, room = _decisions(built)
    steps = _steps(decisions, stopped)
    if steps is None:
        return None
    total = max(1, sum(decision.cost for decision in decisions))
    everything = max(1, room, sum(size for decision in decisions for _, size in decision.sizes))
    bits = WIDEST - max(total.bit_length(), math.frexp(price * everything + 1)[1])
    if bits < FIRST // 2:
        return None
    graph = _Graph(steps, round(math.ldexp(price, bits)), bits, room)
    best: tuple[int, set[int]] | None = None
    bound = graph.reached(0)
    reach, last = max(1, (total << bits) >> FIRST), (total << bits) >> LAST
    while reach <= last and most <= MOST_LABELS:
        found = graph.labels(reach, most, stopped)
        if found is None:
            break
        bound = max(bound, min(found.least, graph.reached(reach)))
        if found.again is not None and (best is None or found.cost < best[0]):
            best = found.cost, found.again
        if best is not None and best[0] - near <= bound:
            break
        if found.least < graph.reached(reach):
            most *= 4
        else:
            # The distance that would prove the best solution good enough, unless that is far.
            wanted = last if best is None else (best[0] - near << bits) - graph.base
            reach = min(reach << WIDER, max(wanted, reach << 1))
    return Swept(bound, best[1] if best else None, best[0] if best else 0)


@dataclass(frozen=True)
class _Found:
    """The minimum time of all labels at the end, and the best solution that fits."""

    least: int
    cost: int
    again: set[int] | None


class _Graph:
    """Sets and choices as a graph, with the exact distance of each set from the start and to the end.

    Distances are scaled by 2 to the power of `bits`: bytes at their price, and time.
    """

    def __init__(self, steps: Steps, price: int, bits: int, room: int) -> None:
        self.steps, self.price, self.bits, self.room = steps, price, bits, room
        self.ahead: list[dict[int, int]] = [{0: 0}]
        for step in reversed(steps):
            behind = self.ahead[-1]
            self.ahead.append(
                {values: min(self.length(c) + behind[c[2]] for c in choices) for values, choices in step.items()}
            )
        self.ahead.reverse()

    def length(self, choice: Choice) -> int:
        """Return the scaled price and time of a choice."""
        return self.price * choice[0] + (choice[1] << self.bits)

    @property
    def base(self) -> int:
        """The scaled bound that the price gives."""
        return self.ahead[0][0] - self.price * self.room

    def reached(self, reach: int) -> int:
        """Return the time at a distance above that bound, in units, rounded up; at least 0."""
        return max(0, -(-(self.base + reach) >> self.bits))

    def labels(self, reach: int, most: int, stopped: Callable[[], bool]) -> _Found | None:
        """List the labels within a scaled distance of the bound, at most `most` of each set; None if `stopped`."""
        limit = self.ahead[0][0] + reach
        passed = {0: 0}
        here: dict[int, _Labels] = {0: _Labels.start()}
        for step, ahead in zip(self.steps, self.ahead[1:], strict=True):
            if stopped():
                return None
            following: dict[int, list[_Labels]] = {}
            nearest: dict[int, int] = {}
            for values, labels in here.items():
                near = [
                    (choice, length)
                    for choice in step[values]
                    if (length := passed[values] + self.length(choice)) + ahead[choice[2]] <= limit
                ]
                for choice, length in near:
                    following.setdefault(choice[2], []).append(labels.after(choice))
                    nearest[choice[2]] = min(length, nearest.get(choice[2], length))
            here = {}
            for values, parts in following.items():
                joined = parts[0] if len(parts) == 1 else self._joined(parts, limit - ahead[values], most)
                if joined is not None:
                    here[values] = joined
            passed = nearest
        last = self._joined([here[0]], limit, most) if 0 in here else None
        return _Found(self.reached(reach) + 1, 0, None) if last is None else self._found(last)

    def _joined(self, parts: list[_Labels], limit: int, most: int) -> _Labels | None:
        """Return the undominated labels of a set that are within the limits."""
        size, cost, own, node = (np.concatenate(columns) for columns in zip(*(p.columns for p in parts), strict=True))
        keep = np.flatnonzero((size <= self.room) & (self.price * size + (cost << self.bits) <= limit))
        if not len(keep):
            return None
        # Each part is already sorted, so this is a merge.
        order = keep[size[keep].argsort(kind="stable")]
        least = np.minimum.accumulate(cost[order])
        order = order[np.concatenate(([True], least[1:] < least[:-1]))]
        size = size[order]
        order = order[np.concatenate((size[1:] != size[:-1], [True]))]
        size, cost, own, node = (
            size[np.concatenate((size[1:] != size[:-1], [True]))],
            cost[order],
            own[order],
            node[order],
        )
        if len(order) > most:
            bucket = size // max(1, int(size[-1] - size[0]) // most)
            # Of each bucket, take the last label, which has the minimum time, with the bytes of the first.
            last = np.flatnonzero(np.concatenate((bucket[1:] != bucket[:-1], [True])))
            first = np.concatenate(([0], last[:-1] + 1))
            size, cost, own, node = size[first], cost[last], own[last], node[last]
        return _Labels(size, cost, own, node, 0, 0, parts[0].tree)

    def _found(self, labels: _Labels) -> _Found:
        _, cost, own, node = labels.columns
        fits = np.flatnonzero(own <= self.room)
        if not len(fits):
            return _Found(int(cost.min()), 0, None)
        best = fits[int(np.argmin(cost[fits]))]
        return _Found(int(cost.min()), int(cost[best]), labels.tree.path(int(node[best])))


class _Tree:
    """The tasks that rerun on the path to each label: one node for each label and additional task."""

    def __init__(self) -> None:
        self.parents: list[IntArray] = [np.full(1, -1, dtype=np.int64)]
        self.tasks: list[int] = [-1]
        self.starts: list[int] = [0]
        self.count = 1

    def add(self, parents: IntArray, task: int) -> IntArray:
        """Return new nodes below others, for one more task."""
        self.parents.append(parents)
        self.tasks.append(task)
        self.starts.append(self.count)
        nodes = np.arange(self.count, self.count + len(parents), dtype=np.int64)
        self.count += len(parents)
        return nodes

    def path(self, node: int) -> set[int]:
        """Return the tasks on the path to a node."""
        tasks = set[int]()
        while node > 0:
            block = int(np.searchsorted(self.starts, node, side="right")) - 1
            tasks.add(self.tasks[block])
            node = int(self.parents[block][node - self.starts[block]])
        return tasks


@dataclass(frozen=True)
class _Labels:
    """Labels of a set, as columns: bytes and time for comparisons, their own bytes, and their nodes.

    `more_size` and `more_cost` are added to all of them.
    """

    size: IntArray
    cost: IntArray
    own: IntArray
    node: IntArray
    more_size: int
    more_cost: int
    tree: Any

    @staticmethod
    def start() -> _Labels:
        """Return the single label of the start."""
        zero = np.zeros(1, dtype=np.int64)
        return _Labels(zero, zero, zero, zero, 0, 0, _Tree())

    def after(self, choice: Choice) -> _Labels:
        """Return the labels after a choice."""
        size, cost, _, task = choice
        node = self.node if task < 0 else self.tree.add(self.node, task)
        return _Labels(self.size, self.cost, self.own, node, self.more_size + size, self.more_cost + cost, self.tree)

    @property
    def columns(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """All columns, with the added terms."""
        return self.size + self.more_size, self.cost + self.more_cost, self.own + self.more_size, self.node


@dataclass(frozen=True)
class _Decision:
    """The decision to rerun a task, or to keep its needed values; `task` -1: only the latter.

    Values are bits; `wanted` are those needed whatever reruns, and `sizes` contains (bit, bytes).
    """

    task: int
    cost: int
    makes: int
    wanted: int
    reads: int
    sizes: tuple[tuple[int, int], ...]

    def bytes_of(self, values: int) -> int:
        return sum(size for bit, size in self.sizes if values & bit)


def _decisions(built: MomentProgram) -> tuple[list[_Decision], int]:
    """Return the decisions, the last task first, and the bytes available for the values that they keep."""
    facts, at = built.facts, built.moments[0]
    size, again = facts.size, built.again[0]
    room = built.budget - facts.always
    room -= facts.written[at] + facts.workspace[at] if built.spared[0] else facts.needs(at)
    free = {v for v, state in built.resident[0].items() if state == YES}
    room -= sum(size[value] for value in free if not facts.pinned[value])
    if built.spared[0]:
        # Overwritten values do not add to the written ones; spared values count as kept.
        room += sum(size[value] for value in facts.reads[at] if not facts.pinned[value])
    countable = [v for v in built.resident[0] if v not in free or v in built.spared[0]]
    bit = {value: 1 << number for number, value in enumerate(countable)}
    needed = {value for value in countable if facts.stays[value] or is_read_behind(facts, value, at)}
    maker = {value: makers[0] if (makers := facts.makers[value]) and makers[0] in again else -1 for value in countable}
    behind: dict[int, list[int]] = {}
    for value in countable:
        readers = [facts.place[user] for user in facts.users[value] if user in again]
        if maker[value] < 0 and value in needed:
            room -= size[value]
        elif maker[value] < 0 and readers:
            behind.setdefault(min(readers), []).append(value)
    bits = {value: each for value, each in bit.items() if maker[value] >= 0 or value not in needed}
    decisions = []
    for task in sorted(again, key=facts.place.__getitem__, reverse=True):
        made = [value for value in facts.writes[task] if maker.get(value, -1) == task]
        if made:
            decisions.append(_decision(built, task, made, bits, needed))
        kept = behind.get(facts.place[task], ())
        decisions += [_Decision(-1, 0, bits[value], 0, 0, ((bits[value], size[value]),)) for value in kept]
    return decisions, room


def _decision(built: MomentProgram, task: int, made: list[int], bits: dict[int, int], needed: set[int]) -> _Decision:
    facts = built.facts
    reads = sum(bits[value] for value in facts.reads[task] if value in bits and value not in needed)
    wanted = sum(bits[value] for value in made if value in needed)
    sizes = tuple((bits[value], facts.size[value]) for value in made)
    return _Decision(task, facts.cost[task], sum(bits[value] for value in made), wanted, reads, sizes)


def is_read_behind(facts: Facts, value: int, at: int) -> bool:
    """Whether a first run after that of task `at`, in the listed order, reads a value."""
    return any(facts.place[user] > facts.place[at] for user in facts.users[value])


def _steps(decisions: list[_Decision], stopped: Callable[[], bool]) -> Steps | None:
    """List the possible sets before each decision, with their choices; None if there are too many."""
    steps: Steps = []
    here, states = {0}, 0
    for decision in decisions:
        states += len(here)
        if len(here) > MOST_SETS or states > MOST_STATES or stopped():
            return None
        step: dict[int, tuple[Choice, ...]] = {}
        for values in here:
            wanted, rest = values & decision.makes | decision.wanted, values & ~decision.makes
            if not wanted:
                step[values] = ((0, 0, rest, -1),)
            elif decision.task < 0:
                step[values] = ((decision.bytes_of(wanted), 0, rest, -1),)
            else:
                kept = (decision.bytes_of(wanted), 0, rest, -1)
                step[values] = (kept, (0, decision.cost, rest | decision.reads, decision.task))
        here = {choice[2] for choices in step.values() for choice in choices}
        steps.append(step)
    return steps
