"""Overlap bound: the offloading volume that links can hide behind computation, and the volume that they must move.

Assume that each task runs once, in the reference order, without waiting. If the memory would then exceed the budget by
e bytes from t to t', these bytes must be elsewhere: they leave before t and return after t'. Offloading alone takes no
time only with a bandwidth of at least

    max e / t out,    max e / (T - t') back,

where T is the time of all runs. Latencies, indivisible values and concurrent transfers only increase the requirement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from remat.graph.machine import Link, Machine
from remat.graph.taskgraph import IntArray, NumberArray
from remat.units import Number


@dataclass(frozen=True, kw_only=True)
class Hiding:
    """Volume that can move during the runs, and volume that must move.

    Attributes
    ----------
    compute_time : int or float
        Each needed task once.
    movable : mapping of link name to bytes
        Bytes that the link moves in that time, ignoring latency; None: unlimited; 0: it blocks the processor.
    budget : int
        Capacity of the processor's memory: the given one, or the minimum of any schedule.
    least : bool
        Whether it is the minimum.
    away : int
        Maximum bytes that must be elsewhere at a time without recomputation.
    out_bandwidth, back_bandwidth : float
        Bytes per time unit below which offloading alone takes time. It is infinite if no bandwidth is enough, because
        no run or no asynchronous link can overlap.
    """

    compute_time: Number
    movable: Mapping[str, int | None]
    budget: int
    least: bool
    away: int
    out_bandwidth: float
    back_bandwidth: float

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a JSON document; null: any number of bytes, or no bandwidth."""
        return {
            "compute_time": self.compute_time,
            "movable": dict(self.movable),
            "budget": self.budget,
            "least_budget": self.least,
            "away": self.away,
            "free_out_bandwidth": None if math.isinf(self.out_bandwidth) else self.out_bandwidth,
            "free_back_bandwidth": None if math.isinf(self.back_bandwidth) else self.back_bandwidth,
        }


def hiding_of(
    machine: Machine, time: NumberArray, size: IntArray, *, compute_time: Number, least: int
) -> Hiding | None:
    """Return the transfers that links can hide behind a schedule that runs each task once; None without links.

    Parameters
    ----------
    machine : Machine
        With the budget; the memory is that of its first processor.
    time, size : (n,) arrays
        The memory's bytes over time: `size[i]` from `time[i]` until `time[i+1]`.
    compute_time : int or float
        When the schedule ends.
    least : int
        Least bytes that any schedule needs.

    Returns
    -------
    Hiding or None

    Notes
    -----
    O(n).
    """
    memory = machine.processors[0].memory
    near = [
        index
        for index, link in enumerate(machine.links)
        if memory in (link.source, link.target) and link.source != link.target
    ]
    if not near:
        return None
    capacity = machine.memories[memory].capacity
    budget = least if capacity is None else max(least, capacity)
    away = np.maximum(size - budget, 0)
    over = np.flatnonzero(away)
    beside = [machine.links[index] for index in near if not _stops(machine, machine.links[index])]
    until = np.append(time[1:], compute_time)[over]
    return Hiding(
        compute_time=compute_time,
        movable={machine.link_name(index): _movable(machine, machine.links[index], compute_time) for index in near},
        budget=budget,
        least=budget == least,
        away=int(away.max(initial=0)),
        out_bandwidth=_most(away[over], time[over] * any(link.source == memory for link in beside)),
        back_bandwidth=_most(away[over], (compute_time - until) * any(link.target == memory for link in beside)),
    )


def _stops(machine: Machine, link: Link) -> bool:
    """Whether a processor is idle while a link works."""
    return any(link.channel == processor.name for processor in machine.processors)


def _movable(machine: Machine, link: Link, time: Number) -> int | None:
    if _stops(machine, link):
        return 0
    return None if link.bandwidth is None else math.floor(link.bandwidth * time)


def _most(away: IntArray, times: NumberArray) -> float:
    """Return the largest ratio of bytes and time."""
    if len(times) and times.min() <= 0:
        return math.inf
    return float((away / times).max(initial=0))
