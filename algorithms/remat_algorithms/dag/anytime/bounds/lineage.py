"""Which tasks every order runs before or after which, and moments at which much must be resident in any of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remat.plugin import Problem
from remat_algorithms.dag.anytime.bounds.blocks import Facts
from remat_algorithms.dag.plans.model import StageModel

MOST_ITEMS = 20_000
"""Tasks up to which ancestors and descendants of all are listed: one bit for each pair."""

STEEP = 3
"""Power of the levels by which a chain is weighed: high ones count, and many."""

CHUNK = 256
"""Values whose bits are spread out at once."""


def speaks_for_all(problem: Problem, model: StageModel) -> bool:
    """Whether what holds for all orders of a model's tasks, with reruns, holds for every schedule of the problem.

    That is: one processor, one memory, and nothing that could be made in another way.
    """
    machine, graph = problem.machine, problem.graph
    if not model.simple or model.stages > MOST_ITEMS or len(machine.processors) > 1 or len(machine.memories) > 1:
        return False
    origins = [len(set(tasks)) for tasks in graph.producers.to_lists()]
    for place in graph.inputs:
        origins[place.value] += 1
    return max(origins, default=0) <= 1 and bool(problem.needed.forced[model.task].all())


@dataclass(frozen=True)
class Lineage:
    """What holds in every order of a simple model's first runs.

    Attributes
    ----------
    facts : Facts
    producer : list of int
        The item that makes each value; -1 for what is resident at the start.
    before, after : list of int
        Ancestors and descendants of each item, as bits.
    own : list of int
        Bytes that a run of each item needs on top of what is resident: written, workspace, and what is always there.
    level : list of float
        Bytes of `own`, and of what in every order is made before the item's first run, and needed then or later.
    """

    facts: Facts
    producer: list[int]
    before: list[int]
    after: list[int]
    own: list[int]
    level: list[float]

    @staticmethod
    def of(facts: Facts) -> Lineage:
        """Collect it. O(items * (accesses + values) / 8) bytes are touched."""
        producer, items = facts.lives.made, range(facts.model.stages)
        before, after = [0 for _ in items], [0 for _ in items]
        for item in items:
            for value in facts.reads[item]:
                if producer[value] >= 0:
                    before[item] |= before[producer[value]] | 1 << producer[value]
        for item in reversed(items):
            for value in facts.writes[item]:
                for user in facts.users[value]:
                    after[item] |= after[user] | 1 << user
        own = _own(facts)
        return Lineage(facts, producer, before, after, own, _levels(facts, before, after, own))

    def has_run(self, item: int, moment: int) -> bool | None:
        """Whether an item has run when another one runs for the first time; None if that is the order's choice."""
        if self.before[moment] >> item & 1:
            return True
        return False if item == moment or self.after[moment] >> item & 1 else None

    def chain(self) -> list[int]:
        """Return items, each an ancestor of the next: the two neighbours of highest level, and what can go with them.

        O(accesses).
        """
        facts, level = self.facts, self.level
        pairs = [
            (self.producer[value], item)
            for item, reads in enumerate(facts.reads)
            for value in reads
            if self.producer[value] >= 0
        ]
        if not pairs:
            return [max(range(len(level)), key=level.__getitem__)] if level else []
        first, second = max(pairs, key=lambda pair: level[pair[0]] + level[pair[1]])
        middle = [first, second]
        parent, child = _heaviest(pairs, level), _heaviest([(b, a) for a, b in reversed(pairs)], level)
        while middle[0] in parent:
            middle.insert(0, parent[middle[0]])
        while middle[-1] in child:
            middle.append(child[middle[-1]])
        return middle


def choose(chain: Sequence[int], level: Sequence[float], count: int) -> list[int]:
    """Return so many items of a chain, or one less, at high levels: neighbours, since they say most together.

    Of more items, those of fewer are a part.

    Parameters
    ----------
    chain : sequence of int
        See `Lineage.chain`.
    level : sequence of float
        Of all items.
    count : int
    """
    pairs = sorted(itertools.pairwise(chain), key=lambda pair: -level[pair[0]] - level[pair[1]])
    if count == 1 or not pairs:
        return [max(pairs[0] if pairs else chain, key=level.__getitem__)]
    chosen: set[int] = set()
    for pair in pairs:
        if len(chosen.union(pair)) > count:
            break
        chosen.update(pair)
    return [item for item in chain if item in chosen]


def _heaviest(pairs: Sequence[tuple[int, int]], level: Sequence[float]) -> dict[int, int]:
    """Return for each second item of some pair the first one that the heaviest way to it goes through.

    The pairs come in a topological order of their second items.
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


def _own(facts: Facts) -> list[int]:
    tables = facts.model.tables
    always = tables.static[0] + sum(itertools.compress(tables.size, tables.pinned))
    own = []
    for item, reads in enumerate(facts.reads):
        written = tables.written[item]
        if tables.in_place[item]:
            written = max(0, written - sum(tables.size[value] for value in reads if not tables.pinned[value]))
        own.append(int(always + written + tables.workspace[item]))
    return own


def _levels(facts: Facts, before: Sequence[int], after: Sequence[int], own: Sequence[int]) -> list[float]:
    tables, items = facts.model.tables, len(own)
    everything = (1 << items) - 1
    level = np.array(own, dtype=np.float64)
    values = [value for value, pinned in enumerate(tables.pinned) if not pinned]
    for start in range(0, len(values), CHUNK):
        rows = []
        for value in values[start : start + CHUNK]:
            made = facts.lives.made[value]
            past = after[made] if made >= 0 else everything
            future = everything if tables.stays[value] else 0
            for user in facts.users[value]:
                future |= before[user] | 1 << user
            rows.append((past & future).to_bytes(items // 8 + 1, "little"))
        bits = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), -1)
        sizes = np.array([tables.size[value] for value in values[start : start + CHUNK]], dtype=np.float64)
        level += sizes @ np.unpackbits(bits, axis=1, count=items, bitorder="little")
    return [float(each) for each in level]
