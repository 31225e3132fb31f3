"""Orders of runs in which some values are freed between two uses and recomputed before the second one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from remat.plugin import Number
from remat_algorithms.offload.swaps.swaps import Order


@dataclass(frozen=True)
class Remade:
    """Runs with recomputation.

    Attributes
    ----------
    tasks : list of int
    origin : list of int
        Position of each run in the original order; -1 for a repeated run.
    """

    tasks: list[int]
    origin: list[int]


class Remaking:
    """Possible recomputation in an order that runs each task once.

    A value is recomputed from the reads of its producer. Those that are lost, too, or freed, are recomputed before.

    Parameters
    ----------
    order : Order
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        graph = order.graph
        self.reads, self.writes = graph.reads.to_lists(), graph.writes.to_lists()
        self.times: list[Number] = graph.time.tolist()
        repeatable = graph.recomputable & ~graph.once
        self.producers = [[task for task in row if repeatable[task]] for row in graph.producers.to_lists()]
        self.inputs = set(order.inputs)
        self.written: dict[int, int] = {}
        self.latest: dict[int, int] = {}
        for position, task in enumerate(order.tasks):
            for value in self.writes[task]:
                self.written.setdefault(value, position)
            for value in (*self.reads[task], *self.writes[task]):
                self.latest[value] = position
        self.latest.update(dict.fromkeys(order.outputs, len(order.tasks)))
        self.known: dict[int, _Known] = {}

    def time(self, gap: int, lost: Iterable[int]) -> Number:
        """Return the time to recompute a gap's value at its end while other gaps' values are lost, too.

        Infinite if a task that must not be repeated would be needed. O(lost values, and repeated tasks). Only O(lost
        values) if the values that the last answer depended on are unchanged.
        """
        at = self.order.gaps[gap].before
        missing = self._missing(at, lost) | {self.order.gaps[gap].value}
        known = self.known.get(gap)
        if known is not None and known.missing <= missing and known.used.isdisjoint(missing - known.missing):
            known.missing = missing
            return known.time
        used: set[int] = set()
        runs = self._runs_for(self.order.gaps[gap].value, at, missing, used)
        time = float(np.inf) if runs is None else sum(self.times[task] for task in runs)
        self.known[gap] = _Known(missing, used, time)
        return time

    def order_without(self, lost: Iterable[int], *, keep: bool) -> Remade | None:
        """Return the runs when the values of some gaps are lost in them.

        Parameters
        ----------
        lost : iterable of int
            Gaps.
        keep : bool
            Whether a value stays that is recomputed for another value and needed later.

        Returns
        -------
        Remade or None
            None if a task that must not be repeated would be needed.
        """
        order = self.order
        gone, due = defaultdict(list), defaultdict(list)
        for index in lost:
            gap = order.gaps[index]
            gone[gap.after].append(gap.value)
            due[gap.before].append(gap.value)
        missing: set[int] = set(gone[-1])
        tasks: list[int] = []
        origin: list[int] = []
        for position, task in enumerate(order.tasks):
            for value in due[position]:
                if value not in missing:
                    continue
                runs = self._runs_for(value, position, missing)
                if runs is None:
                    return None
                tasks += runs
                origin += [-1] * len(runs)
                missing.discard(value)
                if keep:
                    missing -= {made for run in runs for made in self.writes[run]}
            tasks.append(task)
            origin.append(position)
            missing.update(gone[position])
        return Remade(tasks, origin)

    def _missing(self, at: int, lost: Iterable[int]) -> set[int]:
        gaps = self.order.gaps
        return {gaps[index].value for index in lost if gaps[index].after < at <= gaps[index].before}

    def _runs_for(self, value: int, at: int, missing: set[int], used: set[int] | None = None) -> list[int] | None:
        """Return the runs that compute a value before position `at`, in order; None if that is impossible.

        Adds to `used` the values whose residency the answer depends on.
        """
        used = set() if used is None else used
        runs: list[int] = []
        made: set[int] = set()
        opened: set[int] = set()
        stack = [(value, False)]
        reads, inputs, written, latest = self.reads, self.inputs, self.written, self.latest
        while stack:
            wanted, ready = stack.pop()
            if wanted in made:
                continue
            task = self._producer(wanted, missing, used)
            if task is None:
                return None
            if ready:
                runs.append(task)
                made.update(self.writes[task])
                continue
            if wanted in opened:
                return None  # computed from itself
            opened.add(wanted)
            stack.append((wanted, True))
            for read in reads[task]:
                if read in made:
                    continue
                # Whether it is resident before position `at`; an input may be kept longer.
                if read not in missing and (read in inputs or written.get(read, at) < at <= latest[read]):
                    used.add(read)
                else:
                    stack.append((read, False))
        return runs

    def _producer(self, value: int, missing: set[int], used: set[int]) -> int | None:
        """Return the task that computes a value: the fastest one; of equals, the one with the most missing outputs."""
        producers = self.producers[value]
        if len(producers) == 1:
            return producers[0]
        for task in producers:
            used.update(self.writes[task])
        return min(
            producers,
            key=lambda task: (self.times[task], -sum(made in missing for made in self.writes[task]), task),
            default=None,
        )


@dataclass(slots=True)
class _Known:
    """The time to recompute a value when some values are missing, and the values whose residency it depends on."""

    missing: set[int]
    used: set[int]
    time: Number
