"""Orders of runs in which some values are lost between two uses and made again before the second one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from remat.plugin import Number
from remat_algorithms.offload.swaps.swaps import Order


@dataclass(frozen=True)
class Remade:
    """Runs, some of them again.

    Attributes
    ----------
    tasks : list of int
    origin : list of int
        Position of each run in the order that it was made from; -1 for one that is repeated.
    """

    tasks: list[int]
    origin: list[int]


class Remaking:
    """What can be remade in an order that runs each task once.

    A value is made again from what its producer reads; what of that is lost, too, or has been freed, is made again
    before.

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
        """Return the time of making a gap's value again at its end, other gaps' values being lost, too.

        Infinite where a task that may not run again would have to. O(lost values, and tasks that run again), or only
        the former where nothing is missing that was of use when it was last asked, and nothing is there again.
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
            Whether what is made again on the way to another value, and needed later, stays.

        Returns
        -------
        Remade or None
            None where a task that may not run again would have to.
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
        """Return the runs that make a value before position `at`, in order; None if that cannot be.

        Adds to `used` the values on whose being there, not missing, the answer depends.
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
                return None  # made from itself
            opened.add(wanted)
            stack.append((wanted, True))
            for read in reads[task]:
                if read in made:
                    continue
                # Whether it is resident before position `at`; an input may be held on for longer.
                if read not in missing and (read in inputs or written.get(read, at) < at <= latest[read]):
                    used.add(read)
                else:
                    stack.append((read, False))
        return runs

    def _producer(self, value: int, missing: set[int], used: set[int]) -> int | None:
        """Return the task that makes a value: the quickest one, of equal ones that which makes most that is missing."""
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
    """The time of making a value again when some values are missing, and those on whose being there it depends."""

    missing: set[int]
    used: set[int]
    time: Number
