"""Groups of the values of a task graph: by module, by the part of the program that makes them, or one by one."""

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
"""Groups that differ only in a number, such as the layers of a network; more are shown in so many ranges."""

LARGEST_SHARE, DEEPEST = 0.6, 6
"""A group with more of all weight is taken apart, by at most so many components of names."""

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
        In the order in which their first values appear; `OTHERS` comes last, if there are any.
    of_value : (values,) int64
        Position in `labels`.
    by : str
        ``module``, ``part`` (of the program, by the names of tasks), ``operation`` or ``value``.
    """

    labels: tuple[str, ...]
    of_value: IntArray
    by: str


def groups_of(graph: TaskGraph, weight: NDArray[np.float64], first: NDArray[np.float64]) -> Groups:
    """Return at most `MOST_GROUPS` groups and the others: those with the largest weight.

    Parameters
    ----------
    graph : TaskGraph
    weight, first : (values,) float64
        How much a value matters, and when it appears for the first time.
    """
    keys, by = _keys(graph, weight)
    if by != "value":
        keys = _in_ranges(keys)
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
    return Groups((*labels, OTHERS) if left or not labels else tuple(labels), place[of_value], by)


def _keys(graph: TaskGraph, weight: NDArray[np.float64]) -> tuple[list[str], str]:
    """Return the group of each value by the first rule that tells groups apart, and the name of that rule."""
    count = len(graph.values)
    maker = np.full(count, -1, dtype=np.int64)
    for tasks in (graph.readers, graph.producers):  # what no task makes belongs to its first reader
        some = tasks.counts > 0
        maker[some] = tasks.items[tasks.start[:-1][some]]
    if graph.modules is not None:
        modules = [graph.modules[task] if task >= 0 else "" for task in maker.tolist()]
        keys = _cut([module.split(".") for module in modules], weight)
        if len(set(keys)) > 1:
            return keys, "module"
    names = [graph.tasks[task] if task >= 0 else graph.values[k] for k, task in enumerate(maker.tolist())]
    parts = _cut([[part for part in name.split(".") if part not in _BACKWARD] or [name] for name in names], weight)
    if 1 < len(set(parts)) <= max(2, count // 3):
        return parts, "part"
    operations = [name.removeprefix("t:").rstrip("0123456789_") for name in parts]
    if 1 < len(set(operations)) <= max(2, count // 2):
        return operations, "operation"
    return list(graph.values), "value"


def _cut(paths: Sequence[Sequence[str]], weight: NDArray[np.float64]) -> list[str]:
    """Cut paths as short as leaves no group more than `LARGEST_SHARE` of the weight, if any length does."""
    keys: list[str] = []
    for depth in range(1, min(max(map(len, paths), default=1), DEEPEST) + 1):
        keys = [".".join(path[:depth]) for path in paths]
        known = {key: index for index, key in enumerate(dict.fromkeys(keys))}
        total = np.bincount([known[key] for key in keys], weight, len(known))
        if total.max(initial=0.0) <= LARGEST_SHARE * total.sum():
            break
    return keys


def _ordered(named: IntArray, keys: Sequence[str], begin: NDArray[np.float64]) -> IntArray:
    """Sort by first appearance, and those that differ only in a number by that, from where the first of them is."""
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
    """Name many groups that differ only in a number by the range to which they belong."""
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
            ends = f"{prefix}{chunk[0]}{part}", f"{prefix}{chunk[-1]}{part}"
            label = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
            ranges |= {f"{prefix}{number}": label for number in chunk.tolist()}
    return [ranges.get(key, key) for key in keys]
