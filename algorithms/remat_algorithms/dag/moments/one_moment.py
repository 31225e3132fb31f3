"""One moment in one memory, exactly: a sweep over what is made again, from the last task to the first.

Let R be the tasks that run again after the moment. A value is wanted if a first run behind the moment reads it, if it
must be there at the end, or if a task of R reads it; a wanted value whose maker is not in R is kept. The program is

    minimise the sum of c_k over R,   the sum of M_v over kept v <= room.

Tasks are decided from the last to the first. What matters of those decided is which values they want whose makers
come yet: in a network, a handful. For a price p of a byte, the least of c(R) + p M(R) is a shortest path over these
sets, and with L it

    c(R) - (L - p room) = (c(R) + p M(R) - L) + p (room - M(R)),

a sum of two terms that are at least 0 for all R that fit. So all R within D of the bound L - p room go through labels
(set, bytes, time) whose first term is at most D, by the exact distance to go: the sweep lists them, leaves out what
another label of the set has in fewer bytes and less time, and ends with the best one, or with the proof that the
optimum is more than D above the bound; then D is doubled. Equal layers give equal labels, which a search would go
through one by one. Where labels are too many, those of nearly the same bytes become one, with the least bytes and the
least time of them: what is proved then is still true, and whether a solution fits is told from its own bytes.
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
"""Sets between two tasks, and in all, up to which the sweep is made."""

FEW_LABELS, MOST_LABELS = 1 << 13, 1 << 17
"""Labels of a set beyond which those of nearly the same bytes become one: at first, and where that says too little."""

FIRST, LAST, WIDER = 20, 8, 4
"""The first distance from the bound is the time of all reruns by 2 to the power of this, the last one, of that; and
from one to the next it grows by this power at most."""


@dataclass(frozen=True)
class Swept:
    """What the sweep has found.

    Attributes
    ----------
    bound : int
        Units of time that every solution takes, at least.
    again : set of int or None
        Tasks that run again in the best solution of those looked at; None: none of these fits.
    cost : int
        Their time.
    """

    bound: int
    again: set[int] | None
    cost: int


Choice = tuple[int, int, int, int]
"""Bytes, units of time, the set behind, and the task that runs again or -1."""

Steps = list[dict[int, tuple[Choice, ...]]]
"""For each decision, and each set before it, the choices."""


def sweep(
    built: MomentProgram, price: float, *, stopped: Callable[[], bool], near: int = 0, most: int = FEW_LABELS
) -> Swept | None:
    """Solve a program of one moment in one memory; None where it is another one, or takes too many sets.

    Parameters
    ----------
    built : MomentProgram
        Of one moment in a listed order, without memories behind, each value with at most one maker.
    price : float
        Units of time for a byte, at about the optimum of the relaxation.
    stopped : callable
        Asked for each decision.
    near : int
        Units of time within which of the bound a solution is good enough.
    most : int
        Labels of a set at first.

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
            # What proves that the best one is as good as is asked for, unless that is far.
            wanted = last if best is None else (best[0] - near << bits) - graph.base
            reach = min(reach << WIDER, max(wanted, reach << 1))
    return Swept(bound, best[1] if best else None, best[0] if best else 0)


@dataclass(frozen=True)
class _Found:
    """The least time of all labels at the end, and the best solution that fits."""

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
        """The scaled bound of the price."""
        return self.ahead[0][0] - self.price * self.room

    def reached(self, reach: int) -> int:
        """Return the time of what is so far above that bound, in units, rounded up; 0 at least."""
        return max(0, -(-(self.base + reach) >> self.bits))

    def labels(self, reach: int, most: int, stopped: Callable[[], bool]) -> _Found | None:
        """List the labels within a scaled distance of the bound, so many of each set; None if `stopped`."""
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
        """Return the labels of a set: those that may still come to something, and that no other one has cheaper."""
        size, cost, own, node = (np.concatenate(columns) for columns in zip(*(p.columns for p in parts), strict=True))
        keep = np.flatnonzero((size <= self.room) & (self.price * size + (cost << self.bits) <= limit))
        if not len(keep):
            return None
        # Each part is sorted already, so that this is a merge.
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
            # Of each bucket the last one, which takes least time, with the bytes of the first.
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
    """Which tasks run again on the way to a label: a node for each label that one more of them has led to."""

    def __init__(self) -> None:
        self.parents: list[IntArray] = [np.full(1, -1, dtype=np.int64)]
        self.tasks: list[int] = [-1]
        self.starts: list[int] = [0]
        self.count = 1

    def add(self, parents: IntArray, task: int) -> IntArray:
        """Return new nodes below others, by one more task."""
        self.parents.append(parents)
        self.tasks.append(task)
        self.starts.append(self.count)
        nodes = np.arange(self.count, self.count + len(parents), dtype=np.int64)
        self.count += len(parents)
        return nodes

    def path(self, node: int) -> set[int]:
        """Return the tasks on the way to a node."""
        tasks = set[int]()
        while node > 0:
            block = int(np.searchsorted(self.starts, node, side="right")) - 1
            tasks.add(self.tasks[block])
            node = int(self.parents[block][node - self.starts[block]])
        return tasks


@dataclass(frozen=True)
class _Labels:
    """Labels of a set, as columns: bytes and time by which they are compared, their own bytes, and their nodes.

    `more_size` and `more_cost` are to be added to all of them.
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
        """Return the one label of the start."""
        zero = np.zeros(1, dtype=np.int64)
        return _Labels(zero, zero, zero, zero, 0, 0, _Tree())

    def after(self, choice: Choice) -> _Labels:
        """Return the labels behind a choice."""
        size, cost, _, task = choice
        node = self.node if task < 0 else self.tree.add(self.node, task)
        return _Labels(self.size, self.cost, self.own, node, self.more_size + size, self.more_cost + cost, self.tree)

    @property
    def columns(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """All columns, as they are."""
        return self.size + self.more_size, self.cost + self.more_cost, self.own + self.more_size, self.node


@dataclass(frozen=True)
class _Decision:
    """To run a task again, or to keep what is wanted of its values; `task` -1: only the latter.

    Values are bits; `wanted` are those that are, whatever runs again, and `sizes` has (bit, bytes).
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
    """Return the decisions, the last task first, and the bytes that are left for what they keep."""
    facts, at = built.facts, built.moments[0]
    size, again = facts.size, built.again[0]
    room = built.budget - facts.always
    room -= facts.written[at] + facts.workspace[at] if built.spared[0] else facts.needs(at)
    free = {v for v, state in built.resident[0].items() if state == YES}
    room -= sum(size[value] for value in free if not facts.pinned[value])
    if built.spared[0]:
        # What is written over is not there beside what is written; what is spared counts as kept.
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
    """Whether a first run behind that of another task, in the listed order, reads a value."""
    return any(facts.place[user] > facts.place[at] for user in facts.users[value])


def _steps(decisions: list[_Decision], stopped: Callable[[], bool]) -> Steps | None:
    """List the sets that can come before each decision, and what follows; None if they are too many."""
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
