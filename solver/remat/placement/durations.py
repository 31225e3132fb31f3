"""Durations of the runs and copies of a pattern, and the tolerance within which two instants are equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from remat.errors import OptionError
from remat.graph.machine import Link, Machine
from remat.graph.taskgraph import NumberArray, TaskGraph
from remat.units import Number

ROUNDING = 2.0**-38
"""Longest time that may be a rounding error, as a share of the time of all steps."""


def run_time(graph: TaskGraph, machine: Machine, task: int, processor: int) -> Number:
    """Return the time of a task on a processor; OptionError if that processor cannot run it."""
    own = machine.processors[processor]
    time: Number = graph.time[task].item()
    if graph.times is not None:
        known = graph.types.index(own.type) if own.type in graph.types else None
        time = -1 if known is None else graph.times[known, task].item()
        if time < 0:
            raise OptionError(f"{own.name} cannot run {graph.tasks[task]}", argument="pattern")
    if own.speed == 1:
        return time
    slower = time / own.speed
    return int(slower) if isinstance(time, int) and slower == int(slower) else slower


def link_between(machine: Machine, source: int, target: int) -> Link:
    """Return the link from one memory to another; OptionError if there is none."""
    return machine.link_between(source, target)


def copy_time(graph: TaskGraph, machine: Machine, value: int, source: int, target: int) -> Number:
    """Return the time from the start of a copy until its arrival."""
    return graph.link_for(link_between(machine, source, target), value).time(int(graph.size[value]))


def copy_held(graph: TaskGraph, machine: Machine, value: int, source: int, target: int) -> Number:
    """Return how long a copy occupies its link."""
    link = graph.link_for(link_between(machine, source, target), value)
    return replace(link, delay=0).time(int(graph.size[value]))


def instants(start: NumberArray, slack: float) -> NumberArray:
    """Return the times with those that differ by at most `slack` made equal.

    Where close times span more than that, those that differ by rounding alone stay together.
    """
    if not slack or not len(start):
        return start
    order = np.argsort(start, kind="stable")
    gaps = np.diff(start[order])
    begins = np.concatenate(([True], gaps > slack))
    firsts = np.flatnonzero(begins)
    spans = start[order][np.append(firsts[1:], len(start)) - 1] - start[order][firsts]
    begins[1:] |= (spans > slack)[np.cumsum(begins)[1:] - 1] & (gaps > ROUNDING * float(start.max(initial=0)))
    found = start.copy()
    anchor = -np.inf
    for k, is_first in zip(order.tolist(), begins.tolist(), strict=True):
        anchor = float(start[k]) if is_first or start[k] - anchor > slack else anchor
        found[k] = anchor
    return found
