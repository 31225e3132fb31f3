"""Groups of the values of a task graph: by module, by the part of the program that computes them, or single values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remat.graph.taskgraph import IntArray, TaskGraph

MOST_GROUPS = 8
"""Groups that are shown by name; all other values are one more."""

MOST_SIBLINGS = 4
"""Maximum number of groups that differ only in a number, such as layers of a network; more are combined into ranges."""

DEEPEST, CLEARLY = 6, 1.05
"""Components of names to look at; longer ones are taken where the groups tell so many times more."""

OTHERS = "others"

_BACKWARD = frozenset({"d", "dW", "dX", "db", "grad", "new", "update"})
"""Components of names that say how a value belongs to a part of the program, not to which part."""

_NUMBERED = re.compile(r"(.*?)(\d+)")


@dataclass(frozen=True, slots=True)
class Groups:
    """Values by group.

    Attributes
    ----------
    labels : tuple of str
        In order of their first values' appearance; `OTHERS`, if present, is last.
    of_value : (values,) int64
        Position in `labels`.
    by : str
        ``module``, ``part`` (of the program, by the names of tasks), ``operation`` or ``value``.
    colours : tuple of int
        For each label a number from 0 to `MOST_GROUPS`, which `OTHERS` has. It hardly depends on the schedule, so that
        a group keeps its colour in pictures of several schedules of a graph.
    """

    labels: tuple[str, ...]
    of_value: IntArray
    by: str
    colours: tuple[int, ...]


def groups_of(graph: TaskGraph, weight: NDArray[np.float64], first: NDArray[np.float64]) -> Groups:
    """Return the (at most `MOST_GROUPS`) groups with the largest weight, and the others as one group.

    Parameters
    ----------
    graph : TaskGraph
    weight, first : (values,) float64
        Importance of a value, and the time of its first appearance.
    """
    keys, by = _keys(graph, graph.size.astype(np.float64))
    known = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    of_value = np.array([known[key] for key in keys], dtype=np.int64)
    total = np.bincount(of_value, weight, len(known))
    begin = np.full(len(known), np.inf)
    np.minimum.at(begin, of_value, first)
    named = np.argsort(-total, kind="stable")[:MOST_GROUPS]
    named = named[total[named] > 0]
    named = _ordered(named, list(known), begin)
    place = np.full(len(known), len(named), dtype=np.int64)
    place[named] = np.arange(len(named))
    names = list(known)
    labels = [names[k] for k in named.tolist()]
    left = int((total > 0).sum()) > len(named)
    size = np.bincount(of_value, graph.size.astype(np.float64), len(known))
    colours = _colours(named.tolist(), np.argsort(-size, kind="stable").tolist())
    if left or not labels:
        return Groups((*labels, OTHERS), place[of_value], by, (*colours, MOST_GROUPS))
    return Groups(tuple(labels), place[of_value], by, colours)


def _colours(named: Sequence[int], by_size: Sequence[int]) -> tuple[int, ...]:
    """Return a colour for each named group: its place by size if that is a colour, otherwise one that is left over."""
    place = {group: rank for rank, group in enumerate(by_size)}
    own = {place[group] for group in named}
    left = (colour for colour in range(MOST_GROUPS) if colour not in own)
    found: dict[int, int] = {}
    for group in sorted(named, key=place.__getitem__):
        found[group] = place[group] if place[group] < MOST_GROUPS else next(left)
    return tuple(found[group] for group in named)


def _keys(graph: TaskGraph, weight: NDArray[np.float64]) -> tuple[list[str], str]:
    """Return the group of each value by the first rule that separates groups, and the name of that rule."""
    count = len(graph.values)
    maker = np.full(count, -1, dtype=np.int64)
    for tasks in (graph.readers, graph.producers):  # a value without a producer belongs to its first reader
        some = tasks.counts > 0
        maker[some] = tasks.items[tasks.start[:-1][some]]
    names = [graph.tasks[task] if task >= 0 else graph.values[k] for k, task in enumerate(maker.tolist())]
    parts = [[part for part in name.split(".") if part not in _BACKWARD] or [name] for name in names]
    if graph.modules is not None:
        modules = [graph.modules[task] if task >= 0 else "" for task in maker.tolist()]
        keys = _cut([module.split(".") if module else parts[k] for k, module in enumerate(modules)], weight)
        if len(set(keys)) > 1:
            return keys, "module"
    if 1 < len({path[0] for path in parts}) <= max(2, count // 3):
        return _cut(parts, weight), "part"
    operations = [path[0].removeprefix("t:").rstrip("0123456789_") for path in parts]
    if 1 < len(set(operations)) <= max(2, count // 2):
        return operations, "operation"
    return list(graph.values), "value"


def _cut(paths: Sequence[Sequence[str]], weight: NDArray[np.float64]) -> list[str]:
    """Cut paths at the most informative depth: maximize the entropy of bytes by group times the share with names."""
    best: tuple[float, list[str]] = (-1.0, [])
    for depth in range(1, min(max(map(len, paths), default=1), DEEPEST) + 1):
        keys = _in_ranges([".".join(path[:depth]) for path in paths])
        known = {key: index for index, key in enumerate(dict.fromkeys(keys))}
        total = np.sort(np.bincount([known[key] for key in keys], weight, len(known)))[::-1]
        shown = np.append(total[:MOST_GROUPS], total[MOST_GROUPS:].sum()) / (total.sum() or 1.0)
        share = shown[shown > 0]
        told = float(-(share * np.log(share)).sum()) * (1 - float(shown[-1]))
        if told > best[0] * CLEARLY or not best[1]:
            best = told, keys
    return best[1]


def _ordered(named: IntArray, keys: Sequence[str], begin: NDArray[np.float64]) -> IntArray:
    """Sort by first appearance; labels that differ only in a number follow the first of them, by that number."""
    earliest: dict[str, float] = {}
    place: dict[int, tuple[str, int]] = {}
    for k in named.tolist():
        key = str(keys[k])
        family = key.rstrip("0123456789.* ").partition(" to ")[0].rstrip("0123456789.*")
        number = re.search(r"\d+", key[len(family) :])
        place[k] = family if number else key, int(number[0]) if number else -1
        family = place[k][0]
        earliest[family] = min(earliest.get(family, np.inf), float(begin[k]))
    ordered = sorted(named.tolist(), key=lambda k: (earliest[place[k][0]], place[k]))
    return np.array(ordered, dtype=np.int64)


def _in_ranges(keys: list[str]) -> list[str]:
    """Merge groups that differ only in a number into ranges, if there are many."""
    families: dict[str, set[int]] = {}
    for key in set(keys):
        if match := _NUMBERED.fullmatch(key):
            families.setdefault(match[1], set()).add(int(match[2]))
    ranges: dict[str, str] = {}
    for prefix, numbers in families.items():
        if len(numbers) <= MOST_SIBLINGS or len(families) + len(numbers) <= MOST_GROUPS:
            continue
        for chunk in np.array_split(np.array(sorted(numbers)), MOST_SIBLINGS):
            part = "" if prefix else ".*"
            again = "" if prefix.endswith(".") else prefix
            ends = f"{prefix}{chunk[0]}{part}", f"{again}{chunk[-1]}{part}"
            label = ends[0] if len(chunk) == 1 else f"{ends[0]} to {ends[1]}"
            ranges |= {f"{prefix}{number}": label for number in chunk.tolist()}
    return [ranges.get(key, key) for key in keys]
