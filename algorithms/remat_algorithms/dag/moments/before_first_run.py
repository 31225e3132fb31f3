"""Tasks that have run before the first run of another task, in one order or in every order.

Both classes also bound the processor time that must pass before a value can first be complete, and after it is first
needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from remat_algorithms.dag.moments.integer_facts import Facts, sums

Ran = bool | None
"""Whether a task has run before a moment; None: the schedule decides."""

FAR = 1 << 62
"""Later than any time."""


class Order(Protocol):
    """A class of schedules, defined by constraints on first runs."""

    @property
    def facts(self) -> Facts:
        """The problem."""
        ...

    @property
    def listed(self) -> bool:
        """Whether forced tasks first run in the order of `Facts.order`; a task without readers may also run later."""
        ...

    def before(self, task: int) -> list[Ran]:
        """Return for each task whether it has run at the first run of `task`, which must run."""
        ...

    @property
    def lead(self) -> list[int]:
        """Minimum units of time that have passed when each value is first complete; 0 for initial values."""
        ...

    def tails(self, moment: int, ran: Sequence[object]) -> list[int]:
        """Return the minimum units of time that pass after each value is first needed after a moment.

        -1 for values that no task must read then. `ran` is `before(moment)`, or has False wherever that has False.
        """
        ...


@dataclass(frozen=True)
class Listed:
    """Schedules whose forced tasks first run in the order of `Facts.order`.

    A task whose values no task reads may run later at no cost; its run in the order is then omitted.
    """

    facts: Facts

    @property
    def listed(self) -> bool:
        """See `Order`."""
        return True

    @cached_property
    def elapsed(self) -> list[int]:
        """Units of time, rounded up, of the first runs before each position of the order, and of all runs."""
        return sums([self.facts.length[task] for task in self.facts.order])

    def before(self, task: int) -> list[Ran]:
        """See `Order`; O(accesses)."""
        facts = self.facts
        until = facts.place[task]
        ran: list[Ran] = [0 <= place < until for place in facts.place]
        if len(facts.order) < len(ran):
            possible = _possible(facts, [place < 0 or place < until for place in facts.place])
            for other, place in enumerate(facts.place):
                if place < 0 and possible[other]:
                    ran[other] = None
        return ran

    @property
    def lead(self) -> list[int]:
        """See `Order`; O(accesses)."""
        return self._lead

    @cached_property
    def _lead(self) -> list[int]:
        facts = self.facts
        # Tasks without readers may run later.
        least = sums([facts.cost[task] for task in facts.order])
        return _leads(facts, {task: least[place + 1] for place, task in enumerate(facts.order)})

    def tails(self, moment: int, ran: Sequence[object]) -> list[int]:
        """See `Order`; O(accesses)."""
        facts = self.facts
        tails, passed = [-1] * len(facts.size), 0
        for place in range(len(facts.order) - 1, facts.place[moment], -1):
            task = facts.order[place]
            passed += facts.time[task]
            if not facts.unread[task]:
                for value in facts.reads[task]:
                    tails[value] = passed
        return tails


@dataclass(frozen=True)
class Free:
    """All schedules."""

    facts: Facts

    @property
    def listed(self) -> bool:
        """See `Order`."""
        return False

    def before(self, task: int) -> list[Ran]:
        """See `Order`; O(accesses)."""
        facts = self.facts
        possible = _possible(facts, [other != task for other in facts.tasks])
        ran: list[Ran] = [None if each else False for each in possible]
        todo = [task]
        while todo:
            for value in facts.reads[todo.pop()]:
                maker = facts.maker[value]
                if maker >= 0 and not ran[maker]:
                    ran[maker] = True
                    todo.append(maker)
        return ran

    @property
    def lead(self) -> list[int]:
        """See `Order`: the longest path that ends with the value; O(accesses)."""
        return self._lead

    @cached_property
    def _lead(self) -> list[int]:
        return _leads(self.facts, {})

    @cached_property
    def _after(self) -> list[int]:
        """Units of time of each task plus the longest path of forced tasks that must follow it."""
        facts = self.facts
        after = [facts.time[task] for task in facts.tasks]
        for task in reversed(facts.order):
            for value in facts.reads[task]:
                maker = facts.maker[value]
                if maker >= 0:
                    after[maker] = max(after[maker], facts.time[maker] + after[task])
        return after

    def tails(self, moment: int, ran: Sequence[object]) -> list[int]:
        """See `Order`; O(accesses)."""
        facts = self.facts
        tails = [-1] * len(facts.size)
        for task in facts.order:
            if ran[task] is False and task != moment:
                for value in facts.reads[task]:
                    tails[value] = max(tails[value], self._after[task])
        return tails


def _possible(facts: Facts, may: Sequence[bool]) -> list[bool]:
    """Return which tasks can run if only the tasks in `may` run; O(accesses)."""
    there = list(facts.there)
    missing = [0] * len(may)
    for task in facts.tasks:
        missing[task] = sum(not there[value] for value in facts.reads[task])
    ready = [task for task in facts.tasks if may[task] and missing[task] == 0]
    possible = [False] * len(may)
    for task in ready:
        possible[task] = True
        for value in facts.writes[task]:
            if not there[value]:
                there[value] = True
                for user in facts.users[value]:
                    missing[user] -= 1
                    if missing[user] == 0 and may[user]:
                        ready.append(user)
    return possible


def _leads(facts: Facts, known: dict[int, int]) -> list[int]:
    """Return for each value the minimum time at which a run that computes it can end.

    `known` contains these times for some tasks; for others, the longest path to the task counts. O(accesses log tasks).
    """
    import heapq

    lead = [0 if there else FAR for there in facts.there]
    missing = [sum(lead[value] == FAR for value in row) for row in facts.reads]
    heap = [(known.get(task, facts.time[task]), task) for task in facts.tasks if missing[task] == 0]
    heapq.heapify(heap)
    # In order of time, as in Dijkstra's algorithm: of several producers, the first one counts.
    while heap:
        end, task = heapq.heappop(heap)
        for value in facts.writes[task]:
            if lead[value] < FAR:
                continue
            lead[value] = end
            for user in facts.users[value]:
                missing[user] -= 1
                if missing[user] == 0:
                    longest = max((lead[read] for read in facts.reads[user]), default=0)
                    heapq.heappush(heap, (known.get(user, longest + facts.time[user]), user))
    return lead
