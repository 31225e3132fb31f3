"""Options of a leaf: which of its values are saved; the others are recomputed when the backward first needs them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from remat_algorithms.dag.hierarchy.options import Option, Subgraph, undominated

MOST_SUBSETS = 7
"""Maximum number of values of a leaf of which all subsets are tried; beyond, values are given up one by one."""


def leaf_options(leaf: Subgraph) -> list[Option]:
    """Return the undominated options of a leaf; O(2^values) measurements, O(values^2) if they are many."""
    network = leaf.network
    inside = [
        value
        for value in network.made_within(leaf.low, leaf.high)
        if value not in leaf.outputs and network.reach[value] >= 0 and network.size[value]
    ]
    if len(inside) <= MOST_SUBSETS:
        tried = (
            leaf.option(backward_runs(leaf, set(saved), forget=forget))
            for saved in _subsets(inside)
            for forget in (False, True)
        )
        return undominated(tried)
    return undominated(_given_up(leaf, inside))


def _subsets(values: list[int]) -> Iterator[tuple[int, ...]]:
    for count in range(len(values) + 1):
        yield from combinations(values, count)


def _given_up(leaf: Subgraph, values: list[int]) -> Iterator[Option]:
    """Yield options with fewer and fewer saved values; each step drops the value that costs the least time per byte."""
    saved = set(values)
    option = leaf.option(backward_runs(leaf, saved))
    yield option
    yield leaf.option(backward_runs(leaf, set(), forget=True))
    while saved:
        tried = [(value, leaf.option(backward_runs(leaf, saved - {value}))) for value in sorted(saved)]
        for _, other in tried:
            yield other
        value, option = min(tried, key=lambda pair: _price(pair[1], option))
        saved.discard(value)


def _price(other: Option, option: Option) -> tuple[float, float]:
    freed = option.saved - other.saved
    more = float(other.time - option.time)
    return (more / freed if freed > 0 else (0.0 if more <= 0 else float("inf"))), more


def backward_runs(leaf: Subgraph, saved: set[int], *, forget: bool = False) -> list[int]:
    """Return the backward positions of a leaf, each after the forward positions that compute its missing values.

    A computed value stays until its last use or, with `forget`, only for the next backward position.
    """
    network = leaf.network
    absent = set(network.made_within(leaf.low, leaf.high)) - saved - set(leaf.outputs)
    lost = set(absent)
    runs: list[int] = []
    for position in leaf.backward:
        waiting = [value for value in reversed(network.reads[position]) if value in lost]
        while waiting:
            value = waiting[-1]
            maker = network.made[value]
            missing = [read for read in network.reads[maker] if read in lost] if value in lost else []
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if value in lost:
                runs.append(maker)
                lost.difference_update(network.writes[maker])
        runs.append(position)
        if forget:
            lost = set(absent)
    return runs
