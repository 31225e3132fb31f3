"""Precedence between tasks in every schedule, and moments at which every schedule must hold many bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remat_algorithms.dag.moments.integer_facts import Facts

MOST_TASKS = 20_000
"""Maximum number of tasks for lists of all ancestors and descendants: one bit for each pair."""

STEEP = 3
"""Exponent of the levels in the weight of a chain: it favors chains with many high levels."""

CHUNK = 256
"""Number of values whose bits are unpacked at once."""


@dataclass(frozen=True)
class Lineage:
    """Facts that hold in every order of the first runs of required tasks.

    Attributes
    ----------
    facts : Facts
    before, after : list of int
        Ancestors and descendants of each position of `Facts.order`, as bits, through values with one producer.
    level : list of int
        Minimum bytes at each position in every order: those of the run, those always resident, and values that are
        computed before the run and needed then or later.
    """

    facts: Facts
    before: list[int]
    after: list[int]
    level: list[int]

    @staticmethod
    def of(facts: Facts) -> Lineage:
        """Collect the facts; touches O(tasks * (accesses + values) / 8) bytes."""
        order, producer = facts.order, producers(facts)
        before, after = [0] * len(order), [0] * len(order)
        for place, task in enumerate(order):
            for value in facts.reads[task]:
                if producer[value] >= 0:
                    before[place] |= before[producer[value]] | 1 << producer[value]
        for place in reversed(range(len(order))):
            for value in facts.writes[order[place]]:
                if producer[value] == place:
                    for user in facts.users[value]:
                        if facts.place[user] >= 0:
                            after[place] |= after[facts.place[user]] | 1 << facts.place[user]
        return Lineage(facts, before, after, _levels(facts, producer, before, after))

    def chain(self) -> list[int]:
        """Return tasks, each an ancestor of the next: the adjacent pair of highest level, extended in both directions.

        O(accesses).
        """
        facts, level, producer = self.facts, self.level, producers(self.facts)
        if not level:
            return []
        pairs = [
            (producer[value], place)
            for place, task in enumerate(facts.order)
            for value in facts.reads[task]
            if producer[value] >= 0
        ]
        if not pairs:
            return [facts.order[max(range(len(level)), key=level.__getitem__)]]
        first, second = max(pairs, key=lambda pair: level[pair[0]] + level[pair[1]])
        middle = [first, second]
        parent, child = _heaviest(pairs, level), _heaviest([(b, a) for a, b in reversed(pairs)], level)
        while middle[0] in parent:
            middle.insert(0, parent[middle[0]])
        while middle[-1] in child:
            middle.append(child[middle[-1]])
        return [facts.order[place] for place in middle]

    def choose(self, chain: Sequence[int], count: int) -> list[int]:
        """Return `count` tasks of a chain, or one less, at high levels, as adjacent pairs: these give the best bounds.

        The choice for a smaller count is a subset of that for a larger one.
        """
        level = {task: self.level[self.facts.place[task]] for task in chain}
        pairs = sorted(itertools.pairwise(chain), key=lambda pair: -level[pair[0]] - level[pair[1]])
        if count == 1 or not pairs:
            return [max(pairs[0] if pairs else chain, key=level.__getitem__)]
        chosen: set[int] = set()
        for pair in pairs:
            if len(chosen.union(pair)) > count:
                break
            chosen.update(pair)
        return [task for task in chain if task in chosen]


def producers(facts: Facts) -> list[int]:
    """Return the position of each value's only producer; -1 if it has several or is present at the start."""
    return [facts.place[maker] if maker >= 0 else -1 for maker in facts.maker]


def _heaviest(pairs: Sequence[tuple[int, int]], level: Sequence[float]) -> dict[int, int]:
    """Return for each second position of some pair its predecessor on the heaviest path to it.

    The pairs are in a topological order of their second positions.
    """
    highest = max(level)
    weight = [(each / highest) ** STEEP if highest else 0.0 for each in level]
    best: dict[int, float] = {}
    through: dict[int, int] = {}
    for first, second in pairs:
        total = best.get(first, 0.0) + weight[first]
        if total > best.get(second, -1.0):
            best[second] = total
            through[second] = first
    return through


def _levels(facts: Facts, producer: Sequence[int], before: Sequence[int], after: Sequence[int]) -> list[int]:
    tasks = len(facts.order)
    everything = (1 << tasks) - 1
    level = np.array([facts.always + facts.needs(task) for task in facts.order], dtype=np.float64)
    known = (facts.here[value] or producer[value] >= 0 for value in facts.values)
    values = [value for value, sure in enumerate(known) if sure and not facts.pinned[value]]
    for start in range(0, len(values), CHUNK):
        rows = []
        for value in values[start : start + CHUNK]:
            past = everything if producer[value] < 0 else after[producer[value]]
            future = everything if facts.stays[value] else 0
            for user in facts.users[value]:
                if facts.place[user] >= 0:
                    future |= before[facts.place[user]] | 1 << facts.place[user]
            rows.append((past & future).to_bytes(tasks // 8 + 1, "little"))
        bits = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), -1)
        sizes = np.array([facts.size[value] for value in values[start : start + CHUNK]], dtype=np.float64)
        level += sizes @ np.unpackbits(bits, axis=1, count=tasks, bitorder="little")
    return [int(each) for each in level]


def listed_levels(facts: Facts) -> list[int]:
    """Return the bytes during the first run at each position of the listed order without reruns; O(accesses).

    Optional tasks count as run as soon as they can run.
    """
    order, places = facts.order, len(facts.order)
    made = earliest(facts)
    change, lasts = [0] * (places + 1), list[int]()
    for value in facts.values:
        users = [facts.place[user] for user in facts.users[value]]
        last = places - 1 if facts.stays[value] or facts.pinned[value] else max(users, default=-1)
        lasts.append(-1 if facts.stays[value] else last)
        if value in facts.begins and not facts.here[value]:
            made[value] = min((user for user in users if user >= 0), default=places) - 1
        if made[value] < places and last > made[value]:
            # While its task writes it, a value is part of the bytes that the task adds.
            change[made[value] + 1] += facts.size[value]
            change[last + 1] -= facts.size[value]
    levels = []
    for place, (task, here) in enumerate(zip(order, itertools.accumulate(change), strict=False)):
        written = facts.written[task]
        if facts.in_place[task]:
            freed = [value for value in facts.reads[task] if lasts[value] == place and not facts.pinned[value]]
            written = max(0, written - sum(facts.size[value] for value in freed))
        levels.append(facts.static + here + written + facts.workspace[task])
    return levels


def earliest(facts: Facts) -> list[int]:
    """Return the first position of the listed order after which each value can be present; -1 at the start."""
    far = len(facts.order)
    made = [-1 if there else far for there in facts.there]
    missing = [sum(made[value] == far for value in row) for row in facts.reads]

    def run(task: int, place: int) -> None:
        todo = [task]
        for each in todo:
            for value in facts.writes[each]:
                if made[value] == far:
                    made[value] = place
                    for user in facts.users[value]:
                        missing[user] -= 1
                        if missing[user] == 0 and facts.place[user] < 0:
                            todo.append(user)

    for task in facts.tasks:
        if facts.place[task] < 0 and missing[task] == 0:
            run(task, -1)
    for place, task in enumerate(facts.order):
        run(task, place)
    return made
