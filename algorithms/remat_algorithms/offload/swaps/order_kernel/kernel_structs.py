"""Data of this package's functions, as records that are interpreted and compiled alike (see `kit.compile`).

Of the machines that the other modules of `swaps` support, this is the usual one: a processor, and an unbounded memory
with one link out and one back. All values begin and end in the processor's memory.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from remat_algorithms.kit.compile.records import cells

Array = Any
"""An array of int64 or, for times, of float64."""

NONE = -1
"""No run, copy, gap or transfer; before all runs."""


class Given(NamedTuple):
    """A problem.

    Attributes
    ----------
    read_start, read, write_start, write
        Reads and writes of tasks: those of task t are ``read[read_start[t]:read_start[t + 1]]``.
    workspace, in_place, must : (tasks,)
    time : (tasks,)
    size, pinned, stays : (values,)
        `stays`: whether it is an output.
    out, back : (values,)
        Times of the transfers.
    inputs, outputs : (inputs,), (outputs,)
        Values; outputs in ascending order.
    static, capacity : int
        Bytes of the processor's memory.
    out_channel, back_channel : int
        0 or 1, in the order in which channels are examined; equal if both directions share one.
    """

    read_start: Array
    read: Array
    write_start: Array
    write: Array
    workspace: Array
    in_place: Array
    must: Array
    time: Array
    size: Array
    pinned: Array
    stays: Array
    out: Array
    back: Array
    inputs: Array
    outputs: Array
    static: int
    capacity: int
    out_channel: int
    back_channel: int


@cells
class Figures(ctypes.Structure):
    """The state of a call.

    Attributes
    ----------
    runs, copies, gaps, drops, transfers, chosen : int
        Their numbers.
    free : int
        Unoccupied bytes.
    unfinished, latest : int
        The first run that has not ended, the latest one that has started.
    reused : int
        Bytes of its reads that the active run takes over.
    leaving, coming : int
        The first waiting transfers.
    turn, run_turn, out_turn, back_turn : int
        How many steps have started; the turns in which the active ones started (0: none is active).
    out, back : int
        The active transfers.
    """

    runs: int
    copies: int
    gaps: int
    drops: int
    transfers: int
    chosen: int
    free: int
    unfinished: int
    latest: int
    reused: int
    leaving: int
    coming: int
    turn: int
    run_turn: int
    out_turn: int
    back_turn: int
    out: int
    back: int


class Runs(NamedTuple):
    """An order of runs, with its copies of values and the gaps between their accesses (see `swaps.Order`).

    Attributes
    ----------
    asked : (most runs,)
        The given runs.
    task, profile : (most runs + 1,)
        The useful ones of these, and the bytes that each must hold (see `program.planned_profile`).
    change : (most runs + 2,)
        Changes of these from run to run.
    left : (tasks,)
        Runs of each that have not been left out.
    current : (values,)
        The current copy of each.
    value, written, last, first_gap, latest_gap, next_run
        By copy. `next_run`: the run that writes the value again.
    gap_value, gap_after, gap_before, gap_next
        By gap; the next one of its copy.
    drop_head, drop_value, drop_next
        Values freed at each run's end: entries in a list, of which `drop_head` is the first one.
    figures : Figures
    """

    asked: Array
    task: Array
    profile: Array
    change: Array
    left: Array
    current: Array
    value: Array
    written: Array
    last: Array
    first_gap: Array
    latest_gap: Array
    next_run: Array
    gap_value: Array
    gap_after: Array
    gap_before: Array
    gap_next: Array
    drop_head: Array
    drop_value: Array
    drop_next: Array
    figures: Figures


class Moves(NamedTuple):
    """Offloaded values, their transfers, and all start times.

    Attributes
    ----------
    ranking, taken : (gaps,)
        Gaps in the order in which they are taken, and the selected ones.
    level : (most runs + 1,)
        Bytes that are free at each run.
    chosen, leave_with, return_with : (gaps,)
        The offloaded gaps (see `copies.Swap`).
    move_value, ready, needed, last_use, previous, begin, leaves
        By transfer (see `program.Transfer`).
    awaited, blocked, ended, queued, used_next
        Likewise: the run that waits for it; the run before whose end it does not fit; whether it has ended; the next
        one in its queue; the next one whose source the same run uses last.
    drops, used_head, pending, ended_runs : (most runs + 1,)
        Values freed at each run's end; transfers whose source it uses last; how many it still waits for; whether it
        has ended.
    present : (values,)
        Whether each is in the processor's memory.
    started : (most runs + 1,)
    clock : (4,)
        When the active run and transfers end; now.
    open_start, close_start, opens, closes
        By value, where it arrives and goes.
    bucket, order
        Workspace for sorting.
    """

    ranking: Array
    taken: Array
    level: Array
    chosen: Array
    leave_with: Array
    return_with: Array
    move_value: Array
    ready: Array
    needed: Array
    last_use: Array
    previous: Array
    begin: Array
    leaves: Array
    awaited: Array
    blocked: Array
    ended: Array
    queued: Array
    used_next: Array
    drops: Array
    used_head: Array
    pending: Array
    ended_runs: Array
    present: Array
    started: Array
    clock: Array
    open_start: Array
    close_start: Array
    opens: Array
    closes: Array
    bucket: Array
    order: Array
