"""Residencies as boxes over time and address, as memory visualisers show them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat.graph.taskgraph import IntArray, NumberArray
from remat.report.views.composition import Stays
from remat.report.views.kinds import Kind
from remat.schedule.addresses import NONE, Arena
from remat.solving.result import Result


@dataclass(frozen=True, slots=True)
class Boxes:
    """The residencies of one memory, in the order in which they begin.

    Attributes
    ----------
    arena : Arena
    static : int
        Bytes at its beginning that are occupied throughout.
    kind : (boxes,) int64
        `Kind`.
    value, task : (boxes,) int64
        The value, or the task whose workspace it is; the other one is -1.
    first, last : (boxes,) int64
        Steps: -1 before the first one, the number of steps at the end.
    begin, end : (boxes,) arrays
        Times.
    low, high : (boxes,) int64
        Addresses.
    """

    arena: Arena
    static: int
    kind: IntArray
    value: IntArray
    task: IntArray
    first: IntArray
    last: IntArray
    begin: NumberArray
    end: NumberArray
    low: IntArray
    high: IntArray


def address_boxes(result: Result, stays: Stays, memory: int) -> Boxes | None:
    """Return the boxes of one memory; None if its addresses are not known."""
    report = result.report
    if result.addresses is None or report is None:
        return None
    table = result.addresses.of_memory(memory)
    if not table.arenas:
        return None
    lives, count = stays.lives, len(report.start)
    keys = zip(lives.memory.tolist(), lives.value.tolist(), lives.born.tolist(), strict=True)
    kinds = dict(zip(keys, stays.kind.tolist(), strict=True))
    rows = zip(table.value.tolist(), table.first.tolist(), strict=True)
    kind = [
        int(Kind.WORKSPACE) if value == NONE else kinds.get((memory, value, first), int(Kind.VALUES))
        for value, first in rows
    ]
    begin = np.append(report.start, 0)[table.first]  # -1, before the first step, is the last entry
    end = np.append(report.end, report.makespan)[np.minimum(table.last, count)]
    order = np.lexsort((table.offset, begin))
    return Boxes(
        arena=table.arenas[0],
        static=result.graph.static_bytes(result.machine, memory),
        kind=np.array(kind, dtype=np.int64)[order],
        value=table.value[order],
        task=table.task[order],
        first=table.first[order],
        last=table.last[order],
        begin=begin[order],
        end=end[order],
        low=table.offset[order],
        high=(table.offset + table.size)[order],
    )
